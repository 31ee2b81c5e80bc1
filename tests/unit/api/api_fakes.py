"""In-memory stand-ins for the operations, and readers of problem documents.

The stand-ins keep jobs and runs in dictionaries and know a little of the rules; the real ones are tested with a real
database elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx

from hourhand.job_kinds.command import CommandKind
from hourhand.model.catchup import CatchUp
from hourhand.model.errors import (
    Conflict,
    Fault,
    Forbidden,
    IdempotencyKeyReused,
    InvalidFields,
    NotFound,
    Unauthenticated,
)
from hourhand.model.ids import time_ordered_id
from hourhand.model.job import Job
from hourhand.model.keys import IdempotencyKey
from hourhand.model.log import STREAMS, LogEnd, LogRow, Place, end_of
from hourhand.model.pauses import Pause, PauseScope
from hourhand.model.run import Attempt, LogLine, Run
from hourhand.model.states import Cause, JobState, RunState
from hourhand.operations.definition import define_change, define_job
from hourhand.operations.jobs import refuse_other_version
from hourhand.operations.pausing import PauseWish, pause_faults, read_pause
from hourhand.operations.requests import (
    Caller,
    CancelRunsRequest,
    Changed,
    ClusterStatus,
    JobFilter,
    JobPage,
    JobPatch,
    JobRequest,
    NodeStatus,
    PauseRequest,
    RetryRunRequest,
    RetryRunsRequest,
    RunFilter,
    RunNowRequest,
    RunPage,
    RunsCancelled,
    RunsRetried,
    Submitted,
    SubmittedMany,
)
from hourhand.operations.selection import check_retry, runs_to_cancel, runs_to_retry
from hourhand.ports.log_stores import LogTip

NOW = datetime(2025, 9, 24, 8, 0, tzinfo=UTC)
TOKEN = "hh_test-token"
SESSION = "hh_session-token"
BOUND_TOKEN = "hh_bound-token"
"""Works in the namespace team-a only."""
NAMESPACES = {"default": 1, "team-a": 2}
Faults = list[Fault]  # inside a class with a method `list`, that word is the method
Uuids = list[UUID]


class AnyKind:
    """Takes every payload."""

    name = "python"

    def check(self, payload: Any) -> list[Any]:
        return []

    def needs(self, payload: Any, job_name: str) -> str:
        return "python:any"


KINDS: Any = {"python": AnyKind(), "http": AnyKind(), "command": CommandKind()}


def refused_by(define: Callable[[], object]) -> list[Fault]:
    try:
        define()
    except InvalidFields as wrong:
        return wrong.faults
    return []


class NothingPlain:
    """Leaves every submission to the long road, where `FakeJobs` is."""

    def read(self, caller: Caller, given: object) -> None:
        return None

    async def read_many(self, *_: Any) -> None:
        return None


@dataclass
class FakeJobs:
    plain = NothingPlain()
    jobs: dict[UUID, Job] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    fail_with: BaseException | None = None
    counter: int = 0
    keys: dict[tuple[int, str], tuple[bytes, Uuids]] = field(default_factory=dict)

    def faults_of(self, caller: Caller, request: JobRequest) -> Faults:
        return refused_by(lambda: self._define(request, UUID(int=0)))

    async def faults_of_change(self, caller: Caller, job_id: UUID, patch: JobPatch) -> Faults:
        old = await self.get(caller, job_id)
        return refused_by(lambda: define_change(old.definition, patch, job_id, NOW, KINDS))

    async def faults_of_run(self, caller: Caller, job_id: UUID, request: RunNowRequest) -> Faults:
        kind = KINDS[(await self.get(caller, job_id)).definition.kind]
        return [] if request.payload is None else [fault.under("/payload") for fault in kind.check(request.payload)]

    def _define(self, request: JobRequest, job_id: UUID) -> Any:
        return define_job(request, job_id, NOW, "tester", KINDS)

    async def create(self, caller: Caller, request: JobRequest, key: IdempotencyKey | None = None) -> Submitted:
        if self.fail_with is not None:
            raise self.fail_with
        if earlier := self._earlier(caller, key):
            return Submitted(self.jobs[earlier[0]], replayed=True)
        self.counter += 1
        job_id = time_ordered_id(NOW + timedelta(seconds=self.counter), self.counter << 62 | self.counter)
        definition = self._define(request, job_id)
        job = Job(
            job_id,
            caller.namespace,
            definition,
            1,
            JobState.SCHEDULED,
            definition.timing.first_due(NOW),
            NOW,
            caller.name,
            NOW,
        )
        self.jobs[job_id] = job
        self.calls.append(("create", caller, request))
        if key is not None:
            self.keys[caller.namespace_id, key.key] = (key.digest, [job_id])
        return Submitted(job)

    async def create_many(self, caller: Caller, requests: Any, key: IdempotencyKey | None = None) -> SubmittedMany:
        if earlier := self._earlier(caller, key):
            return SubmittedMany(earlier, replayed=True)
        job_ids = [(await self.create(caller, request)).job.job_id for request in requests]
        if key is not None:
            self.keys[caller.namespace_id, key.key] = (key.digest, job_ids)
        return SubmittedMany(job_ids)

    def _earlier(self, caller: Caller, key: IdempotencyKey | None) -> Uuids:
        if key is None or (caller.namespace_id, key.key) not in self.keys:
            return []
        digest, job_ids = self.keys[caller.namespace_id, key.key]
        if digest != key.digest:
            raise IdempotencyKeyReused(key.key)
        return job_ids

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        if job_id not in self.jobs:
            raise NotFound("job", job_id)
        return self.jobs[job_id]

    async def list(self, caller: Caller, filter: JobFilter, before: UUID | None, limit: int, skip: int = 0) -> JobPage:
        self.calls.append(("list", filter, before, limit, skip))
        jobs = sorted(self.jobs.values(), key=lambda job: job.job_id, reverse=True)
        jobs = [
            job
            for job in jobs
            if (before is None or job.job_id < before)
            and (filter.state is None or job.state is filter.state)
            and (filter.recurring is None or job.definition.timing.recurring is filter.recurring)
            and (filter.priorities is None or job.definition.priority in filter.priorities)
        ][skip:]
        return JobPage(jobs[:limit], jobs[limit - 1].job_id if len(jobs) > limit else None)

    async def update(self, caller: Caller, job_id: UUID, patch: JobPatch, if_version: int | None = None) -> Changed:
        old = await self.get(caller, job_id)
        refuse_other_version(old, if_version)
        definition = define_change(old.definition, patch, job_id, NOW, KINDS)
        self.calls.append(("update", patch))
        return self._changed(
            replace(old, definition=definition, version=old.version + 1, next_due=definition.timing.first_due(NOW))
        )

    def read_pause(self, request: PauseRequest) -> PauseWish:
        return read_pause(request, NOW)

    def faults_of_pause(self, request: PauseRequest) -> Faults:
        return pause_faults(request, NOW)

    async def pause(
        self,
        caller: Caller,
        job_id: UUID,
        reason: str | None,
        until: datetime | None = None,
        *,
        if_version: int | None = None,
    ) -> Changed:
        job = await self.get(caller, job_id)
        refuse_other_version(job, if_version)
        own = Pause(PauseScope.JOB, "", NOW, caller.name, reason, until)
        return self._changed(replace(job, state=JobState.PAUSED, pause_reason=reason, pauses=[own]))

    async def resume(
        self, caller: Caller, job_id: UUID, catch_up: CatchUp = CatchUp.NONE, *, if_version: int | None = None
    ) -> Changed:
        self.calls.append(("resume", catch_up))
        job = await self.get(caller, job_id)
        refuse_other_version(job, if_version)
        if job.state is JobState.CANCELLED:
            raise Conflict("job-final", "the job is cancelled and cannot be resumed")
        return self._changed(replace(job, state=JobState.SCHEDULED, pause_reason=None, pauses=()))

    async def cancel(self, caller: Caller, job_id: UUID, *, if_version: int | None = None) -> Changed:
        job = await self.get(caller, job_id)
        refuse_other_version(job, if_version)
        return self._changed(replace(job, state=JobState.CANCELLED))

    async def run_now(
        self, caller: Caller, job_id: UUID, request: RunNowRequest, *, if_version: int | None = None
    ) -> UUID:
        job = await self.get(caller, job_id)
        refuse_other_version(job, if_version)
        if job.state is JobState.CANCELLED:
            raise Conflict("job-cancelled", "a cancelled job cannot be run")
        if faults := await self.faults_of_run(caller, job_id, request):
            raise InvalidFields(faults)
        self.calls.append(("run_now", request))
        return time_ordered_id(NOW, 7)

    async def next_times(self, caller: Caller, job_id: UUID, count: int) -> Any:
        job = await self.get(caller, job_id)
        return job.definition.timing.due_between(NOW, datetime(9000, 1, 1, tzinfo=UTC), count)

    def _changed(self, job: Job) -> Changed:
        self.jobs[job.job_id] = job
        return Changed(job, [])


@dataclass
class FakeRuns:
    runs: dict[UUID, Run] = field(default_factory=dict)
    lines: list[LogLine] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, job: Job, state: RunState, minutes: int = 0, **more: Any) -> Run:
        due = NOW + timedelta(minutes=minutes)
        fields: dict[str, Any] = {
            "started_at": None if state in {RunState.QUEUED, RunState.MISSED} else due,
            "ended_at": due + timedelta(seconds=90) if state.is_final else None,
            "executor": "executor-007" if state is not RunState.QUEUED else None,
        }
        fields.update(more)
        run = Run(
            run_id=time_ordered_id(due, len(self.runs) + 1),
            job_id=job.job_id,
            job_name=job.definition.name,
            namespace=job.namespace,
            state=state,
            cause=Cause.SCHEDULE,
            scheduled_for=due,
            ready_at=due,
            attempt=1,
            version=1,
            **fields,
        )
        self.runs[run.run_id] = run
        return run

    async def get(self, caller: Caller, run_id: UUID) -> Run:
        if run_id not in self.runs:
            raise NotFound("run", run_id)
        return self.runs[run_id]

    async def attempts(self, caller: Caller, run_id: UUID) -> Any:
        return [Attempt(1, "failed", "exit_code", "exit code 1", "executor-001", NOW, NOW + timedelta(seconds=1))]

    async def retries(self, caller: Caller, run_id: UUID) -> Any:
        return sorted(run.run_id for run in self.runs.values() if run.retry_of == run_id)

    async def retry(self, caller: Caller, run_id: UUID, request: RetryRunRequest) -> UUID:
        check_retry(request)
        run = await self.get(caller, run_id)
        if not run.state.is_final:
            raise Conflict("run-not-final", f"the run is {run.state.word}")
        self.calls.append(("retry", request))
        new = replace(run, run_id=time_ordered_id(NOW, 1000 + len(self.runs)), state=RunState.QUEUED, retry_of=run_id)
        self.runs[new.run_id] = new
        return new.run_id

    async def retry_many(self, caller: Caller, request: RetryRunsRequest) -> RunsRetried:
        self.calls.append(("retry_many", runs_to_retry(request)))
        return RunsRetried([time_ordered_id(NOW, 7), time_ordered_id(NOW, 8)], False)

    async def cancel_many(self, caller: Caller, request: CancelRunsRequest) -> RunsCancelled:
        self.calls.append(("cancel_many", runs_to_cancel(request)))
        return RunsCancelled([time_ordered_id(NOW, 7)], [time_ordered_id(NOW, 8)], True)

    async def list(self, caller: Caller, filter: RunFilter, before: UUID | None, limit: int) -> RunPage:
        self.calls.append(("list", filter))
        runs = [
            run
            for run in sorted(self.runs.values(), key=lambda run: run.run_id, reverse=True)
            if (filter.job_id is None or run.job_id == filter.job_id)
            and (filter.states is None or run.state in filter.states)
            and (filter.reasons is None or run.reason in filter.reasons)
            and (before is None or run.run_id < before)
        ]
        return RunPage(runs[:limit], runs[limit - 1].run_id if len(runs) > limit else None)

    async def latest(self, caller: Caller, job: Job) -> Run | None:
        return next(iter((await self.list(caller, RunFilter(job_id=job.job_id), None, 1)).runs), None)

    async def cancel(self, caller: Caller, run_id: UUID) -> Run:
        run = await self.get(caller, run_id)
        if run.state.is_final:
            raise Conflict("run-already-final", f"the run is {run.state.word} already")
        self.runs[run_id] = replace(run, state=RunState.CANCELLING)
        return self.runs[run_id]


@dataclass
class FakeCluster:
    checks: dict[str, str] = field(default_factory=lambda: {"database": "ok"})

    async def status(self, caller: Caller) -> ClusterStatus:
        node = NodeStatus(1, "executor", "executor-007", NOW, 12.5, {"slots": 4})
        return ClusterStatus(NOW, "scheduler-1", [node], 1024, {"queued": 2}, {"succeeded": 5}, NOW, {"version": "17"})

    async def readiness(self) -> dict[str, str]:
        return self.checks


@dataclass
class FakeAccess:
    questions: int = 0
    revoked: bool = False

    async def authenticate(self, token: str, namespace: str | None) -> Caller:
        self.questions += 1
        if token == BOUND_TOKEN and namespace in (None, "team-a"):
            return Caller("tenant", NAMESPACES["team-a"], "team-a")
        if token not in {TOKEN, SESSION} or self.revoked:
            raise Unauthenticated(f"no such token; {self.questions}")
        wanted = namespace or "default"
        if wanted == "forbidden":
            raise Forbidden("this token is for namespace 'default' only")
        if wanted not in NAMESPACES:
            raise NotFound("namespace", wanted)
        return Caller("tester", NAMESPACES[wanted], wanted, cluster_wide=True)

    async def login(self, code: str) -> tuple[str, int]:
        if code != "hh_good":
            raise Unauthenticated("used")
        return SESSION, 3600


def code_of(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "instance", "errors"}
    assert problem["status"] == answer.status_code
    assert problem["instance"] == answer.headers["x-request-id"]
    return str(problem["type"].removeprefix("urn:hourhand:problem:"))


def faults_of(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 422, answer.text
    assert code_of(answer) == "invalid-fields"
    return {fault["pointer"]: fault["code"] for fault in answer.json()["errors"]}


class FakeLogs:
    """The lines of every run, as many to a row as a test says."""

    def __init__(self, runs: FakeRuns) -> None:
        self._runs = runs
        self.row_lines = 2
        self.is_whole: bool | None = True

    async def read_rows(self, run_id: UUID, after: Place, limit: int) -> list[LogRow]:
        rows = [row for row in self._rows() if row.end > after]
        return rows[:limit]

    async def search_rows(
        self, run_id: UUID, after: Place, text: str, ignore_case: bool, limit: int
    ) -> list[LogRow | Place]:
        rows = await self.read_rows(run_id, after, limit)
        return [row if any(text.lower() in line.lower() for line in row.lines) else row.end for row in rows]

    async def log_ends(self, run_id: UUID) -> dict[int, LogEnd]:
        return {line.attempt: LogEnd(end_of(line).line + 1, line.at, self.is_whole) for line in self._runs.lines}

    async def log_tips(self, run_ids: Sequence[UUID]) -> dict[UUID, LogTip]:
        lines = self._runs.lines
        last = (lines[-1].attempt, lines[-1].number) if lines else (None, None)
        live = {run_id: self._runs.runs[run_id] for run_id in run_ids if not self._runs.runs[run_id].state.is_final}
        return {
            run_id: LogTip(*last, live[run_id].state if run_id in live else None, None) for run_id in run_ids
        }  # fmt: skip

    def _rows(self) -> list[LogRow]:
        rows: list[LogRow] = []
        for line in self._runs.lines:
            last = rows[-1] if rows else None
            stream = STREAMS.index(line.stream)
            if (
                last
                and last.attempt == line.attempt
                and len(last.lines) < self.row_lines
                and not line.left_out + last.left_out
            ):
                rows[-1] = last._replace(
                    at=[*last.at, line.at], stream=[*last.stream, stream], lines=[*last.lines, line.text]
                )
            else:
                rows.append(LogRow(line.attempt, line.number, [line.at], [stream], [line.text], line.left_out))
        return rows
