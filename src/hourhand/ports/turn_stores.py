"""What schedulers see of runs that wait, and do about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from hourhand.model.overlap import Sibling
from hourhand.model.policy import Overlap, Policy
from hourhand.model.states import Reason


@dataclass(frozen=True, slots=True)
class Look:
    """What a scheduler must know each second."""

    owned: int
    """How many shards are its own."""
    epoch: int
    """The newest of all shards."""
    next_fire: datetime | None
    """When the next job of any shard falls due."""
    turns: bool
    """Whether any run waits for its turn,"""
    gates: bool
    """any for a gate,"""
    expired: bool
    """and any has waited too long."""
    pauses: bool = False
    """Whether there is a pause, or was one that not all have heard of."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A run that fell due while an earlier one of its job was not finished."""

    run_id: UUID
    job_id: UUID
    scheduled_for: datetime
    ready_at: datetime
    overlap: Overlap
    policy: Policy
    asked_for: bool = False
    """By somebody: then it may wait however many wait before it."""
    once_run_id: UUID | None = None
    """The single scheduled run of its job, if the job runs once."""
    caught_up: bool = False
    """It was made after its due time, when somebody planned again."""
    jitter: timedelta = timedelta()
    """How much later than its due time a run of its job may be ready."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    job_id: UUID
    scheduled_for: datetime
    sibling: Sibling


class TurnStore(Protocol):
    """Runs that wait: for their turn, for a place in a gate, or too long."""

    async def look(self, node_id: int, now: datetime) -> Look: ...

    async def waiting_turns(self, node_id: int, limit: int, after: Turn | None = None) -> list[Turn]:
        """Runs of the node's shards that wait behind earlier ones of their job, those due first; those that follow
        `after`. Of those that were asked for with `queue_all` only the first of a job, if no other waits before it; of
        those that were caught up together only the first, or the first two, as far as they decide about the others."""

    async def unfinished_of(self, turns: Sequence[Turn]) -> list[Unfinished]:
        """The unfinished runs of their jobs that may be in their way, themselves among them."""

    async def let_turns_go(self, run_ids: Sequence[UUID]) -> int: ...

    async def skip_runs(self, skips: Sequence[tuple[UUID, Reason]], now: datetime) -> int:
        """Ends runs that nobody holds as skipped."""

    async def ask_to_end(self, run_ids: Sequence[UUID]) -> int:
        """Asks the executors of these runs to end them; how many were asked."""

    async def expire_runs(self, now: datetime, limit: int) -> int:
        """Ends runs that waited too long."""

    async def let_go_on(self, limit: int) -> int:
        """Wherever a gate has room, lets as many of its waiting runs go on; how many."""

    async def free_stray_slots(self) -> int:
        """Gives back places in gates whose runs are in nobody's hands; how many."""
