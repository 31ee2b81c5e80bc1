"""Shared ground of the tests: one real embedded PostgreSQL for all of them, an own schema for each that asks."""

import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.embedded import EmbeddedServer
from hourhand.database.migrate import migrate

_numbers = itertools.count(1)

# Whoever starts the tests in the background may have them ignore Ctrl-C, and every process they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
async def database_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """One server for the whole session."""
    home: Path = tmp_path_factory.mktemp("postgres") / "home"
    server = EmbeddedServer(home)
    url = await server.start()
    yield url
    await server.stop()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A migrated schema of its own; gone afterwards."""
    schema = f"test_{next(_numbers)}"
    database = Database(DatabaseSettings(url=database_url, schema=schema, pool_max=10), "test")
    await database.open()
    await migrate(database)
    yield database
    async with database.connection() as db:
        await db.execute(f"DROP SCHEMA {schema} CASCADE")
    await database.close()
