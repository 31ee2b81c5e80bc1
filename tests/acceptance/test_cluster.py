"""Several copies of every role against one PostgreSQL, as separate processes, one of which may die at any time."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from harness import Roles, job_key, read_witness, seen_jobs, sql, wait_for

from hourhand.model.states import RunState

RECURRING = 10
SLOW_HANDLER = '''
"""Leaves its witness at the start and takes a while, so that it can be killed in between."""
import asyncio
from hourhand import Context, job
from hourhand.job_kinds.samples import noop


@job("slow")
async def slow(ctx: Context) -> None:
    await noop(ctx)
    await asyncio.sleep(1)
'''


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    (tmp_path / "slow_handler.py").write_text(SLOW_HANDLER)
    modules = "hourhand.job_kinds.samples,slow_handler"
    settings = {"PYTHONPATH": str(tmp_path), "HOURHAND_KINDS_HANDLER_MODULES": modules}
    with Roles(tmp_path, database_url, schema, settings) as roles:
        for role in ("scheduler", "executor", "api"):
            for copy in ("one", "two"):
                roles.start(role, f"{role}-{copy}")
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def test_ten_thousand_jobs_each_run_exactly_once_and_then_survive_two_deaths(cluster: Roles, capsys: Any) -> None:
    wait_for(lambda: len(shards_by_owner(cluster)) == 2, "both schedulers own shards")
    assert sum(shards_by_owner(cluster).values()) == 1024
    assert min(shards_by_owner(cluster).values()) > 1024 * 0.3

    once, recurring = submit_all(cluster)
    wanted = {job_key(job_id) for job_id in once}
    wait_for(lambda: wanted <= seen_jobs(cluster.witness), "all 10,000 have run", 90)
    stop_recurring(cluster, recurring)
    wait_for(lambda: live_runs(cluster) == 0, "everything is recorded", 30)

    lines = Counter(line.of for line in read_witness(cluster.witness))
    assert len(once) == 10_000
    assert {key: lines[key] for key in wanted if lines[key] != 1} == {}, "none is lost, none is doubled"
    assert_recurring_ran_every_second(cluster, recurring)
    ran_by = executors(cluster)
    assert len(ran_by) == 2, f"both executors ran some: {ran_by}"
    assert min(ran_by.values()) > 100
    assert_runs_are_unique(cluster)

    doubled = survive_two_deaths(cluster)
    with capsys.disabled():
        print(f"\n    10,000 once each, by executor {sorted(ran_by.values())}; after two deaths {doubled} repeated")


def submit_all(cluster: Roles) -> tuple[list[UUID], list[UUID]]:
    """Half immediate, half a few seconds ahead, and a few that come again every second; through both APIs."""
    with cluster.client(0) as first, cluster.client(1) as second:
        # Beside each other: on a busy machine an earlier one may not be recorded yet.
        beside = noop({"every": "1s"}) | {"overlap": "allow"}
        recurring = first.create_jobs([beside] * RECURRING)
        now = datetime.now(UTC)
        ahead = [noop({"at": instant(now + timedelta(seconds=3 + number % 5000 / 1000))}) for number in range(5000)]
        once = second.create_jobs(ahead)
        for begin in range(0, 5000, 500):
            client = first if begin % 1000 else second
            once += client.create_jobs([noop() for _ in range(500)])
    return once, recurring


def noop(schedule: dict[str, str] | None = None) -> dict[str, Any]:
    job: dict[str, Any] = {"name": "noop", "payload": {"handler": "bench.noop"}}
    return job if schedule is None else {**job, "schedule": schedule}


def instant(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def stop_recurring(cluster: Roles, recurring: list[UUID]) -> None:
    with cluster.client() as client:
        for job_id in recurring:
            client.pause_job(job_id)


def assert_recurring_ran_every_second(cluster: Roles, recurring: list[UUID]) -> None:
    keys = {job_key(job_id) for job_id in recurring}
    dues: dict[int, list[int]] = {key: [] for key in keys}
    for line in read_witness(cluster.witness):
        if line.of in keys:
            dues[line.of].append(line.run_id.int >> 80)  # the due time in milliseconds
    for times in dues.values():
        times.sort()
        assert len(times) >= 3
        assert {after - before for before, after in pairwise(times)} == {1000}


def survive_two_deaths(cluster: Roles) -> int:
    """Another wave, in the middle of which an executor and a scheduler are killed. Gives how many runs repeated."""
    slow = {"name": "slow", "payload": {"handler": "slow"}}
    with cluster.client(0) as client:
        now = datetime.now(UTC)
        wave = client.create_jobs([noop({"at": instant(now + timedelta(seconds=3))}) for _ in range(1500)])
        wave += client.create_jobs([noop() for _ in range(1500)])

        def runs_in_hand() -> int:
            wave.extend(client.create_jobs([slow] * 20))
            return started_runs(cluster, "executor-one")

        wait_for(runs_in_hand, "the first executor has runs in hand")
        cluster.processes["executor-one"].kill()
        cluster.processes["scheduler-one"].kill()
        wave += client.create_jobs([noop() for _ in range(500)])
    wanted = {job_key(job_id) for job_id in wave}
    wait_for(lambda: wanted <= seen_jobs(cluster.witness), "everything acknowledged has run", 60)
    wait_for(lambda: live_runs(cluster) == 0, "everything is recorded", 30)
    wait_for(lambda: list(shards_by_owner(cluster).values()) == [1024], "one scheduler owns all shards", 30)
    assert_runs_are_unique(cluster)
    lines = [line for line in read_witness(cluster.witness) if line.of in wanted]
    repeated = Counter(line.run_id for line in lines)
    again = {line.run_id for line in lines if line.attempt > 1}
    assert {run_id for run_id, count in repeated.items() if count > 1} <= again, "a repetition is told as an attempt"
    assert again, "what the dead executor had begun was begun again"
    return len(lines) - len(repeated)


def shards_by_owner(cluster: Roles) -> dict[int, int]:
    rows = sql(
        cluster.database,
        f"SELECT owner_id, count(*) FROM {cluster.schema}.shards WHERE owner_id IS NOT NULL GROUP BY 1",
    )
    return {row["owner_id"]: row["count"] for row in rows}


def executors(cluster: Roles) -> dict[int, int]:
    rows = sql(cluster.database, f"SELECT executor_id, count(*) FROM {cluster.schema}.runs GROUP BY 1")
    return {row["executor_id"]: row["count"] for row in rows}


def started_runs(cluster: Roles, executor: str) -> int:
    """Runs that this executor has in hand and has begun."""
    [row] = sql(
        cluster.database,
        f"SELECT count(*) FROM {cluster.schema}.live_runs r JOIN {cluster.schema}.nodes n ON n.node_id = r.executor_id "
        "WHERE n.name LIKE $1 AND r.state = $2",
        f"{executor}-%",
        int(RunState.RUNNING),
    )
    return int(row["count"])


def live_runs(cluster: Roles) -> int:
    [row] = sql(cluster.database, f"SELECT count(*) FROM {cluster.schema}.live_runs")
    return int(row["count"])


def assert_runs_are_unique(cluster: Roles) -> None:
    [row] = sql(
        cluster.database,
        "SELECT count(*) AS rows, count(DISTINCT run_id) AS runs, count(*) FILTER (WHERE state <> $1) AS bad "
        f"FROM {cluster.schema}.runs",
        int(RunState.SUCCEEDED),
    )
    assert row["rows"] == row["runs"]
    assert row["bad"] == 0, "every run has succeeded"
