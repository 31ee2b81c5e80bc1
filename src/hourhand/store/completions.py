"""Transactions in which a job writes what it will and, as the last thing, the end of its own run."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from hourhand.database.connections import CONNECTION_FAULTS, Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.errors import CommitUnknown, DatabaseUnavailable, TransactionLost
from hourhand.ports.stores import Finish
from hourhand.store.live_runs import LiveRuns

if TYPE_CHECKING:
    from asyncpg.transaction import Transaction

CLOSE_SECONDS_MAX: Final = 5.0
_FORGET: Final = "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL; DISCARD TEMP"
"""What a job may have left behind in the session; the next one must not find it."""


_ENDED: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
"""The server's last words to a connection."""
_OF_THE_DATABASE: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Without OSError, which may be the job's own."""


class Completions:
    def __init__(self, database: Database, live_runs: LiveRuns) -> None:
        """`live_runs` must be on the same database."""
        self._database = database
        self._live_runs = live_runs
        self._queries = load_queries("hourhand.store.sql", "completions.sql", database.schema)

    async def begin(self) -> "Completion":
        db = await self._database.borrow()
        transaction = db.transaction()
        try:
            await transaction.start()
        except BaseException as fault:
            db.terminate()
            self._database.give_back(db)
            if isinstance(fault, CONNECTION_FAULTS):
                raise _unavailable(fault) from fault
            raise
        return Completion(self._database, db, transaction, self._live_runs)

    async def is_recorded(self, finish: Finish) -> bool:
        # In this order: the first statement waits for the transaction whose fate is asked about.
        held = await self._database.fetch(self._queries["still_held"], run_id=finish.run_id, fence=finish.fence)
        if held:
            return False
        return bool(
            await self._database.fetch(
                self._queries["is_recorded"], run_id=finish.run_id, state=finish.state, ended_at=finish.ended_at
            )
        )


class _Lent:
    """A connection in the hands of users' code, until it is taken back. Whoever still has it then would otherwise speak
    in the middle of somebody else's transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection

    def __getattr__(self, name: str) -> Any:
        if self._connection is None:
            raise asyncpg.InterfaceError("the block of ctx.transaction() has ended: its connection is another's now")
        return getattr(self._connection, name)

    def take_back(self) -> None:
        self._connection = None


class Completion:
    """One such transaction, open."""

    def __init__(
        self, database: Database, connection: Connection, transaction: "Transaction", live_runs: LiveRuns
    ) -> None:
        self.connection = _Lent(connection)
        self._connection = connection
        self._database = database
        self._transaction = transaction
        self._live_runs = live_runs
        self._is_open = True
        self._is_closed = False

    async def complete(self, finish: Finish) -> bool:
        if self._is_gone():
            raise TransactionLost
        if not self._connection.is_in_transaction():
            raise RuntimeError("the handler has ended the transaction of ctx.transaction() itself")
        rows = await self._finish(finish)
        if not rows:
            return False
        self._is_open = False
        try:
            await self._transaction.commit()
        except CONNECTION_FAULTS as fault:
            raise CommitUnknown(f"the connection broke during the commit: {fault or type(fault).__name__}") from fault
        self._live_runs.tell_let_go(rows)
        return True

    def is_lost_by(self, error: BaseException) -> bool:
        return isinstance(error, _ENDED) or (isinstance(error, _OF_THE_DATABASE) and self._is_gone())

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.connection.take_back()
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                if self._is_open:
                    await self._transaction.rollback()
                if not self._database.settings.pooler:
                    await self._connection.execute(_FORGET)
                _forget_references(self._connection)
        except (asyncpg.PostgresError, *CONNECTION_FAULTS):
            self._connection.terminate()  # in whatever state it is, nobody gets it after this
        self._database.give_back(self._connection)

    async def _finish(self, finish: Finish) -> list[Record]:
        try:
            return await self._live_runs.finish_on(self._connection, finish)
        except CONNECTION_FAULTS as fault:
            raise TransactionLost from fault

    def _is_gone(self) -> bool:
        return self._connection.is_closed()


def _forget_references(db: Connection) -> None:
    """As the driver's own pool does: statements, cursors and listeners that a job has made end with its use."""
    db._listeners.clear()  # type: ignore[attr-defined]
    db._log_listeners.clear()  # type: ignore[attr-defined]
    db._pool_release_ctr += 1  # type: ignore[attr-defined]


def _unavailable(fault: BaseException) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the database cannot be reached: {fault or type(fault).__name__}")
