"""What becomes of due times that passed while nobody was planning, or while the job was paused.

Due times at most `GRACE` old all run: that is the time a shard may take to change hands. Older ones follow
the job's choice: within `window`, `last` runs only the newest, `all` every one up to a cap, `none` none. Due times of a
pause do not run, unless whoever ended it wanted some. What does not run the ledger has, as ranges with a count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from hourhand.model.counting import Stretch, last_before, newest, stretch
from hourhand.model.schedule import Timing
from hourhand.model.states import Reason

GRACE: Final = timedelta(seconds=15)
_TICK: Final = timedelta(microseconds=1)


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


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a job whose cursor has come up."""

    fires: list[datetime]
    missed: list[MissedRange]
    next_due: datetime | None


def plan(
    timing: Timing,
    cursor: datetime,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    fires_max: int = 1000,
    pauses: Sequence[PauseSpan] = (),
) -> Plan:
    """Everything from the cursor up to `now + horizon`: what runs, what was missed, where the cursor goes.

    Missed due times that cannot be counted are walked over up to a bound: then the cursor stands where the next plan
    goes on. It stops too at the first due time of a pause that is not over: nothing is decided about that before.
    """
    if pauses:
        return _around_pauses(timing, cursor, now, horizon, policy, fires_max, pauses)
    if cursor >= now - GRACE:  # on time, as nearly always
        return _ahead(timing, [], [], cursor, now + horizon, fires_max)
    late = _late(timing, cursor, now - GRACE, now, policy, fires_max)
    if late.next_due is None or late.next_due < now - GRACE:
        return late
    return _ahead(timing, late.fires, late.missed, late.next_due, now + horizon, fires_max)


def _ahead(
    timing: Timing,
    fires: list[datetime],
    missed: list[MissedRange],
    due: datetime | None,
    until: datetime,
    fires_max: int,
) -> Plan:
    # Bounded: a second-by-second job with a long horizon continues in the next plan.
    while due is not None and due <= until and len(fires) < fires_max:
        fires.append(due)
        due = timing.next_after(due)
    return Plan(fires, missed, due)


def _late(
    timing: Timing, cursor: datetime, before: datetime, now: datetime, policy: CatchUpPolicy, fires_max: int
) -> Plan:
    """What becomes of the due times from the cursor up to those earlier than `before`."""
    if not timing.recurring:  # what was asked for by its instant runs, however late
        return _ahead(timing, [], [], cursor, before - _TICK, fires_max)
    missed: list[MissedRange] = []
    inside: datetime | None = cursor
    window_from = min(now - policy.window, before)
    if cursor < window_from:
        outside = stretch(timing, cursor, window_from)
        missed.append(_missed(outside, Reason.CATCHUP_WINDOW))
        inside = outside.next_due
        if inside is None or inside < window_from:  # cut: newer ones follow
            return Plan([], missed, inside)
    if inside is None or inside >= before:
        return Plan([], missed, inside)
    stale = stretch(timing, inside, before)
    if stale.next_due is not None and stale.next_due < before:  # cut: none of these is the last
        return Plan([], [*missed, _missed(stale, Reason.CATCHUP_LAST)], stale.next_due)
    return _some_of(timing, stale, policy, Reason.CATCHUP_LAST, None, missed)


def _some_of(
    timing: Timing,
    stale: Stretch,
    policy: CatchUpPolicy,
    reason: Reason,
    detail: str | None,
    missed: list[MissedRange],
) -> Plan:
    """The newest of a stretch run, as the policy says; the others are in the ledger."""
    keep = {CatchUp.LAST: 1, CatchUp.ALL: policy.runs_max, CatchUp.NONE: 0}[policy.mode]
    fires = newest(timing, stale, min(keep, stale.count))
    left_out = stale.count - len(fires)
    if left_out:
        last = last_before(timing, stale.first, fires[0]) if fires else stale.last
        following = fires[0] if fires else stale.next_due
        missed = [*missed, MissedRange(stale.first, last, left_out, reason, following, detail)]
    return Plan(fires, missed, stale.next_due)


def _missed(of: Stretch, reason: Reason, detail: str | None = None) -> MissedRange:
    return MissedRange(of.first, of.last, of.count, reason, of.next_due, detail)


# --- pauses -----------------------------------------------------------------------------------------------


def _around_pauses(
    timing: Timing,
    cursor: datetime,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    fires_max: int,
    pauses: Sequence[PauseSpan],
) -> Plan:
    """Part by part: what fell into a pause, and what lies between pauses."""
    fires: list[datetime] = []
    missed: list[MissedRange] = []
    in_force = [span for span in pauses if span.end is None or span.end > now]
    due: datetime | None = cursor
    while due is not None:
        if any(span.covers(due) for span in in_force):
            return Plan(fires, missed, due)
        begins = [span.start + _TICK for span in pauses if span.start >= due]
        over = least([span for span in pauses if span.covers(due)])
        if over is not None:
            assert over.end is not None
            end = min([over.end, *begins])
            part = _paused(timing, due, over, end, policy, fires_max)
        elif begins:
            end = min(begins)
            # The last of all that is late runs, and not the last before each pause.
            last_is_later = policy.mode is CatchUp.LAST and _is_late_after(timing, end, now - GRACE, pauses)
            here = replace(policy, mode=CatchUp.NONE) if last_is_later else policy
            part = _between(timing, due, end, now, here, fires_max)
        else:
            part = plan(timing, due, now, horizon, policy, fires_max)
            return Plan(fires + part.fires, missed + part.missed, part.next_due)
        fires, missed, due = fires + part.fires, missed + part.missed, part.next_due
        if (due is not None and due < end) or len(fires) >= fires_max:  # the next plan goes on there
            break
    return Plan(fires, missed, due)


def _is_late_after(timing: Timing, since: datetime, before: datetime, pauses: Sequence[PauseSpan]) -> bool:
    """Whether a due time lies between the two that no pause covers."""
    due = timing.next_after(since - _TICK)
    while due is not None and due < before:
        at = due
        ends = [span.end for span in pauses if span.covers(at)]
        if not ends:
            return True
        if None in ends:
            return False
        due = timing.next_after(max(end for end in ends if end is not None) - _TICK)
    return False


_MORE: Final = {CatchUp.NONE: 0, CatchUp.LAST: 1, CatchUp.ALL: 2}


def least(spans: Sequence[PauseSpan]) -> PauseSpan | None:
    """Of several pauses of one due time, the one that counts: it has the least of it run."""
    return min(spans, key=lambda span: _MORE[span.catch_up], default=None)


def _paused(
    timing: Timing, first: datetime, span: PauseSpan, end: datetime, policy: CatchUpPolicy, fires_max: int
) -> Plan:
    if not timing.recurring:
        return _ahead(timing, [], [], first, end - _TICK, fires_max)
    within = stretch(timing, first, end)
    if within.next_due is not None and within.next_due < end:
        return Plan([], [_missed(within, Reason.PAUSED, span.detail)], within.next_due)
    return _some_of(timing, within, replace(policy, mode=span.catch_up), Reason.PAUSED, span.detail, [])


def _between(
    timing: Timing, first: datetime, before: datetime, now: datetime, policy: CatchUpPolicy, fires_max: int
) -> Plan:
    """Due times before a pause that nobody had planned when it began: as if nobody had planned them until now."""
    fresh = now - GRACE
    late = Plan([], [], first) if first >= fresh else _late(timing, first, min(before, fresh), now, policy, fires_max)
    if late.next_due is None or late.next_due < fresh:
        return late
    return _ahead(timing, late.fires, late.missed, late.next_due, before - _TICK, fires_max)
