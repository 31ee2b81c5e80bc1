"""A database with a million finished and a hundred thousand live runs, and how statements are done on it."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sample_jobs import NAMESPACE, START, at

from hourhand.database.connections import Connection, Database, DatabaseSettings
from hourhand.database.migrate import migrate
from hourhand.database.queries import load_queries
from hourhand.model.ids import scheduled_run_id
from hourhand.store.partitions import Cut, Partitions

JOBS, RUNS, LIVE, LANES = 100_000, 1_000_000, 100_000, 50
GATES, SLOTS = 200, 5
BIG_ROWS = 2000
"""Reading a smaller table from end to end is right."""

# Even numbers are jobs that run once, odd ones recur. Every job has a cursor, a live run and ten finished ones, spread
# over eight days. One live run in ten is in the hands of an executor, one in a thousand is to be cancelled. A thousand
# of those hold all places of some gates, on which a hundred thousand more wait; a thousand wait behind others of their
# job, five thousand for a rate, and five thousand in a lane with gates are ready.
FILL = f"""
INSERT INTO hourhand.lanes (namespace_id, queue, needs)
SELECT 1, 'default', 'need-' || n FROM generate_series(1, {LANES}) n;
INSERT INTO hourhand.nodes (role, name, started_at, lease_until, facts)
SELECT 'executor', 'executor-' || n, now(), now() + interval '1 day', '{{}}' FROM generate_series(1, 20) n;
INSERT INTO hourhand.nodes (role, name, started_at, lease_until, ended_at, facts)
SELECT 'executor', 'gone-' || n, now(), now(), now(), '{{}}' FROM generate_series(1, 20) n;
UPDATE hourhand.shards SET owner_id = 1, epoch = 1;

CREATE TEMPORARY TABLE numbered AS
SELECT n,
       (lpad(to_hex({int(START.timestamp() * 1000)} + n), 12, '0') || '70008' || left(md5(n::text), 15))::uuid job_id,
       timestamptz '{START.isoformat()}' + n * interval '1 second' AS due_at
  FROM generate_series(1, {JOBS}) n;

INSERT INTO hourhand.jobs (job_id, namespace_id, lane_id, name, kind, payload, due_at, timing, priority, max_retries,
                           owner, status, version, created_at, created_by, updated_at)
SELECT job_id, {NAMESPACE}, 1 + n % {LANES}, 'job ' || n, 'number', '{{"n": 1}}', CASE n % 2 WHEN 0 THEN due_at END,
       CASE n % 2 WHEN 1 THEN '{{"schedules": [], "zone": "UTC"}}'::jsonb END, n % 3, 3,
       'ada', 0, 1, now(), 'ada', now()
  FROM numbered;

INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring)
SELECT job_id, due_at, {NAMESPACE}, 1 + n % {LANES}, 1, n % 1024, n % 3, n % 2 = 1 FROM numbered;

INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, started_at, fence, namespace_id, lane_id,
                                executor_id, version, state, priority, cause, attempt)
SELECT hourhand.scheduled_run_id(due_at, job_id), job_id, due_at, due_at, NULL,
       CASE WHEN n % 10 = 0 THEN nextval('hourhand.fence') END, {NAMESPACE}, 1 + n % {LANES},
       CASE WHEN n % 10 = 0 THEN 1 + n / 10 % 20 END, 1,
       CASE WHEN n % 1000 = 0 THEN 4 WHEN n % 20 = 0 THEN 3 WHEN n % 10 = 0 THEN 2 ELSE 0 END, n % 3, n % 2,
       CASE WHEN n % 10 = 0 THEN 1 ELSE 0 END
  FROM numbered;

INSERT INTO hourhand.lanes (namespace_id, queue, needs, gated)
SELECT 1, 'default', 'need-' || n, true FROM generate_series(1, 2) n;
INSERT INTO hourhand.gates (namespace_id, kind, name, capacity)
SELECT 1, 'key', n::text, {SLOTS} FROM generate_series(1, {GATES}) n;
INSERT INTO hourhand.gates (namespace_id, kind, name, rate_count, rate_seconds) VALUES (1, 'key', 'rate', 1, 60);
UPDATE hourhand.live_runs r SET gate_ids = ARRAY[1 + n / 20 % {GATES}] FROM numbered
 WHERE r.run_id = hourhand.scheduled_run_id(due_at, numbered.job_id) AND n % 20 = 0 AND n <= 20 * {GATES * SLOTS};
