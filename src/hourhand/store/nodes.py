"""Nodes, the leader's lease and the owners of shards, all by the database's clock."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hourhand.database.connections import Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.node import Orders, Renewal
from hourhand.ports.operator_stores import NodeInFull, ShardRow
from hourhand.ports.stores import NodeRow, SweptNode
from hourhand.store.jsons import from_json, to_json


class Nodes:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "nodes.sql", database.schema)

    async def register_node(
        self, role: str, name: str, lease_seconds: float, facts: Mapping[str, Any], orders: Orders = Orders.WORK
    ) -> int:
        row = await self._database.fetch_one(
            self._queries["register_node"],
            role=role,
            name=name,
            lease_seconds=lease_seconds,
            facts=to_json(facts),
            orders=orders.value,
        )
        assert row is not None
        return int(row["node_id"])

    async def renew_node(self, node_id: int, lease_seconds: float, facts: Mapping[str, Any]) -> Renewal | None:
        row = await self._database.fetch_one(
            self._queries["renew_node"], node_id=node_id, lease_seconds=lease_seconds, facts=to_json(facts)
        )
        return None if row is None else Renewal(row["now"], Orders(row["orders"]))

    async def end_node(self, node_id: int) -> None:
        await self._database.fetch(self._queries["end_node"], node_id=node_id)

    async def present_nodes(self) -> list[NodeRow]:
        rows = await self._database.fetch(self._queries["present_nodes"])
        return [
            NodeRow(
                row["node_id"],
                row["role"],
                row["name"],
                row["started_at"],
                row["lease_until"],
                from_json(row["facts"]),
                row["now"],
            )
            for row in rows
        ]

    async def sweep_nodes(self) -> list[SweptNode]:
        rows = await self._database.fetch(self._queries["sweep_nodes"])
        return [
            SweptNode(
                row["node_id"], row["role"], row["ended"], row["expired"], row["seconds_left"], Orders(row["orders"])
            )
            for row in rows
        ]

    async def bury_nodes(self, node_ids: Sequence[int]) -> list[int]:
        rows = await self._database.fetch(self._queries["bury_nodes"], node_ids=node_ids)
        return [row["node_id"] for row in rows]

    async def database_times(self) -> tuple[datetime, datetime]:
        row = await self._database.fetch_one(self._queries["database_times"])
        assert row is not None
        return row["now"], row["started_at"]

    async def mark_returned(self, node_ids: Sequence[int]) -> None:
        await self._database.fetch(self._queries["mark_returned"], node_ids=node_ids)

    async def stray_executors(self) -> list[int]:
        rows = await self._database.fetch(self._queries["stray_executors"])
        return [row["executor_id"] for row in rows]

    async def take_lease(self, name: str, node_id: int, lease_seconds: float) -> int | None:
        row = await self._database.fetch_one(
            self._queries["take_lease"], name=name, node_id=node_id, lease_seconds=lease_seconds
        )
        return None if row is None else row["epoch"]

    async def drop_lease(self, name: str, node_id: int) -> None:
        await self._database.fetch(self._queries["drop_lease"], name=name, node_id=node_id)

    async def lease_seconds_left(self, name: str) -> float:
        row = await self._database.fetch_one(self._queries["get_lease"], name=name)
        return 0.0 if row is None else max(row["seconds_left"], 0.0)

    async def leader(self) -> str | None:
        row = await self._database.fetch_one(self._queries["get_lease"], name="leader")
        return row["node_name"] if row is not None and row["held"] else None

    async def assign_shards(self, node_id: int, leader_epoch: int, owners: Mapping[int, int]) -> int:
        rows = await self._database.fetch(
            self._queries["assign_shards"],
            node_id=node_id,
            leader_epoch=leader_epoch,
            shards=list(owners.keys()),
            owners=list(owners.values()),
        )
        return len(rows)

    async def owned_shards(self, node_id: int) -> tuple[int, int]:
        row = await self._database.fetch_one(self._queries["owned_shards"], node_id=node_id)
        assert row is not None
        return row["owned"], row["epoch"]

    async def list_nodes(self, recent_seconds: float) -> list[NodeInFull]:
        rows = await self._database.fetch(self._queries["list_nodes"], node_id=None, recent_seconds=recent_seconds)
        return [_in_full(row) for row in rows]

    async def get_node(self, node_id: int) -> NodeInFull | None:
        row = await self._database.fetch_one(self._queries["list_nodes"], node_id=node_id, recent_seconds=0.0)
        return None if row is None else _in_full(row)

    async def give_orders(self, node_id: int, orders: Orders) -> bool:
        rows = await self._database.fetch(self._queries["give_orders"], node_id=node_id, orders=orders.value)
        return bool(rows)

    async def mark_lost(self, node_id: int) -> bool:
        return bool(await self._database.fetch(self._queries["mark_lost"], node_id=node_id))

    async def list_shards(self) -> list[ShardRow]:
        rows = await self._database.fetch(self._queries["list_shards"])
        return [ShardRow(row["shard"], row["owner_id"], row["owner"], row["epoch"]) for row in rows]


def _in_full(row: Record) -> NodeInFull:
    return NodeInFull(
        row["node_id"],
        row["role"],
        row["name"],
        row["started_at"],
        row["lease_until"],
        row["ended_at"],
        Orders(row["orders"]),
        from_json(row["facts"]),
        row["shards"],
        row["leads"],
        row["now"],
    )
