"""Cron and clock changes by brute force: what a clock on the wall shows in every single minute of a few days.

Shares no code with the product, and none of its ideas: expressions are read into predicates over dates and sets of
numbers, and a zone is nothing but the face it shows at an instant.
"""

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
REACH = timedelta(days=3)

MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
WEEKDAYS = {name.upper(): number for number, name in enumerate(["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"])}


# --- what a clock on the wall shows -----------------------------------------------------------------------


@dataclass(frozen=True)
class Wall:
    """The minutes of some days: by date and minute of the day, the instants at which the wall shows them, and those
    that it jumps over with the instant at which it does."""

    start: datetime
    end: datetime
    shown: dict[date, dict[int, list[datetime]]]
    jumped: dict[date, dict[int, datetime]]
    whole: bool
    """Whether it changes on whole minutes only; others cannot be walked by minutes."""


def watch(zone: ZoneInfo, middle: datetime, reach: timedelta = REACH) -> Wall:
    start = (middle - reach).replace(second=0, microsecond=0)
    end = start + 2 * reach
    shown: dict[date, dict[int, list[datetime]]] = {}
    jumped: dict[date, dict[int, datetime]] = {}
    instant = start
    before = start.astimezone(zone).replace(tzinfo=None, fold=0)
    whole = before.second == 0
    while instant < end:
        instant += MINUTE
        face = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        whole = whole and face.second == 0
        shown.setdefault(face.date(), {}).setdefault(face.hour * 60 + face.minute, []).append(instant)
        missing = before + MINUTE
        while missing < face:
            jumped.setdefault(missing.date(), {})[missing.hour * 60 + missing.minute] = instant
            missing += MINUTE
        before = face
    return Wall(start, end, shown, jumped, whole)


def changes_of(zone: ZoneInfo, first_year: int, last_year: int) -> list[datetime]:
    """The instants at which a zone's clock is set, to the second."""
    found = []
    step = timedelta(days=5)
    instant, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year, 1, 1, tzinfo=UTC)
    offset = instant.astimezone(zone).utcoffset()
    while instant < end:
        later = instant + step
        new = later.astimezone(zone).utcoffset()
        if new != offset:
            low, high = instant, later
            while high - low > timedelta(seconds=1):
                middle = low + timedelta(seconds=(high - low).total_seconds() // 2)
                if middle.astimezone(zone).utcoffset() == offset:
                    low = middle
                else:
                    high = middle
            found.append(high)
        instant, offset = later, new
    return found


# --- expressions ------------------------------------------------------------------------------------------


def numbers(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for term in text.split(","):
        span, _, step = term.partition("/")
        if span == "*":
            first, last = low, high
        else:
            ends = [names.get(end, -1) if end in names else int(end) for end in span.split("-")]
            first, last = ends[0], ends[-1]
            if step and len(ends) == 1:
                last = high
        found.update(value for value in range(first, last + 1) if (value - first) % int(step or 1) == 0)
    return found


def day_of_month(term: str) -> Callable[[date], bool]:
    if term.startswith("L"):
        working = term.endswith("W")
        back = int(term.rstrip("W")[2:] or 0)

        def fits(day: date) -> bool:
            wanted = calendar.monthrange(day.year, day.month)[1] - back
            return wanted >= 1 and day.day == (nearest_working_day(day, wanted) if working else wanted)

        return fits
    if term.endswith("W"):
        wanted = int(term[:-1])
        return lambda day: (
            wanted <= calendar.monthrange(day.year, day.month)[1] and day.day == nearest_working_day(day, wanted)
        )
    allowed = numbers(term, 1, 31, {})
    return lambda day: day.day in allowed


def nearest_working_day(of: date, wanted: int) -> int:
    """By trying all days of the month: the nearest one. Two are never as near, a weekend has two days."""
    length = calendar.monthrange(of.year, of.month)[1]
    working = [day for day in range(1, length + 1) if date(of.year, of.month, day).weekday() < 5]
    return min(working, key=lambda day: abs(day - wanted))


def day_of_week(term: str) -> Callable[[date], bool]:
    def sunday_first(day: date) -> int:
        return day.isoweekday() % 7

    if "#" in term:
        name, _, nth = term.partition("#")
        weekday = WEEKDAYS[name] if name in WEEKDAYS else int(name) % 7
        return lambda day: sunday_first(day) == weekday and (day.day + 6) // 7 == int(nth)
    if term.endswith("L") and term != "L":
        name = term[:-1]
        weekday = WEEKDAYS[name] if name in WEEKDAYS else int(name) % 7
        return lambda day: sunday_first(day) == weekday and (day + timedelta(days=7)).month != day.month
    if term.startswith("*"):
        allowed = numbers(term, 0, 6, {})
    else:
        allowed = {value % 7 for value in numbers(term, 0, 7, WEEKDAYS)}
    return lambda day: sunday_first(day) in allowed


@dataclass(frozen=True)
class Expression:
    seconds: frozenset[int]
    minutes: frozenset[int]
    """Of the day."""
    fits: Callable[[date], bool]
    fixed: bool


def read(text: str) -> Expression:
    fields = text.split()
    second, minute, hour, month_day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    months = numbers(month, 1, 12, MONTHS)
    of_month = [day_of_month(term) for term in month_day.split(",")]
    of_week = [day_of_week(term) for term in weekday.split(",")]
    both = month_day.startswith("*") or weekday.startswith("*")

    def fits(day: date) -> bool:
        if day.month not in months:
            return False
        one, other = any(term(day) for term in of_month), any(term(day) for term in of_week)
        return (one and other) if both else (one or other)

    minutes = {60 * at + past for at in numbers(hour, 0, 23, {}) for past in numbers(minute, 0, 59, {})}
    fixed = not any("*" in part for part in (second, minute, hour))
    return Expression(frozenset(numbers(second, 0, 59, {})), frozenset(minutes), fits, fixed)


# --- due times --------------------------------------------------------------------------------------------


def due_times(wall: Wall, expression: Expression, gap: str, overlap: str) -> list[datetime]:
    """Every due time later than the wall's start, up to its end."""
    due: set[datetime] = set()
    once = overlap == "first" or (overlap == "auto" and expression.fixed)
    for day, faces in wall.shown.items():
        if not expression.fits(day):
            continue
        for minute in expression.minutes & faces.keys():
            instants = faces[minute]
            chosen = instants[:1] if once else instants[-1:] if overlap == "last" else instants
            due.update(instant + timedelta(seconds=second) for instant in chosen for second in expression.seconds)
    if expression.fixed and gap == "fire_after":
        for day, missing in wall.jumped.items():
            if expression.fits(day):
                due.update(missing[minute] for minute in expression.minutes & missing.keys())
    return sorted(instant for instant in due if wall.start + MINUTE <= instant <= wall.end)
