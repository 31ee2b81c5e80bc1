"""Backfills: kept, released a few runs at a time under the leader's lease, counted."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from hourhand.database.connections import Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.backfill import Backfill, BackfillRequest, BackfillState, Existing
from hourhand.model.calendar import calendar_from_json, calendar_to_json
from hourhand.model.exclusion import TimingAround, around
from hourhand.model.ids import scheduled_run_id
from hourhand.model.job import Job
from hourhand.model.policy import Overlap, Rate, policy_from_json
from hourhand.model.schedule import Timing, timing_from_json, timing_to_json
from hourhand.model.states import RunState
from hourhand.ports.backfill_stores import NewBackfill, OpenBackfill, Release
from hourhand.store.gates import Gates, gate_ids, gates_of_policy
from hourhand.store.jsons import from_json, to_json


class Backfills:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "backfills.sql", database.schema)
        self._gates = Gates(database)

    @tried_twice
    async def insert_backfill(self, new: NewBackfill, open_max: int) -> UUID | str | None:
        request = new.request
        async with self._database.transaction() as db:
            await self._database.fetch_on(db, self._queries["lock_backfills"], namespace_id=new.namespace_id)
            rows = await self._database.fetch_on(
                db,
                self._queries["rival_backfill"],
                namespace_id=new.namespace_id,
                job_id=new.job_id,
                first_due=new.first_due,
                last_due=new.last_due,
            )
            if not rows or rows[0]["version"] != new.version:
                return "version"
            rival: UUID | None = rows[0]["rival"]
            if rival is not None:
                return rival
            if rows[0]["open"] >= open_max:
                return "open"
            await self._database.fetch_on(
                db,
                self._queries["insert_backfill"],
                backfill_id=new.backfill_id,
                namespace_id=new.namespace_id,
                job_id=new.job_id,
                timing=to_json(_kept_timing(new.timing)),
                from_time=request.start,
                to_time=request.end,
                first_due=new.first_due,
                last_due=new.last_due,
                total=new.total,
                existing=request.existing.value,
                parallelism=request.parallelism,
                rate_count=request.rate and request.rate.count,
                rate_seconds=request.rate and request.rate.seconds,
                overlap=request.overlap and request.overlap.value,
                reason=request.reason,
                note=request.note,
                now=new.created_at,
                created_by=new.created_by,
            )
        return None

    async def get_backfill(self, namespace_id: int, backfill_id: UUID) -> Backfill | None:
        row = await self._database.fetch_one(
            self._queries["get_backfill"], namespace_id=namespace_id, backfill_id=backfill_id
        )
        return None if row is None else _backfill(row)

    async def list_backfills(
        self, namespace_id: int, job_id: UUID | None, states: Sequence[BackfillState], before: UUID | None, limit: int
    ) -> list[Backfill]:
        rows = await self._database.fetch(
            self._queries["list_backfills"],
            namespace_id=namespace_id,
            job_id=job_id,
            states=[state.value for state in states],
            before=before,
            limit=limit,
        )
        return [_backfill(row) for row in rows]

    async def set_backfill_state(
        self, namespace_id: int, backfill_id: UUID, state: BackfillState, reason: str | None, by: str, now: datetime
    ) -> bool:
        rows = await self._database.fetch(
            self._queries["set_backfill_state"],
            namespace_id=namespace_id,
            backfill_id=backfill_id,
            state=state.value,
            reason=reason,
            changed_by=by,
            now=now,
        )
        return bool(rows)

    async def unfinished_runs(self, backfill_id: UUID) -> list[UUID]:
        rows = await self._database.fetch(self._queries["unfinished_runs"], backfill_id=backfill_id)
        return [row["run_id"] for row in rows]

    async def runs_of_dues(
        self, namespace_id: int, job_id: UUID, dues: Sequence[datetime]
    ) -> dict[datetime, Collection[RunState]]:
        rows = await self._database.fetch(
            self._queries["runs_of_dues"],
            namespace_id=namespace_id,
            job_id=job_id,
            dues=dues,
            run_ids=[scheduled_run_id(due, job_id) for due in dues],
        )
        found: dict[datetime, list[RunState]] = defaultdict(list)
        for row in rows:
            found[row["due"]].append(RunState(row["state"]))
        return dict(found)

    async def usual_seconds(self, job: Job, runs: int) -> float | None:
        row = await self._database.fetch_one(self._queries["usual_seconds"], job_id=job.job_id, runs=runs)
        return None if row is None else row["seconds"]

    # --- what the leader does ----------------------------------------------------------------------------

    async def settle_backfills(self, node_id: int, epoch: int, now: datetime) -> int:
        row = await self._database.fetch_one(self._queries["settle_backfills"], node_id=node_id, epoch=epoch)
        await self._database.fetch(self._queries["end_backfills"], node_id=node_id, epoch=epoch, now=now)
        return 0 if row is None else row["runs"]

    async def open_backfills(self, now: datetime, limit: int) -> list[OpenBackfill]:
        rows = await self._database.fetch(self._queries["open_backfills"], now=now, limit=limit)
        return [
            OpenBackfill(
                _backfill(row),
                row["lately"],
                row["version"],
                policy_from_json(row["policy"]),
                from_json(row["payload"]) or {},
                row["recurring"],
                row["job_cancelled"],
            )
            for row in rows
        ]

    async def release_runs(self, node_id: int, epoch: int, release: Release, now: datetime) -> list[UUID] | None:
        backfill, policy = release.open.backfill, release.open.policy
        gates = gates_of_policy(backfill.namespace_id, backfill.job_id, policy, release.open.payload)
        numbers = await self._gates.numbers(gates, keep=True)
        rows = await self._database.fetch(
            self._queries["release_runs"],
            node_id=node_id,
            epoch=epoch,
            namespace_id=backfill.namespace_id,
            job_id=backfill.job_id,
            version=release.open.version,
            backfill_id=backfill.backfill_id,
            expected=backfill.next_due,
            next_due=release.next_due,
            left_out=release.left_out,
            run_ids=[run_id for run_id, _ in release.runs],
            dues=[due for _, due in release.runs],
            overlap=_overlap(release.open),
            gate_ids=gate_ids(numbers, gates),
            # It begins anew: what it may wait is counted from now.
            expires_at=policy.expires_at(now, now),
            now=now,
        )
        return list(rows[0]["run_ids"] or ()) if rows else None

    async def end_with_job(self, node_id: int, epoch: int, backfill_id: UUID, now: datetime) -> None:
        await self._database.fetch(
            self._queries["end_with_job"], node_id=node_id, epoch=epoch, backfill_id=backfill_id, now=now
        )

    async def forget_runs(self, before: datetime, limit: int) -> int:
        return len(await self._database.fetch(self._queries["forget_runs"], before=before, limit=limit))


def _overlap(open_backfill: OpenBackfill) -> str | None:
    """What counts when a run of it meets an unfinished one. A job that does not overlap has its runs wait for their
    turn: a due time that was asked for by name is not skipped."""
    if open_backfill.backfill.request.overlap is not None:
        return open_backfill.backfill.request.overlap.value
    own = open_backfill.policy.overlap_of(open_backfill.recurring)
    return None if own is Overlap.ALLOW else Overlap.QUEUE_ALL.value


def _kept_timing(timing: Timing) -> dict[str, Any]:
    """With what its calendars say at this moment: a change of theirs does not change which times are run."""
    stored = timing_to_json(timing)
    if isinstance(timing, TimingAround):
        stored["rules"] = dict(zip(timing.names, map(calendar_to_json, timing.rules), strict=True))
    return stored


def _timing_of(stored: Mapping[str, Any]) -> Timing:
    rules = {name: calendar_from_json(rule) for name, rule in stored.get("rules", {}).items()}
    return around(timing_from_json(stored), rules)


def _backfill(row: Record) -> Backfill:
    request = BackfillRequest(
        start=row["from_time"],
        end=row["to_time"],
        existing=Existing(row["existing"]),
        parallelism=row["parallelism"],
        rate=None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_seconds"]),
        overlap=None if row["overlap"] is None else Overlap(row["overlap"]),
        reason=row["reason"],
        note=row["note"],
    )
    return Backfill(
        backfill_id=row["backfill_id"],
        namespace_id=row["namespace_id"],
        job_id=row["job_id"],
        job_name=row["job_name"],
        request=request,
        timing=_timing_of(from_json(row["timing"])),
        state=BackfillState(row["state"]),
        **{
            name: row[name]
            for name in (
                "first_due", "last_due", "total", "next_due", "state_reason", "left_out", "live", "succeeded", "failed",
                "cancelled", "skipped", "created_at", "created_by", "changed_at", "changed_by", "ended_at",
            )
        },
    )  # fmt: skip
