"""Jobs: storing, reading and changing definitions, with the cursor and the unstarted runs that hang on them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange, plan
from hourhand.model.errors import Conflict
from hourhand.model.exclusion import TimingAround, plan_around
from hourhand.model.ids import lowest_id_at, scheduled_run_id, shard_of
from hourhand.model.job import Job, JobDefinition
from hourhand.model.local_time import ZoneFault
from hourhand.model.policy import ORDINARY, KeyFault, policy_from_json, policy_to_json
from hourhand.model.retry import retry_from_json, retry_to_json
from hourhand.model.schedule import At, Now, Timing, timing_from_json
from hourhand.model.states import EXECUTING_STATES, JobState, Reason, RunState
from hourhand.ports.stores import NewJob
from hourhand.store.gates import Gates, WantedGate, array_text, gate_ids, gates_of, gates_of_policy
from hourhand.store.job_rows import (
    Numbers,
    Tables,
    catchup_from_json,
    catchup_to_json,
    cursor_promises,
    rows_of,
    timing_column,
    values_of_few,
)
from hourhand.store.jsons import from_json, to_json, to_json_or_null
from hourhand.store.names import Names, lane_key
from hourhand.store.packed_rows import Packed
from hourhand.store.timing_facts import Standing, TimingFacts, marked

_STATUS: Final = {JobState.SCHEDULED: 0, JobState.PAUSED: 1, JobState.CANCELLED: 2}

_TICK: Final = timedelta(microseconds=1)
OVERDUE_SLICES_MAX: Final = 50
"""A change of a job counts this many slices of due times that nobody planned; more is left to a scheduler."""


class Jobs:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "jobs.sql", database.schema)
        self._gates = Gates(database)
        self._run_queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)
        self._facts = TimingFacts(database)

    @tried_twice
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> None:
        """Stores all or none; returns after the commit."""
        numbers = await self.numbers(jobs)
        few = values_of_few(jobs, numbers[0])
        if few is not None:
            await self._database.fetch(self._queries["insert_few"], **few)
            return
        tables = rows_of(jobs, numbers)
        async with self._database.transaction() as db:
            await self.copy(db, tables)

    async def numbers(self, jobs: Sequence[NewJob], keep: bool = False) -> Numbers:
        """What must be known before the rows of jobs can be made. `keep`: gates that exist keep their limits until
        `put_limits`."""
        lanes = await self._names.lane_ids(lane_key(new.namespace_id, new.definition) for new in jobs)
        wanted = _gates_of(jobs)
        numbers = await self._gates.numbers([gate for gates in wanted.values() for gate in gates], keep=keep)
        return lanes, {job_id: gate_ids(numbers, gates) for job_id, gates in wanted.items()}

    async def put_limits(self, db: Connection, jobs: Sequence[NewJob]) -> None:
        """Gives their gates the limits that they name, in the transaction that stores them."""
        await self._gates.numbers([gate for gates in _gates_of(jobs).values() for gate in gates], db)

    async def copy(self, db: Connection, tables: Tables) -> None:
        schema = self._database.schema
        for table, data in tables:
            columns, rows = data
            if rows and isinstance(data, Packed):
                await db.copy_to_table(
                    table, source=data.source(), schema_name=schema, columns=columns, format="binary"
                )
            elif rows:
                try:
                    await db.copy_records_to_table(table, schema_name=schema, columns=columns, records=rows)
                except asyncpg.ForeignKeyViolationError:
                    raise Conflict("busy", "a calendar of the job has just been deleted; see which there are") from None

    async def get_job(self, namespace_id: int, job_id: UUID) -> Job | None:
        return (await self.get_jobs([(namespace_id, job_id)])).get((namespace_id, job_id))

    async def get_jobs(self, wanted: Sequence[tuple[int, UUID]]) -> dict[tuple[int, UUID], Job]:
        namespace_ids, job_ids = zip(*wanted, strict=True)
        rows = await self._database.fetch(self._queries["get_jobs"], namespace_ids=namespace_ids, job_ids=job_ids)
        return {(row["namespace_id"], row["job_id"]): await self._job(row) for row in rows}

    async def list_jobs(
        self, namespace_id: int, before: UUID | None, limit: int, skip: int, filters: Mapping[str, Any]
    ) -> list[Job]:
        labels = filters.get("labels")
        rows = await self._database.fetch(
            self._queries["list_jobs"],
            namespace_id=namespace_id,
            before=before,
            name=filters.get("name"),
            kind=filters.get("kind"),
            queue=filters.get("queue"),
            owner=filters.get("owner"),
            labels=to_json(labels) if labels else None,
            priority=filters.get("priorities"),
            recurring=filters.get("recurring"),
            state=filters.get("state"),
            limit=limit,
            skip=skip,
        )
        return [await self._job(row) for row in rows]

    @tried_twice
    async def change_job(
        self,
        namespace_id: int,
        job_id: UUID,
        definition: JobDefinition,
        expected_version: int,
        cursor: datetime | None,
        now: datetime,
        changed_by: str,
    ) -> list[UUID] | None:
        key = lane_key(namespace_id, definition)
        lane_id = (await self._names.lane_ids([key]))[key]
        gates = gates_of(namespace_id, job_id, definition)
        gate_numbers = marked(gate_ids(await self._gates.numbers(gates, keep=True), gates), definition.timing)
        async with self._database.transaction() as db:
            old = await self._locked(db, namespace_id, job_id)
            if old is None or old["version"] != expected_version:
                return None
            made = await self._account_for_overdue(db, old, now, runs=True)
            await self._lock_runs(db, old)
            await self._keep_version(db, old)
            await self._fetch(
                db,
                "update_job",
                namespace_id=namespace_id,
                job_id=job_id,
                now=now,
                version=expected_version + 1,
                changed_by=changed_by,
                **_definition_columns(definition, lane_id),
            )
            withdrawn = await self._withdraw(db, old, now)
            await self._fetch(db, "keep_findable", once_run_id=_once_run_id(old))
            await self._fetch(
                db,
                "refresh_lane_of_runs",
                job_id=job_id,
                once_run_id=None,
                lane_id=lane_id,
                priority=definition.priority,
                version=expected_version + 1,
                gate_ids=gate_numbers,
                now=now,
            )
            if gates:
                # After the runs, as those do who claim: and only now it is sure that the change is not refused.
                await self._gates.numbers(gates, db)
                await self._refresh_gates(db, old, definition)
            active = old["status"] == _STATUS[JobState.SCHEDULED]
            cursor = await self._free_cursor(db, old, definition, cursor, now) if active else None
            version = expected_version + 1
            if old["timing"] is not None or definition.timing.is_apart:
                before = _definition(old).timing
                reset = before.schedules != definition.timing.schedules
                standing = Standing(
                    job_id, namespace_id, lane_id, version, definition, before, active, reset, withdrawn, made
                )
                cursor = await self._settle_facts(db, standing, cursor, gate_numbers, now)
            await self._set_cursor(db, job_id, namespace_id, lane_id, version, definition, cursor, gate_numbers)
            return await self._held_runs(db, old)

    @tried_twice
    async def set_status(
        self,
        namespace_id: int,
        job_id: UUID,
        state: JobState,
        cursor: datetime | None,
        reason: str | None,
        now: datetime,
        expected_version: int | None = None,
    ) -> list[UUID] | None:
        job = await self.get_job(namespace_id, job_id)
        assert job is not None, "operations have read the job before"
        gates = gates_of(namespace_id, job_id, job.definition)
        gate_numbers = marked(gate_ids(await self._gates.numbers(gates, keep=True), gates), job.definition.timing)
        async with self._database.transaction() as db:
            old = await self._locked(db, namespace_id, job_id)
            assert old is not None, "jobs are not deleted"
            cancelled = old["status"] == _STATUS[JobState.CANCELLED] and state is not JobState.CANCELLED
            if cancelled or expected_version not in (None, old["version"]):
                return None  # since the caller looked; what it wanted means nothing any more
            made = await self._account_for_overdue(db, old, now, runs=state is not JobState.CANCELLED)
            await self._lock_runs(db, old)
            await self._fetch(
                db,
                "set_job_status",
                namespace_id=namespace_id,
                job_id=job_id,
                status=_STATUS[state],
                pause_reason=reason if state is JobState.PAUSED else None,
            )
            withdrawn = await self._withdraw(db, old, now)
            definition = _definition(old)
            cursor = await self._free_cursor(db, old, definition, cursor, now)
            if definition.timing.is_apart:
                active = state is JobState.SCHEDULED
                standing = Standing(
                    job_id, namespace_id, old["lane_id"], old["version"], definition, definition.timing, active,
                    reset=False, withdrawn=withdrawn, made=made,
                )  # fmt: skip
                cursor = await self._settle_facts(db, standing, cursor, gate_numbers, now)
            await self._set_cursor(
                db, job_id, namespace_id, old["lane_id"], old["version"], definition, cursor, gate_numbers
            )
            if state is JobState.CANCELLED:
                await self._cancel_runs(db, old, now)
            return await self._held_runs(db, old)

    async def list_versions(self, namespace_id: int, job_id: UUID, limit: int) -> list[dict[str, Any]]:
        wanted = {"namespace_ids": [namespace_id], "job_ids": [job_id]}
        current = await self._database.fetch_one(self._queries["get_jobs"], **wanted)
        rows = await self._database.fetch(self._queries["list_versions"], job_id=job_id, limit=limit - 1)
        newest = [] if current is None else [_version(current)]
        return newest + [{**dict(row), "definition": from_json(row["definition"])} for row in rows]

    # --- steps -------------------------------------------------------------------------------------------

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)

    async def _locked(self, db: Connection, namespace_id: int, job_id: UUID) -> Record | None:
        rows = await self._fetch(db, "lock_job", namespace_id=namespace_id, job_id=job_id)
        return rows[0] if rows else None

    async def _refresh_gates(self, db: Connection, old: Record, definition: JobDefinition) -> None:
        """What refresh_lane_of_runs cannot say of a job with gates: runs with a payload of their own have a key of
        their own, and what runs already counts against a new limit."""
        rows = await self._fetch(db, "runs_apart", job_id=old["job_id"])
        gates = {row["run_id"]: self._gates_apart(old, definition, row["payload"] or old["payload"]) for row in rows}
        numbers = await self._gates.numbers([gate for wanted in gates.values() for gate in wanted], db)
        ids = {run_id: gate_ids(numbers, wanted) for run_id, wanted in gates.items()}
        waiting = [row["run_id"] for row in rows if not row["executing"]]
        if waiting:
            texts = [array_text(ids[run_id]) for run_id in waiting]
            await self._fetch(db, "set_gates", run_ids=waiting, gate_ids=texts)
        executing = [row["run_id"] for row in rows if row["executing"] and ids[row["run_id"]] is not None]
        if executing:
            # After the runs, as claims do it: whoever counts places meanwhile has the gates locked.
            await self._database.fetch_on(db, self._run_queries["lock_gates"], gate_ids=sorted(numbers.values()))
            texts = [array_text(ids[run_id]) for run_id in executing]
            await self._fetch(db, "take_places", run_ids=executing, gate_ids=texts)

    @staticmethod
    def _gates_apart(old: Record, definition: JobDefinition, payload: str) -> list[WantedGate]:
        policy = definition.policy
        try:
            return gates_of_policy(old["namespace_id"], old["job_id"], policy, from_json(payload))
        except KeyFault:  # it was made when the job had another key, or none
            policy = msgspec.structs.replace(policy, concurrency_key=None)
            return gates_of_policy(old["namespace_id"], old["job_id"], policy, {})

    async def _settle_facts(
        self, db: Connection, standing: Standing, cursor: datetime | None, gates: list[int] | None, now: datetime
    ) -> datetime | None:
        promises = cursor_promises(standing.definition)
        return await self._facts.settle(db, standing, cursor, promises, gates or (), now)

    async def _account_for_overdue(self, db: Connection, old: Record, now: datetime, runs: bool) -> int:
        """Due times that passed while nobody was planning belong to the job as it was: before its cursor is set anew
        they get their runs by its catch-up policy, or without `runs` an entry in the ledger. How many runs."""
        cursors = await self._fetch(db, "lock_cursor", job_id=old["job_id"])
        if not cursors or cursors[0]["next_fire"] > now:
            return 0
        policy = catchup_from_json(old["catchup"]) if runs else CatchUpPolicy(CatchUp.NONE)
        try:
            timing = await self._facts.with_calendars(old["job_id"], _definition(old).timing, db)
            fires, missed = _overdue(timing, cursors[0]["next_fire"], now, policy)
        except ZoneFault:
            return 0  # nobody can say any more which times those were; the change may be what gives it another zone
        if timing.max_runs is not None:
            fires = fires[: await self._facts.budget_left(db, old["job_id"])]
        if not runs:
            missed += [MissedRange(due, due, 1, Reason.JOB_CANCELLED) for due in fires]
            missed = [replace(gap, reason=Reason.JOB_CANCELLED) for gap in missed]
        elif fires:
            await self._fetch(db, "make_overdue", job_id=old["job_id"], dues=fires, once=old["due_at"] is not None)
        if missed:
            await self._fetch(
                db,
                "keep_missed",
                job_id=old["job_id"],
                first=[gap.first for gap in missed],
                last=[gap.last for gap in missed],
                counts=[gap.count for gap in missed],
                reasons=[gap.reason.value for gap in missed],
            )
        return len(fires) if runs else 0

    async def _keep_version(self, db: Connection, old: Record) -> None:
        version = _version(old)
        await self._fetch(
            db, "keep_version", job_id=old["job_id"], **version | {"definition": to_json(version["definition"])}
        )

    async def _withdraw(self, db: Connection, old: Record, now: datetime) -> int:
        return len(await self._fetch(db, "withdraw_runs", job_id=old["job_id"], once_run_id=_once_run_id(old), now=now))

    async def _free_cursor(
        self, db: Connection, old: Record, definition: JobDefinition, cursor: datetime | None, now: datetime
    ) -> datetime | None:
        """The cursor, moved past due times whose run is made and stays: no due time is run twice."""
        made = await self._fetch(
            db,
            "latest_made",
            job_id=old["job_id"],
            once_run_id=_once_run_id(old),
            now=now,
            now_id=lowest_id_at(now),
        )
        latest = made[0]["latest"]
        if cursor is None or latest is None or cursor > latest:
            return cursor
        return definition.timing.next_after(latest)

    async def _held_runs(self, db: Connection, old: Record) -> list[UUID]:
        rows = await self._fetch(db, "job_live_runs", job_id=old["job_id"], once_run_id=_once_run_id(old))
        return [row["run_id"] for row in rows if RunState(row["state"]) in EXECUTING_STATES]

    async def _lock_runs(self, db: Connection, old: Record) -> list[UUID]:
        """All of them, before the gates and in the order of their ids, as everybody else does it."""
        rows = await self._fetch(db, "job_live_runs", job_id=old["job_id"], once_run_id=_once_run_id(old))
        run_ids = [row["run_id"] for row in rows]
        if run_ids:
            await self._database.fetch_on(db, self._run_queries["lock_runs"], run_ids=run_ids)
        return run_ids

    async def _cancel_runs(self, db: Connection, old: Record, now: datetime) -> None:
        run_ids = await self._lock_runs(db, old)
        for name, more in (
            ("cancel_waiting", {"now": now, "reason": Reason.JOB_CANCELLED.value}),
            ("request_cancel", {}),
        ):
            query = self._run_queries[name]
            await self._database.fetch_on(db, query, run_ids=run_ids, namespace_id=old["namespace_id"], **more)

    async def _set_cursor(
        self,
        db: Connection,
        job_id: UUID,
        namespace_id: int,
        lane_id: int,
        version: int,
        definition: JobDefinition,
        cursor: datetime | None,
        gate_numbers: list[int] | None,
    ) -> None:
        if cursor is None:
            await self._fetch(db, "drop_cursor", job_id=job_id)
            return
        await self._fetch(
            db,
            "put_cursor",
            job_id=job_id,
            next_fire=cursor,
            namespace_id=namespace_id,
            lane_id=lane_id,
            version=version,
            shard=shard_of(job_id),
            priority=definition.priority,
            recurring=definition.timing.only_instant is None,
            gate_ids=gate_numbers,
            expires_after=cursor_promises(definition)[0],
            exclusive=cursor_promises(definition)[1],
        )

    async def _job(self, row: Record) -> Job:
        state = {1: JobState.PAUSED, 2: JobState.CANCELLED}.get(row["status"])
        if state is None:
            state = JobState.SCHEDULED if row["alive"] else JobState.COMPLETED
        upcoming = [due for due in (row["next_live"], row["next_fire"]) if due is not None]
        return Job(
            job_id=row["job_id"],
            namespace=await self._names.namespace_name(row["namespace_id"]),
            definition=_definition(row),
            version=row["version"],
            state=state,
            next_due=min(upcoming, default=None),
            created_at=row["created_at"],
            created_by=row["created_by"],
            updated_at=row["updated_at"],
            pause_reason=row["pause_reason"],
            unique_key=row["unique_key"],
        )


def _gates_of(jobs: Sequence[NewJob]) -> dict[UUID, list[WantedGate]]:
    return {
        new.job_id: gates_of(new.namespace_id, new.job_id, new.definition)
        for new in jobs
        if new.definition.policy is not ORDINARY
    }


def _overdue(
    timing: Timing, cursor: datetime, now: datetime, policy: CatchUpPolicy
) -> tuple[list[datetime], list[MissedRange]]:
    """What runs and what was missed, from the cursor up to now."""
    # The cursor may stand where a job rests that could not be planned, which is no due time.
    due = cursor if isinstance(timing, TimingAround) else timing.next_after(cursor - _TICK)
    fires: list[datetime] = []
    missed: list[MissedRange] = []
    for _ in range(OVERDUE_SLICES_MAX):
        if due is None or due > now:
            return fires, missed
        if isinstance(timing, TimingAround):
            planned = plan_around(timing, due, now, timedelta(0), policy)
        else:
            planned = plan(timing, due, now, timedelta(0), policy)
        fires, missed, due = fires + planned.fires, missed + planned.missed, planned.next_due
    raise Conflict("busy", "the job's missed due times are still being counted; try again in a moment")


def _once_run_id(row: Record) -> UUID | None:
    return None if row["due_at"] is None else scheduled_run_id(row["due_at"], row["job_id"])


def _version(row: Record) -> dict[str, Any]:
    """A job's row as an entry of its history."""
    kept = {key: row[key] for key in ("name", "kind", "queue", "priority", "max_retries", "timeout_seconds", "owner")}
    kept |= {key: from_json(row[key]) for key in ("payload", "timing", "retry", "catchup", "policy", "labels")}
    kept |= {"description": row["description"], "due_at": row["due_at"] and row["due_at"].isoformat()}
    author = row["updated_by"] or row["created_by"]
    return {"version": row["version"], "definition": kept, "changed_at": row["updated_at"], "changed_by": author}


