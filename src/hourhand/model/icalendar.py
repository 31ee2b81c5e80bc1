"""Reads events of an iCalendar file (RFC 5545) as times that a calendar leaves out.

Whole-day events become dates, others blackouts; repeated ones are followed for `YEARS_AHEAD` years, without those that
the file takes out again. Cancelled events, and timed ones that do not block time, are passed over. Local times go by
the zone that the file names, or, where it names none that is known, by the zone handed in.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hourhand.model.calendar import Blackout, CalendarRule
from hourhand.model.calendar_form import BLACKOUTS_MAX, DATES_MAX
from hourhand.model.durations import DurationFault, parse_duration
from hourhand.model.local_time import YEAR_MAX, YEAR_MIN, DstRule, ZoneFault, instants_of, load_zone
from hourhand.model.rrule import RRule
from hourhand.model.rrule_end import end_of
from hourhand.model.rrule_text import RRuleFault, normal_text

BYTES_MAX: Final = 1 << 20
EVENTS_MAX: Final = 10_000
YEARS_AHEAD: Final = 10
_LINE: Final = re.compile(r"(?P<name>[A-Za-z0-9-]+)(?P<parameters>(?:;[^:;\"]*(?:\"[^\"]*\")?[^:;]*)*):(?P<value>.*)")
_TZID: Final = re.compile(r";TZID=\"?([^\";:]+)\"?", re.I)
_FIXED: Final = DstRule(fixed=True)


class ICalendarFault(ValueError):
    """The text cannot be used. `line` counts from 1."""

    code = "invalid-icalendar"

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")


@dataclass(slots=True)
class _Event:
    line: int
    properties: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The value of each, and its parameters."""
    left_out: list[tuple[str, str]] = field(default_factory=list)


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
    """The same, and that repeated events go on beyond what was followed of them."""
    if len(text) > BYTES_MAX:
        raise ICalendarFault(f"at most {BYTES_MAX} characters are read")
    zone = load_zone(zone_name or "UTC")
    days: set[date] = set()
    blackouts: set[Blackout] = set()
    count = 0
    until = datetime.combine(now.astimezone(UTC).date() + timedelta(days=366 * YEARS_AHEAD), time())
    goes_on = False
    for event in _events(text):
        count += 1
        if count > EVENTS_MAX:
            raise ICalendarFault(f"there are more than {EVENTS_MAX} events")
        goes_on |= _add(event, zone, until, days, blackouts)
        if len(days) > DATES_MAX or len(blackouts) > BLACKOUTS_MAX:
            limits = f"{DATES_MAX} dates and {BLACKOUTS_MAX} blackouts"
            raise ICalendarFault(f"the events make more than a calendar holds: {limits}", event.line)
    if not count:
        raise ICalendarFault("there is no event in it (BEGIN:VEVENT)")
    ordered = sorted(blackouts, key=lambda blackout: (blackout.begin, blackout.end, blackout.reason))
    rule = CalendarRule(zone=zone_name, dates=tuple(sorted(days)), blackouts=tuple(ordered))
    note = (
        f"repeated events are followed for {YEARS_AHEAD} years, until {until.date()}; import the file again before then"
    )
    return Imported(rule, [note] if goes_on else [])


def _events(text: str) -> Iterator[_Event]:
    lines = _unfolded(text)
    if not lines or lines[0][1].strip().upper() != "BEGIN:VCALENDAR":
        raise ICalendarFault("an iCalendar file begins with BEGIN:VCALENDAR", 1)
    event: _Event | None = None
    depth = 0
    for number, line in lines:
        upper = line.strip().upper()
        if upper == "BEGIN:VEVENT":
            event, depth = _Event(number), 0
        elif upper == "END:VEVENT":
            if event is None:
                raise ICalendarFault("END:VEVENT without its beginning", number)
            yield event
            event = None
        elif event is not None and upper.startswith(("BEGIN:", "END:")):
            depth += 1 if upper.startswith("BEGIN:") else -1  # an alarm within the event
        elif event is not None and depth == 0:
            _read_line(event, number, line)
    if event is not None:
        raise ICalendarFault("the event has no END:VEVENT", event.line)


