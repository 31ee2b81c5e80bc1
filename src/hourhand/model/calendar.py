"""Calendars: named sets of times at which jobs are not to run. Dates, weekly windows, blackouts.

A calendar goes by its own zone, or by that of the job that uses it. Every question is about one instant and costs
little; `exclusion.py` asks it for the due times of a job.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from operator import itemgetter
from typing import Any, Final
from zoneinfo import ZoneInfo

from hourhand.model.local_time import (
    DstOverlap,
    DstRule,
    find_change,
    format_instant,
    instants_of,
    load_zone,
    parse_instant,
)

_BOTH: Final = DstRule(fixed=True, overlap=DstOverlap.BOTH)
_WEEK_MINUTES: Final = 7 * 24 * 60
_DAY_MINUTES: Final = 24 * 60
_TICK: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_EDGE: Final = 2 * _DAY
"""How near to the first and last of many dates in a row each is looked at by itself: clocks were set by up to a day."""
_YEAR_DAYS: Final = 366
_YEARS_KEPT_MAX: Final = 64
_begin: Final = itemgetter(0)
WEEKDAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@dataclass(frozen=True, slots=True)
class Window:
    """A span of every week, by the local clock; it may reach past midnight, and past Sunday."""

    weekday: int
    """Monday is 0: the day on which it begins."""
    begin: int
    """Minutes from midnight."""
    length: int
    """Minutes."""


@dataclass(frozen=True, slots=True)
class Blackout:
    """A stretch of time once, from `begin` up to but not including `end`."""

    begin: datetime
    end: datetime
    reason: str = ""


@dataclass(frozen=True)
class CalendarRule:
    """What a calendar leaves out."""

    zone: str | None = None
    """None: that of the job."""
    dates: tuple[date, ...] = ()
    yearly: tuple[tuple[int, int], ...] = ()
    """(month, day) of every year."""
    weekly: tuple[Window, ...] = ()
    blackouts: tuple[Blackout, ...] = ()
    description: str = ""

    def covering(self, instant: datetime, job_zone: str) -> tuple[datetime, datetime] | None:
        """A stretch [begin, end) around the instant that is left out; None if the instant is not. Another stretch may
        adjoin it."""
        for blackout in self._around(instant):
            if blackout.begin <= instant < blackout.end:
                return blackout.begin, blackout.end
        if not (self._days or self.yearly or self.weekly):
            return None
        zone = load_zone(self.zone or job_zone)
        local = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        day = local.date()
        if day in self._days or (local.month, local.day) in self._yearly:
            inner = self._inside_run(day) or self._inside_yearly(day)
            if inner is not None:
                return _midnight(inner[0], zone), _midnight(inner[1], zone)
            midnight = datetime.combine(local.date(), time())
            return _span(instant, midnight, midnight + timedelta(days=1), zone)
        minute = local.weekday() * _DAY_MINUTES + local.hour * 60 + local.minute
        at = bisect_right(self._minutes, minute, key=_begin) - 1
        if at < 0 or minute >= self._minutes[at][1]:
            return None
        begin, end = self._minutes[at]
        monday = datetime.combine(day - timedelta(days=local.weekday()), time())
        return _span(instant, monday + timedelta(minutes=begin), monday + timedelta(minutes=end), zone)

    def covers_all(self) -> bool:
        """Whether it leaves out every day of the year, by itself."""
        return len(self._yearly) >= _YEAR_DAYS

    @cached_property
    def singles_end(self) -> datetime:
        """After this it leaves out nothing but what it leaves out every week or year."""
        last = max(self.dates, default=date.min)
        ends = [blackout.end for blackout in self.blackouts]
        return max([datetime.combine(last, time(), UTC) + timedelta(days=3), *ends])

    @property
    def minutes(self) -> tuple[tuple[int, int], ...]:
        """The weekly windows as minutes of a week that begins on Monday, joined where they touch."""
        return self._minutes

    def _inside_run(self, day: date) -> tuple[date, date] | None:
        """Of many dates in a row the inner part, where no setting of the clocks can lead outside; None elsewhere."""
        firsts, runs = self._runs
        at = bisect_right(firsts, day)
        if not at:
            return None
        begin, end = runs[at - 1][0] + _EDGE, runs[at - 1][1] - _EDGE
        return (begin, end) if begin <= day < end else None

    def _inside_yearly(self, day: date) -> tuple[date, date] | None:
        """The same of days of every year, as far as they lie in one year."""
        runs = self._yearly_runs.get(day.year)
        if runs is None:
            if len(self._yearly_runs) >= _YEARS_KEPT_MAX:
                self._yearly_runs.clear()
            first = date(day.year, 1, 1)
            days = [first + timedelta(days=place) for place in range((date(day.year + 1, 1, 1) - first).days)]
            joined = _joined([(each, each + _DAY) for each in days if (each.month, each.day) in self._yearly])
            runs = self._yearly_runs[day.year] = [run for run in joined if run[1] - run[0] > 2 * _EDGE]
        for begin, end in runs:
            if begin + _EDGE <= day < end - _EDGE:
                return begin + _EDGE, end - _EDGE
        return None

    @cached_property
    def _yearly_runs(self) -> dict[int, list[tuple[date, date]]]:
        """Of years that were asked for, those long enough to have an inner part."""
        return {}

    @cached_property
    def _runs(self) -> tuple[Sequence[date], Sequence[tuple[date, date]]]:
        runs = _joined([(day, day + _DAY) for day in self._days])
        return [begin for begin, _ in runs], runs

    @cached_property
    def _yearly(self) -> frozenset[tuple[int, int]]:
        return frozenset(self.yearly)

    @cached_property
    def _days(self) -> frozenset[date]:
        return frozenset(self.dates)

    @cached_property
    def _minutes(self) -> tuple[tuple[int, int], ...]:
        """The weekly windows as minutes of a week that begins on Monday, joined where they touch."""
        spans = []
        for window in self.weekly:
            begin = window.weekday * _DAY_MINUTES + window.begin
            end = begin + window.length
            spans.append((begin, min(end, _WEEK_MINUTES)))
            if end > _WEEK_MINUTES:
                spans.append((0, end - _WEEK_MINUTES))
        return tuple(_joined(spans))

    @cached_property
    def _sorted(self) -> tuple[Sequence[datetime], Sequence[Blackout]]:
        joined = _joined([(blackout.begin, blackout.end) for blackout in self.blackouts])
        return [begin for begin, _ in joined], [Blackout(begin, end) for begin, end in joined]

    def _around(self, instant: datetime) -> Iterable[Blackout]:
        begins, blackouts = self._sorted
        at = bisect_right(begins, instant)
        return blackouts[at - 1 : at] if at else ()


def _span(instant: datetime, begin: datetime, end: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Local times to the instants that hold the given one between them. Cut where the clock is set: what it shows from
    there on may lie outside again."""
    earlier = [reading for reading in instants_of(begin, zone, _BOTH) if reading <= instant]
    later = [reading for reading in instants_of(end, zone, _BOTH) if reading > instant]
    first, last = (earlier[-1] if earlier else instant), (later[0] if later else instant + _TICK)
    return find_change(first, instant, zone) or first, find_change(instant, last, zone) or last


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return instants_of(datetime.combine(day, time()), zone, _BOTH)[0]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, as one where they touch."""
    return _joined(spans)


def _joined(spans: Iterable[Any]) -> list[Any]:
    joined: list[Any] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


# --- the stored form, which is also the one users write ----------------------------------------------------


def calendar_to_json(rule: CalendarRule) -> dict[str, Any]:
    return {
        "zone": rule.zone,
        "description": rule.description,
        "dates": [*(f"{month:02d}-{day:02d}" for month, day in rule.yearly), *(day.isoformat() for day in rule.dates)],
        "weekly": [
            {"day": WEEKDAYS[window.weekday], "from": _clock(window.begin), "to": _clock(window.begin + window.length)}
            for window in rule.weekly
        ],
        "blackouts": [
            {"from": format_instant(each.begin), "to": format_instant(each.end), "reason": each.reason}
            for each in rule.blackouts
        ],
    }


def calendar_from_json(stored: dict[str, Any]) -> CalendarRule:
    dates = stored["dates"]
    return CalendarRule(
        zone=stored["zone"],
        dates=tuple(date.fromisoformat(text) for text in dates if len(text) == 10),
        yearly=tuple((int(text[:2]), int(text[3:])) for text in dates if len(text) == 5),
        weekly=tuple(
            window_between(WEEKDAYS.index(each["day"]), each["from"], each["to"]) for each in stored["weekly"]
        ),
        blackouts=tuple(
            Blackout(parse_instant(each["from"]), parse_instant(each["to"]), each["reason"])
            for each in stored["blackouts"]
        ),
        description=stored["description"],
    )


def window_between(weekday: int, begin: str, end: str) -> Window:
    """From one time of day to another, "HH:MM"; one that is not later means the day after."""
    first, last = _minute(begin), _minute(end)
    return Window(weekday, first, last - first if last > first else last - first + _DAY_MINUTES)


def _minute(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:5])


def _clock(minute: int) -> str:
    minute = minute if minute <= _DAY_MINUTES else minute - _DAY_MINUTES
    return f"{minute // 60:02d}:{minute % 60:02d}"
