"""Why a run waits for an executor: what it asks for, and who comes near."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hourhand.model.demands import Demands
from hourhand.model.explain import Explanation, GateName, explain
from hourhand.model.node_state import Amount, NodeFacts, NodeState, Slots
from hourhand.model.parts import Part
from hourhand.model.snapshot import Executor, Holder, PartPlace, Snapshot
from hourhand.model.states import RunState

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)


def executor(
    name: str = "e1", *labels: str, state: NodeState = NodeState.WORKING, used: int = 0, **said: Any
) -> Executor:
    facts = {"queues": ("default",), "offers": {"command": "process"}, "slots": {"process": Slots(used, 4)}} | said
    return Executor(name, state, NodeFacts(labels=labels, **facts), NOW + timedelta(seconds=9))


def asking(*labels: str, executors: list[Executor]) -> Explanation:
    snapshot = Snapshot(
        now=NOW,
        run_id=UUID(int=9),
        job_id=UUID(int=2),
        job_name="train",
        namespace="team-a",
        state=RunState.QUEUED,
        scheduled_for=NOW,
        ready_at=NOW,
        queue="default",
        needs="command",
    )
    return explain(replace(snapshot, demands=Demands(labels), executors=executors))


def of_gate(explanation: Explanation, gate: GateName) -> str:
    [passage] = [passage for passage in explanation.gates if passage.gate is gate]
    return passage.detail


def held(explanation: Explanation) -> list[GateName]:
    return [passage.gate for passage in explanation.gates if not passage.passed]


def test_a_run_whose_label_nobody_has_says_so_and_how_to_help_it() -> None:
    explanation = asking("gpu", executors=[executor("e1"), executor("e2", "zone=eu")])
    assert explanation.summary == "needs label gpu: no live executor"
    assert of_gate(explanation, GateName.LABEL) == "needs label gpu: no live executor of this queue has it"
    assert explanation.advice == "start one: hourhand executor --database URL --label gpu"
    assert held(explanation) == [GateName.LABEL]
    assert GateName.SLOT not in [passage.gate for passage in explanation.gates], "the slots of others are of no use"


def test_who_lacks_few_of_several_labels_is_named() -> None:
    explanation = asking("gpu", "zone=eu", executors=[executor("e1"), executor("e2", "gpu")])
    assert of_gate(explanation, GateName.LABEL) == (
        "needs labels gpu and zone=eu: no live executor of this queue has all of them; e2 lacks zone=eu"
    )


def test_a_label_that_is_written_alike_is_named() -> None:
    explanation = asking("gpu", executors=[executor("e1", "gpus")])
    assert of_gate(explanation, GateName.LABEL).endswith("has it; nearest: gpus")


def test_an_executor_with_the_label_that_does_not_take_such_runs_is_named() -> None:
    elsewhere = executor("e2", "gpu", queues=("other",))
    explanation = asking("gpu", executors=[executor("e1"), elsewhere])
    assert of_gate(explanation, GateName.LABEL).endswith("has it; e2 does, but does not serve queue default")
    other_kind = executor("e3", "gpu", offers={"http": "inline"})
    explanation = asking("gpu", executors=[executor("e1"), other_kind])
    assert of_gate(explanation, GateName.LABEL).endswith("has it; e3 does, but does not offer command")


def test_an_executor_with_the_label_that_is_full_is_what_the_run_waits_for() -> None:
    explanation = asking("gpu", executors=[executor("e1"), executor("e2", "gpu", used=4)])
    assert of_gate(explanation, GateName.LABEL) == "needs label gpu: e2 has it"
    assert explanation.summary == "waits for a free slot: the executor that offers it is full: 4 of 4 slots"
    assert held(explanation) == [GateName.SLOT]


def test_an_executor_with_the_label_that_takes_nothing_is_what_the_run_waits_for() -> None:
    for state in (NodeState.DRAINING, NodeState.CORDONED):
        explanation = asking("gpu", executors=[executor("e1"), executor("e2", "gpu", state=state)])
        assert explanation.summary == f"waits for an executor: the executor that offers it is {state}"
        assert explanation.advice == "hourhand node resume e2"


def test_a_run_that_finds_its_label_waits_for_nothing() -> None:
    explanation = asking("zone", executors=[executor("e1", "zone=eu"), executor("e2", "zone=us")])
    assert held(explanation) == []
    assert of_gate(explanation, GateName.LABEL) == "needs label zone: 2 executors have it"
    assert of_gate(explanation, GateName.SLOT) == "8 of 8 slots are free on 2 executors"


def test_without_executors_it_is_said_once() -> None:
    assert held(asking("gpu", executors=[])) == [GateName.EXECUTOR]


def test_a_run_without_labels_has_no_such_gate() -> None:
    assert GateName.LABEL not in [passage.gate for passage in asking(executors=[executor("e1", "gpu")]).gates]


# --- what a run takes -------------------------------------------------------------------------------------


def taking(demands: Demands, *executors: Executor, holders: dict[str, Holder] | None = None) -> Explanation:
    snapshot = Snapshot(
        now=NOW,
        run_id=UUID(int=9),
        job_id=UUID(int=2),
        job_name="train",
        namespace="team-a",
        state=RunState.QUEUED,
        scheduled_for=NOW,
        ready_at=NOW,
        queue="default",
        needs="command",
        demands=demands,
        executors=executors,
        holders=holders or {},
    )
    return explain(snapshot)


def with_memory(name: str, in_use: float, total: float, *by: tuple[str, float], **said: Any) -> Executor:
    return executor(name, resources={"memory": Amount(in_use, total, by)}, **said)


def test_a_run_that_is_too_large_for_everybody_says_what_the_largest_has() -> None:
    explanation = taking(Demands(memory=64 * 10**9), with_memory("e1", 0, 4e9), with_memory("e2", 0, 23e9))
    assert explanation.summary == "needs 64 GB of memory: the largest executor has 23 GB"
    assert held(explanation) == [GateName.RESOURCE]
    assert explanation.advice is not None


def test_a_run_that_waits_for_room_says_what_is_in_use_and_by_whom() -> None:
    mine, other = str(UUID(int=5)), str(UUID(int=6))
    holders = {mine: Holder(UUID(int=5), "nightly", NOW)}
    full = with_memory("e1", 3e9, 4e9, (mine, 2e9), (other, 1e9))
    explanation = taking(Demands(memory=2 * 10**9), full, with_memory("e2", 0, 1e9), holders=holders)
    in_use = f"memory: 3 GB of 4 GB in use on e1 by run {mine} (job nightly, 2 GB) and others"
    assert explanation.summary == f"waits for room: {in_use}"
    assert of_gate(explanation, GateName.RESOURCE) == f"takes 2 GB: {in_use}"
    assert other not in str(explanation), "runs of others are not named"
    assert held(explanation) == [GateName.RESOURCE]


def test_a_run_that_fits_somewhere_is_not_held_by_what_it_takes() -> None:
    explanation = taking(Demands(memory=2 * 10**9), with_memory("e1", 3e9, 4e9), with_memory("e2", 1e9, 4e9))
    assert of_gate(explanation, GateName.RESOURCE) == "takes 2 GB: e2 has room for it"
    assert held(explanation) == []


def test_only_slots_of_those_that_are_large_enough_count() -> None:
    explanation = taking(Demands(memory=2 * 10**9), with_memory("e1", 0, 1e9), with_memory("e2", 0, 4e9, used=4))
    assert explanation.summary == "waits for a free slot: the executor that offers it is full: 4 of 4 slots"


def test_places_that_it_takes_are_told_like_the_rest() -> None:
    explanation = taking(Demands(slots=3), executor("e1", used=2))
    assert explanation.summary == "waits for room: slots: 2 of 4 in use on e1"
    assert taking(Demands(slots=5), executor("e1")).summary == "needs 5 slots: the largest executor has 4 slots"


def test_a_run_that_takes_nothing_has_no_such_gate() -> None:
    explanation = asking("gpu", executors=[executor("e1", "gpu")])
    assert GateName.RESOURCE not in [passage.gate for passage in explanation.gates]


# --- parts ------------------------------------------------------------------------------------------------


def of_part(part: PartPlace, *executors: Executor) -> Explanation:
    snapshot = Snapshot(
        now=NOW,
        run_id=UUID(int=9),
        job_id=UUID(int=2),
        job_name="rotate",
        namespace="team-a",
        state=RunState.QUEUED,
        scheduled_for=NOW,
        ready_at=NOW,
        queue="default",
        needs="command",
        demands=Demands(part=True),
        executors=executors,
        part=part,
    )
    return explain(snapshot)


def test_a_part_says_whom_it_is_for() -> None:
    explanation = of_part(PartPlace(UUID(int=8), 1, 3, "e1"), executor("e1", used=4))
    assert of_gate(explanation, GateName.PARTS) == f"part 2 of 3 of run {UUID(int=8)}, for e1"
    assert explanation.summary == "waits for a free slot: the executor that offers it is full: 4 of 4 slots"


def test_a_part_that_has_no_executor_says_so() -> None:
    explanation = of_part(PartPlace(UUID(int=8), 2, 3, None), executor("e1"))
    assert explanation.summary == "waits for a further executor: each has a part already"


def test_a_run_with_parts_tells_how_far_they_are() -> None:
    def part(place: int, state: RunState) -> Part:
        return Part(UUID(int=place), place, 4, place, f"e{place}", False, state)

    states = (RunState.SUCCEEDED, RunState.LOST, RunState.RUNNING, RunState.QUEUED)
    snapshot = Snapshot(
        now=NOW,
        run_id=UUID(int=9),
        job_id=UUID(int=2),
        job_name="rotate",
        namespace="team-a",
        state=RunState.RUNNING,
        scheduled_for=NOW,
        ready_at=NOW,
        demands=Demands(fan=True),
        parts=[part(place, state) for place, state in enumerate(states)],
    )
    assert explain(snapshot).summary == "2 of 4 parts have ended, 1 of them without success; 1 wait for e3"
