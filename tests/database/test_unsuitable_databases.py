"""Databases that cannot be used (182, 186), or not as they are (190): a reason and a remedy, before all else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from hourhand.config import load_config
from hourhand.database import connections
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database_setup import require_migrated
from hourhand.model.errors import DatabaseUnsuitable


def in_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture
async def other(database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Another database of the same server, made as the test says."""
    name = f"other_{abs(hash(request.node.nodeid)) % 10**9}"
    db = await asyncpg.connect(database_url)
    how = getattr(request, "param", "ENCODING 'UTF8'")
    await db.execute(f"CREATE DATABASE {name} TEMPLATE template0 {how}")
    yield in_database(database_url, name)
    await db.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await db.close()


async def opened(url: str) -> Database:
    database = Database(DatabaseSettings(url=url, pool_max=2, connect_seconds_max=20), "test")
    await database.open()
    return database


async def checked(url: str) -> None:
    database = await opened(url)
    try:
        await database.check()
    finally:
        await database.close()


async def refusal(url: str) -> str:
    with pytest.raises(DatabaseUnsuitable) as raised:
        await checked(url)
    return str(raised.value)


@pytest.mark.parametrize("other", ["ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LOCALE 'C'"], indirect=True)
async def test_a_database_in_another_encoding_is_refused(other: str) -> None:
    assert await refusal(other) == "the database's encoding is SQL_ASCII: it must be UTF8"


async def test_a_url_that_leads_nowhere_good_is_refused_with_the_reason(database_url: str) -> None:
    parts = urlsplit(database_url)
    stranger = urlunsplit(parts._replace(netloc="stranger:wrong@"))
    told = {
        "no port": await refusal("postgresql://u:p@127.0.0.1:notaport/x"),
        "no database": await refusal(in_database(database_url, "nowhere")),
        "no user": await refusal(stranger),
    }
    assert told["no port"].startswith("the database URL cannot be used: ")
    assert told["no database"] == 'database "nowhere" does not exist: create it first'
    assert told["no user"].startswith("the database refuses this user: ")
    assert not any("wrong" in each for each in told.values()), "passwords are told nowhere"


async def test_a_server_that_is_too_old_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "VERSION_MIN", 99 * 10000)
    assert (await refusal(database_url)).endswith("is too old: 15 or newer is needed")


@pytest.mark.parametrize(
    ("default", "used", "warned"), [("off", "on", True), ("on", "on", False), ("remote_apply", "remote_apply", False)]
)
async def test_what_is_acknowledged_is_on_disk_whatever_the_servers_default_is(
    other: str, default: str, used: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = await asyncpg.connect(other)
    await owner.execute(f"ALTER DATABASE {urlsplit(other).path[1:]} SET synchronous_commit = {default}")
    await owner.close()
    database = await opened(other)
    try:
        async with database.connection() as one, database.connection() as two:
            found = [await db.fetchval("SHOW synchronous_commit") for db in (one, two)]
        assert found == [used, used]
        for _ in range(2):  # at each start
            await asyncio.wait_for(database.check(), 30)
        said = capsys.readouterr().out
        assert said.count("database may lose what it has acknowledged") == (2 if warned else 0)
        assert ("synchronous_commit" in said) is warned
    finally:
        await database.close()


async def test_a_server_with_fewer_connections_than_a_node_may_need_is_refused(
    database: Database, tmp_path: Path
) -> None:
    """Row 186."""
    async with database.connection() as db:
        there = int(await db.fetchval("SHOW max_connections")) - int(
            await db.fetchval("SHOW superuser_reserved_connections")
        )
    flags = {"home": str(tmp_path), "database.url": database.settings.url, "database.schema": database.schema}

    async def start(role: str, pool_max: int, **more: int) -> None:
        config = load_config(None, {}, {**flags, "database.pool_max": pool_max, **more})
        await require_migrated(config, role)

    await start("api", there - 2)
    for role, pool_max in (("api", there - 1), ("scheduler", there - 2)):
        with pytest.raises(DatabaseUnsuitable, match=f"may need {there + 1} connections, and the server has {there}"):
            await start(role, pool_max)
    with pytest.raises(DatabaseUnsuitable, match=r"executor\.transaction_connections"):
        await start("executor", there - 20, **{"executor.transaction_connections": 17})
