"""Plan guards: with a million finished and a hundred thousand live runs, every hot statement goes by an index and
touches a bounded number of pages: at its first execution, and when PostgreSQL has settled for a plan (after five)."""

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sample_jobs import NAMESPACE, START, at

from hourhand.database.connections import Connection, Database, DatabaseSettings
from hourhand.database.migrate import migrate
from hourhand.database.queries import load_queries
from hourhand.model.catchup import MissedRange
from hourhand.model.ids import lowest_id_at, scheduled_run_id
from hourhand.model.states import FINAL_STATES, LIVE_STATES, Reason
from hourhand.ports.stores import EPOCH
from hourhand.store.ledger_rows import LedgerRow, columns_of
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
"""


@dataclass
class Ground:
    """The filled tables, and some rows of them to ask for."""

    database: Database
    db: Connection
    big: set[str]
    jobs: dict[int, UUID]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def due(self, number: int) -> datetime:
        return at(number)

    def run_id(self, number: int) -> UUID:
        return scheduled_run_id(self.due(number), self.jobs[number])


@pytest.fixture(scope="module")
async def ground(database_url: str) -> AsyncIterator[Ground]:
    schema = "test_plans"
    database = Database(DatabaseSettings(url=database_url, schema=schema), "test")
    await database.open()
    await migrate(database)
    cuts = [Cut("jobs", 7, 2, None), *(Cut(table, 1, 7, None) for table in ("runs", "attempts", "log_chunks"))]
    await Partitions(database).maintain(cuts, START)
    db = await asyncpg.connect(database_url)
    await db.execute("SET synchronous_commit = off")
    await db.execute(FILL.replace("hourhand.", f"{schema}."))
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
    ground: Ground, file_name: str, name: str, settled: bool, *, after: str | None = None, **values: Any
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


@both_ways
async def test_looking_for_work_touches_one_entry_per_lane_and_priority(ground: Ground, settled: bool) -> None:
    lanes = list(range(1, LANES + 1))
    plan = await explain(ground, "live_runs.sql", "peek_ready", settled, lanes=lanes)
    assert_by_index(plan, ground, 1000)
    assert plan.rows >= LANES


@both_ways
async def test_a_look_at_what_is_known_touches_one_entry_each(ground: Ground, settled: bool) -> None:
    lanes = [lane for lane in range(1, LANES + 1) for _ in range(3)]
    since = [at(JOBS / 2)] * len(lanes)
    plan = await explain(
        ground, "live_runs.sql", "peek_known", settled, lanes=lanes, priorities=[2, 1, 0] * LANES, since=since
    )
    assert_by_index(plan, ground, 1000)


@both_ways
async def test_a_claim_of_a_hundred_reads_hardly_more_than_it_claims(ground: Ground, settled: bool) -> None:
    lanes = [lane for lane in range(1, LANES + 1) for _ in range(3)]
    plan = await explain(
        ground, "live_runs.sql", "claim_runs", settled,
        lanes=lanes, priorities=[2, 1, 0] * LANES, since=[EPOCH] * 3 * LANES, shares=[1] * 3 * LANES,
        limits=[100] * 3 * LANES, now=at(JOBS),
        until=at(JOBS), others_until=at(JOBS), executor_id=1,
    )  # fmt: skip
    # Two in three are followed by another run of their job that is due as well, and that is put aside.
    assert_by_index(plan, ground, 6500, rows=167)


@both_ways
async def test_a_claim_when_nothing_is_due_reads_next_to_nothing(ground: Ground, settled: bool) -> None:
    lanes = [lane for lane in range(1, LANES + 1) for _ in range(3)]
    plan = await explain(
        ground, "live_runs.sql", "claim_runs", settled,
        lanes=lanes, priorities=[2, 1, 0] * LANES, since=[EPOCH] * 3 * LANES, shares=[1] * 3 * LANES,
        limits=[100] * 3 * LANES, now=at(-1),
        until=at(-1), others_until=at(-1), executor_id=1,
    )  # fmt: skip
    assert_by_index(plan, ground, 1000, rows=0)


@both_ways
async def test_starting_a_hundred_runs_goes_by_their_ids(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    plan = await explain(
        ground, "live_runs.sql", "start_runs", settled,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        started=[START] * 100,
    )  # fmt: skip
    assert_by_index(plan, ground, 5000)


@both_ways
async def test_finishing_a_hundred_runs_goes_by_their_ids(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    plan = await explain(
        ground, "live_runs.sql", "finish_runs", settled,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        states=[10] * 100, started=[START] * 100, ended=[START] * 100, reasons=[None] * 100, errors=[None] * 100,
        results=[None] * 100, from_states=[2, 3, 4],
    )  # fmt: skip
    assert_by_index(plan, ground, 6000)


@both_ways
async def test_runs_whose_end_sets_the_next_due_time_find_their_delay_by_the_job(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    ids = ", ".join(f"'{ground.run_id(number)}'" for number in numbers)
    schema = ground.database.schema
    plan = await explain(
        ground, "live_runs.sql", "finish_runs", settled,
        after=f"UPDATE {schema}.live_runs SET gate_ids = '{{}}', cause = 1 WHERE run_id IN ({ids})",
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        states=[10] * 100, started=[START] * 100, ended=[START] * 100, reasons=[None] * 100, errors=[None] * 100,
        results=[None] * 100, from_states=[2, 3, 4],
    )  # fmt: skip
    assert_by_index(plan, ground, 9000)


@both_ways
async def test_bringing_back_a_hundred_runs_goes_by_their_ids(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    plan = await explain(
        ground, "live_runs.sql", "requeue_runs", settled,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        ready=[START] * 100, failed=[1] * 100, lost=[0] * 100, states=[11] * 100, started=[START] * 100,
        ended=[START] * 100, reasons=["exit_code"] * 100, errors=[None] * 100, from_states=[2, 3],
    )  # fmt: skip
    assert_by_index(plan, ground, 8000, rows=100)


@both_ways
async def test_cancelling_runs_are_found_by_their_executor(ground: Ground, settled: bool) -> None:
    plan = await explain(ground, "live_runs.sql", "cancelling_runs", settled, executor_id=1)
    assert_by_index(plan, ground, 200, rows=100)


@both_ways
@pytest.mark.parametrize("name", ["cancel_waiting", "request_cancel"])
async def test_a_run_is_cancelled_by_its_id(ground: Ground, name: str, settled: bool) -> None:
    more = {"now": START, "reason": "cancelled"} if name == "cancel_waiting" else {}
    run_ids = [ground.run_id(3)]
    plan = await explain(ground, "live_runs.sql", name, settled, run_ids=run_ids, namespace_id=NAMESPACE, **more)
    assert_by_index(plan, ground, 200)


@both_ways
async def test_firing_jobs_that_run_once_reads_what_is_due_and_nothing_else(ground: Ground, settled: bool) -> None:
    span = {"since": EPOCH, "until": at(2000)}
    plan = await explain(ground, "timetable.sql", "fire_once", settled, node_id=1, epoch=1, limit=500, **span)
    assert_by_index(plan, ground, 20_000)


@both_ways
async def test_due_cursors_are_read_in_order_of_time(ground: Ground, settled: bool) -> None:
    span = {"since": EPOCH, "until": at(2000)}
    plan = await explain(ground, "timetable.sql", "due_cursors", settled, node_id=1, epoch=1, limit=500, **span)
    assert_by_index(plan, ground, 5000, rows=500)


@both_ways
async def test_a_look_at_the_timetable_when_nothing_is_due_costs_nothing(ground: Ground, settled: bool) -> None:
    for name in ("fire_once", "due_cursors"):
        span = {"since": EPOCH, "until": at(-1)}
        plan = await explain(ground, "timetable.sql", name, settled, node_id=1, epoch=1, limit=500, **span)
        assert_by_index(plan, ground, 50, rows=0)


@both_ways
async def test_cursors_are_moved_by_the_ids_of_their_jobs(ground: Ground, settled: bool) -> None:
    numbers = [1 + 2 * place for place in range(200)]
    jobs = [ground.jobs[number] for number in numbers]
    later = [ground.due(number) + timedelta(days=5) for number in numbers]
    plan = await explain(
        ground, "timetable.sql", "advance_cursors", settled,
        now=at(0),
        node_id=1, epoch=1, job_ids=jobs, expected=[ground.due(number) for number in numbers], versions=[1] * 200,
        next_fires=later, run_ids=[scheduled_run_id(due, job) for due, job in zip(later, jobs, strict=True)],
        run_job_ids=jobs, run_dues=later, missed_job_ids=[], **columns_of([], "missed_"),
    )  # fmt: skip
    assert_by_index(plan, ground, 12_000, rows=200)


@both_ways
async def test_cursors_with_budgets_and_calendars_are_moved_by_the_ids_of_their_jobs(
    ground: Ground, settled: bool
) -> None:
    numbers = [1 + 2 * place for place in range(200)]
    jobs = [ground.jobs[number] for number in numbers]
    dues = [ground.due(number) for number in numbers]
    later = [due + timedelta(days=5) for due in dues]
    left_out = [LedgerRow(MissedRange(due, due, 1, Reason.EXCLUDED, due + timedelta(days=1))) for due in dues]
    plan = await explain(
        ground, "timing_facts.sql", "advance_cursors", settled,
        now=at(0), node_id=1, epoch=1, job_ids=jobs, expected=dues, versions=[1] * 200, next_fires=later,
        made=[1] * 200,
        run_ids=[scheduled_run_id(due, job) for due, job in zip(later, jobs, strict=True)],
        run_job_ids=jobs, run_dues=later, run_ready=later, missed_job_ids=jobs, **columns_of(left_out, "missed_"),
    )  # fmt: skip
    assert_by_index(plan, ground, 16_000, rows=200)


@both_ways
async def test_when_the_next_job_falls_due_is_the_first_entry_of_an_index(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "timetable.sql", "next_cursor", settled, since=EPOCH), ground, 20)


@both_ways
@pytest.mark.parametrize("number", [4, 5], ids=["once", "recurring"])
async def test_a_job_is_locked_by_its_id(ground: Ground, number: int, settled: bool) -> None:
    plan = await explain(ground, "jobs.sql", "lock_job", settled, namespace_id=NAMESPACE, job_id=ground.jobs[number])
    assert_by_index(plan, ground, 100, rows=1)


@both_ways
@pytest.mark.parametrize("count", [1, 200])
async def test_jobs_are_read_by_their_ids(ground: Ground, count: int, settled: bool) -> None:
    wanted = {"namespace_ids": [NAMESPACE] * count, "job_ids": [ground.jobs[number] for number in range(1, 1 + count)]}
    plan = await explain(ground, "jobs.sql", "get_jobs", settled, **wanted)
    assert_by_index(plan, ground, 100 * count, rows=count)


@both_ways
async def test_the_timings_of_jobs_are_read_by_their_ids(ground: Ground, settled: bool) -> None:
    jobs = [ground.jobs[1 + 2 * place] for place in range(200)]
    wanted = {"namespace_ids": [NAMESPACE] * 200, "job_ids": jobs, "versions": [1] * 200}
    plan = await explain(ground, "timetable.sql", "read_timings", settled, **wanted)
    assert_by_index(plan, ground, 5000, rows=200)


@both_ways
@pytest.mark.parametrize(("name", "later"), [("get_live_run", 0.0), ("get_finished_run", 0.5)])
async def test_a_run_is_read_by_its_id(ground: Ground, name: str, later: float, settled: bool) -> None:
    run_id = scheduled_run_id(at(5 + later), ground.jobs[5])
    plan = await explain(ground, "runs.sql", name, settled, namespace_id=NAMESPACE, run_id=run_id)
    assert_by_index(plan, ground, 100, rows=1)


@both_ways
async def test_the_newest_finished_runs_are_read_off_the_end_of_their_index(ground: Ground, settled: bool) -> None:
    for before in (UUID(int=(1 << 128) - 1), scheduled_run_id(at(200_000), ground.jobs[1])):
        plan = await explain(
            ground, "runs.sql", "list_finished_runs", settled,
            namespace_id=NAMESPACE, states=FINAL_STATES, before=before, since=UUID(int=0), reasons=None, limit=50,
        )  # fmt: skip
        assert_by_index(plan, ground, 1000, rows=50)


@both_ways
async def test_the_finished_runs_of_a_job_are_found_by_the_job(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "runs.sql", "list_finished_runs_of_job", settled,
        namespace_id=NAMESPACE, job_id=ground.jobs[5], states=FINAL_STATES, before=UUID(int=(1 << 128) - 1),
        since=UUID(int=0), reasons=None, limit=50,
    )  # fmt: skip
    assert_by_index(plan, ground, 500, rows=10)


@both_ways
@pytest.mark.parametrize("number", [4, 5], ids=["once", "recurring"])
async def test_the_live_runs_of_a_job_are_found_by_the_job_or_by_their_id(
    ground: Ground, number: int, settled: bool
) -> None:
    plan = await explain(
        ground, "runs.sql", "list_live_runs_of_job", settled,
        namespace_id=NAMESPACE, job_id=ground.jobs[number], states=LIVE_STATES, before=None, since=None, limit=50,
        once_run_id=ground.run_id(number) if number % 2 == 0 else None,
    )  # fmt: skip
    assert_by_index(plan, ground, 200, rows=1)


@both_ways
@pytest.mark.parametrize("number", [4, 5], ids=["once", "recurring"])
async def test_the_verbs_of_a_job_find_its_live_runs_by_the_job_or_by_their_id(
    ground: Ground, number: int, settled: bool
) -> None:
    which = {"job_id": ground.jobs[number], "once_run_id": ground.run_id(number) if number % 2 == 0 else None}
    for name, more in (
        ("job_live_runs", {}),
        ("withdraw_runs", {"now": at(-1)}),
        ("refresh_lane_of_runs", {"lane_id": 1, "priority": 1, "version": 2, "now": at(-1), "gate_ids": None}),
    ):
        assert_by_index(await explain(ground, "jobs.sql", name, settled, **which, **more), ground, 200)


@both_ways
async def test_log_lines_are_read_by_their_run(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "logs.sql", "read_logs", settled,
        run_id=ground.jobs[7], after_attempt=0, after_line=0, limit=100,
    )  # fmt: skip
    assert_by_index(plan, ground, 300, rows=100)


@both_ways
async def test_attempts_are_read_by_their_run(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "runs.sql", "list_attempts", settled, run_id=ground.run_id(5)), ground, 100)


@both_ways
async def test_the_sweep_of_every_second_does_not_walk_over_all_live_runs(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "nodes.sql", "sweep_nodes", settled), ground, 20)


@both_ways
@pytest.mark.parametrize("of_job", [False, True])
async def test_runs_to_repeat_are_picked_by_time_or_by_job(ground: Ground, of_job: bool, settled: bool) -> None:
    name, more = ("pick_retries_of_job", {"job_id": ground.jobs[5]}) if of_job else ("pick_retries", {})
    plan = await explain(
        ground, "runs.sql", name, settled,
        namespace_id=NAMESPACE, states=[10, 11, 12], reasons=None, since=UUID(int=0), before=UUID(int=(1 << 128) - 1),
        again=False, limit=10, **more,
    )  # fmt: skip
    assert_by_index(plan, ground, 1500, rows=10)


@both_ways
async def test_a_hundred_runs_are_repeated_by_their_ids(ground: Ground, settled: bool) -> None:
    found = await ground.db.fetch(f"SELECT run_id FROM {ground.database.schema}.runs ORDER BY run_id LIMIT 100")
    run_ids = [row["run_id"] for row in found]
    facts = await explain(ground, "runs.sql", "retry_facts", settled, namespace_id=NAMESPACE, run_ids=run_ids)
    assert_by_index(facts, ground, 3000, rows=100)
    plan = await explain(
        ground, "runs.sql", "insert_retries", settled,
        namespace_id=NAMESPACE, run_ids=run_ids, new_ids=[UUID(int=9 << 80 | place) for place in range(100)],
        gate_ids=[None] * 100, expires=[None] * 100, behind=[False] * 100, versions=[1] * 100, seen=run_ids,
        again=False, requested_by="ada", note=None, now=START,
    )  # fmt: skip
    assert_by_index(plan, ground, 8000, rows=100)


@both_ways
async def test_losses_are_counted_by_the_ids_of_the_runs(ground: Ground, settled: bool) -> None:
    run_ids = [ground.run_id(number) for number in (10, 20, 30)]
    plan = await explain(ground, "live_runs.sql", "count_losses", settled, run_ids=run_ids, since=START)
    assert_by_index(plan, ground, 200)


@both_ways
async def test_keys_of_submissions_are_found_by_themselves(ground: Ground, settled: bool) -> None:
    keys = [f"key {number}" for number in range(950, 1050)]
    which = {"namespace_ids": [NAMESPACE] * 100, "keys": keys}
    plan = await explain(
        ground, "submissions.sql", "claim_keys", settled,
        **which, digests=["x"] * 100, job_ids=[f"{{{UUID(int=1)}}}"] * 100, created_at=[START] * 100, kept="1 day",
        patience="1s",
    )  # fmt: skip
    assert_by_index(plan, ground, 5000, rows=100)
    found = await explain(
        ground, "submissions.sql", "find_key", settled, namespace_id=NAMESPACE, key="key 7", since=at(-1)
    )
    assert_by_index(found, ground, 20, rows=1)
    for name, more in (("claim_unique_keys", {"patience": "1s"}), ("take_over_unique_keys", {"nows": [START] * 100})):
        plan = await explain(
            ground, "submissions.sql", name, settled,
            **which, job_ids=[UUID(int=number) for number in range(100)], untils=[None] * 100, **more,
        )  # fmt: skip
        assert_by_index(plan, ground, 10_000)


@both_ways
async def test_a_slice_of_unique_keys_is_judged_by_the_ids_of_their_jobs(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "partitions.sql", "prune_unique_keys", settled, namespace_id=0, key="", now=START, limit=100
    )
    assert_by_index(plan, ground, 10_000, rows=1)
    old = await explain(ground, "partitions.sql", "prune_idempotency_keys", settled, before=at(100), limit=50)
    assert_by_index(old, ground, 1000, rows=50)


# --- gates and turns --------------------------------------------------------------------------------------


@both_ways
async def test_a_look_at_what_waits_sees_the_heads_of_indexes(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "turns.sql", "look", settled, node_id=1, now=at(0)), ground, 300, rows=1)


@both_ways
async def test_the_healing_sweep_looks_at_gates_and_not_at_those_who_wait(ground: Ground, settled: bool) -> None:
    plan = await explain(ground, "turns.sql", "let_go_on", settled, limit=1000)
    assert_by_index(plan, ground, 20 * GATES, rows=0)


@both_ways
async def test_the_healing_sweep_writes_those_that_it_lets_go_and_no_others(ground: Ground, settled: bool) -> None:
    free = f"DELETE FROM {ground.database.schema}.gate_slots WHERE gate_id <= 20"
    plan = await explain(ground, "turns.sql", "let_go_on", settled, after=free, limit=1000)
    assert_by_index(plan, ground, 20 * GATES + 50 * 20 * SLOTS, rows=20 * SLOTS)


@both_ways
async def test_candidates_with_gates_are_read_in_order_and_up_to_a_bound(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "live_runs.sql", "careful_candidates", settled,
        executor_id=1,
        lanes=[LANES + 2] * 3, priorities=[2, 1, 0], since=[EPOCH] * 3, shares=[1] * 3, now=at(JOBS), limit=500,
    )  # fmt: skip
    assert_by_index(plan, ground, 10_000, rows=500)


@both_ways
async def test_a_look_for_candidates_when_none_is_due_reads_next_to_nothing(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "live_runs.sql", "careful_candidates", settled,
        executor_id=1,
        lanes=[LANES + 2] * 3, priorities=[2, 1, 0], since=[EPOCH] * 3, shares=[1] * 3, now=at(-1), limit=500,
    )  # fmt: skip
    assert_by_index(plan, ground, 50, rows=0)


@both_ways
async def test_places_are_counted_by_their_gates(ground: Ground, settled: bool) -> None:
    plan = await explain(ground, "live_runs.sql", "count_slots", settled, gate_ids=list(range(1, 21)))
    assert_by_index(plan, ground, 200, rows=20)


@both_ways
async def test_runs_that_end_find_those_who_wait_for_their_places_by_the_gate(ground: Ground, settled: bool) -> None:
    numbers = [20 * place for place in range(1, 101) if place % 50]
    plan = await explain(
        ground, "live_runs.sql", "finish_runs", settled,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        states=[10] * 98, started=[START] * 98, ended=[START] * 98, reasons=[None] * 98, errors=[None] * 98,
        results=[None] * 98, from_states=[2, 3, 4],
    )  # fmt: skip
    assert_by_index(plan, ground, 12_000)


@both_ways
async def test_turns_are_read_without_those_who_wait_for_gates(ground: Ground, settled: bool) -> None:
    first_page = {"after_ready": None, "after_id": None}
    plan = await explain(ground, "turns.sql", "waiting_turns", settled, node_id=1, limit=1000, **first_page)
    assert_by_index(plan, ground, 40_000, rows=1000)


@both_ways
async def test_the_unfinished_runs_of_jobs_are_found_by_the_jobs(ground: Ground, settled: bool) -> None:
    jobs = [ground.jobs[1 + 2 * place] for place in range(1000)]
    last = [UUID(int=(1 << 128) - 1)] * 1000
    plan = await explain(
        ground, "turns.sql", "unfinished_of_jobs", settled, job_ids=jobs, last_ids=last, once_run_ids=[]
    )
    assert_by_index(plan, ground, 6000, rows=1000)


@both_ways
async def test_waits_that_took_too_long_are_found_by_their_end(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "turns.sql", "expire_runs", settled, now=at(0), limit=1000), ground, 50)


# --- the ledger and pauses --------------------------------------------------------------------------------


@both_ways
async def test_the_ledger_of_a_job_is_read_by_the_job(ground: Ground, settled: bool) -> None:
    job = {"job_id": ground.jobs[5], "since": at(-3600), "until": at(7 * 86_400), "limit": 100}
    plan = await explain(
        ground, "ledger.sql", "ledger_runs", settled,
        namespace_id=NAMESPACE, lowest=lowest_id_at(at(-3600)), highest=lowest_id_at(at(7 * 86_400)), once_run_id=None,
        **job,
    )  # fmt: skip
    assert_by_index(plan, ground, 500, rows=10 + 1)
    assert_by_index(await explain(ground, "ledger.sql", "ledger_stretches", settled, **job), ground, 20, rows=1)
    plan = await explain(ground, "ledger.sql", "ledger_job", settled, namespace_id=NAMESPACE, job_id=ground.jobs[5])
    assert_by_index(plan, ground, 60, rows=1)


@both_ways
async def test_what_was_missed_goes_on_in_the_row_of_its_own_job(ground: Ground, settled: bool) -> None:
    numbers = [1 + 2 * place for place in range(200)]
    jobs = [ground.jobs[number] for number in numbers]
    missed = [
        LedgerRow(MissedRange(ground.due(number), ground.due(number), 1, Reason.CATCHUP_WINDOW, at(86_400)))
        for number in numbers
    ]
    plan = await explain(
        ground, "timetable.sql", "advance_cursors", settled,
        now=at(0),
        node_id=1, epoch=1, job_ids=jobs, expected=[ground.due(number) for number in numbers], versions=[1] * 200,
        next_fires=[at(86_400)] * 200, run_ids=[], run_job_ids=[], run_dues=[], missed_job_ids=jobs,
        **columns_of(missed, "missed_"),
    )  # fmt: skip
    assert_by_index(plan, ground, 12_000)


@both_ways
async def test_without_a_pause_nobody_looks_at_more_than_an_empty_table(ground: Ground, settled: bool) -> None:
    for name, values in (
        ("look_at_pauses", {"now": at(0)}),
        ("wake_resting", {"now": at(0), "limit": 5000}),
        ("settle_pauses", {"now": at(0)}),
        ("end_pauses_over", {"now": at(0)}),
    ):
        assert_by_index(await explain(ground, "pauses.sql", name, settled, **values), ground, 20)


@both_ways
async def test_jobs_that_fail_are_found_by_their_runs(ground: Ground, settled: bool) -> None:
    run_ids = [ground.run_id(number) for number in range(1, 101)]
    plan = await explain(ground, "pauses.sql", "pause_failing", settled, run_ids=run_ids, now=at(0))
    assert_by_index(plan, ground, 12_000, rows=0)
