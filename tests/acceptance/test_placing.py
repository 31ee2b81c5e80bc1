"""Labels on real executors: who takes what, what an operator sees, and why a run waits."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BIN, Roles, clean_environment, sql, wait_for

HOURHAND = str(BIN / "hourhand")


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    with Roles(tmp_path, database_url, schema) as roles:
        for role in ("scheduler", "executor", "api"):
            roles.start(role, f"{role}-plain")
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def typed(cluster: Roles, *words: str) -> Any:
    """What `hourhand -o json …` answers."""
    environment = clean_environment(HOURHAND_SERVER=cluster.urls[0], HOURHAND_TOKEN=cluster.token)
    done = subprocess.run(
        [HOURHAND, "-o", "json", *words], cwd=cluster.folder, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def test_a_run_waits_for_its_labels_and_starts_where_they_are(cluster: Roles) -> None:
    made = typed(cluster, "job", "create", "train", "--on", "zone", "--on", "gpu", "--", "true")
    [warning] = made["warnings"]
    assert warning.startswith("no-matching-executor: no live executor of queue default with command has labels gpu and")
    assert made["placement"] == {"labels": ["gpu", "zone"]}
    client = cluster.client()
    run = wait_for(lambda: client.list_runs_page(job_id=made["job_id"]).runs, "its run is there")[0]
    why = typed(cluster, "run", "explain", str(run.run_id))
    assert why["summary"] == "needs labels gpu and zone: no live executor"
    assert [gate["gate"] for gate in why["gates"] if not gate["passed"]] == ["label"]
    assert typed(cluster, "run", "get", str(run.run_id))["status"] == "queued"

    cluster.start("executor", "executor-strong", HOURHAND_EXECUTOR_LABELS="gpu, zone=eu")
    ended = client.wait_for_run(run.run_id, 60)
    nodes = {_short(node["name"]): node for node in typed(cluster, "node", "list") if node["role"] == "executor"}
    strong = nodes["executor-strong"]["name"]
    assert (ended.status, ended.executor) == ("succeeded", strong)
    assert {name: node["labels"] for name, node in nodes.items()} == {
        "executor-plain": [],
        "executor-strong": ["gpu", "zone=eu"],
    }
    assert not typed(cluster, "job", "get", made["job_id"])["warnings"]

    typed(cluster, "node", "cordon", strong)
    waiting = client.run_job(made["job_id"])
    cordoned = "waits for an executor: the executor that offers it is cordoned"
    wait_for(lambda: client.explain_run(waiting).summary == cordoned, "the explanation names what holds it")
    plain = [client.run_job(client.create_job(**TRUE).job_id) for _ in range(3)]
    assert {client.wait_for_run(run_id, 60).executor for run_id in plain} == {nodes["executor-plain"]["name"]}
    assert client.get_run(waiting).status == "queued", "others went past it"
    typed(cluster, "node", "resume", strong)
    assert client.wait_for_run(waiting, 60).executor == strong


def _short(name: str) -> str:
    """Without what tells processes of one name apart."""
    return name.removesuffix("-" + name.rsplit("-", 1)[-1]).removesuffix("-executor")


TRUE: dict[str, Any] = {"name": "plain", "kind": "command", "payload": {"argv": ["true"]}}
