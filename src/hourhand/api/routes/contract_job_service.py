"""The contract of the note seeds/004, served as it is written: /api/jobs with camelCase names.

A thin translation to the same operations as /api/v1. The status of a job is `pending` or `running` while something is
still due, `completed` or `failed` (as its last run) when nothing is, and `paused` or `cancelled` when somebody said so.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.api.answers import Answer, json_answer, replay_header
from hourhand.api.decoding import decode_optional_body, read_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults, renamed, worded
from hourhand.api.frequencies import (
    SHORT_FORMS,
    frequency_faults,
    read_execution_time,
    recurring_schedule,
    short_form_of,
)
from hourhand.api.parameters import IDEMPOTENCY_KEY, Parameter, limit_parameter
from hourhand.api.views import EmptyBody
from hourhand.model.errors import Fault
from hourhand.model.job import Job
from hourhand.model.log import START
from hourhand.model.run import LogLine, Run
from hourhand.model.schedule import At, CronSchedule, Now, format_instant
from hourhand.model.states import JobState, RunState
from hourhand.operations.jobs import JobOperations
from hourhand.operations.logs import LogOperations
from hourhand.operations.requests import Caller, JobFilter, JobPatch, JobRequest, RunFilter
from hourhand.operations.runs import RunOperations

BASE: Final = "/api/jobs"
_ONE: Final = BASE + "/{jobId}"
_POINTERS: Final = {
    "/name": "/jobName",
    "/schedule/cron": "/frequency",
    "/schedule/every": "/frequency",
    "/schedule/at": "/executionTime",
    "/schedule": "/executionTime",  # a schedule never falls due here only because its beginning is too late
    "/start_at": "/executionTime",
}
_WORDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "run-at-in-past": {"hint": "to run it at once, leave executionTime out"},
    "invalid-priority": {"message": "a priority is low, medium or high", "allowed": ["low", "medium", "high"]},
}
_JOB_TYPES: Final = ("one-time", "recurring")
_PRIORITY_BANDS: Final = {"low": [0, 1, 2, 3], "medium": [4, 5, 6], "high": [7, 8, 9]}
_STATES: Final = {
    "pending": JobState.SCHEDULED,
    "running": JobState.SCHEDULED,
    "completed": JobState.COMPLETED,
    "failed": JobState.COMPLETED,
    "paused": JobState.PAUSED,
    "cancelled": JobState.CANCELLED,
}
"""The state of the job in which a status word can occur."""
_EXECUTING: Final = frozenset({RunState.CLAIMED, RunState.RUNNING, RunState.CANCELLING})
_LOG_LINES_MAX: Final = 10_000
_SEARCHED_MAX: Final = 2_000
"""Jobs looked through for one filtered page: the words pending/running and completed/failed depend on the runs."""
_SEARCHES_MAX: Final = 200
"""The same for pages of the search, which may be short, or empty: each has looked at thousands that do not fit."""
_LATEST_AT_ONCE: Final = 8
_PAGES_MAX: Final = 100_000
_PAGE_NUMBERS: Final = {"type": "integer", "minimum": 1, "maximum": _PAGES_MAX, "default": 1}


class SubmittedJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    job_name: str
    job_type: str
    execution_time: str | None = None
    frequency: str | None = None
    """hourly, daily, weekly, monthly or yearly from the execution time on, a cron expression, or an interval."""
    priority: str | None = None
    payload: dict[str, Any] | None = None


class ChangedJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Only the fields given change."""

    job_name: str | UnsetType = UNSET
    execution_time: str | None = None
    frequency: str | None = None
    priority: str | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET


class JobOutcome(msgspec.Struct, rename="camel"):
    job_id: UUID
    status: str


class JobStatus(msgspec.Struct, rename="camel"):
    job_id: UUID
    status: str
    last_updated: datetime


class ListedJob(msgspec.Struct, rename="camel", omit_defaults=True):
    job_id: UUID
    job_name: str
    status: str
    execution_time: datetime | None = None


class LoggedMessage(msgspec.Struct):
    timestamp: datetime
    message: str


class JobLogs(msgspec.Struct, rename="camel"):
    job_id: UUID
    logs: list[LoggedMessage]


