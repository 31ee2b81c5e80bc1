"""Shared ground of the tests: one real embedded PostgreSQL for all of them, and a clean schema for each that asks."""

import functools
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clean_schema import SCHEMA, CleanSchema
from hourhand.database import queries
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.embedded import EmbeddedServer

# Whoever starts the tests in the background may have them ignore Ctrl-C, and every process they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every store reads its statements when it is made, and nearly every test makes one. Their text never changes meanwhile.
queries._blocks = functools.cache(lambda source, read=queries._blocks: tuple(read(source)))


@pytest.fixture(scope="session")
async def database_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """One server for the whole session."""
    home: Path = tmp_path_factory.mktemp("postgres") / "home"
    server = EmbeddedServer(home)
    url = await server.start()
    yield url
    await server.stop()


@pytest.fixture(scope="session")
async def clean_schema(database_url: str) -> AsyncIterator[CleanSchema]:
    schema = CleanSchema(database_url)
    await schema.open()
    yield schema
    await schema.close()


@pytest.fixture
async def database(clean_schema: CleanSchema) -> AsyncIterator[Database]:
    """A schema as the migrations leave it, for this test alone."""
    await clean_schema.clean()
    database = Database(DatabaseSettings(url=clean_schema.url, schema=SCHEMA, pool_max=10), "test")
    await database.open()
    yield database
    await database.close()
