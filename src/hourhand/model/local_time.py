"""Maps local wall-clock times to instants: the one place that knows about daylight saving.

Cron, rrule and daily schedules all speak in naive local times; `next_instant` turns any of them into UTC
instants by the job's choice for the hour that is missing in spring (`Gap`) and the hour that comes twice in
autumn (`DstOverlap`). Where the clock jumps is read from the zone itself, so half-hour changes, a month of
Ramadan time and a skipped calendar day need no case of their own.
"""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2200
"""Due times lie between these years; later ones are never planned and never searched for."""

_TICK: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_LOOK_DAYS: Final = 2
"""No zone has ever set its clocks twice within this, and a day more."""


class Gap(StrEnum):
    """What becomes of a fixed time that the clock jumps over."""

    FIRE_AFTER = "fire_after"
    SKIP = "skip"


class DstOverlap(StrEnum):
    """What becomes of a local time that comes twice. `auto`: fixed times once at the first pass, others twice."""

    AUTO = "auto"
    FIRST = "first"
    LAST = "last"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class DstRule:
    """How one schedule treats clock changes. One that is not `fixed` keeps its cadence, so `gap` is not asked."""

    fixed: bool
    gap: Gap = Gap.FIRE_AFTER
    overlap: DstOverlap = DstOverlap.AUTO

    @property
    def first_pass(self) -> bool:
        return self.overlap is not DstOverlap.LAST

    @property
    def second_pass(self) -> bool:
        if self.overlap is DstOverlap.AUTO:
            return not self.fixed
        return self.overlap is not DstOverlap.FIRST


