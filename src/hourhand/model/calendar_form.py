"""What a user writes about a calendar, read into a rule: every fault found, or none."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from hourhand.model.calendar import WEEKDAYS, Blackout, CalendarRule, Window, window_between
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.local_time import YEAR_MAX, YEAR_MIN, InstantFault, ZoneFault, load_zone, parse_instant

DATES_MAX: Final = 5000
WINDOWS_MAX: Final = 200
BLACKOUTS_MAX: Final = 2000
TEXT_CHARS_MAX: Final = 1000
_YEARLY: Final = re.compile(r"(0[1-9]|1[0-2])-([0-3][0-9])")
_CLOCK: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]|24:00")
_LEAP_YEAR: Final = 2024


def read_calendar(
    zone: str | None = None,
    dates: Sequence[str] | None = None,
    weekly: Sequence[Mapping[str, Any]] | None = None,
    blackouts: Sequence[Mapping[str, Any]] | None = None,
    description: str | None = None,
) -> CalendarRule:
    """Raises `InvalidFields` with every fault found."""
    faults: list[Fault] = []
    days, yearly = _dates(dates or (), faults)
    rule = CalendarRule(
        zone=_zone(zone, faults),
        dates=days,
        yearly=yearly,
        weekly=_weekly(weekly or (), faults),
        blackouts=_blackouts(blackouts or (), faults),
        description=_text(description, "/description", faults),
    )
    if not faults and not (rule.dates or rule.yearly or rule.weekly or rule.blackouts):
        message = "the calendar is empty; give it dates, weekly windows or blackouts"
        faults.append(Fault("", "calendar-empty", message))
    if faults:
        raise InvalidFields(faults)
    return rule


def read_weekdays(text: str) -> list[int] | None:
    """ "MON", "SAT-SUN", "MON,WED", "FRI-MON" as numbers, Monday is 0; None if it is nothing of that."""
    found: list[int] = []
    for term in text.upper().split(","):
        first, dash, last = term.strip().partition("-")
        if first not in WEEKDAYS or (dash and last not in WEEKDAYS):
            return None
        begin = WEEKDAYS.index(first)
        length = (WEEKDAYS.index(last) - begin) % 7 if dash else 0
        found += [(begin + offset) % 7 for offset in range(length + 1)]
    return list(dict.fromkeys(found))


def _zone(raw: str | None, faults: list[Fault]) -> str | None:
    if raw is None:
        return None
    try:
        return load_zone(raw).key
    except ZoneFault as fault:
        faults.append(Fault("/zone", fault.code, str(fault), allowed=fault.suggestions or None))
        return None


def _dates(raw: Sequence[str], faults: list[Fault]) -> tuple[tuple[date, ...], tuple[tuple[int, int], ...]]:
    if len(raw) > DATES_MAX:
        faults.append(Fault("/dates", "too-many-entries", f"a calendar has at most {DATES_MAX} dates"))
        return (), ()
    days: set[date] = set()
    yearly: set[tuple[int, int]] = set()
    for place, text in enumerate(raw):
        if match := _YEARLY.fullmatch(text):
            month, day = int(match[1]), int(match[2])
            if _exists(_LEAP_YEAR, month, day):
                yearly.add((month, day))
                continue
        elif found := _day(text):
            days.add(found)
            continue
        message = f"{text[:40]!r} is no day; write 2030-12-24, or 12-24 for every year"
        faults.append(Fault(f"/dates/{place}", "invalid-date", message))
    return tuple(sorted(days)), tuple(sorted(yearly))


def _day(text: str) -> date | None:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    return date(year, month, day) if YEAR_MIN <= year <= YEAR_MAX and _exists(year, month, day) else None


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _weekly(raw: Sequence[Mapping[str, Any]], faults: list[Fault]) -> tuple[Window, ...]:
    if len(raw) > WINDOWS_MAX:
        faults.append(Fault("/weekly", "too-many-entries", f"a calendar has at most {WINDOWS_MAX} weekly windows"))
        return ()
    windows: dict[Window, None] = {}
    for place, entry in enumerate(raw):
        pointer = f"/weekly/{place}"
        days = read_weekdays(str(entry.get("day") or ""))
        if days is None:
            message = "day is a weekday or several: MON, SAT-SUN, MON,WED"
            faults.append(Fault(f"{pointer}/day", "unknown-name", message, allowed=list(WEEKDAYS)))
        begin, end = entry.get("from") or "00:00", entry.get("to") or "24:00"
        wrong = [name for name, clock in (("from", begin), ("to", end)) if not _CLOCK.fullmatch(str(clock))]
        for name in wrong:
            message = "a time of day is HH:MM, from 00:00 to 24:00"
            faults.append(Fault(f"{pointer}/{name}", "invalid-time", message))
        if not wrong and begin == "24:00":
            faults.append(Fault(f"{pointer}/from", "invalid-time", "a window begins before 24:00"))
        elif not wrong and days is not None:
            windows |= dict.fromkeys(window_between(day, begin, end) for day in days)
    return tuple(windows)


def _blackouts(raw: Sequence[Mapping[str, Any]], faults: list[Fault]) -> tuple[Blackout, ...]:
    if len(raw) > BLACKOUTS_MAX:
        faults.append(Fault("/blackouts", "too-many-entries", f"a calendar has at most {BLACKOUTS_MAX} blackouts"))
        return ()
    found: list[Blackout] = []
    for place, entry in enumerate(raw):
        pointer = f"/blackouts/{place}"
        begin = _instant(entry.get("from"), f"{pointer}/from", faults)
        end = _instant(entry.get("to"), f"{pointer}/to", faults)
        reason = _text(entry.get("reason"), f"{pointer}/reason", faults)
        if begin is None or end is None:
            continue
        if end <= begin:
            faults.append(Fault(f"{pointer}/to", "empty-window", "to is not later than from"))
        else:
            found.append(Blackout(begin, end, reason))
    return tuple(sorted(found, key=lambda blackout: (blackout.begin, blackout.end)))


def _instant(raw: Any, pointer: str, faults: list[Fault]) -> datetime | None:
    if not isinstance(raw, str):
        faults.append(Fault(pointer, "required", "an RFC 3339 time is needed, such as 2030-01-31T09:00:00Z"))
        return None
    try:
        return parse_instant(raw)
    except InstantFault as fault:
        faults.append(Fault(pointer, fault.code, str(fault)))
        return None


def _text(raw: str | None, pointer: str, faults: list[Fault]) -> str:
    if raw is not None and (len(raw) > TEXT_CHARS_MAX or "\x00" in raw):
        faults.append(Fault(pointer, "invalid-text", f"at most {TEXT_CHARS_MAX} characters, none of them NUL"))
        return ""
    return raw or ""
