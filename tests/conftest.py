"""Shared ground of the tests: one real embedded PostgreSQL for all of them, and a clean schema for each that asks."""

import functools
import signal
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import hypothesis
import pytest

from clean_schema import SCHEMA, CleanSchema
from hourhand.database import queries
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.embedded import EmbeddedServer
from stuck import ended_when_stuck

# Whoever starts the tests in the background may have them ignore Ctrl-C, and every process they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every store reads its statements when it is made, and nearly every test makes one. Their text never changes meanwhile.
queries._blocks = functools.cache(lambda source, read=queries._blocks: tuple(read(source)))

# An example may take as long as it takes: other tests want the processor too, and speed is not what these are about.
hypothesis.settings.register_profile(
    "unhurried", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

WAITING = ("acceptance",)
"""Rooms whose tests mostly wait: for processes to start, for leases to run out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait and files that compute take turns, so that of two workers one computes while the other waits.

    The last that wait come well before the end: they are the longest, and nobody should be left alone with one of them.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if path.parent.name in WAITING]
    computing = [path for path in files if path.parent.name not in WAITING]
    place = {path: 0.85 * number / len(waiting) for number, path in enumerate(waiting)}
    place |= {path: number / len(computing) for number, path in enumerate(computing)}
    items[:] = [item for path in sorted(files, key=lambda path: place[path]) for item in files[path]]


@pytest.hookimpl(wrapper=True)
def _end_when_stuck(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("measuring"):
        return (yield)
    with ended_when_stuck():
        return (yield)


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = _end_when_stuck


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
