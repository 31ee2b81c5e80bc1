"""Moves the cursors of jobs of which there is more to say than when they fall due.

A budget of runs, starts spread by a jitter, calendars that leave due times out, and due times that only the end of the
run before can set. All of it is decided here from what the store has read; plain jobs do not come this way.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hourhand.model.catchup import Plan, plan
from hourhand.model.exclusion import TimingAround, plan_around
from hourhand.model.jitter import starts_of
from hourhand.ports.stores import Cursor, Move

_TICK: Final = timedelta(microseconds=1)


def move_apart(cursor: Cursor, now: datetime, horizon: timedelta) -> Move:
    """What becomes of the cursor of such a job."""
    timing = cursor.timing
    planned = _within(cursor.runs_left, _planned(cursor, now, horizon))
    starts = starts_of(planned.fires, planned.next_due, timing.jitter, cursor.job_id)
    return Move(
        cursor.job_id,
        cursor.next_fire,
        cursor.version,
        planned.fires,
        planned.missed,
        planned.next_due,
        starts=starts,
        is_apart=True,
    )


def _planned(cursor: Cursor, now: datetime, horizon: timedelta) -> Plan:
    timing = cursor.timing
    if timing.after_completion is not None:  # however late: one run, whose end sets what follows
        return Plan([cursor.next_fire], [], None)
    if isinstance(timing, TimingAround):
        return plan_around(timing, cursor.next_fire, now, horizon, cursor.catchup)
    due = timing.next_after(cursor.next_fire - _TICK)
    return Plan([], [], None) if due is None else plan(timing, due, now, horizon, cursor.catchup)


def _within(runs_left: int | None, planned: Plan) -> Plan:
    """Cut to the runs that are left; with the last of them the schedule ends."""
    if runs_left is None or len(planned.fires) < runs_left:
        return planned
    fires = planned.fires[:runs_left]
    missed = [gap for gap in planned.missed if not fires or gap.first < fires[-1]]
    return replace(planned, fires=fires, missed=missed, next_due=None)
