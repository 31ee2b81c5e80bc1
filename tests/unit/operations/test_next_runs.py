"""When jobs run next is shown around their calendars, beside the loop and within bounds."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any, cast
from uuid import UUID

import pytest

from hourhand.model.calendar import CalendarRule
from hourhand.model.calendar_form import read_calendar
from hourhand.model.exclusion import TimingAround
from hourhand.model.job import Job, JobDefinition
from hourhand.model.schedule import Timing
from hourhand.model.schedule_form import parse_timing
from hourhand.model.states import JobState
from hourhand.operations.next_runs import NextRuns

NOW = datetime(2026, 3, 2, tzinfo=UTC)
ALMOST_ALL_DAY = read_calendar(weekly=[{"day": "MON-SUN", "from": "00:01", "to": "00:00"}])


class Calendars:
    def __init__(self, rule: CalendarRule) -> None:
        self._rule = rule

    async def find(self, namespace_id: int, names: Sequence[str]) -> dict[str, CalendarRule]:
        return dict.fromkeys(names, self._rule)


def timing_of(schedule: dict[str, Any], calendars: Sequence[str] = ("x",)) -> Timing:
    return parse_timing(schedule, now=NOW, seed=0, calendars=calendars)


def job_of(timing: Timing) -> Job:
    definition = cast("JobDefinition", type("Defined", (), {"timing": timing})())
    cursor = timing.next_after(NOW)
    return Job(UUID(int=1), "default", definition, 1, JobState.SCHEDULED, cursor, NOW, "ada", NOW)


def next_runs(rule: CalendarRule) -> NextRuns:
    return NextRuns(cast("Any", Calendars(rule)))


async def test_the_loop_goes_on_while_it_is_looked_for_when_the_jobs_of_a_page_run_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = threading.Event()
    really = TimingAround.next_run

    def slowly(*given: Any) -> datetime | None:
        assert may_end.wait(5), "the loop stood still"
        return really(*given)

    monkeypatch.setattr(TimingAround, "next_run", slowly)
    monday = read_calendar(weekly=[{"day": "MON"}])
    showing = asyncio.ensure_future(next_runs(monday).shown(1, [job_of(timing_of({"cron": "0 9 * * *"}))]))
    await asyncio.sleep(0.01)
    may_end.set()
    [shown] = await showing
    assert shown.next_due == NOW + timedelta(days=1, hours=9)


async def test_a_page_of_five_hundred_schedules_of_which_next_to_nothing_is_left_takes_no_longer_than_a_few() -> None:
    # Each creeps by a second a day towards the one minute that is left.
    timings = [
        timing_of({"every": "86399s", "anchor": f"2026-03-02T09:{each // 60:02d}:{each % 60:02d}Z"})
        for each in range(500)
    ]
    began = perf_counter()
    shown = await next_runs(ALMOST_ALL_DAY).shown(1, [job_of(timing) for timing in timings])
    assert perf_counter() - began < 10
    assert all(job.next_due is None for job in shown[2:])


async def test_jobs_without_calendars_are_shown_as_they_are() -> None:
    jobs = [job_of(timing_of({"cron": "0 9 * * *"}, ()))]
    assert await NextRuns(None).shown(1, jobs) == jobs
    assert await next_runs(ALMOST_ALL_DAY).shown(1, jobs) == jobs


async def test_the_next_times_of_a_job_are_as_many_as_are_found_within_bounds() -> None:
    slow = timing_of({"every": "86399s", "anchor": "2026-03-02T00:00:58Z"})
    times = await next_runs(ALMOST_ALL_DAY).times(1, slow, NOW, 500)
    assert len(times) == 59
    assert times[-1].time().isoformat() == "00:00:00"


async def test_the_next_times_of_a_rule_are_all_that_were_asked_for() -> None:
    rule = timing_of({"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "first": "2026-03-02T09:00:00"}, ())
    assert len(await NextRuns(None).times(1, rule, NOW, 500)) == 500
    plain = timing_of({"cron": "0 9 * * *"}, ())
    assert await NextRuns(None).times(1, plain, NOW, 2) == [NOW + timedelta(hours=9), NOW + timedelta(days=1, hours=9)]