INSERT INTO hourhand.gate_slots (run_id, gate_id)
SELECT run_id, unnest(gate_ids) FROM hourhand.live_runs WHERE gate_ids IS NOT NULL;
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state,
                                priority, cause, gate_ids, waits_on)
SELECT hourhand.scheduled_run_id(due_at + later, job_id), job_id, due_at + later, due_at, {NAMESPACE},
       CASE WHEN n <= 15000 AND n % 2 = 0 THEN {LANES + 2} ELSE {LANES + 1} END, 1, (n > 15000)::int, n % 3, 1,
       CASE WHEN n > 16000 THEN ARRAY[1 + n % {GATES}] END,
       CASE WHEN n > 16000 THEN 1 + n % {GATES} WHEN n > 15000 THEN 0 WHEN n % 2 = 1 THEN {GATES + 1} END
  FROM numbered, unnest(ARRAY[interval '1 day', interval '2 days']) AS later
 WHERE n > 5000 AND (n BETWEEN 16001 AND 32000 OR later = interval '1 day');

INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version,
                           state, cause, attempt)
SELECT hourhand.scheduled_run_id(due, job_id), job_id, due, due, due, {NAMESPACE}, 1 + n % 20, 1, 10 + n % 3, 1, 1
  FROM (SELECT n, job_id, timestamptz '{START.isoformat()}' + (k * 65536 + n % 65536 + 0.5) * interval '1 second' AS due
          FROM generate_series(0, {RUNS // JOBS - 1}) k CROSS JOIN numbered) d;

INSERT INTO hourhand.log_chunks (run_id, attempt, first_line, at, stream, lines)
SELECT job_id, 1, line, ARRAY[due_at], ARRAY[0], ARRAY['a line of text'] FROM numbered, generate_series(1, 100) line
 WHERE n <= 500;

INSERT INTO hourhand.idempotency_keys (namespace_id, key, digest, job_ids, created_at)
SELECT {NAMESPACE}, 'key ' || n, 'x', ARRAY[job_id], due_at FROM numbered;
INSERT INTO hourhand.unique_keys (namespace_id, key, job_id, until)
SELECT {NAMESPACE}, 'key ' || n, job_id, CASE n % 3 WHEN 0 THEN due_at END FROM numbered;

INSERT INTO hourhand.ledger_ranges (job_id, first_due, last_due, count, state, reason, version, next_due)
SELECT job_id, due_at - interval '1 hour', due_at - interval '1 minute', 60, 16, 'catchup_window', 1, due_at
  FROM numbered;
INSERT INTO hourhand.completion_delays (job_id, delay, namespace_id, lane_id, version, shard, priority, gate_ids,
                                        exclusive)
SELECT job_id, '1 hour', {NAMESPACE}, 1 + n % {LANES}, 1, n % 1024, n % 3, '{{}}', false FROM numbered;
INSERT INTO hourhand.run_budgets (job_id, runs_left) SELECT job_id, 5 FROM numbered;
INSERT INTO hourhand.gate_promises (run_id, gate_id, lane_id, promised_at)
SELECT job_id, 1 + n % {GATES}, 1 + n % {LANES}, now() FROM numbered;
UPDATE hourhand.gate_promises SET promised_at = promised_at - interval '1 hour' WHERE gate_id <= 40;
"""


@dataclass
class Ground:
    """The filled tables, and some rows of them to ask for."""

    database: Database
    db: Connection
    big: set[str]
    jobs: dict[int, UUID]
    numbers: Iterator[int] = field(default_factory=itertools.count)
    plan_once: bool = False
    """Whether statements settle for a plan as in sessions of the API and of executors."""

    def due(self, number: int) -> datetime:
        return at(number)

    def run_id(self, number: int) -> UUID:
        return scheduled_run_id(self.due(number), self.jobs[number])


@contextlib.asynccontextmanager
async def filled_ground(database_url: str, schema: str = "test_plans", fill: str = FILL) -> AsyncIterator[Ground]:
    """`fill` leaves a table `numbered`, with the number and the id of each job."""
    database = Database(DatabaseSettings(url=database_url, schema=schema), "test")
    await database.open()
    await migrate(database)
    cuts = [Cut("jobs", 7, 2, None), *(Cut(table, 1, 7, None) for table in ("runs", "attempts", "log_chunks"))]
    await Partitions(database).maintain(cuts, START)
    db = await asyncpg.connect(database_url)
    await db.execute("SET synchronous_commit = off")
    await db.execute(fill.replace("hourhand.", f"{schema}."))
    tables = await db.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p')", schema
    )
    await db.execute("ANALYZE " + ", ".join(f"{schema}.{row['relname']}" for row in tables))
    big = await db.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND reltuples > $2",
        schema,
        BIG_ROWS,
    )
    jobs = await db.fetch("SELECT n, job_id FROM numbered WHERE n <= 5000")
    yield Ground(database, db, {row["relname"] for row in big}, {row["n"]: row["job_id"] for row in jobs})
    await db.execute(f"DROP SCHEMA {schema} CASCADE")
    await db.close()
    await database.close()


@dataclass(frozen=True)
class Plan:
    scanned: set[str]
    """Tables read from end to end."""
    pages: int
    """Pages touched."""
    rows: int
    text: str


async def explain(
    ground: Ground, file_name: str, name: str, settled: bool, /, *, after: str | None = None, **values: Any
) -> Plan:
    """Runs the statement as a prepared one, after another, sees how it was done, and takes both back."""
    query = load_queries("hourhand.store.sql", file_name, ground.database.schema)[name]
    arguments = ", ".join(literal(value) for value in query.arguments(values))
    statement = f"guard_{next(ground.numbers)}"
    transaction = ground.db.transaction()
    await transaction.start()
    try:
        if after is not None:
            await ground.db.execute(after)
        await ground.db.execute(f"PREPARE {statement} AS {query.text}")
        call = f"EXECUTE {statement}" + (f"({arguments})" if arguments else "")
        if settled and ground.plan_once:
            await ground.db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for _ in range(6 if settled else 0):
            await ground.db.execute(f"EXPLAIN {call}")
        text = await ground.db.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
    finally:
        await transaction.rollback()
        await ground.db.execute(f"DEALLOCATE {statement}")
    root = json.loads(text)[0]["Plan"]
    nodes = list(nodes_of(root))
    scanned = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan" and node["Actual Loops"]}
    shown = "\n".join(f"{'  ' * node['depth']}{sketch(node)}" for node in nodes)
    return Plan(scanned, pages(root), int(root["Actual Rows"]), f"{name}\n{shown}")


def pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def sketch(node: dict[str, Any]) -> str:
    named = node.get("Index Name") or node.get("Relation Name") or ""
    return f"{node['Node Type']} {named}: {node['Actual Rows']} rows x {node['Actual Loops']}, {pages(node)} pages"


def nodes_of(node: dict[str, Any], depth: int = 1) -> Iterator[dict[str, Any]]:
    yield {**node, "depth": depth}
    for child in node.get("Plans", ()):
        yield from nodes_of(child, depth + 1)


def literal(value: Any) -> str:
    return "NULL" if value is None else "'" + plain(value).replace("'", "''") + "'"


def plain(value: Any) -> str:
    match value:
        case list() | tuple():
            return "{" + ",".join("NULL" if item is None else f'"{plain(item)}"' for item in value) + "}"
        case datetime():
            return value.isoformat()
        case bool():
            return str(value).lower()
        case int():
            return str(int(value))
        case _:
            return str(value)


both_ways = pytest.mark.parametrize("settled", [False, True], ids=["first", "settled"])


def assert_by_index(plan: Plan, ground: Ground, pages_max: int, rows: int | None = None) -> None:
    assert plan.scanned & ground.big == set(), plan.text
    assert plan.pages < pages_max, f"{plan.pages} pages touched: {plan.text}"
    assert rows is None or plan.rows == rows, plan.text


async def held_fences(ground: Ground, numbers: Sequence[int]) -> list[int]:
    found = await ground.db.fetch(
        f"SELECT run_id, fence FROM {ground.database.schema}.live_runs WHERE run_id = ANY ($1)",
        [ground.run_id(number) for number in numbers],
    )
    fences = {row["run_id"]: row["fence"] for row in found}
    return [fences[ground.run_id(number)] for number in numbers]
