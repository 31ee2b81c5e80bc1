"""One scheduler leads: it buries dead nodes, shares out the shards and returns the runs of dead executors.

The lead is a lease row with an epoch. A leader that was paused past its lease assigns nothing: the assigning statement
asks for the lease itself. While the database was away nobody could renew anything, so after such a time the leader
waits one lease before it holds anybody for dead. It does the same after the database's clock was set, as a fail-over
may do: leases that were written by the old time say nothing about the new one.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.node import Orders
from hourhand.model.shards import share_out
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import NodeStore, SweptNode
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.reaper import Reaper
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

AFTER_SECONDS: Final = 0.02
"""How long after the end of a lease it is looked at: not so that it is looked at twice."""


class Leadership:
    def __init__(
        self,
        nodes: NodeStore,
        reaper: Reaper,
        node_id: Callable[[], int],
        bus: EventBus,
        settings: SchedulerSettings,
        grace_seconds: float,
        clock: DatabaseClock,
    ) -> None:
        """`grace_seconds`: the longest lease anybody has; how long nobody is buried after the database was away."""
        self.epoch: int | None = None
        self._nodes = nodes
        self._reaper = reaper
        self._node_id = node_id
        self._bus = bus
        self._settings = settings
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._bury_from = 0.0
        self._renew_at = 0.0
        self._owners: dict[int, int] = {}
        self._sure_until = 0.0
        self._has_resigned = False

    async def run_once(self) -> float | None:
        """Does what a leader does, or tries to become one; says how long it may sleep."""
        if self._has_resigned or not self._node_id():  # not registered just now
            return None
        try:
            return await self._lead_or_follow()
        except DatabaseUnavailable:
            self._bury_from = _monotonic() + self._grace_seconds
            raise

    async def resign(self) -> None:
        """Gives the lead up for good. A turn that is under way may still renew it, and gives it up then."""
        self._has_resigned = True
        if self.epoch is not None:
            await self._nodes.drop_lease("leader", self._node_id())

    async def _lead_or_follow(self) -> float | None:
        if self.epoch is None or _monotonic() >= self._renew_at:
            await self._renew()
        if self.epoch is None:
            return await self._until_lead_is_free()
        nodes = await self._nodes.sweep_nodes()
        expired = [node.node_id for node in nodes if node.expired and not node.ended]
        may_bury = bool(expired) and await self._may_bury()
        if may_bury:
            dead = await self._nodes.bury_nodes(expired)
            if dead:
                emit(Event.NODES_LOST, node_ids=dead)
            nodes = await self._nodes.sweep_nodes()
        swept_at = _monotonic()
        await self._assign(self.epoch, _owners(nodes))
        await self._reaper.run_once([node.node_id for node in nodes if node.ended])
        # Leases grow only longer until then: nobody can be dead before the first of them is over. What is over by now
        # is looked at again at once, or after a while when nobody may be held for dead.
        again = 0.0 if may_bury or not expired else self._settings.sweep_seconds
        waits = [again if node.expired else node.seconds_left for node in nodes if not node.ended]
        return self._before_next_beat(
            max(min(waits, default=self._settings.heartbeat_seconds) - (_monotonic() - swept_at), 0.0)
        )

    async def _until_lead_is_free(self) -> float | None:
        left = await self._nodes.lease_seconds_left("leader")
        # Free, and yet refused: this node was held for dead, and joins again at its next heartbeat.
        return self._before_next_beat(left or self._settings.sweep_seconds)

    def _before_next_beat(self, seconds: float) -> float | None:
        """How long to sleep when something may be over then; None when it is over later than the next beat is."""
        return None if seconds > self._settings.heartbeat_seconds else seconds + AFTER_SECONDS

    async def _may_bury(self) -> bool:
        """Asked only when somebody seems dead. A leader may be younger than the trouble: the database is asked too."""
        sent = monotonic()
        now, started_at = await self._nodes.database_times()
        self._clock.observe(now, sent, monotonic())
        was_just_started = 0 <= (now - started_at).total_seconds() < self._grace_seconds
        if was_just_started or self._clock.seconds_since_jump() < self._grace_seconds:
            return False
        return _monotonic() >= self._bury_from

    async def _renew(self) -> None:
        sent = _monotonic()
        epoch = await self._nodes.take_lease("leader", self._node_id(), self._settings.lease_seconds)
        if self._has_resigned and epoch is not None:
            await self._nodes.drop_lease("leader", self._node_id())
            epoch = None
        self._renew_at = _monotonic() + self._settings.heartbeat_seconds / 2  # at the next beat, when that is near
        self._sure_until = sent + self._settings.lease_seconds
        if epoch != self.epoch:
            emit(Event.LEADER_LOST if epoch is None else Event.LEADER_CHANGED, epoch=epoch or self.epoch)
            self._owners = {}
        self.epoch = epoch

    async def _assign(self, epoch: int, schedulers: list[int]) -> None:
        owners = share_out(schedulers)
        if owners == self._owners:
            return
        moved = await self._nodes.assign_shards(self._node_id(), epoch, owners)
        if _monotonic() < self._sure_until:  # else the lease may have been over, and nothing was written
            self._owners = owners
        if moved:
            emit(Event.SHARDS_ASSIGNED, moved=moved, schedulers=len(set(owners.values())))
            self._bus.publish(Topic.SHARDS)


def _owners(nodes: Sequence[SweptNode]) -> list[int]:
    """Schedulers that are alive and not told to take nothing; if all of them are, somebody must plan all the same."""
    alive = [node for node in nodes if node.role == "scheduler" and not node.ended and not node.expired]
    working = [node for node in alive if node.orders is Orders.WORK]
    return [node.node_id for node in working or alive]


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
