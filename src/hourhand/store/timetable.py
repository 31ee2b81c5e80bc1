"""The cursor of every job that is still to fall due, and the runs that moving it makes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec.structs import replace

from hourhand.database.connections import Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.catchup import MADE_LATE, CatchUpPolicy, ready_when_made
from hourhand.model.exclusion import around
from hourhand.model.ids import scheduled_run_id
from hourhand.model.schedule import Timing, timing_from_json
from hourhand.ports.database_time import HearTime, hear_nothing
from hourhand.ports.stores import EPOCH, NEVER, Cursor, Move
from hourhand.store.instants import instants_of
from hourhand.store.job_rows import catchup_from_json
from hourhand.store.jsons import from_json
from hourhand.store.ledger_rows import columns_of, ledger_rows
from hourhand.store.timing_facts import TimingFacts

_TIMINGS_MAX = 65_536


class Timetable:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "timetable.sql", database.schema)
        self._unguarded = {name: self._queries[name].unguarded() for name in ("fire_once", "advance_cursors")}
        # Reading a timing costs more than using it, and a recurring job's does not change within a version.
        self._timings: dict[tuple[UUID, int], tuple[Timing, CatchUpPolicy, bool]] = {}
        """With whether it is apart."""
        self._epoch = 0
        self._facts = TimingFacts(database)

    async def fire_once(
        self, node_id: int, epoch: int, until: datetime, limit: int, since: datetime = EPOCH
    ) -> list[datetime]:
        return await self._make_runs("fire_once", node_id=node_id, epoch=epoch, since=since, until=until, limit=limit)

    async def due_cursors(
        self, node_id: int, epoch: int, until: datetime, limit: int, since: datetime = EPOCH, shard: int = 0
    ) -> tuple[list[Cursor], bool]:
        query = self._queries["due_cursors"]
        rows = await self._database.fetch(
            query, node_id=node_id, epoch=epoch, since=since, shard=shard, until=until, limit=limit
        )
        if epoch != self._epoch:  # perhaps after a fail-over, which may have taken a version back
            self._epoch = epoch
            self._timings.clear()
        if len(self._timings) > _TIMINGS_MAX:
            for known_id in list(self._timings)[::2]:  # whichever: jobs take turns, so the oldest may be next
                del self._timings[known_id]
        await self._learn([row for row in rows if (row["job_id"], row["version"]) not in self._timings])
        cursors = []
        times = instants_of(row[1] for row in rows)
        for job_id, due, version, _ in rows:
            known = self._timings.get((job_id, version))
            if known is not None:  # else it was changed between the two looks, and its cursor has moved
                timing, catchup, is_apart = known
                cursors.append(Cursor(job_id, times[due], version, timing, catchup, None, is_apart))
        if any(cursor.is_apart for cursor in cursors):
            cursors = await self._with_facts(cursors)
        return cursors, len(rows) >= limit

    async def _with_facts(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """With what some jobs have beyond their timing: budgets of runs, calendars as they are now."""
        counted = [cursor.job_id for cursor in cursors if cursor.timing.max_runs is not None]
        around_calendars = [cursor.job_id for cursor in cursors if cursor.timing.calendars]
        budgets = await self._facts.budgets_of(counted) if counted else {}
        rules = await self._facts.rules_of(around_calendars) if around_calendars else {}
        return [
            replace(
                cursor,
                timing=around(cursor.timing, rules.get(cursor.job_id, {})),
                runs_left=budgets.get(cursor.job_id),
            )
            if cursor.is_apart
            else cursor
            for cursor in cursors
        ]

    async def advance_cursors(self, node_id: int, epoch: int, moves: Sequence[Move], now: datetime) -> list[datetime]:
        apart = [move for move in moves if move.is_apart]
        if apart:
            ready = await self._facts.advance_cursors(node_id, epoch, apart, now)
            plain = [move for move in moves if not move.is_apart]
            return ready + (await self._advance(node_id, epoch, plain, now) if plain else [])
        return await self._advance(node_id, epoch, moves, now)

    async def _advance(self, node_id: int, epoch: int, moves: Sequence[Move], now: datetime) -> list[datetime]:
        late = now - MADE_LATE
        run_ids: list[UUID | None] = []
        """Of the run at the due time where the cursor stands: nearly always there is that one and no other."""
        others: list[tuple[UUID, UUID, datetime, datetime]] = []
        for move in moves:
            fires, at = move.fires, 0
            if fires and fires[0] == move.expected >= late:
                run_ids.append(scheduled_run_id(move.expected, move.job_id))
                at = 1
            else:
                run_ids.append(None)
            if len(fires) > at:
                job_id = move.job_id
                others += [
                    (scheduled_run_id(due, job_id), job_id, due, ready_when_made(due, now)) for due in fires[at:]
                ]
        missed = [(move.job_id, row) for move in moves if move.missed for row in ledger_rows(move.missed)]
        return await self._make_runs(
            "advance_cursors",
            node_id=node_id,
            epoch=epoch,
            now=now,
            job_ids=[move.job_id for move in moves],
            expected=[move.expected.timestamp() for move in moves],
            versions=[move.version for move in moves],
            next_fires=[move.next_fire for move in moves],  # as times: they may be far
            run_ids=run_ids,
            other_run_ids=[run[0] for run in others],
            other_job_ids=[run[1] for run in others],
            other_dues=[run[2].timestamp() for run in others],
            other_ready=[run[3].timestamp() for run in others],
            missed_job_ids=[job_id for job_id, _ in missed],
            **columns_of([row for _, row in missed], "missed_"),
        )

    async def _make_runs(self, name: str, **values: Any) -> list[datetime]:
        """Runs are hardly ever there already: only where one is, the others are made with a look at each."""
        try:
            rows = await self._database.fetch(self._unguarded[name], **values)
        except asyncpg.UniqueViolationError:
            rows = await self._database.fetch(self._queries[name], **values)
        times = instants_of(row[0] for row in rows)
        return [times[row[0]] for row in rows]

    async def next_cursor(self, since: datetime = EPOCH, hear_time: HearTime = hear_nothing) -> datetime | None:
        row = await self._database.fetch_one(self._queries["next_cursor"], since=since)
        assert row is not None
        hear_time(row["now"])
        return None if row["next_fire"] == NEVER else row["next_fire"]

    async def _learn(self, unknown: Sequence[Record]) -> None:
        if not unknown:
            return
        rows = await self._database.fetch(
            self._queries["read_timings"],
            namespace_ids=[row["namespace_id"] for row in unknown],
            job_ids=[row["job_id"] for row in unknown],
            versions=[row["version"] for row in unknown],
        )
        for row in rows:
            timing = timing_from_json(from_json(row["timing"]))
            catchup = catchup_from_json(row["catchup"])
            self._timings[row["job_id"], row["version"]] = timing, catchup, timing.is_apart
