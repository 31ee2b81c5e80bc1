"""Backfills: running the due times of a past range. Which of them, how many at a time, and how long that takes.

A backfill goes through the due times of its range in order. Some of them may have a run already: what then becomes of
them is a choice. The others are released a few at a time: never more than `parallelism` are unfinished, and never more
than the rate allows in any stretch of its length.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from hourhand.model.policy import Overlap, Rate
from hourhand.model.schedule import Timing
from hourhand.model.states import RunState

RUNS_MAX: Final = 100_000
"""Due times of one backfill."""
PARALLELISM_MAX: Final = 1000
RELEASE_SECONDS: Final = 0.1
"""How soon after the end of a run the next one is released: what a run costs at least."""


class BackfillState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    """Releases nothing; what is released goes on."""
    COMPLETED = "completed"
    """Every due time is left out or has a run that is final."""
    CANCELLED = "cancelled"
    """Releases nothing more, and what was released and not finished was cancelled too."""

    @property
    def is_final(self) -> bool:
        return self in (BackfillState.COMPLETED, BackfillState.CANCELLED)


class Existing(StrEnum):
    """What becomes of due times that have a run. One that was skipped or missed ran nothing, and counts as none."""

    SKIP = "skip"
    """They are left out, however their run ended."""
    RETRY_FAILED = "retry_failed"
    """They are left out if a run of theirs has succeeded or is not finished; the others are run again."""
    REPEAT = "repeat"
    """They are run again."""


_RAN_NOTHING: Final = frozenset({RunState.SKIPPED, RunState.MISSED})


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What somebody wants, checked."""

    start: datetime
    end: datetime
    """Not included."""
    existing: Existing = Existing.SKIP
    parallelism: int = 1
    rate: Rate | None = None
    overlap: Overlap | None = None
    """ALLOW, or None for the job's own policy."""
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Backfill:
    """A stored backfill and how far it has come."""

    backfill_id: UUID
    namespace_id: int
    job_id: UUID
    job_name: str
    request: BackfillRequest
    timing: Timing
    first_due: datetime
    last_due: datetime
    total: int
    next_due: datetime | None
    state: BackfillState
    state_reason: str | None
    left_out: int
    live: int
    """Released and not finished."""
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    created_at: datetime
    created_by: str
    changed_at: datetime
    changed_by: str
    ended_at: datetime | None

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.skipped

    @property
    def remaining(self) -> int:
        """Not dealt with yet."""
        return max(self.total - self.left_out - self.ended - self.live, 0)

    @property
    def share_done(self) -> float:
        """From 0 to 1."""
        return min((self.left_out + self.ended) / self.total, 1.0)


def room(parallelism: int, live: int, rate: Rate | None, released_lately: int) -> int:
    """How many may be released now; `released_lately`: within the last stretch of the rate's length."""
    free = max(parallelism - live, 0)
    return free if rate is None else min(free, max(rate.count - released_lately, 0))


@dataclass(frozen=True, slots=True)
class Choice:
    """The next due times of a backfill, dealt with."""

    dues: Sequence[datetime]
    """To be released."""
    left_out: int
    next_due: datetime | None
    """Where it goes on."""


def choose(
    candidates: Sequence[datetime],
    following: datetime | None,
    found: Mapping[datetime, Collection[RunState]],
    existing: Existing,
    places: int,
) -> Choice:
    """Goes through candidates in their order until all places are taken. `following`: the due time after the last of
    them, `found`: the states of the runs that they have."""
    dues: list[datetime] = []
    left_out = 0
    for due in candidates:
        if is_left_out(found.get(due, ()), existing):
            left_out += 1
        elif len(dues) < places:
            dues.append(due)
        else:
            return Choice(dues, left_out, due)
    return Choice(dues, left_out, following)


def is_left_out(states: Iterable[RunState], existing: Existing) -> bool:
    """Whether a due time whose runs are in these states is none of the backfill's business."""
    ran = [state for state in states if state not in _RAN_NOTHING]
    match existing:
        case Existing.REPEAT:
            return False
        case Existing.SKIP:
            return bool(ran)
        case Existing.RETRY_FAILED:
            return any(state is RunState.SUCCEEDED or not state.is_final for state in ran)


def estimate_seconds(runs: int, parallelism: int, rate: Rate | None, run_seconds: float | None) -> float | None:
    """How long it takes, going by what the job's runs took; None when that is not known."""
    if not runs:
        return 0.0
    by_rate = 0.0 if rate is None else (math.ceil(runs / rate.count) - 1) * rate.seconds
    if run_seconds is None:
        return None
    rounds = math.ceil(runs / parallelism)
    return max(rounds * (run_seconds + RELEASE_SECONDS), by_rate + run_seconds)


def dues_from(
    timing: Timing, due: datetime | None, end: datetime, limit: int
) -> tuple[list[datetime], datetime | None]:
    """`due` and those that follow it before `end`, at most `limit`; and the one that follows them."""
    dues: list[datetime] = []
    while due is not None and due < end and len(dues) < limit:
        dues.append(due)
        due = timing.next_after(due)
    return dues, due if due is not None and due < end else None


def first_due_from(timing: Timing, start: datetime) -> datetime | None:
    """The first due time that is not earlier than `start`."""
    return timing.next_after(start - timedelta(microseconds=1))
