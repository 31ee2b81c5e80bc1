"""Submissions that arrive together are committed together, and answered only after the commit.

While one commit is under way the next ones gather; alone, a submission waits for nobody. One that the database refuses
does not fail its neighbours: the batch is then stored one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from hourhand.model.errors import DatabaseUnavailable, Overloaded

T = TypeVar("T")

BATCH_MAX = 1000
WAITING_MAX = 20_000
"""Submissions that may wait for a commit; more are refused at the door."""


class GroupCommit(Generic[T]):
    def __init__(self, insert: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        self._insert = insert
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._writing = False

    async def store(self, job: T) -> None:
        """Returns once the job is durable."""
        await self.put(job)

    def put(self, job: T) -> "asyncio.Future[None]":
        """Done once the job is durable. Raises `Overloaded`."""
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} submissions are waiting to be stored")
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, stored))
        if not self._writing:
            self._writing = True
            self._writer = asyncio.create_task(self._write())
        return stored

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._store(batch)
        except asyncio.CancelledError:
            left, self._waiting = [*batch, *self._waiting], []
            for _, stored in left:  # nobody else would ever tell them
                if not stored.done():
                    stored.set_exception(DatabaseUnavailable("the write was cancelled; it may have happened or not"))
            raise
        finally:
            self._writing = False

    async def _store(self, batch: Sequence[tuple[T, asyncio.Future[None]]]) -> None:
        try:
            await self._insert([job for job, _ in batch])
        except asyncio.CancelledError:
            raise
        except Exception as fault:  # answered to whoever submitted; nothing is swallowed
            if len(batch) > 1 and not isinstance(fault, DatabaseUnavailable):
                for one in batch:
                    await self._store([one])
                return
            for _, stored in batch:
                if not stored.done():
                    stored.set_exception(fault)
            return
        for _, stored in batch:
            if not stored.done():
                stored.set_result(None)
