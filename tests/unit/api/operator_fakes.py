"""In-memory stand-ins for what operators ask of the store. The operations on top of them are the real ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from api_fakes import NAMESPACES, NOW
from msgspec import UNSET

from hourhand.model.catchup import CatchUp
from hourhand.model.ledger import LedgerFacts
from hourhand.model.node import Orders
from hourhand.model.pauses import Pause, PauseScope
from hourhand.model.snapshot import Snapshot
from hourhand.ports.event_bus import Topic
from hourhand.ports.operator_stores import LimitChange, NamespaceRow, NodeInFull, QueueRow, ShardRow
from hourhand.ports.pause_stores import Paused, PauseTarget

EXECUTOR_FACTS: Mapping[str, Any] = {
    "pid": 4711,
    "lease_seconds": 15.0,
    "queues": ["default"],
    "offers": {"inline": ["python:any"], "process": ["command"]},
    "slots": {"inline": {"slots": 90, "used": 1}, "process": {"slots": 6, "used": 2}},
}


def node(node_id: int, role: str, **fields: Any) -> NodeInFull:
    row = NodeInFull(
        node_id, role, f"{role}-{node_id}", NOW, NOW + timedelta(seconds=12.5), None, Orders.WORK, {}, 0, False, NOW
    )
    return replace(row, **fields)


@dataclass
class FakeBus:
    told: list[Topic] = field(default_factory=list)

    def publish(self, topic: Topic) -> None:
        self.told.append(topic)


@dataclass
class FakeClusterStore:
    nodes: dict[int, NodeInFull] = field(
        default_factory=lambda: {
            1: node(1, "api"),
            2: node(2, "scheduler", shards=1024, leads=True),
            3: node(3, "executor", facts=EXECUTOR_FACTS),
        }
    )

    async def list_nodes(self, recent_seconds: float) -> list[NodeInFull]:
        return list(self.nodes.values())

    async def get_node(self, node_id: int) -> NodeInFull | None:
        return self.nodes.get(node_id)

    async def give_orders(self, node_id: int, orders: Orders) -> bool:
        return self._change(node_id, orders=orders)

    async def mark_lost(self, node_id: int) -> bool:
        return self._change(node_id, ended_at=NOW)

    async def list_shards(self) -> list[ShardRow]:
        return [ShardRow(0, 2, "scheduler-2", 3), ShardRow(1, 2, "scheduler-2", 4), ShardRow(2, None, None, 0)]

    def _change(self, node_id: int, **fields: Any) -> bool:
        found = self.nodes[node_id]
        if found.ended_at is not None:
            return False
        self.nodes[node_id] = replace(found, **fields)
        return True


@dataclass
class FakeQueueStore:
    queues: dict[tuple[int, str], QueueRow] = field(default_factory=dict)
    namespaces: dict[int, NamespaceRow] = field(
        default_factory=lambda: {number: NamespaceRow(name, 1, None, 0) for name, number in NAMESPACES.items()}
    )

    async def list_queues(self, namespace_id: int) -> list[QueueRow]:
        return [row for (number, _), row in self.queues.items() if number == namespace_id]

    async def get_queue(self, namespace_id: int, queue: str) -> QueueRow | None:
        return self.queues.get((namespace_id, queue))

    async def pause_queue(self, namespace_id: int, queue: str, paused_by: str, reason: str | None) -> None:
        self._change(namespace_id, queue, paused_at=NOW, paused_by=paused_by, pause_reason=reason)

    async def resume_queue(self, namespace_id: int, queue: str) -> None:
        self._change(namespace_id, queue, paused_at=None, paused_by=None, pause_reason=None)

    async def limit_queue(self, namespace_id: int, queue: str, change: LimitChange) -> None:
        said = {"capacity": change.capacity, "rate": change.rate}
        self._change(namespace_id, queue, **{name: value for name, value in said.items() if value is not UNSET})

    async def get_namespace(self, namespace_id: int) -> NamespaceRow:
        return self.namespaces[namespace_id]

    async def change_namespace(self, namespace_id: int, weight: int | None, change: LimitChange) -> None:
        row = self.namespaces[namespace_id]
        capacity = row.capacity if change.capacity is UNSET else change.capacity
        self.namespaces[namespace_id] = replace(row, weight=weight or row.weight, capacity=capacity)

    def _change(self, namespace_id: int, queue: str, **fields: Any) -> None:
        row = self.queues.get((namespace_id, queue), QueueRow(queue, None, None, None, None, None, 0, 0, 0))
        self.queues[namespace_id, queue] = replace(row, **fields)


@dataclass
class FakeNames:
    async def find_namespace(self, name: str) -> int | None:
        return NAMESPACES.get(name)


@dataclass
class FakeExplainStore:
    snapshots: dict[tuple[int, UUID], Snapshot] = field(default_factory=dict)

    async def snapshot_of_run(self, namespace_id: int, run_id: UUID) -> Snapshot | None:
        return self.snapshots.get((namespace_id, run_id))


@dataclass
class FakePauseStore:
    """Remembers what was paused; of a queue it tells the store of queues."""

    queues: FakeQueueStore
    asked: list[tuple[str, PauseTarget, Any]] = field(default_factory=list)
    pauses: dict[PauseTarget, Pause] = field(default_factory=dict)

    async def pause(
        self, target: PauseTarget, paused_by: str, reason: str | None, until: datetime | None, now: datetime
    ) -> Paused:
        self.asked.append(("pause", target, until))
        if target.queue is not None:
            await self.queues.pause_queue(target.namespace_id or 0, target.queue, paused_by, reason)
            self.queues._change(target.namespace_id or 0, target.queue, pause_until=until)
        return Paused(3, [UUID(int=7)])

    async def resume(self, target: PauseTarget, ended_by: str, catch_up: CatchUp, now: datetime) -> bool:
        self.asked.append(("resume", target, catch_up))
        if target.queue is not None:
            await self.queues.resume_queue(target.namespace_id or 0, target.queue)
        return True

    async def list_pauses(
        self, namespace_id: int, now: datetime, also_over: bool, before: int | None, limit: int
    ) -> list[tuple[int, Pause]]:
        last = 5 if before is None else before - 1
        kept = [(number, Pause(PauseScope.CLUSTER, "", NOW, f"ada {number}")) for number in range(last, 0, -1)]
        return kept[:limit]


@dataclass
class FakeLedgerStore:
    facts: LedgerFacts | None = None
    asked: list[tuple[datetime, datetime, int]] = field(default_factory=list)

    async def read_ledger(
        self, namespace_id: int, job_id: UUID, begin: datetime, until: datetime, now: datetime, limit: int
    ) -> LedgerFacts | None:
        self.asked.append((begin, until, limit))
        return None if self.facts is None else replace(self.facts, begin=begin, until=until, now=now)


class FixedClock:
    def now(self) -> datetime:
        return NOW


def in_seconds(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
