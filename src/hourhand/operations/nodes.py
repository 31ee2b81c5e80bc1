"""What a caller may ask of nodes and shards: who is there and how they stand, and orders to them.

Orders are for the whole cluster, so a token that is bound to one namespace may not give any.
"""

from collections.abc import Sequence
from typing import Final

from hourhand.model.errors import Conflict, Forbidden, NotFound
from hourhand.model.node import Orders
from hourhand.model.node_state import node_state, read_facts
from hourhand.model.shards import ranges_of
from hourhand.operations.cluster_requests import NodeDetail, Shard, ShardOwner, ShardStatus, UsedOf
from hourhand.operations.requests import Caller
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.operator_stores import ClusterStore, NodeInFull, ShardRow

RECENT_SECONDS: Final = 3600.0
"""How long a node that has ended is still listed."""
_TAKES_ORDERS: Final = ("executor", "scheduler")


class NodeOperations:
    def __init__(self, store: ClusterStore, bus: EventBus) -> None:
        self._store = store
        self._bus = bus

    async def list(self, caller: Caller) -> Sequence[NodeDetail]:
        """Those that are there first; then those that have ended, the latest first."""
        found = [_detail(row, caller) for row in await self._store.list_nodes(RECENT_SECONDS)]
        present = [node for node in found if node.ended_at is None]
        ended = [(node.ended_at, node.node_id, node) for node in found if node.ended_at is not None]
        return [*present, *(node for _, _, node in sorted(ended, key=lambda each: each[:2], reverse=True))]

    async def get(self, caller: Caller, node_id: int) -> NodeDetail:
        return _detail(await self._row(node_id), caller)

    async def order(self, caller: Caller, node_id: int, orders: Orders) -> NodeDetail:
        """Cordon, drain, or work again. The node obeys when it hears of it: at once, or with its next heartbeat."""
        _refuse_bound(caller)
        row = await self._row(node_id)
        if row.role not in _TAKES_ORDERS:
            raise Conflict(
                "node-takes-no-orders", f"node {node_id} has the role {row.role}: it takes no work to withhold"
            )
        if not await self._store.give_orders(node_id, orders):
            raise Conflict("node-ended", f"node {node_id} has ended and takes no orders any more")
        self._bus.publish(Topic.NODES)
        return await self.get(caller, node_id)

    async def mark_lost(self, caller: Caller, node_id: int) -> NodeDetail:
        """Ends a node from outside, without waiting for its lease: for one that is known to be gone. What it writes
        afterwards is refused; should it be alive after all, it starts anew under another number."""
        _refuse_bound(caller)
        await self._row(node_id)
        if await self._store.mark_lost(node_id):
            self._bus.publish(Topic.NODES)
        return await self.get(caller, node_id)

    async def shards(self, caller: Caller, each: bool = False) -> ShardStatus:
        rows = await self._store.list_shards()
        owned: dict[int | None, list[ShardRow]] = {}
        for row in rows:
            owned.setdefault(row.owner_id, []).append(row)
        owners = [_owner(owned[owner_id]) for owner_id in sorted(owned, key=lambda found: (found is None, found or 0))]
        singles = [Shard(row.shard, row.owner_id, row.owner, row.epoch) for row in rows] if each else []
        return ShardStatus(len(rows), max((row.epoch for row in rows), default=0), owners, singles)

    async def _row(self, node_id: int) -> NodeInFull:
        row = await self._store.get_node(node_id)
        if row is None:
            raise NotFound("node", node_id)
        return row


def _refuse_bound(caller: Caller) -> None:
    if not caller.cluster_wide:
        raise Forbidden("this token is bound to one namespace; orders to nodes concern all of them")


def _detail(row: NodeInFull, caller: Caller) -> NodeDetail:
    facts = read_facts(row.facts)
    left = round((row.lease_until - row.now).total_seconds(), 3)
    present = row.ended_at is None
    slots = facts.slots_of_all
    return NodeDetail(
        node_id=row.node_id,
        role=row.role,
        name=row.name,
        state=node_state(row.orders, facts, row.lease_until, row.ended_at, row.now, row.shards).value,
        orders=row.orders.value,
        leader=row.leads,
        started_at=row.started_at,
        ended_at=row.ended_at,
        heard_seconds_ago=None if facts.lease_seconds is None or not present else round(facts.lease_seconds - left, 3),
        lease_seconds_left=max(left, 0.0) if present else None,
        slots_used=slots.used if present else 0,
        slots_total=slots.total if present else 0,
        labels=list(facts.labels),
        resources={name: UsedOf(amount.used, amount.total) for name, amount in facts.resources.items()},
        shards=row.shards,
        facts=dict(row.facts) if caller.cluster_wide else {},
    )


def _owner(rows: Sequence[ShardRow]) -> ShardOwner:
    return ShardOwner(
        node_id=rows[0].owner_id,
        name=rows[0].owner,
        count=len(rows),
        ranges=ranges_of([row.shard for row in rows]),
        epoch=max(row.epoch for row in rows),
    )
