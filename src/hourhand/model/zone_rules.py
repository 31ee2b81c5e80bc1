"""What a time zone's rules come to, so that two editions of the tz data can be compared zone by zone.

A digest says when the clock of a zone is set and to what, from 2020 to 2050: that is what due times follow from. Names
of zones and abbreviations do not count, nor how the data is written down: two machines whose clocks agree have the same
digests. And where a job goes on when its zone has got other rules.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import compress, count, islice
from operator import ne
from typing import Final
from zoneinfo import ZoneInfo

from hourhand.model.exclusion import TimingAround
from hourhand.model.local_time import jump_between
from hourhand.model.schedule import Timing

_FIRST: Final = datetime(2020, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(2050, 1, 1, tzinfo=UTC)
_STEP: Final = timedelta(days=6)
_STEPS: Final = [_FIRST + number * _STEP for number in range((_LAST - _FIRST) // _STEP + 1)]
_LOCAL_STEPS: Final = [step.replace(tzinfo=None) for step in _STEPS]

SHIFT_MAX: Final = timedelta(hours=26)
"""How far a due time can move with the rules: from one end of the world's clocks to the other."""
_LOOKS_MAX: Final = 500
_ALIKE_MAX: Final = 4
_SECOND: Final = timedelta(seconds=1)
_TICK: Final = timedelta(microseconds=1)


def rules_digest(zone: ZoneInfo) -> str:
    """The same for zones whose clocks show the same from 2020 to 2050."""
    digest = blake2b(digest_size=16)
    for at, offset in _changes(zone):
        digest.update(f"{at.timestamp():.0f} {offset.total_seconds():.0f}\n".encode())
    return digest.hexdigest()


def _changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta]]:
    """When the clock is set, and the offset from then on; first the one at the beginning."""
    before = _offset(_FIRST, zone)
    yield _FIRST, before
    for step in _steps_near_changes(zone):
        offset = _offset(step, zone)
        if offset != before:  # found between two looks; no zone sets its clock and sets it back within a week
            yield _jump_before(step, before, offset, zone), offset
            before = offset


def _jump_before(step: datetime, before: timedelta, after: timedelta, zone: ZoneInfo) -> datetime:
    """When the clock is set within the step. Most zones do as others do: that takes two looks instead of twenty."""
    alike = _jumps_found(step, before, after)
    for at in alike:
        if _offset(at, zone) == after and _offset(at - _SECOND, zone) == before:
            return at
    found = jump_between(step - _STEP, step, zone)
    if len(alike) < _ALIKE_MAX:
        alike.append(found)
    return found


@lru_cache(maxsize=4096)
def _jumps_found(step: datetime, before: timedelta, after: timedelta) -> list[datetime]:
    """Where zones were found to jump so, for the next zone to try."""
    return []


def _steps_near_changes(zone: ZoneInfo) -> Iterator[datetime]:
    """Those before which the clock may have been set. To ask by local times takes a tenth of the time; they are off by
    less than a step, so the steps on both sides of a change are among them too."""
    local = list(map(zone.utcoffset, _LOCAL_STEPS))
    changed = compress(count(1), map(ne, local, islice(local, 1, None)))  # a million looks: none of them in Python
    near = {place + beside for place in changed for beside in (-1, 0, 1)}
    return (_STEPS[place] for place in sorted(near) if 0 < place < len(_STEPS))


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def replanned(timing: Timing, next_fire: datetime, dealt_with: datetime | None) -> datetime | None:
    """Where the cursor of a job goes whose zone has got other rules; None when it stays where it is.

    The due time that it stood for has moved with the clock: it is the one nearest to where it was. That may lie in the
    past, if the news came late; then it is late, and the job's catch-up decides. One that was dealt with before is not
    repeated at its new time. Due times strictly increase: nothing goes back behind what is `dealt_with`. A job that
    waits for the end of what a calendar leaves out waits on, for that end by the new rules.
    """
    # What is written as a text, cron or a rule, goes by the local clock; instants and intervals do not.
    if not any(hasattr(schedule, "text") for schedule in timing.schedules):
        return None
    if isinstance(timing, TimingAround):
        due = replanned(timing.without_calendars, next_fire, dealt_with)
        waits = timing.allowed_from(dealt_with) if dealt_with is not None and timing.is_excluded(dealt_with) else None
        if waits is None or abs(waits - next_fire) >= abs((due or next_fire) - next_fire):
            return due
        return None if waits == next_fire else waits
    later = timing.next_after(next_fire - _TICK)
    if later == next_fire:
        return None
    earlier = _last_before(timing, next_fire, later)
    if earlier is None or (dealt_with is not None and earlier <= dealt_with):
        return later
    return earlier if later is None or next_fire - earlier < later - next_fire else later


def _last_before(timing: Timing, next_fire: datetime, later: datetime | None) -> datetime | None:
    """The last due time before the cursor, as far back as a clock may have been moved."""
    due = timing.next_after(next_fire - SHIFT_MAX)
    for _ in range(_LOOKS_MAX):
        if due is None or due == later:
            return None
        following = timing.next_after(due)
        if following == later:
            return due
        due = following
    return None  # so many of them that the next one is near
