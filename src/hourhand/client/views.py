"""The API's answers as types.

Reading is tolerant: fields this client does not know are ignored and fields an older server does not send
have a default, so that client and server may be of different ages.
"""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.client.attempt_views import AttemptView, UsageView
from hourhand.model.states import FINAL_STATES, JobState, RunState

_FINAL_RUN_WORDS: Final = frozenset(state.word for state in FINAL_STATES)
_WAITING_RUN_WORDS: Final = frozenset({RunState.QUEUED.word, RunState.WAITING.word})
_FINAL_JOB_WORDS: Final = frozenset({JobState.COMPLETED.value, JobState.CANCELLED.value})


class PauseView(msgspec.Struct, kw_only=True):
    scope: str
    name: str = ""
    paused_at: datetime
    paused_by: str = ""
    reason: str | None = None
    until: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    catch_up: str | None = None


class PausePage(msgspec.Struct, kw_only=True):
    pauses: list[PauseView]
    next_cursor: str | None = None


class PauseDone(msgspec.Struct, kw_only=True):
    scope: str
    name: str = ""
    until: datetime | None = None
    jobs: int = 0
    too_late: list[UUID] = []


class ResumeDone(msgspec.Struct, kw_only=True):
    scope: str
    name: str = ""
    was_paused: bool = False


class HistoryEntryView(msgspec.Struct, kw_only=True):
    """What became of a due time, or of several in a row."""

    due_at: datetime
    last_due: datetime
    count: int = 1
    status: str = ""
    reason: str | None = None
    why: str | None = None
    run_id: UUID | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class HistoryPage(msgspec.Struct, kw_only=True):
    entries: list[HistoryEntryView]
    begin: datetime = msgspec.field(name="from")
    until: datetime = msgspec.field(name="to")
    next_cursor: str | None = None


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
    max_runs: int | None = None
    jitter: str | None = None
    calendars: list[str] | None = None
    on_excluded: str | None = None
    queue: str = ""
    priority: int = 5
    max_retries: int | None = None
    retry: dict[str, Any] | None = None
    catchup: dict[str, Any] | None = None
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
    at_most_once: bool = False
    on_disconnect: str | None = None
    pause_after_failures: int | None = None
    placement: dict[str, Any] | None = None
    resources: dict[str, Any] | None = None
    labels: dict[str, str] = {}
    description: str | None = None
    owner: str | None = None
    unique_key: str | None = None
    pause_reason: str | None = None
    pauses: list[PauseView] = []
    """What holds it now: its own pause, and those of its labels, queue, namespace and cluster."""
    version: int = 1
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    warnings: list[str] = []

    @property
    def is_final(self) -> bool:
        return self.status in _FINAL_JOB_WORDS


class RemarkView(msgspec.Struct, kw_only=True):
    resource: str
    code: str
    text: str
    declared: str | float | None = None
    suggested: str | float | None = None


class AdviceView(msgspec.Struct, kw_only=True):
    """Whether what a job declares fits what its last runs have taken."""

    job_id: UUID
    runs: int = 0
    memory_bytes_p95: int | None = None
    memory_cached_p95: int | None = None
    cpu_p95: float | None = None
    remarks: list[RemarkView] = []


class PartView(msgspec.Struct, kw_only=True):
    """One part of a run that goes to several executors."""

    index: int
    total: int
    run_id: UUID
    status: str
    executor: str | None = None
    attempt: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    error: str | None = None
    result: Any = None


class PartsView(msgspec.Struct, kw_only=True):
    run_id: UUID
    parts: list[PartView] = []


class CreatedJobView(JobView, kw_only=True):
    replayed: bool = False
    """True when an earlier request with the same idempotency key had created it."""


class ProgressView(msgspec.Struct, kw_only=True):
    percent: float | None = None
    message: str = ""
    at: datetime | None = None


class ResultReference(msgspec.Struct, kw_only=True):
    """Stands for a result that is too large to be shown with its run: see `download_run_result`."""

    size: int = 0
    digest: str = ""
    href: str = ""


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
    retry_of: UUID | None = None
    backfill_id: UUID | None = None
    fingerprint: str | None = None
    progress: ProgressView | None = None
    result_reference: ResultReference | None = None

    @property
    def is_final(self) -> bool:
        return self.status in _FINAL_RUN_WORDS

    @property
    def succeeded(self) -> bool:
        return self.status == RunState.SUCCEEDED.word

    @property
    def waits(self) -> bool:
        """True while nobody has it in hand."""
        return self.status in _WAITING_RUN_WORDS


