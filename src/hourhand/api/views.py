"""Jobs and runs as the API shows them. Encoded straight from these types, which the OpenAPI document describes too."""

from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.model.durations import format_duration
from hourhand.model.fingerprint import fingerprint
from hourhand.model.ids import instant_of
from hourhand.model.job import CATCHUP_DEFAULT, Job, JobDefinition
from hourhand.model.policy import ORDINARY
from hourhand.model.progress import Progress
from hourhand.model.retry import DEFAULT_RETRY, RetryPolicy, retry_to_json
from hourhand.model.run import Attempt, Run
from hourhand.model.run_blobs import ResultReference
from hourhand.model.schedule import At, Timing, describe
from hourhand.model.states import JobState, RunState
from hourhand.model.usage import Usage
from hourhand.model.warnings import timing_warnings
from hourhand.operations.definition import spreading_fields
from hourhand.operations.pauses import PauseStatus, pause_status
from hourhand.operations.policy import policy_fields
from hourhand.operations.requests import Changed, PlacementRequest

_MILLISECOND = timedelta(milliseconds=1)
_FAILED = frozenset({RunState.FAILED, RunState.TIMED_OUT, RunState.LOST})


class CatchUpView(msgspec.Struct):
    mode: str
    window: str
    max_runs: int


class JobView(msgspec.Struct, kw_only=True):
    job_id: UUID
    namespace: str
    name: str
    kind: str
    payload: dict[str, Any]
    schedule: list[dict[str, Any]]
    zone: str
    start_at: datetime | None
    end_at: datetime | None
    dst_gap: str
    dst_overlap: str
    max_runs: int | None = None
    jitter: str | None = None
    calendars: list[str] | None = None
    on_excluded: str | None = None
    queue: str
    priority: int
    max_retries: int
    retry: dict[str, Any] | None
    """None for the default curve."""
    catchup: CatchUpView
    timeout: str | None
    queue_timeout: str | None
    deadline: str | None
    overlap: str
    """As it counts: what the job says, or the default of its sort."""
    overlap_max: int | None
    on_next_due: str | None
    max_concurrency: int | None
    concurrency_key: str | None
    concurrency_limit: int | None
    rate_limit: str | None
    at_most_once: bool
    on_disconnect: str
    pause_after_failures: int | None
    placement: PlacementRequest | None
    resources: dict[str, Any] | None
    labels: dict[str, str]
    description: str
    owner: str
    unique_key: str | None
    status: str
    pause_reason: str | None
    pauses: Sequence[PauseStatus]
    """What holds it now: its own pause, and those of its labels, queue, namespace and cluster."""
    next_due: datetime | None
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    warnings: list[str] | UnsetType = UNSET
    """What a person should know of it; left out where there is nothing."""


class ChangeView(msgspec.Struct):
    job: JobView
    too_late: Sequence[UUID]
    """Runs the change came too late for: an executor already had them."""


class JobPageView(msgspec.Struct):
    jobs: list[JobView]
    next_cursor: str | None


class BatchView(msgspec.Struct):
    job_ids: Sequence[UUID]
    """In the order of the batch."""
    count: int


class RunIdView(msgspec.Struct):
    run_id: UUID


class TimesView(msgspec.Struct):
    times: Sequence[datetime]


class ProgressView(msgspec.Struct):
    percent: float | None
    """0 to 100; null where nobody knows how much there is to do."""
    message: str
    at: datetime


class ResultReferenceView(msgspec.Struct):
    size: int
    digest: str
    """sha256:… of its JSON."""
    href: str


class RunView(msgspec.Struct, kw_only=True):
    run_id: UUID
    job_id: UUID
    job_name: str
    namespace: str
    status: str
    cause: str
    scheduled_for: datetime
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    lateness_ms: float | None
    """From the due time to the start; of a retry from when it was asked for."""
    duration_ms: float | None
    attempt: int
    executor: str | None
    version: int
    reason: str | None
    error: str | None
    result: Any
    requested_by: str | None
    note: str | None
    retry_of: UUID | None
    """The finished run that this one repeats."""
    backfill_id: UUID | None
    """The backfill that released it."""
    fingerprint: str | None
    """The same for failures of one sort."""
    progress: ProgressView | None
    """How far its attempt says it has come; null once it is finished."""
    result_reference: ResultReferenceView | None
    """Where the result is when it is too large to stand in `result`."""


