"""That every test finds the schema as the migrations leave it, whatever the tests before it have done to it."""

from datetime import datetime
from typing import Any

import asyncpg
import pytest

from clean_schema import SCHEMA, CleanSchema
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.migrate import applied, migrate, migrations

INSIDE = f"WHERE relnamespace = '{SCHEMA}'::regnamespace"


async def everything(db: asyncpg.Connection) -> dict[str, Any]:
    """All rows in the order in which they lie, all sequences, all tables, triggers, functions and indexes."""
    tables = await db.fetch(f"SELECT relname FROM pg_class {INSIDE} AND relkind = 'r' ORDER BY 1")
    found: dict[str, Any] = {
        row["relname"]: [_timeless(each) for each in await db.fetch(f"SELECT * FROM {SCHEMA}.{row['relname']}")]
        for row in tables
    }
    found["numbers"] = await db.fetch(
        f"SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = '{SCHEMA}' ORDER BY 1"
    )
    found["columns"] = await db.fetch(
        f"SELECT relname, attname, attnotnull FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid {INSIDE} "
        "AND NOT attisdropped ORDER BY 1, attnum"
    )
    found["triggers"] = await db.fetch(
        f"SELECT relname, tgtype FROM pg_class JOIN pg_trigger ON tgrelid = pg_class.oid {INSIDE} ORDER BY 1, 2"
    )
    found["functions"] = await db.fetch(
        f"SELECT proname, prosrc FROM pg_proc WHERE pronamespace = '{SCHEMA}'::regnamespace ORDER BY 1, 2"
    )
    return found


def _timeless(row: asyncpg.Record) -> tuple[Any, ...]:
    """What is made anew is made at another time."""
    return tuple("a time" if isinstance(value, datetime) else value for value in row)


WAYS = {
    "rows": "INSERT INTO test.idempotency_keys SELECT * FROM test.idempotency_keys; "
    "INSERT INTO test.namespaces (name) VALUES ('other'); INSERT INTO test.leases SELECT * FROM test.leases",
    "what the migrations have put there": "UPDATE test.shards SET epoch = 7 WHERE shard < 5; "
    "DELETE FROM test.namespaces WHERE name = 'default'",
    "a change that was taken back": "UPDATE test.shards SET epoch = 7; UPDATE test.shards SET epoch = 0",
    "numbers that were drawn": "SELECT nextval('test.fence'), nextval('test.namespaces_namespace_id_seq')",
    "a partition": "CREATE TABLE test.runs_today PARTITION OF test.runs "
    "FOR VALUES FROM ('01940000-0000-0000-0000-000000000000') TO ('01950000-0000-0000-0000-000000000000')",
    "a trigger": "CREATE FUNCTION test.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; "
    "CREATE TRIGGER slow BEFORE INSERT ON test.shards EXECUTE FUNCTION test.slow()",
    "a column": "ALTER TABLE test.shards ADD extra int; ALTER TABLE test.jobs ALTER kind DROP NOT NULL",
    "an index that is gone": "DROP INDEX test.live_runs_ready",
    "a table that is gone": "DROP TABLE test.shards",
    "the whole schema": "DROP SCHEMA test CASCADE",
}


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_was_done_to_it_is_taken_back(clean_schema: CleanSchema, way: str) -> None:
    await clean_schema.clean()
    db = await asyncpg.connect(clean_schema.url)
    before = await everything(db)
    assert len(before) > 40
    await db.execute(WAYS[way])
    await clean_schema.clean()
    assert db.is_closed() or not await _answers(db)
    db = await asyncpg.connect(clean_schema.url)
    assert await everything(db) == before
    await db.close()


async def _answers(db: asyncpg.Connection) -> bool:
    try:
        await db.execute("SELECT 1")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return False
    return True


async def test_a_session_that_a_test_has_left_behind_in_the_middle_of_something_is_ended(
    clean_schema: CleanSchema,
) -> None:
    left = await asyncpg.connect(clean_schema.url)
    await left.execute("BEGIN; LOCK TABLE test.live_runs IN ACCESS EXCLUSIVE MODE; DELETE FROM test.shards")
    await clean_schema.clean()
    assert not await _answers(left)
    db = await asyncpg.connect(clean_schema.url)
    assert await db.fetchval("SELECT count(*) FROM test.shards") == 1024
    await db.close()


async def test_it_is_what_the_migrations_make(clean_schema: CleanSchema) -> None:
    await clean_schema.clean()
    database = Database(DatabaseSettings(url=clean_schema.url, schema=SCHEMA), "test")
    await database.open()
    assert await migrate(database) == []
    assert [(one.version, one.checksum) for one in await applied(database)] == [
        (one.version, one.checksum) for one in migrations(SCHEMA)
    ]
    await database.close()
