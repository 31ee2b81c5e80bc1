"""What some timings need beyond a cursor: a budget of runs, a delay after completion, calendars.

Plain jobs have none of it, and none of this is read or written for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.calendar import CalendarRule, calendar_from_json
from hourhand.model.catchup import ready_when_made
from hourhand.model.errors import Conflict
from hourhand.model.exclusion import TimingAround, around
from hourhand.model.ids import scheduled_run_id, shard_of
from hourhand.model.job import JobDefinition
from hourhand.model.local_time import ZoneFault
from hourhand.model.schedule import OnExcluded, Timing
from hourhand.ports.stores import Move
from hourhand.store.jsons import from_json
from hourhand.store.ledger_rows import columns_of, ledger_rows

_RULES_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class Standing:
    """A job in the middle of a change: what it becomes, and what has become of its runs so far."""

    job_id: UUID
    namespace_id: int
    lane_id: int
    version: int
    definition: JobDefinition
    old_timing: Timing
    active: bool
    reset: bool
    """Whether a cursor that it has means nothing any more: its schedule is another now, or a pause is over."""
    withdrawn: Sequence[datetime]
    """The due times of runs that were taken back."""
    made: int
    """Runs that were made of due times nobody had planned."""
    until: datetime | None
    """The end of the job's own pause: before it nothing is due."""
    since: datetime
    """Earlier due times are none of its present schedule."""
    passed: datetime
    """Up to here all due times are dealt with."""


class TimingFacts:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "timing_facts.sql", database.schema)
        self._rules: dict[tuple[int, str], tuple[int, CalendarRule]] = {}

    # --- planning ----------------------------------------------------------------------------------------

    async def budgets_of(self, job_ids: Sequence[UUID]) -> dict[UUID, int]:
        rows = await self._database.fetch(self._queries["budgets_of"], job_ids=job_ids)
        return {row["job_id"]: row["runs_left"] for row in rows}

    async def rules_of(
        self, job_ids: Sequence[UUID], db: Connection | None = None
    ) -> dict[UUID, dict[str, CalendarRule]]:
        """The calendars of jobs as they are now, by name. Rules are read again only when their version has changed."""
        links = await self._fetch(db, "calendars_of_jobs", job_ids=job_ids)
        await self._learn({(row["namespace_id"], row["name"], row["version"]) for row in links}, db)
        found: dict[UUID, dict[str, CalendarRule]] = {}
        for row in links:
            known = self._rules.get((row["namespace_id"], row["name"]))
            if known is not None:
                found.setdefault(row["job_id"], {})[row["name"]] = known[1]
        return found

    async def with_calendars(self, job_id: UUID, timing: Timing, db: Connection | None = None) -> Timing:
        if not timing.calendars:
            return timing
        return around(timing, (await self.rules_of([job_id], db)).get(job_id, {}))

    async def advance_cursors(self, node_id: int, epoch: int, moves: Sequence[Move], now: datetime) -> list[datetime]:
        """Moves the cursors of such jobs: see the port."""
        fires = [
            (scheduled_run_id(due, move.job_id), move.job_id, due, ready_when_made(start, now))
            for move in moves
            for due, start in zip(move.fires, move.starts or move.fires, strict=True)
        ]
        missed = [(move.job_id, row) for move in moves if move.missed for row in ledger_rows(move.missed)]
        rows = await self._database.fetch(
            self._queries["advance_cursors"],
            node_id=node_id,
            epoch=epoch,
            now=now,
            job_ids=[move.job_id for move in moves],
            expected=[move.expected for move in moves],
            versions=[move.version for move in moves],
            next_fires=[move.next_fire for move in moves],
            made=[len(move.fires) for move in moves],
            run_ids=[fire[0] for fire in fires],
            run_job_ids=[fire[1] for fire in fires],
            run_dues=[fire[2] for fire in fires],
            run_ready=[fire[3] for fire in fires],
            missed_job_ids=[job_id for job_id, _ in missed],
            **columns_of([row for _, row in missed], "missed_"),
        )
        return [row["ready_at"] for row in rows]

    # --- changes -----------------------------------------------------------------------------------------

    async def budget_left(self, db: Connection, job_id: UUID) -> int | None:
        rows = await self._fetch(db, "lock_budget", job_id=job_id)
        return rows[0]["runs_left"] if rows else None

    async def settle(
        self,
        db: Connection,
        standing: Standing,
        cursor: datetime | None,
        promises: tuple[Any, bool],
        gate_ids: Sequence[int],
        now: datetime,
    ) -> datetime | None:
        """Writes what a changed job needs; where its cursor goes then."""
        timing = standing.definition.timing
        if timing.calendars != standing.old_timing.calendars:
            await self._link(db, standing)
        if timing.calendars and timing.on_excluded is OnExcluded.NEXT_ALLOWED and standing.active:
            cursor = await self._waiting(db, standing, cursor)
        if timing.max_runs is not None or standing.old_timing.max_runs is not None:
            cursor = await self._settle_budget(db, standing, cursor)
        if timing.after_completion is not None and standing.active:
            return await self._settle_delay(db, standing, cursor, promises, gate_ids, now)
        if standing.old_timing.after_completion is not None:
            await self._fetch(db, "drop_delay", job_id=standing.job_id)
        return cursor

    async def _waiting(self, db: Connection, standing: Standing, cursor: datetime | None) -> datetime | None:
        """What a calendar has left out before the change is still run at the next allowed time."""
        timing = await self.with_calendars(standing.job_id, standing.definition.timing, db)
        if not isinstance(timing, TimingAround):
            return cursor
        try:
            waits = timing.next_event(standing.passed, standing.since)
        except ZoneFault:
            return cursor  # the scheduler tells of it
        if waits is None or (standing.until is not None and waits < standing.until):
            return cursor
        return waits if cursor is None else min(waits, cursor)

    async def _settle_budget(self, db: Connection, standing: Standing, cursor: datetime | None) -> datetime | None:
        old, new = standing.old_timing.max_runs, standing.definition.timing.max_runs
        if new is None:
            await self._fetch(db, "drop_budget", job_id=standing.job_id)
            return cursor
        left = await self.budget_left(db, standing.job_id)
        left = new if left is None else left + len(standing.withdrawn) - standing.made + new - (old or new)
        left = min(max(left, 0), new)
        await self._fetch(db, "put_budget", job_id=standing.job_id, runs_left=left)
        return cursor if left else None

    async def _settle_delay(
        self,
        db: Connection,
        standing: Standing,
        cursor: datetime | None,
        promises: tuple[Any, bool],
        gate_ids: Sequence[int],
        now: datetime,
    ) -> datetime | None:
        """The cursor waits for the end of a run that is under way; else it stays, or begins anew."""
        delay = standing.definition.timing.after_completion
        assert delay is not None
        await self._fetch(
            db,
            "put_delay",
            job_id=standing.job_id,
            delay=delay,
            namespace_id=standing.namespace_id,
            lane_id=standing.lane_id,
            version=standing.version,
            shard=shard_of(standing.job_id),
            priority=standing.definition.priority,
            gate_ids=list(gate_ids),
            expires_after=promises[0],
            exclusive=promises[1],
        )
        if standing.definition.timing.max_runs is not None and await self.budget_left(db, standing.job_id) == 0:
            return None
        under_way = await self._fetch(db, "mark_runs", job_id=standing.job_id)
        if standing.until is not None:  # an end before that makes no cursor, because there is one
            return standing.until
        if under_way:
            return None
        if standing.reset and cursor is not None:
            return cursor
        if standing.withdrawn and not standing.reset:  # its run was made ahead of time, and its cursor with it gone
            return min(standing.withdrawn)
        stands = await self._fetch(db, "find_cursor", job_id=standing.job_id)
        return stands[0]["next_fire"] if stands and not standing.reset else now + delay

    async def _link(self, db: Connection, standing: Standing) -> None:
        await self._fetch(db, "drop_links", job_id=standing.job_id)
        calendars = list(standing.definition.timing.calendars)
        if not calendars:
            return
        try:
            await self._fetch(
                db, "put_links", job_id=standing.job_id, namespace_id=standing.namespace_id, calendars=calendars
            )
        except asyncpg.ForeignKeyViolationError:
            raise Conflict("busy", "a calendar of the job has just been deleted; look which there are") from None

    # --- steps -------------------------------------------------------------------------------------------

    async def _learn(self, wanted: set[tuple[int, str, int]], db: Connection | None) -> None:
        stale = [
            (namespace_id, name)
            for namespace_id, name, version in wanted
            if self._rules.get((namespace_id, name), (None,))[0] != version
        ]
        if not stale:
            return
        if len(self._rules) > _RULES_MAX:
            self._rules.clear()
            stale = [(namespace_id, name) for namespace_id, name, _ in wanted]
        namespace_ids, names = zip(*stale, strict=True)
        for row in await self._fetch(db, "calendar_rules", namespace_ids=namespace_ids, names=names):
            rule = calendar_from_json(from_json(row["rule"]))
            self._rules[row["namespace_id"], row["name"]] = (row["version"], rule)

    async def _fetch(self, db: Connection | None, query: str, /, **values: Any) -> list[Record]:
        if db is None:
            return await self._database.fetch(self._queries[query], **values)
        return await self._database.fetch_on(db, self._queries[query], **values)


