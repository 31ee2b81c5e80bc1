"""The rules of zones as jobs were last planned by them, and the cursors that follow when they change."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.exclusion import around
from hourhand.model.ids import lowest_id_at
from hourhand.model.schedule import OnExcluded, timing_from_json
from hourhand.ports.zone_stores import CursorPage, ZonedCursor
from hourhand.store.jsons import from_json
from hourhand.store.timing_facts import TimingFacts

_FIRST: Final = UUID(int=0)
"""Before the ids of all jobs."""


class Zones:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "zones.sql", database.schema)
        self._facts = TimingFacts(database)

    async def zone_rules(self) -> dict[str, str]:
        rows = await self._database.fetch(self._queries["zone_rules"])
        return {row["zone"]: row["digest"] for row in rows}

    async def put_zone_rules(self, node_id: int, epoch: int, rules: Mapping[str, str], now: datetime) -> bool:
        row = await self._database.fetch_one(
            self._queries["put_zone_rules"],
            node_id=node_id,
            epoch=epoch,
            zones=list(rules),
            digests=list(rules.values()),
            now=now,
        )
        return row is not None and bool(row["leads"])

    async def cursors_in_zones(
        self, zones: Sequence[str], after: UUID | None, since: datetime, limit: int
    ) -> CursorPage:
        query, since_id = self._queries["cursors_in_zones"], lowest_id_at(since)
        rows = await self._database.fetch(query, zones=zones, last_id=after or _FIRST, since_id=since_id, limit=limit)
        timings = {row["job_id"]: timing_from_json(from_json(row["timing"])) for row in rows if row["timing"]}
        # Where others stand does not depend on calendars: their cursors visit every due time.
        waiting = [job_id for job_id, timing in timings.items() if timing.on_excluded is OnExcluded.NEXT_ALLOWED]
        rules = await self._facts.rules_of(waiting) if waiting else {}
        cursors = [
            ZonedCursor(
                row["job_id"],
                row["next_fire"],
                row["version"],
                around(timings[row["job_id"]], rules.get(row["job_id"], {})),
                row["dealt_with"],
            )
            for row in rows
            if row["job_id"] in timings
        ]
        return CursorPage(cursors, rows[-1]["job_id"] if len(rows) == limit else None)

    async def move_cursors(self, node_id: int, epoch: int, moves: Sequence[tuple[ZonedCursor, datetime]]) -> int:
        rows = await self._database.fetch(
            self._queries["move_cursors"],
            node_id=node_id,
            epoch=epoch,
            job_ids=[cursor.job_id for cursor, _ in moves],
            expected=[cursor.next_fire for cursor, _ in moves],
            versions=[cursor.version for cursor, _ in moves],
            next_fires=[due for _, due in moves],
        )
        return len(rows)
