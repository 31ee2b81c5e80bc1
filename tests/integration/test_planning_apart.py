"""Jobs of which there is more to say than when they fall due: spread starts, budgets, delays, calendars."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from crew import Scheduler, SetClock
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    definition,
    every,
    insert,
    new_job,
    planning,
    returned,
    rows,
    succeeded,
)

from hourhand.model.calendar_form import read_calendar
from hourhand.model.catchup import CatchUpPolicy
from hourhand.model.jitter import start_of
from hourhand.model.job import JobDefinition
from hourhand.model.policy import Policy
from hourhand.model.schedule import AfterCompletion, CronSchedule, OnExcluded, Timing
from hourhand.model.states import JobState, Reason, RunState
from hourhand.ports.stores import Finish
from hourhand.wiring import Store

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def scheduler(store: Store, clock: SetClock) -> Scheduler:
    """One that owns everything."""
    scheduler = await Scheduler(store, clock).join("only")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    return scheduler


@pytest.fixture
async def executor(store: Store) -> int:
    return await store.nodes.register_node("executor", "executor", 60, {})


async def plan_at(scheduler: Scheduler, instant: datetime) -> None:
    scheduler.clock.time = instant
    await scheduler.planner.run_once()


async def cursor_of(store: Store, job_id: UUID) -> datetime | None:
    found = [row["next_fire"] for row in await rows(store, "timetable") if row["job_id"] == job_id]
    return found[0] if found else None


async def dues(store: Store) -> list[datetime]:
    return [row["scheduled_for"] for row in await rows(store, "live_runs", "scheduled_for")]


async def change(store: Store, job_id: UUID, new: JobDefinition, cursor: datetime | None, now: datetime) -> Any:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    return await store.jobs.change_job(NAMESPACE, job_id, new, job.version, cursor, now, "ada")


# --- jitter -----------------------------------------------------------------------------------------------


async def test_jitter_moves_the_start_and_not_the_due_time_and_is_kept_with_the_run(
    store: Store, scheduler: Scheduler
) -> None:
    timing = Timing(every(10).schedules, jitter=timedelta(seconds=9))
    [job_id] = await insert(store, new_job(timing, next_due=START))
    await plan_at(scheduler, at(0))
    [run] = await rows(store, "live_runs")
    assert run["scheduled_for"] == START
    assert run["ready_at"] == start_of(START, at(10), timedelta(seconds=9), job_id)
    assert START < run["ready_at"] < at(9)
    await plan_at(scheduler, at(9))
    ready = [row["ready_at"] for row in await rows(store, "live_runs", "scheduled_for")]
    assert ready[0] == run["ready_at"]
    assert at(10) <= ready[1] < at(19)


async def test_a_run_that_may_not_start_yet_is_not_claimed(store: Store, scheduler: Scheduler, executor: int) -> None:
    [job_id] = await insert(store, new_job(Timing(every(3600).schedules, jitter=30 * MINUTE), next_due=START))
    await plan_at(scheduler, at(0))
    ready = start_of(START, START + 60 * MINUTE, 30 * MINUTE, job_id)
    assert await claim(store, executor, ready - timedelta(milliseconds=1)) == []
    [claimed] = await claim(store, executor, ready)
    assert (claimed.scheduled_for, claimed.ready_at) == (START, ready)


async def test_the_time_to_wait_for_a_start_begins_when_the_run_may_start(store: Store, scheduler: Scheduler) -> None:
    timing = Timing(every(3600).schedules, jitter=30 * MINUTE)
    await insert(store, new_job(timing, next_due=START, policy=Policy(queue_timeout_seconds=1)))
    await plan_at(scheduler, at(0))
    [run] = await rows(store, "live_runs")
    assert run["expires_at"] == run["ready_at"] + timedelta(seconds=1)


# --- budgets ----------------------------------------------------------------------------------------------


async def left(store: Store) -> list[int]:
    return [row["runs_left"] for row in await rows(store, "run_budgets")]


async def test_the_schedule_ends_with_the_last_run_of_its_budget(store: Store, scheduler: Scheduler) -> None:
    [job_id] = await insert(store, new_job(Timing(every(1).schedules, max_runs=5), next_due=START))
    for second in range(0, 10, 2):
        await plan_at(scheduler, at(second))
    assert await dues(store) == [at(second) for second in range(5)]
    assert await cursor_of(store, job_id) is None
    assert await left(store) == [0]


async def test_missed_due_times_do_not_use_up_the_budget(store: Store, scheduler: Scheduler) -> None:
    timing = Timing(every(60).schedules, max_runs=2)
    await insert(store, new_job(timing, next_due=START, catchup=CatchUpPolicy(window=timedelta(0))))
    await plan_at(scheduler, START + 100 * MINUTE)
    assert await left(store) == [1]
    await plan_at(scheduler, START + 101 * MINUTE)
    assert await dues(store) == [START + 100 * MINUTE, START + 101 * MINUTE]
    assert await left(store) == [0]


async def test_runs_that_a_pause_takes_back_are_given_back_to_the_budget(store: Store, scheduler: Scheduler) -> None:
    timing = Timing(every(1).schedules, max_runs=3)
    [job_id] = await insert(store, new_job(timing, next_due=at(1)))
    await plan_at(scheduler, at(0))
    assert (await dues(store), await left(store)) == ([at(1), at(2)], [1])
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, None, at(0))
    assert (await dues(store), await left(store)) == ([], [3])
    await store.jobs.set_status(NAMESPACE, job_id, JobState.SCHEDULED, at(60), None, at(59))
    for second in (60, 62, 64):
        await plan_at(scheduler, at(second))
    assert await dues(store) == [at(60), at(61), at(62)]
    assert await left(store) == [0]


async def test_a_change_of_the_budget_counts_what_was_made_before(store: Store, scheduler: Scheduler) -> None:
    [job_id] = await insert(store, new_job(Timing(every(10).schedules, max_runs=2), next_due=START))
    await plan_at(scheduler, at(0))
    await plan_at(scheduler, at(10))
    assert await cursor_of(store, job_id) is None
    more = Timing(every(10).schedules, max_runs=3)
    await change(store, job_id, definition(more), more.next_after(at(11)), at(11))
    assert (await left(store), await cursor_of(store, job_id)) == ([1], at(20))
    fewer = Timing(every(10).schedules, max_runs=1)
    await change(store, job_id, definition(fewer), fewer.next_after(at(12)), at(12))
    assert (await left(store), await cursor_of(store, job_id)) == ([0], None)
    await change(store, job_id, definition(every(10)), at(20), at(13))
    assert (await left(store), await cursor_of(store, job_id)) == ([], at(20))


# --- after completion -------------------------------------------------------------------------------------


def delay(seconds: float = 10, **more: Any) -> Timing:
    return Timing((AfterCompletion(timedelta(seconds=seconds), START),), **more)


async def started(store: Store, scheduler: Scheduler, executor: int, **fields: Any) -> tuple[UUID, Any]:
    """A job with a delay, its first run in an executor's hands."""
    timing = fields.pop("timing", delay())
    [job_id] = await insert(store, new_job(timing, next_due=START, **fields))
    await plan_at(scheduler, at(0))
    assert await cursor_of(store, job_id) is None, "nothing further is due while it runs"
    [claimed] = await claim(store, executor, at(0))
    return job_id, claimed


