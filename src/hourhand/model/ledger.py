"""The ledger: for every due time of a job, what became of it and why, told one by one or stretch by stretch.

What is known of a job comes in as facts: the runs of its due times, the stretches that made none, and what follows from
its cursor, its pauses and its zone. Out comes a page of entries in the order of time. A due time is in it once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import merge
from itertools import chain, islice
from typing import Final
from uuid import UUID

from hourhand.model.catchup import PauseSpan
from hourhand.model.counting import Stretch, jump_on, last_before, stretch
from hourhand.model.cron import Cron
from hourhand.model.durations import format_duration
from hourhand.model.ends import REASONS
from hourhand.model.exclusion import TimingAround, excluded_words, stretches
from hourhand.model.local_time import Gap, ZoneFault, load_zone
from hourhand.model.rrule import RRule
from hourhand.model.schedule import CronSchedule, RRuleSchedule, Schedule, Timing
from hourhand.model.states import Reason, RunState

_TICK: Final = timedelta(microseconds=1)
_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
UNPLANNED: Final = "unplanned"
Key = tuple[datetime, int]
"""Where an entry stands: its due time, and 1 for what did not exist on the clock."""


class Became(StrEnum):
    """What became of a due time that made no run. Of one that did, the state of its run tells."""

    MISSED = "missed"
    PAUSED = "paused"
    EXCLUDED = "excluded"
    DST_GAP = "dst_gap"
    UNPLANNED = "unplanned"


@dataclass(frozen=True, slots=True)
class RunFact:
    """A due time that made a run."""

    run_id: UUID
    due_at: datetime
    state: RunState
    reason: str | None = None
    error: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RangeFact:
    """Consecutive due times that made none. `timing` tells them one by one."""

    first: datetime
    last: datetime
    count: int
    became: Became
    reason: str
    timing: Timing
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What is known of one job for one page of its ledger."""

    now: datetime
    begin: datetime
    until: datetime
    """Up to here, included, the runs and ranges are all there are."""
    created_at: datetime
    timing: Timing
    """With its calendars."""
    runs: Sequence[RunFact] = ()
    ranges: Sequence[RangeFact] = ()
    cursor: datetime | None = None
    """Where it really stands, also when a pause holds it."""
    spans: Sequence[PauseSpan] = ()
    """Pauses of many that bear on it."""
    own_span: PauseSpan | None = None
    """Its own pause, as far as it is not in the ranges."""
    earlier: Sequence[tuple[datetime, Timing]] = ()
    """Schedules that it had, oldest first, each with the time from which on another counted."""
    ended_at: datetime | None = None
    """When it was cancelled, or fell due for the last time that its budget of runs allows: nothing is due after it."""
    catchup_window: timedelta = timedelta(hours=1)
    backfilled: Mapping[datetime, UUID] = field(default_factory=dict)
    """Due times that a backfill has made up for, each with its newest run."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    due_at: datetime
    last_due: datetime
    count: int
    status: str
    reason: str | None
    why: str | None
    """A sentence for a person; None where there is nothing to explain."""
    run_id: UUID | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    key: Key = field(default=(_BEFORE_ALL, 0), compare=False)


def ledger_page(
    facts: LedgerFacts, after: Key | None, limit: int, compact: bool
) -> tuple[list[LedgerEntry], Key | None]:
    """The entries behind `after`, and the key to go on with; None when there is no more up to `until`."""
    found = (entry for entry in ledger_entries(facts, after, compact) if entry is not None)
    return cut_page(list(islice(found, limit + 1)), limit)


def cut_page(entries: Sequence[LedgerEntry], limit: int) -> tuple[list[LedgerEntry], Key | None]:
    """One page of entries of which there is one more than that, if there is any more."""
    return list(entries[:limit]), entries[limit - 1].key if len(entries) > limit else None


def ledger_entries(facts: LedgerFacts, after: Key | None, compact: bool) -> Iterator[LedgerEntry | None]:
    """The entries behind `after`. Nothing is worked out before it is asked for; None stands for some work that has
    brought none, for whoever has more to do than to wait for the next."""
    made = {run.due_at for run in facts.runs}
    tell = _stretches if compact else _one_by_one
    # Stretches are told from the beginning of all pages: an entry of one page may reach into the next.
    start = facts.begin if compact or after is None else max(facts.begin, after[0])
    known = [
        tell(facts, one, after, made) if _has_zone(one.timing) else iter([_of_range(facts, one)])
        for one in facts.ranges
    ]
    derived = [_from_cursor(facts, start), _from_own_pause(facts, start)] if _has_zone(facts.timing) else []
    sources: list[Iterable[LedgerEntry]] = [
        (_of_run(run) for run in facts.runs),
        *known,
        *(chain.from_iterable(tell(facts, one, after, made) for one in ranges) for ranges in derived),
        _dst_gaps(facts),
    ]
    for entry in merge(*sources, key=lambda entry: entry.key):
        if entry.due_at > facts.until:
            return
        yield entry if entry.due_at >= facts.begin and (after is None or entry.key > after) else None


def _has_zone(timing: Timing) -> bool:
    """False when the tz data no longer has it: then nobody can say any more which times those were."""
    try:
        load_zone(timing.zone)
    except ZoneFault:
        return False
    return True


# --- ranges -----------------------------------------------------------------------------------------------


def _one_by_one(facts: LedgerFacts, one: RangeFact, after: Key | None, made: set[datetime]) -> Iterator[LedgerEntry]:
    due: datetime | None = one.first
    begin = max(facts.begin, facts.begin if after is None else after[0])
    if one.first < begin:
        due = one.timing.next_after(begin - _TICK)
    while due is not None and due <= one.last:
        if due not in made:
            yield _of_range(facts, replace(one, first=due, last=due, count=1))
        due = one.timing.next_after(due)


def _stretches(facts: LedgerFacts, one: RangeFact, after: Key | None, made: set[datetime]) -> Iterator[LedgerEntry]:
    """The part of a range between begin and until. Ranges hold no due time that made a run, so nothing is taken off."""
    first = one.first
    if first < facts.begin:
        following = one.timing.next_after(facts.begin - _TICK)
        if following is None or following > one.last:
            return
        first = following
    if first == one.first and one.last <= facts.until:
        yield _of_range(facts, one)
        return
    due: datetime | None = first
    before = min(one.last, facts.until) + _TICK
    while due is not None and due < before:  # what must be walked over comes in several stretches
        part = stretch(one.timing, due, before)
        yield _of_range(facts, replace(one, first=due, last=part.last, count=part.count))
        due = part.next_due


def older_part(one: RangeFact) -> RangeFact:
    """A range that was stored with where the next one begins instead of where it ends."""
    if not _has_zone(one.timing):
        return one
    return replace(one, last=last_before(one.timing, one.first, one.last))


def _from_cursor(facts: LedgerFacts, start: datetime) -> Iterator[RangeFact]:
    """Due times that nobody has decided about: held by a pause that goes on, or not planned by anybody yet. In order,
    and not earlier than `start`."""
    due, end = facts.cursor, facts.now + _TICK
    own = facts.own_span
    if due is not None and own is not None and own.end is not None and own.covers(due):  # told as its own pause
        due = _all_due_times(facts.timing).next_after(own.end - _TICK)
    if due is not None and due < start:
        due = _event_after(facts.timing, start - _TICK)
    while due is not None and due < end:
        at = due
        span = next((span for span in facts.spans if span.covers(at)), None)
        if span is not None:
            until, became, reason, detail = span.end or end, Became.PAUSED, Reason.PAUSED.value, span.detail
        else:
            starts = [span.start + _TICK for span in facts.spans if span.start >= at]
            until, became, reason, detail = min(starts, default=end), Became.UNPLANNED, UNPLANNED, None
        due = None
        for part, calendar in stretches(facts.timing, at, min(until, end)):
            yield _derived(facts, part, calendar, became, reason, detail)
            due = part.next_due


def _from_own_pause(facts: LedgerFacts, start: datetime) -> Iterator[RangeFact]:
    span = facts.own_span
    if span is None or span.end is None:
        return
    due = _all_due_times(facts.timing).next_after(max(span.start, start - _TICK))
    while due is not None and due < span.end:
        at, due = due, None
        for part, calendar in stretches(facts.timing, at, span.end):
            yield _derived(facts, part, calendar, Became.PAUSED, Reason.PAUSED.value, span.detail)
            due = part.next_due


def _derived(
    facts: LedgerFacts, part: Stretch, calendar: str | None, became: Became, reason: str, detail: str | None
) -> RangeFact:
    """What a calendar leaves out is excluded, whatever else is to say."""
    if calendar is not None:
        became, reason, detail = Became.EXCLUDED, Reason.EXCLUDED.value, excluded_words(calendar)
    return RangeFact(part.first, part.last, part.count, became, reason, _all_due_times(facts.timing), detail)


def _event_after(timing: Timing, instant: datetime) -> datetime | None:
    """The first due time strictly later, also one that a calendar leaves out."""
    return timing.next_event(instant) if isinstance(timing, TimingAround) else timing.next_after(instant)


def _all_due_times(timing: Timing) -> Timing:
    return timing.without_calendars if isinstance(timing, TimingAround) else timing


# --- what the clock left out ------------------------------------------------------------------------------


def _dst_gaps(facts: LedgerFacts) -> Iterator[LedgerEntry]:
    """Local times of its schedules that did not exist and made no due time either."""
    begin = max(facts.begin, facts.created_at)
    over = facts.until if facts.ended_at is None else facts.ended_at
    for ends, timing in [*facts.earlier, (facts.until, facts.timing)]:
        until = min(ends, facts.until, facts.now, over)
        if begin <= until and timing.zone != "UTC":
            yield from _gaps_of(timing, begin, until)
        begin = max(begin, ends)


def _gaps_of(timing: Timing, begin: datetime, until: datetime) -> Iterator[LedgerEntry]:
    if not _has_zone(timing):
        return
    zone = load_zone(timing.zone)
    # From the day before on: a jump at midnight by UTC is the end of that day.
    for ordinal in range(begin.toordinal() - 1, until.toordinal() + 1):
        found = jump_on(zone, ordinal)
        if (
            found is None
            or found[1] <= timedelta(0)
            or not begin <= found[0] <= until
            or not _is_active(timing, found[0])
        ):
            continue
        jump, by = found
        behind = jump.astimezone(zone).replace(tzinfo=None)
        lost = sorted(
            {local for schedule in timing.schedules for local in _lost(timing, schedule, jump, behind - by, behind)}
        )
        if lost:
            more = "" if len(lost) == 1 else f" and {len(lost) - 1} more up to {lost[-1]:%H:%M:%S}"
            clocks = f"clocks went from {behind - by:%H:%M} to {behind:%H:%M}"
            why = f"{lost[0]:%Y-%m-%d %H:%M:%S}{more} did not exist in {timing.zone}: {clocks}"
            yield LedgerEntry(jump, jump, len(lost), Became.DST_GAP.value, Became.DST_GAP.value, why, key=(jump, 1))


def _lost(timing: Timing, schedule: Schedule, jump: datetime, begin: datetime, before: datetime) -> Iterator[datetime]:
    """The local times in [begin, before) that a schedule names and that the clock jumped over at that instant."""
    rule: Cron | RRule
    if isinstance(schedule, CronSchedule):
        rule = Cron.parse(schedule.text, schedule.seed)
    elif isinstance(schedule, RRuleSchedule):
        rule = schedule.rule
        if not _goes_on(schedule, timing, jump):
            return
    else:
        return
    if rule.is_fixed_time and timing.gap is Gap.FIRE_AFTER:
        return
    local = rule.next_local(begin - _TICK)
    while local is not None and local < before:
        yield local
        local = rule.next_local(local)


def _goes_on(schedule: RRuleSchedule, timing: Timing, instant: datetime) -> bool:
    end = schedule.end_in(load_zone(timing.zone))
    return (schedule.since is None or schedule.since <= instant) and (end is None or instant <= end)


def _is_active(timing: Timing, instant: datetime) -> bool:
    return (timing.start_at is None or timing.start_at <= instant) and (
        timing.end_at is None or instant <= timing.end_at
    )


# --- entries, in words ------------------------------------------------------------------------------------


def _of_run(run: RunFact) -> LedgerEntry:
    return LedgerEntry(
        run.due_at,
        run.due_at,
        1,
        run.state.word,
        run.reason,
        _why_of_run(run),
        run.run_id,
        run.started_at,
        run.ended_at,
        key=(run.due_at, 0),
    )


_WHY: Final[Mapping[str, str]] = {
    **{reason.value: end.meaning for reason, end in REASONS.items()},
    Reason.CATCHUP_LAST: (
        "no scheduler was at work when it fell due, and the job's catch-up leaves it out: of what was missed `last` "
        "runs the newest, `all` the newest max_runs, `none` nothing"
    ),
    UNPLANNED: "no scheduler has planned it yet: is one running? See `hourhand status`",
}
_LIVE: Final[Mapping[RunState, str]] = {
    RunState.QUEUED: "it has not started yet; `hourhand run explain` tells why",
    RunState.WAITING: "it waits; `hourhand run explain` tells for what",
    RunState.CLAIMED: "an executor has it",
    RunState.RUNNING: "it runs",
    RunState.CANCELLING: "it is being stopped",
}


def _why_of_run(run: RunFact) -> str | None:
    if not run.state.is_final:
        return _LIVE[run.state]
    told = _WHY.get(run.reason or "")
    error = (run.error or "").partition("\n")[0][:200]
    if told is None and run.state is not RunState.SUCCEEDED:
        told = (run.reason or run.state.word).replace("_", " ")
    return f"{told}: {error}" if told and error else told


def _of_range(facts: LedgerFacts, one: RangeFact) -> LedgerEntry:
    return LedgerEntry(
        one.first, one.last, one.count, one.became.value, one.reason, _why_of_range(facts, one), key=(one.first, 0)
    )


def _why_of_range(facts: LedgerFacts, one: RangeFact) -> str:
    why = _why_not(facts, one)
    if one.count == 1 and one.first in facts.backfilled:
        return f"{why}; run {facts.backfilled[one.first]} of a backfill made up for it"
    if any(one.first <= due <= one.last for due in facts.backfilled):
        return f"{why}; runs of a backfill made up for some of them"
    return why


def _why_not(facts: LedgerFacts, one: RangeFact) -> str:
    if one.reason == Reason.CATCHUP_WINDOW:
        window = format_duration(facts.catchup_window) if facts.catchup_window else "0s"
        return (
            "no scheduler was at work when it fell due, "
            f"and when one was it was longer ago than the job's catch-up window ({window})"
        )
    return one.detail or _WHY.get(one.reason) or one.reason.replace("_", " ")
