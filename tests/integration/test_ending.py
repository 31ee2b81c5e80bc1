"""How runs end, and how they are begun again: retries by choice, snoozes, deadlines, losses, repetitions, cancels."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from crew import Executor, NotedBus, Scheduler, SetClock, the_run
from sample_jobs import NAMESPACE, START, at, claim, due_job, every, execute, insert, new_job, rows, succeeded

from hourhand.model.errors import Conflict, NotFound
from hourhand.model.ids import scheduled_run_id
from hourhand.model.outcome import Failed, Outcome, Snoozed, Succeeded
from hourhand.model.policy import Policy
from hourhand.model.retry import RetryPolicy
from hourhand.model.run import Claim
from hourhand.model.settle import LOSSES_WINDOW
from hourhand.model.states import JobState, Reason, RunState
from hourhand.operations.requests import Caller, CancelRunsRequest, RetryRunRequest, RetryRunsRequest, RunFilter
from hourhand.operations.runs import RunOperations
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.job_kind import Task
from hourhand.ports.stores import Finish
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store

OVER = -60.0
"""A lease that has run out."""
CALLER = Caller("ada", NAMESPACE, "default")


async def for_ever(task: Task) -> Outcome:
    await asyncio.Event().wait()
    return Succeeded()


async def begun(executor: Executor) -> None:
    async with asyncio.timeout(5):
        while not executor.kind.active:
            await executor.turn()


async def test_however_many_end_at_once_a_write_is_asked_for_once_and_again_for_what_ends_after_it(
    store: Store,
) -> None:
    async def at_once(task: Task) -> Outcome:
        return Succeeded()

    executor = await Executor(store, at_once, clock=SetClock(at(0))).join()
    asked, heard = 0, asyncio.Event()

    def wake() -> None:
        nonlocal asked
        asked += 1
        heard.set()

    executor.recorder.wake = wake
    for ended in (50, 51):
        await insert(store, *(due_job(at(-1)) for _ in range(50 if ended == 50 else 1)))
        await executor.receiver.learn_lanes()
        await executor.receiver.run_once()
        async with asyncio.timeout(5):
            await heard.wait()
        assert asked == 1
        await executor.recorder.run_once()
        assert len(await rows(store, "runs")) == ended
        asked = 0
        heard.clear()


# --- retries by choice, snoozes ---------------------------------------------------------------------------


async def test_only_failures_that_the_job_names_are_tried_again(store: Store) -> None:
    async def failing(task: Task) -> Outcome:
        code = 3 if task.attempt == 1 else 4
        return Failed(Reason.EXIT_CODE, f"exited with code {code}", tags=(f"exit:{code}",))

    executor = await Executor(store, failing).join()
    retry = RetryPolicy(5, delays_seconds=(0.001,), on=("exit:3",))
    await insert(store, due_job(executor.clock.now(), retry=retry))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["attempt"], row["error"]) == (RunState.FAILED, 2, "exited with code 4")


async def test_a_snooze_uses_up_no_retry_and_is_kept_as_an_attempt_that_was_no_failure(store: Store) -> None:
    async def sleepy(task: Task) -> Outcome:
        return Snoozed(0.001, "not yet") if task.attempt < 4 else Succeeded({"attempt": task.attempt})

    executor = await Executor(store, sleepy).join()
    await insert(store, due_job(executor.clock.now(), retry=RetryPolicy(0)))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["attempt"]) == (RunState.SUCCEEDED, 4)
    attempts = await store.runs.list_attempts(row["run_id"])
    assert [(one.state, one.reason, one.error) for one in attempts] == [("skipped", "snoozed", "not yet")] * 3


# --- deadlines --------------------------------------------------------------------------------------------


async def test_an_attempt_is_ended_by_the_deadline_of_its_run_whatever_its_timeout(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    policy = Policy(deadline_seconds=0.05)
    await insert(store, due_job(executor.clock.now(), timeout_seconds=60.0, policy=policy))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"], row["attempt"]) == (RunState.TIMED_OUT, "deadline", 1)
    assert row["ended_at"] - row["scheduled_for"] >= timedelta(seconds=0.05)
    assert executor.kind.active == 0


async def test_a_retry_that_would_come_after_the_deadline_is_not_waited_for(store: Store) -> None:
    async def failing(task: Task) -> Outcome:
        return Failed(Reason.CONNECTION, "nobody there")

    executor = await Executor(store, failing).join()
    retry = RetryPolicy(5, delays_seconds=(0.001, 3600.0))
    policy = Policy(deadline_seconds=600)
    await insert(store, due_job(executor.clock.now(), retry=retry, policy=policy))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"], row["attempt"]) == (RunState.TIMED_OUT, "deadline", 2)
    assert row["error"].endswith("nobody there")


async def test_a_run_whose_deadline_has_passed_when_it_is_taken_is_not_begun(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    now = executor.clock.now()
    await insert(store, due_job(now - timedelta(seconds=60), policy=Policy(deadline_seconds=30)))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"]) == (RunState.TIMED_OUT, "deadline")
    assert executor.kind.most_active == 0


# --- at most once -----------------------------------------------------------------------------------------

ONCE = Policy(at_most_once=True)


async def test_what_runs_at_most_once_is_not_tried_again_after_a_failure(store: Store) -> None:
    calls: list[UUID] = []

    async def failing(task: Task) -> Outcome:
        calls.append(task.run_id)
        return Failed(Reason.EXIT_CODE, "1")

    executor = await Executor(store, failing).join()
    await insert(store, due_job(executor.clock.now(), retry=RetryPolicy(3), policy=ONCE))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], len(calls)) == (RunState.FAILED, 1)


async def test_the_start_of_what_runs_at_most_once_is_written_before_anything_of_it_happens(store: Store) -> None:
    seen: list[RunState] = []

    async def looking(task: Task) -> Outcome:
        seen.append((await the_run(store, task.run_id)).state)
        return Succeeded()

    executor = await Executor(store, looking).join()
    await insert(store, due_job(executor.clock.now(), policy=ONCE))
    await executor.drain()
    assert seen == [RunState.RUNNING]


async def test_what_runs_at_most_once_is_lost_when_its_executor_stops_in_the_middle(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    await insert(store, due_job(executor.clock.now(), policy=ONCE))
    await begun(executor)
    executor.attempts.stop_all()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"]) == (RunState.LOST, "shutdown")


async def test_what_runs_at_most_once_is_given_back_when_it_was_not_begun(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    await insert(store, due_job(executor.clock.now(), policy=ONCE))
    [one] = await claim(store, executor.membership.node_id, executor.clock.now())
    executor.capacity.take(executor.kind.slot_class_of("number"), 1)
    executor.attempts.start(one)
    executor.attempts.stop_all()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert (await the_run(store, one.run_id)).state is RunState.QUEUED
    assert executor.kind.most_active == 0


async def test_what_runs_at_most_once_is_lost_with_its_executor(store: Store) -> None:
    leader = await a_leader(store)
    executor = await store.nodes.register_node("executor", "dead", OVER, {})
    await insert(store, due_job(policy=ONCE), due_job())
    held = await claim(store, executor)
    await leader.leadership.run_once()
    states = {row["run_id"]: row["reason"] for row in await rows(store, "runs") if row["state"] == RunState.LOST}
    once = [one.run_id for one in held if one.at_most_once]
    assert states == {once[0]: "executor_lost"}
    assert len(await rows(store, "live_runs")) == 1, "the ordinary one goes back"


# --- losses -----------------------------------------------------------------------------------------------


async def a_leader(store: Store, clock: SetClock | None = None) -> Scheduler:
    leader = Scheduler(store, clock or SetClock())
    await leader.join("leader")
    await leader.leadership.run_once()
    return leader


async def lose(store: Store, leader: Scheduler, clock: SetClock) -> Claim:
    executor = await store.nodes.register_node("executor", "dead", OVER, {})
    [held] = await claim(store, executor, clock.time)
    await leader.leadership.run_once()
    return held


async def test_losses_longer_ago_than_three_days_are_forgotten(store: Store) -> None:
    clock = SetClock()
    leader = await a_leader(store, clock)
    await insert(store, due_job())
    for hours in (0, 40, 80, 120, 160, 200):
        clock.time = START + timedelta(hours=hours)
        held = await lose(store, leader, clock)
    assert (await the_run(store, held.run_id)).state is RunState.QUEUED
    clock.time += timedelta(hours=1)
    await lose(store, leader, clock)
    run = await the_run(store, held.run_id)
    assert (run.state, run.reason, run.attempt) == (RunState.FAILED, "poison", 7)
    assert timedelta(hours=72) == LOSSES_WINDOW


async def test_a_run_in_quarantine_is_found_by_its_reason_and_released_by_a_retry(store: Store) -> None:
    clock = SetClock()
    leader = await a_leader(store, clock)
    job = due_job()
    await insert(store, job)
    for _ in range(3):
        held = await lose(store, leader, clock)
    verbs = operations(store, clock)
    page = await verbs.list(CALLER, RunFilter(states=[RunState.FAILED], reasons=["poison"]), None, 10)
    assert [run.run_id for run in page.runs] == [held.run_id]

    new = await verbs.retry(CALLER, held.run_id, RetryRunRequest(note="the memory leak is fixed"))
    [released] = await claim(store, 5, clock.time)
    assert (released.run_id, released.losses, released.scheduled_for) == (new, 0, START)
    await store.live_runs.finish_runs([succeeded(released)])
    assert (await the_run(store, held.run_id)).state is RunState.FAILED, "its history stays"


# --- running finished runs again --------------------------------------------------------------------------


def operations(store: Store, clock: SetClock | None = None, bus: NotedBus | None = None) -> RunOperations:
    clock = clock or SetClock(at(1000))
    heard = cast("EventBus", bus or NotedBus())
    return RunOperations(store.runs, store.jobs, clock, IdSource(3), heard)


async def failed(store: Store, count: int, reason: str = "exit_code") -> list[UUID]:
    await insert(store, *(due_job(at(n / 100)) for n in range(count)))
    held = await claim(store, 1, at(500), limit=count)
    ends = [Finish(one.run_id, one.fence, RunState.FAILED, at(0), at(1), reason, "why") for one in held]
    await store.live_runs.finish_runs(ends)
    return sorted((one.run_id for one in held), reverse=True)


async def test_asking_twice_for_many_retries_makes_each_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourhand.operations.runs.BATCH_MAX", 7)
    olds = await failed(store, 30)
    bus = NotedBus()
    verbs = operations(store, bus=bus)
    some = await verbs.retry_many(CALLER, RetryRunsRequest(status=["failed"], limit=20, note="again"))
    assert (len(some.run_ids), some.more) == (20, True)
    rest = await verbs.retry_many(CALLER, RetryRunsRequest(status=["failed"], limit=20))
    assert (len(rest.run_ids), rest.more) == (10, False)
    none = await verbs.retry_many(CALLER, RetryRunsRequest(status=["failed"]))
    assert none.run_ids == []
    assert bus.said == [Topic.READY, Topic.READY]
    asked = await rows(store, "run_requests")
    assert sorted((row["retry_of"] for row in asked), reverse=True) == olds
    notes = [row["note"] for row in sorted(asked, key=lambda row: row["retry_of"], reverse=True)]
    assert notes == ["again"] * 20 + [None] * 10, "the newest first"


async def test_a_live_run_and_a_run_of_a_cancelled_job_cannot_be_run_again(store: Store) -> None:
    verbs = operations(store)
    job = due_job()
    await insert(store, job)
    run_id = scheduled_run_id(START, job.job_id)
    with pytest.raises(Conflict, match="only finished runs") as refused:
        await verbs.retry(CALLER, run_id, RetryRunRequest())
    assert refused.value.code == "run-not-final"
    await store.jobs.set_status(NAMESPACE, job.job_id, JobState.CANCELLED, None, None, at(1))
    with pytest.raises(Conflict) as refused:
        await verbs.retry(CALLER, run_id, RetryRunRequest())
    assert refused.value.code == "job-cancelled"
    with pytest.raises(NotFound):
        await verbs.retry(CALLER, UUID(int=1), RetryRunRequest())
    with pytest.raises(NotFound):
        await verbs.retry_many(CALLER, RetryRunsRequest(job_id=str(UUID(int=1))))


async def test_a_run_is_run_again_once_unless_somebody_insists(store: Store) -> None:
    verbs = operations(store)
    [old] = await failed(store, 1)
    first = await verbs.retry(CALLER, old, RetryRunRequest())
    with pytest.raises(Conflict, match=str(first)) as refused:
        await verbs.retry(CALLER, old, RetryRunRequest())
    assert refused.value.code == "run-already-retried"
    second = await verbs.retry(CALLER, old, RetryRunRequest(again=True))
    assert await verbs.retries(CALLER, old) == [first, second]


async def test_named_runs_are_run_again_in_one_go(store: Store) -> None:
    verbs = operations(store)
    olds = await failed(store, 3)
    done = await verbs.retry_many(CALLER, RetryRunsRequest(run_ids=[str(olds[0]), str(olds[2]), str(UUID(int=9))]))
    assert sorted(row["retry_of"] for row in await rows(store, "run_requests")) == sorted([olds[0], olds[2]])
    assert len(done.run_ids) == 2


async def test_retries_of_a_job_that_does_not_overlap_run_one_after_the_other(store: Store) -> None:
    active: set[UUID] = set()
    most = 0

    async def alone(task: Task) -> Outcome:
        nonlocal most
        active.add(task.run_id)
        most = max(most, len(active))
        await asyncio.sleep(0.01)
        active.discard(task.run_id)
        return Succeeded()

    executor = await Executor(store, alone).join()
    clock = executor.clock
    now = clock.now()
    dues = [now - timedelta(seconds=seconds) for seconds in (40, 30, 20)]
    job = new_job(every(10, dues[0]), fires=dues, next_due=now + timedelta(hours=1))
    await insert(store, job)
    for due in dues:
        [held] = await claim(store, 99, due)
        await store.live_runs.finish_runs([Finish(held.run_id, held.fence, RunState.FAILED, due, due, "exit_code", "")])
    scheduler = await Scheduler(store, cast("Any", clock)).join("alone")
    verbs = RunOperations(store.runs, store.jobs, clock, IdSource(3), cast("EventBus", NotedBus()))
    done = await verbs.retry_many(CALLER, RetryRunsRequest(job_id=str(job.job_id)))
    assert len(done.run_ids) == 3
    await run_turns(store, scheduler, executor)
    repeated = [row for row in await rows(store, "runs") if row["run_id"] in done.run_ids]
    assert [row["state"] for row in repeated] == [RunState.SUCCEEDED] * 3
    assert most == 1


async def run_turns(store: Store, scheduler: Scheduler, executor: Executor) -> None:
    """Judge and executor by turns until nothing is live."""
    from hourhand.scheduler.judge import Judge

    await scheduler.leadership.run_once()
    judge = Judge(store.turns, lambda: scheduler.node_id, executor.clock, cast("EventBus", NotedBus()))
    async with asyncio.timeout(30):
        while await rows(store, "live_runs"):
            await judge.run_once()
            await executor.turn()


# --- cancels ----------------------------------------------------------------------------------------------


async def test_many_runs_are_cancelled_at_once_waiting_and_running_ones(store: Store) -> None:
    executor = await Executor(store, for_ever, slots=3).join()
    bus = NotedBus()
    verbs = RunOperations(store.runs, store.jobs, executor.clock, IdSource(3), cast("EventBus", bus))
    await insert(store, *(due_job(executor.clock.now()) for _ in range(10)))
    async with asyncio.timeout(5):
        while executor.kind.active < 3:
            await executor.turn()
    done = await verbs.cancel_many(CALLER, CancelRunsRequest(status=["queued", "claimed", "running"]))
    assert (len(done.ended), len(done.asked), done.more) == (7, 3, False)
    assert bus.said == [Topic.CANCEL]
    await executor.stop_cancelled()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert {row["state"] for row in await rows(store, "runs")} == {RunState.CANCELLED}
    assert await rows(store, "live_runs") == []


async def test_a_success_that_races_with_a_cancel_is_recorded_only_if_the_cancel_was_refused(store: Store) -> None:
    verbs = operations(store)
    await insert(store, *(due_job(at(n / 100)) for n in range(40)))
    held = await claim(store, 1, at(500), limit=40)

    async def cancel(run_id: UUID) -> tuple[UUID, bool]:
        try:
            await verbs.cancel(CALLER, run_id)
        except Conflict:
            return run_id, False
        return run_id, True

    answers = dict(
        (
            await asyncio.gather(
                *(cancel(one.run_id) for one in held),
                *(store.live_runs.finish_runs([succeeded(one)]) for one in held),
            )
        )[: len(held)]  # type: ignore[arg-type]
    )
    states = {row["run_id"]: row["state"] for row in await rows(store, "runs")}
    for run_id, acknowledged in answers.items():
        if acknowledged:  # it may also still be on its way: then only cancelled can follow
            assert states.get(run_id, RunState.CANCELLED) == RunState.CANCELLED
        else:
            assert states[run_id] == RunState.SUCCEEDED


async def test_a_snooze_or_a_retry_does_not_bring_back_a_run_that_is_being_cancelled(store: Store) -> None:
    for outcome in (Snoozed(0.0), Failed(Reason.EXIT_CODE, "1")):
        executor = await Executor(store, for_ever).join()
        await insert(store, due_job())
        [one] = await claim(store, executor.membership.node_id)
        await store.runs.cancel_runs(NAMESPACE, [one.run_id], "cancelled", at(1))
        executor.recorder.ended(one, at(0), at(1), outcome)
        await executor.recorder.run_once()
        assert (await the_run(store, one.run_id)).state is RunState.CANCELLED


async def test_a_retried_run_counts_its_deadline_from_when_it_was_asked_for(store: Store) -> None:
    async def failing(task: Task) -> Outcome:
        return Failed(Reason.EXIT_CODE, "1") if task.attempt == 1 else Succeeded()

    executor = await Executor(store, failing).join()
    clock = executor.clock
    policy = Policy(deadline_seconds=3600)
    await insert(store, due_job(clock.now() - timedelta(days=1), policy=policy, retry=RetryPolicy(1)))
    await execute(store, "UPDATE hourhand.jobs SET retry = '{\"delays\": [0.001]}'")
    await executor.drain()
    [row] = await rows(store, "runs")
    assert row["reason"] == "deadline"
    verbs = RunOperations(store.runs, store.jobs, clock, IdSource(3), cast("EventBus", NotedBus()))
    new = await verbs.retry(CALLER, row["run_id"], RetryRunRequest())
    await executor.drain()
    run = await the_run(store, new)
    assert (run.state, run.attempt, run.scheduled_for) == (RunState.SUCCEEDED, 2, row["scheduled_for"])
    assert isinstance(run.ended_at, datetime)
