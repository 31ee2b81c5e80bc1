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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Final, NamedTuple

from hourhand.model.local_time import YEAR_MAX
from hourhand.model.rrule_text import Frequency, Parts, RRuleFault, parse_parts
from hourhand.model.steps import Steps

SEARCH_DAYS_MAX: Final = 1500
"""A rule is refused if its first time is not found within so many days that it names."""

_DAY_SECONDS: Final = 86_400
_STEP_TIMES_KEPT_MAX: Final = 1024
_YEAR_STEPS: Final = 4
_YEARS_KEPT_MAX: Final = 16
"""Of one rule: planning asks for this year and the next."""
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Year:
    days: int
    """Bit n is set where the day n of the year (from 0) has times."""
    times: Mapping[int, int] | None
    """The times of each day where they differ between days."""


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
    _years: dict[int, _Year] = field(compare=False, repr=False)

    @staticmethod
    def compile(text: str, first: datetime, last: datetime | None = None) -> "RRule":
        """`last` is a local time. Raises `RRuleFault`."""
        return _compile(text, first, last)

    @property
    def is_fixed_time(self) -> bool:
        """It names times of day instead of a cadence within the day."""
        return self.parts.frequency <= Frequency.DAILY

    def next_local(self, after: datetime, days_max: int | None = None) -> datetime | None:
        """The first due local time strictly later than `after`; None beyond the last. With `days_max` no more days
        are looked at, and `RRuleFault` says that this was not enough."""
        start = max(after.replace(microsecond=0, fold=0) + _SECOND, self.first)
        for ordinal, seconds in self._days_from(start.date(), days_max):
            left = _from_time(seconds, start) if ordinal == start.toordinal() else seconds
            if left:
                found = datetime.fromordinal(ordinal) + timedelta(seconds=_lowest(left))
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
                for second in _bits(due)[:chosen]:
                    found = datetime.fromordinal(ordinal) + timedelta(seconds=second)
                    if since <= found <= until and (self.last is None or found <= self.last):
                        yield found
            if left is not None:
                left -= chosen
                if not left:
                    return

    def count_local(self, begin: datetime, before: datetime, most: int, steps: Steps) -> int:
        """How many due times lie in [begin, before); where there are `most` or more, at least so many."""
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
        for ordinal, seconds in self._days_from(start.date(), None, steps):
            left = _from_time(seconds, start) if ordinal == start.toordinal() else seconds
            if left.bit_count() >= count:
                return datetime.fromordinal(ordinal) + timedelta(seconds=_bits(left)[count - 1])
            count -= left.bit_count()
        return None

    def _days_from(self, start: date, days_max: int | None, steps: Steps | None = None) -> Iterator[tuple[int, int]]:
        """The days that have due times, from a day on, each with its due seconds."""
        year_steps, day_steps = (0, 0) if steps is None else _steps_of(self.parts, self._day_times)
        ordinal, left = start.toordinal(), days_max
        for number in range(start.year, YEAR_MAX + 1):
            if self.last is not None and number > self.last.year:
                return
            if steps is not None:
                steps.take(year_steps)
            january, length, _ = _shape(number)
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

    def _year(self, year: int) -> _Year:
        found = self._years.get(year)
        if found is None:
            if len(self._years) >= _YEARS_KEPT_MAX:
                self._years.clear()
            found = self._years[year] = _year_of(self.parts, self.first, self._day_times, year)
        return found

    def _times_of(self, year: _Year, day: int, ordinal: int) -> tuple[int, int]:
        """The due seconds of a day, and how many whole days nothing more can follow if there are none."""
        if self.parts.frequency <= Frequency.DAILY:
            return (self._day_times if year.times is None else year.times[day]), 0
        unit = _UNITS[self.parts.frequency]
        step = unit * self.parts.interval
        begin = (self.first.hour * 3600 + self.first.minute * 60 + self.first.second) // unit * unit
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


# --- days -------------------------------------------------------------------------------------------------


