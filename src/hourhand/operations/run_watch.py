"""Watches runs for those who want to see them change: one question for all that are watched, twice a second at most.

Nobody is asked while nobody watches. A watcher that is slow misses what was between, and never the newest.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from itertools import chain
from typing import Final
from uuid import UUID

from hourhand.model.errors import DatabaseUnavailable
from hourhand.ports.progress_stores import Glance, GlanceStore

LOOK_SECONDS: Final = 0.5
_AWAY_SECONDS: Final = 2.0


class _Watcher:
    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.glance: Glance | None = None
        self.ended = False
        self.fault: Exception | None = None


class RunWatch:
    def __init__(self, store: GlanceStore, look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._look_seconds = look_seconds
        self._watchers: dict[UUID, set[_Watcher]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def follow(self, run_id: UUID) -> AsyncGenerator[Glance, None]:
        """The run as it is and as it changes, until it is not live any more."""
        watcher = _Watcher()
        self._watchers.setdefault(run_id, set()).add(watcher)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            while True:
                await watcher.changed.wait()
                watcher.changed.clear()
                if watcher.fault is not None:
                    raise watcher.fault
                if watcher.ended:
                    return
                assert watcher.glance is not None
                yield watcher.glance
        finally:
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]

    async def _look(self) -> None:
        while self._watchers:
            pause = self._look_seconds
            try:
                await self._look_once()
            except DatabaseUnavailable:
                pause = _AWAY_SECONDS  # the streams go on; whoever reads them sees nothing new meanwhile
            except Exception as fault:  # told to whoever watches, who would wait for ever; nothing is swallowed
                for watcher in chain.from_iterable(self._watchers.values()):
                    watcher.fault = fault
                    watcher.changed.set()
                return
            await asyncio.sleep(pause)

    async def _look_once(self) -> None:
        asked = {run_id: set(watchers) for run_id, watchers in self._watchers.items()}
        found = await self._store.glance_at_runs(list(asked))
        for run_id, watchers in asked.items():
            glance = found.get(run_id)
            for watcher in watchers:
                if glance is None:
                    watcher.ended = True
                elif glance == watcher.glance:
                    continue
                watcher.glance = glance
                watcher.changed.set()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
