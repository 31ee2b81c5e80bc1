"""What becomes of due times that passed while nobody was planning.

Due times at most `GRACE` old all run: that is the time a shard may take to change hands. Older ones follow
the job's choice: within `window`, `last` runs only the newest, `all` every one up to a cap, `none` none. What
does not run is missed, and the ledger says so as ranges with a count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from hourhand.model.schedule import Timing
from hourhand.model.states import Reason

GRACE: Final = timedelta(seconds=15)


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
class MissedRange:
    """Due times from `first` to `last` (both included) that made no run."""

    first: datetime
    last: datetime
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a job whose cursor has come up."""

    fires: list[datetime]
    missed: list[MissedRange]
    next_due: datetime | None


COUNT_MAX: Final = 2000
"""Missed due times are counted one by one up to here; a longer silence is cut into several plans."""


def plan(
    timing: Timing, cursor: datetime, now: datetime, horizon: timedelta, policy: CatchUpPolicy, fires_max: int = 1000
) -> Plan:
    """Everything from the cursor up to `now + horizon`: what runs, what was missed, where the cursor goes."""
    if cursor >= now - GRACE:  # on time, as nearly always
        return _ahead(timing, [], [], cursor, now + horizon, fires_max)
    if not timing.recurring:  # what was asked for by its instant runs, however late
        policy = replace(policy, mode=CatchUp.ALL, window=now - cursor, runs_max=fires_max)
    stale, due = _stale_due_times(timing, cursor, now - GRACE)
    if (
        due is not None and due < now - GRACE
    ):  # cut at COUNT_MAX: newer stale times follow, so none of these is the last
        _, missed = _catch_up(stale, now, replace(policy, mode=CatchUp.NONE))
        return Plan([], missed, due)
    fires, missed = _catch_up(stale, now, policy)
    return _ahead(timing, fires, missed, due, now + horizon, fires_max)


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


def _stale_due_times(timing: Timing, cursor: datetime, fresh_from: datetime) -> tuple[list[datetime], datetime | None]:
    stale: list[datetime] = []
    due: datetime | None = cursor
    while due is not None and due < fresh_from and len(stale) < COUNT_MAX:
        stale.append(due)
        due = timing.next_after(due)
    return stale, due


def _catch_up(
    stale: Sequence[datetime], now: datetime, policy: CatchUpPolicy
) -> tuple[list[datetime], list[MissedRange]]:
    inside = [due for due in stale if now - due <= policy.window]
    outside = stale[: len(stale) - len(inside)]
    keep = {CatchUp.LAST: 1, CatchUp.ALL: policy.runs_max, CatchUp.NONE: 0}[policy.mode]
    fires = inside[len(inside) - keep :] if keep < len(inside) else inside
    left_out = inside[: len(inside) - len(fires)]
    ranges = [(outside, Reason.CATCHUP_WINDOW), (left_out, Reason.CATCHUP_LAST)]
    return list(fires), [MissedRange(times[0], times[-1], len(times), reason) for times, reason in ranges if times]
