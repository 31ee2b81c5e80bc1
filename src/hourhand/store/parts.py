"""Parts of runs that go to several executors: made, given, lost and cancelled under the fence of their run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.demands import demands_of, demands_text, need_of
from hourhand.model.node import Orders
from hourhand.model.node_state import NodeState, node_state, read_facts
from hourhand.model.parts import Part, part_id
from hourhand.model.policy import policy_from_json
from hourhand.model.states import Reason, RunState
from hourhand.ports.part_stores import Able, FanOutFacts
from hourhand.store.jsons import from_json
from hourhand.store.names import Names

ORPHANS_MAX: Final = 1000
_LOST: Final = "its executor is gone, and a part that is for all executors is for no other"


class Parts:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "parts.sql", database.schema)
        self._live_queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)
        self._nodes = load_queries("hourhand.store.sql", "nodes.sql", database.schema)

    async def fan_out_facts(self, parent_id: UUID, fence: int) -> FanOutFacts | None:
        row = await self._database.fetch_one(self._queries["fan_out_facts"], parent_id=parent_id, fence=fence)
        if row is None:
            return None
        policy = policy_from_json(row["policy"])
        said = None if policy.placement is None else policy.placement.on
        on = None if said == "all" else said or 1  # the job may have been changed to go to one since it was claimed
        demands = msgspec.structs.replace(demands_of(policy), fan=False, part=True)
        return FanOutFacts(row["namespace_id"], row["queue"], need_of(row["needs"]), demands, on)

    async def able(self, facts: FanOutFacts) -> list[Able]:
        found = []
        for row in await self._database.fetch(self._nodes["list_nodes"], node_id=None, recent_seconds=0.0):
            said = read_facts(from_json(row["facts"]))
            state = node_state(Orders(row["orders"]), said, row["lease_until"], row["ended_at"], row["now"])
            takes = row["role"] == "executor" and said.may_take(facts.queue, facts.need, facts.demands.labels)
            if takes and state is NodeState.WORKING and not said.too_small_for(facts.need, facts.demands):
                slots = said.slots_for(facts.need)
                found.append(Able(row["node_id"], slots.used / max(slots.total, 1)))
        return found

    async def fan_out(
        self,
        parent_id: UUID,
        fence: int,
        facts: FanOutFacts,
        node_ids: Sequence[int | None],
        now: datetime,
        expires_at: datetime | None,
    ) -> int:
        key = (facts.namespace_id, facts.queue, demands_text(facts.need, facts.demands), False)
        lanes = await self._names.lane_ids([key])
        rows = await self._database.fetch(
            self._queries["fan_out"],
            parent_id=parent_id,
            fence=fence,
            run_ids=[part_id(parent_id, place) for place in range(len(node_ids))],
            places=list(range(len(node_ids))),
            node_ids=list(node_ids),
            now=now,
            lane_id=lanes[key],
            expires_at=expires_at,
        )
        return len(rows)

    async def parts_of(self, parent_id: UUID) -> list[Part]:
        rows = await self._database.fetch(self._queries["parts_of"], parent_id=parent_id)
        return [part_of(row) for row in rows]

    async def parts_by_run(self, run_ids: Sequence[UUID]) -> dict[UUID, list[UUID]]:
        found: dict[UUID, list[UUID]] = {}
        for row in await self._database.fetch(self._queries["parts_by_run"], run_ids=run_ids):
            found.setdefault(row["parent_id"], []).append(row["run_id"])
        return found

    async def run_of_part(self, run_id: UUID) -> UUID | None:
        row = await self._database.fetch_one(self._queries["run_of_part"], run_id=run_id)
        return None if row is None else row["parent_id"]

    async def give_parts(self, parent_id: UUID, fence: int, give: Mapping[UUID, int]) -> int:
        rows = await self._database.fetch(
            self._queries["give_parts"],
            parent_id=parent_id,
            fence=fence,
            run_ids=list(give),
            node_ids=list(give.values()),
        )
        return len(rows)

    async def lose_parts(self, parent_id: UUID, fence: int, run_ids: Sequence[UUID], now: datetime) -> int:
        rows = await self._database.fetch(
            self._queries["lose_parts"], parent_id=parent_id, fence=fence, run_ids=run_ids, now=now, error=_LOST
        )
        return len(rows)

    async def close_parts(self, parent_id: UUID) -> None:
        await self._database.fetch(self._queries["close_parts"], parent_id=parent_id)

    async def run_state(self, run_id: UUID, fence: int) -> RunState | None:
        row = await self._database.fetch_one(self._queries["run_state"], run_id=run_id, fence=fence)
        return None if row is None else RunState(row["state"])

    async def cancel_parts(self, parent_id: UUID, now: datetime) -> int:
        rows = await self._database.fetch(self._queries["parts_of"], parent_id=parent_id)
        live = [row["run_id"] for row in rows if row["state"] is not None and not RunState(row["state"]).is_final]
        if not live:
            return 0
        row = await self._database.fetch_one(self._queries["part_namespace"], run_id=live[0])
        assert row is not None
        return await self._cancel(row["namespace_id"], live, now)

    async def cancel_orphans(self, now: datetime) -> tuple[int, int]:
        rows = await self._database.fetch(self._queries["orphans"], limit=ORPHANS_MAX)
        live: dict[int, list[UUID]] = defaultdict(list)
        for row in rows:
            if row["live"]:
                live[row["namespace_id"]].append(row["run_id"])
        cancelled = sum([await self._cancel(namespace_id, ids, now) for namespace_id, ids in live.items()])
        over = [row["run_id"] for row in rows if not row["live"]]
        if over:
            await self._database.fetch(self._queries["close_orphans"], run_ids=over)
        return cancelled, len(over)

    @tried_twice
    async def _cancel(self, namespace_id: int, run_ids: Sequence[UUID], now: datetime) -> int:
        async with self._database.transaction() as db:
            await self._fetch(db, "lock_runs", run_ids=run_ids)
            of = {"run_ids": run_ids, "namespace_id": namespace_id}
            ended = await self._fetch(db, "cancel_waiting", **of, now=now, reason=Reason.CANCELLED.value)
            asked = await self._fetch(db, "request_cancel", **of)
        return len(ended) + len(asked)

    async def _fetch(self, db: Connection, query: str, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._live_queries[query], **values)


def part_of(row: Record) -> Part:
    return Part(
        row["run_id"],
        row["place"],
        row["total"],
        row["node_id"],
        row["node"],
        row["gone"],
        # Neither live nor kept any more: it has ended long ago.
        RunState.LOST if row["state"] is None else RunState(row["state"]),
        row["attempt"],
        row["started_at"],
        row["ended_at"],
        row["reason"],
        row["error"],
        from_json(row["result"]),
    )
