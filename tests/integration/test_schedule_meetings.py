"""Where pauses meet calendars, budgets and delays after completion: on a database, on a clock that is set."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pause_stage import BEAT, CALLER, SCOPES, PauseStage
from sample_jobs import NAMESPACE, START, at, claim, every, rows

from hourhand.model.calendar_form import read_calendar
from hourhand.model.catchup import CatchUp
from hourhand.model.pauses import PauseScope
from hourhand.model.policy import Overlap, Policy
from hourhand.model.schedule import AfterCompletion, Every, OnExcluded, Timing
from hourhand.model.states import RunState
from hourhand.operations.requests import JobPatch
from hourhand.ports.stores import NEVER, Claimed, Finish
from hourhand.wiring import Store

WIDE = [scope for scope in SCOPES if scope is not PauseScope.JOB]
SKIP, NEXT_ALLOWED = OnExcluded.SKIP, OnExcluded.NEXT_ALLOWED


@pytest.fixture
async def stage(store: Store) -> PauseStage:
    return await PauseStage(store).open()


async def closed(stage: PauseStage, *spans: tuple[float, float], now: float = 0) -> None:
    blackouts = [{"from": at(begin).isoformat(), "to": at(end).isoformat()} for begin, end in spans]
    rule = read_calendar(dates=["1999-01-01"], blackouts=blackouts)
    assert await stage.store.calendars.put(NAMESPACE, "closed", rule, at(now), "ada", None)


def around_calendar(on_excluded: OnExcluded = SKIP, beat: float = BEAT, **more: Any) -> Timing:
    schedule = Every(timedelta(seconds=beat), START)
    return Timing((schedule,), calendars=("closed",), on_excluded=on_excluded, **more)


def delayed(seconds: float, **more: Any) -> Timing:
    return Timing((AfterCompletion(timedelta(seconds=seconds), START),), **more)


async def left(stage: PauseStage) -> list[int]:
    return [row["runs_left"] for row in await rows(stage.store, "run_budgets")]


async def cursor(stage: PauseStage, job_id: UUID) -> datetime | None:
    found = [row["next_fire"] for row in await rows(stage.store, "timetable") if row["job_id"] == job_id]
    return found[0] if found else None


async def end_all(stage: PauseStage, due: float, ended: float, state: RunState = RunState.SUCCEEDED) -> int:
    return await end(stage, await claim(stage.store, 7, at(due)), due, ended, state)


async def end(
    stage: PauseStage, claims: Sequence[Claimed], due: float, ended: float, state: RunState = RunState.SUCCEEDED
) -> int:
    reason = None if state is RunState.SUCCEEDED else "exit_code"
    ends = [Finish(one.run_id, one.fence, state, at(due), at(ended), reason) for one in claims]
    return len(await stage.store.live_runs.finish_runs(ends))


async def dues(stage: PauseStage) -> Sequence[datetime]:
    return [row["scheduled_for"] for row in await rows(stage.store, "live_runs", "scheduled_for")]


# --- calendars --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_a_calendar_leaves_out_of_a_pause_is_excluded_and_told_once(
    stage: PauseStage, scope: PauseScope
) -> None:
    await closed(stage, (33, 58))
    job_id = await stage.job(around_calendar())
    await stage.go(*range(25))
    await stage.pause(scope, job_id, 25)
    await stage.go(*range(26, 66))
    meanwhile = await stage.told(job_id, 65)
    await stage.resume(scope, job_id, 65)
    await stage.go(*range(66, 90))

    expected = {due: "paused" if 25 < due <= 65 else "run" for due in range(0, 90, BEAT)}
    expected |= {40: "excluded", 50: "excluded"}
    assert meanwhile == {due: became for due, became in expected.items() if due <= 65}
    assert await stage.told(job_id, 89) == expected
    told = {entry.due_at: entry.why for entry in await stage.entries(job_id, 0, 89)}
    assert told[at(40)] == "the calendar closed leaves it out"


@pytest.mark.parametrize("scope", SCOPES)
async def test_only_what_calendars_allow_is_caught_up_after_a_pause(stage: PauseStage, scope: PauseScope) -> None:
    await closed(stage, (48, 62))
    job_id = await stage.job(around_calendar(), policy=Policy(overlap=Overlap.ALLOW))
    await stage.go(*range(25))
    await stage.pause(scope, job_id, 25)
    await stage.resume(scope, job_id, 65, CatchUp.LAST)
    await stage.go(*range(66, 80))
    assert await stage.told(job_id, 79) == {
        0: "run", 10: "run", 20: "run", 30: "paused", 40: "run", 50: "excluded", 60: "excluded", 70: "run",
    }  # fmt: skip


async def test_a_changed_calendar_does_not_wake_what_a_pause_holds(stage: PauseStage) -> None:
    await closed(stage, (5, 15))
    job_id = await stage.job(around_calendar(NEXT_ALLOWED))
    await stage.go(0, 9, 10)
    await stage.pause(PauseScope.CLUSTER, job_id, 11)
    await stage.go(12, 13, 14)
    assert await cursor(stage, job_id) == NEVER
    await closed(stage, (5, 12), now=14)
    assert await cursor(stage, job_id) == NEVER
    await stage.resume(PauseScope.CLUSTER, job_id, 25)
    await stage.go(26, 30)
    told = await stage.told(job_id, 30)
    assert (told[10], told[20], told[30]) == ("excluded", "paused", "run")


async def test_a_job_that_waits_for_the_next_allowed_time_is_not_forgotten_when_it_is_changed_or_paused(
    stage: PauseStage,
) -> None:
    await closed(stage, (55, 95))
    job_id = await stage.job(around_calendar(NEXT_ALLOWED, beat=60))
    await stage.go(*range(0, 70, 2))
    assert await cursor(stage, job_id) == at(95)
    stage.clock.time = at(70)
    await stage.jobs.update(CALLER, job_id, JobPatch(description="other words"))
    assert await cursor(stage, job_id) == at(95)
    await stage.pause(PauseScope.JOB, job_id, 71)
    await stage.resume(PauseScope.JOB, job_id, 80)
    assert await cursor(stage, job_id) == at(95)
    await stage.go(*range(82, 122, 2))
    assert await stage.told(job_id, 121) == {0: "run", 60: "excluded", 95: "run", 120: "run"}


async def test_a_due_time_that_was_told_ahead_is_not_told_again_when_the_job_is_changed(stage: PauseStage) -> None:
    await closed(stage, (5, 25))
    job_id = await stage.job(around_calendar())
    await stage.go(0, 9)
    stage.clock.time = at(9)
    await stage.jobs.update(CALLER, job_id, JobPatch(description="other words"))
    await stage.go(*range(10, 35))
    assert await stage.told(job_id, 34) == {0: "run", 10: "excluded", 20: "excluded", 30: "run"}


# --- budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES)
async def test_runs_that_a_pause_takes_back_do_not_use_up_the_budget(stage: PauseStage, scope: PauseScope) -> None:
    job_id = await stage.job(Timing(every(BEAT).schedules, max_runs=3))
    await stage.go(0, 9)
    assert await left(stage) == [1]
    await stage.pause(scope, job_id, 9.5)
    assert await left(stage) == [2]
    await stage.go(*range(10, 35))
    await stage.resume(scope, job_id, 35)
    await stage.go(*range(36, 80))
    told = await stage.told(job_id, 79)
    assert [due for due, became in told.items() if became == "run"] == [0, 40, 50]
    assert [due for due, became in told.items() if became == "paused"] == [10, 20, 30]
    assert await left(stage) == [0]


@pytest.mark.parametrize("scope", SCOPES)
async def test_the_last_run_of_a_budget_comes_back_after_a_pause(stage: PauseStage, scope: PauseScope) -> None:
    job_id = await stage.job(Timing(every(BEAT).schedules, max_runs=1))
    await stage.go(-1)
    assert (await left(stage), await cursor(stage, job_id)) == ([0], None)
    await stage.pause(scope, job_id, -0.5)
    await stage.resume(scope, job_id, 5)
    await stage.go(*range(6, 15))
    assert await dues(stage) == [at(10)]
    assert await left(stage) == [0]


@pytest.mark.parametrize("until", [None, 35])
async def test_a_job_whose_budget_is_used_up_has_no_due_times_that_a_pause_could_hold(
    stage: PauseStage, until: float | None
) -> None:
    job_id = await stage.job(Timing(every(BEAT).schedules, max_runs=2))
    await stage.go(0, 9, 10)
    assert await left(stage) == [0]
    await stage.pause(PauseScope.JOB, job_id, 15, until)
    await stage.go(*range(16, 50))
    assert await stage.told(job_id, 49) == {0: "run", 10: "run"}
    await stage.resume(PauseScope.JOB, job_id, 50, CatchUp.ALL)
    await stage.go(*range(51, 65))
    assert await stage.told(job_id, 64) == {0: "run", 10: "run"}


async def test_what_a_pause_held_before_the_last_run_of_a_budget_stays_told(stage: PauseStage) -> None:
    job_id = await stage.job(Timing(every(BEAT).schedules, max_runs=2))
    await stage.go(0, 1)
    await stage.pause(PauseScope.JOB, job_id, 5, until=25)
    await stage.go(*range(6, 45))
    assert await left(stage) == [0]
    wanted = {0: "run", 10: "paused", 20: "paused", 30: "run"}
    assert await stage.told(job_id, 44) == wanted
    await stage.pause(PauseScope.JOB, job_id, 45)
    await stage.go(*range(46, 65))
    assert await stage.told(job_id, 64) == wanted
    await stage.resume(PauseScope.JOB, job_id, 65, CatchUp.ALL)
    assert await stage.told(job_id, 64) == wanted


# --- delays after completion ------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", WIDE)
async def test_a_pause_of_many_puts_off_what_is_due_after_completion(stage: PauseStage, scope: PauseScope) -> None:
    job_id = await stage.job(delayed(10))
    await stage.go(0)
    claims = await claim(stage.store, 7, at(0))
    await stage.pause(scope, job_id, 5)
    assert await end(stage, claims, 0, 6) == 1, "it goes on, and its end sets the next due time"
    await stage.go(*range(7, 30))
    assert await dues(stage) == []
    await stage.resume(scope, job_id, 30)
    await stage.go(31, 32)
    assert [round((due - START).total_seconds()) for due in await dues(stage)] == [30]
    assert (await stage.told(job_id, 29))[16] == "paused"


async def test_a_pause_with_an_end_has_it_due_at_that_end(stage: PauseStage) -> None:
    job_id = await stage.job(delayed(10))
    await stage.go(0)
    await stage.pause(PauseScope.JOB, job_id, 5, until=40)
    assert await end_all(stage, 0, 6) == 1
    await stage.go(*range(7, 40))
    assert await dues(stage) == [at(40)]
    assert await end_all(stage, 40, 41) == 1
    assert await cursor(stage, job_id) == at(51)


async def test_resumed_before_its_end_the_delay_begins_anew(stage: PauseStage) -> None:
    job_id = await stage.job(delayed(10))
    await stage.go(0)
    await stage.pause(PauseScope.JOB, job_id, 5, until=400)
    assert await end_all(stage, 0, 6) == 1
    await stage.resume(PauseScope.JOB, job_id, 20)
    assert await cursor(stage, job_id) == at(30)


async def test_a_job_paused_by_its_failures_is_not_due_again_by_the_end_of_a_run(stage: PauseStage) -> None:
    job_id = await stage.job(delayed(10, max_runs=5), policy=Policy(pause_after_failures=1))
    await stage.go(0)
    assert await end_all(stage, 0, 1, RunState.FAILED) == 1
    assert await cursor(stage, job_id) is None
    assert await rows(stage.store, "completion_delays") == []
    await stage.resume(PauseScope.JOB, job_id, 20)
    assert (await cursor(stage, job_id), await left(stage)) == (at(30), [4])


async def test_runs_that_an_automatic_pause_takes_back_are_given_back_to_the_budget(stage: PauseStage) -> None:
    policy = Policy(pause_after_failures=1, overlap=Overlap.ALLOW)
    await stage.job(Timing(every(BEAT).schedules, max_runs=5), policy=policy)
    await stage.go(0, 9)
    assert await left(stage) == [3]
    assert await end_all(stage, 0, 9, RunState.FAILED) == 1
    assert (await left(stage), await dues(stage)) == ([4], [])


async def test_a_pause_with_more_due_times_than_can_be_told_at_once_is_told_part_by_part(stage: PauseStage) -> None:
    day = 86_400
    await closed(stage, (day, 2 * day))
    job_id = await stage.job(around_calendar(beat=60))
    await stage.go(0)
    await stage.pause(PauseScope.JOB, job_id, 1)
    await stage.resume(PauseScope.JOB, job_id, 5 * day + 1)
    found = await rows(stage.store, "ledger_ranges", "first_due")
    assert [(row["first_due"], row["last_due"], row["count"], row["reason"]) for row in found] == [
        (at(60), at(day - 60), 1439, "paused"),
        (at(day), at(2 * day - 60), 1440, "excluded"),
        (at(2 * day), at(5 * day), 4321, "paused"),
    ]
    assert await cursor(stage, job_id) == at(5 * day + 60)