def _unfolded(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if line[:1] in (" ", "\t") and lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + line[1:])
        elif line.strip():
            lines.append((number, line))
    return lines


def _read_line(event: _Event, number: int, line: str) -> None:
    match = _LINE.fullmatch(line)
    if not match:
        raise ICalendarFault(f"{line[:40]!r} is not NAME:VALUE", number)
    name, value = match["name"].upper(), match["value"].strip()
    if name == "EXDATE":
        event.left_out += [(each, match["parameters"]) for each in value.split(",")]
    elif name not in event.properties:
        event.properties[name] = (value, match["parameters"])


def _add(event: _Event, zone: ZoneInfo, until: datetime, days: set[date], blackouts: set[Blackout]) -> bool:
    """Adds the times of an event up to `until`; whether it goes on after that."""
    given = event.properties
    if "DTSTART" not in given:
        raise ICalendarFault("the event has no DTSTART", event.line)
    begin, whole_day, own_zone = _time(*given["DTSTART"], zone, event.line)
    # Holidays are often written as whole days that do not block time: those count all the same.
    is_free = given.get("TRANSP", ("",))[0].upper() == "TRANSPARENT" and not whole_day
    if is_free or given.get("STATUS", ("",))[0].upper() == "CANCELLED":
        return False
    length = _length(event, begin, whole_day, zone)
    reason = given.get("SUMMARY", ("",))[0].replace("\\,", ",").replace("\\;", ";").replace("\\n", " ")[:200]
    skipped = {_time(value, parameters, zone, event.line)[0] for value, parameters in event.left_out}
    for start in _starts(event, begin, own_zone):
        if start > until and "RRULE" in given:
            return True
        if start in skipped:
            continue
        if whole_day:
            days.update(start.date() + timedelta(days=offset) for offset in range(max(length.days, 1)))
        elif length > timedelta(0):
            instant = instants_of(start, own_zone, _FIXED)[0]
            blackouts.add(Blackout(instant, instant + length, reason))
    return False


def _time(value: str, parameters: str, zone: ZoneInfo, line: int) -> tuple[datetime, bool, ZoneInfo]:
    """A local time, whether it is a whole day, and whose clock shows it."""
    for form in ("%Y%m%d", "%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ"):
        try:
            found = datetime.strptime(value, form)  # noqa: DTZ007 - whose clock it is follows
        except ValueError:
            continue
        if not YEAR_MIN < found.year < YEAR_MAX:
            raise ICalendarFault(f"the year must lie between {YEAR_MIN} and {YEAR_MAX}", line)
        if form.endswith("Z"):
            return found, False, load_zone("UTC")
        named = _TZID.search(parameters)
        try:
            own = load_zone(named[1]) if named else zone
        except ZoneFault:
            own = zone
        return found, "T" not in value, own
    raise ICalendarFault(f"{value[:40]!r} is neither a date nor a time", line)


def _length(event: _Event, begin: datetime, whole_day: bool, zone: ZoneInfo) -> timedelta:
    given = event.properties
    if "DTEND" in given:
        end, _, of = _time(*given["DTEND"], zone, event.line)
        if whole_day:
            return end - begin
        own = _time(*given["DTSTART"], zone, event.line)[2]
        return instants_of(end, of, _FIXED)[0] - instants_of(begin, own, _FIXED)[0]
    if "DURATION" in given:
        try:
            return parse_duration(given["DURATION"][0].lstrip("+").upper())
        except DurationFault as fault:
            raise ICalendarFault(f"DURATION: {fault}", event.line) from None
    return timedelta(days=1) if whole_day else timedelta(0)


def _starts(event: _Event, begin: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    if "RRULE" not in event.properties:
        yield begin
        return
    text = event.properties["RRULE"][0]
    try:
        end = end_of(text, begin, zone, _FIXED)
        rule = RRule.compile(normal_text(text), begin, end and end.local)
        start = rule.next_local(begin - timedelta(seconds=1))
    except RRuleFault as fault:
        raise ICalendarFault(f"RRULE: {fault}", event.line) from None
    for _ in range(DATES_MAX + 1):
        if start is None:
            return
        yield start
        start = rule.next_local(start)
