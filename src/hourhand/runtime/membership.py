"""A node's presence: registered at the start, renewed by heartbeat, ended at the stop.

The database decides by its own clock whether a lease has run out. A node that was found dead meanwhile learns it at its
next renewal and starts anew under another number: numbers are never used twice, so old writes cannot pass for new.

Everything here runs on the loop of whoever renews, which is a thread of its own (see `heartbeat`). Others read the
numbers below from their own threads; each is replaced as a whole, so what they see is never half of something.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from hourhand.model.node import Orders, Renewal
from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

NOBODY: Final = 0
"""The number of a node that has none: it is not registered yet, or was found dead and is about to start anew."""


class Registry(Protocol):
    async def register_node(
        self, role: str, name: str, lease_seconds: float, facts: Mapping[str, Any], orders: Orders
    ) -> int: ...
    async def renew_node(self, node_id: int, lease_seconds: float, facts: Mapping[str, Any]) -> Renewal | None: ...
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
        """`facts` is called by the renewing thread and must wait for nobody."""
        self.node_id = 0
        self.confirmed_at = 0.0
        """When the last renewal that was confirmed had been sent, by `time.monotonic`: the lease began no earlier."""
        self.orders = Orders.WORK
        self._registry = registry
        self._role = role
        self._name = name
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._facts = facts
        self.on_buried: Callable[[], Awaitable[None]] = _do_nothing
        """Called before the node starts anew: whatever it did under its old number belongs to others now."""
        self.on_orders: Callable[[Orders], None] = lambda _: None
        """Called when something else is wanted of the node than before."""

    async def join(self) -> None:
        await self._register()
        # A few quick samples: the first starts must not wait for heartbeats to learn the time.
        for _ in range(3):
            await self.run_once()

    async def run_once(self) -> float | None:
        sent = time.monotonic()
        renewal = await self._registry.renew_node(self.node_id, self._lease_seconds, self._facts())
        received = time.monotonic()
        if renewal is None:
            emit(Event.NODE_BURIED, node_id=self.node_id)
            self.node_id = NOBODY  # nothing more is done under the old number, also not by what is waking up just now
            await self.on_buried()
            await self._register()
            return 0
        self._clock.observe(renewal.now, sent, received)
        self.confirmed_at = sent
        if renewal.orders is not self.orders:
            self.orders = renewal.orders
            self.on_orders(renewal.orders)
        return None

    async def leave(self) -> None:
        await self._registry.end_node(self.node_id)

    async def _register(self) -> None:
        sent = time.monotonic()
        # The orders go along: a cordoned node that was held for dead must not come back as one that takes work.
        self.node_id = await self._registry.register_node(
            self._role, self._name, self._lease_seconds, self._facts(), self.orders
        )
        self.confirmed_at = sent


async def _do_nothing() -> None:
    return
