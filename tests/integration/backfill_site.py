"""A leading scheduler with its backfiller, and somebody who asks for backfills."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from crew import Executor, NotedBus, Scheduler, SetClock
from sample_jobs import NAMESPACE, START, at, every, execute, insert, new_job, rows

from hourhand.model.ids import scheduled_run_id
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.policy import Overlap, Policy
from hourhand.model.states import RunState
from hourhand.operations.backfill_requests import BackfillProgress, StartBackfillRequest
from hourhand.operations.backfills import BackfillOperations
from hourhand.operations.requests import Caller
from hourhand.ports.event_bus import EventBus
from hourhand.ports.job_kind import Task
from hourhand.runtime.ids import IdSource
from hourhand.scheduler.backfiller import Backfiller
from hourhand.wiring import Store

ADA = Caller("ada", NAMESPACE, "default")
HOUR = timedelta(hours=1)
ALLOW = Policy(overlap=Overlap.ALLOW)
LONG_AGO = START - timedelta(days=400)


class Site:
    """One leading scheduler with its backfiller, and somebody who asks."""

    def __init__(self, store: Store, clock: SetClock) -> None:
        self.store, self.clock = store, clock
        self.bus = NotedBus()
        ids = IdSource(11)
        bus = cast("EventBus", self.bus)
        self.asking = BackfillOperations(store.backfills, store.jobs, store.runs, store.calendars, clock, ids, bus)
        self.scheduler = Scheduler(store, clock)
        self.backfiller = self.backfiller_of(self.scheduler)

    def backfiller_of(self, scheduler: Scheduler) -> Backfiller:
        bus = cast("EventBus", self.bus)
        return Backfiller(
            self.store.backfills, scheduler.leadership, lambda: scheduler.node_id, self.clock, IdSource(), bus, 30
        )

    async def lead(self) -> "Site":
        await self.scheduler.join("a")
        await self.scheduler.leadership.run_once()
        assert self.scheduler.leadership.epoch is not None
        return self

    async def job(self, policy: Policy = ALLOW, **fields: Any) -> UUID:
        """Due every hour since long ago, and not before tomorrow."""
        job = new_job(
            every(3600, LONG_AGO), next_due=at(86_400), created_at=START - timedelta(days=90), policy=policy, **fields
        )
        return (await insert(self.store, job))[0]

    async def start(self, job_id: UUID, first: int = -10, last: int = 0, **fields: Any) -> BackfillProgress:
        return await self.asking.start(ADA, job_id, wanted(first, last, **fields))

    async def released(self) -> list[datetime]:
        """The due times of live runs, in the order in which they were released."""
        return [row["scheduled_for"] for row in await rows(self.store, "live_runs", "run_id")]

    async def get(self, backfill_id: UUID) -> Any:
        return (await self.asking.get(ADA, backfill_id)).backfill


def wanted(first: int, last: int, **fields: Any) -> StartBackfillRequest:
    return StartBackfillRequest(
        start=(START + first * HOUR).isoformat(), end=(START + last * HOUR).isoformat(), **fields
    )


def hours(numbers: Sequence[int]) -> list[datetime]:
    return [START + number * HOUR for number in numbers]


async def succeed(task: Task) -> Outcome:
    return Succeeded()


async def work_off(site: Site, executor: Executor, backfill_id: UUID) -> Any:
    """Turns of both until the backfill is over."""
    async with asyncio.timeout(60):
        while True:
            await site.backfiller.run_once()
            found = await site.get(backfill_id)
            if found.state.is_final and not found.live:
                return found
            await executor.turn()


async def ended(site: Site, job_id: UUID, due: datetime, state: RunState) -> None:
    """A scheduled run of the past, as history has it."""
    await execute(
        site.store,
        "INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, version, state, "
        "cause, attempt) VALUES ($1, $2, $3::timestamptz, $3, $3::timestamptz + interval '8 seconds', 1, 1, $4, 1, 1)",
        scheduled_run_id(due, job_id),
        job_id,
        due,
        int(state),
    )
