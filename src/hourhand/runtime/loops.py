"""The one loop that all background services share.

A service is an object with `run_once()`: it does what there is to do and says after how many seconds it wants to be
called again (None: after its usual interval). The loop survives every error, backs off while they last, and can be
woken early. Stopping waits for the call in progress.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BACKOFF_SECONDS_MIN = 0.1
BACKOFF_SECONDS_MAX = 5.0


@dataclass(slots=True)
class LoopHealth:
    """When a loop last came through. Readiness looks at it."""

    last_success: float | None = None
    failures: int = 0


class Loop:
    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[float | None]],
        interval_seconds: float,
        passing_faults: tuple[type[BaseException], ...] = (),
    ) -> None:
        """`passing_faults` are those that mean "the database is away": told once, not each time."""
        self.name = name
        self.health = LoopHealth()
        self._run_once = run_once
        self._interval = interval_seconds
        self._passing_faults = passing_faults
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self.name)

    def wake(self) -> None:
        """Asks for a call now, or right after the one in progress."""
        self._wake.set()

    async def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def cancel(self) -> None:
        """Stops without waiting for the call in progress: for calls that wait for somebody else."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                wanted = await self._run_once()
            except asyncio.CancelledError:
                raise
            except Exception as fault:  # the shared loop is the place where errors are survived
                delay = self._failed(fault)
            else:
                self._succeeded()
                delay = self._interval if wanted is None else wanted
            await self._rest(delay)

    async def _rest(self, seconds: float) -> None:
        if self._stopping:
            return
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return

    def _succeeded(self) -> None:
        if self.health.failures:
            emit(Event.DATABASE_BACK, loop=self.name, after_failures=self.health.failures)
        self.health.failures = 0
        self.health.last_success = asyncio.get_running_loop().time()

    def _failed(self, fault: Exception) -> float:
        self.health.failures += 1
        if isinstance(fault, self._passing_faults):
            if self.health.failures == 1:
                emit(Event.DATABASE_AWAY, loop=self.name, error=f"{type(fault).__name__}: {fault}")
        else:
            emit(Event.LOOP_FAILED, loop=self.name, error=f"{type(fault).__name__}: {fault}", exc_info=fault)
        doublings = min(self.health.failures - 1, 10)
        ceiling = min(BACKOFF_SECONDS_MIN * (1 << doublings), BACKOFF_SECONDS_MAX)
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - so that nodes do not come back in step
