"""An executor whose attempts wait for callbacks, and the API that hears them."""

import asyncio
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
from crew import Executor, NotedBus, the_run
from sample_jobs import due_job, insert, rows

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.executor.callbacks import Callbacks as Waiting
from hourhand.executor.progress import WRITE_SECONDS, ProgressKeeper
from hourhand.model.outcome import Outcome
from hourhand.model.progress import Progress
from hourhand.operations.callbacks import CallbackOperations, CallbackRequest
from hourhand.ports.job_kind import PendingCallback, Task
from hourhand.runtime.keyring import Keyring
from hourhand.store.callbacks import Callbacks
from hourhand.store.progress import ProgressBoard
from hourhand.wiring import Store

DONE = CallbackRequest("succeeded", {"rows": 42})


class Site:
    def __init__(
        self, store: Store, seconds: float = 60, keys: Keyring | None = None, api_keys: Keyring | None = None
    ) -> None:
        """`keys`: of the executor, and of the API unless that has others."""
        self.store = store
        self.seconds = seconds
        self.pending: PendingCallback | None = None
        self.begun = asyncio.Event()
        self.executor = Executor(store, self._attempt)
        self.waiting = Waiting(Callbacks(store.database), "https://jobs.example.com/")
        self.waiting.keys = keys
        board = ProgressBoard(store.database)
        self.keeper = self.executor.attempts.progress = ProgressKeeper(board, self.executor.clock.now)
        self.bus: Any = NotedBus()
        self.now: Callable[[], datetime] = self.executor.clock.now
        self.callbacks = CallbackOperations(Callbacks(store.database), board, self.bus, self._time, api_keys or keys)

    def _time(self) -> datetime:
        return self.now()

    async def _attempt(self, task: Task) -> Outcome:
        assert task.callback is None, "only the kind http is given one"
        claim: Any = task
        async with self.waiting.of(claim, task.progress)(self.seconds) as self.pending:
            self.run_id, self.fence = task.run_id, task.fence
            self.begun.set()
            return await self.pending.outcome()

    async def start(self) -> "Site":
        await self.executor.join()
        await insert(self.store, due_job(self.executor.clock.now()))
        await self.again()
        return self

    async def again(self) -> None:
        while not self.begun.is_set():
            await self.executor.turn()
        self.begun.clear()

    async def say(self, request: CallbackRequest, token: str | None = None, run_id: UUID | None = None) -> bool:
        assert self.pending is not None
        speaker = await self.callbacks.speaker_by_token(run_id or self.run_id, token or self.pending.token)
        return await self.callbacks.say(speaker, request)

    async def shown(self) -> Progress | None:
        """How far the run has come for those who look, once its executor has heard of it."""
        await self.waiting.run_once()
        self.keeper._written_at -= WRITE_SECONDS
        await self.keeper.run_once()
        return (await the_run(self.store, self.run_id)).progress

    async def drain(self) -> None:
        async with asyncio.timeout(60):
            while await rows(self.store, "live_runs"):
                await self.waiting.run_once()
                await self.executor.turn()

    def http(self) -> httpx.AsyncClient:
        """Whoever calls from outside."""
        nobody: Any = None
        rooms = {each.name: nobody for each in fields(ApiOperations)}
        operations = ApiOperations(**{**rooms, "callbacks": self.callbacks})
        transport = httpx.ASGITransport(app=build_app(operations, ApiSettings()))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost:8420")
