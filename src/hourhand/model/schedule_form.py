"""What a user writes about when a job falls due, read into a `Timing`: every fault found, or none.

A new kind of schedule needs a row in `_READERS` here, besides its class and its row in `schedule.py`.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from hourhand.model.cron import MACROS, Cron, CronFault
from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.local_time import (
    YEAR_MAX,
    YEAR_MIN,
    DstOverlap,
    DstRule,
    Gap,
    format_instant,
    load_zone,
)
from hourhand.model.rrule import SEARCH_DAYS_MAX
from hourhand.model.rrule_end import COUNT_STEPS_MAX, end_of
from hourhand.model.rrule_text import Frequency, RRuleFault, normal_text, parse_parts
from hourhand.model.schedule import (
    AfterCompletion,
    At,
    CronSchedule,
    Every,
    Now,
    OnExcluded,
    RRuleSchedule,
    Schedule,
    Timing,
)
from hourhand.model.steps import Steps
from hourhand.model.time_fields import expected, read_bound, read_instant, read_zone

PAST_GRACE: Final = timedelta(hours=1)
"""An `at` this far in the past is still taken, and due at once: clocks differ and requests queue."""
EVERY_MIN: Final = timedelta(seconds=1)
EVERY_MAX: Final = timedelta(days=3660)
SCHEDULES_MAX: Final = 50
MAX_RUNS_MAX: Final = 1_000_000_000
TAKEN_AWAY: Final = object()
"""In the place of a schedule, of a job that is to have none any more: refused."""
_GAPS_LOOKED_AT: Final = 5


def seed_of(job_id: UUID) -> int:
    """What fixes `H` in the expressions of a job."""
    return job_id.int & 0xFFFF_FFFF_FFFF


_Choice = TypeVar("_Choice", Gap, DstOverlap, OnExcluded)


def parse_timing(
    raw_schedule: object,
    zone: object = None,
    start_at: object = None,
    end_at: object = None,
    gap: object = None,
    overlap: object = None,
    *,
    max_runs: object = None,
    jitter: object = None,
    calendars: Sequence[str] | None = None,
    on_excluded: object = None,
    now: datetime,
    seed: int,
) -> Timing:
    """Reads what a user wrote. None means "not given". Raises `InvalidFields` with every fault found.

    Whether the calendars exist, and leave anything, is for those to say who have them.
    """
    faults: list[Fault] = []
    zone_name = read_zone(zone, faults)
    start = read_bound(start_at, "/start_at", zone_name, faults)
    end = read_bound(end_at, "/end_at", zone_name, faults)
    choice_faults: list[Fault] = []
    gap_choice = _read_choice(gap, Gap.FIRE_AFTER, "/dst_gap", choice_faults)
    overlap_choice = _read_choice(overlap, DstOverlap.AUTO, "/dst_overlap", choice_faults)
    context = _Context(now.astimezone(UTC), seed, zone_name, start, faults, gap_choice, overlap_choice)
    schedules = tuple(_read_schedules(raw_schedule, context))
    faults += choice_faults
    timing = Timing(
        schedules=schedules,
        zone=zone_name or "UTC",
        start_at=start,
        end_at=end,
        gap=gap_choice,
        overlap=overlap_choice,
        max_runs=_read_max_runs(max_runs, faults),
        jitter=_read_jitter(jitter, faults),
        calendars=tuple(dict.fromkeys(calendars or ())),
        on_excluded=_read_choice(on_excluded, OnExcluded.SKIP, "/on_excluded", faults),
    )
    if start is not None and end is not None and start > end:
        faults.append(Fault("/end_at", "empty-window", f"end_at is earlier than start_at ({format_instant(start)})"))
    elif end is not None and end < context.now:
        faults.append(_never_fires(timing, context.now))
    if not faults and timing.first_due(context.now) is None:
        faults.append(_never_fires(timing, context.now))
    if not faults:
        faults += _faults_of_spreading(timing, context.now)
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
    gap: Gap
    overlap: DstOverlap
    beside: Mapping[str, object] = field(default_factory=dict)
    """What else stands in the same object."""
    steps: Steps = field(default_factory=lambda: Steps(COUNT_STEPS_MAX))
    """For finding the ends of all rules of a job."""

    def refuse(self, pointer: str, code: str, message: str, **more: Any) -> None:
        self.faults.append(Fault(pointer, code, message, **more))


def _read_schedules(raw: object, context: _Context) -> list[Schedule]:
    if raw is TAKEN_AWAY:
        instead = 'to run it once more and never again write {"now": true}; to stop it, pause or cancel it'
        context.refuse("/schedule", "schedule-required", "a job keeps its schedule until it gets another", hint=instead)
        return []
    if raw is None or raw == "now":
        raw = {"now": True}
    if isinstance(raw, Mapping):
        raw, pointers = [raw], ["/schedule"]
    elif isinstance(raw, list):
        pointers = [f"/schedule/{index}" for index in range(len(raw))]
    else:
        hint = f'write {{"cron": "{raw}"}} for a cron expression' if _looks_like_cron(raw) else None
        context.refuse("/schedule", "wrong-type", expected(f"an object with one of {_KINDS_SHOWN}", raw), hint=hint)
        return []
    if not raw:
        context.refuse("/schedule", "schedule-required", f"the list is empty; name one of {_KINDS_SHOWN}")
    if len(raw) > SCHEDULES_MAX:
        context.refuse("/schedule", "too-many-schedules", f"a job has at most {SCHEDULES_MAX} schedules")
        return []
    found = [_read_schedule(item, pointer, context) for item, pointer in zip(raw, pointers, strict=True)]
    if len(raw) > 1 and any(isinstance(schedule, Now) for schedule in found):
        context.refuse("/schedule", "conflicting-schedule", "now stands alone; it cannot be combined with others")
    if len(raw) > 1 and any(isinstance(schedule, AfterCompletion) for schedule in found):
        message = "every … after completion stands alone; it cannot be combined with others"
        context.refuse("/schedule", "conflicting-schedule", message)
    return list(dict.fromkeys(schedule for schedule in found if schedule is not None))


def _looks_like_cron(raw: object) -> bool:
    return isinstance(raw, str) and (raw in MACROS or len(raw.split()) in (5, 6)) and len(raw) < 80


def _read_schedule(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if raw == "now":
        raw = {"now": True}
    if not isinstance(raw, Mapping):
        context.refuse(pointer, "wrong-type", expected(f"an object with one of {_KINDS_SHOWN}", raw))
        return None
    known = [key for key in raw if key in _READERS]
    strange = [str(key) for key in raw if key not in _READERS and _BESIDE.get(key) not in known]
    context.faults.extend(_unknown_key(key, pointer) for key in strange)
    if len(known) > 1:
        message = f"only one of {', '.join(known)} can be given; a list takes several"
        context.refuse(pointer, "conflicting-schedule", message)
    elif not raw:
        context.refuse(pointer, "schedule-required", f"the object is empty; name one of {_KINDS_SHOWN}")
    if len(known) != 1:
        return None
    context = replace(context, beside=raw)
    return _READERS[known[0]](raw[known[0]], f"{pointer}/{known[0]}", context)


def _unknown_key(key: str, pointer: str) -> Fault:
    close = [OTHER_WORDS[key]] if key in OTHER_WORDS else difflib.get_close_matches(key[:40], _READERS, n=1)
    hint = f"did you mean {close[0]}?" if close else None
    escaped = key.replace("~", "~0").replace("/", "~1")
    message = f"there is no schedule of kind {key[:40]!r}"
    return Fault(f"{pointer}/{escaped}", "unknown-field", message, hint, list(_READERS))


def _read_now(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if raw is False:
        message = "expected true, not false; a job that is not to run now has another schedule"
        context.refuse(pointer, "wrong-type", message)
        return None
    if raw is not True:
        context.refuse(pointer, "wrong-type", expected("true", raw))
        return None
    return Now(context.now if context.start_at is None else max(context.now, context.start_at))


def _read_at(raw: object, pointer: str, context: _Context) -> Schedule | None:
    past_runs = _beside_choice("if_past", ("run", "refuse"), pointer, context) == "run"
    instant = read_instant(raw, pointer, context.zone, context.faults)
    if instant is None:
        return None
    if instant >= context.now:
        return At(instant)
    if instant < context.now - PAST_GRACE and not past_runs:
        message = f"{format_instant(instant)} has passed; the server's time is {format_instant(context.now)}"
        hint = 'to run it at once all the same, add "if_past": "run" beside "at"'
        context.refuse(pointer, "run-at-in-past", message, hint=hint)
        return None
    return At(context.now, asked=instant)


def _read_cron(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if not isinstance(raw, str):
        context.refuse(pointer, "wrong-type", expected("a cron expression such as '0 9 * * MON-FRI'", raw))
        return None
    try:
        cron = Cron.parse(raw, context.seed)
    except CronFault as fault:
        for each in (fault, *fault.others):
            context.refuse(pointer, each.code, str(each), hint=each.hint, allowed=each.allowed)
        return None
    # Equal expressions share one compiled form unless the job's own values are in it.
    return CronSchedule(cron.text, context.seed if cron.uses_hash else 0)


def _read_every(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if not isinstance(raw, str):
        context.refuse(pointer, "wrong-type", expected("a duration such as '15m'", raw))
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
    anchor = context.start_at or context.now + interval
    if _beside_choice("after", ("completion",), pointer, context) is not None:
        if "anchor" in context.beside:
            message = (
                "with after: completion each run counts from the end of the one before; use start_at for the first"
            )
            context.refuse(_beside_pointer(pointer, "anchor"), "conflicting-schedule", message)
        return AfterCompletion(interval, anchor)
    if "anchor" in context.beside:
        place = _beside_pointer(pointer, "anchor")
        named = read_instant(context.beside["anchor"], place, context.zone, context.faults)
        return None if named is None else Every(interval, named, named=True)
    return Every(interval, anchor)


def _read_rrule(raw: object, pointer: str, context: _Context) -> Schedule | None:
    if not isinstance(raw, str):
        context.refuse(pointer, "wrong-type", expected("a rule such as 'FREQ=WEEKLY;BYDAY=MO,WE'", raw))
        return None
    first: _First | None = _begin(context)
    if "first" in context.beside:
        first = _read_local(context.beside["first"], _beside_pointer(pointer, "first"), context)
    return None if first is None else _rule(raw, first, None, pointer, context)


def _short_form(word: str) -> "Callable[[object, str, _Context], Schedule | None]":
    def read(raw: object, pointer: str, context: _Context) -> Schedule | None:
        first = _read_local(raw, pointer, context, clock_is_enough=word == "daily")
        return None if first is None else _rule(f"FREQ={word.upper()}", first, word, pointer, context)

    return read


class _First(NamedTuple):
    """Where a rule begins."""

    local: datetime
    since: datetime | None = None
    """The instant, where the clock shows the local time for the second time then."""


def _rule(text: str, first: _First, short: str | None, pointer: str, context: _Context) -> Schedule | None:
    text, zone = normal_text(text), load_zone(context.zone or "UTC")
    try:
        fixed = parse_parts(text).frequency <= Frequency.DAILY
        choice = DstRule(fixed, context.gap, context.overlap)
        end = end_of(text, first.local, zone, choice, first.since, context.steps)
        last, fold = (None, None) if end is None else end
        schedule = RRuleSchedule(text, first.local, last, short, fold, first.since)
        here = context.now.astimezone(zone).replace(tzinfo=None, fold=0)
        schedule.rule.next_local(max(here, first.local - timedelta(seconds=1)), SEARCH_DAYS_MAX)
    except RRuleFault as fault:
        context.refuse(pointer, fault.code, str(fault), hint=fault.hint)
        return None
    return schedule


def _begin(context: _Context) -> _First:
    """Where a rule without a first time begins: `start_at`, else midnight of the day it was written."""
    return _First(_midnight(context)) if context.start_at is None else _first_at(context.start_at, context)


def _first_at(instant: datetime, context: _Context) -> _First:
    instant = instant.replace(microsecond=0)
    shown = instant.astimezone(load_zone(context.zone or "UTC"))
    return _First(shown.replace(tzinfo=None, fold=0), instant if shown.fold else None)


def _midnight(context: _Context) -> datetime:
    day = context.now.astimezone(load_zone(context.zone or "UTC"))
    return day.replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0, fold=0)


_LOCAL: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?")
_WITH_OFFSET: Final = re.compile(r"[0-9]{4,9}-[0-9]{1,2}-[0-9]{1,2}[Tt ]")
_CLOCK: Final = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?")


def _read_local(raw: object, pointer: str, context: _Context, clock_is_enough: bool = False) -> _First | None:
    """A first time: by the clock of the job's zone, or with an offset, which is then turned into that clock's time."""
    example = "'09:00' or '2030-01-31T09:00'" if clock_is_enough else "'2030-01-31T09:00'"
    if not isinstance(raw, str):
        context.refuse(pointer, "wrong-type", expected(f"a first time such as {example}", raw))
        return None
    text = raw.strip()
    if clock_is_enough and _CLOCK.fullmatch(text):
        text = f"{_begin(context).local.date().isoformat()}T{text}"
    if not _LOCAL.fullmatch(text):
        if not _WITH_OFFSET.match(text):
            hour, colon, rest = text.partition(":")
            hint = f"did you mean 0{text}?" if clock_is_enough and _CLOCK.fullmatch(f"0{hour}{colon}{rest}") else None
            message = f"{raw[:40]!r} is no first time; write for example {example}"
            context.refuse(pointer, "invalid-date-time", message, hint=hint)
            return None
        instant = read_instant(raw, pointer, None, context.faults)
        return None if instant is None else _first_at(instant, context)
    try:
        local = datetime.fromisoformat(text)
    except ValueError as wrong:
        context.refuse(pointer, "invalid-date-time", f"{raw[:40]!r} does not exist: {wrong}")
        return None
    if not YEAR_MIN < local.year <= YEAR_MAX:
        context.refuse(pointer, "time-out-of-range", f"the year must lie between {YEAR_MIN + 1} and {YEAR_MAX}")
        return None
    return _First(local)


def _beside_pointer(pointer: str, key: str) -> str:
    return f"{pointer.rpartition('/')[0]}/{key}"


def _beside_choice(key: str, allowed: tuple[str, ...], pointer: str, context: _Context) -> str | None:
    """One of a few words beside the schedule's own key; None when it is not there, or refused."""
    if key not in context.beside:
        return None
    raw = context.beside[key]
    if isinstance(raw, str) and raw in allowed:
        return raw
    message = f"must be {' or '.join(repr(word) for word in allowed)}"
    context.refuse(_beside_pointer(pointer, key), "invalid-value", message, allowed=allowed)
    return None


