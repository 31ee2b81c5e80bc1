"""What the tests of transactions stand on: a run of one handler, and rows that show its work."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from crew import Executor
from sample_jobs import due_job, execute, insert, rows

from hourhand import Context
from hourhand.blobs.folder import FolderBlobs
from hourhand.executor.outputs import Outputs
from hourhand.executor.settings import ExecutorSettings
from hourhand.executor.transactions import Transactions
from hourhand.job_kinds.answers import outcome_of, outcome_raised
from hourhand.model.outcome import Outcome
from hourhand.model.retry import RetryPolicy
from hourhand.ports.job_kind import Task
from hourhand.runtime.clock import DatabaseClock
from hourhand.store.completions import Completions
from hourhand.wiring import Store

Handler = Callable[[Context], Awaitable[Any]]


class Ground:
    """An executor whose one handler has a table of its own in the same database."""

    def __init__(self, store: Store, handler: Handler, connections: int = 4, blobs: FolderBlobs | None = None) -> None:
        self.store = store
        self.table = f"{store.database.schema}.effects"
        self.handler = handler
        outputs = None if blobs is None else Outputs(blobs, DatabaseClock(), ExecutorSettings(result_bytes_max=400_000))
        self.executor = Executor(store, self._run, outputs=outputs)
        self.transactions = Transactions(
            Completions(store.database, store.live_runs),
            self.executor.recorder,
            self.executor.clock,
            connections,
            outputs,
        )
        self.executor.attempts.transactions = self.transactions

    async def _run(self, task: Task) -> Outcome:
        try:
            return outcome_of(await self.handler(Context(task)))
        except Exception as error:
            return outcome_raised(error)

    async def open(self, jobs: int = 1, **fields: Any) -> "Ground":
        await execute(self.store, "CREATE TABLE hourhand.effects (run_id uuid, attempt int)")
        await self.executor.join()
        fields = {"retry": RetryPolicy(0), **fields}
        await insert(self.store, *(due_job(self.executor.clock.now(), **fields) for _ in range(jobs)))
        return self

    def effect(self, ctx: Context) -> tuple[str, Any, int]:
        return f"INSERT INTO {self.table} VALUES ($1, $2)", ctx.run_id, ctx.attempt

    async def effects(self) -> int:
        return len(await rows(self.store, "effects"))

    async def until_in_hand(self) -> None:
        await self.executor.turn()
        async with asyncio.timeout(5):
            while not self.executor.kind.active:
                await asyncio.sleep(0)
