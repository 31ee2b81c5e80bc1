"""What becomes of due times that passed while nobody was planning, or while the job was paused.

Due times at most `GRACE` old all run: that is the time a shard may take to change hands. Older ones follow
the job's choice: within `window`, `last` runs the newest unless a younger one runs anyway, `all` every one up to a cap,
`none` none. Due times of a pause do not run, unless whoever ended it wanted some. What was asked for by its instant
(`now`, `at`) runs, however late. What does not run the ledger has, as ranges with a count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace as with_fields

from hourhand.model import counting
from hourhand.model.counting import Stretch, count_quickly, newest_before, stretch
from hourhand.model.schedule import Timing
from hourhand.model.states import Reason

GRACE: Final = timedelta(seconds=15)
MADE_LATE: Final = timedelta(seconds=2)
"""A run that is made so long after its due time was nobody's to judge when it fell due; it is ready when it is made."""
_TICK: Final = timedelta(microseconds=1)
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
FIRES_MAX: Final = 1000
"""Runs that one plan makes; the rest is for the next one."""
COUNTING_STEPS: Final = 50
"""What counting a stretch costs, as so many due times that are walked over."""


def ready_when_made(due: datetime, now: datetime) -> datetime:
    """From when on a run may start that is made now."""
    return due if due >= now - MADE_LATE else now


def was_made_late(due: datetime, ready: datetime, jitter: timedelta) -> bool:
    """Of a run that has not been tried yet: what is ready later than its jitter lets it start."""
    return ready > due + jitter + MADE_LATE


class CatchUp(StrEnum):
    LAST = "last"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CatchUpPolicy:
    mode: CatchUp = CatchUp.LAST
    window: timedelta = timedelta(hours=1)
    runs_max: int = 100
    """With `all`: at most this many late runs, the newest ones."""


@dataclass(frozen=True, slots=True)
class PauseSpan:
    """A pause as it bears on one job: due times later than `start` and earlier than `end`."""

    start: datetime
    end: datetime | None
    """None: nobody knows yet."""
    catch_up: CatchUp = CatchUp.NONE
    """What is run of them afterwards."""
    detail: str | None = None

    def covers(self, due: datetime) -> bool:
        return self.start < due and (self.end is None or due < self.end)


@dataclass(frozen=True, slots=True)
class MissedRange:
    """Due times from `first` to `last` (both included) that made no run."""

    first: datetime
    last: datetime
    count: int
    reason: Reason
    next_due: datetime | None = None
    """The due time that follows: a range that begins there for the same reason is the same stretch."""
    detail: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """What to do with a job whose cursor has come up."""

    fires: list[datetime]
    missed: list[MissedRange]
    next_due: datetime | None


class Walk(Protocol):
    """Due times as a plan meets them, one after the other, also those that a calendar leaves out."""

    left: int
    """Steps that this plan may still take; the rest is for the next one."""

    @property
    def timing(self) -> Timing:
        """Answers by `next_after` what is not left out."""

    def once(self) -> Sequence[datetime]:
        """Due times that were asked for by their instant, in order."""

    def left_out(self, due: datetime, before: datetime) -> tuple[MissedRange | None, datetime | None] | None:
        """Where a calendar leaves the due time out: the stretch of those that begins there, and what follows it."""

    def run_on(self, first: datetime, before: datetime) -> Stretch:
        """Due times from `first` up to some that are earlier than `before`, none of which is left out."""

    def next_after(self, due: datetime) -> datetime | None:
        """What follows a due time."""


class PlainWalk:
    """Those of a job without calendars."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.left = counting.WALK_MAX
        self.next_after = timing.next_after

    def once(self) -> Sequence[datetime]:
        return sorted(asked_instants(self.timing))

    def left_out(self, due: datetime, before: datetime) -> None:
        return None

    def run_on(self, first: datetime, before: datetime) -> Stretch:
        found = stretch(self.timing, first, before, max(self.left, 1))
        counted = count_quickly(self.timing, first, first) is not None
        self.left -= min(found.count, COUNTING_STEPS) if counted else found.count
        return found


def asked_instants(timing: Timing) -> list[datetime]:
    """Of `now` and `at`."""
    return [instant for each in timing.schedules if (instant := getattr(each, "instant", None)) is not None]


def plan(
    timing: Timing,
    cursor: datetime,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    fires_max: int = FIRES_MAX,
    pauses: Sequence[PauseSpan] = (),
) -> Plan:
    """Everything from the cursor up to `now + horizon`: what runs, what was missed, where the cursor goes.

    Missed due times that cannot be counted are walked over up to a bound: then the cursor stands where the next plan
    goes on. It stops too at the first due time of a pause that is not over: nothing is decided about that before.
    """
    if not pauses and cursor >= now - GRACE:  # on time, as nearly always
        return _ahead(timing, cursor, now + horizon, fires_max)
    return plan_walk(PlainWalk(timing), cursor, now, horizon, policy, fires_max, pauses)


def _ahead(timing: Timing, due: datetime | None, until: datetime, fires_max: int) -> Plan:
    # Bounded: a second-by-second job with a long horizon continues in the next plan.
    fires: list[datetime] = []
    while due is not None and due <= until and len(fires) < fires_max:
        fires.append(due)
        due = timing.next_after(due)
    return Plan(fires, [], due)


def plan_walk(
    walk: Walk,
    cursor: datetime | None,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    fires_max: int,
    pauses: Sequence[PauseSpan],
) -> Plan:
    """Part by part: what is too old, what is late, what fell into a pause, what is on time."""
    fires: list[datetime] = []
    missed: list[MissedRange] = []
    due = cursor
    if due is None or due > now + horizon:
        return Plan(fires, missed, due)
    parts = _parts(due, now, horizon, policy, pauses)
    since = _Since(walk.timing, parts, policy, now)
    once = walk.once()
    at = 0
    while due is not None and due <= now + horizon and walk.left > 0 and len(fires) < fires_max:
        while parts[at].end <= due:
            at += 1
        part = parts[at]
        left_out = walk.left_out(due, now + horizon + _TICK)
        if left_out is not None:
            gap, due = left_out
            if gap is not None:
                _tell(missed, gap)
            continue
        if part.held:
            break
        asked = due in once
        runs_from = due if asked else since(part)
        if due >= runs_from:
            walk.left -= 1
            fires.append(due)
            due = walk.next_after(due)
            continue
        before = min([part.end, runs_from, *(instant for instant in once if instant > due)])
        found = walk.run_on(due, before)
        assert part.reason is not None, "what is on time runs"
        gap = MissedRange(found.first, found.last, found.count, part.reason, found.next_due, part.detail)
        _tell(missed, gap)
        due = found.next_due
    return Plan(fires, missed, due)


def _tell(missed: list[MissedRange], gap: MissedRange) -> None:
    """Stretches that follow each other for the same reason are one."""
    before = missed[-1] if missed else None
    if before and (before.next_due, before.reason, before.detail) == (gap.first, gap.reason, gap.detail):
        missed[-1] = replace(before, last=gap.last, count=before.count + gap.count, next_due=gap.next_due)
    else:
        missed.append(gap)


# --- parts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Due times of [begin, end), of which the same is to be said."""

    begin: datetime
    end: datetime
    reason: Reason | None = None
    """Why some of them do not run; None: all run."""
    detail: str | None = None
    shares: Hashable = None
    """Parts of which so many run together as their choice says; None: none runs."""
    held: bool = False
    """By a pause that is not over."""


