"""The contract of the note seeds/003, served as it is written: /jobs with IMMEDIATE, FUTURE and CRON.

A thin translation to the same operations as /api/v1. Keys without a value are left out, as in the note's examples:
`error_message` on failures only, `end_time` once there is one. Two things go beyond the note because jobs can come from
elsewhere: `schedule_type` INTERVAL with `interval`, and the status words COMPLETED, TIMED_OUT, LOST, CANCELLED, SKIPPED
and MISSED.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.api.answers import Answer, header, json_answer, replay_header
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.decoding import read_body, read_optional_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults, renamed, worded
from hourhand.api.parameters import CURSOR, IDEMPOTENCY_KEY, limit_parameter
from hourhand.api.views import RunIdView
from hourhand.model.errors import Fault
from hourhand.model.job import Job
from hourhand.model.policy import Overlap
from hourhand.model.run import Run
from hourhand.model.schedule import describe
from hourhand.model.states import RunState
from hourhand.operations.jobs import JobOperations
from hourhand.operations.requests import JobPatch, JobRequest, RunFilter, RunNowRequest
from hourhand.operations.runs import RunOperations

BASE: Final = "/jobs"
_ONE: Final = BASE + "/{jobId}"
_POINTERS: Final = {
    "/schedule/cron": "/cron_expression",
    "/schedule/at": "/schedule_time",
    "/schedule": "/schedule_type",
}
_TYPES: Final = ("IMMEDIATE", "FUTURE", "CRON")
_WAITING: Final = frozenset({RunState.QUEUED, RunState.WAITING, RunState.CLAIMED})
_EXECUTING: Final = frozenset({RunState.RUNNING, RunState.CANCELLING})


class ScheduledJobBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`cron_expression` with CRON, `schedule_time` with FUTURE, neither with IMMEDIATE."""

    name: str
    schedule_type: str
    schedule_time: str | None = None
    cron_expression: str | None = None
    payload: dict[str, Any] | None = None
    max_retries: int | None = None


class ScheduledJobChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Only the fields given change."""

    name: str | UnsetType = UNSET
    schedule_type: str | None = None
    schedule_time: str | None = None
    cron_expression: str | None = None
    payload: dict[str, Any] | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET


class ScheduledJobId(msgspec.Struct):
    job_id: UUID


class ScheduledJobView(msgspec.Struct, kw_only=True, omit_defaults=True):
    job_id: UUID
    name: str
    schedule_type: str
    schedule_time: str | None = None
    cron_expression: str | None = None
    interval: str | None = None
    status: str
    payload: dict[str, Any]
    max_retries: int
    created_at: datetime
    updated_at: datetime


class LatestRunView(msgspec.Struct, kw_only=True, omit_defaults=True):
    run_id: UUID
    status: str
    start_time: datetime | None = None
    end_time: datetime | None = None
    modified_time: datetime
    attempt_number: int
    executor_id: str | None = None
    error_message: str | None = None


class ListedRunView(LatestRunView, kw_only=True, omit_defaults=True):
    log_url: str


class ScheduledJobStatusView(msgspec.Struct, omit_defaults=True):
    job_id: UUID
    latest_run: LatestRunView | None = None
    """Left out while there is no run."""


class ScheduleServiceRoutes:
    def __init__(self, jobs: JobOperations, runs: RunOperations) -> None:
        self._jobs = jobs
        self._runs = runs

    def endpoints(self) -> list[Endpoint]:
        tag = "schedule service"
        body, change, view = ScheduledJobBody, ScheduledJobChange, ScheduledJobView
        run_now = Endpoint(
            "POST",
            _ONE + "/runNow",
            self.run_now,
            tag,
            "Run a job now",
            RunIdView,
            202,
            RunNowRequest,
            body_required=False,
        )
        runs = Endpoint(
            "GET",
            _ONE + "/runs",
            self.runs,
            tag,
            "All runs of a job, newest first",
            list[ListedRunView],
            parameters=(limit_parameter(500, 500), CURSOR),
            description="Where there are more, the Link header names the next page.",
        )
        create = Endpoint(
            "POST",
            BASE,
            self.create,
            tag,
            "Create and schedule a job",
            ScheduledJobId,
            202,
            body,
            headers=(IDEMPOTENCY_KEY,),
        )
        return [
            create,
            Endpoint("PUT", _ONE, self.update, tag, "Change metadata or schedule", view, 200, change),
            Endpoint("DELETE", _ONE, self.cancel, tag, "Cancel a job or stop a running one", view),
            run_now,
            Endpoint("GET", _ONE, self.get, tag, "Details of a job", view),
            Endpoint("GET", _ONE + "/status", self.status, tag, "The latest run", ScheduledJobStatusView),
            runs,
        ]

    async def create(self, call: Call) -> Answer:
        key = call.idempotency_key(BASE)
        body, form = read_body(call.body, ScheduledJobBody)
        schedule, clashes = _schedule_of(body)
        request = JobRequest(name=body.name, payload=body.payload, schedule=schedule, max_retries=body.max_retries)
        if form or clashes:
            raise all_faults(form, clashes, _worded(self._jobs.faults_of(call.caller, request)))
        with worded(_worded):
            made = await self._jobs.create(call.caller, request, key)
        location = header("location", f"{BASE}/{made.job.job_id}")
        return json_answer(ScheduledJobId(made.job.job_id), 202, [location, *replay_header(made.replayed)])

    async def update(self, call: Call) -> Answer:
        job_id = call.id("jobId")
        change, form = read_body(call.body, ScheduledJobChange)
        patch = JobPatch(name=change.name, payload=change.payload, max_retries=change.max_retries)
        clashes: list[Fault] = []
        if (change.schedule_type, change.schedule_time, change.cron_expression) != (None, None, None):
            patch.schedule, clashes = _schedule_of(change)
        if form or clashes:
            further = await self._jobs.faults_of_change(call.caller, job_id, patch)
            raise all_faults(form, clashes, _worded(further))
        with worded(_worded):
            changed = await self._jobs.update(call.caller, job_id, patch, call.if_version())
        return json_answer(_job_view(changed.job))

    async def cancel(self, call: Call) -> Answer:
        changed = await self._jobs.cancel(call.caller, call.id("jobId"), if_version=call.if_version())
        return json_answer(_job_view(changed.job))

    async def run_now(self, call: Call) -> Answer:
        job_id = call.id("jobId")
        request, form = read_optional_body(call.body, RunNowRequest)
        if form:
            raise all_faults(form, await self._jobs.faults_of_run(call.caller, job_id, request))
        # The contract knows no refusal because another run is under way: it runs beside it.
        request.overlap = request.overlap or Overlap.ALLOW.value
        return json_answer(RunIdView(await self._jobs.run_now(call.caller, job_id, request)), 202)

    async def get(self, call: Call) -> Answer:
        return json_answer(_job_view(await self._jobs.get(call.caller, call.id("jobId"))))

    async def status(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("jobId"))
        latest = await self._runs.latest(call.caller, job)
        return json_answer(
            ScheduledJobStatusView(job.job_id, None if latest is None else LatestRunView(**_run_fields(latest)))
        )

    async def runs(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("jobId"))
        bound_to = f"runs of {job.job_id}"
        before = read_cursor(call.query.text("cursor"), bound_to)
        limit = call.query.integer("limit", 500, 1, 500)
        page = await self._runs.list(call.caller, RunFilter(job_id=job.job_id), before, limit)
        views = [ListedRunView(**_run_fields(run), log_url=_log_url(call, run)) for run in page.runs]
        return json_answer(
            views, 200, [] if page.next_before is None else [_next_page(call, page.next_before, bound_to)]
        )


def _worded(faults: Sequence[Fault]) -> list[Fault]:
    """Faults at the fields of this contract."""
    return renamed(faults, _POINTERS)


def _schedule_of(body: ScheduledJobBody | ScheduledJobChange) -> tuple[dict[str, Any], list[Fault]]:
    """The schedule that the three fields mean together, and where they contradict each other."""
    time, cron, wanted = body.schedule_time, body.cron_expression, body.schedule_type
    faults = []
    if wanted not in _TYPES:
        if wanted is not None:
            faults.append(Fault("/schedule_type", "invalid-value", f"must be one of {', '.join(_TYPES)}", None, _TYPES))
        wanted = "CRON" if cron is not None else "FUTURE" if time is not None else "IMMEDIATE"
    if wanted == "CRON" and cron is None:
        faults.append(Fault("/cron_expression", "required", "CRON needs a cron_expression such as '0 0 * * *'"))
    if wanted == "FUTURE" and time is None:
        faults.append(
            Fault("/schedule_time", "required", "FUTURE needs a schedule_time such as '2030-01-01T10:00:00Z'")
        )
    if wanted != "CRON" and cron is not None:
        faults.append(Fault("/cron_expression", "conflicting-schedule", f"{wanted} takes no cron_expression"))
    if wanted != "FUTURE" and time is not None:
        faults.append(Fault("/schedule_time", "conflicting-schedule", f"{wanted} takes no schedule_time"))
    if wanted == "IMMEDIATE":
        return {"now": True}, faults
    # The contract knows no refusal of a time that has passed; such a job is due at once.
    return ({"at": time, "if_past": "run"} if wanted == "FUTURE" else {"cron": cron}), faults


def _job_view(job: Job) -> ScheduledJobView:
    definition = job.definition
    [shown, *_] = describe(definition.timing)
    word = next(iter(shown))
    kind = _SHOWN_AS.get(word, word.upper())
    return ScheduledJobView(
        job_id=job.job_id,
        name=definition.name,
        schedule_type=kind,
        schedule_time=shown.get("at"),
        cron_expression=shown.get("cron"),
        interval=shown.get("every"),
        status=job.state.value.upper(),
        payload=dict(definition.payload),
        max_retries=definition.retry.max_retries,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )


_SHOWN_AS: Final[Mapping[str, str]] = {"now": "IMMEDIATE", "at": "FUTURE", "cron": "CRON", "every": "INTERVAL"}
"""Kinds of schedules that the note does not know are shown by their own word."""


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "status": _run_word(run.state),
        "start_time": run.started_at,
        "end_time": run.ended_at,
        "modified_time": run.ended_at or run.started_at or run.scheduled_for,
        "attempt_number": max(run.attempt, 1),
        "executor_id": run.executor,
        "error_message": None if run.state is RunState.SUCCEEDED else run.error,
    }


def _run_word(state: RunState) -> str:
    if state in _WAITING:
        return "QUEUED"
    if state in _EXECUTING:
        return "RUNNING"
    return "SUCCESS" if state is RunState.SUCCEEDED else state.name


def _log_url(call: Call, run: Run) -> str:
    return f"{call.base_url}/api/v1/runs/{run.run_id}/logs"


def _next_page(call: Call, before: UUID, bound_to: str) -> tuple[bytes, bytes]:
    url = f"{BASE}/{call.path['jobId']}/runs?cursor={make_cursor(before, bound_to)}"
    return header("link", f'<{url}>; rel="next"')