_Reader = Callable[[object, str, _Context], Schedule | None]
SHORT_FORMS: Final = ("daily", "weekly", "monthly", "yearly")
_READERS: Final[Mapping[str, _Reader]] = {
    "now": _read_now,
    "at": _read_at,
    "cron": _read_cron,
    "every": _read_every,
    "rrule": _read_rrule,
    **{word: _short_form(word) for word in SHORT_FORMS},
}
_BESIDE: Final = {"if_past": "at", "after": "every", "anchor": "every", "first": "rrule"}
"""Keys that mean something beside a kind only."""
KINDS: Final = tuple(_READERS)
_KINDS_SHOWN: Final = ", ".join(KINDS)
OTHER_WORDS: Final = {
    "run_at": "at",
    "time": "at",
    "interval": "every",
    "cron_expression": "cron",
    "crontab": "cron",
    "dtstart": "first",
}
"""What others call kinds of schedules, or what goes beside them."""


def _read_max_runs(raw: object, faults: list[Fault]) -> int | None:
    if raw is None:
        return None
    if not isinstance(raw, int) or isinstance(raw, bool):
        faults.append(Fault("/max_runs", "wrong-type", expected("a whole number", raw)))
        return None
    if not 1 <= raw <= MAX_RUNS_MAX:
        faults.append(Fault("/max_runs", "out-of-range", f"max_runs is 1 to {MAX_RUNS_MAX}"))
        return None
    return raw


