"""Times as people write and read them.

Written: RFC 3339, "+10m", "06:00", "today 18:30", "tomorrow 06:00", "2030-01-31 09:00". What names no offset is
meant in the given zone, or in this machine's. Read: in this machine's zone, which is always shown.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hourhand.model.durations import DurationFault, parse_duration
from hourhand.model.local_time import InstantFault, load_zone, parse_instant

EXAMPLES: Final = "write for example 2030-01-31T09:00:00Z, '2030-01-31 09:00', +10m, 06:00 or 'tomorrow 06:00'"

_CLOCK: Final = re.compile(r"(?:(?P<day>today|tomorrow)\s+)?(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LOCAL: Final = re.compile(r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[ Tt](?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)")


class TimeFault(ValueError):
    """The text is no time; the message says why."""


def parse_time(text: str, now: datetime, zone_name: str | None = None) -> datetime:
    """The instant that a person means by `text`, in UTC."""
    zone = None if zone_name is None else load_zone(zone_name)
    text = text.strip()
    if text.lower() == "now":
        return now
    if text.startswith("+"):
        return now + _length(text[1:])
    if match := _CLOCK.fullmatch(text.lower()):
        return _clock(match["day"], _time(match["clock"], text), now, zone)
    if match := _LOCAL.fullmatch(text):
        return _instant(datetime.combine(_date(match["date"], text), _time(match["clock"], text)), zone)
    try:
        return parse_instant(text)
    except InstantFault as fault:
        if fault.local is not None:
            return _instant(fault.local, zone)
        if fault.code != "invalid-date-time" or "T" in text:
            raise TimeFault(str(fault)) from None
        raise TimeFault(f"{text!r} is not a time; {EXAMPLES}") from None


def parse_day(text: str, zone_name: str | None = None) -> datetime | None:
    """The instant at which a day such as 2030-01-31 begins; None if the text is not one day. Where the clock jumps over
    midnight that is the jump, where midnight comes twice the first."""
    text = text.strip()
    if not _DAY.fullmatch(text):
        return None
    zone = None if zone_name is None else load_zone(zone_name)
    midnight = datetime.combine(_date(text, text), time())
    readings = _readings(midnight, zone)
    return readings[0] if readings else midnight.replace(tzinfo=zone).astimezone(UTC)


def parse_past_time(text: str, now: datetime) -> datetime:
    """The same for times gone by: a length is that long ago, a time of day without a day the last one, a day its
    beginning."""
    day = parse_day(text)
    if day is not None:
        return day
    try:
        return now - parse_duration(text)
    except DurationFault:
        clock = _CLOCK.fullmatch(text.strip().lower())
    if clock is None or clock["day"] is not None:
        return parse_time(text, now)
    today = parse_time(f"today {text.strip()}", now)
    return today if today <= now else today - timedelta(days=1)


def local_time(instant: datetime | None) -> str:
    """In full, for details and messages: "2030-01-31 09:00:00 CET"."""
    return "-" if instant is None else instant.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def short_time(instant: datetime | None) -> str:
    """For narrow tables, whose heading shows the zone: "01-31 09:00:00"."""
    return "-" if instant is None else instant.astimezone().strftime("%m-%d %H:%M:%S")


def local_zone(now: datetime) -> str:
    return now.astimezone().strftime("%Z")


def length_text(milliseconds: float | None) -> str:
    """A length of time to three digits or so: "12 ms", "3.4 s", "2 min 5 s", "3 h 20 min"."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _length(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except DurationFault as fault:
        raise TimeFault(str(fault)) from None


def _clock(day: str | None, at: time, now: datetime, zone: ZoneInfo | None) -> datetime:
    """A time of today or tomorrow; without a day the next one to come."""
    today = now.astimezone(zone).date()
    if day == "tomorrow":
        return _instant(datetime.combine(today + timedelta(days=1), at), zone)
    instant = _instant(datetime.combine(today, at), zone)
    if day is None and instant <= now:
        return _instant(datetime.combine(today + timedelta(days=1), at), zone)
    return instant


def _instant(local: datetime, zone: ZoneInfo | None) -> datetime:
    readings = _readings(local, zone)
    if not readings:
        raise TimeFault(f"{local} does not exist {_where(zone)}: the clock jumps over it")
    if len(readings) > 1:
        both = " or ".join(reading.astimezone(zone).isoformat() for reading in readings)
        raise TimeFault(f"{local} comes twice {_where(zone)}; write {both}")
    return readings[0]


def _readings(local: datetime, zone: ZoneInfo | None) -> list[datetime]:
    """The instants at which the clock shows `local`: none, one or two. Without a zone, this machine's clock."""
    instants = []
    for fold in (0, 1):
        instant = local.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None, fold=0) == local and instant not in instants:
            instants.append(instant)
    return instants


def _where(zone: ZoneInfo | None) -> str:
    return f"in {zone.key}" if zone else "in this machine's zone"


def _time(text: str, whole: str) -> time:
    try:
        hour, minute, second, *_ = (*map(int, text.split(":")), 0)
        return time(hour, minute, second)
    except ValueError as wrong:
        raise TimeFault(f"{whole!r} does not exist: {wrong}") from None


def _date(text: str, whole: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise TimeFault(f"{whole!r} is no day of the calendar") from None
