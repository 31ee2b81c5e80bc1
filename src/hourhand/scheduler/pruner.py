"""Keeps partitions: made ahead of time, dropped when their retention is over; and sweeps up. Run by the leader."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.leadership import Leadership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event


class PartitionKeeper(Protocol):
    async def maintain(self, cuts: Sequence[Any], now: datetime) -> tuple[list[str], list[str]]: ...


class Pruner:
    def __init__(
        self,
        partitions: PartitionKeeper,
        cuts: Sequence[Any],
        leadership: Leadership,
        clock: DatabaseClock,
        sweeps: Sequence[Callable[[datetime], Awaitable[None]]] = (),
    ) -> None:
        """`sweeps` clear away what lies about and is no partition."""
        self._partitions = partitions
        self._cuts = cuts
        self._leadership = leadership
        self._clock = clock
        self._sweeps = sweeps

    async def run_once(self) -> float | None:
        if self._leadership.epoch is None:
            return 5.0
        made, dropped = await self._partitions.maintain(self._cuts, self._clock.now())
        if made:
            emit(Event.PARTITIONS_MADE, partitions=made)
        if dropped:
            emit(Event.PARTITIONS_DROPPED, partitions=dropped)
        for sweep in self._sweeps:
            await sweep(self._clock.now())
        return None