_ALL: Final = "all"
_LAST: Final = "last"


def _parts(
    cursor: datetime, now: datetime, horizon: timedelta, policy: CatchUpPolicy, pauses: Sequence[PauseSpan]
) -> list[_Part]:
    fresh, stop = now - GRACE, now + horizon + _TICK
    window_from = min(now - policy.window, fresh)
    edges = {window_from, fresh, *(span.start + _TICK for span in pauses)}
    edges |= {span.end for span in pauses if span.end is not None}
    inner = sorted(edge for edge in edges if cursor < edge < stop)
    parts: list[_Part] = []
    for begin, end in zip([cursor, *inner], [*inner, stop], strict=True):
        spans = [span for span in pauses if span.covers(begin)]
        over = least(spans)
        if over is not None:
            held = any(span.end is None or span.end > now for span in spans)
            shares = {CatchUp.NONE: None, CatchUp.LAST: over, CatchUp.ALL: _ALL}[over.catch_up]
            parts.append(_Part(begin, end, Reason.PAUSED, over.detail, shares, held))
        elif begin >= fresh:
            parts.append(_Part(begin, end))
        elif begin < window_from:
            parts.append(_Part(begin, end, Reason.CATCHUP_WINDOW))
        else:
            late = {CatchUp.NONE: None, CatchUp.LAST: _LAST, CatchUp.ALL: _ALL}[policy.mode]
            parts.append(_Part(begin, end, Reason.CATCHUP_LAST, shares=late))
    return parts


class _Since:
    """From when on due times run: the cap is for all parts that share it together, and the newest come first."""

    def __init__(self, timing: Timing, parts: Sequence[_Part], policy: CatchUpPolicy, now: datetime) -> None:
        self._timing = _recurring_only(timing)
        if type(timing) is not Timing:  # calendars may leave nothing for years: nobody looks further than this plan
            last = parts[-1].end - _TICK
            end_at = last if timing.end_at is None else min(timing.end_at, last)
            self._timing = with_fields(self._timing, end_at=end_at)
        self._parts = [part for part in parts if not part.held]
        self._runs_max = policy.runs_max
        self._now = now
        self._known: dict[Hashable, datetime] = {}

    def __call__(self, part: _Part) -> datetime:
        if part.reason is None:
            return _ALWAYS
        if part.shares is None:
            return _NEVER
        if part.shares not in self._known:
            self._known[part.shares] = self._found(part.shares)
        return self._known[part.shares]

    def _found(self, shares: Hashable) -> datetime:
        if shares == _LAST and self._is_one_fresh():
            return _NEVER
        wanted = self._runs_max if shares == _ALL else 1
        for part in reversed(self._parts):
            if part.shares == shares:
                newest = newest_before(self._timing, part.begin, part.end, wanted)
                wanted -= len(newest)
                if wanted <= 0:
                    return newest[0]
        return _ALWAYS

    def _is_one_fresh(self) -> bool:
        """Whether the last of all that has passed is merely late, and runs without being caught up."""
        fresh = [(part.begin, min(part.end, self._now + _TICK)) for part in self._parts if part.reason is None]
        return any(newest_before(self._timing, begin, end, 1) for begin, end in fresh if begin < end)


def _recurring_only(timing: Timing) -> Timing:
    """What was asked for by its instant runs anyway, and takes no place of others."""
    recurring = tuple(schedule for schedule in timing.schedules if schedule.recurring)
    return timing if len(recurring) in (0, len(timing.schedules)) else with_fields(timing, schedules=recurring)


_MORE: Final[Mapping[CatchUp, int]] = {CatchUp.NONE: 0, CatchUp.LAST: 1, CatchUp.ALL: 2}


def least(spans: Sequence[PauseSpan]) -> PauseSpan | None:
    """Of several pauses of one due time, the one that counts: it has the least of it run."""
    return min(spans, key=lambda span: _MORE[span.catch_up], default=None)