@pytest.mark.parametrize("fields", [{}, {"policy": Policy(at_most_once=True)}, {"policy": Policy(max_concurrency=2)}])
async def test_the_end_of_a_run_sets_the_next_due_time(
    store: Store, scheduler: Scheduler, executor: int, fields: dict[str, Any]
) -> None:
    job_id, claimed = await started(store, scheduler, executor, **fields)
    assert await store.live_runs.finish_runs([succeeded(claimed, at(33))]) == {claimed.run_id}
    assert await cursor_of(store, job_id) == at(43)
    await plan_at(scheduler, at(43))
    assert await dues(store) == [at(43)]
    [again] = await claim(store, executor, at(43))
    await store.live_runs.finish_runs([succeeded(again, at(50))])
    assert await cursor_of(store, job_id) == at(60)


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.TIMED_OUT, RunState.LOST, RunState.CANCELLED])
async def test_every_other_end_does_so_too(store: Store, scheduler: Scheduler, executor: int, state: RunState) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.live_runs.finish_runs([Finish(claimed.run_id, claimed.fence, state, at(0), at(5), "why", "error")])
    assert await cursor_of(store, job_id) == at(15)


async def test_a_retry_is_no_end(store: Store, scheduler: Scheduler, executor: int) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.live_runs.requeue_runs([returned(claimed, at(20), failed=True)])
    assert await cursor_of(store, job_id) is None
    [second] = await claim(store, executor, at(20))
    await store.live_runs.finish_runs([succeeded(second, at(25))])
    assert await cursor_of(store, job_id) == at(35)


