"""Plans are kept while tables fill: those that were made while all were empty must do for full ones as well.

Each statement of the loops is planned, by a session as nodes have it, on tables that PostgreSQL has just found empty.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from hourhand.database.connections import Connection, Database, DatabaseSettings
from hourhand.database.migrate import migrate
from hourhand.database.queries import Query, load_queries
from hourhand.store.partitions import Cut, Partitions

SCHEMA = "test_kept_plans"
FILES = ("live_runs.sql", "timetable.sql", "timing_facts.sql", "turns.sql", "parts.sql", "completions.sql",
         "progress.sql", "pauses.sql")  # fmt: skip
LARGE = ("live_runs", "timetable", "jobs", "gate_slots", "run_requests", "run_budgets", "completion_delays",
         "attempts", "ledger_ranges", "runs", "run_progress", "resting")  # fmt: skip
WALKS = {
    "held_by": "asked for when an executor is gone; an index by executor would cost every claim",
    "find_strays": "looks at all places of all gates",
    "sweep_progress": "looks at all progress, now and then",
}
OF_PLANNERS = {"pause_spans"}
"""Pauses come and go with people; of their statements this is the one that is sent with every batch of cursors."""
ARRAY_LENGTH = 300


@dataclass(frozen=True)
class EmptyGround:
    db: Connection
    leading: dict[str, str]
    """The first column of each index."""


def statements() -> Iterator[Any]:
    for file_name in FILES:
        for query in load_queries("hourhand.store.sql", file_name, SCHEMA).values():
            if query.name not in WALKS and (file_name != "pauses.sql" or query.name in OF_PLANNERS):
                yield pytest.param(query, id=f"{file_name.removesuffix('.sql')}-{query.name}")


@pytest.fixture(scope="module")
async def empty(database_url: str) -> AsyncIterator[EmptyGround]:
    database = Database(DatabaseSettings(url=database_url, schema=SCHEMA), "test")
    await database.open()
    await migrate(database)
    cuts = [Cut("jobs", 7, 2, None), *(Cut(table, 1, 7, None) for table in ("runs", "attempts"))]
    await Partitions(database).maintain(cuts, datetime.now(UTC))
    async with database.connection() as db:
        tables = await db.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r'", SCHEMA
        )
        await db.execute("VACUUM (ANALYZE) " + ", ".join(f"{SCHEMA}.{row['relname']}" for row in tables))
        leading = await db.fetch(
            "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = 1 WHERE relnamespace = $1::regnamespace",
            SCHEMA,
        )
        yield EmptyGround(db, {row["relname"]: row["attname"] for row in leading})
        await db.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    await database.close()


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("query", list(statements()))
async def test_a_plan_made_while_all_is_empty_goes_by_an_index(empty: EmptyGround, query: Query, mode: str) -> None:
    root = await plan(empty.db, query, mode)
    walked = [told(node) for node, above in nodes(root) if walks(node, above, empty.leading)]
    assert walked == []


async def test_no_plan_is_compiled_however_dear_a_server_takes_it_for(empty: EmptyGround) -> None:
    """Before version 18 a scan that cannot be avoided costs more than what is compiled by default."""
    assert await empty.db.fetchval("SHOW jit") == "off"


async def test_a_session_that_may_take_any_plan_reads_an_empty_table_from_end_to_end(
    empty: EmptyGround, database_url: str
) -> None:
    """What the others are kept from: if this were not so, the test above would prove nothing."""
    database = Database(DatabaseSettings(url=database_url, schema=SCHEMA), "test", any_plan=True)
    await database.open()
    try:
        query = load_queries("hourhand.store.sql", "live_runs.sql", SCHEMA)["finish_plain"]
        async with database.connection() as db:
            root = await plan(db, query, "force_generic_plan")
    finally:
        await database.close()
    assert [told(node) for node, above in nodes(root) if walks(node, above, empty.leading)] != []


async def plan(db: Connection, query: Query, mode: str) -> dict[str, Any]:
    await db.execute(f"SET plan_cache_mode = {mode}; PREPARE kept AS {query.text}")
    try:
        types = await db.fetchval("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'kept'")
        values = ", ".join(some(name) for name in types)
        text = await db.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE kept{f'({values})' if values else ''}")
    finally:
        await db.execute("DEALLOCATE kept; RESET plan_cache_mode")
    root: dict[str, Any] = json.loads(text)[0]["Plan"]
    return root


def some(name: str) -> str:
    """A value of the type; of arrays, as many as a full batch has."""
    value = {
        "uuid": "'019a0000-0000-7000-8000-000000000000'",
        "timestamp with time zone": "'2026-11-17 00:00+00'",
        "interval": "'1 minute'",
        "text": "'{1}'",
        "jsonb": "'{}'",
        "bytea": "'x'",
        "boolean": "true",
    }.get(name.removesuffix("[]"), "1")
    typed = f"{value}::{name.removesuffix('[]')}"
    return f"array_fill({typed}, ARRAY[{ARRAY_LENGTH}])" if name.endswith("[]") else typed


def nodes(node: dict[str, Any], above: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    yield node, above
    for child in node.get("Plans", ()):
        yield from nodes(child, node["Node Type"])


def walks(node: dict[str, Any], above: str, leading: dict[str, str]) -> bool:
    """Whether it reads more of a large table than it needs. To take the first entry of an index is no walk."""
    table = re.sub(r"_(rest|\d+)$", "", node.get("Relation Name", ""))
    if node["Node Type"] == "Bitmap Heap Scan" or (table not in LARGE and node["Node Type"] != "Bitmap Index Scan"):
        return False
    if node["Node Type"] == "Seq Scan":
        return True
    if node["Node Type"] not in {"Index Scan", "Index Only Scan", "Bitmap Index Scan"} or above == "Limit":
        return False
    condition = node.get("Index Cond", "")
    if table == "runs":  # its partitions are never empty when they are looked at first, and keep what they have
        return not condition
    return re.search(rf"\b{leading[node['Index Name']]}\b", condition) is None


def told(node: dict[str, Any]) -> str:
    return f"{node['Node Type']} {node.get('Index Name') or node.get('Relation Name')}: {node.get('Index Cond')}"
