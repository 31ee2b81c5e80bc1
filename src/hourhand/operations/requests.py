"""What callers send and get, as types. The API decodes bodies straight into these; unknown fields are refused.

Types only say what a value is made of. Whether a cron expression exists or a zone is known is decided in
`definition.py`, which collects every fault.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.model.job import Job
from hourhand.model.run import LogLine, Run
from hourhand.model.states import JobState, RunState


class RetryRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How failed runs are tried again: either `delays`, or a curve."""

    delays: list[str] | None = None
    base: str | None = None
    factor: float | None = None
    max: str | None = None
    jitter: float | None = None


class CatchUpRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    mode: str | None = None
    window: str | None = None
    max_runs: int | None = None


class JobRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A new job. `schedule` is absent or "now", {"at": …}, {"cron": …}, {"every": …}, or a list of those."""

    name: str
    kind: str | None = None
    payload: dict[str, Any] | None = None
    schedule: Any = None
    zone: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    dst_gap: str | None = None
    dst_overlap: str | None = None
    queue: str | None = None
    priority: int | str | None = None
    max_retries: int | None = None
    retry: RetryRequest | None = None
    catchup: CatchUpRequest | None = None
    timeout: str | None = None
    labels: dict[str, str] | None = None
    description: str | None = None
    owner: str | None = None
    namespace: str | None = None


class JobPatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A change of a job: only the fields given change."""

    name: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    schedule: Any = UNSET
    zone: str | UnsetType = UNSET
    start_at: str | UnsetType | None = UNSET
    end_at: str | UnsetType | None = UNSET
    dst_gap: str | UnsetType = UNSET
    dst_overlap: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    priority: int | str | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    retry: RetryRequest | UnsetType | None = UNSET
    catchup: CatchUpRequest | UnsetType | None = UNSET
    timeout: str | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET


class RunNowRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    payload: dict[str, Any] | None = None
    """Replaces the job's payload for this run."""
    note: str | None = None


class PauseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str | None = None


class Caller(msgspec.Struct, frozen=True):
    """Who asks, and in which namespace."""

    name: str
    namespace_id: int
    namespace: str
    token_id: UUID | None = None
    session: bool = False
    """True when the caller came with a browser's cookie."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    state: JobState | None = None
    name: str | None = None
    kind: str | None = None
    queue: str | None = None
    owner: str | None = None
    labels: dict[str, str] | None = None
    priorities: list[int] | None = None
    recurring: bool | None = None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    states: list[RunState] | None = None
    job_id: UUID | None = None


class Changed(msgspec.Struct, frozen=True):
    """A job after a change, and the runs the change came too late for: an executor already had them."""

    job: Job
    too_late: list[UUID]


class JobPage(msgspec.Struct, frozen=True):
    jobs: list[Job]
    next_before: UUID | None


class RunPage(msgspec.Struct, frozen=True):
    runs: list[Run]
    next_before: UUID | None


class LogPage(msgspec.Struct, frozen=True):
    lines: list[LogLine]
    """Numbered from 1 within each attempt."""
    ended: bool
    """True when the run is final and nothing follows."""
    next_attempt: int
    next_line: int


class NodeStatus(msgspec.Struct, frozen=True):
    node_id: int
    role: str
    name: str
    started_at: datetime
    lease_seconds_left: float
    facts: dict[str, Any]


class ClusterStatus(msgspec.Struct, frozen=True):
    now: datetime
    leader: str | None
    nodes: list[NodeStatus]
    shards_owned: int
    live: dict[str, int]
    """Live runs by state."""
    last_hour: dict[str, int]
    """Finished runs of due times in the last hour by state."""
    next_due: datetime | None
    database: dict[str, str]
    """The database's version and how durable its commits are, in its own words."""
