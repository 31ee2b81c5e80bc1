"""The instrument itself: what it plans, what it hears, what it writes down, and that its defects still fit the code."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from tests.chaos.cluster import DEFAULT_LEASES, SHORT_LEASES
from tests.chaos.collector import Collector
from tests.chaos.database_recording import Change, GateHistory, RunHistory, node_name
from tests.chaos.defects import DEFECTS, PATCHES, Defect, patched_copy
from tests.chaos.nemesis import KINDS, plan
from tests.chaos.recording import read_tracebacks

WITNESS = Path(__file__).with_name("witness.py")


# --- the plan ---------------------------------------------------------------------------------------------


def test_one_seed_gives_one_plan_and_every_round_has_every_kind() -> None:
    rounds = 5
    planned = list(itertools.islice(plan(7, DEFAULT_LEASES), rounds * len(KINDS)))
    assert planned == list(itertools.islice(plan(7, DEFAULT_LEASES), rounds * len(KINDS)))
    assert planned != list(itertools.islice(plan(8, DEFAULT_LEASES), rounds * len(KINDS)))
    for begin in range(0, len(planned), len(KINDS)):
        assert sorted(one.kind for one in planned[begin : begin + len(KINDS)]) == sorted(KINDS)


def test_what_only_counts_alone_is_broken_first_so_that_a_short_run_measures_it_too() -> None:
    for seed in range(20):
        first, second = itertools.islice(plan(seed, SHORT_LEASES), 2)
        assert (first.kind, second.kind) == ("kill_executor", "kill_leader")


@pytest.mark.parametrize("leases", [DEFAULT_LEASES, SHORT_LEASES])
def test_pauses_straddle_the_leases(leases) -> None:
    planned = list(itertools.islice(plan(1, leases), 40 * len(KINDS)))
    for kind, lease in (("stop_executor", leases.executor_seconds), ("stop_leader", leases.scheduler_seconds)):
        lengths = [one.seconds for one in planned if one.kind == kind]
        assert min(lengths) < lease * 0.5
        assert any(lease * 0.5 < length < lease for length in lengths)
        assert max(lengths) > lease * 1.2


# --- the witness ------------------------------------------------------------------------------------------


def test_the_collector_keeps_every_line_of_a_whole_tree_and_stamps_it(tmp_path: Path) -> None:
    collector = Collector(tmp_path / "ears", tmp_path / "witness.jsonl", offset=1000.0)
    run_id = str(uuid4())
    environment = {"HOURHAND_RUN_ID": run_id, "HOURHAND_ATTEMPT": "2", "HOURHAND_FENCE_TOKEN": "41"}
    command = [sys.executable, "-I", "-S", str(WITNESS), str(collector.socket_path), "tree", "0.3", "0.1"]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    assert process.wait(20) == 0
    os.killpg(process.pid, 9)  # its child lives on for a while, as children do
    collector.stop()
    lines = [msgspec.json.decode(line) for line in (tmp_path / "witness.jsonl").read_bytes().splitlines()]
    leader = [line for line in lines if line["pid"] == process.pid]
    assert [line["phase"] for line in leader][:1] == ["start"]
    assert [line["phase"] for line in leader][-1:] == ["end"]
    assert [line["seq"] for line in leader] == list(range(len(leader)))
    assert {(line["run_id"], line["attempt"], line["fence"]) for line in lines} == {(run_id, 2, 41)}
    assert {line.get("who", "leader") for line in lines} == {"leader", "child", "grandchild"}
    assert all(0 <= line["at"] - 1000.0 - line["sent"] < 5 for line in lines), "stamped by the one clock"
    for pid in {line["pid"] for line in lines if line.get("who") == "grandchild"}:
        os.kill(pid, 9)


# --- what is written down ---------------------------------------------------------------------------------

RUN = {"run_id": "r", "job_id": "j", "scheduled_for": "2030-01-01T00:00:00+00:00", "cause": 1, "version": 1}


def change(order: int, table: str, op: str, old: dict | None = None, new: dict | None = None, xid: int = 1) -> Change:
    return Change(order, float(order), None, xid, "executor-1", table, op, old or {}, new or {})


def events_of(changes: list[Change]) -> list[tuple[str | None, str]]:
    runs = RunHistory()
    for one in changes:
        if (one.table, one.op) in {("runs", "insert"), ("live_runs", "delete")}:
            runs.look_ahead(one)
    return [(line.old, line.new) for one in changes for line in runs.steps(one)]


@pytest.mark.parametrize("history_first", [False, True])
def test_a_finish_is_one_transition_whichever_half_was_noted_first(history_first: bool) -> None:
    made = change(1, "live_runs", "insert", new={**RUN, "state": 0, "ready_at": RUN["scheduled_for"]})
    claimed = change(2, "live_runs", "update", {"run_id": "r", "state": 0}, {"run_id": "r", "state": 2, "fence": 5}, 2)
    halves = [
        change(3, "live_runs", "delete", old={"run_id": "r", "state": 2, "fence": 5}, xid=3),
        change(4, "runs", "insert", new={**RUN, "state": 10}, xid=3),
    ]
    ended = halves[::-1] if history_first else halves
    assert events_of([made, claimed, *ended]) == [(None, "queued"), ("queued", "claimed"), ("claimed", "succeeded")]


def test_a_live_row_that_leaves_nothing_behind_was_withdrawn() -> None:
    made = change(1, "live_runs", "insert", new={**RUN, "state": 0})
    gone = change(2, "live_runs", "delete", old={"run_id": "r", "state": 0}, xid=2)
    assert events_of([made, gone]) == [(None, "queued"), ("queued", "withdrawn")]


def test_a_change_that_leaves_the_state_alone_is_no_transition() -> None:
    made = change(1, "live_runs", "insert", new={**RUN, "state": 0})
    moved = change(2, "live_runs", "update", {"run_id": "r", "state": 0}, {"run_id": "r", "state": 0, "version": 2}, 2)
    assert events_of([made, moved]) == [(None, "queued")]


def test_a_claim_that_is_a_start_as_well_is_two_transitions() -> None:
    made = change(1, "live_runs", "insert", new={**RUN, "state": 0})
    begun = change(2, "live_runs", "update", {"run_id": "r", "state": 0}, {"run_id": "r", "state": 3, "fence": 5}, 2)
    assert events_of([made, begun]) == [(None, "queued"), ("queued", "claimed"), ("claimed", "running")]


def test_places_are_told_with_the_name_and_the_capacity_of_their_gate() -> None:
    gates = GateHistory()
    assert (
        gates.event(change(1, "gates", "insert", new={"gate_id": 3, "kind": "key", "name": "a", "capacity": 2})) is None
    )
    taken = gates.event(change(2, "gate_slots", "insert", new={"gate_id": 3, "run_id": "r"}))
    freed = gates.event(change(3, "gate_slots", "delete", old={"gate_id": 3, "run_id": "r"}))
    assert taken is not None
    assert freed is not None
    assert (taken.gate, taken.capacity, taken.taken, freed.taken) == ("key:a", 2, True, False)


def test_a_node_has_one_name_in_all_logs() -> None:
    assert node_name("scheduler-1-scheduler-4711") == node_name("scheduler-1.3") == "scheduler-1"


def test_tracebacks_of_nodes_are_found(tmp_path: Path) -> None:
    (tmp_path / "api-1.stderr").write_text(
        'fine\nTraceback (most recent call last):\n  File "x", line 1, in f\nValueError: no\nfine again\n'
    )
    assert read_tracebacks(tmp_path) == ["api-1: ValueError: no"]


# --- defects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_patch_of_a_deliberate_defect_still_fits(defect: Defect, tmp_path: Path) -> None:
    patched = patched_copy(defect, tmp_path)
    for path in patched.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


def test_every_patch_belongs_to_a_defect() -> None:
    names = Counter(defect.name for defect in DEFECTS)
    assert set(names.values()) == {1}
    assert {path.stem for path in PATCHES.glob("*.patch")} == set(names)