class JobServiceRoutes:
    def __init__(self, jobs: JobOperations, runs: RunOperations, logs: LogOperations) -> None:
        self._jobs = jobs
        self._runs = runs
        self._logs = logs

    def endpoints(self) -> list[Endpoint]:
        tag = "job service"
        listing = (
            Parameter("status", "Only jobs with this status.", {"type": "string", "enum": list(_STATES)}),
            Parameter("type", "Only jobs of this type.", {"type": "string", "enum": list(_JOB_TYPES)}),
            Parameter("priority", "Only jobs of this priority.", {"type": "string", "enum": list(_PRIORITY_BANDS)}),
            Parameter("page", "Which page, from 1.", _PAGE_NUMBERS),
            limit_parameter(20, 100),
        )
        submit = Endpoint(
            "POST",
            BASE,
            self.submit,
            tag,
            "Submit a job",
            JobOutcome,
            202,
            SubmittedJob,
            headers=(IDEMPOTENCY_KEY,),
        )
        return [
            submit,
            Endpoint("PUT", _ONE, self.update, tag, "Update a job", JobOutcome, 200, ChangedJob),
            Endpoint("DELETE", _ONE, self.cancel, tag, "Cancel a job", JobOutcome),
            Endpoint("GET", _ONE + "/status", self.status, tag, "Status of a job", JobStatus),
            Endpoint("GET", BASE, self.list_jobs, tag, "List jobs, newest first", list[ListedJob], parameters=listing),
            Endpoint("GET", _ONE + "/logs", self.logs, tag, "What the newest started run wrote", JobLogs),
            self._verb("pause", self.pause, "Pause a job"),
            self._verb("resume", self.resume, "Resume a job"),
        ]

    @staticmethod
    def _verb(word: str, handler: Any, summary: str) -> Endpoint:
        path = f"{_ONE}/{word}"
        return Endpoint("POST", path, handler, "job service", summary, JobOutcome, 200, EmptyBody, body_required=False)

    async def submit(self, call: Call) -> Answer:
        key = call.idempotency_key(BASE)
        body, form = read_body(call.body, SubmittedJob)
        request, clashes = _request_of(body)
        if form or clashes:
            raise all_faults(form, clashes, _worded(self._jobs.faults_of(call.caller, request)))
        with worded(_worded):
            made = await self._jobs.create(call.caller, request, key)
        return json_answer(JobOutcome(made.job.job_id, "submitted"), 202, replay_header(made.replayed))

    async def update(self, call: Call) -> Answer:
        job_id = call.id("jobId")
        body, form = read_body(call.body, ChangedJob)
        patch = JobPatch(name=body.job_name, priority=body.priority, payload=body.payload)
        clashes = [] if body.frequency is None else frequency_faults(body.frequency)
        if body.frequency is not None or body.execution_time is not None:
            _reschedule(patch, await self._jobs.get(call.caller, job_id), body)
        if form or clashes:
            further = await self._jobs.faults_of_change(call.caller, job_id, patch)
            raise all_faults(form, clashes, _worded(further))
        with worded(_worded):
            await self._jobs.update(call.caller, job_id, patch)
        return json_answer(JobOutcome(job_id, "updated"))

    async def cancel(self, call: Call) -> Answer:
        changed = await self._jobs.cancel(call.caller, call.id("jobId"))
        return json_answer(JobOutcome(changed.job.job_id, "cancelled"))

    async def pause(self, call: Call) -> Answer:
        decode_optional_body(call.body, EmptyBody)
        changed = await self._jobs.pause(call.caller, call.id("jobId"), None)
        return json_answer(JobOutcome(changed.job.job_id, "paused"))

    async def resume(self, call: Call) -> Answer:
        decode_optional_body(call.body, EmptyBody)
        changed = await self._jobs.resume(call.caller, call.id("jobId"))
        return json_answer(JobOutcome(changed.job.job_id, "resumed"))

    async def status(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("jobId"))
        latest = await self._runs.latest(call.caller, job)
        times = [job.updated_at, *(at for at in (latest and latest.started_at, latest and latest.ended_at) if at)]
        return json_answer(JobStatus(job.job_id, _status_word(job, latest), max(times)))

    async def list_jobs(self, call: Call) -> Answer:
        query = call.query
        wanted = query.text("status")
        filters = JobFilter(
            state=query.choice("status", _STATES),
            recurring=query.choice("type", {"one-time": False, "recurring": True}),
            priorities=query.choice("priority", _PRIORITY_BANDS),
        )
        limit = query.integer("limit", 20, 1, 100)
        skip = (query.integer("page", 1, 1, _PAGES_MAX) - 1) * limit
        if wanted in {None, "paused", "cancelled"}:
            page = await self._jobs.list(call.caller, filters, None, limit, skip)
            return json_answer(await self._listed(call.caller, page.jobs))
        return json_answer(await self._search(call.caller, filters, wanted, skip, limit))

    async def logs(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("jobId"))
        page = await self._runs.list(call.caller, RunFilter(job_id=job.job_id), None, 20)
        started = next((run for run in page.runs if run.started_at is not None), None)
        lines = [] if started is None else await self._lines(call.caller, started)
        return json_answer(JobLogs(job.job_id, [LoggedMessage(line.at, line.text) for line in lines]))

    async def _lines(self, caller: Caller, run: Run) -> list[LogLine]:
        page = await self._logs.page(caller, run.run_id, START, _LOG_LINES_MAX)
        return list(page.lines)

    async def _listed(self, caller: Caller, jobs: list[Job]) -> list[ListedJob]:
        few = asyncio.Semaphore(_LATEST_AT_ONCE)

        async def listed(job: Job) -> ListedJob:
            async with few:
                latest = await self._runs.latest(caller, job) if _depends_on_runs(job) else None
            return ListedJob(job.job_id, job.definition.name, _status_word(job, latest), _execution_time(job))

        return list(await asyncio.gather(*(listed(job) for job in jobs)))

    async def _search(
        self, caller: Caller, filters: JobFilter, wanted: str | None, skip: int, limit: int
    ) -> list[ListedJob]:
        found: list[ListedJob] = []
        searched, before = 0, None
        for _ in range(_SEARCHES_MAX):
            page = await self._jobs.list(caller, filters, before, 100)
            found.extend(job for job in await self._listed(caller, page.jobs) if job.status == wanted)
            searched, before = searched + len(page.jobs), page.next_before
            if before is None or len(found) >= skip + limit or searched >= _SEARCHED_MAX:
                break
        return found[skip : skip + limit]


