"""What a caller may ask of the cluster: who is there, who leads, how much is going on, is it well."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from hourhand.model.states import RunState
from hourhand.operations.jobs import Clock
from hourhand.operations.requests import Caller, ClusterStatus, NodeStatus
from hourhand.ports.stores import NodeRow, NodeStore, RunStore, TimetableStore

COUNTING_SHARE = 20
"""Counting takes at most a twentieth of the time of one connection."""
READY_SECONDS_MAX = 2.0
"""Whoever asks whether we are ready does not wait long for the answer."""


class ClusterOperations:
    def __init__(
        self,
        nodes: NodeStore,
        runs: RunStore,
        timetable: TimetableStore,
        clock: Clock,
        database_facts: Callable[[], Awaitable[dict[str, str]]],
        late_loops: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`late_loops`: which loops of this very node have not come through for too long."""
        self._nodes = nodes
        self._runs = runs
        self._timetable = timetable
        self._clock = clock
        self._database_facts = database_facts
        self._late_loops = late_loops
        self._counted: dict[int, tuple[float, Mapping[RunState, int]]] = {}
        """For each namespace the runs of the last hour, and until when that will do."""

    async def status(self, caller: Caller) -> ClusterStatus:
        now = self._clock.now()
        rows = await self._nodes.present_nodes()
        live = await self._runs.count_live(caller.namespace_id)
        finished = await self._last_hour(caller.namespace_id, now)
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
                    dict(row.facts) if caller.cluster_wide else {},  # paths and processes are no tenant's business
                )
                for row in rows
            ],
            shards_owned=sum(owned),
            live={state.word: count for state, count in live.items()},
            last_hour={state.word: count for state, count in finished.items()},
            next_due=await self._timetable.next_cursor(),
            database=await self._database_facts(),
        )

    async def _last_hour(self, namespace_id: int, now: datetime) -> Mapping[RunState, int]:
        """Counted anew after a time that grows with what counting takes: at ten thousand runs a second an hour has 36
        million, and whoever watches asks again and again."""
        good_until, counted = self._counted.get(namespace_id, (0.0, None))
        begun = time.monotonic()
        if counted is None or begun > good_until:
            counted = await self._runs.count_finished(namespace_id, now - timedelta(hours=1))
            ended = time.monotonic()
            self._counted[namespace_id] = ended + COUNTING_SHARE * (ended - begun), counted
        return counted

    async def readiness(self) -> dict[str, str]:
        """Check name → "ok", or what is wrong. Answers soon, whatever the database does."""
        late = self._late_loops()
        checks = {"database": "ok", "loops": f"late: {', '.join(late)}" if late else "ok"}
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                rows = await self._nodes.present_nodes()
        except Exception as fault:  # whatever keeps us from the database is the answer
            return {**checks, "database": f"cannot be reached: {type(fault).__name__}"}
        for role in ("scheduler", "executor"):
            live = [row for row in rows if row.role == role and row.lease_until > row.now]
            checks[role] = "ok" if live else f"no live {role}"
            if role == "scheduler" and live:
                checks[role] = _planning(live)
        return checks


def _planning(schedulers: Sequence[NodeRow]) -> str:
    """One that comes through is enough: the others' shards are shown as late, and go to it when they die."""
    late = [set(row.facts.get("late_loops") or ()) for row in schedulers]
    return "ok" if not all(late) else f"late: {', '.join(sorted(set().union(*late)))}"
