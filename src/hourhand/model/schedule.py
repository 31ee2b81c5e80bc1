"""When a job falls due: its schedules, their union, and the three forms in which they are written.

`Timing` answers the one question everybody asks, `next_after`. It holds no clock: the same instant always gets
the same answer. The user's form is read by `parse_timing` (every fault at once) and given back by `describe`;
`timing_to_json` and `timing_from_json` are the stored form.

A new kind of schedule is a class with the members of `Kind`, a row in `_STORED` and a row in `_READERS`.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from hourhand.model.cron import MACROS, Cron, CronFault
from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.local_time import (
    YEAR_MAX,
    DstOverlap,
    DstRule,
    Gap,
    InstantFault,
    ZoneFault,
    format_instant,
    load_zone,
    next_instant,
    parse_instant,
    readings_of,
)

__all__ = [
    "At",
    "CronSchedule",
    "DstOverlap",
    "Every",
    "Gap",
    "Now",
    "Schedule",
    "Timing",
    "describe",
    "format_instant",
    "parse_instant",
    "parse_timing",
    "timing_from_json",
    "timing_to_json",
]

PAST_GRACE: Final = timedelta(hours=1)
"""An `at` this far in the past is still taken, and due at once: clocks differ and requests queue."""
EVERY_MIN: Final = timedelta(seconds=1)
EVERY_MAX: Final = timedelta(days=3660)
SCHEDULES_MAX: Final = 50

_Choice = TypeVar("_Choice", Gap, DstOverlap)
_TICK: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HORIZON: Final = datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC) - _TICK


class Kind(Protocol):
    """What every kind of schedule can do."""

    @property
    def recurring(self) -> bool:
        """False for a schedule that falls due once."""

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        """The first due instant strictly later, without regard to start and end; `timing` gives zone and DST choice."""

    def to_json(self) -> dict[str, Any]:
        """The stored form; its first key names the kind."""

    def describe(self) -> dict[str, Any]:
        """The form the user sent."""


@dataclass(frozen=True, slots=True)
class Now:
    """Due once, at the instant the job was accepted (or at its `start_at`, if that is later)."""

    instant: datetime
    recurring: ClassVar[bool] = False

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        return self.instant if self.instant > instant else None

    def to_json(self) -> dict[str, Any]:
        return {"now": format_instant(self.instant)}

    def describe(self) -> dict[str, Any]:
        return {"now": True}


@dataclass(frozen=True, slots=True)
class At:
    """Due once, at an instant. `asked` is what the user wrote, where that had just passed and it is due at once."""

    instant: datetime
    asked: datetime | None = None
    recurring: ClassVar[bool] = False

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        return self.instant if self.instant > instant else None

    def to_json(self) -> dict[str, Any]:
        return {"at": format_instant(self.instant), "asked": self.asked and format_instant(self.asked)}

    def describe(self) -> dict[str, Any]:
        return {"at": format_instant(self.asked or self.instant)}


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Due by the local clock of the job's zone. `seed` fixes what `H` stands for; 0 where there is no `H`."""

    text: str
    seed: int = 0
    recurring: ClassVar[bool] = True

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        cron = Cron.parse(self.text, self.seed)
        rule = DstRule(cron.is_fixed_time, timing.gap, timing.overlap)
        return next_instant(instant, cron.next_local, load_zone(timing.zone), rule)

    def to_json(self) -> dict[str, Any]:
        return {"cron": self.text, "seed": self.seed}

    def describe(self) -> dict[str, Any]:
        return {"cron": self.text}


