"""`hourhand node`, `shard`, `queue`, `namespace` and `run explain`: what is asked, what is printed, how it ends."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from stub_api import Stub

Run = Callable[..., Result]


# --- nodes and shards -------------------------------------------------------------------------------------


def test_nodes_are_listed_with_their_state_slots_and_lease(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "berlin-executor-12")
    stub.add_node(8, "berlin-scheduler-13", role="scheduler", slots_total=0, shards=1024, leader=True)
    stub.add_node(9, "gone", state="dead", ended_at="2030-01-31T08:00:00Z")

    done = hourhand("node", "list")

    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert rows[0][:5] == ["berlin-executor-12", "executor", "7", "working", "3/96"]
    assert "12.5 s" in done.stdout
    assert "2.5 s ago" in done.stdout
    assert "0.1.0" in done.stdout
    assert "1024" in rows[1]
    assert "leads" in rows[1]
    assert rows[2][3] == "dead"


def test_nodes_can_be_had_as_json_and_yaml(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "a")

    [found] = json.loads(hourhand("node", "list", "-o", "json").stdout)
    assert (found["node_id"], found["state"], found["slots_total"]) == (7, "working", 96)
    assert "state: working" in hourhand("node", "get", "7", "-o", "yaml").stdout


def test_one_node_is_shown_with_what_it_says_of_itself(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "a", state="cordoned", orders="cordon")
    shown = hourhand("node", "get", "a").stdout
    assert "cordoned (told to cordon)" in shown
    assert '"version": "0.1.0"' in shown


@pytest.mark.parametrize("word", ["7", "berlin"])
@pytest.mark.parametrize(("verb", "state"), [("cordon", "cordoned"), ("drain", "draining"), ("resume", "working")])
def test_an_order_names_the_node_by_number_or_name(hourhand: Run, stub: Stub, verb: str, state: str, word: str) -> None:
    stub.add_node(7, "berlin")

    done = hourhand("node", verb, word)

    assert done.exit_code == 0
    assert stub.asked("POST", f"/nodes/7/{verb}")
    assert f"it is {state}" in done.stderr


def test_draining_can_be_waited_for(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "berlin")
    assert "has nothing left; it is drained" in hourhand("node", "drain", "berlin", "--wait").stderr


def test_of_several_nodes_of_one_name_the_present_one_is_meant(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "berlin", ended_at="2030-01-31T08:00:00Z", state="dead")
    stub.add_node(8, "berlin")
    hourhand("node", "cordon", "berlin")
    assert stub.asked("POST", "/nodes/8/cordon")

    stub.add_node(9, "berlin")
    done = hourhand("node", "cordon", "berlin")
    assert done.exit_code == 4
    assert "give a number" in done.stderr


def test_a_node_that_does_not_exist_ends_with_3(hourhand: Run, stub: Stub) -> None:
    assert hourhand("node", "cordon", "nowhere").exit_code == 3
    assert hourhand("node", "cordon", "42").exit_code == 3


def test_declaring_a_node_lost_needs_somebody_who_says_yes(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "berlin")

    assert hourhand("node", "mark-lost", "7").exit_code == 2
    assert stub.nodes[7]["state"] == "working"

    done = hourhand("node", "mark-lost", "7", "--yes")
    assert done.exit_code == 0
    assert "is held for dead; it is dead" in done.stderr


def test_shards_are_listed_by_owner_or_one_by_one(hourhand: Run) -> None:
    by_owner = hourhand("shard", "list").stdout.splitlines()
    assert by_owner[1].split() == ["alpha", "1", "1024", "3", "0-1023"]
    one_by_one = hourhand("shard", "list", "--all").stdout.splitlines()
    assert one_by_one[1].split() == ["0", "alpha", "1", "3"]


# --- queues and namespaces --------------------------------------------------------------------------------


def test_queues_are_listed_with_their_numbers(hourhand: Run, stub: Stub) -> None:
    assert "no queues" in hourhand("queue", "list").stderr
    stub.queues["reports"] = {"name": "reports", "waiting": 7, "running": 1, "later": 0, "rate_limit": "5/s"}

    [_, row] = hourhand("queue", "list").stdout.splitlines()

    assert row.split() == ["reports", "open", "7", "1", "0", "-", "5/s", "-"]


def test_a_queue_is_limited_by_what_is_given_and_none_takes_a_limit_away(hourhand: Run, stub: Stub) -> None:
    hourhand("queue", "set", "reports", "--max-concurrency", "3")
    assert stub.asked("PUT", "/queues/reports").json == {"max_concurrency": 3}

    hourhand("queue", "set", "reports", "--max-concurrency", "none", "--rate-limit", "10/30s")
    assert stub.last.json == {"max_concurrency": None, "rate_limit": "10/30s"}

    hourhand("queue", "set", "reports", "--rate-limit", "none")
    assert stub.last.json == {"rate_limit": None}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["queue", "set", "reports"], "nothing to change is given"),
        (["queue", "set", "reports", "--max-concurrency", "few"], "'few' is neither a whole number nor none"),
        (["namespace", "set", "team-a"], "nothing to change is given"),
        (["namespace", "set", "team-a", "--weight", "0"], "0 is not in the range"),
        (["queues", "list"], "did you mean queue?"),
        (["node", "uncordon", "x"], "did you mean resume?"),
        (["explain", "x"], "did you mean run explain?"),
    ],
)
def test_a_mistake_ends_with_2_and_asks_nobody(hourhand: Run, stub: Stub, words: list[str], said: str) -> None:
    done = hourhand(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not stub.seen


def test_a_queue_is_paused_shown_and_resumed(hourhand: Run, stub: Stub) -> None:
    done = hourhand("queue", "pause", "reports", "--reason", "holiday")
    assert "queue reports is paused; 2 waiting, 1 running" in done.stderr
    assert stub.last.json == {"reason": "holiday"}
    assert "by stub: holiday" in hourhand("queue", "get", "reports").stdout
    assert "goes on" in hourhand("queue", "resume", "reports").stderr


def test_a_namespace_gets_a_limit_and_a_share(hourhand: Run, stub: Stub) -> None:
    done = hourhand("namespace", "set", "team-a", "--weight", "3", "--max-concurrency", "50", "-o", "json")
    assert stub.last.json == {"max_concurrency": 50, "weight": 3}
    assert json.loads(done.stdout)["weight"] == 3
    assert "weight" in hourhand("namespace", "get", "team-a").stdout


# --- explain ----------------------------------------------------------------------------------------------


def test_an_explanation_begins_with_the_answer_and_then_lists_the_gates(hourhand: Run, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("nightly"))

    lines = hourhand("run", "explain", run["run_id"]).stdout.splitlines()

    assert lines[0].split()[0] == "run"
    assert "waits for an executor that offers python:x" in lines[2]
    assert [line.split()[:2] for line in lines[-2:]] == [["passed", "due"], ["holds", "executor"]]


def test_an_explanation_can_be_had_as_json(hourhand: Run, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("nightly"))
    told = json.loads(hourhand("run", "explain", run["run_id"], "-o", "json").stdout)
    assert [gate["passed"] for gate in told["gates"]] == [True, False]


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourhand.cli.watching.EXPLAIN_AFTER_SECONDS", 0.0)


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("more", [[], ["--follow"]])
def test_waiting_for_a_run_that_nobody_takes_says_why(hourhand: Run, stub: Stub, more: list[str]) -> None:
    stub.add_job("nightly")
    stub.patience_asked = 3

    done = hourhand("job", "run", "nightly", "--wait", *more)

    assert done.exit_code == 0
    assert "waits for an executor that offers python:x (start one)" in done.stderr


def test_waiting_for_a_run_that_is_taken_at_once_explains_nothing(hourhand: Run, stub: Stub) -> None:
    stub.add_job("nightly")
    assert "waits for" not in hourhand("job", "run", "nightly", "--wait").stderr
    assert not any(seen.path.endswith("/explain") for seen in stub.seen)


def test_draining_the_only_scheduler_says_that_it_keeps_its_shards(hourhand: Run, stub: Stub) -> None:
    stub.add_node(7, "berlin", role="scheduler", shards=1024)

    done = hourhand("node", "drain", "berlin", "--wait")
    assert done.exit_code == 1
    assert "keeps 1024 shards, because no other scheduler is there to take them; it is draining" in done.stderr

    stub.add_node(8, "paris", role="scheduler")
    stub.nodes[7]["state"] = "draining"
    stub.nodes[7]["shards"] = 0
    assert "has nothing left; it is drained" in hourhand("node", "drain", "berlin", "--wait").stderr
