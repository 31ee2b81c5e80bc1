"""When jobs run next, as it is shown: around what their calendars leave out, beside the loop and within bounds.

A cursor visits every due time, also those that calendars leave out; what is shown is the next one that they allow. To
find it may mean to go through years of days, so a page of jobs has so many steps together, and what is not found
within them is not shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from hourhand.model.calendar import CalendarRule
from hourhand.model.exclusion import SEARCH_STEPS_MAX, TimingAround, TooRare, around
from hourhand.model.job import Job
from hourhand.model.local_time import ZoneFault
from hourhand.model.schedule import CronSchedule, Every, Timing
from hourhand.model.steps import Steps, TooManySteps
from hourhand.ports.calendar_stores import CalendarStore
from hourhand.runtime.aside import Aside

PAGE_STEPS_MAX: Final = 2 * SEARCH_STEPS_MAX
"""What is looked at for one page of jobs."""
TIMES_STEPS_MAX: Final = 20_000
"""What is looked at in vain for the next times of one job."""
_QUICK: Final = 10
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class NextRuns:
    def __init__(self, calendars: CalendarStore | None) -> None:
        self._calendars = calendars
        self._aside = Aside()

    async def shown(self, namespace_id: int, jobs: Sequence[Job]) -> list[Job]:
        """With the next due time that their calendars leave; none where it is too far ahead to be found."""
        names = {name for job in jobs for name in job.definition.timing.calendars}
        if not names or self._calendars is None:
            return list(jobs)
        rules = await self._calendars.find(namespace_id, sorted(names))
        return await self._aside.run(lambda: _shown(jobs, rules))

    async def times(self, namespace_id: int, timing: Timing, after: datetime, count: int) -> Sequence[datetime]:
        """The next due times that are found, at most so many."""
        if timing.calendars and self._calendars is not None:
            timing = around(timing, await self._calendars.find(namespace_id, timing.calendars))
        if count <= _QUICK and _is_plain(timing):
            return timing.due_between(after, _NEVER, count)
        return await self._aside.run(lambda: _times(timing, after, count))


def _is_plain(timing: Timing) -> bool:
    """Whether one due time after the other is found in no time."""
    [first, *others] = timing.schedules
    return not others and not timing.calendars and isinstance(first, CronSchedule | Every)


def _shown(jobs: Sequence[Job], rules: Mapping[str, CalendarRule]) -> list[Job]:
    steps = Steps(PAGE_STEPS_MAX)
    return [_with_next_run(job, rules, steps) for job in jobs]


def _with_next_run(job: Job, rules: Mapping[str, CalendarRule], steps: Steps) -> Job:
    timing = around(job.definition.timing, rules)
    if job.next_due is None or not isinstance(timing, TimingAround):
        return job
    try:
        return replace(job, next_due=timing.next_run(job.next_due, steps))
    except TooRare:
        return replace(job, next_due=None)
    except ZoneFault:
        return job


def _times(timing: Timing, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    next_after = timing.walker(Steps(TIMES_STEPS_MAX + count))
    try:
        while len(found) < count and (due := next_after(found[-1] if found else after)) is not None:
            found.append(due)
    except TooManySteps:
        pass  # as many as were found
    return found
