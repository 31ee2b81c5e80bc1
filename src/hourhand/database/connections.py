"""Connections to PostgreSQL: a pool whose every call has a deadline, and the one session that listens.

Works against the embedded server, a plain one, and through PgBouncer in transaction mode (`pooler`): then every
statement runs inside an explicit transaction and nothing is kept prepared, because consecutive messages
outside a transaction may reach different server sessions. The listening session always needs a direct URL.

A deadline covers all that is done with a connection, from asking for one to giving it back. The driver's own limits do
not: the roll-back after a statement that took too long gets a new one, a COPY that waits for room to write has none. A
call that is given up, at its deadline or because its task was cancelled, asks nobody what became of it: its connection
is cut, which takes no time, and the server ends what it was doing for it when it notices.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import asyncpg

from hourhand.database.pool import Pool
from hourhand.database.queries import Query
from hourhand.database.servers import CONNECTION_FAULTS, Connection, Servers
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

__all__ = [
    "CONNECTION_FAULTS",
    "PING_SECONDS",
    "Connection",
    "Database",
    "DatabaseSettings",
    "Listener",
    "Record",
    "tried_twice",
]

Record = asyncpg.Record
_P = ParamSpec("_P")
_T = TypeVar("_T")

VERSION_MIN = 150000
CLOSE_SECONDS_MAX: Final = 5.0
IDLE_SECONDS_MAX: Final = 300.0
CUT_SECONDS: Final = 0.5
"""What does not wait for the connection that was cut, but for something else, is cancelled this much later."""
NOTICE_MILLISECONDS: Final = 2000
"""How often the server looks, in the middle of a statement, whether its client is still there."""
_MILLISECONDS_MOST: Final = 2**31 - 1
PING_SECONDS: Final = 10.0
PING_ANSWER_SECONDS_MAX: Final = 5.0
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
"""What we acknowledge is on disk, whatever the server's default is; a default that waits for standbys too stays."""
_LOOSE_SETTINGS: Final = (
    "SELECT name FROM pg_settings WHERE reset_val = 'off'"
    " AND name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name"
)
_BY_INDEX: Final = {"enable_seqscan": "off", "jit": "off"}
"""Plans of prepared statements are kept, and the queue tables fill and empty within seconds: a plan made while one of
them was empty reads it from end to end, and goes on to do so with a hundred thousand rows in it. Through a pooler
nothing is kept prepared, and each plan fits the tables as they are. Before version 18 a scan that cannot be avoided
counts as very dear then, and a dear plan is compiled, which takes longer than all our statements do."""
_PLANNED_ONCE: Final = {"plan_cache_mode": "force_generic_plan"}
"""For those who ask for little at a time. By default PostgreSQL plans each time anew where that promises to leave out
partitions or rows: to plan the look at one job takes six times as long as the look."""
_IN_EACH_OTHERS_WAY: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    url: str = ""
    """PostgreSQL to use. Empty: the embedded one in the home folder. May name several servers, separated by commas, of
    which the one that takes writes is used: `postgresql://user:password@a:5432,b:5432/database`."""
    schema: str = "hourhand"
    """Schema that holds all tables; several Hourhands can share a database."""
    pooler: bool = False
    """True when `url` leads through PgBouncer in transaction mode. Costs two more round trips per statement."""
    listen_url: str = ""
    """Direct URL for the listening session when `url` leads through a pooler. Empty: the same as `url`."""
    pool_max: int = 4
    """Connections per node at most; more of them make PostgreSQL slower, not faster."""
    connect_seconds_max: float = 10.0
    """How long making a connection may take, or waiting for a free one of the pool. Shared by the servers named."""
    statement_seconds_max: float = 30.0
    """A statement or transaction that takes longer is given up, and whoever asked for it is told to try again."""
    loop_seconds_max: float = 10.0
    """The same for what schedulers and executors do all the time: plan, claim, record. Shorter, because nothing else
    notices a connection that has died without a word. Renewals of leases get a third of their lease."""


_LET_PASS_SECONDS: Final = 0.05
"""Who asks again at once may be there before the other one has got what it waited for, and stand in its way again."""


