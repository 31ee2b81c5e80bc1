"""Jobs that cannot be planned: each is put aside alone, told of, and tried again later.

A zone that the tz data no longer has, a calendar or a schedule that brings the planner to fall: whatever is wrong with
one job must not hold up everybody else's. Its cursor rests, longer with each time that it fails, and then goes on at
its own due times. Those that pass meanwhile are in the ledger, where they can be counted.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hourhand.model.catchup import MissedRange
from hourhand.model.counting import stretch
from hourhand.model.exclusion import TimingAround
from hourhand.model.local_time import ZoneFault
from hourhand.model.states import Reason
from hourhand.ports.stores import Cursor, Move
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

REST_MAX: Final = timedelta(minutes=10)
"""How long it rests at most; also after a zone that nobody knows, which does not come back by itself."""
_REST_MIN: Final = timedelta(seconds=10)
_JOBS_MAX: Final = 10_000
"""Jobs of which is remembered how often they failed."""
_TOLD_MAX: Final = 200
"""Due times that are walked over to count them."""
_DETAIL_LENGTH_MAX: Final = 200
_TICK: Final = timedelta(microseconds=1)


class Unplannable:
    def __init__(self) -> None:
        self._failures: dict[UUID, tuple[int, datetime]] = {}
        """How often in a row, and until when it rests."""

    def put_aside(self, cursor: Cursor, fault: Exception, now: datetime) -> Move:
        """The step of a cursor whose job could not be planned."""
        if isinstance(fault, ZoneFault):
            error, rest = str(fault), REST_MAX
            emit(Event.JOB_UNPLANNABLE, job_id=str(cursor.job_id), error=error)
        else:
            error, rest = f"{type(fault).__name__}: {fault}", self._rest_of(cursor.job_id, now)
            emit(Event.JOB_UNPLANNABLE, job_id=str(cursor.job_id), error=error, exc_info=fault)
        told = _told(cursor, now + rest, f"it could not be planned: {error}"[:_DETAIL_LENGTH_MAX])
        return Move(cursor.job_id, cursor.next_fire, cursor.version, (), told, now + rest, is_apart=cursor.is_apart)

    def _rest_of(self, job_id: UUID, now: datetime) -> timedelta:
        """Longer each time, unless it went well since: then the last failure is longer ago than its rest."""
        if len(self._failures) >= _JOBS_MAX:
            self._failures.clear()
        before, until = self._failures.get(job_id, (0, now))
        if now > until + REST_MAX:
            before = 0
        rest = min(_REST_MIN * (1 << min(before, 10)), REST_MAX)
        self._failures[job_id] = before + 1, now + rest
        return rest


def _told(cursor: Cursor, until: datetime, detail: str) -> Sequence[MissedRange]:
    """The due times up to the end of the rest, as far as they can be counted: perhaps that is what fails."""
    try:
        timing = cursor.timing.without_calendars if isinstance(cursor.timing, TimingAround) else cursor.timing
        if timing.after_completion is not None:
            return ()
        first = timing.next_after(cursor.next_fire - _TICK)
        if first is None or first >= until:
            return ()
        found = stretch(timing, first, until, _TOLD_MAX)
    except Exception:  # it is told by the log
        return ()
    return [MissedRange(found.first, found.last, found.count, Reason.UNPLANNABLE, found.next_due, detail)]
