"""What a schedule will do: its times, in words, with notes on what surprises people. Needs no server.

Each day of the time shown on which clocks are set is named if that touches the schedule; the first `NOTES_MAX` with
what becomes of the times in them.
"""

from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from hourhand.model.cron import Cron
from hourhand.model.exclusion import TimingAround, TooRare
from hourhand.model.local_time import YEAR_MAX, DstRule, Gap, clock_changes, format_instant, load_zone
from hourhand.model.rrule_text import Frequency, parse_parts
from hourhand.model.schedule import AfterCompletion, CronSchedule, Every, RRuleSchedule, Schedule, Timing
from hourhand.model.steps import Steps, TooManySteps
from hourhand.model.words import both_days_set, open_day_field, timing_words

COUNT_MAX: Final = 500
STEPS_MAX: Final = 20_000
"""What is looked at in vain for one preview, due times and spans that calendars leave out: a quarter of a second."""
NOTES_MAX: Final = 20
_TICK: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class ChangedDay:
    """A day on which clocks are set, and what that does to the schedule."""

    date: date
    note: str


@dataclass(frozen=True, slots=True)
class Preview:
    times: list[datetime]
    """In UTC."""
    words: str
    notes: list[str]
    dst_days: list[date]
    """Days of the zone on which the clock changes and that the schedule is touched by."""
    more: bool
    """Whether times follow that were not asked for or not shown."""


def preview(timing: Timing, start: datetime, end: datetime | None, count_max: int) -> Preview:
    """The first `count_max` due times from `start` to `end`, both included."""
    walked = _surely(timing, start, end, _walk(timing, start, end, count_max + 1))
    more = len(walked.times) > count_max or walked.cut_short
    times = walked.times[:count_max]
    until = end if end is not None and not more else (times[-1] if times else start)
    changed = list(_changed_days(timing, start, until))
    notes = [*_notes(timing), *_left_out_notes(timing, walked, start, end), *(day.note for day in changed[:NOTES_MAX])]
    if len(changed) > NOTES_MAX:
        notes.append(f"and {len(changed) - NOTES_MAX} more days on which the clock changes")
    if walked.cut_short:
        notes.append(_cut_short_note(times))
    elif more and end is not None:
        notes.append(f"only the first {count_max} times are shown; more follow")
    return Preview(times, timing_words(timing), notes, [day.date for day in changed], more)


@dataclass(frozen=True, slots=True)
class _Walked:
    times: list[datetime]
    following: datetime | None = None
    """The one after them, which was not asked for."""
    cut_short: bool = False
    """Whether the steps were used up before the count or the end was reached."""


def _walk(timing: Timing, start: datetime, end: datetime | None, count: int) -> _Walked:
    """The first due times from `start` to `end`, as many as are found within `STEPS_MAX` and one step for each."""
    times: list[datetime] = []
    next_after = timing.walker(Steps(STEPS_MAX + count))
    try:
        due = next_after(start - _TICK)
        while due is not None and (end is None or due <= end) and len(times) < count:
            times.append(due)
            due = next_after(due)
    except TooManySteps:
        return _Walked(times, cut_short=True)
    return _Walked(times, due)


def _surely(timing: Timing, start: datetime, end: datetime | None, walked: _Walked) -> _Walked:
    """Where nothing was found among what calendars leave out: whether there is anything, as for a new job."""
    if walked.times or not walked.cut_short or not isinstance(timing, TimingAround):
        return walked
    try:
        found = timing.find_after(start - _TICK)
    except TooRare:
        return walked
    if found is not None and (end is None or found <= end):
        return _Walked([found], cut_short=True)
    return _Walked([], found)


# --- notes ------------------------------------------------------------------------------------------------


