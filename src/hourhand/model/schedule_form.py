"""What a user writes about when a job falls due, read into a `Timing`: every fault found, or none.

A new kind of schedule needs a row in `_READERS` here, besides its class and its row in `schedule.py`.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from hourhand.model.cron import MACROS, Cron, CronFault
from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.local_time import (
    DstOverlap,
    Gap,
    InstantFault,
    ZoneFault,
    format_instant,
    load_zone,
    parse_instant,
    readings_of,
)
from hourhand.model.schedule import At, CronSchedule, Every, Now, Schedule, Timing

PAST_GRACE: Final = timedelta(hours=1)
"""An `at` this far in the past is still taken, and due at once: clocks differ and requests queue."""
EVERY_MIN: Final = timedelta(seconds=1)
EVERY_MAX: Final = timedelta(days=3660)
SCHEDULES_MAX: Final = 50

_Choice = TypeVar("_Choice", Gap, DstOverlap)


def parse_timing(
    raw_schedule: object,
    zone: object = None,
    start_at: object = None,
    end_at: object = None,
    gap: object = None,
    overlap: object = None,
    *,
    now: datetime,
    seed: int,
) -> Timing:
    """Reads what a user wrote. None means "not given". Raises `InvalidFields` with every fault found."""
    faults: list[Fault] = []
    zone_name = _read_zone(zone, faults)
    start = _read_bound(start_at, "/start_at", zone_name, faults)
    end = _read_bound(end_at, "/end_at", zone_name, faults)
    context = _Context(now.astimezone(UTC), seed, zone_name, start, faults)
    timing = Timing(
        schedules=tuple(_read_schedules(raw_schedule, context)),
        zone=zone_name or "UTC",
        start_at=start,
        end_at=end,
        gap=_read_choice(gap, Gap.FIRE_AFTER, "/dst_gap", faults),
        overlap=_read_choice(overlap, DstOverlap.AUTO, "/dst_overlap", faults),
    )
    if start is not None and end is not None and start > end:
        faults.append(Fault("/end_at", "empty-window", f"end_at is earlier than start_at ({format_instant(start)})"))
    elif end is not None and end < context.now:
        faults.append(_never_fires(timing, context.now))
    if not faults and timing.first_due(context.now) is None:
        faults.append(_never_fires(timing, context.now))
    if faults:
        raise InvalidFields(faults)
    return timing


@dataclass(frozen=True, slots=True)
class _Context:
    """What the readers of single schedules need to know, and where they put what is wrong."""

    now: datetime
    seed: int
    zone: str | None
    start_at: datetime | None
    faults: list[Fault]
    past_runs: bool = False

    def refuse(self, pointer: str, code: str, message: str, **more: Any) -> None:
        self.faults.append(Fault(pointer, code, message, **more))


def _read_schedules(raw: object, context: _Context) -> list[Schedule]:
    if raw is None or raw == "now":
        raw = {"now": True}
    if isinstance(raw, Mapping):
        raw, pointers = [raw], ["/schedule"]
    elif isinstance(raw, list):
        pointers = [f"/schedule/{index}" for index in range(len(raw))]
    else:
        hint = f'write {{"cron": "{raw}"}} for a cron expression' if _looks_like_cron(raw) else None
        context.refuse("/schedule", "wrong-type", _expected(f"an object with one of {_KINDS_SHOWN}", raw), hint=hint)
        return []
    if not raw:
        context.refuse("/schedule", "schedule-required", f"the list is empty; name one of {_KINDS_SHOWN}")
    if len(raw) > SCHEDULES_MAX:
        context.refuse("/schedule", "too-many-schedules", f"a job has at most {SCHEDULES_MAX} schedules")
        return []
    found = [_read_schedule(item, pointer, context) for item, pointer in zip(raw, pointers, strict=True)]
    if len(raw) > 1 and any(isinstance(schedule, Now) for schedule in found):
        context.refuse("/schedule", "conflicting-schedule", "now stands alone; it cannot be combined with others")
    return list(dict.fromkeys(schedule for schedule in found if schedule is not None))


def _looks_like_cron(raw: object) -> bool:
    return isinstance(raw, str) and (raw in MACROS or len(raw.split()) in (5, 6)) and len(raw) < 80


def _read_schedule(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if raw == "now":
        raw = {"now": True}
    if not isinstance(raw, Mapping):
        context.refuse(pointer, "wrong-type", _expected(f"an object with one of {_KINDS_SHOWN}", raw))
        return None
    known = [key for key in raw if key in _READERS]
    for key in raw:
        if key == "if_past" and "at" in raw:
            context = replace(context, past_runs=_read_if_past(raw[key], f"{pointer}/if_past", context))
        elif key not in _READERS:
            context.faults.append(_unknown_key(str(key), pointer))
    if len(known) > 1:
        message = f"only one of {', '.join(known)} can be given; a list takes several"
        context.refuse(pointer, "conflicting-schedule", message)
    elif not raw:
        context.refuse(pointer, "schedule-required", f"the object is empty; name one of {_KINDS_SHOWN}")
    if len(known) != 1:
        return None
    return _READERS[known[0]](raw[known[0]], f"{pointer}/{known[0]}", context)


def _read_if_past(raw: object, pointer: str, context: _Context) -> bool:
    """Whether an `at` that has long passed runs at once instead of being refused."""
    if raw not in ("run", "refuse"):
        context.refuse(pointer, "invalid-value", _expected("'run' or 'refuse'", raw), allowed=["run", "refuse"])
    return raw == "run"


def _unknown_key(key: str, pointer: str) -> Fault:
    close = [_OTHER_WORDS[key]] if key in _OTHER_WORDS else difflib.get_close_matches(key[:40], _READERS, n=1)
    hint = f"did you mean {close[0]}?" if close else None
    escaped = key.replace("~", "~0").replace("/", "~1")
    message = f"there is no schedule of kind {key[:40]!r}"
    return Fault(f"{pointer}/{escaped}", "unknown-field", message, hint, list(_READERS))


def _read_now(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if raw is not True:
        context.refuse(pointer, "wrong-type", _expected("true", raw))
        return None
    return Now(context.now if context.start_at is None else max(context.now, context.start_at))


def _read_at(raw: object, pointer: str, context: _Context) -> Schedule | None:
    instant = _read_instant(raw, pointer, context.zone, context.faults)
    if instant is None:
        return None
    if instant >= context.now:
        return At(instant)
    if instant < context.now - PAST_GRACE and not context.past_runs:
        message = f"{format_instant(instant)} has passed; the server's time is {format_instant(context.now)}"
        hint = 'to run it at once all the same, add "if_past": "run" beside "at"'
        context.refuse(pointer, "run-at-in-past", message, hint=hint)
        return None
    return At(context.now, asked=instant)


def _read_cron(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if not isinstance(raw, str):
        context.refuse(pointer, "wrong-type", _expected("a cron expression such as '0 9 * * MON-FRI'", raw))
        return None
    try:
        cron = Cron.parse(raw, context.seed)
    except CronFault as fault:
        context.refuse(pointer, fault.code, str(fault), hint=fault.hint, allowed=fault.allowed)
        return None
    # Equal expressions share one compiled form unless the job's own values are in it.
    return CronSchedule(cron.text, context.seed if cron.uses_hash else 0)


def _read_every(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if not isinstance(raw, str):
        context.refuse(pointer, "wrong-type", _expected("a duration such as '15m'", raw))
        return None
    try:
        interval = parse_duration(raw)
    except DurationFault as fault:
        context.refuse(pointer, "invalid-duration", str(fault))
        return None
    if not EVERY_MIN <= interval <= EVERY_MAX:
        limits = f"at least {format_duration(EVERY_MIN)} and at most {EVERY_MAX.days}d"
        context.refuse(pointer, "invalid-duration", f"the interval must be {limits}")
        return None
    # Without a start the first run comes one interval from now: whoever wants one at once asks for `now`.
    return Every(interval, context.start_at or context.now + interval)


_READERS: Final[Mapping[str, Callable[[object, str, _Context], Schedule | None]]] = {
    "now": _read_now,
    "at": _read_at,
    "cron": _read_cron,
    "every": _read_every,
}
_KINDS_SHOWN: Final = ", ".join(_READERS)
_OTHER_WORDS: Final = {"run_at": "at", "time": "at", "interval": "every", "cron_expression": "cron", "crontab": "cron"}


def _read_zone(raw: object, faults: list[Fault]) -> str | None:
    if raw is None:
        return None
    if not isinstance(raw, str):
        faults.append(Fault("/zone", "wrong-type", _expected("the name of a time zone such as 'Europe/Berlin'", raw)))
        return None
    try:
        return load_zone(raw).key
    except ZoneFault as fault:
        faults.append(Fault("/zone", fault.code, str(fault), allowed=fault.suggestions or None))
        return None


def _read_bound(raw: object, pointer: str, zone: str | None, faults: list[Fault]) -> datetime | None:
    return None if raw is None else _read_instant(raw, pointer, zone, faults)


def _read_instant(raw: object, pointer: str, zone: str | None, faults: list[Fault]) -> datetime | None:
    if isinstance(raw, datetime) and raw.tzinfo is not None:
        return raw.astimezone(UTC)
    if not isinstance(raw, str):
        faults.append(Fault(pointer, "wrong-type", _expected("an RFC 3339 string such as '2030-01-31T09:00:00Z'", raw)))
        return None
    try:
        return parse_instant(raw)
    except InstantFault as fault:
        faults.append(_without_offset(fault.local, pointer, zone) or Fault(pointer, fault.code, str(fault)))
        return None


def _without_offset(local: datetime | None, pointer: str, zone: str | None) -> Fault | None:
    """A better answer than `offset-required` where the job's zone is known."""
    if local is None or zone is None:
        return None
    readings = [reading.isoformat() for reading in readings_of(local, load_zone(zone))]
    if not readings:
        message = f"{local.isoformat()} does not exist in {zone}: the clock jumps over it"
        return Fault(pointer, "invalid-date-time", message)
    if len(readings) > 1:
        message = f"{local.isoformat()} comes twice in {zone}; write {' or '.join(readings)}"
        return Fault(pointer, "ambiguous-local-time", message, allowed=readings)
    return Fault(pointer, "offset-required", "the offset is missing", hint=f"in {zone} write {readings[0]}")


def _read_choice(raw: object, default: _Choice, pointer: str, faults: list[Fault]) -> _Choice:
    if raw is None:
        return default
    choices = [choice.value for choice in type(default)]
    if isinstance(raw, str) and raw in choices:
        return type(default)(raw)
    faults.append(Fault(pointer, "invalid-value", f"must be one of {', '.join(choices)}", allowed=choices))
    return default


def _never_fires(timing: Timing, now: datetime) -> Fault:
    if timing.end_at is not None and timing.end_at < now:
        message = f"end_at has passed; the server's time is {format_instant(now)}"
        return Fault("/end_at", "schedule-never-fires", message)
    pointer = "/schedule" if timing.end_at is None else "/end_at"
    return Fault(pointer, "schedule-never-fires", "the schedule has no due time between now, start_at and end_at")


def _expected(what: str, raw: object) -> str:
    return f"expected {what}, not {_JSON_TYPES.get(type(raw), 'something else')}"


_JSON_TYPES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
