"""What a caller may ask of runs: read, list, follow their logs, cancel."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.errors import Conflict, NotFound
from hourhand.model.run import Attempt, Run
from hourhand.model.states import Reason, RunState
from hourhand.operations.requests import Caller, LogPage, RunFilter, RunPage
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import JobStore, LogStore, RunStore


class Clock(Protocol):
    def now(self) -> datetime: ...


class RunOperations:
    def __init__(self, runs: RunStore, jobs: JobStore, logs: LogStore, clock: Clock, bus: EventBus) -> None:
        self._runs = runs
        self._jobs = jobs
        self._logs = logs
        self._clock = clock
        self._bus = bus

    async def get(self, caller: Caller, run_id: UUID) -> Run:
        run = await self._runs.get_run(caller.namespace_id, run_id)
        if run is None:
            raise NotFound("run", run_id)
        return run

    async def attempts(self, caller: Caller, run_id: UUID) -> Sequence[Attempt]:
        """The tries that did not finish the run. The caller has read the run, and so may read these."""
        return await self._runs.list_attempts(run_id)

    async def list(self, caller: Caller, filter: RunFilter, before: UUID | None, limit: int) -> RunPage:
        job = None
        if filter.job_id is not None:
            job = await self._jobs.get_job(caller.namespace_id, filter.job_id)
            if job is None:
                raise NotFound("job", filter.job_id)
        states = filter.states or [*RunState]
        runs = await self._runs.list_runs(caller.namespace_id, job, states, before, limit + 1)
        return RunPage(runs[:limit], runs[limit - 1].run_id if len(runs) > limit else None)

    async def latest(self, caller: Caller, job_id: UUID) -> Run | None:
        page = await self.list(caller, RunFilter(job_id=job_id), None, 1)
        return page.runs[0] if page.runs else None

    async def cancel(self, caller: Caller, run_id: UUID) -> Run:
        """Waiting: ended at once. Running: `cancelling` until nothing of it is left. Once this returns, the run cannot
        end as a success any more."""
        run = await self.get(caller, run_id)
        if run.state.is_final:
            raise Conflict("run-already-final", f"the run is {run.state.word} already")
        cancelled: Mapping[UUID, bool] = {}
        for _ in range(3):  # a run that goes back to the queue just between the two statements is missed by both
            cancelled = await self._runs.cancel_runs(
                caller.namespace_id, [run_id], Reason.CANCELLED.value, self._clock.now()
            )
            if cancelled:
                break
        if cancelled.get(run_id) is False:
            self._bus.publish(Topic.CANCEL)
        run = await self.get(caller, run_id)
        if not cancelled:
            raise Conflict("run-already-final", f"the run has just ended as {run.state.word}")
        return run

    async def logs(self, caller: Caller, run_id: UUID, after_attempt: int, after_line: int, limit: int) -> LogPage:
        # The state is read first: lines are stored before the end is, so after a final state nothing more can come.
        run = await self.get(caller, run_id)
        lines = await self._logs.read_logs(run_id, after_attempt, after_line, limit)
        last = (lines[-1].attempt, lines[-1].number) if lines else (after_attempt, after_line)
        return LogPage(lines, run.state.is_final and len(lines) < limit, *last)