class RunDetailView(RunView, kw_only=True):
    attempts: list[AttemptView] = []
    usage: UsageView | None = None
    retried_by: list[UUID] = []


class RunsRetried(msgspec.Struct, kw_only=True):
    """The new runs of a retry of many."""

    run_ids: list[UUID] = []
    more: bool = False
    """True when the limit was reached."""


class RunsCancelled(msgspec.Struct, kw_only=True):
    cancelled: int = 0
    cancelling: int = 0
    """Those that were running; they end when nothing of them is left."""
    run_ids: list[UUID] = []
    more: bool = False


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


class FieldChangeView(msgspec.Struct, kw_only=True):
    """One difference between two versions; `field` is a JSON pointer into the definition."""

    field: str
    before: Any = None
    after: Any = None


class VersionView(msgspec.Struct, kw_only=True):
    version: int
    changed_at: datetime | None = None
    changed_by: str | None = None
    definition: dict[str, Any] = {}
    """As it would be sent."""
    changes: list[FieldChangeView] | None = None
    """Against the version before; None for the first."""


class LogLineView(msgspec.Struct, kw_only=True):
    text: str
    number: int
    attempt: int = 1
    at: datetime | None = None
    stream: str = ""
    left_out: int = 0
    """Not 0 for a mark: it stands for so many lines that were not kept."""


class JobLogMatch(LogLineView, kw_only=True):
    run_id: UUID


class JobLogMatches(msgspec.Struct, kw_only=True):
    matches: list[JobLogMatch]
    next_cursor: str | None = None


class LogPage(msgspec.Struct, kw_only=True):
    lines: list[LogLineView]
    next: str | None = None
    """Where the next page begins; the same again when there was nothing new."""
    ended: bool = False
    """True when the run is final and nothing follows."""
    more: bool = False
    """There is more right now."""


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


class NodeDetailView(msgspec.Struct, kw_only=True):
    """A node as `nodes()` shows it: how it stands, what it has, what it says of itself."""

    node_id: int
    role: str
    name: str
    state: str = ""
    orders: str = "work"
    leader: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    heard_seconds_ago: float | None = None
    lease_seconds_left: float | None = None
    slots_used: int = 0
    slots_total: int = 0
    labels: list[str] = []
    resources: dict[str, dict[str, float]] = {}
    shards: int = 0
    facts: dict[str, Any] = {}

    @property
    def is_present(self) -> bool:
        return self.ended_at is None


class ShardOwnerView(msgspec.Struct, kw_only=True):
    node_id: int | None = None
    """None for shards that nobody owns."""
    name: str | None = None
    count: int = 0
    ranges: list[str] = []
    epoch: int = 0


class ShardView(msgspec.Struct, kw_only=True):
    shard: int
    node_id: int | None = None
    name: str | None = None
    epoch: int = 0


class ShardsView(msgspec.Struct, kw_only=True):
    count: int = 0
    epoch: int = 0
    owners: list[ShardOwnerView] = []
    shards: list[ShardView] = []
    """One by one; empty unless asked for."""


class QueueView(msgspec.Struct, kw_only=True):
    name: str
    paused: bool = False
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    pause_until: datetime | None = None
    max_concurrency: int | None = None
    rate_limit: str | None = None
    waiting: int = 0
    later: int = 0
    running: int = 0
    too_late: list[UUID] = []
    """In the answer to a pause: runs that an executor already had."""


class NamespaceView(msgspec.Struct, kw_only=True):
    name: str
    max_concurrency: int | None = None
    weight: int = 1
    running: int = 0


class GateView(msgspec.Struct, kw_only=True):
    """One gate on the way of a run, and whether the run may pass it now."""

    gate: str
    passed: bool
    detail: str = ""
    until: datetime | None = None


class ExplanationView(msgspec.Struct, kw_only=True):
    run_id: UUID
    job_id: UUID
    job_name: str = ""
    status: str = ""
    summary: str = ""
    advice: str | None = None
    gates: list[GateView] = []
    expires_at: datetime | None = None


class CalendarView(msgspec.Struct, kw_only=True):
    """Times that jobs leave out."""

    name: str
    zone: str | None = None
    dates: list[str] = []
    weekly: list[dict[str, Any]] = []
    blackouts: list[dict[str, Any]] = []
    description: str = ""
    version: int = 1
    jobs: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    notes: list[str] = []
    """Of an import: what whoever asked for it should know."""


class PreviewView(msgspec.Struct, kw_only=True):
    """When a schedule would fall due."""

    times: list[datetime] = []
    local: list[str] = []
    words: str = ""
    notes: list[str] = []
    dst_days: list[str] = []
    zone: str = "UTC"
    more: bool = False
