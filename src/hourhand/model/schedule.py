"""When a job falls due: its schedules, their union, and the form in which they are stored.

`Timing` answers the one question everybody asks, `next_after`. It holds no clock: the same instant always gets
the same answer. `timing_to_json` and `timing_from_json` are the stored form; what users write is read in
`schedule_form.py` and given back by `describe`.

A new kind of schedule is a class with the members of `Kind`, a row in `_STORED`, and a reader in `schedule_form.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from hourhand.model.cron import Cron
from hourhand.model.durations import format_duration, parse_duration
from hourhand.model.local_time import (
    YEAR_MAX,
    DstOverlap,
    DstRule,
    Gap,
    format_instant,
    load_zone,
    next_instant,
    next_steady,
    parse_instant,
)
from hourhand.model.rrule import RRule
from hourhand.model.rrule_end import RuleEnd, end_instant, next_due
from hourhand.model.steps import Steps

__all__ = [
    "AfterCompletion",
    "At",
    "CronSchedule",
    "DstOverlap",
    "Every",
    "Gap",
    "Now",
    "OnExcluded",
    "RRuleSchedule",
    "Schedule",
    "Timing",
    "describe",
    "format_instant",
    "parse_instant",
    "timing_from_json",
    "timing_to_json",
]


_TICK: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HORIZON: Final = datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC) - _TICK
_RULE_DAYS_PER_STEP: Final = 16
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


_dst_rule: Final = lru_cache(maxsize=32)(DstRule)


class OnExcluded(StrEnum):
    """What becomes of a due time that a calendar leaves out."""

    SKIP = "skip"
    NEXT_ALLOWED = "next_allowed"


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


# A struct, and so is Timing, because one is made per submission: see JobDefinition.
class At(msgspec.Struct, frozen=True):
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
        cron, zone = Cron.parse(self.text, self.seed), load_zone(timing.zone)
        found = next_steady(instant, cron.next_local, zone)
        if found is not None:
            return found
        rule = _dst_rule(cron.is_fixed_time, timing.gap, timing.overlap)
        return next_instant(instant, cron.next_local, zone, rule)

    def to_json(self) -> dict[str, Any]:
        return {"cron": self.text, "seed": self.seed}

    def describe(self) -> dict[str, Any]:
        return {"cron": self.text}


@dataclass(frozen=True, slots=True)
class Every:
    """Due at `anchor` and each `interval` after it, counted in real time: clock changes do not touch it."""

    interval: timedelta
    anchor: datetime
    named: bool = False
    """Whether the user named the anchor; else it follows from `start_at`, or from when the job was accepted."""
    recurring: ClassVar[bool] = True

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        if instant < self.anchor:
            return self.anchor
        return self.anchor + ((instant - self.anchor) // self.interval + 1) * self.interval

    def to_json(self) -> dict[str, Any]:
        stored = {"every": format_duration(self.interval), "anchor": format_instant(self.anchor)}
        return stored | {"named": True} if self.named else stored

    def describe(self) -> dict[str, Any]:
        shown = {"every": format_duration(self.interval)}
        return shown | {"anchor": format_instant(self.anchor)} if self.named else shown


@dataclass(frozen=True, slots=True)
class AfterCompletion:
    """Due at `anchor`, and then each `interval` after the run before has ended.

    Only its first due time can be known: each further one is set by the statement that ends a run.
    """

    interval: timedelta
    anchor: datetime
    recurring: ClassVar[bool] = True

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        return self.anchor if self.anchor > instant else None

    def to_json(self) -> dict[str, Any]:
        return {"every": format_duration(self.interval), "anchor": format_instant(self.anchor), "after": "completion"}

    def describe(self) -> dict[str, Any]:
        return {"every": format_duration(self.interval), "after": "completion"}


@dataclass(frozen=True, slots=True)
class RRuleSchedule:
    """Due by a recurrence rule and the local clock of the job's zone, counted from a first local time."""

    text: str
    first: datetime
    """Without a zone."""
    last: datetime | None = None
    """What COUNT or UNTIL come to, found once when the rule is read."""
    short: str | None = None
    """`daily`, `weekly`, … where that is what the user wrote."""
    fold: int | None = None
    """Of `last`, where that is an instant; None where it is a local time, as all were once stored."""
    since: datetime | None = None
    """The instant of the first time, where its local time had come before and that is not meant."""
    recurring: ClassVar[bool] = True

    @property
    def rule(self) -> RRule:
        """The local times that it names, as far as those can say where it ends."""
        return RRule.compile(self.text, self.first, self.last if self.fold is None else None)

    def end_in(self, zone: ZoneInfo) -> datetime | None:
        """The instant after which it is not due, where it ends with an instant."""
        end = None if self.last is None else RuleEnd(self.last, self.fold)
        return end_instant(self.text, end, zone)

    def next_after(self, instant: datetime, timing: "Timing") -> datetime | None:
        rule, zone = self.rule, load_zone(timing.zone)
        choice = _dst_rule(rule.is_fixed_time, timing.gap, timing.overlap)
        return next_due(rule, instant, zone, choice, self.since, self.end_in(zone))

    def to_json(self) -> dict[str, Any]:
        last = self.last and self.last.isoformat()
        stored: dict[str, Any] = {
            "rrule": self.text,
            "first": self.first.isoformat(),
            "last": last,
            "short": self.short,
        }
        if self.fold is not None:
            stored["fold"] = self.fold
        if self.since is not None:
            stored["since"] = format_instant(self.since)
        return stored

    def describe(self) -> dict[str, Any]:
        first = self.first.isoformat() if self.since is None else format_instant(self.since)
        return {"rrule": self.text, "first": first} if self.short is None else {self.short: first}


