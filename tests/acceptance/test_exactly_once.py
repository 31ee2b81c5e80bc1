"""A handler that completes its run in its own transaction has its effect once, however often its executor dies."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Roles, sql, wait_for

from hourhand.model.states import RunState

RUNS = 400
KILLS = 10

HANDLER = '''
"""Counts its runs in a table of its own, in the database that Hourhand uses."""
import asyncio
import os
from hourhand import Context, job

SCHEMA = os.environ["HOURHAND_BENCH_SCHEMA"]


@job("count")
async def count(ctx: Context) -> None:
    async with ctx.transaction(result={"attempt": ctx.attempt}) as db:
        await db.execute(f"INSERT INTO {SCHEMA}.effects (run_id, attempt) VALUES ($1, $2)", ctx.run_id, ctx.attempt)
        await asyncio.sleep(0.01)
        await db.execute(f"UPDATE {SCHEMA}.counter SET n = n + 1")
    await asyncio.sleep(0.01)
'''


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    (tmp_path / "counting_handler.py").write_text(HANDLER)
    own = f"{schema}_app"
    sql(database_url, f"CREATE SCHEMA {own}")
    sql(database_url, f"CREATE TABLE {own}.counter (n int NOT NULL)")
    sql(database_url, f"CREATE TABLE {own}.effects (run_id uuid NOT NULL, attempt int NOT NULL)")
    sql(database_url, f"INSERT INTO {own}.counter VALUES (0)")
    settings = {
        "PYTHONPATH": str(tmp_path),
        "HOURHAND_KINDS_HANDLER_MODULES": "counting_handler",
        "HOURHAND_BENCH_SCHEMA": own,
        "HOURHAND_EXECUTOR_SLOTS_INLINE": "20",
    }
    with Roles(tmp_path, database_url, schema, settings) as roles:
        for role in ("scheduler", "api", "executor"):
            roles.start(role, f"{role}-only")
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")
    sql(database_url, f"DROP SCHEMA {own} CASCADE")


def test_the_count_is_right_although_the_executor_is_killed_again_and_again(cluster: Roles, capsys: Any) -> None:
    chance = random.Random(7)
    with cluster.client() as client:
        client.create_jobs([{"name": "count", "payload": {"handler": "count"}}] * RUNS)
    for number in range(KILLS):
        target = effects(cluster) + chance.randint(5, 30)
        wait_for(lambda target=target: effects(cluster) >= min(target, RUNS), "it counts on", 60)
        executor = cluster.processes.pop("executor-only" if number == 0 else f"executor-{number}")
        executor.kill()
        cluster.start("executor", f"executor-{number + 1}")
    wait_for(lambda: not live(cluster), "all runs have ended", 90)

    ends = ended(cluster)
    [row] = sql(cluster.database, f"SELECT n FROM {cluster.schema}_app.counter")
    [told] = sql(cluster.database, f"SELECT count(*), count(DISTINCT run_id) AS runs FROM {cluster.schema}_app.effects")
    [tries] = sql(cluster.database, f"SELECT count(*) FROM {cluster.schema}.attempts")
    assert sum(ends.values()) == RUNS
    assert row["n"] == told["count"] == told["runs"] == ends[RunState.SUCCEEDED]
    # A run may die with its executor three times by chance; then it is held to be the cause.
    assert ends[RunState.SUCCEEDED] >= RUNS - 5
    assert tries["count"], "attempts were lost"
    with capsys.disabled():
        print(f"\n    {RUNS} runs, {KILLS} kills, {tries['count']} lost attempts: counted {row['n']}")


def test_the_count_is_right_although_connections_break_at_any_moment(cluster: Roles, capsys: Any) -> None:
    job = {
        "name": "count",
        "payload": {"handler": "count"},
        "max_retries": 1000,
        "retry": {"delays": ["100ms"]},
    }
    with cluster.client() as client:
        client.create_jobs([job] * RUNS)
    cuts = 0
    while live(cluster):
        target = effects(cluster) + 5
        wait_for(lambda target=target: effects(cluster) >= target or not live(cluster), "it counts on", 60)
        cuts += len(
            sql(
                cluster.database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%transaction'",
            )
        )
    [told] = sql(cluster.database, f"SELECT count(*), count(DISTINCT run_id) AS runs FROM {cluster.schema}_app.effects")
    [tries] = sql(cluster.database, f"SELECT count(*) FROM {cluster.schema}.attempts")
    assert ended(cluster) == {RunState.SUCCEEDED: RUNS}
    assert effects(cluster) == told["count"] == told["runs"] == RUNS
    with capsys.disabled():
        print(
            f"\n    {RUNS} runs, {cuts} connections cut, {tries['count']} failed attempts: counted {effects(cluster)}"
        )


def effects(cluster: Roles) -> int:
    [row] = sql(cluster.database, f"SELECT n FROM {cluster.schema}_app.counter")
    return int(row["n"])


def live(cluster: Roles) -> int:
    [row] = sql(cluster.database, f"SELECT count(*) FROM {cluster.schema}.live_runs")
    return int(row["count"])


def ended(cluster: Roles) -> dict[int, int]:
    rows = sql(cluster.database, f"SELECT state, count(*) FROM {cluster.schema}.runs GROUP BY 1")
    return {row["state"]: row["count"] for row in rows}
