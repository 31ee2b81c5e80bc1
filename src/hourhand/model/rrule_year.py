"""The days of a year that a recurrence rule names, as bits: the rule's parts, one after the other.

Years are much alike: what a rule names in one that begins on a Monday it names in every such year, if that is as long.
So `alike` and `phase_of` say when it need not be found anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final

from hourhand.model.rrule_text import Frequency, Parts


@dataclass(frozen=True, slots=True)
class Year:
    days: int
    """Bit n is set where the day n of the year (from 0) has times."""
    times: Mapping[int, int] | None
    """The times of each day where they differ between days."""


NO_DAYS: Final = Year(0, None)


def phase_of(parts: Parts, first: datetime, year: int) -> int | None:
    """Where in a year the interval has come to, so that years which are alike have the same days if this is the same;
    None if it passes over the year."""
    interval = parts.interval
    if interval == 1 or parts.frequency > Frequency.DAILY:
        return 0
    if parts.frequency is Frequency.YEARLY:
        return None if (year - first.year) % interval else 0
    if parts.frequency is Frequency.MONTHLY:
        return (year * 12 - first.year * 12 - first.month) % interval
    january = shape(year)[0]
    if parts.frequency is Frequency.WEEKLY:
        return (january - _week_begin(first.toordinal(), parts.week_start)) % (7 * interval)
    return (january - first.toordinal()) % interval


@lru_cache(maxsize=512)
def alike(year: int) -> int:
    """The same number for years that begin on the same weekday and are as long, as are those before and after: the
    numbers of weeks go by these too."""
    january, length, _ = shape(year)
    return january % 7 | (length - 365) << 3 | (shape(year - 1)[1] - 365) << 4 | (shape(year + 1)[1] - 365) << 5


def year_of(parts: Parts, first: datetime, day_times: int, year: int) -> Year:
    """The days of a year, which the interval does not pass over, that a rule names by all of its parts."""
    days = _in_step(parts, first, year)
    if days and parts.months:
        days &= union(_month_mask(year, month) for month in parts.months)
    if days and parts.month_days:
        days &= _month_days(parts.month_days, year)
    if days and parts.year_days:
        days &= _year_days(parts.year_days, year)
    if days and parts.weeks:
        days &= _weeks(parts.weeks, parts.week_start, year)
    if days and parts.weekdays:
        days &= _weekdays(parts, year)
    if not parts.places or not days or parts.frequency > Frequency.DAILY:
        return Year(days, None)
    return _placed(parts, day_times, days, year)


def _in_step(parts: Parts, first: datetime, year: int) -> int:
    """The days that the interval reaches, counted from the first time's own period."""
    january, length = shape(year)[:2]
    whole = (1 << length) - 1
    if parts.interval == 1 or parts.frequency > Frequency.DAILY:
        return whole
    if parts.frequency is Frequency.MONTHLY:
        months = range(1, 13)
        begin = first.year * 12 + first.month
        return union(_month_mask(year, month) for month in months if (year * 12 + month - begin) % parts.interval == 0)
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
    bits, (_, _, starts) = 0, shape(year)
    for month in range(12):
        length = starts[month + 1] - starts[month]
        for day in wanted:
            at = day if day > 0 else length + 1 + day
            if 1 <= at <= length:
                bits |= 1 << starts[month] + at - 1
    return bits


def _year_days(wanted: Sequence[int], year: int) -> int:
    length = shape(year)[1]
    places = (day if day > 0 else length + 1 + day for day in wanted)
    return union(1 << place - 1 for place in places if 1 <= place <= length)


def _weeks(wanted: Sequence[int], week_start: int, year: int) -> int:
    """Days by the number of their week; those at the edges may lie in a week of the year before or after."""
    january, length = shape(year)[:2]
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
    january, length, starts = shape(year)
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
            chosen = nth_bit(inside, nth)
            bits |= chosen << begin
    return bits


def _placed(parts: Parts, day_times: int, days: int, year: int) -> Year:
    """Of each period's times only those at the wanted places (BYSETPOS)."""
    january, length, starts = shape(year)
    per_day = day_times.bit_count()
    if parts.frequency is Frequency.DAILY:
        spans = [(day, day + 1) for day in bits_of(days)]
    elif parts.frequency is Frequency.MONTHLY:
        spans = list(pairwise(starts))
    elif parts.frequency is Frequency.WEEKLY:
        begin = _week_begin(january, parts.week_start) - january
        spans = [(at, at + 7) for at in range(begin, length, 7)]
    else:
        spans = [(0, length)]
    times = bits_of(day_times)
    found: dict[int, int] = {}
    for begin, end in spans:
        inside = _days_between(parts, year, days, begin, end)
        for place in parts.places:
            at = place - 1 if place > 0 else len(inside) * per_day + place
            if 0 <= at < len(inside) * per_day:
                day = inside[at // per_day]
                found[day] = found.get(day, 0) | 1 << times[at % per_day]
    kept = {day: seconds for day, seconds in found.items() if 0 <= day < length}
    return Year(union(1 << day for day in kept), kept)


def _days_between(parts: Parts, year: int, days: int, begin: int, end: int) -> list[int]:
    """The days of a period, which for a week may reach over the edges of the year."""
    length = shape(year)[1]
    low = max(begin, 0)
    inside = [low + day for day in bits_of(days >> low & ((1 << min(end, length) - low) - 1))]
    if begin >= 0 and end <= length:
        return inside
    january = shape(year)[0]
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


# --- bits -------------------------------------------------------------------------------------------------


def nth_bit(bits: int, nth: int) -> int:
    """The bit at that place among those set, counted from the end if negative; 0 if there is none."""
    places = bits_of(bits)
    at = nth - 1 if nth > 0 else len(places) + nth
    return 1 << places[at] if 0 <= at < len(places) else 0


@lru_cache(maxsize=512)
def bits_of(bits: int) -> tuple[int, ...]:
    """The places of the bits that are set. By their text: a day has 86,400 bits, and taking one away copies all."""
    return tuple(place for place, digit in enumerate(reversed(bin(bits)[2:])) if digit == "1")


def union(masks: Iterable[int]) -> int:
    bits = 0
    for mask in masks:
        bits |= mask
    return bits


@lru_cache(maxsize=512)
def shape(year: int) -> tuple[int, int, tuple[int, ...]]:
    """The number of the first day, how many there are, and where each month begins; the end last."""
    january = date(year, 1, 1).toordinal()
    starts = tuple(date(year, month, 1).toordinal() - january for month in range(1, 13))
    length = date(year, 12, 31).toordinal() - january + 1
    return january, length, (*starts, length)


def _month_mask(year: int, month: int) -> int:
    starts = shape(year)[2]
    return (1 << starts[month]) - (1 << starts[month - 1])


def _week_begin(ordinal: int, week_start: int) -> int:
    return ordinal - (ordinal - 1 - week_start) % 7


def _first_week(year: int, week_start: int) -> int:
    """The first day of the first week, the one that has at least four days of the year."""
    return _week_begin(date(year, 1, 4).toordinal(), week_start)