def _notes(timing: Timing) -> Iterator[str]:
    for schedule in timing.schedules:
        match schedule:
            case CronSchedule():
                yield from _cron_notes(schedule)
            case Every() if timing.zone != "UTC" and schedule.interval % _DAY == timedelta(0):
                yield "every counts real time: when clocks change, the local time of day moves; daily keeps it"
            case AfterCompletion():
                yield "each further time is set when the run before it has ended"
            case RRuleSchedule():
                yield from _rule_notes(schedule)
    if timing.start_at is not None:
        yield f"nothing is due before {format_instant(timing.start_at)} (start_at)"
    if timing.end_at is not None:
        yield f"nothing is due after {format_instant(timing.end_at)} (end_at)"
    if timing.jitter is not None:
        yield "starts are spread by the jitter; these are the due times, which it does not move"
    if timing.max_runs is not None:
        yield f"completed after {timing.max_runs} runs"


def _cron_notes(schedule: CronSchedule) -> Iterator[str]:
    if both_days_set(schedule.text):
        yield (
            f"{schedule.text}: day of month and weekday are both set, so either is enough (crontab's rule); "
            "it does not wait for a day that is both"
        )
    elif (open_field := open_day_field(schedule.text)) is not None:
        yield (
            f"{schedule.text}: {open_field} begins with * and so counts as no restriction (crontab's rule); "
            "day of month and weekday must both match"
        )
    if Cron.parse(schedule.text, schedule.seed).uses_hash:
        yield f"{schedule.text}: H is a value fixed by the job's id; each job has its own"


def _left_out_notes(timing: Timing, walked: _Walked, start: datetime, end: datetime | None) -> Iterator[str]:
    if walked.times or walked.cut_short or not isinstance(timing, TimingAround):
        return
    first = timing.without_calendars.next_after(start - _TICK)
    if first is None or (end is not None and first > end):
        return
    names = ", ".join(timing.names)
    if walked.following is None:
        yield f"the calendars leave out every due time, so it never falls due ({names})"
    else:
        yield f"the calendars leave out every due time of the stretch that is asked for ({names})"


def _cut_short_note(times: Sequence[datetime]) -> str:
    if times:
        return "the search ended here, because too much has to be passed over; ask for what follows with a later from"
    return "no time was found: all that was looked at is left out, and the search ended; a job like this may be refused"


def _rule_notes(schedule: RRuleSchedule) -> Iterator[str]:
    parts = parse_parts(schedule.text)
    if parts.weekdays and parts.month_days:
        yield "day of month and weekday are both set and must both match, in a rule unlike in a cron expression"
    if parts.frequency not in (Frequency.YEARLY, Frequency.MONTHLY):
        return
    days, months = parts.month_days, parts.months or range(1, 13)
    if not (days or parts.weekdays or parts.year_days or parts.weeks):  # as the first time says
        days = (schedule.first.day,)
        months = parts.months or ((schedule.first.month,) if parts.frequency is Frequency.YEARLY else months)
    if not days or min(days) <= min(_month_length(month) for month in months):
        return
    if tuple(months) == (2,):
        yield "only leap years have a February 29; other years are passed over"
        return
    which = f"a day {days[0]}" if len(days) == 1 else f"any of the days {', '.join(map(str, days))}"
    yield f"months without {which} are passed over; BYMONTHDAY=-1 is the last day of each month"


def _month_length(month: int) -> int:
    """That of most years."""
    return monthrange(2001, month)[1]


# --- clock changes ----------------------------------------------------------------------------------------


def _changed_days(timing: Timing, start: datetime, end: datetime) -> Iterator[ChangedDay]:
    """The days of clock changes between two times, also where only the repeated hour reaches into that."""
    zone = load_zone(timing.zone)
    local = [schedule for schedule in timing.schedules if isinstance(schedule, CronSchedule | RRuleSchedule)]
    if not local or zone.key == "UTC":
        return
    for year in range((start - _DAY).year, min((end + _DAY).year, YEAR_MAX) + 1):
        for change, by in clock_changes(zone, year):
            repeated = max(-by, timedelta(0))
            if change + repeated < start or change - repeated > end:
                continue
            note = _note_of_change(change, zone, local, timing)
            if note is not None:
                yield ChangedDay(_day_of(change, zone), note)