def _year_of(parts: Parts, first: datetime, day_times: int, year: int) -> _Year:
    """The days of a year that a rule names, by all of its parts."""
    if parts.frequency is Frequency.YEARLY and (year - first.year) % parts.interval:
        return _Year(0, None)
    days = _in_step(parts, first, year)
    if days and parts.months:
        days &= _union(_month_mask(year, month) for month in parts.months)
    if days and parts.month_days:
        days &= _month_days(parts.month_days, year)
    if days and parts.year_days:
        days &= _year_days(parts.year_days, year)
    if days and parts.weeks:
        days &= _weeks(parts.weeks, parts.week_start, year)
    if days and parts.weekdays:
        days &= _weekdays(parts, year)
    if not parts.places or not days or parts.frequency > Frequency.DAILY:
        return _Year(days, None)
    return _placed(parts, day_times, days, year)


def _in_step(parts: Parts, first: datetime, year: int) -> int:
    """The days that the interval reaches, counted from the first time's own period."""
    january, length = _shape(year)[:2]
    whole = (1 << length) - 1
    if parts.interval == 1 or parts.frequency > Frequency.DAILY:
        return whole
    if parts.frequency is Frequency.MONTHLY:
        months = range(1, 13)
        begin = first.year * 12 + first.month
        return _union(_month_mask(year, month) for month in months if (year * 12 + month - begin) % parts.interval == 0)
    if parts.frequency is Frequency.WEEKLY:
        begin = _week_begin(first.toordinal(), parts.week_start)
        return _repeated(begin, 7 * parts.interval, 0x7F, january, length)
    if parts.frequency is Frequency.DAILY:
        return _repeated(first.toordinal(), parts.interval, 1, january, length)
    return whole


def _repeated(begin: int, step: int, pattern: int, january: int, length: int) -> int:
    """The pattern at `begin` and each `step` days from it, as far as it lies in the year."""
    bits = 0
    for at in range((begin - january) % step - step, length, step):
        bits |= pattern << at if at >= 0 else pattern >> -at
    return bits & ((1 << length) - 1)


def _month_days(wanted: Sequence[int], year: int) -> int:
    bits, (_, _, starts) = 0, _shape(year)
    for month in range(12):
        length = starts[month + 1] - starts[month]
        for day in wanted:
            at = day if day > 0 else length + 1 + day
            if 1 <= at <= length:
                bits |= 1 << starts[month] + at - 1
    return bits


def _year_days(wanted: Sequence[int], year: int) -> int:
    length = _shape(year)[1]
    places = (day if day > 0 else length + 1 + day for day in wanted)
    return _union(1 << place - 1 for place in places if 1 <= place <= length)


def _weeks(wanted: Sequence[int], week_start: int, year: int) -> int:
    """Days by the number of their week; those at the edges may lie in a week of the year before or after."""
    january, length = _shape(year)[:2]
    bits = 0
    for of_year in (year - 1, year, year + 1):
        begin = _first_week(of_year, week_start)
        count = (_first_week(of_year + 1, week_start) - begin) // 7
        for number in wanted:
            place = number if number > 0 else count + 1 + number
            if 1 <= place <= count:
                at = begin + 7 * (place - 1) - january
                bits |= 0x7F << at if at >= 0 else 0x7F >> -at
    return bits & ((1 << length) - 1)


def _weekdays(parts: Parts, year: int) -> int:
    january, length, starts = _shape(year)
    spans = [(0, length)]
    if parts.frequency is Frequency.MONTHLY or parts.months:
        spans = list(pairwise(starts))
    bits = 0
    for weekday, nth in parts.weekdays:
        offset = (weekday - (january - 1)) % 7
        every = _repeated(january + offset, 7, 1, january, length)
        if nth == 0:
            bits |= every
            continue
        for begin, end in spans:
            inside = every >> begin & ((1 << end - begin) - 1)
            chosen = _nth_bit(inside, nth)
            bits |= chosen << begin
    return bits


