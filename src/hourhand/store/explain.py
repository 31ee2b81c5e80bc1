"""Everything that is known of a run at one moment: what `hourhand run explain` is made of."""

import re
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.demands import read_lane_text
from hourhand.model.gates import Starts
from hourhand.model.node import Orders
from hourhand.model.node_state import NodeFacts, node_state, read_facts
from hourhand.model.placement import missing_labels
from hourhand.model.policy import Rate, policy_from_json
from hourhand.model.retry import retry_from_json
from hourhand.model.snapshot import (
    AHEAD_MAX,
    Competition,
    Executor,
    GateFacts,
    Holder,
    PartPlace,
    Sibling,
    Snapshot,
)
from hourhand.model.states import JobState, RunState
from hourhand.store.jsons import from_json
from hourhand.store.names import Names
from hourhand.store.parts import part_of
from hourhand.store.pauses import pause_of

HOLDERS_MAX: Final = 5
SIBLINGS_MAX: Final = 100
NAMED_MAX: Final = 200
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JOB_STATES: Final = (JobState.SCHEDULED, JobState.PAUSED, JobState.CANCELLED)


class Explain:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "explain.sql", database.schema)
        self._part_queries = load_queries("hourhand.store.sql", "parts.sql", database.schema)

    async def snapshot_of_run(self, namespace_id: int, run_id: UUID) -> Snapshot | None:
        """All of it as of one moment; None when the namespace has no such run."""
        namespace = await self._names.namespace_name(namespace_id)
        async with (
            self._database.connection() as db,
            db.transaction(isolation="repeatable_read", readonly=True),
        ):
            rows = await self._fetch(db, "explain_live_run", namespace_id=namespace_id, run_id=run_id)
            rows = rows or await self._fetch(db, "explain_finished_run", namespace_id=namespace_id, run_id=run_id)
            if not rows:
                return None
            [row] = rows
            snapshot = await self._with_executors(db, row, _snapshot(row, namespace))
            if snapshot.state.is_final:
                return snapshot
            snapshot = replace(snapshot, gates=await self._gates(db, namespace_id, row["gate_ids"], snapshot))
            if snapshot.state not in (RunState.QUEUED, RunState.WAITING):
                return snapshot
            if snapshot.waits_on == 0:
                snapshot = replace(snapshot, siblings=await self._siblings(db, namespace_id, snapshot))
            return replace(snapshot, competition=await self._competition(db, namespace_id, snapshot))

    async def _with_executors(self, db: Connection, row: Record, snapshot: Snapshot) -> Snapshot:
        found = await self._fetch(db, "explain_executors", executor_id=row["executor_id"])
        executors = {each["node_id"]: _executor(each, snapshot) for each in found}
        present = [executor for executor in executors.values() if executor.state.is_present]
        snapshot = replace(snapshot, executor=executors.get(row["executor_id"]), executors=present)
        if snapshot.demands.fan:
            found = await self._database.fetch_on(db, self._part_queries["parts_of"], parent_id=snapshot.run_id)
            snapshot = replace(snapshot, parts=[part_of(each) for each in found])
        elif snapshot.demands.part:
            snapshot = await self._with_part(db, row, snapshot)
        return replace(snapshot, holders=await self._holders(db, snapshot)) if snapshot.demands.weighs else snapshot

    async def _with_part(self, db: Connection, row: Record, snapshot: Snapshot) -> Snapshot:
        """Of a part, only the executor that it is for counts."""
        found = await self._database.fetch_on(db, self._part_queries["part_of_run"], run_id=snapshot.run_id)
        if not found:
            return snapshot
        part = PartPlace(found[0]["parent_id"], found[0]["place"], found[0]["total"], found[0]["node"])
        own = [executor for executor in snapshot.executors if part.node in (None, executor.name)]
        return replace(snapshot, part=part, executors=own)

    async def _holders(self, db: Connection, snapshot: Snapshot) -> dict[str, Holder]:
        """What is said of them was true at the last heartbeat: those that have ended since are left out."""
        named = {
            run_id
            for executor in snapshot.executors
            for name in snapshot.demands.counted
            if name in executor.facts.resources
            for run_id, _ in executor.facts.resources[name].by
        }
        run_ids = [UUID(run_id) for run_id in sorted(named)[:NAMED_MAX] if _UUID.fullmatch(run_id)]
        namespace_id = await self._names.find_namespace(snapshot.namespace)
        rows = await self._fetch(db, "explain_named", namespace_id=namespace_id, run_ids=run_ids)
        return {str(row["run_id"]): Holder(row["run_id"], row["job_name"], row["since"]) for row in rows}

    async def _gates(
        self, db: Connection, namespace_id: int, gate_ids: list[int] | None, snapshot: Snapshot
    ) -> list[GateFacts]:
        if not gate_ids:
            return []
        rows = await self._fetch(db, "explain_gates", namespace_id=namespace_id, gate_ids=gate_ids)
        ids = [row["gate_id"] for row in rows]
        held = await self._fetch(db, "explain_holders", namespace_id=namespace_id, gate_ids=ids, limit=HOLDERS_MAX)
        holders: dict[int, list[Holder]] = {}
        for row in held:
            holders.setdefault(row["gate_id"], []).append(Holder(row["run_id"], row["job_name"], row["since"]))
        gates = [_gate(row, holders.get(row["gate_id"], [])) for row in rows]
        if snapshot.state is not RunState.WAITING:
            return gates
        return [
            replace(gate, ahead=await self._ahead(db, snapshot)) if gate.gate_id == snapshot.waits_on else gate
            for gate in gates
        ]

    async def _ahead(self, db: Connection, snapshot: Snapshot) -> int:
        [row] = await self._fetch(
            db,
            "explain_line",
            gate_id=snapshot.waits_on,
            priority=snapshot.priority,
            ready_at=snapshot.ready_at,
            now=snapshot.now,
            limit=AHEAD_MAX + 1,
        )
        return min(int(row["ahead"]), AHEAD_MAX + 1)

    async def _siblings(self, db: Connection, namespace_id: int, snapshot: Snapshot) -> list[Sibling]:
        rows = await self._fetch(
            db,
            "explain_siblings",
            namespace_id=namespace_id,
            job_id=snapshot.job_id,
            run_id=snapshot.run_id,
            limit=SIBLINGS_MAX,
        )
        return [Sibling(row["run_id"], RunState(row["state"]), row["scheduled_for"], row["started_at"]) for row in rows]

    async def _competition(self, db: Connection, namespace_id: int, snapshot: Snapshot) -> Competition:
        able = [executor.facts for executor in snapshot.executors if executor.fits(snapshot)]
        rooms = {facts.offers[snapshot.needs] for facts in able}
        lanes = await self._fetch(db, "explain_lanes")
        [row] = await self._fetch(
            db,
            "explain_competition",
            namespace_id=namespace_id,
            lanes=[lane["lane_id"] for lane in lanes if any(_wants(lane, facts, rooms) for facts in able)],
            priority=snapshot.priority,
            ready_at=snapshot.ready_at,
            now=snapshot.now,
            limit=AHEAD_MAX + 1,
        )
        return Competition(row["ahead"], row["weight"], row["weight_of_others"])

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _wants(lane: Record, facts: NodeFacts, rooms: set[str]) -> bool:
    """Whether runs of a lane take places in these rooms of an executor."""
    need, demands = read_lane_text(lane["needs"])
    takes = facts.serves(lane["queue"]) and facts.offers.get(need) in rooms
    if not takes or missing_labels(demands.labels, facts.labels):
        return False
    return not demands.weighs or not facts.too_small_for(need, demands)


