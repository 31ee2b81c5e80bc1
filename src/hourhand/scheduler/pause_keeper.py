"""Keeps what a pause holds out of the planner's way, and brings it back when the pause is over.

While there is no pause it costs one look at an empty index each second. A planner that did not hear for a while whether
there is one asks.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from hourhand.model.catchup import PauseSpan
from hourhand.ports.pause_stores import PauseLook, PauseStore
from hourhand.runtime.clock import DatabaseClock

BATCH_MAX: Final = 5000
OWN_MAX: Final = 100
"""Pauses of single jobs that are ended in one go: each takes a few statements."""
HEARD_SECONDS_MAX: Final = 3.0
"""How long what was heard of pauses counts. Shorter than a pause looks ahead by itself."""

SLEEP_SECONDS_MAX: Final = 5.0
"""An end that is further away is looked at again."""


class OwnPauses(Protocol):
    async def end_own_pauses(self, now: datetime, limit: int) -> int:
        """Ends those of single jobs that are over and held more than one due time; how many."""


class PauseKeeper:
    def __init__(
        self,
        pauses: PauseStore,
        jobs: OwnPauses,
        node_id: Callable[[], int],
        clock: DatabaseClock,
        heard_seconds_max: float = HEARD_SECONDS_MAX,
    ) -> None:
        self._pauses = pauses
        self._jobs = jobs
        self._node_id = node_id
        self._clock = clock
        self._heard_seconds_max = heard_seconds_max
        self._heard_at = float("-inf")
        self._look = PauseLook()
        self.wake_planner: Callable[[], None] = lambda: None

    async def run_once(self) -> float | None:
        """Ends what is over, and brings back what it held; says how long it may sleep. None: until it is woken."""
        now = self._clock.now()
        was_in_force = self._look.in_force
        look = await self._hear(now)
        woken = 0
        if look.in_force:
            await self._pauses.end_over(now)
        if look.in_force or look.over:
            woken = await self._pauses.wake(now, BATCH_MAX)
        if look.over:
            woken += await self._jobs.end_own_pauses(now, OWN_MAX)
        if look.in_force:
            await self._pauses.settle(now)
        if woken or look.in_force != was_in_force:
            self.wake_planner()
        if woken >= BATCH_MAX:
            return 0.0
        left = SLEEP_SECONDS_MAX if look.next_end is None else self._clock.seconds_until(look.next_end)
        return max(left, 0.0) if left < SLEEP_SECONDS_MAX else None

    async def in_force(self) -> bool:
        """Whether any pause of many may bear on what is planned now."""
        if time.monotonic() - self._heard_at > self._heard_seconds_max:
            await self._hear(self._clock.now())
        return self._look.in_force

    async def hold(self, now: datetime, horizon: datetime) -> None:
        """Puts aside the cursors up to the horizon that a pause holds, and takes up those that none holds any more."""
        await self._pauses.wake(now, BATCH_MAX)
        while await self._pauses.hold(self._node_id(), now, horizon, BATCH_MAX) == BATCH_MAX:
            pass

    async def spans_of(self, job_ids: Sequence[UUID]) -> dict[UUID, list[PauseSpan]]:
        return await self._pauses.spans_of(job_ids)

    async def _hear(self, now: datetime) -> PauseLook:
        self._look = await self._pauses.look(now)
        self._heard_at = time.monotonic()
        return self._look
