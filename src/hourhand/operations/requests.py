"""What callers send and get, as types. The API decodes bodies straight into these; unknown fields are refused.

Types only say what a value is made of. Whether a cron expression exists or a zone is known is decided in
`definition.py`, which collects every fault.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.model.job import Job
from hourhand.model.run import LogLine, Run
from hourhand.model.states import JobState, RunState


class RetryRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How failed runs are tried again: either `delays`, or a curve; and which failures."""

    delays: list[str] | None = None
    base: str | None = None
    factor: float | None = None
    max: str | None = None
    jitter: float | None = None
    on: list[int | str] | None = None
    never_on: list[int | str] | None = None


class CatchUpRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    mode: str | None = None
    window: str | None = None
    max_runs: int | None = None


class PlacementRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which executors may take the job's runs."""

    labels: list[str] | None = None
    """All of them must be there: "gpu", "zone=eu"."""
    on: int | str | None = None
    """"any" (one of them), "all", or how many."""


class JobRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A new job. `schedule` is absent or "now", {"at": …}, {"cron": …}, {"every": …}, {"rrule": …}, {"daily": …}, …,
    or a list of those."""

    # What nearly every job has; `definition.py` takes the rest to be unsaid at one glance.
    name: str
    kind: str | None = None
    payload: dict[str, Any] | None = None
    schedule: Any = None
    queue: str | None = None
    priority: int | str | None = None

    zone: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    dst_gap: str | None = None
    dst_overlap: str | None = None
    max_runs: int | None = None
    jitter: str | None = None
    calendars: list[str] | None = None
    on_excluded: str | None = None
    max_retries: int | None = None
    retry: RetryRequest | None = None
    catchup: CatchUpRequest | None = None
    timeout: str | None = None
    queue_timeout: str | None = None
    deadline: str | None = None
    overlap: str | None = None
    overlap_max: int | None = None
    on_next_due: str | None = None
    max_concurrency: int | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    rate_limit: str | None = None
    at_most_once: bool | None = None
    on_disconnect: str | None = None
    pause_after_failures: int | None = None
    placement: PlacementRequest | None = None
    resources: dict[str, Any] | None = None
    labels: dict[str, str] | None = None
    description: str | None = None
    owner: str | None = None
    unique_key: str | None = None
    unique_period: str | None = None
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
    max_runs: int | UnsetType | None = UNSET
    jitter: str | UnsetType | None = UNSET
    calendars: list[str] | UnsetType | None = UNSET
    on_excluded: str | UnsetType | None = UNSET
    queue: str | UnsetType = UNSET
    priority: int | str | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    retry: RetryRequest | UnsetType | None = UNSET
    catchup: CatchUpRequest | UnsetType | None = UNSET
    timeout: str | UnsetType | None = UNSET
    queue_timeout: str | UnsetType | None = UNSET
    deadline: str | UnsetType | None = UNSET
    overlap: str | UnsetType | None = UNSET
    overlap_max: int | UnsetType | None = UNSET
    on_next_due: str | UnsetType | None = UNSET
    max_concurrency: int | UnsetType | None = UNSET
    concurrency_key: str | UnsetType | None = UNSET
    concurrency_limit: int | UnsetType | None = UNSET
    rate_limit: str | UnsetType | None = UNSET
    at_most_once: bool | UnsetType | None = UNSET
    on_disconnect: str | UnsetType | None = UNSET
    pause_after_failures: int | UnsetType | None = UNSET
    placement: PlacementRequest | UnsetType | None = UNSET
    resources: dict[str, Any] | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET


class RunNowRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    payload: dict[str, Any] | None = None
    """Replaces the job's payload for this run."""
    note: str | None = None
    overlap: str | None = None
    """`allow` runs it beside an unfinished one; else the job's own policy counts."""


class RetryRunRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    note: str | None = None
    again: bool = False
    """Also when a retry of it is under way or has succeeded."""


class RunSelection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Runs to do something with: exactly these, or those that all other fields fit."""

    run_ids: list[str] | None = None
    status: list[str] | None = None
    job_id: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None


class RetryRunsRequest(RunSelection, kw_only=True, forbid_unknown_fields=True):
    reason: list[str] | None = None
    note: str | None = None
    again: bool = False


class CancelRunsRequest(RunSelection, kw_only=True, forbid_unknown_fields=True):
    pass


class PauseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str | None = None
    until: str | None = None
    """When it goes on by itself; absent: when somebody resumes it."""


class ResumeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    catch_up: str | None = None
    """What is run of that which fell into the pause: none (the default), last or all."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks, and in which namespace."""

    name: str
    namespace_id: int
    namespace: str
    token_id: UUID | None = None
    session: bool = False
    """True when the caller came with a browser's cookie."""
    cluster_wide: bool = False
    """True when the token is not bound to one namespace."""


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
    reasons: list[str] | None = None
    since: datetime | None = None
    """By the time a run stands for, or was asked for."""
    until: datetime | None = None


class Submitted(msgspec.Struct, frozen=True):
    job: Job
    replayed: bool = False
    """True when the same request had made it before."""


class SubmittedMany(msgspec.Struct, frozen=True):
    job_ids: Sequence[UUID]
    replayed: bool = False


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


class RunsRetried(msgspec.Struct, frozen=True):
    run_ids: list[UUID]
    """The new runs."""
    more: bool
    """True when the limit was reached, so that there may be more to retry."""


class RunsCancelled(msgspec.Struct, frozen=True):
    ended: list[UUID]
    asked: list[UUID]
    """Those that executors hold; they end when nothing of them is left."""
    more: bool


class LogPage(msgspec.Struct, frozen=True):
    lines: list[LogLine]
    """Numbered from 1 within each attempt."""
    ended: bool
    """True when the run is final and nothing follows."""
    next_attempt: int
    next_line: int
    more: bool = False
    """There is more right now."""
    rows: int = 0
    """Rows that a search has looked at."""


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
