"""What operators ask of the store: nodes and shards as they stand, orders, queues and their limits, explanations."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from msgspec import UNSET, UnsetType

from hourhand.model.node import Orders
from hourhand.model.policy import Rate
from hourhand.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NodeInFull:
    """A node as people see it, also one that has ended lately."""

    node_id: int
    role: str
    name: str
    started_at: datetime
    lease_until: datetime
    ended_at: datetime | None
    orders: Orders
    facts: Mapping[str, Any]
    shards: int
    leads: bool
    now: datetime


@dataclass(frozen=True, slots=True)
class ShardRow:
    shard: int
    owner_id: int | None
    owner: str | None
    epoch: int


class ClusterStore(Protocol):
    async def list_nodes(self, recent_seconds: float) -> list[NodeInFull]:
        """Every node that is present, and those that ended within so many seconds."""

    async def get_node(self, node_id: int) -> NodeInFull | None:
        """Also one that ended long ago, as long as its runs are kept."""

    async def give_orders(self, node_id: int, orders: Orders) -> bool:
        """Told to the node with its next heartbeat. False when it has ended."""

    async def mark_lost(self, node_id: int) -> bool:
        """Ends a node as if its lease had run out: others get its runs and shards. False when it had ended before."""

    async def list_shards(self) -> list[ShardRow]: ...


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change of a limit: None takes it away, UNSET leaves it."""

    capacity: int | UnsetType | None = UNSET
    """How many may run at once."""
    rate: Rate | UnsetType | None = UNSET
    """How many may start in a stretch of time."""

    @property
    def says_something(self) -> bool:
        return self.capacity is not UNSET or self.rate is not UNSET


@dataclass(frozen=True, slots=True)
class QueueRow:
    queue: str
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    capacity: int | None
    rate: Rate | None
    waiting: int
    """Runs whose time has come."""
    later: int
    running: int
    pause_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    name: str
    weight: int
    capacity: int | None
    running: int


class QueueStore(Protocol):
    """Every change applies to the lanes there are and to those that will be made."""

    async def list_queues(self, namespace_id: int) -> list[QueueRow]: ...

    async def get_queue(self, namespace_id: int, queue: str) -> QueueRow | None:
        """None when no job has named it and nobody has said anything about it."""

    async def pause_queue(self, namespace_id: int, queue: str, paused_by: str, reason: str | None) -> None:
        """Nothing of the queue is claimed until it is resumed."""

    async def resume_queue(self, namespace_id: int, queue: str) -> None: ...

    async def limit_queue(self, namespace_id: int, queue: str, change: LimitChange) -> None:
        """What is running counts from the first moment; what waited on a limit that is no more goes on."""

    async def get_namespace(self, namespace_id: int) -> NamespaceRow: ...

    async def change_namespace(self, namespace_id: int, weight: int | None, change: LimitChange) -> None:
        """Its share among the namespaces (None leaves it) and its limit."""


class ExplainStore(Protocol):
    async def snapshot_of_run(self, namespace_id: int, run_id: UUID) -> Snapshot | None:
        """All that is known of a run at one moment, of its own namespace only."""
