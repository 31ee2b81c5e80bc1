"""Runs as they are read: live and finished ones in one shape, and what people ask of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from hourhand.database.connections import Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.ids import lowest_id_at, scheduled_run_id
from hourhand.model.jitter import start_of
from hourhand.model.job import Job
from hourhand.model.parts import is_part
from hourhand.model.policy import KeyFault, Overlap, Policy, policy_from_json
from hourhand.model.run import Attempt, Run
from hourhand.model.run_blobs import reference_in
from hourhand.model.schedule import timing_from_json
from hourhand.model.states import Cause, RunState
from hourhand.model.usage import Usage
from hourhand.ports.stores import Walked
from hourhand.store.gates import Gates, WantedGate, array_text, gate_ids, gates_of, gates_of_policy
from hourhand.store.jsons import from_json, to_json
from hourhand.store.names import Names, lane_key
from hourhand.store.progress import progress_in

_decode_usage: Final = msgspec.json.Decoder(Usage).decode
LOOK: Final = 10_000
"""Runs that one page looks at: some ten milliseconds. Behind them the next page goes on."""
_LOWEST_ID: Final = UUID(int=0)
_HIGHEST_ID: Final = UUID(int=(1 << 128) - 1)


class Runs:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "runs.sql", database.schema)
        self._gates = Gates(database)
        self._live_queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)

    async def get_run(self, namespace_id: int, run_id: UUID) -> Run | None:
        # Live first: a run that finishes between the two looks is then found in the second.
        for name in ("get_live_run", "get_finished_run"):
            row = await self._database.fetch_one(self._queries[name], namespace_id=namespace_id, run_id=run_id)
            if row is not None:
                return self._run(row, await self._names.namespace_name(namespace_id))
        return None

    async def list_runs(
        self,
        namespace_id: int,
        job: Job | None,
        states: Sequence[RunState],
        before: UUID | None,
        limit: int,
        *,
        reasons: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Walked[Run]:
        # A run that is not finished has no reason yet, and one that succeeded never gets one.
        live_states = [] if reasons else [state for state in states if not state.is_final]
        final_states = [state for state in states if state.is_final and not (reasons and state is RunState.SUCCEEDED)]
        bounds = {
            "before": min(before or _HIGHEST_ID, _HIGHEST_ID if until is None else lowest_id_at(until)),
            "since": _LOWEST_ID if since is None else lowest_id_at(since),
        }
        asked: dict[str, Any] = {"namespace_id": namespace_id, "limit": limit, **bounds}
        walks: list[list[Record]] = []
        if live_states and job is None:
            walks.append(await self._fetch("list_live_runs", **asked, states=live_states, look=LOOK))
        elif live_states and job is not None:
            of_job = {"job_id": job.job_id, "once_run_id": _once_run_id(job)}
            walks.append(await self._fetch("list_live_runs_of_job", **asked, states=live_states, **of_job))
        if final_states:
            suffix, more = ("", {}) if job is None else ("_of_job", {"job_id": job.job_id})
            asked |= {"states": final_states, "reasons": reasons, "look": LOOK}
            walks.append(await self._fetch(f"list_finished_runs{suffix}", **asked, **more))
        return self._merged(walks, limit, await self._names.namespace_name(namespace_id))

    def _merged(self, walks: Sequence[Sequence[Record]], limit: int, namespace: str) -> Walked[Run]:
        """As one list. Where one of them gave up, the others are not followed further: what they have is told again by
        the next page."""
        reached = max((place for rows in walks if (place := _reached(rows)) is not None), default=None)
        # A run that finished between the two looks is in both; the later look has its end.
        found = {row["run_id"]: row for rows in walks for row in rows if row.get("fits", True)}
        kept = [run_id for run_id in found if reached is None or run_id >= reached]
        newest = sorted(kept, reverse=True)[:limit]
        return Walked([self._run(found[run_id], namespace) for run_id in newest], reached)

    async def _fetch(self, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch(self._queries[query], **values)

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
                None if row["late_state"] is None else RunState(row["late_state"]).word,
                row["late_at"],
                _usage(row),
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
        overlap: str | None = None,
        behind: bool = False,
    ) -> bool:
        key = lane_key(namespace_id, job.definition)
        lanes = await self._names.lane_ids([key])
        gates = gates_of(namespace_id, job.job_id, job.definition, payload)
        rows = await self._database.fetch(
            self._live_queries["insert_manual_run"],
            run_id=run_id,
            job_id=job.job_id,
            namespace_id=namespace_id,
            lane_id=lanes[key],
            version=job.version,
            priority=job.definition.priority,
            requested_by=requested_by,
            note=note,
            payload=None if payload is None else to_json(payload),
            now=now,
            overlap=overlap,
            state=RunState.WAITING if behind else RunState.QUEUED,
            waits_on=0 if behind else None,
            gate_ids=gate_ids(await self._gates.numbers(gates, keep=True), gates),
            expires_at=job.definition.policy.expires_at(now, now),
        )
        return bool(rows)

    async def list_retries(self, run_id: UUID) -> list[UUID]:
        rows = await self._database.fetch(self._queries["list_retries"], run_id=run_id)
        return [row["run_id"] for row in rows]

    async def pick_retries(
        self,
        namespace_id: int,
        job_id: UUID | None,
        states: Sequence[RunState],
        reasons: Sequence[str] | None,
        since: datetime | None,
        until: datetime | None,
        before: UUID | None,
        again: bool,
        limit: int,
    ) -> Walked[UUID]:
        bounds = [bound for bound in (before, until and lowest_id_at(until)) if bound is not None]
        suffix, of_job = ("", {}) if job_id is None else ("_of_job", {"job_id": job_id})
        rows = await self._database.fetch(
            self._queries[f"pick_retries{suffix}"],
            namespace_id=namespace_id,
            **of_job,
            states=states,
            reasons=reasons,
            since=_LOWEST_ID if since is None else lowest_id_at(since),
            before=min(bounds, default=_HIGHEST_ID),
            again=again,
            limit=limit,
            look=LOOK,
        )
        return Walked([row["run_id"] for row in rows if row["fits"]], _reached(rows))

    @tried_twice
    async def retry_runs(
        self,
        namespace_id: int,
        new_ids: Mapping[UUID, UUID],
        seen: Sequence[UUID],
        requested_by: str,
        note: str | None,
        again: bool,
        now: datetime,
    ) -> list[UUID]:
        facts = await self._database.fetch(
            self._queries["retry_facts"], namespace_id=namespace_id, run_ids=list(new_ids)
        )
        repeats = [each for row in facts if (each := _again(namespace_id, row)) is not None]
        numbers = await self._gates.numbers([gate for each in repeats for gate in each.gates], keep=True)
        async with self._database.transaction() as db:
            await self._database.fetch_on(db, self._queries["lock_retries"], namespace_id=namespace_id)
            rows = await self._database.fetch_on(
                db,
                self._queries["insert_retries"],
                namespace_id=namespace_id,
                run_ids=[each.run_id for each in repeats],
                new_ids=[new_ids[each.run_id] for each in repeats],
                gate_ids=[array_text(gate_ids(numbers, each.gates)) for each in repeats],
                # A retry begins anew: what it may wait is counted from now.
                expires=[each.policy.expires_at(now, now) for each in repeats],
                behind=[each.keeps_order for each in repeats],
                versions=[each.version for each in repeats],
                seen=seen,
                again=again,
                requested_by=requested_by,
                note=note,
                now=now,
            )
        return [row["run_id"] for row in rows]

    @tried_twice
    async def cancel_runs(
        self, namespace_id: int, run_ids: Sequence[UUID], reason: str, now: datetime
    ) -> dict[UUID, bool]:
        async with self._database.transaction() as db:
            await self._database.fetch_on(db, self._live_queries["lock_runs"], run_ids=run_ids)
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

    async def count_live(self, namespace_id: int) -> dict[RunState, int]:
        rows = await self._database.fetch(self._queries["count_live"], namespace_id=namespace_id)
        return {RunState(row["state"]): row["count"] for row in rows}

    async def count_finished(self, namespace_id: int, since: datetime) -> dict[RunState, int]:
        rows = await self._database.fetch(
            self._queries["count_finished"], namespace_id=namespace_id, since=lowest_id_at(since)
        )
        return {RunState(row["state"]): row["count"] for row in rows}

    @staticmethod
    def _run(row: Record, namespace: str) -> Run:
        result = from_json(row["result"])
        reference = reference_in(result)
        return Run(
            run_id=row["run_id"],
            job_id=row["job_id"],
            job_name=row["job_name"] or "",
            namespace=namespace,
            state=RunState(row["state"]),
            cause=Cause.PART if is_part(row["run_id"]) else Cause(row["cause"]),
            scheduled_for=row["scheduled_for"],
            ready_at=row["ready_at"] or _spread_start(row),
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            attempt=row["attempt"],
            executor=row["executor"],
            version=row["version"],
            reason=row["reason"],
            error=row["error"],
            result=result if reference is None else None,
            result_reference=reference,
            requested_by=row["requested_by"],
            note=row["note"],
            retry_of=row["retry_of"],
            backfill_id=row["backfill_id"],
            progress=progress_in(row) if "at" in row else None,  # finished runs have none
            usage=_usage(row),
        )


def _reached(rows: Sequence[Record]) -> UUID | None:
    return rows[-1]["run_id"] if rows and rows[-1].get("is_last") else None


def _usage(row: Record) -> Usage | None:
    said = row.get("usage")
    return None if said is None else _decode_usage(said)


def _spread_start(row: Record) -> datetime | None:
    """When a finished run might start, if its job spreads starts: the jitter's share follows from job and due time."""
    spread = row.get("spread")
    if spread is None:
        return None
    timing = timing_from_json(from_json(spread))
    assert timing.jitter is not None
    due: datetime = row["scheduled_for"]
    return start_of(due, timing.next_after(due), timing.jitter, row["job_id"])


class _Again(NamedTuple):
    """A finished run, as it is to be run again."""

    run_id: UUID
    policy: Policy
    gates: list[WantedGate]
    version: int
    keeps_order: bool
    """Runs of a job that does not overlap are repeated one after the other."""


def _again(namespace_id: int, row: Record) -> _Again | None:
    """None when the job wants a key by now that the run's own payload cannot fill."""
    policy = policy_from_json(row["policy"])
    try:
        gates = gates_of_policy(namespace_id, row["job_id"], policy, from_json(row["payload"]) or {})
    except KeyFault:
        return None
    keeps_order = policy.overlap_of(row["recurring"]) is not Overlap.ALLOW
    return _Again(row["run_id"], policy, gates, row["version"], keeps_order)


def _once_run_id(job: Job) -> UUID | None:
    due_at = job.definition.timing.only_instant
    return None if due_at is None else scheduled_run_id(due_at, job.job_id)
