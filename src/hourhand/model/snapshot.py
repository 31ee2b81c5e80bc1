"""All that is known of a run at one moment: what an explanation is made of.

Whatever is in it may be told to whoever asks: the store leaves out what belongs to other namespaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hourhand.model.demands import NO_DEMANDS, Demands
from hourhand.model.gates import Starts
from hourhand.model.node_state import NodeFacts, NodeState
from hourhand.model.parts import Part
from hourhand.model.placement import missing_labels
from hourhand.model.policy import Rate
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import JobState, RunState

AHEAD_MAX: Final = 1000
"""Runs that are ahead are counted up to here."""
NO_STARTS: Final = Starts()


@dataclass(frozen=True, slots=True)
class Executor:
    name: str
    state: NodeState
    facts: NodeFacts
    lease_until: datetime

    def silent_for(self, now: datetime) -> timedelta | None:
        """Since its last heartbeat, when one is overdue: half a lease is at least one and a half of them."""
        if self.facts.lease_seconds is None:
            return None
        lease = timedelta(seconds=self.facts.lease_seconds)
        silence = lease - (self.lease_until - now)
        return silence if silence > lease / 2 else None

    def has_labels(self, s: "Snapshot") -> bool:
        return not missing_labels(s.demands.labels, self.facts.labels)

    def is_large_enough(self, s: "Snapshot") -> bool:
        return not s.demands.weighs or not self.facts.too_small_for(s.needs, s.demands)

    def fits(self, s: "Snapshot") -> bool:
        """Whether it is one that may take the run, whether or not it can now."""
        return self.facts.may_take(s.queue, s.needs, s.demands.labels)


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that has a place in a gate."""

    run_id: UUID
    job_name: str
    since: datetime


@dataclass(frozen=True, slots=True)
class GateFacts:
    gate_id: int
    kind: str
    name: str
    capacity: int | None = None
    taken: int = 0
    rate: Rate | None = None
    starts: Starts = NO_STARTS
    holders: Sequence[Holder] = ()
    """The first few."""
    ahead: int = 0
    """Runs that wait for it too and are let go first; no more than `AHEAD_MAX` are counted."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another run of the same job that is not finished."""

    run_id: UUID
    state: RunState
    scheduled_for: datetime
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Competition:
    """Who else wants the same slots now."""

    ahead: int = 0
    """Runs of the namespace that are taken first; no more than `AHEAD_MAX` are counted."""
    weight: int = 1
    weight_of_others: int = 0
    """Of all other namespaces with runs that wait."""


@dataclass(frozen=True, slots=True)
class PartPlace:
    parent_id: UUID
    place: int
    total: int
    node: str | None


ALONE: Final = Competition()


@dataclass(frozen=True, slots=True)
class Snapshot:
    now: datetime
    run_id: UUID
    job_id: UUID
    job_name: str
    namespace: str
    state: RunState
    scheduled_for: datetime
    ready_at: datetime
    attempt: int = 0
    priority: int = 5
    queue: str = ""
    needs: str = ""
    demands: Demands = NO_DEMANDS
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    """Of the end; of a live run, of its latest attempt."""
    error: str | None = None
    failures: int = 0
    """Of a finished run: attempts that failed or took too long, the last one included."""
    retry: RetryPolicy | None = None
    """Of a finished run: what its job says of retries. None when the job is gone or was changed since."""
    at_most_once: bool = False
    waits_on: int | None = None
    """The gate that holds it; 0: an earlier run of its job."""
    expires_at: datetime | None = None
    job_state: JobState = JobState.SCHEDULED
    pause_reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    pause_until: datetime | None = None
    held_by: Sequence[str] = ()
    """Pauses of many jobs that hold its job, in words."""
    queue_paused_at: datetime | None = None
    queue_paused_by: str | None = None
    queue_pause_reason: str | None = None
    queue_pause_until: datetime | None = None
    executor: Executor | None = None
    """That holds it, or held it last."""
    gates: Sequence[GateFacts] = ()
    siblings: Sequence[Sibling] = ()
    """Earliest first."""
    executors: Sequence[Executor] = ()
    """Everyone who is present."""
    parts: Sequence[Part] = ()
    """Of a run that goes to several executors, once they are made."""
    part: PartPlace | None = None
    """Of such a part."""
    holders: Mapping[str, Holder] = field(default_factory=dict)
    """Runs of this namespace that hold the most of what it takes, by their ids."""
    competition: Competition = ALONE
