"""A node's presence: registered at the start, renewed by heartbeat, ended at the stop.

The database decides by its own clock whether a lease has run out. A node that was found dead meanwhile learns it at its
next renewal and starts anew under another number: numbers are never used twice, so old writes cannot pass for new.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event


class Registry(Protocol):
    async def register_node(self, role: str, name: str, lease_seconds: float, facts: Mapping[str, Any]) -> int: ...
    async def renew_node(self, node_id: int, lease_seconds: float, facts: Mapping[str, Any]) -> datetime | None: ...
    async def end_node(self, node_id: int) -> None: ...


class Membership:
    def __init__(
        self,
        registry: Registry,
        role: str,
        name: str,
        lease_seconds: float,
        clock: DatabaseClock,
        facts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.node_id = 0
        self._registry = registry
        self._role = role
        self._name = name
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._facts = facts
        self.on_buried: Callable[[], Awaitable[None]] = _do_nothing
        """Called before the node starts anew: whatever it did under its old number belongs to others now."""

    async def join(self) -> None:
        self.node_id = await self._registry.register_node(self._role, self._name, self._lease_seconds, self._facts())
        # A few quick samples: the first starts must not wait for heartbeats to learn the time.
        for _ in range(3):
            await self.run_once()

    async def run_once(self) -> float | None:
        sent = time.monotonic()
        now = await self._registry.renew_node(self.node_id, self._lease_seconds, self._facts())
        received = time.monotonic()
        if now is None:
            emit(Event.NODE_BURIED, node_id=self.node_id)
            await self.on_buried()
            self.node_id = await self._registry.register_node(
                self._role, self._name, self._lease_seconds, self._facts()
            )
            return 0
        self._clock.observe(now, sent, received)
        return None

    async def leave(self) -> None:
        await self._registry.end_node(self.node_id)


async def _do_nothing() -> None:
    return
