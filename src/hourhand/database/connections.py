"""Connections to PostgreSQL: a pool with deadlines, and the one session that listens.

Works against the embedded server, a plain one, and through PgBouncer in transaction mode (`pooler`): then every
statement runs inside an explicit transaction and nothing is kept prepared, because consecutive messages
outside a transaction may reach different server sessions. The listening session always needs a direct URL.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from hourhand.database.queries import Query
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable

Record = asyncpg.Record
if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

VERSION_MIN = 150000

CONNECTION_FAULTS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)
"""What a caller meets while the database is away or has just come back. All of them mean: try again later."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    url: str = ""
    """PostgreSQL to use. Empty: the embedded one in the home folder."""
    schema: str = "hourhand"
    """Schema that holds all tables; several Hourhands can share a database."""
    pooler: bool = False
    """True when `url` leads through PgBouncer in transaction mode. Costs two more round trips per statement."""
    listen_url: str = ""
    """Direct URL for the listening session when `url` leads through a pooler. Empty: the same as `url`."""
    pool_max: int = 4
    """Connections per node at most; more of them make PostgreSQL slower, not faster."""
    connect_seconds_max: float = 10.0
    """How long making a connection may take, or waiting for a free one of the pool."""
    statement_seconds_max: float = 30.0
    """A statement that takes longer is given up; its loop tries again."""


class _Connection(Connection):
    def get_reset_query(self) -> str:
        # The default resets the session after each use: a round trip per statement. Our statements leave no traces.
        return ""


class Database:
    """A pool. One per process; hot loops get one of their own so that readers cannot hold them up."""

    def __init__(self, settings: DatabaseSettings, application: str) -> None:
        self.settings = settings
        self.schema = settings.schema
        self._application = application
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        cached = 0 if self.settings.pooler else 200
        try:
            self._pool = await asyncpg.create_pool(
                self.settings.url,
                min_size=0,
                max_size=self.settings.pool_max,
                max_inactive_connection_lifetime=300.0,
                timeout=self.settings.connect_seconds_max,
                command_timeout=self.settings.statement_seconds_max,
                statement_cache_size=cached,
                connection_class=_Connection,
                server_settings={"application_name": f"hourhand {self._application}"},
            )
        except ValueError as fault:  # asyncpg's word for a URL it cannot read
            raise DatabaseUnsuitable(f"the database URL cannot be used: {fault}") from None

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            await asyncio.wait_for(pool.close(), 5)
        except (TimeoutError, *CONNECTION_FAULTS):
            pool.terminate()

    async def check(self) -> None:
        """Refuses a database that cannot be used, with a reason and a remedy."""
        try:
            async with self.connection() as db:
                version = db.get_server_version()
                number = version.major * 10000 + version.minor
                encoding = await db.fetchval("SHOW server_encoding")
        except asyncpg.InvalidAuthorizationSpecificationError as fault:
            raise DatabaseUnsuitable(f"the database refuses this user: {fault}") from None
        except asyncpg.InvalidCatalogNameError as fault:
            raise DatabaseUnsuitable(f"{fault}: create it first") from None
        except ValueError as fault:  # asyncpg reads the URL with the first connection
            raise DatabaseUnsuitable(f"the database URL cannot be used: {fault}") from None
        if number < VERSION_MIN:
            raise DatabaseUnsuitable(f"PostgreSQL {version.major} is too old: 15 or newer is needed")
        if encoding != "UTF8":
            raise DatabaseUnsuitable(f"the database's encoding is {encoding}: it must be UTF8")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection from the pool. Whatever keeps it from working is told as DatabaseUnavailable."""
        assert self._pool is not None, "open() comes first"
        try:
            async with self._pool.acquire(timeout=self.settings.connect_seconds_max) as db:
                yield db  # type: ignore[misc]
        except CONNECTION_FAULTS as fault:
            if isinstance(fault, ValueError):  # a value that cannot be sent: our fault, and it will not pass
                raise
            raise DatabaseUnavailable(f"the database cannot be reached: {fault or type(fault).__name__}") from fault

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self.connection() as db, db.transaction():
            yield db

    async def fetch(self, query: Query, **values: Any) -> list[Record]:
        async with self.connection() as db:
            return await self.fetch_on(db, query, **values)

    async def fetch_on(self, db: Connection, query: Query, **values: Any) -> list[Record]:
        arguments = query.arguments(values)
        if self.settings.pooler and not db.is_in_transaction():
            async with db.transaction():
                return await db.fetch(query.text, *arguments)
        return await db.fetch(query.text, *arguments)

    async def fetch_one(self, query: Query, **values: Any) -> Record | None:
        rows = await self.fetch(query, **values)
        return rows[0] if rows else None


class Listener:
    """One session that hears notifications. Told everything once more after each reconnect, since what was
    said while it was away is lost; hearing is only ever a reason to look, never the news itself."""

    def __init__(self, settings: DatabaseSettings, application: str, channels: Sequence[str]) -> None:
        self._url = settings.listen_url or settings.url
        self._settings = settings
        self._application = application
        self._channels = list(channels)

    async def listen(self, hear: Callable[[str, str], None]) -> None:
        """Runs until its connection ends (then it raises or returns) or it is cancelled. Calls `hear(channel, "")`
        for every channel at its start."""
        db = await asyncpg.connect(
            self._url,
            timeout=self._settings.connect_seconds_max,
            command_timeout=self._settings.statement_seconds_max,
            server_settings={"application_name": f"hourhand {self._application} listener"},
        )
        gone = asyncio.Event()
        db.add_termination_listener(lambda _: gone.set())
        try:
            for channel in self._channels:
                await db.add_listener(channel, lambda _c, _p, name, payload: hear(str(name), str(payload)))
                hear(channel, "")
            while not gone.is_set():
                try:
                    await asyncio.wait_for(gone.wait(), 20)
                except TimeoutError:
                    await db.execute("SELECT 1")  # a half-open connection is noticed here, not never
        finally:
            db.terminate()
