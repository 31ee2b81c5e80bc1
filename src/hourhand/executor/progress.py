"""Keeps the newest word of each attempt about how far it has come, and writes all of them at most once a second.

However often attempts speak, the database hears of it once a second; runs that say nothing cost nothing. What is not
written yet when an attempt ends is dropped: how it ended says more.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from hourhand.model.progress import Progress, tidy
from hourhand.model.run import Claim
from hourhand.ports.progress_stores import ProgressStore, Told

WRITE_SECONDS: Final = 1.0
BATCH_MAX: Final = 1000
_Key = tuple[UUID, int]


class ProgressKeeper:
    def __init__(self, store: ProgressStore, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._unwritten: dict[_Key, Progress] = {}
        self._written: set[_Key] = set()
        self._ended: set[_Key] = set()
        self._written_at = -WRITE_SECONDS
        self.wake: Callable[[], None] = lambda: None
        """Asks for a call of `run_once`; set by whoever runs the loop."""

    def told(self, claim: Claim, percent: Any, message: Any) -> None:
        """Takes what an attempt says. Never blocks, never raises."""
        if not self._unwritten:
            self.wake()
        self._unwritten[claim.run_id, claim.fence] = Progress(*tidy(percent, message), self._now())

    def ended(self, claim: Claim) -> None:
        """The attempt has said something, and is over."""
        key = (claim.run_id, claim.fence)
        self._unwritten.pop(key, None)
        if key in self._written:
            self._written.discard(key)
            self._ended.add(key)
            self.wake()

    async def run_once(self) -> float | None:
        if not self._unwritten and not self._ended:
            return None
        rest = self._written_at + WRITE_SECONDS - asyncio.get_running_loop().time()
        if rest > 0:
            return rest
        self._written_at = asyncio.get_running_loop().time()
        await self._write()
        await self._forget()
        return WRITE_SECONDS if self._unwritten or self._ended else None

    async def _write(self) -> None:
        batch = dict(list(self._unwritten.items())[:BATCH_MAX])
        if not batch:
            return
        self._written.update(batch)  # before the write: one that ends meanwhile must be cleared away afterwards
        await self._store.write_progress([Told(run_id, fence, said) for (run_id, fence), said in batch.items()])
        for key, said in batch.items():
            if self._unwritten.get(key) is said:
                del self._unwritten[key]

    async def _forget(self) -> None:
        batch = list(self._ended)[:BATCH_MAX]
        if batch:
            await self._store.forget_progress(batch)
            self._ended.difference_update(batch)
