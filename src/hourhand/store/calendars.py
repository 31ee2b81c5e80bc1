"""Calendars, and what a change of one does to the jobs that use it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.calendar import CalendarRule, calendar_from_json, calendar_to_json
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.exclusion import SEARCH_STEPS_MAX, TimingAround, TooRare, nothing_is_left
from hourhand.model.local_time import ZoneFault
from hourhand.model.schedule import timing_from_json
from hourhand.model.steps import Steps
from hourhand.ports.calendar_stores import CalendarRow
from hourhand.ports.stores import NEVER
from hourhand.runtime.aside import Aside
from hourhand.store.jsons import from_json, to_json
from hourhand.store.timing_facts import TimingFacts

_PAGE: Final = 1000
_JOBS_CHECKED_MAX: Final = 1000
"""Jobs of a calendar that are asked whether anything is left of them when it is changed."""
_STEPS_CHECKED_MAX: Final = 10 * SEARCH_STEPS_MAX
"""What is looked at for all of them together."""
_JOBS_NAMED_MAX: Final = 5
_CHECKS: Final = Aside()
"""Going through the schedules of so many jobs takes a while."""
Rows = Sequence[CalendarRow]  # inside a class with a method `list`, that word is the method


class Calendars:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "calendars.sql", database.schema)
        self._fact_queries = load_queries("hourhand.store.sql", "timing_facts.sql", database.schema)

    async def find(self, namespace_id: int, names: Sequence[str]) -> dict[str, CalendarRule]:
        wanted = list(dict.fromkeys(names))
        rows = await self._database.fetch(
            self._fact_queries["calendar_rules"], namespace_ids=[namespace_id] * len(wanted), names=wanted
        )
        return {row["name"]: calendar_from_json(from_json(row["rule"])) for row in rows}

    async def list(self, namespace_id: int, after: str | None, limit: int) -> Rows:
        rows = await self._database.fetch(
            self._queries["list_calendars"], namespace_id=namespace_id, after=after, name=None, limit=limit
        )
        return tuple(_calendar(row) for row in rows)

    async def get(self, namespace_id: int, name: str) -> CalendarRow | None:
        row = await self._database.fetch_one(
            self._queries["list_calendars"], namespace_id=namespace_id, after=None, name=name, limit=1
        )
        return None if row is None else _calendar(row)

    @tried_twice
    async def put(
        self, namespace_id: int, name: str, rule: CalendarRule, now: datetime, changed_by: str, expected: int | None
    ) -> int | None:
        async with self._database.transaction() as db:
            rows = await self._fetch(
                db,
                "put_calendar",
                namespace_id=namespace_id,
                name=name,
                rule=to_json(calendar_to_json(rule)),
                now=now,
                changed_by=changed_by,
                expected=expected,
            )
            if not rows:
                return None
            if rows[0]["version"] > 1:
                await self._refuse_if_nothing_is_left(db, namespace_id, name, now)
                await self._plan_anew(db, namespace_id, name, now)
            version: int = rows[0]["version"]
            return version

    async def delete(self, namespace_id: int, name: str) -> bool | None:
        try:
            rows = await self._database.fetch(self._queries["delete_calendar"], namespace_id=namespace_id, name=name)
        except asyncpg.ForeignKeyViolationError:
            return False
        return True if rows else None

    # --- steps -------------------------------------------------------------------------------------------

    async def _refuse_if_nothing_is_left(self, db: Connection, namespace_id: int, name: str, now: datetime) -> None:
        """As for a new job: with the rule that was just put in place, something must be left of each schedule that goes
        on. Raising takes the rule back."""
        rows = await self._fetch(db, "jobs_of_calendar", namespace_id=namespace_id, name=name, limit=_JOBS_CHECKED_MAX)
        if not rows:
            return
        facts = TimingFacts(self._database)
        rules = await facts.rules_of([row["job_id"] for row in rows], db)
        left, rare = await _CHECKS.run(lambda: _left_nothing(rows, rules, now))
        hint = "take it from these jobs first"
        faults = []
        if left:
            more = " and others" if len(left) > _JOBS_NAMED_MAX else ""
            message = f"it would leave out every due time of {', '.join(left[:_JOBS_NAMED_MAX])}{more}"
            faults.append(Fault("", "schedule-never-fires", message, hint))
        if rare:
            more = ", and so for others" if len(rare) > _JOBS_NAMED_MAX else ""
            message = f"{'; '.join(rare[:_JOBS_NAMED_MAX])}{more}"
            faults.append(Fault("", "schedule-too-rare", message, hint))
        if faults:
            raise InvalidFields(faults)

    async def _plan_anew(self, db: Connection, namespace_id: int, name: str, now: datetime) -> None:
        """Cursors visit every due time, also those that are left out, so a scheduler that reads the new rule does right
        by itself. Set back are those that have gone on: over runs made ahead of time, and to the end of a stretch."""
        locked = await self._fetch(db, "lock_cursors", namespace_id=namespace_id, name=name, now=now)
        job_ids = [row["job_id"] for row in locked]
        if job_ids:
            await self._fetch(db, "withdraw_runs", job_ids=job_ids, now=now)
        after: UUID | None = None
        facts = TimingFacts(self._database)  # with rules of its own: those of this transaction may not come to be
        while True:
            rows = await self._fetch(
                db,
                "shifted_cursors",
                namespace_id=namespace_id,
                name=name,
                now=now,
                never=NEVER,
                after=after,
                limit=_PAGE,
            )
            await self._set_back(db, facts, rows, now)
            if len(rows) < _PAGE:
                return
            after = rows[-1]["job_id"]

    async def _set_back(self, db: Connection, facts: TimingFacts, rows: Sequence[Record], now: datetime) -> None:
        """Jobs that wait for the next allowed time, which may come earlier now."""
        moves: list[tuple[UUID, datetime, datetime]] = []
        for row in rows:
            timing = await facts.with_calendars(row["job_id"], timing_from_json(from_json(row["timing"])), db)
            try:
                earlier = isinstance(timing, TimingAround) and timing.waits_at(row["next_fire"], now)
            except ZoneFault:
                continue  # the scheduler tells of it
            if earlier:
                moves.append((row["job_id"], row["next_fire"], earlier))
        if moves:
            job_ids, expected, next_fires = zip(*moves, strict=True)
            await self._fetch(db, "set_cursors_back", job_ids=job_ids, expected=expected, next_fires=next_fires)

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> Sequence[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _left_nothing(
    rows: Sequence[Record], rules: Mapping[UUID, Mapping[str, CalendarRule]], now: datetime
) -> tuple[list[str], list[str]]:
    """The jobs of which calendars leave nothing, and what is to be said of those of which perhaps nothing is left. Of
    both together, one more than are named."""
    found: list[str] = []
    rare: list[str] = []
    looked = 0
    for row in rows:
        name = f"{row['name']} ({row['job_id']})"
        steps = Steps(SEARCH_STEPS_MAX)
        try:
            if nothing_is_left(timing_from_json(from_json(row["timing"])), rules.get(row["job_id"], {}), now, steps):
                found.append(name)
        except TooRare as fault:
            rare.append(f"of {name} {fault}")
        looked += SEARCH_STEPS_MAX - steps.left
        if len(found) + len(rare) > _JOBS_NAMED_MAX or looked > _STEPS_CHECKED_MAX:
            break
    return found, rare


def _calendar(row: Record) -> CalendarRow:
    rule = calendar_from_json(from_json(row["rule"]))
    return CalendarRow(
        row["name"], rule, row["version"], row["created_at"], row["updated_at"], row["updated_by"], row["jobs"]
    )