def _note_of_change(change: datetime, zone: ZoneInfo, schedules: Sequence[Schedule], timing: Timing) -> str | None:
    """What a clock change does to the schedules; None if they name no time in what it leaves out or repeats."""
    before = (change - _TICK).astimezone(zone).utcoffset()
    after = change.astimezone(zone)
    assert before is not None
    here = after.replace(tzinfo=None, fold=0)
    there = (change + before).replace(tzinfo=None)
    low, high = min(here, there), max(here, there)
    effects = [
        effect
        for schedule in schedules
        if _is_there(schedule, change, high - low, zone)
        and (effect := _effect(schedule, low, high, here > there, timing)) is not None
    ]
    if not effects:
        return None
    moved = f"{there:%H:%M} forward to" if here > there else f"{there:%H:%M} back to"
    shown = f"{here:%H:%M}" if here.date() == there.date() else f"{here:%Y-%m-%d %H:%M}"
    return f"{_day_of(change, zone)}: the clock goes from {moved} {shown}; {'; '.join(dict.fromkeys(effects))}"


def _is_there(schedule: Schedule, change: datetime, length: timedelta, zone: ZoneInfo) -> bool:
    """Whether a schedule has begun, and has not ended, when clocks are set."""
    if not isinstance(schedule, RRuleSchedule):
        return True
    end = schedule.end_in(zone)
    return (schedule.since is None or schedule.since < change + length) and (end is None or end >= change - length)


def _day_of(change: datetime, zone: ZoneInfo) -> date:
    """The day whose times are left out or come twice, or at least begin to: also where that is at midnight."""
    before = (change - _TICK).astimezone(zone).replace(tzinfo=None, fold=0) + _TICK
    return min(before, change.astimezone(zone).replace(tzinfo=None, fold=0)).date()


def _effect(schedule: Schedule, low: datetime, high: datetime, forward: bool, timing: Timing) -> str | None:
    next_local, fixed = _local_times(schedule, high)
    inside: list[datetime] = []
    local = next_local(low - _TICK)
    while local is not None and local < high and len(inside) <= _SHOWN_MAX:
        inside.append(local)
        local = next_local(local)
    if not inside:
        return None
    names = ", ".join(f"{local:%H:%M}" for local in inside[:_SHOWN_MAX])
    names += ", …" if len(inside) > _SHOWN_MAX else ""
    does, comes, is_ = ("do", "come", "are") if len(inside) > 1 else ("does", "comes", "is")
    rule = DstRule(fixed, timing.gap, timing.overlap)
    if forward:
        if fixed and rule.gap is Gap.FIRE_AFTER:
            instead = f"{high:%H:%M}" if high.date() == inside[0].date() else f"{high:%Y-%m-%d %H:%M}"
            return f"{names} {does} not exist and {is_} due at {instead} instead (gap: fire_after)"
        why = "gap: skip" if fixed else "it keeps its cadence"
        return f"{names} {does} not exist and {is_} left out ({why})"
    passes = {(True, False): "at the first pass", (False, True): "at the last pass", (True, True): "at both passes"}
    due = passes[rule.first_pass, rule.second_pass]
    return f"{names} {comes} twice and {is_} due {due} (overlap: {rule.overlap.value})"


def _local_times(schedule: Schedule, until: datetime) -> tuple[Callable[[datetime], datetime | None], bool]:
    """What gives a schedule's local times up to some time, and whether they are fixed."""
    if isinstance(schedule, CronSchedule):
        cron = Cron.parse(schedule.text, schedule.seed)
        return cron.next_local, cron.is_fixed_time
    assert isinstance(schedule, RRuleSchedule)
    return partial(schedule.rule.next_local, until=until), schedule.rule.is_fixed_time
