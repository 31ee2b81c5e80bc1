"""Counts due times without walking over them: how many lie in a stretch of time, which is the last, which the newest.

After three days of silence a job of every minute has missed 4,320 due times, and a million such jobs must not be walked
over one by one. Intervals are counted by division; cron expressions by their bit sets, day by day and month by month,
and due time by due time only around the hours in which clocks are set. Everything else is walked over, up to a bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from hourhand.model.cron import Cron, Days
from hourhand.model.local_time import jump_between, load_zone
from hourhand.model.schedule import CronSchedule, Every, Timing

_TICK: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)

_NEAR: Final = timedelta(seconds=2)
"""How far before the end of a stretch its last due time is looked for first."""

WALK_MAX: Final = 2000
"""Due times that are walked over in one go where they cannot be counted."""
_TRIES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive due times."""

    first: datetime
    last: datetime
    count: int
    next_due: datetime | None
    """The due time that follows."""


def stretch(timing: Timing, first: datetime, before: datetime, walk_max: int | None = None) -> Stretch:
    """The due times from `first`, which is one and earlier than `before`, up to the last one earlier than that. Where
    they must be walked over it ends after `walk_max` of them."""
    counted = count_quickly(timing, first, before)
    if counted is None:
        return _walked(timing, first, before, WALK_MAX if walk_max is None else walk_max)
    last = last_before(timing, first, before)
    return Stretch(first, last, counted, timing.next_after(last))


def last_before(timing: Timing, known: datetime, before: datetime) -> datetime:
    """The last due time earlier than `before`; `known` is one. Looked for near the end first, then found by halving."""
    low, high = known, before - _TICK
    back = _NEAR
    while before - back > known:
        due = timing.next_after(before - back)
        if due is not None and due < before:
            low = due
            break
        high, back = before - back, back * 8
    while low < high:
        middle = low + (high - low) / 2
        due = timing.next_after(middle)
        if due is None or due >= before:
            following = timing.next_after(low)
            if following is None or following >= before:
                return low
            low, high = following, middle
        else:
            low = due
    return low


def newest_before(timing: Timing, since: datetime, before: datetime, most: int) -> list[datetime]:
    """The newest due times of [since, before), in order, at most so many. They are looked for from the end, in
    stretches that grow until they hold enough and are left when they hold far more: a few times `most` steps."""
    if most <= 0 or since >= before:
        return []
    enough, whole = 2 * most + 16, before - since
    few = timedelta(0)  # so far back there are too few
    many: timedelta | None = None  # and so far more than enough
    back = min(timedelta(seconds=1), whole)
    found: list[datetime] = []
    for _ in range(_TRIES_MAX):
        first = timing.next_after(before - back - _TICK)
        found = list(islice(_walk(timing, first, before - _TICK), enough + 1))
        if len(found) > enough:
            many = back
            back = few + (many - few) / 2
            continue
        if len(found) >= most or back >= whole:
            break
        few = back
        wider = back * max(1.25, min(1.25 * most / max(len(found), 1), 64.0))
        back = min(wider, whole) if many is None else min(wider, few + (many - few) / 2)
    return found[-most:]


def count_quickly(timing: Timing, first: datetime, before: datetime) -> int | None:
    """How many due times lie in [first, before); None where they would have to be walked over. `first` is one."""
    if len(timing.schedules) != 1 or type(timing) is not Timing:  # one with calendars leaves out due times
        return None
    if timing.end_at is not None:
        before = min(before, timing.end_at + _TICK)
    schedule = timing.schedules[0]
    if not isinstance(schedule, Every | CronSchedule):
        return None
    if before <= first:
        return 0
    if isinstance(schedule, Every):
        return (before - first - _TICK) // schedule.interval + 1
    return _count_cron(timing, Cron.parse(schedule.text, schedule.seed), first, before)


def _walk(timing: Timing, first: datetime | None, last: datetime) -> Iterator[datetime]:
    due = first
    while due is not None and due <= last:
        yield due
        due = timing.next_after(due)


def _walked(timing: Timing, first: datetime, before: datetime, most: int) -> Stretch:
    last, count, due = first, 1, timing.next_after(first)
    while due is not None and due < before and count < most:
        last, count, due = due, count + 1, timing.next_after(due)
    return Stretch(first, last, count, due)


# --- cron -------------------------------------------------------------------------------------------------


