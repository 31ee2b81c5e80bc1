"""What a recurrence rule of RFC 5545 says, read part by part. Everything that the standard forbids is refused here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

TEXT_LENGTH_MAX: Final = 1000
COUNT_MAX: Final = 10_000
INTERVAL_MAX: Final = 100_000
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


class RRuleFault(ValueError):
    """The rule cannot be used; `code` is the stable word for the reason."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class Frequency(IntEnum):
    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6


@dataclass(frozen=True, slots=True)
class Parts:
    """What a rule says, part by part. Empty: it does not say."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: str | None = None
    seconds: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    weekdays: tuple[tuple[int, int], ...] = ()
    """Monday is 0; the second number is the place in its month or year, 0 for all."""
    month_days: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    week_start: int = 0


@lru_cache(maxsize=4096)
def parse_parts(text: str) -> Parts:
    """Reads a rule as the standard writes it, with or without "RRULE:" in front."""
    if len(text) > TEXT_LENGTH_MAX:
        raise RRuleFault("rrule-syntax", f"a rule has at most {TEXT_LENGTH_MAX} characters")
    if not text.isascii() or not text.isprintable():
        raise RRuleFault("rrule-syntax", "only plain ASCII characters are allowed, on one line")
    body = text.strip().upper().removeprefix("RRULE:")
    if not body:
        raise RRuleFault("rrule-syntax", "the rule is empty; write for example FREQ=WEEKLY;BYDAY=MO,WE")
    given: dict[str, str] = {}
    for piece in body.rstrip(";").split(";"):
        name, equals, value = piece.partition("=")
        if not equals or not value:
            raise RRuleFault("rrule-syntax", f"{piece[:40]!r} is no part of a rule; write NAME=VALUE")
        if name in given:
            raise RRuleFault("rrule-syntax", f"{name[:40]} is given twice")
        if name not in _READERS:
            raise RRuleFault("rrule-syntax", f"there is no part {name[:40]!r}; there are {', '.join(_READERS)}")
        given[name] = value
    if "FREQ" not in given:
        raise RRuleFault("rrule-syntax", "FREQ is missing; write for example FREQ=DAILY")
    if "COUNT" in given and "UNTIL" in given:
        raise RRuleFault("rrule-syntax", "COUNT and UNTIL exclude each other")
    values: dict[str, Any] = {}
    for name, value in given.items():
        place, read = _READERS[name]
        values[place] = read(name, value)
    parts = Parts(**values)
    _refuse_forbidden(parts)
    return parts


def normal_text(text: str) -> str:
    """The rule as it is kept: capitals, without a prefix or a semicolon at its end."""
    return text.strip().upper().removeprefix("RRULE:").rstrip(";")


def _refuse_forbidden(parts: Parts) -> None:
    frequency, name = parts.frequency, parts.frequency.name
    numbered = any(nth for _, nth in parts.weekdays)
    if parts.weeks and frequency is not Frequency.YEARLY:
        raise RRuleFault("rrule-syntax", f"BYWEEKNO goes with FREQ=YEARLY only, not with {name}")
    if parts.year_days and frequency in (Frequency.MONTHLY, Frequency.WEEKLY, Frequency.DAILY):
        raise RRuleFault("rrule-syntax", f"BYYEARDAY does not go with FREQ={name}")
    if parts.month_days and frequency is Frequency.WEEKLY:
        raise RRuleFault("rrule-syntax", "BYMONTHDAY does not go with FREQ=WEEKLY")
    if numbered and frequency not in (Frequency.MONTHLY, Frequency.YEARLY):
        raise RRuleFault("rrule-syntax", f"a number before a weekday does not go with FREQ={name}")
    if numbered and parts.weeks:
        raise RRuleFault("rrule-syntax", "a number before a weekday does not go with BYWEEKNO")
    by = (parts.seconds, parts.minutes, parts.hours, parts.weekdays, parts.month_days, parts.year_days, parts.weeks)
    if parts.places and not any((*by, parts.months)):
        raise RRuleFault("rrule-syntax", "BYSETPOS needs another BY part to choose from")


_Reader = Callable[[str, str], Any]


def _frequency(name: str, value: str) -> Frequency:
    try:
        return Frequency[value]
    except KeyError:
        known = ", ".join(each.name for each in Frequency)
        raise RRuleFault("rrule-syntax", f"there is no FREQ={value[:40]}; there are {known}") from None


def _number(low: int, high: int) -> _Reader:
    def read(name: str, value: str) -> int:
        return _signed(name, value, low, high)

    return read


def _numbers(low: int, high: int) -> _Reader:
    def read(name: str, value: str) -> tuple[int, ...]:
        found = {_signed(name, each, low, high) for each in value.split(",")}
        if low < 0 and 0 in found:
            raise RRuleFault("rrule-syntax", f"{name} counts from 1, or from -1 backwards; it has no 0")
        return tuple(sorted(found))

    return read


def _signed(name: str, text: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdigit() or len(digits) > 9 or not low <= int(text) <= high:
        raise RRuleFault("rrule-syntax", f"{name} takes whole numbers from {low} to {high}, not {text[:40]!r}")
    return int(text)


def _read_weekdays(name: str, value: str) -> tuple[tuple[int, int], ...]:
    found = set()
    for each in value.split(","):
        word, number = each[-2:], each[:-2]
        if word not in _WEEKDAYS:
            raise RRuleFault("rrule-syntax", f"{name} takes {', '.join(_WEEKDAYS)}, also as 2TU or -1FR")
        nth = _signed(name, number, -53, 53) if number else 0
        if number and nth == 0:
            raise RRuleFault("rrule-syntax", f"{name}: {each[:40]} counts from 1, or from -1 backwards")
        found.add((_WEEKDAYS.index(word), nth))
    return tuple(sorted(found))


def _week_start(name: str, value: str) -> int:
    if value not in _WEEKDAYS:
        raise RRuleFault("rrule-syntax", f"{name} is one of {', '.join(_WEEKDAYS)}")
    return _WEEKDAYS.index(value)


_READERS: Final[Mapping[str, tuple[str, _Reader]]] = {
    "FREQ": ("frequency", _frequency),
    "INTERVAL": ("interval", _number(1, INTERVAL_MAX)),
    "COUNT": ("count", _number(1, COUNT_MAX)),
    "UNTIL": ("until", lambda name, value: value),
    "BYSECOND": ("seconds", _numbers(0, 59)),
    "BYMINUTE": ("minutes", _numbers(0, 59)),
    "BYHOUR": ("hours", _numbers(0, 23)),
    "BYDAY": ("weekdays", _read_weekdays),
    "BYMONTHDAY": ("month_days", _numbers(-31, 31)),
    "BYYEARDAY": ("year_days", _numbers(-366, 366)),
    "BYWEEKNO": ("weeks", _numbers(-53, 53)),
    "BYMONTH": ("months", _numbers(1, 12)),
    "BYSETPOS": ("places", _numbers(-366, 366)),
    "WKST": ("week_start", _week_start),
}