class InstantFault(ValueError):
    """The text is no instant. `local` holds the wall-clock time where nothing but the offset is missing."""

    def __init__(self, code: str, message: str, local: datetime | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.local = local


class ZoneFault(ValueError):
    """No such time zone. `suggestions` holds up to three names that were perhaps meant."""

    code = "unknown-timezone"

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.suggestions = suggestions


def next_instant(
    after: datetime, next_local: Callable[[datetime], datetime | None], zone: ZoneInfo, rule: DstRule
) -> datetime | None:
    """The first instant strictly later than `after` at which the schedule falls due, in UTC.

    `next_local` gives the schedule's first naive local time strictly later than the one it is handed.
    """
    found = next_steady(after, next_local, zone)
    if found is not None:
        return found
    wall = after.astimezone(zone)
    ahead = _next_ahead(after, wall, next_local, zone, rule)
    if not rule.second_pass or not _repeats(wall):
        return ahead
    # Inside the first pass, local times that lie behind on the clock are still to come once more.
    again = _next_in_second_pass(after, wall, next_local, zone)
    return min(ahead, again) if ahead and again else ahead or again


def next_steady(after: datetime, next_local: Callable[[datetime], datetime | None], zone: ZoneInfo) -> datetime | None:
    """The short way, enough on nearly every day of the year. None: clocks are set near by, or nothing follows."""
    offset = _steady_offset(zone, after.toordinal())
    if offset is None:
        return None
    local = next_local((after + offset).replace(tzinfo=None))
    if local is None:
        return None
    there = _steady_offset(zone, local.toordinal())
    # Clocks that are set on the way do no harm: had they touched a time, it would be the next one.
    return None if there is None else local.replace(tzinfo=UTC) - there


def instants_of(local: datetime, zone: ZoneInfo, rule: DstRule) -> list[datetime]:
    """The instants at which one naive local time falls due: none, one or two, in order."""
    early, late = _both_readings(local, zone)
    if early == late:
        return [early]
    if early > late:
        return [jump_between(late, early, zone)] if rule.fixed and rule.gap is Gap.FIRE_AFTER else []
    return [early] * rule.first_pass + [late] * rule.second_pass


def readings_of(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """What a person in that zone may mean by a naive local time: nothing, one aware time or two."""
    early, late = _both_readings(local, zone)
    if early > late:
        return []
    return [instant.astimezone(zone) for instant in ([early] if early == late else [early, late])]


def find_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """The instant in (after, until] at which the zone's clock is set. Of several, one; none if they take each other
    back: ask for a few days at a time."""
    if until <= after or after.astimezone(zone).utcoffset() == until.astimezone(zone).utcoffset():
        return None
    return jump_between(after, until, zone)


@lru_cache(maxsize=8192)
def clock_changes(zone: ZoneInfo, year: int) -> tuple[tuple[datetime, timedelta], ...]:
    """The instants of a year, by UTC, at which the zone's clocks are set, in order, and by how much."""
    begin, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    days = [datetime.fromordinal(at) for at in range(begin.toordinal() - 2, end.toordinal() + 4, _LOOK_DAYS)]
    # By the zone's own clock, which answers six times as fast as when it is asked about instants.
    offsets = [_known(zone.utcoffset(day)) for day in days]
    found = []
    for place, (before, behind) in enumerate(pairwise(offsets)):
        if before != behind:
            # Also where one of the two days begins in the hour that is missing, these hold the change between them.
            low = days[place].replace(tzinfo=UTC) - max(before, behind)
            high = days[place + 1].replace(tzinfo=UTC) - min(before, behind)
            found.append((jump_between(low, high, zone), behind - before))
    return tuple((change, by) for change, by in found if begin <= change < end)


def _known(offset: timedelta | None) -> timedelta:
    assert offset is not None, "a zone has an offset at every time"
    return offset


def _next_ahead(
    after: datetime,
    wall: datetime,
    next_local: Callable[[datetime], datetime | None],
    zone: ZoneInfo,
    rule: DstRule,
) -> datetime | None:
    """The first due instant among the local times that lie ahead on the clock."""
    local = next_local(wall.replace(tzinfo=None, fold=0))
    while local is not None:
        early, late = _both_readings(local, zone)
        if early <= late:
            if early > after and (rule.first_pass or early == late):
                return early
            if late > after and rule.second_pass:
                return late
            local = next_local(local)
            continue
        jump = jump_between(late, early, zone)
        if rule.fixed and rule.gap is Gap.FIRE_AFTER:
            return jump  # later than `after`: a gap that lies ahead on the clock lies ahead in time
        # Straight to the far side: a schedule of every second would otherwise try each second of the gap.
        local = next_local(jump.astimezone(zone).replace(tzinfo=None) - _TICK)
    return None


def _next_in_second_pass(
    after: datetime, wall: datetime, next_local: Callable[[datetime], datetime | None], zone: ZoneInfo
) -> datetime | None:
    """The first due instant after the clock is set back, seen from inside the first pass."""
    _, late = _both_readings(wall.replace(tzinfo=None, fold=0), zone)
    jump = jump_between(after, late, zone)
    local = next_local(jump.astimezone(zone).replace(tzinfo=None, fold=0) - _TICK)
    if local is None:
        return None
    early, late = _both_readings(local, zone)
    return late if early < late else None  # outside the repeated hour it lies ahead, where the other search finds it


@lru_cache(maxsize=8192)
def _steady_offset(zone: ZoneInfo, ordinal: int) -> timedelta | None:
    """The zone's offset, if its clocks are not set within a day and a half of that date, by UTC or by its own time.

    Looked at three times, at most three days apart, which is enough: no zone has ever changed its offset and taken that
    back within less than 3.9 days. It is what the first look at a zone costs most.
    """
    days = [datetime.fromordinal(ordinal + near).replace(tzinfo=UTC) for near in (-2, 0, 3)]
    offsets = {day.astimezone(zone).utcoffset() for day in days}
    return offsets.pop() if len(offsets) == 1 else None


def _repeats(wall: datetime) -> bool:
    """Whether this clock time comes once more; false on its second pass."""
    return wall.utcoffset() != wall.replace(fold=1).utcoffset()


def _both_readings(local: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The instant by the offset before and by the offset after a nearby jump.

    Equal: an ordinary time. First earlier: the time comes twice, at both. First later: the time does not exist.
    """
    early = local.replace(tzinfo=zone)
    late = early.replace(fold=1)
    before, behind = early.utcoffset(), late.utcoffset()
    assert before is not None
    assert behind is not None
    plain = local.replace(tzinfo=UTC)
    first = plain - before
    return first, first if before == behind else plain - behind


def jump_between(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """The instant in (low, high] at which the zone's offset changes."""
    offset = low.astimezone(zone).utcoffset()
    low = low.replace(microsecond=0)
    if high.microsecond:
        high = high.replace(microsecond=0) + _SECOND
    while high - low > _SECOND:
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


# --- instants ---------------------------------------------------------------------------------------------

_RFC_3339: Final = re.compile(
    r"(?P<year>[0-9]{4,9})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?"
    r"(?P<offset>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_PLAIN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?Z")
_INSTANT_EXAMPLES: Final = "write for example 2030-01-31T09:00:00Z or 2030-01-31T09:00:00+01:00"


def parse_instant(text: str) -> datetime:
    """The instant that an RFC 3339 text names, in UTC, to the microsecond (finer digits are cut off)."""
    return _plain_instant(text) or _any_instant(text)


def _plain_instant(text: str) -> datetime | None:
    """The form in which programs write times, a hundred times as fast as all forms together."""
    if not _PLAIN.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:  # a day that does not exist
        return None
    return instant if YEAR_MIN <= instant.year <= YEAR_MAX else None


def _any_instant(text: str) -> datetime:
    match = _RFC_3339.fullmatch(text)
    if not match:
        raise InstantFault("invalid-date-time", f"{text[:40]!r} is not an RFC 3339 date-time; {_INSTANT_EXAMPLES}")
    if not YEAR_MIN <= int(match["year"]) <= YEAR_MAX:
        raise InstantFault("time-out-of-range", f"the year must lie between {YEAR_MIN} and {YEAR_MAX}")
    year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
    try:
        local = datetime(year, month, day, hour, minute, second, _microseconds(match["fraction"]))  # noqa: DTZ001
    except ValueError as wrong:
        raise InstantFault("invalid-date-time", f"{text!r} does not exist: {wrong}") from None
    if match["offset"] is None:
        raise InstantFault("offset-required", f"{text!r} has no offset; {_INSTANT_EXAMPLES}", local)
    instant = local.replace(tzinfo=UTC) - _offset(match["offset"], text)
    if not YEAR_MIN <= instant.year <= YEAR_MAX:  # an offset can carry the first and last day over the edge
        raise InstantFault("time-out-of-range", f"the year in UTC must lie between {YEAR_MIN} and {YEAR_MAX}")
    return instant


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC; fractions only where there are any."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _microseconds(fraction: str | None) -> int:
    return int((fraction or "")[:6].ljust(6, "0"))


def _offset(text: str, whole: str) -> timedelta:
    if text in "Zz":
        return timedelta(0)
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise InstantFault("invalid-date-time", f"{whole!r} has an impossible offset")
    length = timedelta(hours=hours, minutes=minutes)
    return -length if text[0] == "-" else length


# --- zones ------------------------------------------------------------------------------------------------

_ZONE_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}")
_ZONE_NAME_LENGTH_MAX: Final = 64
_ZONE_EXAMPLE: Final = "write for example Europe/Berlin"
# "right/..." counts leap seconds and would be 27 s off; the others mean something else on each machine.
_ZONES_REFUSED: Final = re.compile(r"(?:posix|right)/.*|localtime|posixrules|Factory")


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    """The IANA zone of that name. The name is checked before any file is looked for."""
    if len(name) > _ZONE_NAME_LENGTH_MAX or not _ZONE_NAME.fullmatch(name):
        raise ZoneFault(f"{name[:_ZONE_NAME_LENGTH_MAX]!r} is no time zone; {_ZONE_EXAMPLE}")
    if not _ZONES_REFUSED.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    suggestions = _suggest_zones(name)
    hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else f"; {_ZONE_EXAMPLE}"
    raise ZoneFault(f"there is no time zone {name!r}{hint}", suggestions)


def forget_zones() -> None:
    """Reads the tz data anew from now on: it has been replaced."""
    ZoneInfo.clear_cache()
    for cache in (load_zone, _steady_offset, clock_changes, _known_zones):
        cache.cache_clear()


def _suggest_zones(name: str) -> tuple[str, ...]:
    names = _known_zones()
    wanted = name.lower()
    cities = [zone for lower, zone in names.items() if lower.rpartition("/")[2] == wanted]
    close = [names[lower] for lower in difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)]
    return tuple(dict.fromkeys(cities + close))[:3]


@lru_cache(maxsize=1)
def _known_zones() -> dict[str, str]:
    """Those that may be used, by their names in small letters."""
    return {name.lower(): name for name in sorted(available_timezones()) if not _ZONES_REFUSED.fullmatch(name)}
