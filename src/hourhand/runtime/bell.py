"""Small wake-ups inside a process: one that many wait for, and one that is not passed on too often."""

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """Wakes whoever waits for it. Who has looked since the last ring is told so, and misses none in between."""

    def __init__(self) -> None:
        self.rings = 0
        self._next = asyncio.Event()

    def ring(self) -> None:
        self.rings += 1
        rung, self._next = self._next, asyncio.Event()
        rung.set()

    async def wait(self, rings: int, seconds_max: float) -> None:
        """Returns when it has rung more often than that, or the time is over."""
        if self.rings == rings:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds_max):  # `wait_for` may swallow that its task is cancelled
                    await self._next.wait()


class Seldom:
    """Calls something at once, and then at most every so often; the last call is never swallowed."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds = seconds
        self._call = call
        self._is_resting = False
        self._is_wanted = False

    def __call__(self) -> None:
        if self._is_resting:
            self._is_wanted = True
            return
        self._is_resting = True
        asyncio.get_running_loop().call_later(self._seconds, self._rested)
        self._call()

    def _rested(self) -> None:
        self._is_resting = False
        if self._is_wanted:
            self._is_wanted = False
            self()
