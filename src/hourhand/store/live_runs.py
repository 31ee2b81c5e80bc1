"""Live runs: claimed, started, finished or brought back, hundreds at a time, each write under its fence."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.run import Claim
from hourhand.model.states import RunEvent, RunState, sources
from hourhand.ports.stores import Finish, Head, Held, Requeue
from hourhand.store.jsons import from_json, to_json
from hourhand.store.names import Names

_MAY_FINISH: Final = sorted(
    {*sources(RunEvent.SUCCEED), *sources(RunEvent.CANCEL)} - {RunState.QUEUED, RunState.WAITING}
)
_MAY_RETURN: Final = sources(RunEvent.RELEASE)


class LiveRuns:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)

    async def peek_ready(self, lanes: Sequence[int]) -> list[Head]:
        rows = await self._database.fetch(self._queries["peek_ready"], lanes=lanes)
        return [Head(row["lane_id"], row["priority"], row["ready_at"]) for row in rows]

    async def claim_runs(self, executor_id: int, heads: Sequence[Head], until: datetime, limit: int) -> list[Claim]:
        rows = await self._database.fetch(
            self._queries["claim_runs"],
            lanes=[head.lane_id for head in heads],
            priorities=[head.priority for head in heads],
            until=until,
            limit=limit,
            executor_id=executor_id,
        )
        lanes, namespaces = self._names.known, self._names.known_namespaces
        if any(row["namespace_id"] not in namespaces for row in rows):
            namespaces = await self._names.learn_namespaces()
        # By position, in the order of the statement: names cost more than the values at this rate.
        return [
            Claim(
                run_id,
                job_id,
                namespaces[namespace_id],
                name,
                kind,
                lanes[lane_id][1],
                from_json(payload),
                scheduled_for,
                ready_at,
                fence,
                attempt,
                failures,
                losses,
                max_retries,
                from_json(retry),
                timeout_seconds,
            )
            for (
                run_id, job_id, namespace_id, lane_id, scheduled_for, ready_at, fence, attempt, failures, losses, name,
                kind, max_retries, retry, timeout_seconds, payload,
            ) in rows
        ]  # fmt: skip

    async def start_runs(self, starts: Sequence[tuple[UUID, int, datetime]]) -> None:
        run_ids, fences, started = zip(*starts, strict=True)
        await self._database.fetch(self._queries["start_runs"], run_ids=run_ids, fences=fences, started=started)

    async def finish_runs(self, finishes: Sequence[Finish]) -> set[UUID]:
        rows = await self._database.fetch(
            self._queries["finish_runs"],
            run_ids=[finish.run_id for finish in finishes],
            fences=[finish.fence for finish in finishes],
            states=[finish.state for finish in finishes],
            started=[finish.started_at for finish in finishes],
            ended=[finish.ended_at for finish in finishes],
            reasons=[finish.reason for finish in finishes],
            errors=[finish.error for finish in finishes],
            results=[None if finish.result is None else to_json(finish.result) for finish in finishes],
            from_states=_MAY_FINISH,
        )
        return {row["run_id"] for row in rows}

    async def requeue_runs(self, requeues: Sequence[Requeue]) -> set[UUID]:
        rows = await self._database.fetch(
            self._queries["requeue_runs"],
            run_ids=[requeue.run_id for requeue in requeues],
            fences=[requeue.fence for requeue in requeues],
            ready=[requeue.ready_at for requeue in requeues],
            failed=[int(requeue.failed) for requeue in requeues],
            lost=[int(requeue.lost) for requeue in requeues],
            states=[requeue.state for requeue in requeues],
            started=[requeue.started_at for requeue in requeues],
            ended=[requeue.ended_at for requeue in requeues],
            reasons=[requeue.reason for requeue in requeues],
            errors=[requeue.error for requeue in requeues],
            from_states=_MAY_RETURN,
        )
        return {row["run_id"] for row in rows}

    async def cancelling_runs(self, executor_id: int) -> list[tuple[UUID, int]]:
        rows = await self._database.fetch(self._queries["cancelling_runs"], executor_id=executor_id)
        return [(row["run_id"], row["fence"]) for row in rows]

    async def held_by(self, executor_ids: Sequence[int], limit: int) -> list[Held]:
        rows = await self._database.fetch(self._queries["held_by"], executor_ids=executor_ids, limit=limit)
        return [
            Held(
                row["run_id"],
                row["fence"],
                row["failures"],
                row["losses"],
                RunState(row["state"]),
                row["started_at"],
            )
            for row in rows
        ]
