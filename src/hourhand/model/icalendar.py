"""Events of an iCalendar file (RFC 5545) as times that a calendar leaves out.

Whole-day events become dates, others blackouts. Repeated ones are followed from `YEARS_BEHIND` years ago to
`YEARS_AHEAD` years from now, with the times that the file adds (RDATE), without those that it takes out (EXDATE), and
with single ones moved or cancelled (RECURRENCE-ID). Cancelled events, and timed ones that do not block time, are
passed over. Local times go by the zone that the file names, or, where it names none that is known, by the zone handed
in.

What a file may cost is bounded: by its size, its events, and the steps that following them takes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hourhand.model.calendar import Blackout, CalendarRule
from hourhand.model.calendar_form import BLACKOUTS_MAX, DATES_MAX
from hourhand.model.durations import DurationFault, parse_duration
from hourhand.model.icalendar_text import Event, ICalendarFault, Property, read_events
from hourhand.model.local_time import YEAR_MAX, YEAR_MIN, DstRule, ZoneFault, instants_of, load_zone
from hourhand.model.rrule import RRule
from hourhand.model.rrule_end import last_local, until_instant
from hourhand.model.rrule_text import RRuleFault, normal_text
from hourhand.model.steps import Steps, TooManySteps

__all__ = ["ICalendarFault", "Imported", "import_icalendar", "read_icalendar"]

BYTES_MAX: Final = 1 << 20
EVENTS_MAX: Final = 10_000
YEARS_AHEAD: Final = 10
YEARS_BEHIND: Final = 1
STEPS_MAX: Final = 100_000
"""About a second's work; a calendar as full as one can be takes a tenth of them."""
_RULE_STEPS: Final = 10
_REASON_CHARS_MAX: Final = 200
_TIME: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_FIXED: Final = DstRule(fixed=True)
_NO_TIME: Final = timedelta(0)
_DAY: Final = timedelta(days=1)
_LAST_END: Final = datetime(YEAR_MAX, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file comes to."""

    rule: CalendarRule
    notes: list[str]
    """What whoever imports it should know."""


def read_icalendar(text: str, zone_name: str | None, now: datetime) -> CalendarRule:
    """The times of all events. Raises `ICalendarFault`."""
    return import_icalendar(text, zone_name, now).rule


def import_icalendar(text: str, zone_name: str | None, now: datetime) -> Imported:
    """The same, and what is surprising of it: that repeated events go on beyond what was followed of them, or that the
    file leaves out nothing."""
    if len(text) > BYTES_MAX:
        raise ICalendarFault(f"at most {BYTES_MAX} characters are read")
    today = datetime.combine(now.astimezone(UTC).date(), time())
    since, until = today - 366 * YEARS_BEHIND * _DAY, today + 366 * YEARS_AHEAD * _DAY
    importing = _Importing(load_zone(zone_name or "UTC"), since, until, Steps(STEPS_MAX))
    events = _read(text)
    changes = _changes_of(events)
    for event in events:
        try:
            importing.steps.take()
            importing.add(event, changes.get(event.word("UID"), ()) if _is_master(event) else ())
        except TooManySteps:
            message = (
                "the events up to here take too much work to follow; leave out rules that repeat within the day or "
                "count for decades, or import parts of the file into calendars of their own"
            )
            raise ICalendarFault(message, event.line) from None
    ordered = sorted(importing.blackouts, key=lambda blackout: (blackout.begin, blackout.end, blackout.reason))
    rule = CalendarRule(zone=zone_name, dates=tuple(sorted(importing.days)), blackouts=tuple(ordered))
    notes = []
    if importing.goes_on:
        followed = f"repeated events are followed for {YEARS_AHEAD} years, until {until.date()}"
        notes.append(f"{followed}; import the file again before then")
    if not rule.dates and not rule.blackouts:
        notes.append("nothing is left out: the events of the file have no length, are cancelled or free, or are over")
    return Imported(rule, notes)


def _read(text: str) -> list[Event]:
    events: list[Event] = []
    for event in read_events(text):
        events.append(event)
        if len(events) > EVENTS_MAX:
            raise ICalendarFault(f"there are more than {EVENTS_MAX} events")
    if not events:
        raise ICalendarFault("there is no event in it (BEGIN:VEVENT)")
    return events


def _changes_of(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Events that stand for one time of a repeated event, by what they have in common with it."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if "RECURRENCE-ID" in event.properties and event.word("UID"):
            found.setdefault(event.word("UID"), []).append(event)
    return found


def _is_master(event: Event) -> bool:
    return "RECURRENCE-ID" not in event.properties and bool(event.word("UID"))


# --- one event --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    """A time as a file writes it."""

    local: datetime
    whole_day: bool
    zone: ZoneInfo
    """Whose clock shows it."""

    @property
    def instant(self) -> datetime:
        return instants_of(self.local, self.zone, _FIXED)[0]


@dataclass(frozen=True, slots=True)
class _Shift:
    """What becomes of a repeated event from one of its times on (RANGE=THISANDFUTURE)."""

    begin: datetime
    by: timedelta
    length: timedelta | None
    """None: cancelled."""


@dataclass(slots=True)
class _Left:
    """Times of a repeated event that are not where its rule says."""

    instants: set[datetime] = field(default_factory=set)
    days: set[date] = field(default_factory=set)
    """Of whole-day events; of others all times of the day."""

    def add(self, moment: _Moment) -> None:
        if moment.whole_day:
            self.days.add(moment.local.date())
        else:
            self.instants.add(moment.instant)

    def holds(self, moment: _Moment) -> bool:
        return moment.local.date() in self.days or (bool(self.instants) and moment.instant in self.instants)


@dataclass(slots=True)
class _Importing:
    """The file so far."""

    zone: ZoneInfo
    since: datetime
    until: datetime
    """Local times between which repeated events are followed."""
    steps: Steps
    days: set[date] = field(default_factory=set)
    blackouts: set[Blackout] = field(default_factory=set)
    goes_on: bool = False
    """Whether repeated events go on after `until`."""

    def add(self, event: Event, changes: Sequence[Event]) -> None:
        """Adds the times of an event; `changes` are those that stand for single times of it."""
        # A change that holds from its time on is what its event does from then on; by itself it is nothing.
        if event.word("STATUS") == "CANCELLED" or _holds_on(event):
            return
        if "DTSTART" not in event.properties:
            raise ICalendarFault("the event has no DTSTART", event.line)
        begin = self._time(event.properties["DTSTART"], event.line)
        length = self._length(event, begin)
        if _is_passed_over(event, begin.whole_day) or (length <= _NO_TIME and "RDATE" not in event.lists):
            return
        left, shifts = self._left_out(event, begin, changes)
        reason = _reason(event)
        for start, own_length in self._starts(event, begin, length):
            if left.holds(start):
                continue
            at = bisect_right(shifts, start.local, key=lambda shift: shift.begin)
            if not at:
                self._leave_out(start, own_length, reason, event.line)
            elif (now_long := shifts[at - 1].length) is not None:
                moved = replace(start, local=start.local + shifts[at - 1].by)
                self._leave_out(moved, now_long, reason, event.line)

    def _leave_out(self, start: _Moment, length: timedelta, reason: str, line: int) -> None:
        if length <= _NO_TIME:
            return
        count = max(length.days, 1) if start.whole_day else 0
        if 0 < count <= DATES_MAX:
            self.steps.take(1 + count // 10)
            self.days.update(start.local.date() + offset * _DAY for offset in range(count))
        elif not count:
            if start.instant + length > _LAST_END:
                raise ICalendarFault(f"the event ends after the year {YEAR_MAX}", line)
            self.blackouts.add(Blackout(start.instant, start.instant + length, reason))
        if max(len(self.days), count) > DATES_MAX or len(self.blackouts) > BLACKOUTS_MAX:
            limits = f"{DATES_MAX} dates and {BLACKOUTS_MAX} blackouts"
            raise ICalendarFault(f"the events make more than a calendar holds: {limits}", line)

    def _left_out(self, event: Event, begin: _Moment, changes: Sequence[Event]) -> tuple[_Left, list[_Shift]]:
        left, shifts = _Left(), []
        for given in event.lists.get("EXDATE", ()):
            for value in given.value.split(","):
                self.steps.take()
                left.add(self._time(Property(value, given.parameters), event.line))
        for change in changes:
            self.steps.take()
            stands_for = self._time(change.properties["RECURRENCE-ID"], change.line)
            if not _holds_on(change):
                left.add(stands_for)
                continue
            now = self._time(change.properties.get("DTSTART", change.properties["RECURRENCE-ID"]), change.line)
            length = None if _is_passed_over(change, now.whole_day) else self._length(change, now)
            from_here = _shown_by(stands_for, begin)
            shifts.append(_Shift(from_here, _shown_by(now, begin) - from_here, length))
        return left, sorted(shifts, key=lambda shift: shift.begin)

    def _starts(self, event: Event, begin: _Moment, length: timedelta) -> Iterator[tuple[_Moment, timedelta]]:
        """The times at which it begins, and how long it then is. A time may come twice."""
        if "RRULE" not in event.properties:
            yield begin, length
        elif length > _NO_TIME:
            yield from ((start, length) for start in self._repeated(event, begin, length))
        for given in event.lists.get("RDATE", ()):
            for value in given.value.split(","):
                self.steps.take()
                text, _, end = value.partition("/")
                start = self._time(Property(text, given.parameters), event.line)
                own_length = self._period_length(start, end, given, event.line) if end else length
                if start.whole_day != begin.whole_day:  # a day for a timed event means its time of that day
                    start = replace(begin, local=datetime.combine(start.local.date(), begin.local.time()))
                yield start, own_length

    def _repeated(self, event: Event, begin: _Moment, length: timedelta) -> Iterator[_Moment]:
        self.steps.take(_RULE_STEPS)
        text = normal_text(event.properties["RRULE"].value)
        try:
            end = until_instant(text)
            rule = RRule.compile(text, begin.local, last_local(text))
        except RRuleFault as fault:
            raise ICalendarFault(f"RRULE: {fault}", event.line) from None
        for local in rule.walk(self.since - length, datetime(YEAR_MAX, 1, 1), self.steps):  # noqa: DTZ001
            start = replace(begin, local=local)
            if end is not None and start.instant > end:
                return
            if local > self.until:
                self.goes_on = True
                return
            yield start

    def _time(self, given: Property, line: int) -> _Moment:
        value = given.value.strip()
        match = _TIME.fullmatch(value)
        try:
            if match is None:
                raise ValueError
            year, month, day, hour, minute, second = (int(digits or 0) for digits in match.groups()[:6])
            found = datetime(year, month, day, hour, minute, min(second, 59))  # noqa: DTZ001 - whose clock it is follows
        except ValueError:
            raise ICalendarFault(f"{value[:40]!r} is neither a date nor a time", line) from None
        if not YEAR_MIN < found.year < YEAR_MAX:
            raise ICalendarFault(f"the year must lie between {YEAR_MIN} and {YEAR_MAX}", line)
        if match[7]:
            return _Moment(found, False, load_zone("UTC"))
        try:
            own = load_zone(given.parameters["TZID"]) if "TZID" in given.parameters else self.zone
        except ZoneFault:
            own = self.zone
        return _Moment(found, match[4] is None, own)

    def _length(self, event: Event, begin: _Moment) -> timedelta:
        given = event.properties
        if "DTEND" in given:
            end = self._time(given["DTEND"], event.line)
            if begin.whole_day:
                return max(end.local - begin.local, _DAY)
            return end.instant - begin.instant
        if "DURATION" in given:
            return _duration(given["DURATION"].value, "DURATION", event.line)
        return _DAY if begin.whole_day else _NO_TIME

    def _period_length(self, begin: _Moment, end: str, given: Property, line: int) -> timedelta:
        if end[:1].upper() in ("P", "+"):
            return _duration(end, "RDATE", line)
        return max(self._time(Property(end, given.parameters), line).instant - begin.instant, _NO_TIME)


def _is_passed_over(event: Event, whole_day: bool) -> bool:
    # Holidays are often written as whole days that do not block time: those count all the same.
    return event.word("STATUS") == "CANCELLED" or (event.word("TRANSP") == "TRANSPARENT" and not whole_day)


def _holds_on(event: Event) -> bool:
    """Whether it is a change of a repeated event that holds from its time on."""
    stands_for = event.properties.get("RECURRENCE-ID")
    return stands_for is not None and stands_for.parameters.get("RANGE", "").upper() == "THISANDFUTURE"


def _reason(event: Event) -> str:
    if "SUMMARY" not in event.properties:
        return ""
    text = event.properties["SUMMARY"].value[: 2 * _REASON_CHARS_MAX].replace("\x00", "")
    return text.replace("\\,", ",").replace("\\;", ";").replace("\\n", " ")[:_REASON_CHARS_MAX]


def _duration(text: str, name: str, line: int) -> timedelta:
    try:
        return parse_duration(text.lstrip("+").upper())
    except DurationFault as fault:
        raise ICalendarFault(f"{name}: {fault}", line) from None


def _shown_by(moment: _Moment, begin: _Moment) -> datetime:
    """A time by the clock that shows the beginning."""
    if moment.whole_day or moment.zone is begin.zone:
        return moment.local
    return moment.instant.astimezone(begin.zone).replace(tzinfo=None, fold=0)
