"""Jobs and runs as the API shows them. Encoded straight from these types, which the OpenAPI document describes too."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from hourhand.model.durations import format_duration
from hourhand.model.job import Job
from hourhand.model.retry import RetryPolicy, retry_to_json
from hourhand.model.run import Attempt, LogLine, Run
from hourhand.model.schedule import describe
from hourhand.operations.requests import Changed, LogPage

_MILLISECOND = timedelta(milliseconds=1)


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
    queue: str
    priority: int
    max_retries: int
    retry: dict[str, Any] | None
    """None for the default curve."""
    catchup: CatchUpView
    timeout: str | None
    labels: dict[str, str]
    description: str
    owner: str
    status: str
    pause_reason: str | None
    next_due: datetime | None
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime


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


class VersionsView(msgspec.Struct):
    versions: Sequence[dict[str, Any]]


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
    """From the due time to the start."""
    duration_ms: float | None
    attempt: int
    executor: str | None
    version: int
    reason: str | None
    error: str | None
    result: Any
    requested_by: str | None
    note: str | None


class AttemptView(msgspec.Struct):
    attempt: int
    status: str
    reason: str | None
    error: str | None
    executor: str | None
    started_at: datetime | None
    ended_at: datetime


class RunDetailView(RunView, kw_only=True):
    attempts: list[AttemptView]
    """Tries that did not finish the run; its last one is the run itself."""


class RunPageView(msgspec.Struct):
    runs: list[RunView]
    next_cursor: str | None


class JobStatusView(msgspec.Struct):
    job_id: UUID
    status: str
    next_due: datetime | None
    latest_run: RunView | None


class LogLineView(msgspec.Struct):
    attempt: int
    number: int
    at: datetime
    stream: str
    text: str


class LogPageView(msgspec.Struct):
    lines: list[LogLineView]
    next: str
    """Give it back as `after` to read on; the same again when there was nothing new."""
    ended: bool


class WhoAmIView(msgspec.Struct):
    name: str
    namespace: str


class ReadinessView(msgspec.Struct):
    status: str
    checks: dict[str, str]


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """For routes that need no body: none, or an empty object."""


def job_view(job: Job) -> JobView:
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
        labels=dict(definition.labels),
        description=definition.description,
        owner=definition.owner,
        status=job.state.value,
        pause_reason=job.pause_reason,
        next_due=job.next_due,
        version=job.version,
        created_at=job.created_at,
        created_by=job.created_by,
        updated_at=job.updated_at,
    )


def retry_view(policy: RetryPolicy) -> dict[str, Any] | None:
    """In the form in which it is sent, so that an answer can be sent back."""
    stored = retry_to_json(policy)
    if stored is None:
        return None
    if policy.delays_seconds is not None:
        return {"delays": [_length(seconds) for seconds in policy.delays_seconds]}
    return {**stored, "base": _length(policy.base_seconds), "max": _length(policy.max_seconds)}


def _catchup_view(job: Job) -> CatchUpView:
    policy = job.definition.catchup
    return CatchUpView(policy.mode.value, _length(policy.window.total_seconds()), policy.runs_max)


@lru_cache(maxsize=1000)  # nearly all jobs share a few lengths, and this is on the way of every answer
def _length(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds)) if seconds > 0 else "0s"


def change_view(changed: Changed) -> ChangeView:
    return ChangeView(job_view(changed.job), changed.too_late)


def run_view(run: Run) -> RunView:
    return RunView(**_run_fields(run))


def run_detail_view(run: Run, attempts: Sequence[Attempt]) -> RunDetailView:
    return RunDetailView(**_run_fields(run), attempts=[attempt_view(attempt) for attempt in attempts])


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
        "lateness_ms": _milliseconds(run.scheduled_for, run.started_at),
        "duration_ms": _milliseconds(run.started_at, run.ended_at),
        "attempt": run.attempt,
        "executor": run.executor,
        "version": run.version,
        "reason": run.reason,
        "error": run.error,
        "result": run.result,
        "requested_by": run.requested_by,
        "note": run.note,
    }


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
    )


def log_page_view(page: LogPage) -> LogPageView:
    lines = [_log_line_view(line) for line in page.lines]
    return LogPageView(lines, f"{page.next_attempt}:{page.next_line}", page.ended)


def _log_line_view(line: LogLine) -> LogLineView:
    return LogLineView(line.attempt, line.number, line.at, line.stream, line.text)