class LateView(msgspec.Struct):
    """What an attempt came to after its run had been given to another. It was refused."""

    state: str
    at: datetime


class AttemptView(msgspec.Struct):
    attempt: int
    status: str
    reason: str | None
    error: str | None
    executor: str | None
    started_at: datetime | None
    ended_at: datetime
    late: LateView | None
    fingerprint: str | None
    usage: Usage | None
    """What it took; null for kinds that start no program."""


class RunDetailView(RunView, kw_only=True):
    attempts: list[AttemptView]
    """Tries that did not finish the run; its last one is the run itself."""
    usage: Usage | None
    """What the last attempt took; null for kinds that start no program."""
    retried_by: Sequence[UUID]
    """The runs that repeat it, oldest first."""


class RunPageView(msgspec.Struct):
    runs: list[RunView]
    next_cursor: str | None


class RunsRetriedView(msgspec.Struct):
    retried: int
    run_ids: Sequence[UUID]
    """The new runs."""
    more: bool
    """True when the limit was reached."""


class RunsCancelledView(msgspec.Struct):
    cancelled: int
    cancelling: int
    run_ids: Sequence[UUID]
    more: bool


class JobStatusView(msgspec.Struct):
    job_id: UUID
    status: str
    next_due: datetime | None
    latest_run: RunView | None


class WhoAmIView(msgspec.Struct):
    name: str
    namespace: str


class ReadinessView(msgspec.Struct):
    status: str
    checks: dict[str, str]


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """For routes that need no body: none, or an empty object."""


def job_view(job: Job) -> JobView:
    """What asks for nothing beyond the ordinary, as most jobs do, is a copy of the ordinary with its own facts put in:
    this is on the way of every answer, and to look at every field of a policy costs four times as much."""
    definition = job.definition
    if not _is_ordinary(job, definition):
        return full_view(job)
    view = copy(_ORDINARY_VIEW)
    view.job_id, view.namespace, view.unique_key = job.job_id, job.namespace, job.unique_key
    view.name, view.kind, view.payload = definition.name, definition.kind, dict(definition.payload)
    view.schedule, view.owner, view.description = describe(definition.timing), definition.owner, definition.description
    view.queue, view.priority, view.labels = definition.queue, definition.priority, {}
    view.status, view.pause_reason, view.next_due = job.state.value, job.pause_reason, job.next_due
    view.version, view.created_by = job.version, job.created_by
    view.created_at, view.updated_at = job.created_at, job.updated_at
    return view


def _is_ordinary(job: Job, definition: JobDefinition) -> bool:
    return (
        definition.policy is ORDINARY
        and definition.retry is DEFAULT_RETRY
        and definition.catchup is CATCHUP_DEFAULT
        and definition.timeout_seconds is None
        and not definition.labels
        and not job.pauses
        and not job.warnings
        and _is_plain(definition.timing)
        and definition.timing == Timing(definition.timing.schedules)
    )


def full_view(job: Job) -> JobView:
    """The same, field by field."""
    definition = job.definition
    timing = definition.timing
    return JobView(
        job_id=job.job_id,
        namespace=job.namespace,
        name=definition.name,
        kind=definition.kind,
        payload=dict(definition.payload),
        schedule=describe(timing),
        zone=timing.zone,
        start_at=timing.start_at,
        end_at=timing.end_at,
        dst_gap=timing.gap.value,
        dst_overlap=timing.overlap.value,
        queue=definition.queue,
        priority=definition.priority,
        max_retries=definition.retry.max_retries,
        retry=retry_view(definition.retry),
        catchup=_catchup_view(job),
        timeout=None if definition.timeout_seconds is None else _length(definition.timeout_seconds),
        **_promises(definition),
        labels=dict(definition.labels),
        description=definition.description,
        owner=definition.owner,
        unique_key=job.unique_key,
        status=job.state.value,
        pause_reason=job.pause_reason,
        pauses=[pause_status(pause) for pause in job.pauses] if job.pauses else (),
        next_due=job.next_due,
        version=job.version,
        created_at=job.created_at,
        created_by=job.created_by,
        updated_at=job.updated_at,
        **(_NOTHING_MORE if _is_plain(timing) and not job.warnings else _of_timing(timing, job.warnings)),
    )


_NOTHING_MORE: Final[dict[str, Any]] = {}
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)


