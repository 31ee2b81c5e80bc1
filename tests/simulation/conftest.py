"""A cluster on a virtual clock; the words for jobs and crews are those of the other tests."""

import sys
from pathlib import Path

import pytest

from hourhand.database.connections import Database
from hourhand.wiring import Store, store_on

for room in ("database", "integration"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))


@pytest.fixture
async def store(database: Database) -> Store:
    return store_on(database)
