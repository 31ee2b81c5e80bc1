"""Tells whoever follows logs when theirs has grown: one question for all that are followed, however many they are.

A log is known by its tip: its last row, and where its run stands. Nobody is asked while nobody follows. Wake-ups only
make the next look come sooner; without them there is one every second.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID

from hourhand.ports.log_stores import LogTip, LogTips

POLL_SECONDS: Final = 1.0
"""How long a stream can miss new lines when the wake-up is lost."""
LOOK_SECONDS_MIN: Final = 0.2
"""Between two looks, however often they are asked for."""


class Bell(Protocol):
    rings: int

    async def wait(self, rings: int, seconds_max: float) -> None: ...


class LogWatch:
    def __init__(
        self,
        store: LogTips,
        bell: Bell,
        poll_seconds: float = POLL_SECONDS,
        look_seconds_min: float = LOOK_SECONDS_MIN,
    ) -> None:
        """`bell` rings when lines of any run were stored."""
        self._store = store
        self._bell = bell
        self._poll_seconds = poll_seconds
        self._look_seconds_min = look_seconds_min
        self._waiting: dict[UUID, set[tuple[LogTip | None, asyncio.Future[LogTip | None]]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def changed(self, run_id: UUID, seen: LogTip | None) -> LogTip | None:
        """Returns as soon as the tip of the log is another one than `seen`, with it. What is read afterwards holds
        everything up to it. None when the store could not be asked: whoever reads now is told why."""
        told: asyncio.Future[LogTip | None] = asyncio.get_running_loop().create_future()
        waiting = (seen, told)
        self._waiting.setdefault(run_id, set()).add(waiting)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="log watch")
        try:
            return await told
        finally:
            others = self._waiting.get(run_id, set())
            others.discard(waiting)
            if not others:
                self._waiting.pop(run_id, None)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            rings, looked_at = self._bell.rings, loop.time()
            await self._look_once()
            await self._bell.wait(rings, self._poll_seconds)
            await asyncio.sleep(max(looked_at + self._look_seconds_min - loop.time(), 0))

    async def _look_once(self) -> None:
        asked = {run_id: set(waiting) for run_id, waiting in self._waiting.items()}
        tips: dict[UUID, LogTip] | None = None
        with suppress(Exception):  # whatever it is: those who follow must not wait for ever, and meet it themselves
            tips = await self._store.log_tips(list(asked))
        for run_id, waiting in asked.items():
            tip = None if tips is None else tips.get(run_id)
            for seen, told in waiting:
                if not told.done() and (tip is None or tip != seen):
                    told.set_result(tip)
