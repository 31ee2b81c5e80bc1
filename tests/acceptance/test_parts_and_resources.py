"""Real executors of different size: runs go where they fit, and runs on several outlive the death of one."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Roles, sql, wait_for

from hourhand.client import Client, PartView


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    with Roles(tmp_path, database_url, schema) as roles:
        roles.start("scheduler", "scheduler")
        roles.start("api", "api")
        roles.start("executor", "small", HOURHAND_EXECUTOR_RESOURCES="memory=500MB, cpu=2")
        roles.start("executor", "large", HOURHAND_EXECUTOR_RESOURCES="memory=2GB, cpu=2, gpu=1")
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def command(name: str, *argv: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "command", "payload": {"argv": list(argv)}, **fields}


def first_run(client: Client, job_id: Any) -> Any:
    return wait_for(lambda: client.list_runs_page(job_id=job_id).runs, "its run is there")[0].run_id


def ended_parts(client: Client, run_id: Any) -> list[PartView]:
    return [part for part in client.run_parts(run_id) if part.ended_at is not None]


def test_runs_go_where_they_fit_and_never_more_at_once_than_fit(cluster: Roles) -> None:
    client = cluster.client()
    hog = client.create_job(**command("hog", "true", resources={"memory": "1GB"}))
    assert hog.warnings == []
    card = client.create_job(**command("card", "true", resources={"gpu": 1}))
    for job in (hog, card):
        ended = client.wait_for_run(first_run(client, job.job_id), 60)
        assert ended.status == "succeeded"
        assert (ended.executor or "").startswith("large")
    giant = client.create_job(**command("giant", "true", resources={"memory": "64GB"}))
    [warning] = giant.warnings
    assert "needs 64 GB of memory: the largest executor has 2 GB" in warning
    why = client.explain_run(first_run(client, giant.job_id))
    assert why.summary == "needs 64 GB of memory: the largest executor has 2 GB"

    # Two of them fill the large one; a third waits until one has ended.
    full = [
        client.create_job(**command("full", "sleep", "600", resources={"memory": "1GB"}, priority=place))
        for place in (9, 8, 1)
    ]
    runs = [first_run(client, job.job_id) for job in full]
    wait_for(lambda: all(client.get_run(run_id).status == "running" for run_id in runs[:2]), "two of them run")
    # What is in use comes with heartbeats, who uses it with the claim.
    told = wait_for(lambda: _waits_for_room(client, runs[2], runs[0]), "the third tells what it waits for")
    assert "memory: 2 GB of 2 GB in use on large" in told
    assert client.get_run(runs[2]).status == "queued"
    client.cancel_run(runs[0])
    wait_for(lambda: client.get_run(runs[2]).status == "running", "the third has the room of the first")
    for run_id in runs[1:]:
        client.cancel_run(run_id)
    assert {client.wait_for_run(run_id, 60).status for run_id in runs} == {"cancelled"}
    wait_for(lambda: all(_used(node) == 0 for node in client.nodes()), "everything is given back")


def _waits_for_room(client: Client, run_id: Any, holder: Any) -> str | None:
    summary = client.explain_run(run_id).summary
    return summary if summary.startswith("waits for room") and str(holder) in summary else None


def _used(node: Any) -> float:
    return sum(amount["used"] for amount in node.resources.values())


def test_a_run_on_all_executors_has_a_part_on_each_that_knows_its_place(cluster: Roles) -> None:
    client = cluster.client()
    job = client.create_job(**command("everywhere", "env", placement={"on": "all"}))
    run = client.wait_for_run(first_run(client, job.job_id), 60)
    assert (run.status, run.result) == ("succeeded", {"parts": 2, "succeeded": 2})
    parts = client.run_parts(run.run_id)
    assert sorted((part.executor or "").split("-")[0] for part in parts) == ["large", "small"]
    for part in parts:
        said = [line.text for line in client.run_logs(part.run_id).lines]
        assert f"HOURHAND_INDEX={part.index}" in said
        assert "HOURHAND_TOTAL=2" in said
    assert [found.run_id for found in client.list_runs_page(job_id=job.job_id).runs] == [run.run_id]


@pytest.mark.parametrize(("on", "status"), [(2, "succeeded"), ("all", "failed")])
def test_an_executor_is_killed_in_the_middle_of_a_run_on_several(cluster: Roles, on: int | str, status: str) -> None:
    client = cluster.client()
    job = client.create_job(**command("several", "sleep", "15", placement={"on": on}))
    run_id = first_run(client, job.job_id)
    wait_for(lambda: [part.status for part in client.run_parts(run_id)] == ["running"] * 2, "both parts run")
    cluster.processes["small"].send(signal.SIGKILL)
    gone = next(part for part in client.run_parts(run_id) if (part.executor or "").startswith("small"))
    if on == 2:
        moved = wait_for(lambda: _elsewhere(client, run_id, gone), "its part goes to the other one", 60)
        assert moved.index == gone.index
    else:
        lost = wait_for(lambda: ended_parts(client, run_id), "its part is lost", 60)
        assert [(part.run_id, part.status, part.reason) for part in lost] == [(gone.run_id, "lost", "executor_lost")]
    ended = client.wait_for_run(run_id, 60)
    assert ended.status == status
    assert len(sql(cluster.database, f"SELECT FROM {cluster.schema}.live_runs")) == 0


def _elsewhere(client: Client, run_id: Any, gone: PartView) -> PartView | None:
    parts = {part.run_id: part for part in client.run_parts(run_id)}
    part = parts[gone.run_id]
    return part if part.status == "running" and (part.executor or "").startswith("large") else None
