"""What is known of a run at one moment, of its own namespace only."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
from sample_jobs import NAMESPACE, claim, due_job, every, execute, insert, new_job, returned, succeeded

from hourhand.model.explain import explain
from hourhand.model.ids import scheduled_run_id
from hourhand.model.node import Orders
from hourhand.model.node_state import NodeState
from hourhand.model.placement import Placement
from hourhand.model.policy import Policy, Rate
from hourhand.model.resources import Resources
from hourhand.model.snapshot import Snapshot
from hourhand.model.states import JobState, RunState
from hourhand.ports.operator_stores import LimitChange
from hourhand.ports.stores import Wish
from hourhand.wiring import Store

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = {
    "queues": ["default"],
    "offers": {"inline": ["number"], "process": ["command"]},
    "slots": {"inline": {"slots": 3, "used": 3}, "process": {"slots": 2, "used": 0}},
}


async def made(store: Store, after: float = 0, **fields: Any) -> UUID:
    """The run of a new job, due long ago."""
    due = LONG_AGO + timedelta(seconds=after)
    job = due_job(due, **fields)
    await insert(store, job)
    return scheduled_run_id(due, job.job_id)


async def look(store: Store, run_id: UUID) -> Snapshot:
    snapshot = await store.explain.snapshot_of_run(NAMESPACE, run_id)
    assert snapshot is not None
    return snapshot


async def take(store: Store, executor_id: int, limit: int = 100) -> list[Any]:
    return await claim(store, executor_id, LONG_AGO + timedelta(days=1), limit)


async def test_a_waiting_run_is_seen_with_its_job_queue_and_executors(store: Store) -> None:
    await store.nodes.register_node("scheduler", "s", 60, {})
    await store.nodes.register_node("executor", "e1", 60, FACTS, Orders.CORDON)
    gone = await store.nodes.register_node("executor", "e2", 60, FACTS)
    await store.nodes.end_node(gone)
    run_id = await made(store, name="nightly", priority=7)
    await store.queues.pause_queue(NAMESPACE, "default", "ada", "holiday")

    snapshot = await look(store, run_id)

    assert (snapshot.job_name, snapshot.namespace, snapshot.state) == ("nightly", "default", RunState.QUEUED)
    assert (snapshot.queue, snapshot.needs, snapshot.priority) == ("default", "number", 7)
    assert (snapshot.queue_paused_by, snapshot.queue_pause_reason) == ("ada", "holiday")
    assert snapshot.job_state is JobState.SCHEDULED
    [executor] = snapshot.executors
    assert (executor.name, executor.state) == ("e1", NodeState.CORDONED)
    assert executor.facts.slots_for("number").used == 3
    assert abs(snapshot.now - datetime.now(UTC)) < timedelta(minutes=1)


async def test_labels_are_seen_with_who_has_them_and_who_else_wants_their_slots(store: Store) -> None:
    gpu = Policy(placement=Placement(("gpu",)))
    await store.nodes.register_node("executor", "plain", 60, FACTS)
    run_id = await made(store, 9, policy=gpu)
    for place in range(3):
        await made(store, place)
    await made(store, 4, policy=gpu)

    snapshot = await look(store, run_id)

    assert (snapshot.needs, snapshot.demands.labels) == ("number", ("gpu",))
    assert explain(snapshot).summary == "needs label gpu: no live executor"
    assert snapshot.competition.ahead == 0, "nobody has slots for it"

    await store.nodes.register_node("executor", "strong", 60, {**FACTS, "labels": ["gpu"]})
    snapshot = await look(store, run_id)

    assert [(executor.name, executor.fits(snapshot)) for executor in snapshot.executors] == [
        ("plain", False), ("strong", True),
    ]  # fmt: skip
    assert snapshot.competition.ahead == 4, "the strong one takes plain runs too"
    assert explain(snapshot).summary == "waits for a free slot: the executor that offers it is full: 3 of 3 slots"
    assert (await look(store, await made(store, 5))).competition.ahead == 4, "one with labels competes with plain ones"


async def test_what_is_in_use_is_seen_with_the_runs_of_the_namespace_that_have_it(store: Store) -> None:
    executor_id = await store.nodes.register_node("executor", "e1", 60, FACTS)
    await made(store, 1, name="hog")
    [held] = await take(store, executor_id)
    by = [[str(held.run_id), 3e9], [str(UUID(int=7)), 1e9], ["no uuid", 1], "nothing"]
    facts = {**FACTS, "resources": {"memory": {"used": 4e9, "total": 5e9, "by": by}}}
    await store.nodes.renew_node(executor_id, 60, facts)
    run_id = await made(store, 2, policy=Policy(resources=Resources(memory=2 * 10**9)))

    snapshot = await look(store, run_id)

    assert snapshot.holders.keys() == {str(held.run_id)}
    assert explain(snapshot).summary == (
        f"waits for room: memory: 4 GB of 5 GB in use on e1 by run {held.run_id} (job hog, 3 GB) and others"
    )
    assert (await look(store, await made(store, 3))).holders == {}


async def test_a_run_of_another_namespace_and_one_that_never_was_are_not_seen(store: Store) -> None:
    run_id = await made(store)
    assert await store.explain.snapshot_of_run(NAMESPACE, uuid4()) is None
    await store.names.create_namespace("team-a")
    other = await store.names.find_namespace("team-a")
    assert other is not None
    assert await store.explain.snapshot_of_run(other, run_id) is None


async def test_a_limit_is_seen_with_its_holders_longest_first(store: Store) -> None:
    holders = [await made(store, place, name=f"holder {place}") for place in range(7)]
    waiting = await made(store, 9)
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=7))
    await take(store, 1)

    snapshot = await look(store, waiting)

    [gate] = snapshot.gates
    assert (gate.kind, gate.name, gate.capacity, gate.taken) == ("queue", "default", 7, 7)
    assert [holder.run_id for holder in gate.holders] == holders[:5]
    assert gate.holders[0].job_name == "holder 0"
    assert (snapshot.state, snapshot.waits_on) == (RunState.WAITING, gate.gate_id)
    assert "limit of queue default: 7 of 7 held by run" in explain(snapshot).gates[-2].detail


async def test_a_run_that_holds_a_place_sees_its_gates_once(store: Store) -> None:
    run_id = await made(store, policy=Policy(max_concurrency=3))
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=7))
    await store.nodes.register_node("executor", "e1", 60, FACTS)
    [held] = await take(store, 1)
    await store.live_runs.start_runs([(held.run_id, held.fence, LONG_AGO)])

    snapshot = await look(store, run_id)

    assert snapshot.state is RunState.RUNNING
    assert snapshot.executor is not None
    assert snapshot.executor.name == "e1"
    assert sorted((gate.kind, gate.taken) for gate in snapshot.gates) == [("job", 1), ("queue", 1)]


async def test_the_starts_that_a_rate_remembers_are_seen(store: Store) -> None:
    await made(store, 0)
    run_id = await made(store, 1)
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(rate=Rate(1, 3600.0)))
    heads = await store.live_runs.peek_ready([*await store.names.lanes()])
    await store.live_runs.claim_carefully(1, [Wish(head, 1, 10) for head in heads], datetime.now(UTC))

    snapshot = await look(store, run_id)

    [gate] = snapshot.gates
    assert gate.rate == Rate(1, 3600.0)
    assert sum(gate.starts.counts) == 1
    assert explain(snapshot).summary.startswith("waits for the rate limit of queue default: next start at")


async def test_earlier_runs_of_the_job_are_seen_by_the_one_that_waits_for_them(store: Store) -> None:
    job = new_job(every(60, LONG_AGO))
    dues = [LONG_AGO + timedelta(minutes=place) for place in range(3)]
    await insert(store, msgspec.structs.replace(job, fires=dues))
    first, second, third = [scheduled_run_id(due, job.job_id) for due in dues]
    await execute(store, "UPDATE hourhand.live_runs SET state = 1, waits_on = 0 WHERE run_id <> $1", first)

    snapshot = await look(store, second)

    assert [sibling.run_id for sibling in snapshot.siblings] == [first]
    assert explain(snapshot).summary == "waits for an earlier run of its job"
    assert [sibling.run_id for sibling in (await look(store, third)).siblings] == [first, second]


async def test_runs_that_are_taken_before_it_are_counted_in_its_namespace_and_others_by_weight(store: Store) -> None:
    await store.nodes.register_node("executor", "e1", 60, FACTS)
    await store.names.create_namespace("team-a")
    other = await store.names.find_namespace("team-a")
    assert other is not None
    await store.queues.change_namespace(other, 3, LimitChange())
    for after in (0, 1):
        await made(store, after)
    await made(store, 7, priority=9)
    await made(store, 8)
    await made(store, 0, priority=1)
    await made(store, 0, needs="command")
    foreign = due_job(LONG_AGO)
    await insert(store, msgspec.structs.replace(foreign, namespace_id=other))
    run_id = await made(store, 5)

    competition = (await look(store, run_id)).competition

    assert (competition.ahead, competition.weight, competition.weight_of_others) == (3, 1, 3)


async def test_a_run_between_two_attempts_knows_why_the_last_one_ended(store: Store) -> None:
    run_id = await made(store)
    [held] = await take(store, 1)
    later = datetime.now(UTC) + timedelta(minutes=5)
    await store.live_runs.requeue_runs([returned(held, later, failed=True)])

    snapshot = await look(store, run_id)

    assert (snapshot.attempt, snapshot.reason, snapshot.ready_at) == (1, "exit_code", later)
    assert explain(snapshot).summary.startswith("waits for its next attempt until")


async def test_a_finished_run_is_seen_with_its_end(store: Store) -> None:
    run_id = await made(store, name="nightly")
    [held] = await take(store, 1)
    finish = msgspec.structs.replace(succeeded(held), state=RunState.FAILED, reason="poison", error="gone")
    await store.live_runs.finish_runs([finish])

    snapshot = await look(store, run_id)

    assert (snapshot.state, snapshot.reason, snapshot.error) == (RunState.FAILED, "poison", "gone")
    assert snapshot.job_name == "nightly"
    assert "quarantine" in explain(snapshot).summary


async def test_the_line_of_a_limit_is_counted_by_priority_and_by_time(store: Store) -> None:
    await made(store, 0)
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=1))
    await take(store, 1)
    earlier, later = await made(store, 5), await made(store, 7)
    await made(store, 9)
    higher = await made(store, 8, priority=9)
    await take(store, 1)

    lines = {run_id: (await look(store, run_id)).gates[0].ahead for run_id in (higher, earlier, later)}

    assert lines == {higher: 0, earlier: 1, later: 2}


async def test_a_failed_run_knows_its_failures_and_what_its_job_says_of_retries(store: Store) -> None:
    run_id = await made(store)
    [first] = await take(store, 1)
    await store.live_runs.requeue_runs([returned(first, LONG_AGO, failed=True)])
    [second] = await take(store, 1)
    finish = msgspec.structs.replace(succeeded(second), state=RunState.FAILED, reason="exit_code", error="3")
    await store.live_runs.finish_runs([finish])

    snapshot = await look(store, run_id)

    assert snapshot.retry is not None
    assert (snapshot.failures, snapshot.retry.max_retries, snapshot.at_most_once) == (2, 3, False)
    await execute(store, "UPDATE hourhand.jobs SET version = version + 1 WHERE job_id = $1", snapshot.job_id)
    assert (await look(store, run_id)).retry is None
