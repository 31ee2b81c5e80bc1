"""The API's answers as types.

Reading is tolerant: fields this client does not know are ignored and fields an older server does not send
have a default, so that client and server may be of different ages.
"""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.model.states import FINAL_STATES, JobState, RunState

_FINAL_RUN_WORDS: Final = frozenset(state.word for state in FINAL_STATES)
_FINAL_JOB_WORDS: Final = frozenset({JobState.COMPLETED.value, JobState.CANCELLED.value})


class JobView(msgspec.Struct, kw_only=True):
    job_id: UUID
    name: str
    namespace: str = "default"
    kind: str = ""
    status: str = ""
    schedule: list[dict[str, Any]] = []
    zone: str = "UTC"
    next_due: datetime | None = None
    payload: dict[str, Any] = {}
    start_at: datetime | None = None
    end_at: datetime | None = None
    dst_gap: str | None = None
    dst_overlap: str | None = None
    queue: str = ""
    priority: int = 5
    max_retries: int | None = None
    retry: dict[str, Any] | None = None
    catchup: dict[str, Any] | None = None
    timeout: str | None = None
    labels: dict[str, str] = {}
    description: str | None = None
    owner: str | None = None
    pause_reason: str | None = None
    version: int = 1
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        return self.status in _FINAL_JOB_WORDS


class RunView(msgspec.Struct, kw_only=True):
    run_id: UUID
    job_id: UUID
    job_name: str = ""
    namespace: str = "default"
    status: str
    cause: str = ""
    scheduled_for: datetime | None = None
    ready_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    lateness_ms: float | None = None
    duration_ms: float | None = None
    attempt: int = 0
    executor: str | None = None
    version: int | None = None
    reason: str | None = None
    error: str | None = None
    result: Any = None
    requested_by: str | None = None
    note: str | None = None

    @property
    def is_final(self) -> bool:
        return self.status in _FINAL_RUN_WORDS

    @property
    def succeeded(self) -> bool:
        return self.status == RunState.SUCCEEDED.word


class AttemptView(msgspec.Struct, kw_only=True):
    """One try of a run."""

    attempt: int
    status: str = ""
    reason: str | None = None
    error: str | None = None
    executor: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class RunDetailView(RunView, kw_only=True):
    attempts: list[AttemptView] = []


class JobPage(msgspec.Struct, kw_only=True):
    jobs: list[JobView]
    next_cursor: str | None = None


class RunPage(msgspec.Struct, kw_only=True):
    runs: list[RunView]
    next_cursor: str | None = None


class ChangeView(msgspec.Struct, kw_only=True):
    """A job after a change, and the runs the change came too late for."""

    job: JobView
    too_late: list[UUID] = []


class JobStatusView(msgspec.Struct, kw_only=True):
    job_id: UUID
    status: str
    next_due: datetime | None = None
    latest_run: RunView | None = None

    @property
    def is_final(self) -> bool:
        return self.status in _FINAL_JOB_WORDS


class VersionView(msgspec.Struct, kw_only=True):
    version: int
    changed_at: datetime | None = None
    changed_by: str | None = None
    definition: dict[str, Any] = {}


class LogLineView(msgspec.Struct, kw_only=True):
    text: str
    number: int
    attempt: int = 1
    at: datetime | None = None
    stream: str = ""


class LogPage(msgspec.Struct, kw_only=True):
    lines: list[LogLineView]
    next: str | None = None
    """Where the next page begins; the same again when there was nothing new."""
    ended: bool = False
    """True when the run is final and nothing follows."""


class NodeView(msgspec.Struct, kw_only=True):
    node_id: int
    role: str
    name: str
    started_at: datetime | None = None
    lease_seconds_left: float | None = None
    facts: dict[str, Any] = {}


class ClusterView(msgspec.Struct, kw_only=True):
    now: datetime | None = None
    leader: str | None = None
    nodes: list[NodeView] = []
    shards_owned: int | None = None
    live: dict[str, int] = {}
    last_hour: dict[str, int] = {}
    next_due: datetime | None = None


class WhoAmI(msgspec.Struct, kw_only=True):
    name: str
    namespace: str | None = None
    """None for a token of all namespaces."""
