"""Moves the cursors of jobs of which there is more to say than when they fall due.

A budget of runs, starts spread by a jitter, calendars that leave due times out, and due times that only the end of the
run before can set. All of it is decided here from what the store has read; plain jobs do not come this way.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from hourhand.model.catchup import PauseSpan
from hourhand.model.jitter import starts_of
from hourhand.model.planning import plan_job
from hourhand.ports.stores import Cursor, Move


def move_apart(cursor: Cursor, now: datetime, horizon: timedelta, pauses: Sequence[PauseSpan] = ()) -> Move:
    """What becomes of the cursor of such a job."""
    planned = plan_job(cursor.timing, cursor.next_fire, now, horizon, cursor.catchup, pauses, cursor.runs_left)
    starts = starts_of(planned.fires, planned.next_due, cursor.timing.jitter, cursor.job_id)
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
