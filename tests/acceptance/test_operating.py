"""What operators type, against a real `hourhand up`: nodes, shards, queues, limits, and why a run waits."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BIN, SHORT_LEASES, Process, Up, clean_environment, wait_for

HOURHAND = str(BIN / "hourhand")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One of its own: what is ordered here would be felt by everybody."""
    settings = {**SHORT_LEASES, "HOURHAND_EXECUTOR_STOP_SECONDS": "1", "HOURHAND_KINDS_GRACE_SECONDS": "1"}
    with Up(tmp_path_factory.mktemp("operating"), environment=settings) as up:
        yield up


class Operator:
    """Types `hourhand …` in the folder of the running one."""

    def __init__(self, up: Up) -> None:
        self._up = up

    def __call__(self, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        environment = clean_environment(HOURHAND_HOME=str(self._up.home), HOURHAND_PORT=str(self._up.port))
        done = subprocess.run(
            [HOURHAND, *words], cwd=self._up.folder, env=environment | more, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self("-o", "json", *words).stdout)

    def node(self, role: str) -> dict[str, Any]:
        [found] = [node for node in self.json("node", "list") if node["role"] == role and node["ended_at"] is None]
        return dict(found)

    def run_of(self, *words: str) -> str:
        """Creates a job; the id of its first run."""
        job = self.json("job", "create", *words)
        with self._up.client() as client:
            return str(client.wait_for_start(job["job_id"]).run_id)

    def status(self, run_id: str) -> str:
        return str(self.json("run", "get", run_id)["status"])

    def why(self, run_id: str) -> str:
        return str(self.json("run", "explain", run_id)["summary"])

    def ends_well(self, run_id: str) -> None:
        self("run", "wait", run_id, "--timeout", "30s")


@pytest.fixture
def operator(up: Up) -> Operator:
    return Operator(up)


def gated(gate: Path) -> list[str]:
    """A command that goes on until somebody opens its gate."""
    return ["--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done"]


# --- nodes and shards -------------------------------------------------------------------------------------


def test_nodes_are_listed_with_role_state_lease_slots_and_shards(operator: Operator) -> None:
    wait_for(lambda: operator.node("scheduler")["shards"] == 1024, "the scheduler owns all shards")
    nodes = {node["role"]: node for node in operator.json("node", "list")}

    assert set(nodes) == {"api", "scheduler", "executor"}
    assert {node["state"] for node in nodes.values()} == {"working"}
    assert nodes["scheduler"]["leader"]
    assert nodes["executor"]["slots_total"] > 0
    assert all(node["lease_seconds_left"] > 0 and node["heard_seconds_ago"] < 15 for node in nodes.values())
    assert all(node["facts"]["version"] for node in nodes.values())
    table = operator("node", "list").stdout
    assert len(table.splitlines()) == 4
    assert "working" in table
    assert nodes["executor"]["name"] in operator("node", "get", str(nodes["executor"]["node_id"])).stdout


def test_shards_are_listed_by_owner_and_one_by_one(operator: Operator) -> None:
    wait_for(lambda: operator.node("scheduler")["shards"] == 1024, "the scheduler owns all shards")
    [heading, owner] = operator("shard", "list").stdout.splitlines()
    assert heading.split() == ["OWNER", "ID", "SHARDS", "EPOCH", "WHICH"]
    assert owner.split()[0] == operator.node("scheduler")["name"]
    assert owner.split()[-1] == "0-1023"
    assert len(operator("shard", "list", "--all").stdout.splitlines()) == 1025


def test_a_cordoned_executor_takes_nothing_and_explain_says_so(operator: Operator) -> None:
    name = operator.node("executor")["name"]
    operator("node", "cordon", name)
    operator("node", "cordon", name)
    wait_for(lambda: operator.node("executor")["facts"].get("orders") == "cordon", "the executor has heard of it")

    run_id = operator.run_of("behind-a-cordon", "--", "true")
    assert operator.why(run_id) == "waits for an executor: the executor that offers it is cordoned"
    assert operator.status(run_id) == "queued"

    operator("node", "resume", name)
    operator.ends_well(run_id)


def test_a_drained_executor_has_nothing_left_and_works_again_when_told_to(operator: Operator, short_path: Path) -> None:
    run_id = operator.run_of("drained", *gated(short_path / "gate"))
    wait_for(lambda: operator.status(run_id) == "running", "it runs")

    operator("node", "drain", operator.node("executor")["name"], "--wait")

    assert operator.node("executor")["state"] == "drained"
    assert operator.status(run_id) == "queued"
    assert "drained" in operator.why(run_id)
    (short_path / "gate").touch()
    operator("node", "resume", operator.node("executor")["name"])
    operator.ends_well(run_id)
    assert operator.json("run", "get", run_id)["attempt"] == 2


def test_runs_of_a_node_that_is_declared_lost_start_elsewhere_at_once(operator: Operator, short_path: Path) -> None:
    run_id = operator.run_of("lost", *gated(short_path / "gate"))
    wait_for(lambda: operator.status(run_id) == "running", "it runs")
    before = operator.node("executor")["node_id"]

    operator("node", "mark-lost", str(before), code=2)  # nobody is there to confirm
    assert "is held for dead" in operator("node", "mark-lost", str(before), "--yes").stderr

    wait_for(lambda: operator.json("run", "get", run_id)["attempt"] == 2, "it has started again", 15)
    states = {node["node_id"]: node["state"] for node in operator.json("node", "list")}
    assert states[before] == "dead"
    assert operator.node("executor")["node_id"] > before
    (short_path / "gate").touch()
    operator.ends_well(run_id)
    [first] = operator.json("run", "get", run_id)["attempts"]
    # Whichever comes first: the leader that returns its runs, or the executor that gives them back by itself.
    assert (first["status"], first["reason"] in ("executor_lost", "lease_unsure")) == ("lost", True)


def test_a_token_of_one_namespace_gives_no_orders_and_learns_no_facts(operator: Operator) -> None:
    operator("namespace", "create", "team-a")
    token = operator("token", "create", "tenant", "--only-namespace", "team-a").stdout.strip()

    refused = operator("node", "drain", operator.node("executor")["name"], code=77, HOURHAND_TOKEN=token)
    assert "bound to one namespace" in refused.stderr
    shown = json.loads(operator("-o", "json", "status", HOURHAND_TOKEN=token).stdout)
    assert {json.dumps(node["facts"]) for node in shown["nodes"]} == {"{}"}
    operator("namespace", "set", "team-a", "--weight", "9", code=77, HOURHAND_TOKEN=token)
    assert operator.json("namespace", "set", "team-a", "--weight", "2")["weight"] == 2


# --- queues and limits ------------------------------------------------------------------------------------


def test_a_run_of_a_paused_queue_waits_explain_says_so_and_resume_lets_it_run(operator: Operator) -> None:
    operator("queue", "pause", "default", "--reason", "the disk is being replaced")
    run_id = operator.run_of("paused", "--", "true")

    told = operator("run", "explain", run_id).stdout
    assert "waits because queue default is paused: the disk is being replaced" in told
    assert "hourhand queue resume default" in told
    assert operator.status(run_id) == "queued"
    assert "paused" in operator("queue", "list").stdout

    operator("queue", "resume", "default")
    operator.ends_well(run_id)
    assert not operator.json("queue", "get", "default")["paused"]


def test_a_limit_counts_what_runs_already_names_the_holder_and_lets_the_next_one_in(
    operator: Operator, short_path: Path
) -> None:
    holder = operator.run_of("holder", *gated(short_path / "gate"))
    wait_for(lambda: operator.status(holder) == "running", "it runs")
    assert operator.json("queue", "set", "default", "--max-concurrency", "1")["max_concurrency"] == 1
    try:
        run_id = operator.run_of("next", "--", "true")
        wait_for(lambda: operator.status(run_id) == "waiting", "it waits for a place")

        explanation = operator.json("run", "explain", run_id)
        assert explanation["summary"] == "waits for a slot of the limit of queue default"
        [limit] = [gate for gate in explanation["gates"] if gate["gate"] == "limit"]
        assert limit["detail"].startswith(f"limit of queue default: 1 of 1 held by run {holder} (job holder, since ")

        (short_path / "gate").touch()
        operator.ends_well(run_id)
    finally:
        operator("queue", "set", "default", "--max-concurrency", "none")


def test_a_rate_says_when_the_next_start_is(operator: Operator) -> None:
    operator("queue", "set", "default", "--rate-limit", "1/h")
    try:
        operator.ends_well(operator.run_of("first", "--", "true"))
        run_id = operator.run_of("second", "--", "true")
        wait_for(lambda: "rate limit of queue default" in operator.why(run_id), "the rate holds it back")
    finally:
        operator("queue", "set", "default", "--rate-limit", "none")
    operator.ends_well(run_id)


# --- why it waits -----------------------------------------------------------------------------------------


def test_waiting_for_a_handler_that_nobody_offers_says_why_after_a_few_seconds(operator: Operator, up: Up) -> None:
    command = [HOURHAND, "job", "create", "unoffered", "--handler", "demo.helo", "--wait"]
    environment = {"HOURHAND_HOME": str(up.home), "HOURHAND_PORT": str(up.port)}
    waiting = Process(up.cage, command, up.folder, environment)
    wait_for(lambda: "waits for an executor that offers python:demo.helo" in waiting.said, "the reason is told", 20)
    assert waiting.end() == 130

    [run] = operator.json("run", "list", "--job", "unoffered")
    told = operator("run", "explain", run["run_id"]).stdout
    assert "no live executor offers it; nearest: python:demo.hello" in told
    operator("job", "delete", "--yes", "unoffered")
    assert operator.why(run["run_id"]).startswith("cancelled (job_cancelled)")


def test_a_run_that_has_ended_says_why_and_what_to_do(operator: Operator) -> None:
    run_id = operator.run_of("fails", "--max-retries", "0", "--", "sh", "-c", "exit 3")
    wait_for(lambda: operator.status(run_id) == "failed", "it has failed")
    explanation = operator.json("run", "explain", run_id)
    assert explanation["summary"] == (
        "failed (exit_code): the program ended with a code that is no success; its job has no retries"
    )
    assert explanation["advice"] == f"see its log: hourhand run logs {run_id}"


def test_a_run_between_two_attempts_says_until_when(operator: Operator) -> None:
    run_id = operator.run_of("backs-off", "--max-retries", "1", "--", "false")
    wait_for(lambda: operator.why(run_id).startswith("waits for its next attempt until"), "it backs off")
    operator("run", "cancel", run_id)