def fact_rows(
    job_id: UUID,
    namespace_id: int,
    lane_id: int,
    definition: JobDefinition,
    promises: tuple[Any, bool],
    gate_ids: Sequence[int] | None,
) -> Mapping[str, list[tuple[Any, ...]]]:
    """The rows that a new job has in these tables."""
    timing = definition.timing
    rows: dict[str, list[tuple[Any, ...]]] = {}
    if timing.max_runs is not None:
        rows["run_budgets"] = [(job_id, timing.max_runs)]
    if timing.after_completion is not None:
        rows["completion_delays"] = [
            (
                job_id, timing.after_completion, namespace_id, lane_id, 1, shard_of(job_id), definition.priority,
                list(gate_ids or ()), *promises,
            )
        ]  # fmt: skip
    if timing.calendars:
        rows["calendar_jobs"] = [(namespace_id, calendar, job_id) for calendar in timing.calendars]
    return rows


FACT_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "run_budgets": ["job_id", "runs_left"],
    "completion_delays": [
        "job_id", "delay", "namespace_id", "lane_id", "version", "shard", "priority", "gate_ids", "expires_after",
        "exclusive",
    ],
    "calendar_jobs": ["namespace_id", "calendar", "job_id"],
}  # fmt: skip


def marked(gate_ids: list[int] | None, timing: Timing) -> list[int] | None:
    """The gates of a job's runs: an empty list instead of none marks those whose end makes the next cursor."""
    return [] if gate_ids is None and timing.after_completion is not None else gate_ids
