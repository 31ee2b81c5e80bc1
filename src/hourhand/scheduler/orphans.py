"""Cancels parts of runs whose run is over: it was cancelled, or lost, while nobody led it.

Looks seldom, and only as the leader. While no run has parts, the look is one probe of an empty index.
"""

from typing import Final

from hourhand.ports.part_stores import OrphanStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.leadership import Leadership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

ORPHANS_SECONDS: Final = 5.0


class Orphans:
    def __init__(self, parts: OrphanStore, leadership: Leadership, clock: DatabaseClock) -> None:
        self._parts = parts
        self._leadership = leadership
        self._clock = clock

    async def run_once(self) -> float | None:
        if self._leadership.epoch is None:
            return None
        cancelled, _ = await self._parts.cancel_orphans(self._clock.now())
        if cancelled:
            emit(Event.PARTS_CANCELLED, parts=cancelled)
        return None