def tried_twice(work: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """For what does all it does in one statement or transaction. When two stand in each other's way, PostgreSQL takes
    one of them back: that one is done once more, and told as DatabaseUnavailable when it meets the same again."""

    @wraps(work)
    async def twice(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with suppress(*_IN_EACH_OTHERS_WAY):
            return await work(*args, **kwargs)
        await asyncio.sleep(_LET_PASS_SECONDS)
        try:
            return await work(*args, **kwargs)
        except _IN_EACH_OTHERS_WAY as fault:
            raise DatabaseUnavailable(f"others write the same rows at the same moment: {fault}") from fault

    return twice


class Database:
    """A pool. One per process; hot loops get one of their own so that readers cannot hold them up."""

    def __init__(
        self, settings: DatabaseSettings, application: str, *, any_plan: bool = False, plan_once: bool = False
    ) -> None:
        """`any_plan`: statements may read whole tables where PostgreSQL thinks that best. For work that does so, and
        for statements that are not ours. `plan_once`: a session plans each statement once, whatever its values are."""
        self.settings = settings
        self._any_plan = any_plan
        self._plan_once = plan_once
        self.schema = settings.schema
        self._application = application
        self._pool: Pool | None = None

    async def open(self) -> None:
        settings = self.settings
        try:
            self._servers = Servers(
                settings.url, seconds_max=settings.connect_seconds_max, writable=not settings.pooler
            )
        except ValueError as fault:
            raise DatabaseUnsuitable(f"the database URL cannot be used: {fault}") from None
        self._pool = Pool(self._connect, settings.pool_max, IDLE_SECONDS_MAX)

    async def _connect(self) -> Connection:
        told = {"application_name": f"hourhand {self._application}"}
        how: dict[str, Any] = {
            "command_timeout": self.settings.statement_seconds_max,
            "statement_cache_size": 0 if self.settings.pooler else 200,
        }
        if self.settings.pooler:  # it refuses all but the name
            return await self._servers.connect(**how, server_settings=told)
        # The server gives up by itself what nobody waits for any more, and lets go of its locks.
        limit = str(min(round(self.settings.statement_seconds_max * 1000), _MILLISECONDS_MOST))
        told |= {"statement_timeout": limit, "idle_in_transaction_session_timeout": limit}
        if not self._any_plan:
            told |= _BY_INDEX
        if self._plan_once:
            told |= _PLANNED_ONCE
        notices = {"client_connection_check_interval": str(NOTICE_MILLISECONDS)}
        try:
            db = await self._servers.connect(**how, server_settings=told | notices)
        except asyncpg.InvalidParameterValueError:  # its operating system cannot do that
            db = await self._servers.connect(**how, server_settings=told)
        try:
            await db.execute(_DURABLE, timeout=self.settings.connect_seconds_max)
        except BaseException:
            db.terminate()
            raise
        return db

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            await asyncio.wait_for(pool.close(), CLOSE_SECONDS_MAX)
        except (TimeoutError, *CONNECTION_FAULTS):
            pool.terminate()

    async def check(self) -> None:
        """Refuses a database that cannot be used, with a reason and a remedy."""
        try:
            async with self.connection() as db:
                version = db.get_server_version()
                number = version.major * 10000 + version.minor
                encoding = await db.fetchval("SHOW server_encoding")
                loose = await db.fetch(_LOOSE_SETTINGS)
        except asyncpg.InvalidAuthorizationSpecificationError as fault:
            raise DatabaseUnsuitable(f"the database refuses this user: {fault}") from None
        except asyncpg.InvalidCatalogNameError as fault:
            raise DatabaseUnsuitable(f"{fault}: create it first") from None
        except DatabaseUnavailable as fault:
            if isinstance(fault.__cause__, asyncpg.ProtocolViolationError):  # it did not let us set up the session
                remedy = "set database.pooler, and database.listen_url to a direct one, if it leads through a pooler"
                raise DatabaseUnsuitable(f"the database URL cannot be used ({fault.__cause__}): {remedy}") from None
            raise
        except ValueError as fault:  # asyncpg reads the URL with the first connection
            raise DatabaseUnsuitable(f"the database URL cannot be used: {fault}") from None
        if number < VERSION_MIN:
            raise DatabaseUnsuitable(f"PostgreSQL {version.major} is too old: 15 or newer is needed")
        if encoding != "UTF8":
            raise DatabaseUnsuitable(f"the database's encoding is {encoding}: it must be UTF8")
        if loose:
            emit(Event.DATABASE_NOT_DURABLE, off=[row["name"] for row in loose], remedy="turn them on at the server")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection from the pool, for as long as the deadline allows. Whatever keeps it from working is told as
        DatabaseUnavailable; what was under way then may have happened or not."""
        assert self._pool is not None, "open() comes first"
        pool, limit, loop = self._pool, self.settings.statement_seconds_max, asyncio.get_running_loop()
        deadline, lost, over = loop.time() + limit, False, False

        def hurry(_: object) -> None:
            # A COPY that waits for room to write does not notice that nobody reads any more.
            nonlocal lost
            lost = True
            if not over:
                patience.reschedule(loop.time() + CUT_SECONDS)

        try:
            async with asyncio.timeout_at(deadline + CUT_SECONDS) as patience:
                db = await pool.acquire(min(self.settings.connect_seconds_max, limit))
                db.add_termination_listener(hurry)
                cutting = loop.call_at(deadline, db.terminate)
                try:
                    yield db
                except BaseException as fault:
                    if _is_doubtful(fault):
                        db.terminate()
                    raise
                finally:
                    over = True
                    cutting.cancel()
                    db.remove_termination_listener(hurry)
                    pool.release(db)
        except (*CONNECTION_FAULTS, AttributeError) as fault:
            # An AttributeError is what a statement meets that goes on with a connection that is gone. That it is gone
            # we are told in the next turn of the loop.
            if isinstance(fault, AttributeError) and not lost:
                await asyncio.sleep(0)
            if isinstance(fault, ValueError) or (isinstance(fault, AttributeError) and not lost):
                raise  # a value that cannot be sent, or a mistake of ours: it will not pass
            if isinstance(fault, asyncpg.ReadOnlySQLTransactionError):
                # The server was demoted. Its other connections are no better, though they still answer.
                pool.expire()
            what = f"no answer within {limit:g} s" if loop.time() >= deadline else fault or type(fault).__name__
            raise DatabaseUnavailable(f"the database cannot be reached: {what}") from fault

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self.connection() as db, _transaction_on(db):
            yield db

    async def borrow(self) -> Connection:
        """A connection for work that sets its own deadlines. Must be given back."""
        assert self._pool is not None, "open() comes first"
        try:
            return await self._pool.acquire(self.settings.connect_seconds_max)
        except CONNECTION_FAULTS as fault:
            raise DatabaseUnavailable(f"the database cannot be reached: {fault or type(fault).__name__}") from fault

    def give_back(self, db: Connection) -> None:
        """Takes a borrowed connection back. One in doubt must have been cut before."""
        if self._pool is not None:
            self._pool.release(db)

    @tried_twice
    async def fetch(self, query: Query, **values: Any) -> list[Record]:
        async with self.connection() as db:
            return await self.fetch_on(db, query, **values)

    async def fetch_on(self, db: Connection, query: Query, **values: Any) -> list[Record]:
        arguments = query.arguments(values)
        if self.settings.pooler and not db.is_in_transaction():
            async with _transaction_on(db):
                return await db.fetch(query.text, *arguments)
        return await db.fetch(query.text, *arguments)

    async def fetch_within(self, seconds: float, query: Query, **values: Any) -> list[Record] | None:
        """For what can be done otherwise, or left: None when it would take longer. It must not write."""
        async with self.connection() as db, _transaction_on(db):
            await db.execute(f"SET LOCAL statement_timeout = {round(seconds * 1000)}")
            try:
                return await self.fetch_on(db, query, **values)
            except asyncpg.QueryCanceledError:
                return None  # to commit what has failed is to roll it back

    async def fetch_one(self, query: Query, **values: Any) -> Record | None:
        rows = await self.fetch(query, **values)
        return rows[0] if rows else None


@asynccontextmanager
async def _transaction_on(db: Connection) -> AsyncIterator[None]:
    """As the driver's own, but without a roll-back where nobody might answer: cutting the connection is one."""
    transaction = db.transaction()
    await transaction.start()
    try:
        yield
    except BaseException as fault:
        if _is_doubtful(fault):
            db.terminate()
        else:
            await transaction.rollback()
        raise
    await transaction.commit()


def _is_doubtful(fault: BaseException) -> bool:
    """Whether the connection may be in the middle of something, or gone."""
    return isinstance(fault, CONNECTION_FAULTS) or not isinstance(fault, Exception)


class Listener:
    """One session that hears notifications. Told everything once more after each reconnect, since what was
    said while it was away is lost; hearing is only ever a reason to look, never the news itself."""

    def __init__(self, settings: DatabaseSettings, application: str, channels: Sequence[str]) -> None:
        self._servers = Servers(
            settings.listen_url or settings.url, seconds_max=settings.connect_seconds_max, writable=True
        )
        self._settings = settings
        self._application = application
        self._channels = list(channels)

    async def listen(self, hear: Callable[[str, str], None], well: Callable[[], None]) -> None:
        """Runs until its connection ends (then it raises or returns) or it is cancelled. Calls `hear(channel, "")`
        for every channel at its start, and `well()` whenever it knows that it hears."""
        db = await self._servers.connect(
            command_timeout=self._settings.connect_seconds_max,
            server_settings={"application_name": f"hourhand {self._application} listener"},
        )
        gone = asyncio.Event()
        db.add_termination_listener(lambda _: gone.set())
        try:
            for channel in self._channels:
                await db.add_listener(channel, lambda _c, _p, name, payload: hear(str(name), str(payload)))
                hear(channel, "")
            well()
            while not gone.is_set():
                try:
                    await asyncio.wait_for(gone.wait(), PING_SECONDS)
                except TimeoutError:
                    # A half-open connection is noticed here, not never; and a server that is no longer the one that
                    # others write to says nothing more.
                    if await db.fetchval("SHOW transaction_read_only", timeout=PING_ANSWER_SECONDS_MAX) == "on":
                        return
                    well()
        finally:
            db.terminate()