def _count_cron(timing: Timing, cron: Cron, first: datetime, before: datetime) -> int:
    """Between two settings of the clocks local times run along with real time, so counting those is enough. What the
    choices for daylight saving do, they do within the length of the jump on either side of it."""
    if timing.zone == "UTC":
        return count_local(cron, first.replace(tzinfo=None), before.replace(tzinfo=None))
    zone = load_zone(timing.zone)
    total, begin = 0, first
    for jump, length in _jumps(zone, first, before):
        near, far = max(jump - length, begin), min(jump + length, before)
        if near >= before or far <= begin:
            continue
        total += _count_steady(cron, zone, begin, near)
        due = timing.next_after(near - _TICK)
        while due is not None and due < far:
            total, due = total + 1, timing.next_after(due)
        begin = far
    return total + _count_steady(cron, zone, begin, before)


def _count_steady(cron: Cron, zone: ZoneInfo, begin: datetime, before: datetime) -> int:
    if begin >= before:
        return 0
    offset = begin.astimezone(zone).utcoffset()
    assert offset is not None
    return count_local(cron, (begin + offset).replace(tzinfo=None), (before + offset).replace(tzinfo=None))


def _jumps(zone: ZoneInfo, begin: datetime, before: datetime) -> Iterator[tuple[datetime, timedelta]]:
    """Where the zone's clocks are set, and how far around it anything is unusual."""
    for ordinal in range((begin - 2 * _DAY).toordinal(), (before + 2 * _DAY).toordinal() + 1):
        found = jump_on(zone, ordinal)
        if found is not None:
            jump, by = found
            yield jump, abs(by) + _HOUR


@lru_cache(maxsize=16_384)
def jump_on(zone: ZoneInfo, ordinal: int) -> tuple[datetime, timedelta] | None:
    """The instant of that day, by UTC, at which the zone's clocks are set, and by how much; None on all other days."""
    day = datetime.fromordinal(ordinal).replace(tzinfo=UTC)
    before, behind = day.astimezone(zone).utcoffset(), (day + _DAY).astimezone(zone).utcoffset()
    assert before is not None
    assert behind is not None
    return None if before == behind else (jump_between(day, day + _DAY, zone), behind - before)


def count_local(cron: Cron, begin: datetime, before: datetime) -> int:
    """How many local times in [begin, before) match."""
    if before <= begin:
        return 0
    if begin.date() == before.date():
        return (_times_before(cron, before) - _times_before(cron, begin)) if _is_day(cron, begin) else 0
    each = cron.hours.bit_count() * cron.minutes.bit_count() * cron.seconds.bit_count()
    total = (each - _times_before(cron, begin)) if _is_day(cron, begin) else 0
    total += _times_before(cron, before) if _is_day(cron, before) else 0
    return total + each * _days_between(cron, begin.date() + _DAY, before.date())


def _days_between(cron: Cron, begin: date, before: date) -> int:
    total = 0
    while begin < before:
        following = date(begin.year + begin.month // 12, begin.month % 12 + 1, 1)
        mask = _days_of(cron, begin.year, begin.month) >> begin.day
        if before < following:
            mask &= (1 << before.day - begin.day) - 1
        total += mask.bit_count()
        begin = following
    return total


def _is_day(cron: Cron, local: datetime) -> bool:
    return bool(_days_of(cron, local.year, local.month) >> local.day & 1)


def _days_of(cron: Cron, year: int, month: int) -> int:
    """Bit n is set where day n of the month matches."""
    return _mask(cron.days, year, month) if cron.months >> month & 1 else 0


@lru_cache(maxsize=4096)
def _mask(days: Days, year: int, month: int) -> int:
    first, following = date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)
    return days.mask((first.isoweekday() % 7, (following - first).days))


def _times_before(cron: Cron, local: datetime) -> int:
    """How many matching times of day are earlier than the clock time."""
    second = local.second + (1 if local.microsecond else 0)
    minutes, seconds = cron.minutes.bit_count(), cron.seconds.bit_count()
    total = _below(cron.hours, local.hour) * minutes * seconds
    if cron.hours >> local.hour & 1:
        total += _below(cron.minutes, local.minute) * seconds
        if cron.minutes >> local.minute & 1:
            total += _below(cron.seconds, second)
    return total


def _below(bits: int, value: int) -> int:
    return (bits & ((1 << value) - 1)).bit_count()
