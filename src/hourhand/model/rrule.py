"""Recurrence rules (RFC 5545), compiled once into bit sets: the days of a year, the times of a day.

Knows nothing of zones: `local_time` maps what comes out to instants, and `rrule_end` says where among those a rule
ends. Every walk is bounded by the years that are planned at all, and within them by days: how often a rule would
repeat within a day costs nothing.

Choices where the standard leaves some, or programs differ:
- Only times that the rule names are due. The first time is where counting begins; it is due if the rule names it.
- What the rule leaves out is taken from the first time: `FREQ=MONTHLY` from the 31st means months that have a 31st.
- `BYWEEKNO` without `BYDAY` means the weekday of the first time.
- Combinations that the standard forbids are refused, as are years of other calendars (RSCALE).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from math import gcd
from typing import Final, NamedTuple

from hourhand.model.local_time import YEAR_MAX
from hourhand.model.rrule_text import Frequency, Parts, RRuleFault, parse_parts
from hourhand.model.rrule_year import NO_DAYS, Year, alike, bits_of, nth_bit, phase_of, shape, union, year_of
from hourhand.model.steps import Steps

SEARCH_DAYS_MAX: Final = 1500
"""A rule is refused if its first time is not found within so many days that it names."""

_DAY_SECONDS: Final = 86_400
_STEP_TIMES_KEPT_MAX: Final = 1024
_YEAR_STEPS: Final = 4
_NEAR: Final = (1 << 900) - 1
_YEARS_KEPT_MAX: Final = 32
"""Of one rule. Most go by no more than 28 different ones, which come again and again."""
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class RRule:
    """One compiled rule. Equal texts with equal first times are equal."""

    parts: Parts
    first: datetime
    """A local time, in whole seconds; nothing is due before it."""
    last: datetime | None
    """Nothing is due after it."""
    _clock: "_Clock"
    _day_times: int
    """The times of every day, as seconds; not asked for with a frequency below a day."""
    _years: dict[tuple[int, int], Year] = field(compare=False, repr=False)
    """By the shape of a year, and by where in it the interval has come to."""

    @staticmethod
    def compile(text: str, first: datetime, last: datetime | None = None) -> "RRule":
        """`last` is a local time. Raises `RRuleFault`."""
        return _compile(text, first, last)

    @property
    def is_fixed_time(self) -> bool:
        """It names times of day instead of a cadence within the day."""
        return self.parts.frequency <= Frequency.DAILY

    def next_local(
        self, after: datetime, days_max: int | None = None, until: datetime | None = None
    ) -> datetime | None:
        """The first due local time strictly later than `after`; None beyond the last, and perhaps beyond `until`, later
        than which nobody asks for. With `days_max` no more days are looked at, and `RRuleFault` says that this was not
        enough."""
        start = max(after.replace(microsecond=0, fold=0) + _SECOND, self.first)
        if until is not None and until < start:
            return None
        for ordinal, seconds in self._days_from(start.date(), days_max, until=until):
            passed = _second_of(start) if ordinal == start.toordinal() else 0
            left = seconds >> passed
            if left:
                found = datetime.fromordinal(ordinal) + timedelta(seconds=passed + _lowest(left))
                return found if self.last is None or found <= self.last else None
        return None

    def walk(self, since: datetime, until: datetime, steps: Steps) -> Iterator[datetime]:
        """The due local times from one to another, both included. What COUNT leaves is counted on the way; each time,
        and each day and year that is looked at, is taken from the steps, also those that have none."""
        left = self.parts.count
        start = max(since, self.first) if left is None else self.first
        for ordinal, seconds in self._days_from(start.date(), None, steps):
            if ordinal > until.toordinal():
                return
            due = _from_time(seconds, start) if ordinal == start.toordinal() else seconds
            number = due.bit_count()
            chosen = number if left is None else min(number, left)
            if ordinal >= since.toordinal() and due:
                steps.take(number)
                for second in bits_of(due)[:chosen]:
                    found = datetime.fromordinal(ordinal) + timedelta(seconds=second)
                    if since <= found <= until and (self.last is None or found <= self.last):
                        yield found
            if left is not None:
                left -= chosen
                if not left:
                    return

    def count_local(self, begin: datetime, before: datetime, most: int, steps: Steps) -> int:
        """How many due times lie in [begin, before); where there are `most` or more, at least so many."""
        if self._is_even:
            return self._count_even(max(begin, self.first), before, steps)
        total, start = 0, max(begin, self.first)
        for ordinal, seconds in self._days_from(start.date(), None, steps):
            if total >= most or ordinal > before.toordinal():
                break
            left = _from_time(seconds, start) if ordinal == start.toordinal() else seconds
            total += (left ^ _from_time(left, before) if ordinal == before.toordinal() else left).bit_count()
        return total

    def nth_local(self, count: int, begin: datetime, steps: Steps) -> datetime | None:
        """The due time of that number, counted from `begin`, included; None if there are fewer."""
        start = max(begin, self.first)
        while self._is_even and start.year < YEAR_MAX:
            following = datetime(start.year + 1, 1, 1)  # noqa: DTZ001 - local
            number = self._count_even(start, following, steps)
            if number >= count:
                break
            start, count = following, count - number
        for ordinal, seconds in self._days_from(start.date(), None, steps):
            left = _from_time(seconds, start) if ordinal == start.toordinal() else seconds
            if left.bit_count() >= count:
                return datetime.fromordinal(ordinal) + timedelta(seconds=bits_of(left)[count - 1])
            count -= left.bit_count()
        return None

    @property
    def _is_even(self) -> bool:
        """Whether every day that it names has the same times."""
        return self.parts.frequency <= Frequency.DAILY and not self.parts.places

    def _count_even(self, begin: datetime, before: datetime, steps: Steps) -> int:
        """How many due times lie in [begin, before): days are counted year by year, and not looked at."""
        if begin >= before:
            return 0
        total = self._named(before.date()) * (self._day_times ^ _from_time(self._day_times, before)).bit_count()
        total -= self._named(begin.date()) * (self._day_times ^ _from_time(self._day_times, begin)).bit_count()
        for number in range(begin.year, before.year + 1):
            steps.take(_YEAR_STEPS)
            january, length, _ = shape(number)
            low = max(begin.toordinal() - january, 0)
            days = self._year(number).days >> low & ((1 << max(min(before.toordinal() - january, length) - low, 0)) - 1)
            total += days.bit_count() * self._day_times.bit_count()
        return total

    def _named(self, day: date) -> int:
        """1 for a day that it names, 0 for others."""
        return self._year(day.year).days >> day.toordinal() - shape(day.year)[0] & 1

    def _days_from(
        self, start: date, days_max: int | None, steps: Steps | None = None, until: datetime | None = None
    ) -> Iterator[tuple[int, int]]:
        """The days that have due times, from a day on, each with its due seconds; up to the year of `until`."""
        year_steps, day_steps = (0, 0) if steps is None else _steps_of(self.parts, self._day_times)
        ordinal, left = start.toordinal(), days_max
        year_max = min([YEAR_MAX, *(end.year for end in (self.last, until) if end is not None)])
        for number in range(start.year, year_max + 1):
            if steps is not None:
                steps.take(year_steps)
            january, length, _ = shape(number)
            year = self._year(number)
            day = max(ordinal - january, 0)
            bits = year.days >> day
            while bits:
                skip = _lowest(bits)
                day, bits = day + skip, bits >> skip
                if steps is not None:
                    steps.take(day_steps)
                seconds, rest = self._times_of(year, day, january + day)
                if seconds:
                    yield january + day, seconds
                elif left is not None:
                    left -= 1
                    if left <= 0:
                        raise _not_found(start, january + day)
                day, bits = day + 1 + rest, bits >> 1 + rest
            ordinal = max(january + length, january + day)

    def _year(self, year: int) -> Year:
        phase = phase_of(self.parts, self.first, year)
        if phase is None:
            return NO_DAYS
        like = alike(year), phase
        found = self._years.get(like)
        if found is None:
            if len(self._years) >= _YEARS_KEPT_MAX:
                self._years.clear()
            found = self._years[like] = year_of(self.parts, self.first, self._day_times, year)
        return found

    def _times_of(self, year: Year, day: int, ordinal: int) -> tuple[int, int]:
        """The due seconds of a day, and how many whole days nothing more can follow if there are none."""
        if self.parts.frequency <= Frequency.DAILY:
            return (self._day_times if year.times is None else year.times[day]), 0
        unit = _UNITS[self.parts.frequency]
        step = unit * self.parts.interval
        begin = _second_of(self.first) // unit * unit
        offset = (begin - _DAY_SECONDS * (ordinal - self.first.toordinal())) % step
        if offset >= _DAY_SECONDS:
            return 0, offset // _DAY_SECONDS - 1
        return _step_times(self._clock, offset), 0


def _not_found(start: date, ordinal: int) -> RRuleFault:
    """It may well fire later: no more than this is promised."""
    years = (ordinal - start.toordinal()) // 366
    message = f"the rule does not fire within {years} years of {start}"
    return RRuleFault("rrule-never-fires", message, "choose a first time at which it fires, or a shorter interval")


def _steps_of(parts: Parts, day_times: int) -> tuple[int, int]:
    """What it costs to look at a year and at a day."""
    if parts.frequency > Frequency.DAILY:
        step = _UNITS[parts.frequency] * parts.interval
        begins = step // gcd(step, _DAY_SECONDS)  # so many different times of day at which a day's first step may be
        return _YEAR_STEPS, (1 if begins <= _STEP_TIMES_KEPT_MAX else 3) + len(parts.minutes) * len(parts.seconds) // 60
    if not parts.places:
        return _YEAR_STEPS, 1
    # Of each period each place is taken out, from as many bits as a day has times.
    places = len(parts.places) * {Frequency.DAILY: 366, Frequency.WEEKLY: 53, Frequency.MONTHLY: 12}.get(
        parts.frequency, 1
    )
    return _YEAR_STEPS + 366 // 4 + places // 4 + day_times.bit_count() // 100, 1


# --- reading ----------------------------------------------------------------------------------------------

_HOURS: Final = tuple(range(24))
_SIXTY: Final = tuple(range(60))
_UNITS: Final = {Frequency.HOURLY: 3600, Frequency.MINUTELY: 60, Frequency.SECONDLY: 1}


@lru_cache(maxsize=4096)
def _compile(text: str, first: datetime, last: datetime | None) -> RRule:
    parts = _filled(parse_parts(text), first)
    clock = _Clock(parts.frequency, parts.interval, parts.hours, parts.minutes, parts.seconds, parts.places)
    day_times = _times(*clock[2:5]) if parts.frequency <= Frequency.DAILY else 0
    return RRule(parts, first, last, clock, day_times, {})


class _Clock(NamedTuple):
    """What of a rule decides about times of day."""

    frequency: Frequency
    interval: int
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    places: tuple[int, ...]


@lru_cache(maxsize=_STEP_TIMES_KEPT_MAX)
def _step_times(clock: _Clock, offset: int) -> int:
    """The due seconds of a day on which a step of a frequency below a day begins at the offset. Kept, and shared by all
    rules that go by the same clock: each takes up to 11 kB."""
    if clock.frequency is Frequency.HOURLY:
        begins = _times(clock.hours or _HOURS, (0,), (0,))
        within = _chosen(_times((0,), clock.minutes, clock.seconds), clock.places)
    elif clock.frequency is Frequency.MINUTELY:
        begins = _times(clock.hours or _HOURS, clock.minutes or _SIXTY, (0,))
        within = _chosen(_times((0,), (0,), clock.seconds), clock.places)
    else:
        begins = _times(clock.hours or _HOURS, clock.minutes or _SIXTY, clock.seconds or _SIXTY)
        within = _chosen(1, clock.places)
    return (_comb(_UNITS[clock.frequency] * clock.interval, offset) & begins) * within


def _filled(parts: Parts, first: datetime) -> Parts:
    """With what the rule leaves out taken from the first time."""
    frequency = parts.frequency
    if not (parts.weekdays or parts.month_days or parts.year_days or parts.weeks):
        if frequency is Frequency.YEARLY:
            parts = replace(parts, months=parts.months or (first.month,), month_days=(first.day,))
        elif frequency is Frequency.MONTHLY:
            parts = replace(parts, month_days=(first.day,))
        elif frequency is Frequency.WEEKLY:
            parts = replace(parts, weekdays=((first.weekday(), 0),))
    elif parts.weeks and not parts.weekdays:
        parts = replace(parts, weekdays=((first.weekday(), 0),))
    if frequency < Frequency.HOURLY and not parts.hours:
        parts = replace(parts, hours=(first.hour,))
    if frequency < Frequency.MINUTELY and not parts.minutes:
        parts = replace(parts, minutes=(first.minute,))
    if frequency < Frequency.SECONDLY and not parts.seconds:
        parts = replace(parts, seconds=(first.second,))
    return parts


# --- bits -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _times(hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]) -> int:
    """The seconds of a day, as bits. Shared by all rules that name the same times: it takes up to 11 kB."""
    within_minute = union(1 << second for second in seconds)
    within_hour = union(within_minute << 60 * minute for minute in minutes)
    return union(within_hour << 3600 * hour for hour in hours)


def _from_time(seconds: int, start: datetime) -> int:
    """Without the seconds of the day before a time."""
    passed = _second_of(start)
    return seconds >> passed << passed


def _second_of(local: datetime) -> int:
    return local.hour * 3600 + local.minute * 60 + local.second


def _chosen(bits: int, places: Sequence[int]) -> int:
    return union(nth_bit(bits, place) for place in places) if places else bits


def _comb(step: int, offset: int) -> int:
    """Bits of a day at the offset and each step after it."""
    count = (_DAY_SECONDS - 1 - offset) // step + 1
    if count == 1:  # also where the step is far longer than a day, and as a number of bits too long to be made
        return 1 << offset
    bits, made = 1, 1
    while made < count:  # by doubling: to divide one long number by another takes a thousand times as long
        bits |= bits << step * made
        made *= 2
    return (bits & ((1 << step * count) - 1)) << offset


def _lowest(bits: int) -> int:
    near = bits & _NEAR or bits  # of a day with 86,400 bits only the first few have to be looked at, mostly
    return (near & -near).bit_length() - 1
