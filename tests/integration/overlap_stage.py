"""A scheduler with its judge, a job whose runs may overlap, and executors that hold its runs as long as tests say.

Everybody looks at one clock, which the tests set.
"""

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from crew import Executor, NotedBus, Scheduler, SetClock
from sample_jobs import NAMESPACE, START, at, every, insert, new_job, own_all_shards, rows

from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.policy import Overlap, Policy
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import Reason, RunState
from hourhand.operations.requests import Caller
from hourhand.ports.event_bus import EventBus
from hourhand.ports.job_kind import Task
from hourhand.scheduler.judge import Judge
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.wiring import Store

BEAT = 10
CALLER = Caller("ada", NAMESPACE, "default")
SKIP, QUEUE_ONE, QUEUE_ALL = Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.QUEUE_ALL
FAILED = Failed(Reason.EXIT_CODE, "1")


class Stage:
    """One scheduler and one executor. What runs goes on until the test ends it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = SetClock()
        self.scheduler = Scheduler(store, self.clock, SchedulerSettings(batch_max=50))
        self.bus = NotedBus()
        self.judge = Judge(store.turns, lambda: self.scheduler.node_id, self.clock, cast("EventBus", self.bus))
        self.executor = Executor(store, self._run, clock=self.clock)
        self.running: dict[UUID, asyncio.Future[Outcome]] = {}
        self.dues: dict[UUID, datetime] = {}
        self.started: list[float] = []
        self.most_running: Counter[UUID] = Counter()
        self.job_of: dict[UUID, UUID] = {}

    async def open(self) -> "Stage":
        self.scheduler.node_id, _ = await own_all_shards(self.store)
        await self.scheduler.lookout.run_once()
        await self.executor.join()
        return self

    async def _run(self, task: Task) -> Outcome:
        self.running[task.run_id] = asyncio.get_running_loop().create_future()
        self.dues[task.run_id], self.job_of[task.run_id] = task.scheduled_for, task.job_id
        self.started.append((task.scheduled_for - START).total_seconds())
        now = Counter(self.job_of[run_id] for run_id in self.running)
        self.most_running |= now
        try:
            return await self.running[task.run_id]
        finally:
            del self.running[task.run_id]

    async def job(self, policy: Policy | None = None, first: float = 0, **fields: Any) -> UUID:
        fields.setdefault("retry", RetryPolicy(0))
        job = new_job(every(BEAT), next_due=at(first), policy=policy or Policy(), **fields)
        await insert(self.store, job)
        return job.job_id

    async def go(self, *seconds: float) -> None:
        """Everybody does what there is to do at each of these times."""
        for second in seconds:
            self.clock.time = at(second)
            await self.scheduler.planner.run_once()
            for _ in range(3):
                await self.executor.turn()
                await self.judge.run_once()

    async def end(self, due: float, outcome: Outcome | None = None) -> None:
        """Ends the run of a due time that is going on, and has it recorded."""
        [run_id] = [run_id for run_id in self.running if self.dues[run_id] == at(due)]
        self.running[run_id].set_result(outcome or Succeeded())
        await self.recorded()

    async def recorded(self) -> None:
        """Until nothing that has ended is unwritten."""
        while any(future.done() for future in self.running.values()):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await self.executor.recorder.run_once()

    async def stop_cancelled(self) -> None:
        """As the executor does when it hears of it."""
        before = len(self.executor.attempts)
        await self.executor.stop_cancelled()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(self.executor.attempts) < before
        await self.executor.recorder.run_once()

    async def fates(self) -> dict[float, tuple[str, str | None]]:
        """State and reason of every run, by due time."""
        live = [
            (row["scheduled_for"], RunState(row["state"]).word, None) for row in await rows(self.store, "live_runs")
        ]
        final = [
            (row["scheduled_for"], RunState(row["state"]).word, row["reason"]) for row in await rows(self.store, "runs")
        ]
        assert len({due for due, _, _ in live + final}) == len(live + final), "a due time is accounted for twice"
        return {(due - START).total_seconds(): (state, reason) for due, state, reason in sorted(live + final)}