Schedule: TypeAlias = Now | At | CronSchedule | Every | AfterCompletion | RRuleSchedule


class Timing(msgspec.Struct, frozen=True):
    """All of a job's 'when'."""

    schedules: tuple[Schedule, ...]
    zone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    gap: Gap = Gap.FIRE_AFTER
    overlap: DstOverlap = DstOverlap.AUTO
    max_runs: int | None = None
    """So many due times make a run; then the job is completed. Counted in the store."""
    jitter: timedelta | None = None
    """Starts are spread over this much after the due time: see `jitter.py`."""
    calendars: tuple[str, ...] = ()
    """Names of calendars whose times are left out: see `exclusion.py`, which also applies them."""
    on_excluded: OnExcluded = OnExcluded.SKIP

    @property
    def recurring(self) -> bool:
        """Whether any schedule goes on by itself; a list of `at` does not."""
        return any(schedule.recurring for schedule in self.schedules)

    @property
    def only_instant(self) -> datetime | None:
        """The due time of a job that runs once: a single `now` or `at`. None for everything else."""
        if len(self.schedules) != 1:
            return None
        schedule = self.schedules[0]
        return schedule.instant if isinstance(schedule, Now | At) else None

    @property
    def is_apart(self) -> bool:
        """Whether planning it takes more than a cursor: a budget, a spread of starts, calendars, ends of runs."""
        return (
            self.max_runs is not None
            or self.jitter is not None
            or bool(self.calendars)
            or self.after_completion is not None
        )

    @property
    def after_completion(self) -> timedelta | None:
        """How long after the end of a run the next one is due, where that is the job's schedule; it stands alone."""
        schedule = self.schedules[0]
        return schedule.interval if isinstance(schedule, AfterCompletion) else None

    @property
    def says_more(self) -> bool:
        """Whether there is more to a one-off than its instant: what the user wrote, a zone, bounds."""
        schedule = self.schedules[0]
        asked = isinstance(schedule, At) and schedule.asked is not None
        return asked or self.zone != "UTC" or self.start_at is not None or self.end_at is not None

    def next_after(self, instant: datetime) -> datetime | None:
        """The first due time strictly later than `instant`, in UTC; None when there is no further."""
        instant = instant.astimezone(UTC)
        if self.start_at is None and self.end_at is None and len(self.schedules) == 1:  # the short way for most jobs
            only = self.schedules[0].next_after(instant, self) if instant < _HORIZON else None
            return only if only is not None and only <= _HORIZON else None
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
        next_after = self.walker()
        due = next_after(after)
        while due is not None and due <= until and len(due_times) < limit:
            due_times.append(due)
            due = next_after(due)
        return due_times

    def walker(self, steps: Steps | None = None) -> Callable[[datetime], datetime | None]:
        """`next_after` for who goes from one due time to the next; raises `TooManySteps` when the steps are used up."""
        return Union(self, steps).next_after

    def first_due(self, accepted_at: datetime, before: "Timing | None" = None) -> datetime | None:
        """The due time a newly accepted job starts with, or one whose timing was another `before`.

        `now` and `at` count although their instant may be the very one of acceptance; due times of recurring
        schedules from before the job existed do not, nor instants that have passed and were dealt with `before`.
        """
        known = () if before is None else before.schedules
        once = tuple(schedule for schedule in self.schedules if not schedule.recurring and schedule not in known)
        candidates = (replace(self, schedules=once).next_after(_EPOCH), self.next_after(accepted_at))
        return min((due for due in candidates if due is not None), default=None)


