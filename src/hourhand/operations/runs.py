"""What a caller may ask of runs: read, list, cancel, run again."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.errors import Conflict, NotFound
from hourhand.model.job import Job
from hourhand.model.parts import is_part
from hourhand.model.run import Attempt, Run
from hourhand.model.states import FINAL_STATES, JobState, Reason, RunState
from hourhand.operations.requests import (
    Caller,
    CancelRunsRequest,
    RetryRunRequest,
    RetryRunsRequest,
    RunFilter,
    RunPage,
    RunsCancelled,
    RunsRetried,
)
from hourhand.operations.selection import Selection, check_retry, runs_to_cancel, runs_to_retry
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import JobStore, RunStore, Walked

BATCH_MAX = 1000
"""Runs that one statement makes or cancels; larger batches hold their locks longer."""

# The class below has a method `list`, which inside it hides the type of that name.
Uuids = list[UUID]


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def new_id(self, now: datetime) -> UUID: ...


class RunOperations:
    def __init__(self, runs: RunStore, jobs: JobStore, clock: Clock, ids: Ids, bus: EventBus) -> None:
        self._runs = runs
        self._jobs = jobs
        self._clock = clock
        self._ids = ids
        self._bus = bus

    async def get(self, caller: Caller, run_id: UUID) -> Run:
        run = await self._runs.get_run(caller.namespace_id, run_id)
        if run is None:
            raise NotFound("run", run_id)
        return run

    async def attempts(self, caller: Caller, run_id: UUID) -> Sequence[Attempt]:
        """The tries that did not finish the run. The caller has read the run, and so may read these."""
        return await self._runs.list_attempts(run_id)

    async def retries(self, caller: Caller, run_id: UUID) -> Sequence[UUID]:
        """The runs that repeat it, oldest first. The caller has read the run."""
        return await self._runs.list_retries(run_id)

    async def list(self, caller: Caller, filter: RunFilter, before: UUID | None, limit: int) -> RunPage:
        job = None if filter.job_id is None else await self._job(caller, filter.job_id)
        return await self._page(caller, job, filter, before, limit)

    async def _page(
        self, caller: Caller, job: Job | None, filter: RunFilter, before: UUID | None, limit: int
    ) -> RunPage:
        runs = await self._runs.list_runs(
            caller.namespace_id,
            job,
            filter.states or [*RunState],
            before,
            limit + 1,
            reasons=filter.reasons,
            since=filter.since,
            until=filter.until,
        )
        return RunPage(runs[:limit], runs[limit - 1].run_id if len(runs) > limit else runs.reached)

    async def latest(self, caller: Caller, job: Job) -> Run | None:
        page = await self._page(caller, job, RunFilter(), None, 1)
        while not page.runs and page.next_before is not None:  # the newest has very many parts
            page = await self._page(caller, job, RunFilter(), page.next_before, 1)
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

    async def cancel_many(self, caller: Caller, request: CancelRunsRequest) -> RunsCancelled:
        """The same for all live runs that are meant."""
        wanted = runs_to_cancel(request)
        now = self._clock.now()
        found: dict[UUID, bool] = {}
        run_ids = await self._live_runs_meant(caller, wanted)
        for start in range(0, len(run_ids), BATCH_MAX):
            batch = run_ids[start : start + BATCH_MAX]
            for _ in range(3):  # see cancel
                done = await self._runs.cancel_runs(caller.namespace_id, batch, Reason.CANCELLED.value, now)
                found |= done
                batch = [run_id for run_id in batch if run_id not in done]
                if not batch:
                    break
        asked = [run_id for run_id, ended in found.items() if not ended]
        if asked:
            self._bus.publish(Topic.CANCEL)
        ended = [run_id for run_id, ended in found.items() if ended]
        return RunsCancelled(ended, asked, wanted.run_ids is None and len(run_ids) >= wanted.limit)

    async def retry(self, caller: Caller, run_id: UUID, request: RetryRunRequest) -> UUID:
        """A new run for the same time, of the job as it is now. Only of finished runs."""
        check_retry(request)
        run = await self.get(caller, run_id)
        if not run.state.is_final:
            raise Conflict("run-not-final", f"the run is {run.state.word}: only finished runs can be run again")
        if is_part(run_id):
            raise Conflict(
                "run-is-part", "a part of a run is not run again by its own: retry the run that it belongs to"
            )
        made = await self._repeat(caller, [run_id], [run_id], request.note, request.again)
        if not made:
            raise await self._why_not_retried(caller, run)
        self._bus.publish(Topic.READY)
        return made[0]

    async def retry_many(self, caller: Caller, request: RetryRunsRequest) -> RunsRetried:
        """The same for all finished runs that are meant, newest first. Those that a retry already repeats, or has
        repeated with success, are passed over: asking twice does no harm."""
        wanted = runs_to_retry(request)
        if wanted.job_id is not None:
            await self._job(caller, wanted.job_id)
        made: Uuids = []
        seen: Uuids = []
        before: UUID | None = None
        while len(made) < wanted.limit:
            size = min(BATCH_MAX, wanted.limit - len(made))
            batch = await self._finished_runs_meant(caller, wanted, seen, before, request.again, size)
            before = batch.reached or (batch[-1] if batch else None)
            if before is None:
                break
            seen += batch
            made += await self._repeat(caller, batch, seen, request.note, request.again) if batch else []
        if made:
            self._bus.publish(Topic.READY)
        return RunsRetried(made, wanted.run_ids is None and len(made) >= wanted.limit)

    # --- steps -------------------------------------------------------------------------------------------

    async def _job(self, caller: Caller, job_id: UUID) -> Job:
        job = await self._jobs.get_job(caller.namespace_id, job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    async def _repeat(self, caller: Caller, run_ids: Uuids, seen: Uuids, note: str | None, again: bool) -> Uuids:
        now = self._clock.now()
        new_ids = {run_id: self._ids.new_id(now) for run_id in run_ids}
        return await self._runs.retry_runs(caller.namespace_id, new_ids, seen, caller.name, note, again, now)

    async def _why_not_retried(self, caller: Caller, run: Run) -> Conflict:
        job = await self._jobs.get_job(caller.namespace_id, run.job_id)
        if job is None or job.state is JobState.CANCELLED:
            return Conflict("job-cancelled", "its job is cancelled: create a new one")
        newest = (await self._runs.list_retries(run.run_id))[-1:]
        if not newest:
            return Conflict("busy", "the run could not be run again as its job is now; try once more")
        message = f"run {newest[0]} repeats it already; say again: true to run it once more"
        return Conflict("run-already-retried", message, run_id=str(newest[0]))

    async def _finished_runs_meant(
        self, caller: Caller, wanted: Selection, seen: Uuids, before: UUID | None, again: bool, limit: int
    ) -> Walked[UUID]:
        """The next of them: not seen yet, and older than `before`."""
        if wanted.run_ids is not None:
            left = sorted({run_id for run_id in wanted.run_ids if not is_part(run_id)} - set(seen), reverse=True)
            return Walked(left[:limit])
        return await self._runs.pick_retries(
            caller.namespace_id,
            wanted.job_id,
            wanted.states or FINAL_STATES,
            wanted.reasons,
            wanted.since,
            wanted.until,
            before,
            again,
            limit,
        )

    async def _live_runs_meant(self, caller: Caller, wanted: Selection) -> Uuids:
        if wanted.run_ids is not None:
            return wanted.run_ids
        found: Uuids = []
        before = None
        while len(found) < wanted.limit:
            page = await self.list(caller, wanted, before, min(BATCH_MAX, wanted.limit - len(found)))
            found += [run.run_id for run in page.runs]
            before = page.next_before
            if before is None:
                break
        return found
