"""Whole rooms on one database: schedulers and executors whose turns the tests give, and whose time they set."""

import sys
from pathlib import Path

import pytest

from hourhand.database.connections import Database
from hourhand.wiring import Store, store_on

# The short words for jobs and runs are those of the store's own tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "database"))
# And tz data is made up as in the tests of the model.
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "model"))


@pytest.fixture
async def store(database: Database) -> Store:
    return store_on(database)
