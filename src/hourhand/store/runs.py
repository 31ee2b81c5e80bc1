"""Runs as they are read: live and finished ones in one shape, and what people ask of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.ids import lowest_id_at, scheduled_run_id
from hourhand.model.job import Job
from hourhand.model.run import Attempt, Run
from hourhand.model.states import Cause, RunState
from hourhand.store.jsons import from_json, to_json
from hourhand.store.names import Names

_HIGHEST_ID: Final = UUID(int=(1 << 128) - 1)


class Runs:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "runs.sql", database.schema)
        self._live_queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)

    async def get_run(self, namespace_id: int, run_id: UUID) -> Run | None:
        # Live first: a run that finishes between the two looks is then found in the second.
        for name in ("get_live_run", "get_finished_run"):
            row = await self._database.fetch_one(self._queries[name], namespace_id=namespace_id, run_id=run_id)
            if row is not None:
                return self._run(row, await self._names.namespace_name(namespace_id))
        return None

    async def list_runs(
        self, namespace_id: int, job: Job | None, states: Sequence[RunState], before: UUID | None, limit: int
    ) -> list[Run]:
        live_states = [state for state in states if not state.is_final]
        final_states = [state for state in states if state.is_final]
        of_job: dict[str, Any] = {} if job is None else {"job_id": job.job_id}
        suffix = "" if job is None else "_of_job"
        rows: list[Record] = []
        if live_states:
            once = {} if job is None else {"once_run_id": _once_run_id(job)}
            rows += await self._database.fetch(
                self._queries[f"list_live_runs{suffix}"],
                namespace_id=namespace_id, states=live_states, before=before, limit=limit, **of_job, **once,
            )  # fmt: skip
        if final_states:
            rows += await self._database.fetch(
                self._queries[f"list_finished_runs{suffix}"],
                namespace_id=namespace_id, states=final_states, before=before or _HIGHEST_ID, limit=limit, **of_job,
            )  # fmt: skip
        namespace = await self._names.namespace_name(namespace_id)
        # A run that finished between the two looks is in both; the later look has its end.
        found = {row["run_id"]: row for row in rows}
        newest = sorted(found.values(), key=lambda row: row["run_id"], reverse=True)[:limit]
        return [self._run(row, namespace) for row in newest]

    async def list_attempts(self, run_id: UUID) -> list[Attempt]:
        rows = await self._database.fetch(self._queries["list_attempts"], run_id=run_id)
        return [
            Attempt(
                row["attempt"],
                RunState(row["state"]).word,
                row["reason"],
                row["error"],
                row["executor"],
                row["started_at"],
                row["ended_at"],
            )
            for row in rows
        ]

    async def insert_manual_run(
        self,
        run_id: UUID,
        job: Job,
        namespace_id: int,
        requested_by: str,
        note: str | None,
        payload: Any,
        now: datetime,
    ) -> bool:
        lanes = await self._names.lane_ids([(job.definition.queue, job.definition.needs)])
        rows = await self._database.fetch(
            self._live_queries["insert_manual_run"],
            run_id=run_id,
            job_id=job.job_id,
            namespace_id=namespace_id,
            lane_id=lanes[job.definition.queue, job.definition.needs],
            version=job.version,
            priority=job.definition.priority,
            requested_by=requested_by,
            note=note,
            payload=None if payload is None else to_json(payload),
            now=now,
        )
        return bool(rows)

    async def cancel_runs(
        self, namespace_id: int, run_ids: Sequence[UUID], reason: str, now: datetime
    ) -> dict[UUID, bool]:
        async with self._database.transaction() as db:
            ended = await self._database.fetch_on(
                db,
                self._live_queries["cancel_waiting"],
                run_ids=run_ids,
                namespace_id=namespace_id,
                now=now,
                reason=reason,
            )
            asked = await self._database.fetch_on(
                db, self._live_queries["request_cancel"], run_ids=run_ids, namespace_id=namespace_id
            )
        return {row["run_id"]: True for row in ended} | {row["run_id"]: False for row in asked}

    async def count_runs(self, namespace_id: int, since: datetime) -> tuple[dict[RunState, int], dict[RunState, int]]:
        live = await self._database.fetch(self._queries["count_live"], namespace_id=namespace_id)
        finished = await self._database.fetch(
            self._queries["count_finished_since"], namespace_id=namespace_id, since=lowest_id_at(since)
        )
        counted = [{RunState(row["state"]): row["count"] for row in rows} for rows in (live, finished)]
        return counted[0], counted[1]

    @staticmethod
    def _run(row: Record, namespace: str) -> Run:
        return Run(
            run_id=row["run_id"],
            job_id=row["job_id"],
            job_name=row["job_name"] or "",
            namespace=namespace,
            state=RunState(row["state"]),
            cause=Cause(row["cause"]),
            scheduled_for=row["scheduled_for"],
            ready_at=row["ready_at"],
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            attempt=row["attempt"],
            executor=row["executor"],
            version=row["version"],
            reason=row["reason"],
            error=row["error"],
            result=from_json(row["result"]),
            requested_by=row["requested_by"],
            note=row["note"],
        )


def _once_run_id(job: Job) -> UUID | None:
    due_at = job.definition.timing.only_instant
    return None if due_at is None else scheduled_run_id(due_at, job.job_id)
