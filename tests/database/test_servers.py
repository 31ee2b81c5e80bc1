"""URLs that name several servers: the one that takes writes is used, and a silent one does not hold up the others."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import asyncpg
import pytest

from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.queries import Query
from hourhand.database.servers import Servers, servers_of
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable

ONE = Query("one", "SELECT 1 AS one", ())


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql://u:p@a/x", ["postgresql://u:p@a/x"]),
        ("postgresql://u:p%40,@a:1,b:2/x?sslmode=require", [
            "postgresql://u:p%40,@a:1/x?sslmode=require", "postgresql://u:p%40,@b:2/x?sslmode=require"
        ]),
        ("postgresql://a,b,[::1]:5/x", ["postgresql://a/x", "postgresql://b/x", "postgresql://[::1]:5/x"]),
        ("postgresql://u@/x?host=/a,/b&port=1,2", [
            "postgresql://u@/x?host=/a&port=1", "postgresql://u@/x?host=/b&port=2"
        ]),
        ("postgresql://u@/x?host=/a,/b&port=1", ["postgresql://u@/x?host=/a&port=1", "postgresql://u@/x?host=/b&port=1"]),
        ("postgresql://u@/x?host=/a,/b", ["postgresql://u@/x?host=/a", "postgresql://u@/x?host=/b"]),
        ("nonsense", ["nonsense"]),
        ("postgresql://[::1/x", ["postgresql://[::1/x"]),
    ],
)  # fmt: skip
def test_every_server_gets_a_url_of_its_own(url: str, servers: list[str]) -> None:
    assert servers_of(url) == servers


class Silent(NamedTuple):
    """A server that accepts and says nothing."""

    folder: Path
    held: list[asyncio.StreamWriter]


@pytest.fixture
async def silent(tmp_path: Path) -> AsyncIterator[Silent]:
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: held.append(writer), tmp_path / ".s.PGSQL.5432")
    yield Silent(tmp_path, held)
    server.close()
    for writer in held:
        writer.close()


def beside(first: Path | str, url: str, *, last: bool = False) -> str:
    """The same database, with another server named before it, or after it."""
    user, _, host = url.partition("host=")
    host, _, rest = host.partition("&")
    both = [quote(str(first), safe="/"), host]
    return f"{user}host={','.join(reversed(both) if last else both)}&{rest}"


async def test_a_silent_server_costs_its_share_of_the_time_once(silent: Silent, database_url: str) -> None:
    settings = DatabaseSettings(url=beside(silent.folder, database_url), pool_max=5, connect_seconds_max=1.0)
    database = Database(settings, "servers")
    await database.open()
    try:
        began = time.monotonic()
        await database.fetch(ONE)
        assert time.monotonic() - began >= 0.5
        await asyncio.gather(*(database.fetch(ONE) for _ in range(5)))
        assert len(silent.held) == 1, "further connections begin with the one that answered"
    finally:
        await database.close()


async def test_a_call_that_is_given_up_at_a_silent_server_begins_with_the_next_one(
    silent: Silent, database_url: str
) -> None:
    """Also when the deadline of the call is shorter than the time for one server."""
    settings = DatabaseSettings(
        url=beside(silent.folder, database_url), connect_seconds_max=60, statement_seconds_max=0.5
    )
    database = Database(settings, "servers")
    await database.open()
    try:
        with pytest.raises(DatabaseUnavailable):
            await database.fetch(ONE)
        await database.fetch(ONE)
    finally:
        await database.close()


async def test_a_server_where_nobody_listens_is_passed_over(tmp_path: Path, database_url: str) -> None:
    servers = Servers(beside(tmp_path, database_url), seconds_max=5, writable=True)
    db = await servers.connect()
    assert await db.fetchval("SELECT 1") == 1
    await db.close()


async def test_a_server_that_takes_no_writes_will_not_do_unless_the_url_says_so(database_url: str) -> None:
    read_only = {"default_transaction_read_only": "on"}
    with pytest.raises(asyncpg.InterfaceError, match="takes writes"):
        await Servers(database_url, seconds_max=5, writable=True).connect(server_settings=read_only)
    url = f"{database_url}&target_session_attrs=any"
    db = await Servers(url, seconds_max=5, writable=True).connect(server_settings=read_only)
    await db.close()


async def test_a_url_that_cannot_be_read_is_a_fault_of_the_configuration() -> None:
    database = Database(DatabaseSettings(url="postgresql://a:1,b:port/x", connect_seconds_max=1), "servers")
    await database.open()
    with pytest.raises(DatabaseUnsuitable):
        await database.check()
    await database.close()
