"""A job that asked for it is paused after so many failed runs in a row."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pause_stage import CALLER, PauseStage
from sample_jobs import NAMESPACE, at, claim, rows

from hourhand.model.policy import Overlap, Policy
from hourhand.model.states import JobState, RunState
from hourhand.operations.requests import JobPatch, RunNowRequest
from hourhand.ports.stores import Finish
from hourhand.wiring import Store

FAILED, SUCCEEDED = RunState.FAILED, RunState.SUCCEEDED


@pytest.fixture
async def stage(store: Store) -> PauseStage:
    return await PauseStage(store).open()


async def job_with(stage: PauseStage, most: int | None, **policy: Any) -> UUID:
    return await stage.job(policy=Policy(pause_after_failures=most, **policy))


async def beats(stage: PauseStage, first: int, *states: RunState) -> None:
    """Each due time's run ends so, a second after it was due."""
    for step, state in enumerate(states):
        due = first + 10 * step
        await stage.go(due)
        await end_all(stage, due, state)


async def end_all(stage: PauseStage, second: float, state: RunState) -> None:
    stage.clock.time = at(second + 1)
    claims = await claim(stage.store, 7, at(second))
    reason = None if state is SUCCEEDED else "exit_code"
    ends = [Finish(one.run_id, one.fence, state, at(second), at(second + 1), reason, "why") for one in claims]
    await stage.store.live_runs.finish_runs(ends)


async def state_of(stage: PauseStage, job_id: UUID) -> JobState:
    return (await stage.jobs.get(CALLER, job_id)).state


@pytest.mark.parametrize("last", [FAILED, RunState.TIMED_OUT, RunState.LOST])
async def test_so_many_failed_runs_in_a_row_pause_the_job_and_say_why(stage: PauseStage, last: RunState) -> None:
    job_id = await job_with(stage, 3)
    await beats(stage, 0, FAILED, FAILED)
    assert await state_of(stage, job_id) is JobState.SCHEDULED
    await beats(stage, 20, last)
    job = await stage.jobs.get(CALLER, job_id)
    assert (job.state, job.pause_reason, job.next_due) == (JobState.PAUSED, "3 runs in a row failed", None)
    assert [pause.paused_by for pause in job.pauses] == ["auto-pause"]
    await stage.go(31, 45)
    assert await stage.told(job_id, 45) == {0: "failed", 10: "failed", 20: last.word, 30: "paused", 40: "paused"}


async def test_a_success_in_between_begins_the_count_anew(stage: PauseStage) -> None:
    job_id = await job_with(stage, 3)
    await beats(stage, 0, FAILED, FAILED, SUCCEEDED, FAILED, FAILED)
    assert await state_of(stage, job_id) is JobState.SCHEDULED


async def test_a_job_that_did_not_ask_for_it_goes_on_failing(stage: PauseStage) -> None:
    job_id = await job_with(stage, None)
    await beats(stage, 0, *[FAILED] * 12)
    assert await state_of(stage, job_id) is JobState.SCHEDULED


async def test_what_failed_before_somebody_resumed_it_is_not_counted_again(stage: PauseStage) -> None:
    job_id = await job_with(stage, 2)
    await beats(stage, 0, FAILED, FAILED)
    assert await state_of(stage, job_id) is JobState.PAUSED
    stage.clock.time = at(15)
    await stage.jobs.resume(CALLER, job_id)
    await beats(stage, 20, FAILED)
    assert await state_of(stage, job_id) is JobState.SCHEDULED
    await beats(stage, 30, FAILED)
    assert await state_of(stage, job_id) is JobState.PAUSED


async def test_a_run_by_hand_that_succeeds_shows_that_it_works_again(stage: PauseStage) -> None:
    job_id = await job_with(stage, 2)
    await beats(stage, 0, FAILED)
    await stage.jobs.run_now(CALLER, job_id, RunNowRequest())
    await end_all(stage, 5, SUCCEEDED)
    await beats(stage, 10, FAILED)
    assert await state_of(stage, job_id) is JobState.SCHEDULED


async def test_runs_that_are_made_ahead_are_taken_back_and_those_in_hand_are_not_counted_as_paused(
    stage: PauseStage,
) -> None:
    job_id = await job_with(stage, 1, overlap=Overlap.ALLOW)
    await stage.go(0, 9)
    [first, second] = await claim(stage.store, 7, at(10))  # ahead of its time
    stage.clock.time = at(9.98)
    end = Finish(first.run_id, first.fence, FAILED, at(0), at(9.98), "exit_code", "why")
    await stage.store.live_runs.finish_runs([end])
    assert await state_of(stage, job_id) is JobState.PAUSED
    stage.clock.time = at(11)
    end = Finish(second.run_id, second.fence, SUCCEEDED, at(10), at(11))
    await stage.store.live_runs.finish_runs([end])
    await stage.go(25)
    await stage.jobs.resume(CALLER, job_id)
    await stage.go(31)
    assert await stage.told(job_id, 31) == {0: "failed", 10: "run", 20: "paused", 30: "run"}


async def test_the_number_is_a_field_of_the_job_that_can_be_changed_and_taken_away(stage: PauseStage) -> None:
    job_id = await job_with(stage, 5)
    await stage.jobs.update(CALLER, job_id, JobPatch(pause_after_failures=1))
    assert (await stage.definition(job_id)).policy.pause_after_failures == 1
    await stage.jobs.update(CALLER, job_id, JobPatch(pause_after_failures=None))
    assert (await stage.definition(job_id)).policy.pause_after_failures is None


async def test_nobody_is_paused_by_the_failures_of_another_namespace(stage: PauseStage) -> None:
    job_id = await job_with(stage, 1)
    await beats(stage, 0, FAILED)
    assert await stage.store.jobs.get_job(NAMESPACE + 1, job_id) is None
    assert [row["status"] for row in await rows(stage.store, "jobs")] == [1]
    assert (await stage.jobs.get(CALLER, job_id)).created_at < at(0) + timedelta(days=1)