def _snapshot(row: Record, namespace: str) -> Snapshot:
    need, demands = read_lane_text(row["needs"])
    return Snapshot(
        now=row["now"],
        run_id=row["run_id"],
        job_id=row["job_id"],
        job_name=row["job_name"],
        namespace=namespace,
        state=RunState(row["state"]),
        scheduled_for=row["scheduled_for"],
        ready_at=row["ready_at"],
        attempt=row["attempt"],
        priority=row["priority"],
        queue=row["queue"],
        needs=need,
        demands=demands,
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        reason=row["reason"],
        error=row["error"],
        failures=row["failures"],
        retry=None if row["max_retries"] is None else retry_from_json(row["max_retries"], from_json(row["retry"])),
        at_most_once=policy_from_json(row["policy"]).at_most_once,
        waits_on=row["waits_on"],
        expires_at=row["expires_at"],
        job_state=_JOB_STATES[row["status"]],
        pause_reason=row["pause_reason"],
        paused_by=row["job_paused_by"],
        paused_at=row["job_paused_at"],
        pause_until=row["job_pause_until"],
        held_by=[pause_of(one, namespace).words for one in from_json(row["held_by"]) or ()],
        queue_paused_at=row["paused_at"],
        queue_paused_by=row["paused_by"],
        queue_pause_reason=row["queue_pause_reason"],
        queue_pause_until=row["queue_pause_until"],
    )


def _executor(row: Record, snapshot: Snapshot) -> Executor:
    facts = read_facts(from_json(row["facts"]))
    state = node_state(Orders(row["orders"]), facts, row["lease_until"], row["ended_at"], snapshot.now)
    return Executor(row["name"], state, facts, row["lease_until"])


def _gate(row: Record, holders: list[Holder]) -> GateFacts:
    rate = None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_seconds"])
    starts = Starts() if row["rate_bucket"] is None else Starts(row["rate_bucket"], tuple(row["rate_starts"] or ()))
    return GateFacts(row["gate_id"], row["kind"], row["name"], row["capacity"], row["taken"], rate, starts, holders)
