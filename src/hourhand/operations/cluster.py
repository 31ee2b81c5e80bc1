"""What a caller may ask of the cluster: who is there, who leads, how much is going on, is it well."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from hourhand.operations.jobs import Clock
from hourhand.operations.requests import Caller, ClusterStatus, NodeStatus
from hourhand.ports.stores import NodeStore, RunStore, TimetableStore


class ClusterOperations:
    def __init__(
        self,
        nodes: NodeStore,
        runs: RunStore,
        timetable: TimetableStore,
        clock: Clock,
        database_facts: Callable[[], Awaitable[dict[str, str]]],
    ) -> None:
        self._nodes = nodes
        self._runs = runs
        self._timetable = timetable
        self._clock = clock
        self._database_facts = database_facts

    async def status(self, caller: Caller) -> ClusterStatus:
        now = self._clock.now()
        rows = await self._nodes.present_nodes()
        live, finished = await self._runs.count_runs(caller.namespace_id, now - timedelta(hours=1))
        schedulers = [row.node_id for row in rows if row.role == "scheduler"]
        owned = [(await self._nodes.owned_shards(node_id))[0] for node_id in schedulers]
        return ClusterStatus(
            now=now,
            leader=await self._nodes.leader(),
            nodes=[
                NodeStatus(
                    row.node_id,
                    row.role,
                    row.name,
                    row.started_at,
                    round((row.lease_until - row.now).total_seconds(), 3),
                    dict(row.facts),
                )
                for row in rows
            ],
            shards_owned=sum(owned),
            live={state.word: count for state, count in live.items()},
            last_hour={state.word: count for state, count in finished.items()},
            next_due=await self._timetable.next_cursor(),
            database=await self._database_facts(),
        )

    async def readiness(self) -> dict[str, str]:
        """Check name → "ok", or what is wrong."""
        checks = {"database": "ok", "scheduler": "ok", "executor": "ok"}
        try:
            rows = await self._nodes.present_nodes()
        except Exception as fault:  # whatever keeps us from the database is the answer
            return {"database": f"cannot be reached: {type(fault).__name__}"}
        for role in ("scheduler", "executor"):
            if not any(row.role == role and row.lease_until > row.now for row in rows):
                checks[role] = f"no live {role}"
        return checks
