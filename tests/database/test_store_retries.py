"""Finished runs that are run again: one or many, once however often it is asked for."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sample_jobs import NAMESPACE, START, at, claim, due_job, every, execute, ids, insert, new_job, rows, succeeded

from hourhand.model.ids import scheduled_run_id
from hourhand.model.policy import Policy
from hourhand.model.run import Claim, Run
from hourhand.model.states import FINAL_STATES, Cause, JobState, RunState
from hourhand.ports.stores import Finish, NewJob
from hourhand.wiring import Store

LATER = at(1000)


def ended(claim: Claim, state: RunState = RunState.FAILED, reason: str | None = "exit_code") -> Finish:
    return Finish(claim.run_id, claim.fence, state, at(0), at(1), reason, "why")


async def failed_run(store: Store, job: NewJob | None = None, reason: str = "exit_code") -> UUID:
    await insert(store, job or due_job())
    [held] = await claim(store, 1, LATER)
    await store.live_runs.finish_runs([ended(held, reason=reason)])
    return held.run_id


async def end_of(store: Store, run_id: UUID, state: RunState) -> None:
    """Brings a waiting run to its end."""
    [held] = [held for held in await claim(store, 1, at(9999)) if held.run_id == run_id]
    await store.live_runs.finish_runs([ended(held, state) if state is not RunState.SUCCEEDED else succeeded(held)])


async def retried(store: Store, *run_ids: UUID, again: bool = False, now: datetime = LATER) -> list[UUID]:
    new_ids = {run_id: ids.new_id(now) for run_id in run_ids}
    return await store.runs.retry_runs(NAMESPACE, new_ids, list(run_ids), "ada", "once more", again, now)


async def picked(
    store: Store,
    job_id: UUID | None = None,
    states: Sequence[RunState] = FINAL_STATES,
    reasons: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: UUID | None = None,
    again: bool = False,
    limit: int = 100,
) -> list[UUID]:
    return await store.runs.pick_retries(NAMESPACE, job_id, states, reasons, since, until, before, again, limit)


async def read(store: Store, run_id: UUID) -> Run:
    run = await store.runs.get_run(NAMESPACE, run_id)
    assert run is not None
    return run


async def test_a_retry_stands_for_the_same_time_and_says_what_it_repeats(store: Store) -> None:
    old = await failed_run(store)
    [new] = await retried(store, old)
    run = await read(store, new)
    assert (run.state, run.cause, run.scheduled_for, run.ready_at) == (RunState.QUEUED, Cause.MANUAL, START, LATER)
    assert (run.retry_of, run.requested_by, run.note, run.attempt) == (old, "ada", "once more", 0)
    assert await store.runs.list_retries(old) == [new]
    assert (await read(store, old)).state is RunState.FAILED, "a final state never changes"
    [found] = await store.runs.list_runs(NAMESPACE, None, [RunState.QUEUED], None, 10)
    assert found.retry_of == old


async def test_a_retry_has_the_payload_that_the_run_had_of_its_own(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), next_due=at(9000)))
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    first = ids.new_id(START)
    await store.runs.insert_manual_run(first, job, NAMESPACE, "ada", None, {"n": 7}, START)
    await end_of(store, first, RunState.FAILED)
    [second] = await retried(store, first)
    await execute(store, "UPDATE hourhand.live_runs SET state = 0, waits_on = NULL")
    [held] = await claim(store, 1, LATER)
    assert (held.run_id, held.payload) == (second, {"n": 7})


async def test_a_retry_without_a_payload_of_its_own_has_that_of_the_job_as_it_is_now(store: Store) -> None:
    old = await failed_run(store)
    await execute(store, """UPDATE hourhand.jobs SET payload = '{"n": 2}', version = 5, priority = 9""")
    await retried(store, old)
    [held] = await claim(store, 1, LATER)
    assert held.payload == {"n": 2}
    [row] = await rows(store, "live_runs")
    assert (row["version"], row["priority"]) == (5, 9)


async def test_a_run_that_is_not_finished_or_whose_job_is_cancelled_is_not_repeated(store: Store) -> None:
    job = due_job()
    old = await failed_run(store, job)
    await insert(store, due_job())
    [live] = await rows(store, "live_runs")
    assert await retried(store, live["run_id"]) == []
    await store.jobs.set_status(NAMESPACE, job.job_id, JobState.CANCELLED, None, None, LATER)
    assert await retried(store, old) == []
    assert await rows(store, "run_requests") == []


@pytest.mark.parametrize(
    ("ends_as", "possible"),
    [(None, False), (RunState.SUCCEEDED, False), (RunState.FAILED, True), (RunState.CANCELLED, True)],
)
async def test_a_run_is_not_repeated_while_its_repetition_waits_or_after_it_succeeded(
    store: Store, ends_as: RunState | None, possible: bool
) -> None:
    old = await failed_run(store)
    [first] = await retried(store, old)
    if ends_as is not None:
        await end_of(store, first, ends_as)
    assert (old in await picked(store)) is possible
    assert len(await retried(store, old)) == int(possible)


async def test_whoever_insists_gets_another_repetition(store: Store) -> None:
    old = await failed_run(store)
    await retried(store, old)
    assert await picked(store, again=True) == [old]
    assert len(await retried(store, old, again=True)) == 1
    assert len(await store.runs.list_retries(old)) == 2


async def test_of_a_run_and_its_failed_repetitions_only_the_last_is_repeated(store: Store) -> None:
    first = await failed_run(store)
    [second] = await retried(store, first, now=at(1001))
    await end_of(store, second, RunState.FAILED)
    [third] = await retried(store, second, now=at(1002))
    await end_of(store, third, RunState.FAILED)

    assert await picked(store) == [third, second, first]
    [fourth] = await retried(store, third, second, first, now=at(1003))
    assert (await read(store, fourth)).retry_of == third

    assert await picked(store) == [], "the fourth stands for all of them"
    await end_of(store, fourth, RunState.SUCCEEDED)
    assert await picked(store, states=[RunState.FAILED]) == []


async def test_two_who_ask_at_once_make_one_repetition(store: Store) -> None:
    olds = [await failed_run(store, due_job(at(n))) for n in range(5)]
    made = await asyncio.gather(*(retried(store, *olds) for _ in range(6)))
    assert sum(len(each) for each in made) == 5
    assert sorted(row["retry_of"] for row in await rows(store, "run_requests")) == sorted(olds)


async def test_many_are_repeated_by_one_statement(store: Store) -> None:
    await insert(store, *(due_job(at(n / 1000)) for n in range(500)))
    held = await claim(store, 1, at(10), limit=500)
    await store.live_runs.finish_runs([ended(one) for one in held])
    chosen = await picked(store, limit=1000)
    assert len(chosen) == 500
    assert len(await retried(store, *chosen)) == 500
    assert {row["cause"] for row in await rows(store, "live_runs")} == {Cause.MANUAL}


async def test_runs_to_repeat_are_picked_by_state_reason_job_and_time(store: Store) -> None:
    jobs = [due_job(at(n)) for n in range(4)]
    poisoned = await failed_run(store, jobs[0], reason="poison")
    plain = await failed_run(store, jobs[1])
    await insert(store, jobs[2], jobs[3])
    [good, timed_out] = sorted(await claim(store, 1, LATER), key=lambda held: held.scheduled_for)
    await store.live_runs.finish_runs([succeeded(good), ended(timed_out, RunState.TIMED_OUT, "timeout")])

    failed = [RunState.FAILED, RunState.TIMED_OUT]
    assert await picked(store, states=failed) == [timed_out.run_id, plain, poisoned]
    assert await picked(store, reasons=["poison", "timeout"]) == [timed_out.run_id, poisoned]
    assert await picked(store, job_id=jobs[1].job_id) == [plain]
    assert await picked(store, states=failed, since=at(1)) == [timed_out.run_id, plain]
    assert await picked(store, states=failed, until=at(1)) == [poisoned]
    assert await picked(store, states=failed, before=timed_out.run_id, limit=1) == [plain]
    assert await picked(store, job_id=jobs[1].job_id, until=at(1)) == []


async def test_a_list_can_be_narrowed_to_reasons_and_times(store: Store) -> None:
    poisoned = await failed_run(store, due_job(at(0)), reason="poison")
    plain = await failed_run(store, due_job(at(60)))
    await insert(store, due_job(at(120)))

    async def listed(
        reasons: Sequence[str] | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> list[datetime]:
        found = await store.runs.list_runs(
            NAMESPACE, None, [*RunState], None, 10, reasons=reasons, since=since, until=until
        )
        return [run.scheduled_for for run in found]

    assert await listed(["poison"]) == [at(0)]
    assert await listed(since=at(60)) == [at(120), at(60)]
    assert await listed(until=at(120)) == [at(60), at(0)]
    assert await listed(["exit_code", "poison"], at(1), at(100)) == [at(60)]
    assert {poisoned, plain} == {
        scheduled_run_id(row["scheduled_for"], row["job_id"]) for row in await rows(store, "runs")
    }


async def test_a_retry_obeys_the_limits_of_its_job(store: Store) -> None:
    policy = Policy(max_concurrency=1, concurrency_key="customer-{n}", queue_timeout_seconds=60, deadline_seconds=3600)
    old = await failed_run(store, due_job(policy=policy))
    [new] = await retried(store, old)
    [row] = await rows(store, "live_runs")
    gates = {gate["gate_id"]: (gate["kind"], gate["name"]) for gate in await rows(store, "gates")}
    assert sorted(gates[gate_id][0] for gate_id in row["gate_ids"]) == ["job", "key"]
    assert ("key", "customer-1") in gates.values()
    assert row["expires_at"] == LATER + timedelta(seconds=60), "counted from when it was asked for"
    [held] = await claim(store, 1, LATER)
    assert (held.run_id, held.careful) == (new, True)
    assert held.deadline is not None
    assert abs(held.deadline - (LATER + timedelta(hours=1))) < timedelta(milliseconds=2)


async def test_retries_of_a_job_that_does_not_overlap_wait_for_their_turn(store: Store) -> None:
    job = new_job(every(10), fires=[at(0), at(10)], next_due=at(9000))
    await insert(store, job)
    olds = []
    for due in (at(0), at(10)):
        [held] = await claim(store, 1, due)
        await store.live_runs.finish_runs([ended(held)])
        olds.append(held.run_id)
    await retried(store, *olds)
    waiting = await rows(store, "live_runs")
    assert [(row["state"], row["waits_on"]) for row in waiting] == [(RunState.WAITING, 0)] * 2


# --- losses -----------------------------------------------------------------------------------------------


async def test_losses_are_counted_from_a_time_on_and_a_stop_is_none(store: Store) -> None:
    run_id = ids.new_id(START)
    for attempt, (reason, seconds) in enumerate(
        [("executor_lost", -100), ("executor_lost", 10), ("shutdown", 20), ("exit_code", 30), ("executor_lost", 40)], 1
    ):
        await execute(
            store,
            "INSERT INTO hourhand.attempts (run_id, attempt, state, ended_at, reason) VALUES ($1, $2, 13, $3, $4)",
            run_id, attempt, at(seconds), reason,
        )  # fmt: skip
    assert await store.live_runs.count_losses([run_id, ids.new_id(START)], at(0)) == {run_id: 2}
