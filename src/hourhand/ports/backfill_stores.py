"""Backfills as they are kept: what callers ask of them, and what the leading scheduler does about them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.backfill import Backfill, BackfillRequest, BackfillState
from hourhand.model.job import Job
from hourhand.model.policy import Policy
from hourhand.model.schedule import Timing
from hourhand.model.states import RunState


@dataclass(frozen=True, slots=True)
class NewBackfill:
    backfill_id: UUID
    namespace_id: int
    job_id: UUID
    version: int
    """Of the job: if it has another by then, nothing is stored."""
    request: BackfillRequest
    timing: Timing
    first_due: datetime
    last_due: datetime
    total: int
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class OpenBackfill:
    """One that is not over, with what is needed to go on with it."""

    backfill: Backfill
    released_lately: int
    """Within the last stretch of its rate's length."""
    version: int
    """Of its job, as it is now."""
    policy: Policy
    payload: Mapping[str, object]
    """Only where a key is made from it."""
    recurring: bool
    job_cancelled: bool


@dataclass(frozen=True, slots=True)
class Release:
    """A backfill's step: the runs it makes, how many due times it leaves out, where it goes on."""

    open: OpenBackfill
    runs: Sequence[tuple[UUID, datetime]]
    left_out: int
    next_due: datetime | None


class BackfillStore(Protocol):
    """What callers ask."""

    async def insert_backfill(self, new: NewBackfill, open_max: int) -> UUID | str | None:
        """Stores it; None when that is done. The id of another one of the job that is not over and shares due times
        with it; or "version" when the job was changed or cancelled, "open" when its namespace has `open_max` already.
        However many ask at once, one is stored."""

    async def get_backfill(self, namespace_id: int, backfill_id: UUID) -> Backfill | None: ...

    async def list_backfills(
        self, namespace_id: int, job_id: UUID | None, states: Sequence[BackfillState], before: UUID | None, limit: int
    ) -> list[Backfill]:
        """Newest first."""

    async def set_backfill_state(
        self, namespace_id: int, backfill_id: UUID, state: BackfillState, reason: str | None, by: str, now: datetime
    ) -> bool:
        """Pauses, resumes or cancels one that is not over. False, and nothing is changed, when it is. Once it is
        acknowledged, no further run is released."""

    async def unfinished_runs(self, backfill_id: UUID) -> list[UUID]:
        """What it has released and is not known to have ended."""

    async def runs_of_dues(
        self, namespace_id: int, job_id: UUID, dues: Sequence[datetime]
    ) -> dict[datetime, Collection[RunState]]:
        """The states of the runs that due times of a job have: scheduled ones, those that repeat them, and those of
        backfills. Due times without any are left out."""

    async def usual_seconds(self, job: Job, runs: int) -> float | None:
        """How long the newest of its runs that succeeded took, as their median; None when there is none."""


class BackfillWork(Protocol):
    """What the leader does. Every write asks for its lease: one that has lost it changes nothing."""

    async def settle_backfills(self, node_id: int, epoch: int, now: datetime) -> int:
        """Counts the runs that have ended meanwhile, and ends backfills of which nothing is left; how many runs."""

    async def open_backfills(self, now: datetime, limit: int) -> list[OpenBackfill]: ...

    async def runs_of_dues(
        self, namespace_id: int, job_id: UUID, dues: Sequence[datetime]
    ) -> dict[datetime, Collection[RunState]]:
        """See above."""

    async def release_runs(self, node_id: int, epoch: int, release: Release, now: datetime) -> list[UUID] | None:
        """The runs that were made. None, and nothing is changed, when the lead is lost, the backfill was paused,
        cancelled or moved on meanwhile, or its job was changed."""

    async def end_with_job(self, node_id: int, epoch: int, backfill_id: UUID, now: datetime) -> None:
        """Cancels a backfill whose job was cancelled."""

    async def forget_runs(self, before: datetime, limit: int) -> int:
        """Drops what backfills that ended before then have released; how many."""
