"""Every statement fits the tables, is used, and agrees with the model."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from random import Random
from uuid import UUID

import asyncpg
import pytest
from sample_jobs import START

import hourhand.store
from hourhand.database.connections import Database
from hourhand.database.queries import Query, load_queries
from hourhand.model.ids import scheduled_run_id
from hourhand.model.states import FINAL_STATES, LIVE_STATES, Cause
from hourhand.ports.stores import JobStore
from hourhand.store.jobs import Jobs

STORE = Path(hourhand.store.__file__).parent
FILES = sorted(entry.name for entry in files("hourhand.store.sql").iterdir() if entry.name.endswith(".sql"))


def every_query(schema: str = "hourhand") -> Iterator[tuple[str, Query]]:
    for name in FILES:
        for query in load_queries("hourhand.store.sql", name, schema).values():
            yield name, query


@pytest.mark.parametrize("file_name", FILES)
async def test_every_query_prepares_against_the_migrated_tables(database: Database, file_name: str) -> None:
    refused = {}
    async with database.connection() as db:
        for name, query in load_queries("hourhand.store.sql", file_name, database.schema).items():
            try:
                statement = await db.prepare(query.text)
            except asyncpg.PostgresError as fault:
                refused[name] = str(fault)
            else:
                assert len(statement.get_parameters()) == len(query.parameters), name
    assert refused == {}


def test_every_name_is_given_once_in_its_file() -> None:
    for name in FILES:
        named = re.findall(r"^-- name: (\w+)", (STORE / "sql" / name).read_text(), re.MULTILINE)
        assert len(named) == len(set(named)), name


def test_every_query_is_used() -> None:
    source = "\n".join(path.read_text() for path in STORE.glob("*.py"))
    unused = [
        f"{name}: {query.name}"
        for name, query in every_query()
        # Lists of runs are chosen by a suffix.
        if not re.search(rf'f?"{query.name.removesuffix("_of_job")}(\{{suffix\}})?"', source)
    ]
    assert unused == []


async def test_sql_computes_the_same_run_ids_as_the_model(database: Database) -> None:
    random = Random(11)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    pairs = [
        (epoch + timedelta(microseconds=random.randrange(7_200_000_000_000_000)), UUID(int=random.getrandbits(128)))
        for _ in range(500)
    ]
    pairs += [(epoch, UUID(int=0)), (START + timedelta(microseconds=999_999), UUID(int=(1 << 128) - 1))]
    async with database.connection() as db:
        rows = await db.fetch(
            f"SELECT {database.schema}.scheduled_run_id(due, job_id) AS run_id "
            "FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY AS x(due, job_id, place) ORDER BY place",
            [due for due, _ in pairs],
            [job_id for _, job_id in pairs],
        )
    assert [row["run_id"] for row in rows] == [scheduled_run_id(due, job_id) for due, job_id in pairs]


async def allowed_numbers(database: Database, table: str, column: str, candidates: range) -> list[int]:
    """The numbers that the check constraints of a column let through, asked of the constraints themselves."""
    async with database.connection() as db:
        rows = await db.fetch(
            "SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint "
            "WHERE conrelid = $1::regclass AND contype = 'c' AND conkey = "
            "(SELECT array_agg(attnum) FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2)",
            f"{database.schema}.{table}",
            column,
        )
        checks = [row["text"].removeprefix("CHECK ") for row in rows]
        assert checks, f"{table}.{column} has no check"
        found = await db.fetch(
            f"SELECT {column} FROM unnest($1::smallint[]) AS x({column}) WHERE {' AND '.join(checks)}", list(candidates)
        )
    return [row[column] for row in found]


async def test_live_runs_hold_the_live_states_and_no_others(database: Database) -> None:
    assert await allowed_numbers(database, "live_runs", "state", range(-5, 40)) == LIVE_STATES


async def test_history_holds_the_final_states_and_no_others(database: Database) -> None:
    assert await allowed_numbers(database, "runs", "state", range(-5, 40)) == FINAL_STATES


async def test_live_runs_hold_the_causes_of_the_model(database: Database) -> None:
    assert await allowed_numbers(database, "live_runs", "cause", range(-5, 40)) == [*Cause][:-1], (
        "parts are known by their ids"
    )


async def test_priorities_are_zero_to_nine(database: Database) -> None:
    assert await allowed_numbers(database, "jobs", "priority", range(-5, 40)) == [*range(10)]


async def test_shards_are_the_ones_of_the_model(database: Database) -> None:
    for table in ("shards", "timetable"):
        assert await allowed_numbers(database, table, "shard", range(-5, 2000)) == [*range(1024)]
    async with database.connection() as db:
        assert await db.fetchval(f"SELECT count(*) FROM {database.schema}.shards") == 1024


def test_the_numbers_in_guards_are_those_of_the_model() -> None:
    """SQL names states by number; what the numbers stand for is read off the statements here."""
    queries = {query.name: query.text for _, query in every_query()}
    for name, states in {
        "cancel_waiting": "state IN (0, 1)",
        "request_cancel": "state IN (2, 3, 4)",
        "held_by": "state IN (2, 3, 4)",
        "withdraw_runs": "state IN (0, 1)",
    }.items():
        assert states in queries[name], name


def test_the_store_fills_the_need_of_its_port() -> None:
    assert {name for name in vars(JobStore) if not name.startswith("_")} <= set(dir(Jobs))