def _request_of(body: SubmittedJob) -> tuple[JobRequest, list[Fault]]:
    """The job that the fields mean together, and where they contradict each other."""
    request = JobRequest(name=body.job_name, payload=body.payload, priority=body.priority)
    faults = _type_faults(body)
    if body.job_type == "one-time" or (body.job_type != "recurring" and body.frequency is None):
        request.schedule = {"now": True} if body.execution_time is None else {"at": body.execution_time}
        return request, faults
    first = None if body.execution_time is None else read_execution_time(body.execution_time)
    request.start_at = body.execution_time if first is None else format_instant(first)
    if body.frequency is not None:
        request.schedule = recurring_schedule(body.frequency, first)
        faults += frequency_faults(body.frequency)
    return request, faults


def _worded(faults: Sequence[Fault]) -> list[Fault]:
    """Faults in the words of this contract, which knows neither `if_past` nor priorities in numbers."""
    told = renamed(faults, _POINTERS)
    return [replace(fault, **_WORDS[fault.code]) if fault.code in _WORDS else fault for fault in told]


def _type_faults(body: SubmittedJob) -> list[Fault]:
    if body.job_type not in _JOB_TYPES:
        return [Fault("/jobType", "invalid-value", f"must be one of {', '.join(_JOB_TYPES)}", None, _JOB_TYPES)]
    if body.job_type == "one-time" and body.frequency is not None:
        message = "a one-time job has no frequency; use jobType recurring"
        return [Fault("/frequency", "conflicting-schedule", message)]
    if body.job_type == "recurring" and body.frequency is None:
        message = f"a recurring job needs a frequency: {', '.join(SHORT_FORMS)}, a cron expression or an interval"
        return [Fault("/frequency", "required", message, None, SHORT_FORMS)]
    return []


def _reschedule(patch: JobPatch, job: Job, body: ChangedJob) -> None:
    """Time and frequency belong together: where one is given, the other is taken from the job."""
    timing = job.definition.timing
    if body.frequency is None and not timing.recurring:
        patch.schedule = {"at": body.execution_time}
        return
    if body.execution_time is not None:
        first = read_execution_time(body.execution_time)
    else:
        first = timing.start_at if timing.recurring else _execution_time(job)
        first = None if first is None else first.replace(microsecond=0)
    frequency = body.frequency
    if frequency is None:
        schedule = timing.schedules[0]
        frequency = (
            short_form_of(schedule.text) if isinstance(schedule, CronSchedule) and timing.zone == "UTC" else None
        )
    if frequency is not None:
        patch.schedule = recurring_schedule(frequency, first)
    patch.start_at = body.execution_time if first is None else format_instant(first)


def _depends_on_runs(job: Job) -> bool:
    return job.state in {JobState.SCHEDULED, JobState.COMPLETED}


def _status_word(job: Job, latest: Run | None) -> str:
    match job.state:
        case JobState.PAUSED | JobState.CANCELLED:
            return job.state.value
        case JobState.SCHEDULED:
            return "running" if latest is not None and latest.state in _EXECUTING else "pending"
        case _:
            return _final_word(latest)


def _final_word(latest: Run | None) -> str:
    if latest is None or latest.state is RunState.SUCCEEDED:
        return "completed"
    if not latest.state.is_final:  # a run asked for by hand after the last due time
        return "running" if latest.state in _EXECUTING else "pending"
    return "cancelled" if latest.state is RunState.CANCELLED else "failed"


def _execution_time(job: Job) -> datetime | None:
    """When it runs (or ran): a recurring job's next due time, a one-time job's only one."""
    [schedule, *_] = job.definition.timing.schedules
    match schedule:
        case At():
            return schedule.asked or schedule.instant
        case Now():
            return schedule.instant
        case _:
            return job.next_due or job.definition.timing.start_at
