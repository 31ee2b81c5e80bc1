"""Reads and writes lengths of time: "90s", "1h30m", "PT15M".

A length always names its unit, so nobody has to guess whether 30 means seconds or minutes. Months and years
are refused because they have no fixed length; a calendar schedule says that better.
"""

import re
from datetime import timedelta
from typing import Final

EXAMPLES: Final = "write for example 500ms, 90s, 15m, 1h30m, 2d, 1w, PT15M or P1DT2H"

_SHORT: Final = re.compile(
    r"(?:(?P<weeks>[0-9]+)w)?(?:(?P<days>[0-9]+)d)?(?:(?P<hours>[0-9]+)h)?(?:(?P<minutes>[0-9]+)m(?!s))?"
    r"(?:(?P<seconds>[0-9]+(?:\.[0-9]{1,6})?)s)?(?:(?P<milliseconds>[0-9]+)ms)?(?:(?P<microseconds>[0-9]+)us)?"
)
_ISO_WEEKS: Final = re.compile(r"P(?P<weeks>[0-9]+)W")
_ISO: Final = re.compile(
    r"P(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]{1,6})?)S)?)?"
)
_ISO_CALENDAR: Final = re.compile(r"P(?:[0-9]+Y|[0-9]+M)[0-9A-Z.]*")
_TEXT_LENGTH_MAX: Final = 64
_LONGEST: Final = timedelta(days=366_000)

_UNITS: Final = (
    ("w", timedelta(weeks=1)),
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
    ("us", timedelta(microseconds=1)),
)


class DurationFault(ValueError):
    """The text is no length of time that can be used here; the message says why, with examples."""

    code = "invalid-duration"


def parse_duration(text: str) -> timedelta:
    """The length of time that `text` names; always more than zero."""
    if len(text) > _TEXT_LENGTH_MAX:
        raise DurationFault(f"a duration has at most {_TEXT_LENGTH_MAX} characters; {EXAMPLES}")
    for pattern in (_SHORT, _ISO_WEEKS, _ISO):
        match = pattern.fullmatch(text)
        if match and any(match.groups()):
            return _checked(_sum_of(match.groupdict()), text)
    raise DurationFault(_reason(text))


def format_duration(length: timedelta) -> str:
    """The shortest text that `parse_duration` reads back as the same length: "1h30m", "1s500ms"."""
    assert length > timedelta(0), "only lengths above zero are written"
    parts = []
    for unit, size in _UNITS:
        count, length = divmod(length, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _sum_of(parts: dict[str, str | None]) -> timedelta:
    total = timedelta(0)
    for unit, digits in parts.items():
        if digits is None:
            continue
        whole, _, fraction = digits.partition(".")
        try:
            # Whole numbers only: a float would lose microseconds on long lengths.
            total += timedelta(**{unit: int(whole)}) + timedelta(microseconds=int(fraction.ljust(6, "0")))
        except OverflowError:
            raise DurationFault(f"{digits} {unit} is longer than can be planned") from None
    return total


def _checked(length: timedelta, text: str) -> timedelta:
    if length <= timedelta(0):
        raise DurationFault(f"{text} is no time at all; a duration must be more than zero")
    if length > _LONGEST:
        raise DurationFault(f"{text} is longer than can be planned; at most {_LONGEST.days}d")
    return length


def _reason(text: str) -> str:
    shown = repr(text)
    if not text.strip():
        return f"a duration is needed; {EXAMPLES}"
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return f"{shown} has no unit; did you mean {text}s or {text}m? {EXAMPLES}"
    if text.startswith("-"):
        return f"{shown} is negative; a duration must be more than zero"
    if _ISO_CALENDAR.fullmatch(text):
        return f"{shown} counts months or years, which have no fixed length; use days or a calendar schedule"
    return f"{shown} is not a duration; {EXAMPLES}"
