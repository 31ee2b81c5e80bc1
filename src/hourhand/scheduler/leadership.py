"""One scheduler leads: it buries dead nodes, shares out the shards and returns the runs of dead executors.

The lead is a lease row with an epoch. A leader that was paused past its lease assigns nothing: the assigning statement
asks for the lease itself. While the database was away nobody could renew anything, so after such a time the leader
waits one lease before it holds anybody for dead.
"""

import asyncio
from collections.abc import Callable

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.shards import share_out
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import NodeStore, SweptNode
from hourhand.scheduler.reaper import Reaper
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event


class Leadership:
    def __init__(
        self,
        nodes: NodeStore,
        reaper: Reaper,
        node_id: Callable[[], int],
        bus: EventBus,
        settings: SchedulerSettings,
        grace_seconds: float,
    ) -> None:
        """`grace_seconds`: the longest lease anybody has; how long nobody is buried after the database was away."""
        self.epoch: int | None = None
        self._nodes = nodes
        self._reaper = reaper
        self._node_id = node_id
        self._bus = bus
        self._settings = settings
        self._grace_seconds = grace_seconds
        self._bury_from = 0.0
        self._renew_at = 0.0
        self._owners: dict[int, int] = {}

    async def run_once(self) -> float | None:
        try:
            await self._lead_or_follow()
        except DatabaseUnavailable:
            self._bury_from = _monotonic() + self._grace_seconds
            raise
        return None

    async def resign(self) -> None:
        if self.epoch is not None:
            await self._nodes.drop_lease("leader", self._node_id())

    async def _lead_or_follow(self) -> None:
        if _monotonic() >= self._renew_at:
            await self._renew()
        if self.epoch is None:
            return
        nodes = await self._nodes.sweep_nodes()
        expired = [node.node_id for node in nodes if node.expired and not node.ended]
        if expired and _monotonic() >= self._bury_from:
            dead = await self._nodes.bury_nodes(expired)
            emit(Event.NODES_LOST, node_ids=dead)
            nodes = await self._nodes.sweep_nodes()
        await self._assign(self.epoch, [node.node_id for node in nodes if _may_own(node)])
        await self._reaper.run_once([node.node_id for node in nodes if node.ended])

    async def _renew(self) -> None:
        epoch = await self._nodes.take_lease("leader", self._node_id(), self._settings.lease_seconds)
        self._renew_at = _monotonic() + self._settings.heartbeat_seconds
        if epoch != self.epoch:
            emit(Event.LEADER_LOST if epoch is None else Event.LEADER_CHANGED, epoch=epoch or self.epoch)
            self._owners = {}
        self.epoch = epoch

    async def _assign(self, epoch: int, schedulers: list[int]) -> None:
        owners = share_out(schedulers)
        if owners == self._owners:
            return
        moved = await self._nodes.assign_shards(self._node_id(), epoch, owners)
        self._owners = owners
        if moved:
            emit(Event.SHARDS_ASSIGNED, moved=moved, schedulers=len(set(owners.values())))
            self._bus.publish(Topic.SHARDS)


def _may_own(node: SweptNode) -> bool:
    return node.role == "scheduler" and not node.ended and not node.expired


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