def _read_jitter(raw: object, faults: list[Fault]) -> timedelta | None:
    if raw is None:
        return None
    if not isinstance(raw, str):
        faults.append(Fault("/jitter", "wrong-type", expected("a duration such as '30s'", raw)))
        return None
    try:
        return parse_duration(raw)
    except DurationFault as fault:
        faults.append(Fault("/jitter", "invalid-duration", str(fault)))
        return None


def _faults_of_spreading(timing: Timing, now: datetime) -> list[Fault]:
    """What goes with many due times only, and a jitter that would reach the next one."""
    if timing.only_instant is not None:
        given = {"/max_runs": timing.max_runs, "/jitter": timing.jitter, "/calendars": timing.calendars or None}
        message = "a job that runs once has no use for it; give it a schedule that goes on"
        return [Fault(pointer, "not-recurring", message) for pointer, value in given.items() if value is not None]
    if timing.after_completion is not None and timing.calendars:
        message = "calendars do not go with every … after completion, whose due times nobody knows beforehand"
        return [Fault("/calendars", "conflicting-schedule", message)]
    if timing.jitter is None:
        return []
    dues = timing.due_between(now, datetime.max.replace(tzinfo=UTC), _GAPS_LOOKED_AT + 1)
    gaps = [after - before for before, after in pairwise(dues)]
    shortest = min(gaps, default=timing.after_completion)
    if shortest is None or timing.jitter < shortest:
        return []
    message = f"the jitter must be shorter than the time between two due times, here {format_duration(shortest)}"
    return [Fault("/jitter", "jitter-too-large", message)]


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
    if timing.end_at is None:
        since = now if timing.start_at is None else max(now, timing.start_at)
        message = (
            f"the schedule has no due time after {format_instant(since)}: it has ended by then, or never falls due"
        )
        return Fault("/schedule", "schedule-never-fires", message)
    return Fault("/end_at", "schedule-never-fires", "the schedule has no due time between now, start_at and end_at")
