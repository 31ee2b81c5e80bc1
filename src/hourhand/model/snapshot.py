"""All that is known of a run at one moment: what an explanation is made of.

Whatever is in it may be told to whoever asks: the store leaves out what belongs to other namespaces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from hourhand.model.gates import Starts
from hourhand.model.node_state import NodeFacts, NodeState
from hourhand.model.policy import Rate
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
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    """Of the end; of a live run, of its latest attempt."""
    error: str | None = None
    waits_on: int | None = None
    """The gate that holds it; 0: an earlier run of its job."""
    expires_at: datetime | None = None
    job_state: JobState = JobState.SCHEDULED
    pause_reason: str | None = None
    queue_paused_at: datetime | None = None
    queue_paused_by: str | None = None
    queue_pause_reason: str | None = None
    executor: Executor | None = None
    """That holds it, or held it last."""
    gates: Sequence[GateFacts] = ()
    siblings: Sequence[Sibling] = ()
    """Earliest first."""
    executors: Sequence[Executor] = ()
    """Everyone who is present."""
    competition: Competition = ALONE
