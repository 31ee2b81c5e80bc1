"""Plans any job: also those of which there is more to say than when they fall due.

Calendars that leave due times out, a budget of runs, due times that only the end of the run before can set. Plain jobs
need none of it: a planner in a hurry asks `catchup.plan` for them at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace as with_fields

from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange, PauseSpan, Plan, least, plan
from hourhand.model.exclusion import TimingAround, plan_around
from hourhand.model.schedule import Timing
from hourhand.model.states import Reason

OVERDUE_PLANS_MAX: Final = 200
"""How often `overdue` goes on where due times must be walked over."""
_TICK: Final = timedelta(microseconds=1)


def plan_job(
    timing: Timing,
    cursor: datetime,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    pauses: Sequence[PauseSpan] = (),
    runs_left: int | None = None,
) -> Plan:
    """As `catchup.plan`, from wherever the cursor stands: perhaps at no due time, where a job rests that could not be
    planned, or where one waits for the end of what a calendar leaves out."""
    return within(runs_left, _planned(timing, cursor, now, horizon, policy, pauses))


def _planned(
    timing: Timing,
    cursor: datetime,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    pauses: Sequence[PauseSpan],
) -> Plan:
    if timing.after_completion is not None:
        return _after_completion(cursor, now, pauses)
    if isinstance(timing, TimingAround):
        return plan_around(timing, cursor, now, horizon, policy, pauses)
    due = timing.next_after(cursor - _TICK)
    return Plan([], [], None) if due is None else plan(timing, due, now, horizon, policy, pauses=pauses)


def _after_completion(cursor: datetime, now: datetime, pauses: Sequence[PauseSpan]) -> Plan:
    """However late: one run, whose end sets what follows. A due time of a pause is moved to the pause's end: without
    any run nothing would follow."""
    spans = [span for span in pauses if span.covers(cursor)]
    ends = [span.end for span in spans if span.end is not None]
    if len(ends) < len(spans) or any(end > now for end in ends):
        return Plan([], [], cursor)
    over = least(spans)
    if over is None or over.catch_up is not CatchUp.NONE:
        return Plan([cursor], [], None)
    return Plan([], [MissedRange(cursor, cursor, 1, Reason.PAUSED, max(ends), over.detail)], max(ends))


def within(runs_left: int | None, planned: Plan) -> Plan:
    """Cut to the runs that are left; with the last of them the schedule ends."""
    if runs_left is None or len(planned.fires) < runs_left:
        return planned
    fires = planned.fires[:runs_left]
    missed = [gap for gap in planned.missed if not fires or gap.first < fires[-1]]
    return with_fields(planned, fires=fires, missed=missed, next_due=None)


def overdue(
    timing: Timing,
    cursor: datetime,
    now: datetime,
    policy: CatchUpPolicy,
    pauses: Sequence[PauseSpan] = (),
    *,
    keep_held: bool = False,
    plans_max: int | None = None,
) -> Plan | None:
    """The same for a job that is about to be changed: all from the cursor up to now, also of pauses that are not over;
    with `keep_held` it stops at the first due time of one, with `plans_max` after so many plans. None when there is too
    much of it to be told at once."""
    spans = pauses if keep_held else [replace(span, end=min(span.end or now + _TICK, now + _TICK)) for span in pauses]
    fires: list[datetime] = []
    missed: list[MissedRange] = []
    due: datetime | None = cursor
    for _ in range(OVERDUE_PLANS_MAX if plans_max is None else plans_max):
        if due is None or due > now:
            return Plan(fires, missed, due)
        part = plan_job(timing, due, now + _TICK, -_TICK, policy, spans)
        if part == Plan([], [], due):  # held
            return Plan(fires, missed, due)
        fires, missed, due = fires + part.fires, missed + part.missed, part.next_due
    return None if plans_max is None else Plan(fires, missed, due)