@dataclass(frozen=True, slots=True)
class Every:
    """Due at `anchor` and each `interval` after it, counted in real time: clock changes do not touch it."""

    interval: timedelta
    anchor: datetime
    recurring: ClassVar[bool] = True

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        if instant < self.anchor:
            return self.anchor
        return self.anchor + ((instant - self.anchor) // self.interval + 1) * self.interval

    def to_json(self) -> dict[str, Any]:
        return {"every": format_duration(self.interval), "anchor": format_instant(self.anchor)}

    def describe(self) -> dict[str, Any]:
        return {"every": format_duration(self.interval)}


Schedule: TypeAlias = Now | At | CronSchedule | Every


@dataclass(frozen=True, slots=True)
class Timing:
    """All of a job's 'when'."""

    schedules: tuple[Schedule, ...]
    zone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    gap: Gap = Gap.FIRE_AFTER
    overlap: DstOverlap = DstOverlap.AUTO

    @property
    def recurring(self) -> bool:
        """Whether any schedule goes on by itself; a list of `at` does not."""
        return any(schedule.recurring for schedule in self.schedules)

    @property
    def only_instant(self) -> datetime | None:
        """The due time of a plain one-off: a single `now` or `at` without zone or bounds. None for everything else."""
        if len(self.schedules) != 1 or self.start_at or self.end_at or self.zone != "UTC":
            return None
        schedule = self.schedules[0]
        if type(schedule) is Now or (type(schedule) is At and schedule.asked is None):
            return schedule.instant
        return None

    def next_after(self, instant: datetime) -> datetime | None:
        """The first due time strictly later than `instant`, in UTC; None when there is no further."""
        instant = instant.astimezone(UTC)
        if self.start_at is not None and instant < self.start_at:
            instant = self.start_at - _TICK
        last = self.end_at if self.end_at is not None else _HORIZON
        if instant >= last:
            return None
        found = None
        for schedule in self.schedules:
            due = schedule.next_after(instant, self)
            if due is not None and due <= last:
                found = last = due
        return found

    def due_between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The first `limit` due times in (after, until], in order."""
        due_times: list[datetime] = []
        due = self.next_after(after)
        while due is not None and due <= until and len(due_times) < limit:
            due_times.append(due)
            due = self.next_after(due)
        return due_times

    def first_due(self, accepted_at: datetime) -> datetime | None:
        """The due time a newly accepted job starts with.

        `now` and `at` count although their instant may be the very one of acceptance; due times of recurring
        schedules from before the job existed do not.
        """
        once = tuple(schedule for schedule in self.schedules if not schedule.recurring)
        candidates = (replace(self, schedules=once).next_after(_EPOCH), self.next_after(accepted_at))
        return min((due for due in candidates if due is not None), default=None)


# --- the stored form --------------------------------------------------------------------------------------

_STORED: Final[Mapping[str, Callable[[Mapping[str, Any]], Schedule]]] = {
    "now": lambda stored: Now(parse_instant(stored["now"])),
    "at": lambda stored: At(parse_instant(stored["at"]), stored["asked"] and parse_instant(stored["asked"])),
    "cron": lambda stored: CronSchedule(stored["cron"], int(stored["seed"])),
    "every": lambda stored: Every(parse_duration(stored["every"]), parse_instant(stored["anchor"])),
}


def timing_to_json(timing: Timing) -> dict[str, Any]:
    return {
        "schedules": [schedule.to_json() for schedule in timing.schedules],
        "zone": timing.zone,
        "start_at": timing.start_at and format_instant(timing.start_at),
        "end_at": timing.end_at and format_instant(timing.end_at),
        "gap": timing.gap.value,
        "overlap": timing.overlap.value,
    }


def timing_from_json(stored: Mapping[str, Any]) -> Timing:
    return Timing(
        schedules=tuple(_schedule_from_json(schedule) for schedule in stored["schedules"]),
        zone=stored["zone"],
        start_at=stored["start_at"] and parse_instant(stored["start_at"]),
        end_at=stored["end_at"] and parse_instant(stored["end_at"]),
        gap=Gap(stored["gap"]),
        overlap=DstOverlap(stored["overlap"]),
    )


def _schedule_from_json(stored: Mapping[str, Any]) -> Schedule:
    # jsonb orders keys by itself, so the kind is looked for by name.
    [kind] = stored.keys() & _STORED.keys()
    return _STORED[kind](stored)


# --- the user's form --------------------------------------------------------------------------------------


def describe(timing: Timing) -> list[dict[str, Any]]:
    """The schedules as the API gives them back, in the shape the user sent."""
    return [schedule.describe() for schedule in timing.schedules]


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