class Union:
    """The due times of all schedules of a timing, for who asks for one after the other: a schedule is asked again only
    when its time has come. Of fifty schedules, one or two are."""

    def __init__(self, timing: Timing, steps: Steps | None = None) -> None:
        self._timing = timing
        self.steps = steps
        """What each question to a schedule is taken from."""
        self._known: list[tuple[datetime, datetime] | None] = [None] * len(timing.schedules)
        """Of each schedule: between these two it has no due time, and the second is one, or the end of all."""

    def next_after(self, instant: datetime) -> datetime | None:
        timing = self._timing
        if len(timing.schedules) == 1 and self.steps is None:
            return Timing.next_after(timing, instant)
        instant = instant.astimezone(UTC)
        if timing.start_at is not None and instant < timing.start_at:
            instant = timing.start_at - _TICK
        last = timing.end_at if timing.end_at is not None else _HORIZON
        if instant >= last:
            return None
        found = None
        for place, known in enumerate(self._known):
            if known is not None and known[0] <= instant < known[1]:
                due = known[1]
            else:
                due = self._asked(timing.schedules[place], instant) or _NEVER
                self._known[place] = instant, due
            if due <= last:
                found = last = due
        return found

    def _asked(self, schedule: Schedule, instant: datetime) -> datetime | None:
        due = schedule.next_after(instant, self._timing)
        if self.steps is not None:
            # A rule looks at each day between, also where it names none of them.
            days = ((due or _HORIZON) - instant).days if isinstance(schedule, RRuleSchedule) else 0
            self.steps.take(1 + days // _RULE_DAYS_PER_STEP)
        return due


# --- the stored form --------------------------------------------------------------------------------------


def _every_from_json(stored: Mapping[str, Any]) -> Schedule:
    interval, anchor = parse_duration(stored["every"]), parse_instant(stored["anchor"])
    return AfterCompletion(interval, anchor) if "after" in stored else Every(interval, anchor, "named" in stored)


_STORED: Final[Mapping[str, Callable[[Mapping[str, Any]], Schedule]]] = {
    "now": lambda stored: Now(parse_instant(stored["now"])),
    "at": lambda stored: At(parse_instant(stored["at"]), stored["asked"] and parse_instant(stored["asked"])),
    "cron": lambda stored: CronSchedule(stored["cron"], int(stored["seed"])),
    "every": _every_from_json,
    "rrule": lambda stored: RRuleSchedule(
        stored["rrule"],
        datetime.fromisoformat(stored["first"]),
        stored["last"] and datetime.fromisoformat(stored["last"]),
        stored["short"],
        stored.get("fold"),
        parse_instant(stored["since"]) if "since" in stored else None,
    ),
}


def timing_to_json(timing: Timing) -> dict[str, Any]:
    stored: dict[str, Any] = {
        "schedules": [schedule.to_json() for schedule in timing.schedules],
        "zone": timing.zone,
        "start_at": timing.start_at and format_instant(timing.start_at),
        "end_at": timing.end_at and format_instant(timing.end_at),
        "gap": timing.gap.value,
        "overlap": timing.overlap.value,
    }
    if timing.max_runs is not None:
        stored["max_runs"] = timing.max_runs
    if timing.jitter is not None:
        stored["jitter"] = format_duration(timing.jitter)
    if timing.calendars:
        stored |= {"calendars": list(timing.calendars), "on_excluded": timing.on_excluded.value}
    return stored


def timing_from_json(stored: Mapping[str, Any]) -> Timing:
    jitter = stored.get("jitter")
    return Timing(
        schedules=tuple(_schedule_from_json(schedule) for schedule in stored["schedules"]),
        zone=stored["zone"],
        start_at=stored["start_at"] and parse_instant(stored["start_at"]),
        end_at=stored["end_at"] and parse_instant(stored["end_at"]),
        gap=Gap(stored["gap"]),
        overlap=DstOverlap(stored["overlap"]),
        max_runs=stored.get("max_runs"),
        jitter=None if jitter is None else parse_duration(jitter),
        calendars=tuple(stored.get("calendars", ())),
        on_excluded=OnExcluded(stored.get("on_excluded", OnExcluded.SKIP)),
    )


def _schedule_from_json(stored: Mapping[str, Any]) -> Schedule:
    # jsonb orders keys by itself, so the kind is looked for by name.
    [kind] = stored.keys() & _STORED.keys()
    return _STORED[kind](stored)


def describe(timing: Timing) -> list[dict[str, Any]]:
    """The schedules as the API gives them back, in the shape the user sent."""
    return [schedule.describe() for schedule in timing.schedules]
