"""The store on a database of its own."""

import pytest

from hourhand.database.connections import Database
from hourhand.wiring import Store, store_on


@pytest.fixture
async def store(database: Database) -> Store:
    return store_on(database)
