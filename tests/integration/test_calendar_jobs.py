"""What callers are told about jobs with calendars, on a real store."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from crew import FunctionKind, NotedBus, SetClock
from sample_jobs import NAMESPACE, START, rows

from hourhand.model.calendar_form import read_calendar
from hourhand.model.errors import Conflict, InvalidFields
from hourhand.model.outcome import Succeeded
from hourhand.operations.calendars import CalendarOperations, CalendarRequest, WeeklyRequest
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.previews import PreviewOperations, PreviewRequest
from hourhand.operations.requests import Caller, JobFilter, JobPatch, JobRequest
from hourhand.ports.event_bus import EventBus
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store

CALLER = Caller("ada", NAMESPACE, "default")
WEEKEND = CalendarRequest(weekly=[WeeklyRequest(day="SAT-SUN")])


async def nothing(task: Any) -> Succeeded:
    return Succeeded(None)


@pytest.fixture
async def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def jobs(store: Store, clock: SetClock) -> JobOperations:
    return JobOperations(
        store.jobs, store.submissions, store.runs, {"number": cast("Any", FunctionKind(nothing))}, clock, IdSource(3),
        cast("EventBus", NotedBus()), SubmitSettings(), store.calendars,
    )  # fmt: skip


@pytest.fixture
async def calendars(store: Store, clock: SetClock) -> CalendarOperations:
    return CalendarOperations(store.calendars, clock)


def daily(**more: Any) -> JobRequest:
    fields = {"name": "daily", "kind": "number", "schedule": {"cron": "0 9 * * *"}, "calendars": ["weekend"]} | more
    return JobRequest(**fields)


def codes(error: pytest.ExceptionInfo[InvalidFields]) -> dict[str, str]:
    return {fault.pointer: fault.code for fault in error.value.faults}


async def test_a_calendar_that_does_not_exist_is_refused_with_a_suggestion(
    jobs: JobOperations, calendars: CalendarOperations
) -> None:
    await calendars.put(CALLER, "weekends", WEEKEND)
    with pytest.raises(InvalidFields) as refused:
        await jobs.create(CALLER, daily())
    assert codes(refused) == {"/calendars/0": "unknown-calendar"}
    assert refused.value.faults[0].hint == "did you mean weekends?"
    with pytest.raises(InvalidFields) as refused:
        await jobs.create_many(CALLER, [daily(calendars=None), daily(calendars=["weekends", "x"])])
    assert codes(refused) == {"/1/calendars/1": "unknown-calendar"}


async def test_calendars_that_do_not_exist_are_told_together_with_what_else_is_wrong(jobs: JobOperations) -> None:
    with pytest.raises(InvalidFields) as refused:
        await jobs.create(CALLER, daily(zone="Europe/Berln"))
    assert codes(refused) == {"/zone": "unknown-timezone", "/calendars/0": "unknown-calendar"}
    job = (await jobs.create(CALLER, daily(calendars=None))).job
    with pytest.raises(InvalidFields) as refused:
        await jobs.update(CALLER, job.job_id, JobPatch(zone="Europe/Berln", calendars=["nope"]))
    assert codes(refused) == {"/zone": "unknown-timezone", "/calendars/0": "unknown-calendar"}


async def test_a_schedule_of_which_calendars_leave_nothing_is_refused(
    jobs: JobOperations, calendars: CalendarOperations
) -> None:
    await calendars.put(CALLER, "weekend", WEEKEND)
    with pytest.raises(InvalidFields) as refused:
        await jobs.create(CALLER, daily(schedule={"cron": "0 9 * * SAT"}))
    assert codes(refused) == {"/calendars": "schedule-never-fires"}


async def test_a_change_that_leaves_nothing_of_a_job_is_refused_and_names_it(
    jobs: JobOperations, calendars: CalendarOperations
) -> None:
    await calendars.put(CALLER, "weekend", WEEKEND)
    await calendars.put(CALLER, "days", CalendarRequest(dates=["2040-01-01"]))
    both = (await jobs.create(CALLER, daily(name="both", calendars=["weekend", "days"]))).job
    for change in (
        CalendarRequest(weekly=[WeeklyRequest(day="MON-SUN")]),
        CalendarRequest(weekly=[WeeklyRequest(day="MON-FRI")]),
    ):
        with pytest.raises(InvalidFields) as refused:
            await calendars.put(CALLER, "days", change)
        assert codes(refused) == {"": "schedule-never-fires"}
        assert f"both ({both.job_id})" in refused.value.faults[0].message
    assert (await calendars.get(CALLER, "days")).version == 1
    await calendars.put(CALLER, "days", CalendarRequest(weekly=[WeeklyRequest(day="MON-THU")]))
    await jobs.cancel(CALLER, both.job_id)
    await calendars.put(CALLER, "days", CalendarRequest(weekly=[WeeklyRequest(day="MON-SUN")]))


async def test_a_change_that_leaves_perhaps_nothing_of_a_job_is_refused_and_says_how_far_was_looked(
    jobs: JobOperations, calendars: CalendarOperations
) -> None:
    await calendars.put(CALLER, "quiet", CalendarRequest(dates=["2040-01-01"]))
    slow = {"every": "86399s", "anchor": "2030-01-01T09:00:00Z"}
    await jobs.create(CALLER, daily(schedule=slow, calendars=["quiet"]))
    almost_all = [WeeklyRequest(day="MON-SUN", begin="00:01", end="00:00")]
    with pytest.raises(InvalidFields) as refused:
        await calendars.put(CALLER, "quiet", CalendarRequest(weekly=almost_all))

    [fault] = refused.value.faults
    assert fault.code == "schedule-too-rare"
    assert "leave out every due time up to 20" in fault.message


async def test_the_next_times_of_a_job_are_those_that_its_calendars_leave(
    jobs: JobOperations, calendars: CalendarOperations, clock: SetClock
) -> None:
    await calendars.put(CALLER, "weekend", WEEKEND)
    made = (await jobs.create(CALLER, daily())).job
    friday = datetime(2030, 1, 11, 12, tzinfo=UTC)
    clock.time = friday
    assert [due.day for due in await jobs.next_times(CALLER, made.job_id, 3)] == [14, 15, 16]
    await calendars.put(CALLER, "weekend", CalendarRequest(weekly=[WeeklyRequest(day="SUN")]))
    assert [due.day for due in await jobs.next_times(CALLER, made.job_id, 3)] == [12, 14, 15]


async def test_the_next_due_time_that_is_shown_is_one_that_the_calendars_leave(
    jobs: JobOperations, calendars: CalendarOperations
) -> None:
    await calendars.put(CALLER, "weekend", CalendarRequest(dates=["2030-01-08"]))
    skipping = (await jobs.create(CALLER, daily())).job
    moving = (await jobs.create(CALLER, daily(on_excluded="next_allowed"))).job
    assert skipping.next_due == datetime(2030, 1, 9, 9, tzinfo=UTC)
    assert moving.next_due == datetime(2030, 1, 9, 0, tzinfo=UTC)
    assert (await jobs.get(CALLER, skipping.job_id)).next_due == skipping.next_due
    listed = (await jobs.list(CALLER, JobFilter(), None, 10)).jobs
    assert {job.next_due for job in listed} == {skipping.next_due, moving.next_due}


async def test_a_change_gives_and_takes_calendars(
    store: Store, jobs: JobOperations, calendars: CalendarOperations
) -> None:
    await calendars.put(CALLER, "weekend", WEEKEND)
    made = (await jobs.create(CALLER, daily(calendars=None))).job
    with pytest.raises(InvalidFields):
        await jobs.update(CALLER, made.job_id, JobPatch(calendars=["nobody"]))
    changed = await jobs.update(CALLER, made.job_id, JobPatch(calendars=["weekend"], on_excluded="next_allowed"))
    assert changed.job.definition.timing.calendars == ("weekend",)
    assert len(await rows(store, "calendar_jobs")) == 1
    with pytest.raises(Conflict) as refused:
        await calendars.delete(CALLER, "weekend")
    assert refused.value.code == "calendar-in-use"
    renamed = await jobs.update(CALLER, made.job_id, JobPatch(name="other"))
    assert renamed.job.definition.timing.calendars == ("weekend",)
    await jobs.update(CALLER, made.job_id, JobPatch(calendars=None))
    assert await rows(store, "calendar_jobs") == []
    await calendars.delete(CALLER, "weekend")


async def test_budget_and_jitter_are_given_back_as_they_were_sent_and_can_be_taken_away(jobs: JobOperations) -> None:
    made = (await jobs.create(CALLER, daily(calendars=None, max_runs=5, jitter="10m"))).job
    read = await jobs.get(CALLER, made.job_id)
    assert (read.definition.timing.max_runs, read.definition.timing.jitter) == (5, timedelta(minutes=10))
    assert len(await jobs.next_times(CALLER, made.job_id, 100)) == 5
    changed = (await jobs.update(CALLER, made.job_id, JobPatch(max_runs=None, jitter=None))).job
    assert (changed.definition.timing.max_runs, changed.definition.timing.jitter) == (None, None)
    assert not changed.definition.timing.is_apart


async def test_a_job_due_after_completion_shows_the_due_time_that_is_set(jobs: JobOperations, clock: SetClock) -> None:
    request = daily(calendars=None, schedule={"every": "10m", "after": "completion"})
    made = (await jobs.create(CALLER, request)).job
    due = START + timedelta(minutes=10)
    assert await jobs.next_times(CALLER, made.job_id, 5) == [due]
    assert (await jobs.get(CALLER, made.job_id)).next_due == due
    paused = await jobs.pause(CALLER, made.job_id, None)
    assert paused.job.next_due is None
    clock.time = START + timedelta(hours=1)
    resumed = await jobs.resume(CALLER, made.job_id)
    assert resumed.job.next_due == clock.time + timedelta(minutes=10)


async def test_a_preview_sees_the_calendars_of_the_namespace(
    store: Store, calendars: CalendarOperations, clock: SetClock
) -> None:
    await calendars.put(CALLER, "weekend", WEEKEND)
    previews = PreviewOperations(store.calendars, clock)
    request = PreviewRequest(schedules=[{"daily": "09:00"}], calendars=["weekend"], count="6")
    _, found = await previews.preview(CALLER, request)
    assert [time.day for time in found.times] == [8, 9, 10, 11, 14, 15]
    with pytest.raises(InvalidFields) as refused:
        await previews.preview(Caller("eve", NAMESPACE + 1, "other"), request)
    assert codes(refused) == {"/calendar": "unknown-calendar"}


async def test_a_calendar_deleted_the_very_moment_a_job_is_stored_is_a_conflict(
    store: Store, jobs: JobOperations
) -> None:
    rule = read_calendar(weekly=[{"day": "SAT-SUN"}])

    class Forgetful:
        """Says that a calendar is there which is gone by the time the job is stored."""

        async def find(self, namespace_id: int, names: Any) -> Any:
            return dict.fromkeys(names, rule)

    jobs._references._calendars = cast("Any", Forgetful())
    with pytest.raises(Conflict):
        await jobs.create(CALLER, daily())
    assert await rows(store, "jobs") == []
