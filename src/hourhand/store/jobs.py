"""Jobs: storing, reading and changing definitions, with the cursor and the unstarted runs that hang on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.catchup import CatchUp
from hourhand.model.errors import Conflict
from hourhand.model.ids import lowest_id_at, scheduled_run_id, shard_of
from hourhand.model.job import Job, JobDefinition
from hourhand.model.local_time import ZoneFault
from hourhand.model.policy import ORDINARY, KeyFault
from hourhand.model.states import EXECUTING_STATES, JobState, Reason, RunState
from hourhand.ports.stores import NEVER, NewJob, Walked
from hourhand.store.gates import Gates, WantedGate, array_text, gate_ids, gates_of, gates_of_policy
from hourhand.store.job_accounts import JobAccounts, Patience
from hourhand.store.job_definitions import definition_columns, definition_of, version_of
from hourhand.store.job_lists import JobLists, job_of
from hourhand.store.job_pauses import is_paused, pause_columns
from hourhand.store.job_rows import (
    Numbers,
    Tables,
    cursor_promises,
    rows_of,
    values_of_few,
)
from hourhand.store.jsons import from_json, to_json
from hourhand.store.names import Names, lane_key
from hourhand.store.packed_rows import Packed
from hourhand.store.pauses import Pauses
from hourhand.store.queues import Queues
from hourhand.store.timing_facts import Standing, TimingFacts, marked

_STATUS: Final = {JobState.SCHEDULED: 0, JobState.PAUSED: 1, JobState.CANCELLED: 2}

_TICK: Final = timedelta(microseconds=1)


class Jobs:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "jobs.sql", database.schema)
        self._lists = JobLists(database, names)
        self._gates = Gates(database)
        self._pauses = Pauses(database, names, Queues(database))
        self._run_queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)
        self._facts = TimingFacts(database)
        self._accounts = JobAccounts(database, self._pauses, self._facts)

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
        found: dict[tuple[int, UUID], Job] = {}
        for row in rows:
            namespace_id = row["namespace_id"]
            found[namespace_id, row["job_id"]] = job_of(row, await self._names.namespace_name(namespace_id))
        return found

    async def list_jobs(
        self, namespace_id: int, before: UUID | None, limit: int, skip: int | None, filters: Mapping[str, Any]
    ) -> Walked[Job]:
        return await self._lists.list_jobs(namespace_id, before, limit, skip, filters)

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
        patience = Patience()
        while True:
            async with self._database.transaction() as db:
                old = await self._locked(db, namespace_id, job_id)
                if old is None or old["version"] != expected_version:
                    return None
                if definition.timing != definition_of(old).timing and await self._accounts.count_pauses(
                    db, old, now, patience
                ):
                    continue
                await self._change(db, old, definition, (lane_id, gates, gate_numbers), cursor, now, changed_by)
                return await self._held_runs(db, old)

    async def _change(
        self,
        db: Connection,
        old: Record,
        definition: JobDefinition,
        place: tuple[int, list[WantedGate], list[int] | None],
        cursor: datetime | None,
        now: datetime,
        changed_by: str,
    ) -> None:
        namespace_id, job_id, version = old["namespace_id"], old["job_id"], old["version"] + 1
        lane_id, gates, gate_numbers = place
        before = definition_of(old).timing
        settled = await self._accounts.settle_overdue(db, old, now, runs=True, keep_held=definition.timing == before)
        # Else whoever ends the pause decides about all of it, also about what fell into it before the change.
        ends_pause = definition.timing != before and (definition.timing.recurring or before.recurring)
        if ends_pause:
            await self._accounts.end_pause(db, old, now, Reason.PAUSED)
        await self._lock_runs(db, old)
        await self._keep_version(db, old)
        await self._fetch(
            db,
            "update_job",
            namespace_id=namespace_id,
            job_id=job_id,
            now=now,
            version=version,
            changed_by=changed_by,
            **definition_columns(definition, lane_id),
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
            version=version,
            gate_ids=gate_numbers,
            now=now,
        )
        if gates:
            # After the runs, as those do who claim: and only now it is sure that the change is not refused.
            await self._gates.numbers(gates, db)
            await self._refresh_gates(db, old, definition)
        until = old["pause_until"] if is_paused(old, now) else None
        latest = await self._latest_made(db, old, now)
        active = old["status"] != _STATUS[JobState.CANCELLED] and (not is_paused(old, now) or until is not None)
        cursor = _free_cursor(definition, cursor, latest, until, old["pause_from"] or now) if active else None
        cursor = settled.held or cursor
        if old["pause_from"] is not None and ends_pause:
            counted_from = max(now, latest or now) if is_paused(old, now) else None
            await self._fetch(db, "count_pause_from", namespace_id=namespace_id, job_id=job_id, pause_from=counted_from)
        if old["timing"] is not None or definition.timing.is_apart:
            reset = before.schedules != definition.timing.schedules
            standing = Standing(
                job_id, namespace_id, lane_id, version, definition, before, active, reset, withdrawn,
                settled.made, until, since=now if reset else old["created_at"], passed=max(now, latest or now),
            )  # fmt: skip
            cursor = await self._settle_facts(db, standing, cursor, gate_numbers, now)
        await self._set_cursor(db, job_id, namespace_id, lane_id, version, definition, cursor, gate_numbers, until)

    async def runs_to_come(self, job_id: UUID, now: datetime) -> int | None:
        row = await self._database.fetch_one(self._queries["runs_to_come"], job_id=job_id, now=now)
        return None if row is None else row["runs"]

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
        *,
        by: str = "",
        until: datetime | None = None,
        catch_up: CatchUp = CatchUp.NONE,
        only_when_over: bool = False,
    ) -> list[UUID] | None:
        job = await self.get_job(namespace_id, job_id)
        assert job is not None, "operations have read the job before"
        gates = gates_of(namespace_id, job_id, job.definition)
        gate_numbers = marked(gate_ids(await self._gates.numbers(gates, keep=True), gates), job.definition.timing)
        patience = Patience()
        while True:
            async with self._database.transaction() as db:
                old = await self._locked(db, namespace_id, job_id)
                assert old is not None, "jobs are not deleted"
                cancelled = old["status"] == _STATUS[JobState.CANCELLED] and state is not JobState.CANCELLED
                paused_again = only_when_over and is_paused(old, now)
                if cancelled or paused_again or expected_version not in (None, old["version"]):
                    return None  # since the caller looked; what it wanted means nothing any more
                goes_on = state is JobState.PAUSED and is_paused(old, now)
                if not goes_on and await self._accounts.count_pauses(db, old, now, patience):
                    continue
                wish = (by, reason, until if state is JobState.PAUSED else None)
                await self._put_status(db, old, state, cursor, gate_numbers, now, wish, catch_up)
                return await self._held_runs(db, old)

    async def end_own_pauses(self, now: datetime, limit: int) -> int:
        """Brings back jobs whose own pause is over: instants of it that were asked for run now. How many jobs."""
        over = await self._pauses.own_pauses_over(now, limit)
        for namespace_id, job_id in over:
            job = await self.get_job(namespace_id, job_id)
            assert job is not None, "jobs are not deleted"
            await self._end_own_pause(namespace_id, job, now)
        return len(over)

    async def _end_own_pause(self, namespace_id: int, job: Job, now: datetime) -> None:
        timing = job.definition.timing
        if timing.recurring:
            try:
                cursor = timing.next_after(now)
            except ZoneFault:
                pass  # the scheduler tells of it
            else:
                state, version = JobState.SCHEDULED, job.version
                await self.set_status(namespace_id, job.job_id, state, cursor, None, now, version, only_when_over=True)
                return
        async with self._database.transaction() as db:
            await self._pauses.wake_cursor(db, job.job_id)

    async def _put_status(
        self,
        db: Connection,
        old: Record,
        state: JobState,
        cursor: datetime | None,
        gate_numbers: list[int] | None,
        now: datetime,
        pause: tuple[str, str | None, datetime | None],
        catch_up: CatchUp,
    ) -> None:
        namespace_id, job_id, until = old["namespace_id"], old["job_id"], pause[2]
        cancelled = state is JobState.CANCELLED
        fires: list[datetime] = []
        if not cancelled and (state is not JobState.PAUSED or not is_paused(old, now)):
            fires = await self._accounts.settle_pause(db, old, now, catch_up)
        settled = await self._accounts.settle_overdue(db, old, now, runs=not cancelled, made=len(fires))
        if cancelled:
            await self._accounts.end_pause(db, old, now, Reason.JOB_CANCELLED)
        await self._lock_runs(db, old)
        withdrawn = await self._withdraw(db, old, now)
        latest = await self._latest_made(db, old, now)
        await self._fetch(
            db,
            "set_job_status",
            namespace_id=namespace_id,
            job_id=job_id,
            status=_STATUS[state],
            resumed_at=now if state is JobState.SCHEDULED else None,
            **pause_columns(old, state, now, latest, *pause),
        )
        definition = definition_of(old)
        since = (is_paused(old, now) and old["pause_from"]) or now
        cursor = _free_cursor(definition, cursor, latest, until, since)
        if definition.timing.is_apart:
            active = state is JobState.SCHEDULED or until is not None
            standing = Standing(
                job_id, namespace_id, old["lane_id"], old["version"], definition, definition.timing, active,
                reset=is_paused(old, now), withdrawn=withdrawn, made=settled.made + len(fires), until=until,
                since=old["created_at"], passed=max(now, latest or now),
            )  # fmt: skip
            cursor = await self._settle_facts(db, standing, cursor, gate_numbers, now)
        where = (db, job_id, namespace_id, old["lane_id"], old["version"], definition)
        if fires:
            await self._set_cursor(*where, cursor or fires[0], gate_numbers, None)
            await self._accounts.make_overdue(db, old, fires, now)
        await self._set_cursor(*where, cursor, gate_numbers, until)
        if state is JobState.CANCELLED:
            await self._cancel_runs(db, old, now)

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

    async def _keep_version(self, db: Connection, old: Record) -> None:
        version = version_of(old)
        await self._fetch(
            db, "keep_version", job_id=old["job_id"], **version | {"definition": to_json(version["definition"])}
        )

    async def _withdraw(self, db: Connection, old: Record, now: datetime) -> list[datetime]:
        """The due times whose runs are taken back."""
        gone = await self._fetch(db, "withdraw_runs", job_id=old["job_id"], once_run_id=_once_run_id(old), now=now)
        return [row["scheduled_for"] for row in gone]

    async def _latest_made(self, db: Connection, old: Record, now: datetime) -> datetime | None:
        """The latest due time to come whose run is made and stays."""
        made = await self._fetch(
            db,
            "latest_made",
            job_id=old["job_id"],
            once_run_id=_once_run_id(old),
            now=now,
            now_id=lowest_id_at(now),
        )
        latest: datetime | None = made[0]["latest"]
        return latest

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
        until: datetime | None = None,
    ) -> None:
        """`until`: of a pause of the job's own. What is due before its end rests."""
        if cursor is None:
            await self._fetch(db, "drop_cursor", job_id=job_id)
            return
        if until is not None and cursor < until:
            await self._pauses.rest_own(db, job_id, cursor, until)
            cursor = NEVER
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


def _gates_of(jobs: Sequence[NewJob]) -> dict[UUID, list[WantedGate]]:
    return {
        new.job_id: gates_of(new.namespace_id, new.job_id, new.definition)
        for new in jobs
        if new.definition.policy is not ORDINARY
    }


def _free_cursor(
    definition: JobDefinition,
    cursor: datetime | None,
    latest: datetime | None,
    until: datetime | None,
    since: datetime,
) -> datetime | None:
    """The cursor, moved past due times whose run is made and stays: no due time is run twice. With a pause that has an
    end it stands at the first due time from there on; one asked for by its instant may be earlier, and waits."""
    timing = definition.timing
    if until is not None:
        cursor = timing.next_after(until - _TICK if timing.recurring else since)
        asked = tuple(schedule for schedule in timing.schedules if not schedule.recurring)
        first = msgspec.structs.replace(timing, schedules=asked).next_after(since)
        if first is not None and first < until:
            cursor = first
    if cursor is None or latest is None or cursor > latest:
        return cursor
    return timing.next_after(latest)


def _once_run_id(row: Record) -> UUID | None:
    return None if row["due_at"] is None else scheduled_run_id(row["due_at"], row["job_id"])
