"""Queues and namespaces as somebody wants them: paused, limited, weighted.

A limit is a gate, and the lanes of its queue or namespace carry its number. Whoever changes one counts in the same
transaction what is running already, so that it is never exceeded by what was there before. For that moment nobody may
claim or end a run; when the tables are not free at once the change steps back and tries again, and holds up nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg
from msgspec import UNSET

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.errors import Overloaded
from hourhand.model.policy import Rate
from hourhand.ports.operator_stores import LimitChange, NamespaceRow, QueueRow

LOCK_MILLISECONDS_MAX: Final = 250
"""Everybody who writes runs waits behind a lock that is asked for, so it is not asked for longer than this."""
TRIES_MAX: Final = 40
PAUSE_SECONDS: Final = 0.1
_BUSY: Final = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


class Queues:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "queues.sql", database.schema)

    async def list_queues(self, namespace_id: int) -> list[QueueRow]:
        rows = await self._database.fetch(self._queries["list_queues"], namespace_id=namespace_id, queue=None)
        return [_queue(row) for row in rows]

    async def get_queue(self, namespace_id: int, queue: str) -> QueueRow | None:
        row = await self._database.fetch_one(self._queries["list_queues"], namespace_id=namespace_id, queue=queue)
        return None if row is None else _queue(row)

    async def pause_queue(self, namespace_id: int, queue: str, paused_by: str, reason: str | None) -> None:
        async def pause(db: Connection) -> None:
            await self._fetch(db, "lock_lanes")
            await self._fetch(
                db, "pause_queue", namespace_id=namespace_id, queue=queue, paused_by=paused_by, reason=reason
            )
            await self._fetch(db, "hold_lanes", namespace_id=namespace_id, queue=queue, held=True)

        await self._when_free(pause)

    async def resume_queue(self, namespace_id: int, queue: str) -> None:
        async def resume(db: Connection) -> None:
            await self._fetch(db, "lock_lanes")
            await self._fetch(db, "resume_queue", namespace_id=namespace_id, queue=queue)
            await self._fetch(db, "hold_lanes", namespace_id=namespace_id, queue=queue, held=False)

        await self._when_free(resume)

    async def limit_queue(self, namespace_id: int, queue: str, change: LimitChange) -> None:
        async def limit(db: Connection) -> None:
            await self._limit(db, namespace_id, queue, change)

        await self._when_free(limit)

    async def get_namespace(self, namespace_id: int) -> NamespaceRow:
        row = await self._database.fetch_one(self._queries["get_namespace"], namespace_id=namespace_id)
        assert row is not None, "namespaces are never deleted"
        return NamespaceRow(row["name"], row["weight"], row["capacity"], row["running"])

    async def change_namespace(self, namespace_id: int, weight: int | None, change: LimitChange) -> None:
        async def put(db: Connection) -> None:
            if weight is not None:
                await self._fetch(db, "set_weight", namespace_id=namespace_id, weight=weight)
            if change.says_something:
                await self._limit(db, namespace_id, None, change)

        await self._when_free(put)

    # --- steps --------------------------------------------------------------------------------------------

    async def _limit(self, db: Connection, namespace_id: int, queue: str | None, change: LimitChange) -> None:
        """Of a queue, or of the namespace as a whole."""
        await self._fetch(db, "lock_lanes")
        # Before the gate, as those do who claim through it: else each would wait for the other.
        await self._fetch(db, "lock_live_runs")
        gate = {"namespace_id": namespace_id, "kind": "namespace" if queue is None else "queue", "name": queue or ""}
        found = await self._fetch(db, "get_gate", **gate)
        capacity, rate = _changed(found[0] if found else None, change)
        if capacity is None and rate is None:
            dropped = await self._fetch(db, "drop_gate", **gate)
            if not dropped:
                return
            gate_id, released = dropped[0]["gate_id"], "release_waiting"
        else:
            [put] = await self._fetch(
                db, "put_gate", capacity=capacity, rate_count=rate and rate.count, rate_seconds=rate and rate.seconds,
                **gate,
            )  # fmt: skip
            gate_id, released = put["gate_id"], "release_delayed"
        await self._fetch(db, "refresh_lane_gates", namespace_id=namespace_id, queue=queue)
        await self._fetch(db, "count_executing", namespace_id=namespace_id, queue=queue)
        await self._fetch(db, released, gate_id=gate_id)
        if released == "release_waiting":
            await self._fetch(db, "drop_slots", gate_id=gate_id)

    async def _when_free(self, change: Callable[[Connection], Awaitable[None]]) -> None:
        for _ in range(TRIES_MAX):
            try:
                async with self._database.transaction() as db:
                    await db.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS_MAX}")
                    await change(db)
            except _BUSY:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return
        raise Overloaded("the runs are being written without a pause; nothing was changed, try again")

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _changed(row: Record | None, change: LimitChange) -> tuple[int | None, Rate | None]:
    """What the gate will be: what is not said stays."""
    capacity = row["capacity"] if row is not None and change.capacity is UNSET else change.capacity
    rate = _rate(row) if row is not None and change.rate is UNSET else change.rate
    return (None if capacity is UNSET else capacity), (None if rate is UNSET else rate)


def _queue(row: Record) -> QueueRow:
    return QueueRow(
        row["queue"],
        row["paused_at"],
        row["paused_by"],
        row["pause_reason"],
        row["capacity"],
        _rate(row),
        row["waiting"],
        row["later"],
        row["running"],
        row["until"],
    )


def _rate(row: Record) -> Rate | None:
    return None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_seconds"])