def _placed(parts: Parts, day_times: int, days: int, year: int) -> _Year:
    """Of each period's times only those at the wanted places (BYSETPOS)."""
    january, length, starts = _shape(year)
    per_day = day_times.bit_count()
    if parts.frequency is Frequency.DAILY:
        spans = [(day, day + 1) for day in _bits(days)]
    elif parts.frequency is Frequency.MONTHLY:
        spans = list(pairwise(starts))
    elif parts.frequency is Frequency.WEEKLY:
        begin = _week_begin(january, parts.week_start) - january
        spans = [(at, at + 7) for at in range(begin, length, 7)]
    else:
        spans = [(0, length)]
    times = _bits(day_times)
    found: dict[int, int] = {}
    for begin, end in spans:
        inside = _days_between(parts, year, days, begin, end)
        for place in parts.places:
            at = place - 1 if place > 0 else len(inside) * per_day + place
            if 0 <= at < len(inside) * per_day:
                day = inside[at // per_day]
                found[day] = found.get(day, 0) | 1 << times[at % per_day]
    kept = {day: seconds for day, seconds in found.items() if 0 <= day < length}
    return _Year(_union(1 << day for day in kept), kept)


def _days_between(parts: Parts, year: int, days: int, begin: int, end: int) -> list[int]:
    """The days of a period, which for a week may reach over the edges of the year."""
    length = _shape(year)[1]
    inside = [day for day in range(max(begin, 0), min(end, length)) if days >> day & 1]
    if begin >= 0 and end <= length:
        return inside
    january = _shape(year)[0]
    weekdays = {weekday for weekday, _ in parts.weekdays}
    beyond = [day for day in range(begin, end) if not 0 <= day < length]
    # Of a week that has no day inside this year nothing can be chosen inside it.
    outside = [
        day
        for day in beyond
        if inside
        and (january + day - 1) % 7 in weekdays
        and (not parts.months or date.fromordinal(january + day).month in parts.months)
    ]
    return sorted(inside + outside)


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
    within_minute = _union(1 << second for second in seconds)
    within_hour = _union(within_minute << 60 * minute for minute in minutes)
    return _union(within_hour << 3600 * hour for hour in hours)


def _from_time(seconds: int, start: datetime) -> int:
    """Without the seconds of the day before a time."""
    passed = start.hour * 3600 + start.minute * 60 + start.second
    return seconds >> passed << passed


def _chosen(bits: int, places: Sequence[int]) -> int:
    return _union(_nth_bit(bits, place) for place in places) if places else bits


def _nth_bit(bits: int, nth: int) -> int:
    """The bit at that place among those set, counted from the end if negative; 0 if there is none."""
    places = _bits(bits)
    at = nth - 1 if nth > 0 else len(places) + nth
    return 1 << places[at] if 0 <= at < len(places) else 0


@lru_cache(maxsize=512)
def _bits(bits: int) -> tuple[int, ...]:
    """The places of the bits that are set. By their text: a day has 86,400 bits, and taking one away copies all."""
    return tuple(place for place, digit in enumerate(reversed(bin(bits)[2:])) if digit == "1")


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


def _union(masks: Iterable[int]) -> int:
    bits = 0
    for mask in masks:
        bits |= mask
    return bits


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


@lru_cache(maxsize=512)
def _shape(year: int) -> tuple[int, int, tuple[int, ...]]:
    """The number of the first day, how many there are, and where each month begins; the end last."""
    january = date(year, 1, 1).toordinal()
    starts = tuple(date(year, month, 1).toordinal() - january for month in range(1, 13))
    length = date(year, 12, 31).toordinal() - january + 1
    return january, length, (*starts, length)


def _month_mask(year: int, month: int) -> int:
    starts = _shape(year)[2]
    return (1 << starts[month]) - (1 << starts[month - 1])


def _week_begin(ordinal: int, week_start: int) -> int:
    return ordinal - (ordinal - 1 - week_start) % 7


def _first_week(year: int, week_start: int) -> int:
    """The first day of the first week, the one that has at least four days of the year."""
    return _week_begin(date(year, 1, 4).toordinal(), week_start)