async def test_a_run_that_is_lost_with_its_executor_goes_on_and_then_ends(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.live_runs.requeue_runs([returned(claimed, at(16), lost=True)])
    [second] = await claim(store, executor, at(16))
    assert await store.live_runs.finish_runs([succeeded(claimed, at(17))]) == set(), "the first one speaks too late"
    assert await cursor_of(store, job_id) is None
    await store.live_runs.finish_runs([succeeded(second, at(18))])
    assert await cursor_of(store, job_id) == at(28)


async def test_a_late_end_that_comes_twice_sets_it_once(store: Store, scheduler: Scheduler, executor: int) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.live_runs.finish_runs([succeeded(claimed, at(5))])
    await plan_at(scheduler, at(15))
    await store.live_runs.finish_runs([succeeded(claimed, at(5))])
    assert await cursor_of(store, job_id) is None
    assert await dues(store) == [at(15)]


async def test_a_waiting_run_that_is_cancelled_skipped_or_expired_is_an_end(store: Store, scheduler: Scheduler) -> None:
    jobs = await insert(
        store, *(new_job(delay(), next_due=START, policy=Policy(queue_timeout_seconds=3)) for _ in range(3))
    )
    await plan_at(scheduler, at(0))
    by_job = {row["job_id"]: row["run_id"] for row in await rows(store, "live_runs")}
    await store.runs.cancel_runs(NAMESPACE, [by_job[jobs[0]]], Reason.CANCELLED.value, at(1))
    await store.turns.skip_runs([(by_job[jobs[1]], Reason.OVERLAP)], at(2))
    assert await store.turns.expire_runs(at(3), 10) == 1
    assert [await cursor_of(store, job_id) for job_id in jobs] == [at(11), at(12), at(13)]


async def test_a_run_asked_for_by_hand_changes_nothing(store: Store, scheduler: Scheduler, executor: int) -> None:
    [job_id] = await insert(store, new_job(delay(), next_due=at(100)))
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    manual = UUID(int=(1 << 127) | 7)
    assert await store.runs.insert_manual_run(manual, job, NAMESPACE, "ada", None, None, at(0))
    [claimed] = await claim(store, executor, at(0))
    await store.live_runs.finish_runs([succeeded(claimed, at(5))])
    assert await cursor_of(store, job_id) == at(100)


async def test_the_delay_ends_with_the_budget(store: Store, scheduler: Scheduler, executor: int) -> None:
    job_id, claimed = await started(store, scheduler, executor, timing=delay(max_runs=2))
    await store.live_runs.finish_runs([succeeded(claimed, at(1))])
    await plan_at(scheduler, at(11))
    [second] = await claim(store, executor, at(11))
    await store.live_runs.finish_runs([succeeded(second, at(12))])
    assert await cursor_of(store, job_id) is None
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    assert job.state is JobState.COMPLETED


async def test_an_end_during_a_pause_sets_nothing_and_resume_begins_anew(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, "why", at(2))
    await store.live_runs.finish_runs([succeeded(claimed, at(3))])
    assert await cursor_of(store, job_id) is None
    await store.jobs.set_status(NAMESPACE, job_id, JobState.SCHEDULED, None, None, at(60))
    assert await cursor_of(store, job_id) == at(70)


async def test_resumed_while_its_run_goes_on_the_job_waits_for_its_end(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, "why", at(2))
    await store.jobs.set_status(NAMESPACE, job_id, JobState.SCHEDULED, None, None, at(3))
    assert await cursor_of(store, job_id) is None
    await store.live_runs.finish_runs([succeeded(claimed, at(4))])
    assert await cursor_of(store, job_id) == at(14)


async def test_a_cancelled_job_is_not_due_again(store: Store, scheduler: Scheduler, executor: int) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.jobs.set_status(NAMESPACE, job_id, JobState.CANCELLED, None, None, at(1))
    await store.live_runs.finish_runs([Finish(claimed.run_id, claimed.fence, RunState.CANCELLED, at(0), at(2))])
    assert await cursor_of(store, job_id) is None
    assert await rows(store, "completion_delays") == []


async def test_a_change_of_the_delay_counts_from_the_next_end_and_keeps_a_due_time_that_is_set(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await change(store, job_id, definition(delay(60), priority=8), None, at(1))
    await store.live_runs.finish_runs([succeeded(claimed, at(2))])
    assert await cursor_of(store, job_id) == at(62)
    [cursor] = await rows(store, "timetable")
    assert (cursor["version"], cursor["priority"]) == (2, 8)
    await change(store, job_id, definition(delay(60), name="renamed"), None, at(3))
    assert await cursor_of(store, job_id) == at(62)


async def test_a_change_just_before_the_due_time_does_not_put_it_off(store: Store, scheduler: Scheduler) -> None:
    [job_id] = await insert(store, new_job(delay(60), next_due=at(2)))
    await plan_at(scheduler, at(1))
    assert (await dues(store), await cursor_of(store, job_id)) == ([at(2)], None)
    await change(store, job_id, definition(delay(60), name="renamed"), None, at(1))
    assert (await dues(store), await cursor_of(store, job_id)) == ([], at(2))


async def test_a_job_that_gets_a_delay_while_it_runs_is_due_after_that_run(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    [job_id] = await insert(store, new_job(every(3600), next_due=START))
    await plan_at(scheduler, at(0))
    [claimed] = await claim(store, executor, at(0))
    await change(store, job_id, definition(delay(30)), None, at(1))
    assert await cursor_of(store, job_id) is None
    await store.live_runs.finish_runs([succeeded(claimed, at(2))])
    assert await cursor_of(store, job_id) == at(32)


async def test_a_job_that_loses_its_delay_while_it_runs_goes_by_its_new_schedule(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await change(store, job_id, definition(every(3600)), at(3600), at(1))
    await store.live_runs.finish_runs([succeeded(claimed, at(2))])
    assert await cursor_of(store, job_id) == at(3600)


async def test_an_end_that_meets_a_change_sees_what_the_change_made(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    schema = store.database.schema
    async with planning(store) as change_under_way:
        await change_under_way.execute(f"UPDATE {schema}.completion_delays SET delay = '1 hour', version = 2")
        await change_under_way.then(store.live_runs.finish_runs([succeeded(claimed, at(2))]))
        assert change_under_way.waiting is not None
        assert not change_under_way.waiting.done()
    assert await cursor_of(store, job_id) == at(3602)


async def test_however_late_a_scheduler_comes_the_due_time_is_run_once(
    store: Store, scheduler: Scheduler, executor: int
) -> None:
    job_id, claimed = await started(store, scheduler, executor)
    await store.live_runs.finish_runs([succeeded(claimed, at(1))])
    await plan_at(scheduler, at(100_000))
    assert await dues(store) == [at(11)]
    assert await rows(store, "ledger_ranges") == []
    assert await cursor_of(store, job_id) is None


async def test_plain_runs_take_the_shortest_road_as_before(store: Store, scheduler: Scheduler, executor: int) -> None:
    await insert(store, new_job(every(10), next_due=START))
    await plan_at(scheduler, at(0))
    [run] = await rows(store, "live_runs")
    assert run["gate_ids"] is None
    [claimed] = await claim(store, executor, at(0))
    assert await store.live_runs._finish_plain([succeeded(claimed)]) == {claimed.run_id}


# --- calendars --------------------------------------------------------------------------------------------


def around_calendar(cron: str, on_excluded: OnExcluded = OnExcluded.SKIP, **more: Any) -> Timing:
    return Timing((CronSchedule(cron),), calendars=("holidays",), on_excluded=on_excluded, **more)


async def put(store: Store, now: datetime, *dates: str, blackouts: Sequence[tuple[datetime, datetime]] = ()) -> None:
    spans = [{"from": begin.isoformat(), "to": end.isoformat()} for begin, end in blackouts]
    rule = read_calendar(dates=[*dates, "1999-01-01"], blackouts=spans)
    assert await store.calendars.put(NAMESPACE, "holidays", rule, now, "ada", None)


async def ledger(store: Store) -> list[tuple[datetime, datetime, int, str]]:
    found = await rows(store, "ledger_ranges", "first_due")
    return [(row["first_due"], row["last_due"], row["count"], row["reason"]) for row in found]


async def test_a_stretch_that_a_calendar_leaves_out_is_one_row_of_the_ledger(
    store: Store, scheduler: Scheduler
) -> None:
    begin, end = START + 3 * MINUTE, START + 8 * MINUTE
    await put(store, START, blackouts=[(begin, end)])
    await insert(store, new_job(around_calendar("* * * * *"), next_due=START + MINUTE))
    for minute in range(1, 11):
        await plan_at(scheduler, START + minute * MINUTE)
    assert await dues(store) == [START + minute * MINUTE for minute in (1, 2, 8, 9, 10)]
    assert await ledger(store) == [(begin, end - MINUTE, 5, "excluded")]


async def test_a_calendar_that_is_changed_counts_for_the_next_due_time(store: Store, scheduler: Scheduler) -> None:
    await put(store, START, "2030-01-07")
    [job_id] = await insert(store, new_job(around_calendar("* * * * *"), next_due=START + MINUTE))
    await plan_at(scheduler, START + MINUTE)
    assert await dues(store) == []
    await put(store, START + MINUTE, "2030-01-09")
    await plan_at(scheduler, START + 2 * MINUTE)
    assert await dues(store) == [START + 2 * MINUTE]
    await put(store, START + 2 * MINUTE, "2030-01-07")
    await plan_at(scheduler, START + 3 * MINUTE)
    assert await dues(store) == [START + 2 * MINUTE]
    assert await cursor_of(store, job_id) == START + 4 * MINUTE


async def test_runs_made_ahead_of_time_are_taken_back_when_a_calendar_changes(
    store: Store, scheduler: Scheduler
) -> None:
    await put(store, START, "2030-01-09")
    [job_id] = await insert(store, new_job(around_calendar("* * * * * *", max_runs=10), next_due=at(1)))
    await plan_at(scheduler, at(0))
    assert await dues(store) == [at(1), at(2)]
    await put(store, at(1), "2030-01-07")
    assert await dues(store) == [at(1)]
    assert await cursor_of(store, job_id) == at(2)
    assert await left(store) == [9]
    await plan_at(scheduler, at(1))
    assert await dues(store) == [at(1)]


async def test_with_next_allowed_one_run_follows_the_stretch(store: Store, scheduler: Scheduler) -> None:
    end = START + 30 * MINUTE
    await put(store, START, blackouts=[(START, end)])
    timing = around_calendar("5,15 * * * *", OnExcluded.NEXT_ALLOWED)
    [job_id] = await insert(store, new_job(timing, next_due=START + 5 * MINUTE))
    for minute in (5, 15, 29, 30):
        await plan_at(scheduler, START + minute * MINUTE)
    assert await dues(store) == [end]
    assert await ledger(store) == [(START + 5 * MINUTE, START + 15 * MINUTE, 2, "excluded")]
    assert await cursor_of(store, job_id) == START + 65 * MINUTE


async def test_a_job_that_waits_is_due_earlier_when_the_calendar_lets_it(store: Store, scheduler: Scheduler) -> None:
    await put(store, START, blackouts=[(START, START + 600 * MINUTE)])
    timing = around_calendar("5 12 7 1 *", OnExcluded.NEXT_ALLOWED)
    [waiting] = await insert(store, new_job(timing, next_due=START + 5 * MINUTE))
    await plan_at(scheduler, START + 5 * MINUTE)
    assert await cursor_of(store, waiting) == START + 600 * MINUTE
    await put(store, START + 66 * MINUTE, blackouts=[(START, START + 90 * MINUTE)])
    assert await cursor_of(store, waiting) == START + 90 * MINUTE
    await plan_at(scheduler, START + 90 * MINUTE)
    assert await dues(store) == [START + 90 * MINUTE]
    assert (await cursor_of(store, waiting) or START).year == 2031


async def test_a_calendar_in_use_is_not_deleted_until_its_jobs_leave_it(store: Store) -> None:
    await put(store, START, "2030-01-07")
    [job_id] = await insert(store, new_job(around_calendar("0 0 * * *"), next_due=at(43_200)))
    found = await store.calendars.get(NAMESPACE, "holidays")
    assert found is not None
    assert (found.jobs, found.version) == (1, 1)
    assert await store.calendars.delete(NAMESPACE, "holidays") is False
    await change(store, job_id, definition(every(60)), at(60), at(1))
    assert await store.calendars.delete(NAMESPACE, "holidays") is True
    assert await store.calendars.delete(NAMESPACE, "holidays") is None


async def test_a_calendar_is_changed_only_from_the_version_that_was_expected(store: Store) -> None:
    rule = read_calendar(dates=["12-25"])
    assert await store.calendars.put(NAMESPACE, "x", rule, START, "ada", 3) is None
    assert await store.calendars.put(NAMESPACE, "x", rule, START, "ada", 0) == 1
    assert await store.calendars.put(NAMESPACE, "x", rule, START, "ada", 0) is None
    assert await store.calendars.put(NAMESPACE, "x", rule, START, "ada", 1) == 2
    assert await store.calendars.find(NAMESPACE, ["x", "y"]) == {"x": rule}


async def test_overdue_due_times_of_a_changed_job_are_judged_by_its_calendar(
    store: Store, scheduler: Scheduler
) -> None:
    await put(store, START, blackouts=[(START + 2 * MINUTE, START + 60 * MINUTE)])
    [job_id] = await insert(store, new_job(around_calendar("* * * * *"), next_due=START + MINUTE))
    await change(store, job_id, definition(every(3600)), START + 60 * MINUTE, START + 5 * MINUTE)
    assert await dues(store) == [START + MINUTE]
    assert await ledger(store) == [(START + 2 * MINUTE, START + 5 * MINUTE, 4, "excluded")]
