"""The one loop that all background services share.

A service is an object with `run_once()`: it does what there is to do and says after how many seconds it wants to be
called again (None: after its usual interval). The loop survives every error, backs off while they last, and can be
woken early. Stopping waits for the call in progress.

A loop that has not come through for too long is late, and whoever asks can see it. One that ends although nobody asked
it to tells its owner: a part that is missing without a word is worse than a process that is started again.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BACKOFF_SECONDS_MIN = 0.1
BACKOFF_SECONDS_MAX = 5.0
LATE_SECONDS_MIN = 5.0
LATE_INTERVALS = 3
IN_A_ROW_MAX = 20
"""Turns of a loop that has more to do, before everybody else in the process gets one for certain."""
TOO_SOON = 0.1
"""A beat that is nearer than this part of the interval is left out."""


@dataclass(slots=True)
class LoopHealth:
    """When a loop last came through, by `time.monotonic`, so that any thread may ask. Readiness looks at it."""

    last_success: float | None = None
    failures: int = 0


class Loop:
    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[float | None]],
        interval_seconds: float,
        passing_faults: tuple[type[BaseException], ...] = (),
        backoff_seconds_max: float = BACKOFF_SECONDS_MAX,
        late_seconds: float | None = None,
    ) -> None:
        """`passing_faults` are those that mean "the database is away": told once, not each time. `late_seconds`: how
        old the last success may become; three intervals, and at least 5 s, if nothing else is said."""
        self.name = name
        self.health = LoopHealth()
        self.on_back: Callable[[], None] = _do_nothing
        """Called when it comes through again after failures: what others waited for may be there again."""
        self.on_death: Callable[[str, BaseException | None], None] = _tell_death
        """Called with name and cause when it ends although nobody stopped it."""
        self._run_once = run_once
        self._interval = interval_seconds
        self._passing_faults = passing_faults
        self._backoff_max = backoff_seconds_max
        self._late_after = late_seconds or max(LATE_INTERVALS * interval_seconds, LATE_SECONDS_MIN)
        self._resting = 0.0
        self._in_a_row = 0
        self._told_away = False
        self._started = 0.0
        self._asked_at: float | None = None
        self._wake = asyncio.Event()
        self._urge = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._started = time.monotonic()
        self._task = asyncio.create_task(self._run(), name=self.name)
        self._task.add_done_callback(self._ended)

    def wake(self) -> None:
        """Asks for a call now, or right after the one in progress. A loop that is backing off lets it wait."""
        self._asked_at = self._asked_at or time.monotonic()
        self._wake.set()

    def urge(self) -> None:
        """Asks for a call now, also while it is backing off: what it failed for is said to have passed."""
        self._wake.set()
        self._urge.set()

    def is_late(self) -> bool:
        """Whether it should have come through again by now. From any thread."""
        if self._task is None or self._stopping:
            return False
        now, asked_at = time.monotonic(), self._asked_at
        if asked_at is not None and now - asked_at > LATE_SECONDS_MIN:
            return True
        since = self.health.last_success or self._started
        return now - since > max(self._late_after, LATE_INTERVALS * self._resting)

    def came_through(self) -> None:
        """All is well. Told by the loop itself after each call, and by calls that last from within."""
        self._asked_at = None
        failures, self.health.failures = self.health.failures, 0
        self.health.last_success = time.monotonic()
        if failures:
            was_away, self._told_away = self._told_away, False
            emit(Event.DATABASE_BACK if was_away else Event.LOOP_WELL, loop=self.name, after_failures=failures)
            self.on_back()

    async def stop(self) -> None:
        self._stopping = True
        self.urge()
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
            self._urge.clear()
            try:
                wanted = await self._run_once()
            except asyncio.CancelledError as fault:
                task = asyncio.current_task()
                if self._stopping or (task is not None and task.cancelling()):
                    raise
                # Something that was waited for was cancelled, not this loop: a failure like any other.
                await self._rest(self._failed(fault), self._urge)
            except Exception as fault:  # the shared loop is the place where errors are survived
                await self._rest(self._failed(fault), self._urge)
            else:
                self.came_through()
                await self._rest(self._until_next_beat() if wanted is None else wanted, self._wake)

    def _until_next_beat(self) -> float:
        """Until the next multiple of the interval on the machine's clock: loops that wake together cost half as much as
        those that wake one by one, each on a core that had just fallen asleep."""
        if self._interval <= 0:
            return 0.0
        left = self._interval - time.monotonic() % self._interval
        return left if left > self._interval * TOO_SOON else left + self._interval

    async def _rest(self, seconds: float, until: asyncio.Event) -> None:
        self._resting = seconds
        if self._stopping:
            return
        if seconds <= 0:
            # Straight on: what the next turn asks of the database is on its way before others take their step, and is
            # worked on meanwhile. Now and then they get theirs for certain, also when a turn waits for nothing.
            self._in_a_row = (self._in_a_row + 1) % IN_A_ROW_MAX
            if not self._in_a_row:
                await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until.wait()

    def _failed(self, fault: BaseException) -> float:
        self.health.failures += 1
        if isinstance(fault, self._passing_faults):
            if not self._told_away:
                self._told_away = True
                emit(Event.DATABASE_AWAY, loop=self.name, error=f"{type(fault).__name__}: {fault}")
        else:
            emit(Event.LOOP_FAILED, loop=self.name, error=f"{type(fault).__name__}: {fault}", exc_info=fault)
        doublings = min(self.health.failures - 1, 10)
        ceiling = min(BACKOFF_SECONDS_MIN * (1 << doublings), self._backoff_max)
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - so that nodes do not come back in step

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not self._stopping:
            self.on_death(self.name, None if task.cancelled() else task.exception())


def _do_nothing() -> None:
    return


def _tell_death(name: str, cause: BaseException | None) -> None:
    emit(Event.TASK_ENDED, task=name, error=f"{type(cause).__name__}: {cause}", exc_info=cause)