def _is_plain(timing: Timing) -> bool:
    """A single due time in UTC: this is on the way of every answer, and most jobs are no more."""
    return timing.zone == "UTC" and len(timing.schedules) == 1 and not timing.schedules[0].recurring


def _of_timing(timing: Timing, warnings: Sequence[str]) -> dict[str, Any]:
    return {**spreading_fields(timing), "warnings": [*timing_warnings(timing), *warnings] or UNSET}


def _promises(definition: JobDefinition) -> dict[str, Any]:
    """What it asks for beyond the ordinary, in the words in which it is sent; what counts where it says nothing."""
    recurring = definition.timing.only_instant is None
    return {
        **policy_fields(definition.policy),
        "overlap": definition.policy.overlap_of(recurring).value,
        "at_most_once": definition.policy.at_most_once,
        "on_disconnect": "kill" if definition.policy.kill_on_disconnect else "continue",
    }


def retry_view(policy: RetryPolicy) -> dict[str, Any] | None:
    """In the form in which it is sent, so that an answer can be sent back."""
    stored = retry_to_json(policy)
    if stored is None:
        return None
    if "delays" in stored:
        return {**stored, "delays": [_length(seconds) for seconds in stored["delays"]]}
    if "base" in stored:
        return {**stored, "base": _length(policy.base_seconds), "max": _length(policy.max_seconds)}
    return stored


def _catchup_view(job: Job) -> CatchUpView:
    policy = job.definition.catchup
    return CatchUpView(policy.mode.value, _length(policy.window.total_seconds()), policy.runs_max)


@lru_cache(maxsize=1000)  # nearly all jobs share a few lengths, and this is on the way of every answer
def _length(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds)) if seconds > 0 else "0s"


_ORDINARY_VIEW: Final = full_view(
    Job(
        UUID(int=0),
        "",
        JobDefinition("", "", {}, Timing((At(_LONG_AGO),)), ""),
        1,
        JobState.SCHEDULED,
        None,
        _LONG_AGO,
        "",
        _LONG_AGO,
    )
)


def change_view(changed: Changed) -> ChangeView:
    return ChangeView(job_view(changed.job), changed.too_late)


def run_view(run: Run) -> RunView:
    return RunView(**_run_fields(run))


def run_detail_view(run: Run, attempts: Sequence[Attempt], retried_by: Sequence[UUID]) -> RunDetailView:
    tries = [attempt_view(attempt) for attempt in attempts]
    return RunDetailView(**_run_fields(run), attempts=tries, usage=run.usage, retried_by=retried_by)


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "job_id": run.job_id,
        "job_name": run.job_name,
        "namespace": run.namespace,
        "status": run.state.word,
        "cause": run.cause.word,
        "scheduled_for": run.scheduled_for,
        "ready_at": run.ready_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "lateness_ms": _milliseconds(_meant_for(run), run.started_at),
        "duration_ms": _milliseconds(run.started_at, run.ended_at),
        "attempt": run.attempt,
        "executor": run.executor,
        "version": run.version,
        "reason": run.reason,
        "error": run.error,
        "result": run.result,
        "requested_by": run.requested_by,
        "note": run.note,
        "retry_of": run.retry_of,
        "backfill_id": run.backfill_id,
        "fingerprint": fingerprint(run.reason, run.error) if run.state in _FAILED else None,
        "progress": progress_view(run.progress),
        "result_reference": None if run.result_reference is None else _reference_view(run, run.result_reference),
    }


def _reference_view(run: Run, reference: ResultReference) -> ResultReferenceView:
    return ResultReferenceView(reference.size, f"sha256:{reference.digest}", f"/api/v1/runs/{run.run_id}/result")


def progress_view(progress: Progress | None) -> ProgressView | None:
    return None if progress is None else ProgressView(progress.percent, progress.message, progress.at)


def _meant_for(run: Run) -> datetime:
    """The earliest moment at which it could have started; a retry, and a run of a backfill, stand for a time that was
    over when they were made."""
    is_new = run.retry_of is None and run.backfill_id is None
    return run.scheduled_for if is_new else instant_of(run.run_id)


def _milliseconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start) / _MILLISECOND


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        attempt.attempt,
        attempt.state,
        attempt.reason,
        attempt.error,
        attempt.executor,
        attempt.started_at,
        attempt.ended_at,
        None if attempt.late_at is None else LateView(attempt.late_state or "", attempt.late_at),
        fingerprint(attempt.reason, attempt.error),
        attempt.usage,
    )
