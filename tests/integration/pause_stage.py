"""One scheduler, the verbs that people have, and the ledger, on a clock that tests set."""

from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from crew import FunctionKind, NotedBus, Scheduler, SetClock
from sample_jobs import NAMESPACE, at, claim, every, insert, new_job, own_all_shards, rows

from hourhand.model.catchup import CatchUp
from hourhand.model.job import JobDefinition
from hourhand.model.ledger import LedgerEntry
from hourhand.model.pauses import PauseScope
from hourhand.model.schedule import Timing, format_instant
from hourhand.operations.history import HistoryOperations
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.pauses import PauseOperations
from hourhand.operations.queues import QueueOperations
from hourhand.operations.requests import Caller, PauseRequest, ResumeRequest
from hourhand.ports.event_bus import EventBus
from hourhand.runtime.ids import IdSource
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.wiring import Store

CALLER = Caller("ada", NAMESPACE, "default", cluster_wide=True)
BEAT = 10
SCOPES = list(PauseScope)
LABEL, QUEUE = "team:billing", "reports"
MADE = {"queued", "waiting", "claimed", "running", "succeeded"}


class PauseStage:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = SetClock()
        self.scheduler = Scheduler(store, self.clock, SchedulerSettings(batch_max=50, horizon_seconds=2.0))
        bus = cast("EventBus", NotedBus())
        kinds = cast("Any", {"number": FunctionKind(cast("Any", None))})
        self.jobs = JobOperations(
            store.jobs,
            store.submissions,
            store.runs,
            kinds,
            self.clock,
            IdSource(1),
            bus,
            SubmitSettings(horizon_seconds=2.0),
            store.calendars,
            pauses=store.pauses,
        )
        self.pauses = PauseOperations(store.pauses, store.names, self.clock, bus)
        self.queues = QueueOperations(store.queues, store.names, bus, store.pauses, self.clock)
        self.history = HistoryOperations(store.ledger, self.clock)

    async def open(self) -> "PauseStage":
        self.scheduler.node_id, _ = await own_all_shards(self.store)
        await self.scheduler.lookout.run_once()
        return self

    async def job(self, timing: Timing | None = None, first: float = 0, **fields: Any) -> UUID:
        fields = {"labels": {"team": "billing"}, "queue": QUEUE} | fields
        job = new_job(timing or every(BEAT), next_due=at(first), **fields)
        await insert(self.store, job)
        return job.job_id

    async def go(self, *seconds: float) -> None:
        """The scheduler does what there is to do at each of these times."""
        for second in seconds:
            self.clock.time = at(second)
            await self.scheduler.keeper.run_once()
            await self.scheduler.planner.run_once()

    async def pause(self, scope: PauseScope, job_id: UUID, second: float, until: float | None = None) -> list[UUID]:
        self.clock.time = at(second)
        end = None if until is None else at(until)
        request = PauseRequest(reason="moving", until=end and format_instant(end))
        match scope:
            case PauseScope.JOB:
                return (await self.jobs.pause(CALLER, job_id, "moving", end)).too_late
            case PauseScope.QUEUE:
                return list((await self.queues.pause(CALLER, QUEUE, request)).too_late)
            case _:
                return list((await self.pauses.pause(CALLER, scope, _name(scope), request)).too_late)

    async def resume(self, scope: PauseScope, job_id: UUID, second: float, catch_up: CatchUp = CatchUp.NONE) -> None:
        self.clock.time = at(second)
        request = ResumeRequest(catch_up=catch_up.value)
        match scope:
            case PauseScope.JOB:
                await self.jobs.resume(CALLER, job_id, catch_up)
            case PauseScope.QUEUE:
                await self.queues.resume(CALLER, QUEUE, request)
            case _:
                await self.pauses.resume(CALLER, scope, _name(scope), request)

    async def entries(
        self, job_id: UUID, begin: float, end: float, compact: bool = False, limit: int = 7
    ) -> list[LedgerEntry]:
        """Page by page, so that pages are looked at too."""
        found: list[LedgerEntry] = []
        after = None
        while True:
            page = await self.history.page(CALLER, job_id, at(begin), at(end), after, limit, compact)
            found += page.entries
            after = page.next_after
            if after is None:
                return found

    async def told(self, job_id: UUID, end: float, begin: float = 0) -> dict[float, str]:
        """What became of every due time, by its second. Runs are all called "run"."""
        entries = await self.entries(job_id, begin, end)
        dues = [second_of(entry.due_at) for entry in entries]
        assert len(dues) == len(set(dues)), "a due time is told twice"
        return {due: "run" if entry.status in MADE else entry.status for due, entry in zip(dues, entries, strict=True)}

    async def claim(self, until: float) -> list[UUID]:
        """An executor takes what is ready by then."""
        return [claimed.run_id for claimed in await claim(self.store, 7, at(until))]

    async def definition(self, job_id: UUID) -> JobDefinition:
        return (await self.jobs.get(CALLER, job_id)).definition

    async def resting(self) -> int:
        return len(await rows(self.store, "resting"))


def second_of(instant: datetime) -> float:
    return (instant - at(0)) / timedelta(seconds=1)


def _name(scope: PauseScope) -> str:
    return {PauseScope.LABEL: LABEL, PauseScope.NAMESPACE: "default"}.get(scope, "")