def _definition(row: Record) -> JobDefinition:
    if row["timing"] is not None:
        timing = timing_from_json(from_json(row["timing"]))
    else:
        schedule = Now(row["due_at"]) if row["due_at"] == row["created_at"] else At(row["due_at"])
        timing = Timing((schedule,))
    return JobDefinition(
        name=row["name"],
        kind=row["kind"],
        payload=from_json(row["payload"]),
        timing=timing,
        needs=row["needs"],
        queue=row["queue"],
        priority=row["priority"],
        retry=retry_from_json(row["max_retries"], from_json(row["retry"])),
        catchup=catchup_from_json(row["catchup"]),
        timeout_seconds=row["timeout_seconds"],
        policy=policy_from_json(row["policy"]),
        labels=from_json(row["labels"]) or {},
        description=row["description"] or "",
        owner=row["owner"],
    )


def _definition_columns(definition: JobDefinition, lane_id: int) -> dict[str, Any]:
    due_at = definition.timing.only_instant
    return {
        "lane_id": lane_id,
        "name": definition.name,
        "kind": definition.kind,
        "payload": to_json(definition.payload),
        "due_at": due_at,
        "timing": timing_column(definition.timing),
        "priority": definition.priority,
        "max_retries": definition.retry.max_retries,
        "retry": to_json_or_null(retry_to_json(definition.retry)),
        "catchup": catchup_to_json(definition.catchup),
        "timeout_seconds": definition.timeout_seconds,
        "policy": policy_to_json(definition.policy),
        "labels": to_json_or_null(definition.labels),
        "description": definition.description or None,
        "owner": definition.owner,
    }
