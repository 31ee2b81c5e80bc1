"""What becomes of a job's due times that nobody has decided about, at the moment when it is changed.

Those that passed while nobody was planning, and those of a pause, belong to the job as it was: they get their runs or
their rows of the ledger before anything else is written.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange, PauseSpan, Plan
from hourhand.model.errors import Conflict
from hourhand.model.exclusion import TimingAround
from hourhand.model.local_time import ZoneFault
from hourhand.model.planning import overdue, plan_job, within
from hourhand.model.schedule import Timing
from hourhand.model.states import Reason
from hourhand.store.job_definitions import definition_of
from hourhand.store.job_pauses import is_paused, own_span
from hourhand.store.job_rows import catchup_from_json
from hourhand.store.ledger_rows import columns_of, ledger_rows
from hourhand.store.pauses import Pauses
from hourhand.store.timing_facts import TimingFacts

_TICK: Final = timedelta(microseconds=1)
_TOLD_APART: Final = (Reason.PAUSED, Reason.EXCLUDED)
"""Why a due time would not have run even if the job had not been cancelled."""


class JobAccounts:
    def __init__(self, database: Database, pauses: Pauses, facts: TimingFacts) -> None:
        self._database = database
        self._pauses = pauses
        self._facts = facts
        self._queries = load_queries("hourhand.store.sql", "jobs.sql", database.schema)

    async def settle_overdue(self, db: Connection, old: Record, now: datetime, runs: bool) -> int:
        """Due times that passed while nobody was planning belong to the job as it was: before its cursor is set anew
        they get their runs by its catch-up policy, or without `runs` an entry in the ledger. Those of a pause of many
        are paused, also if that goes on, and what a calendar leaves out is excluded. How many runs."""
        await self._pauses.wake_cursor(db, old["job_id"])
        cursors = await self._fetch(db, "lock_cursor", job_id=old["job_id"])
        if not cursors or cursors[0]["next_fire"] > now or is_paused(old, now):
            return 0
        policy = catchup_from_json(old["catchup"]) if runs else CatchUpPolicy(CatchUp.NONE)
        spans = await self._pauses.spans_on(db, old["job_id"])
        try:
            timing = await self._facts.with_calendars(old["job_id"], definition_of(old).timing, db)
            found = _counted(overdue(timing, cursors[0]["next_fire"], now, policy, spans))
        except ZoneFault:
            return 0  # nobody can say any more which times those were; the change may be what gives it another zone
        if timing.max_runs is not None:
            found = within(await self._facts.budget_left(db, old["job_id"]), found)
        missed = found.missed
        if not runs:
            missed = missed + [MissedRange(due, due, 1, Reason.JOB_CANCELLED) for due in found.fires]
            missed = [gap if gap.reason in _TOLD_APART else replace(gap, reason=Reason.JOB_CANCELLED) for gap in missed]
        else:
            await self.make_overdue(db, old, found.fires)
        await self._keep_missed(db, old, missed)
        return len(found.fires) if runs else 0

    async def settle_pause(
        self, db: Connection, old: Record, now: datetime, catch_up: CatchUp = CatchUp.NONE
    ) -> list[datetime]:
        """Puts what fell into the job's own pause until now into the ledger; the due times of it that are to run."""
        if definition_of(old).timing.only_instant is not None:
            return []  # its due time waits with the cursor
        found = await self._in_pause(db, old, now, catch_up)
        await self._keep_missed(db, old, found.missed)
        return found.fires

    async def end_pause(self, db: Connection, old: Record, now: datetime, reason: Reason) -> None:
        """The same where nothing of it will run. Instants that were asked for would have run afterwards, but for this
        reason."""
        found = await self._in_pause(db, old, now, CatchUp.NONE)
        waiting = [MissedRange(due, due, 1, reason) for due in found.fires]
        await self._keep_missed(db, old, found.missed + waiting)

    async def count_pause(self, db: Connection, old: Record, now: datetime) -> bool:
        """Of a pause with more due times than can be told at once, puts the first ones into the ledger and counts the
        pause from there on. False when all of it can be told."""
        if old["pause_from"] is None:
            return False
        timing = definition_of(old).timing
        span = own_span(old, now, timing)
        if span is None or span.end is None or not timing.recurring:
            return False
        try:
            timing = await self._facts.with_calendars(old["job_id"], timing, db)
            first, until = _first_in(span, timing), min(now, span.end - _TICK)
            if first is None or first > until:
                return False
            part = plan_job(timing, first, until + _TICK, -_TICK, CatchUpPolicy(CatchUp.NONE), [span])
        except ZoneFault:
            return False
        if part.next_due is None or part.next_due > until or not part.missed:
            return False
        await self._keep_missed(db, old, part.missed)
        job = {"namespace_id": old["namespace_id"], "job_id": old["job_id"]}
        await self._fetch(db, "count_pause_from", **job, pause_from=part.next_due - _TICK)
        return True

    async def _in_pause(self, db: Connection, old: Record, now: datetime, catch_up: CatchUp) -> Plan:
        """What fell into the job's own pause until now, as far as it is not in the ledger."""
        definition = definition_of(old)
        span = own_span(old, now, definition.timing, catch_up)
        if span is None or span.end is None:
            return Plan([], [], None)
        try:
            timing = await self._facts.with_calendars(old["job_id"], definition.timing, db)
            # What is due behind its end has a cursor of its own.
            first, until = _first_in(span, timing), min(now, span.end - _TICK)
            if first is None or first > until:
                return Plan([], [], first)
            found = _counted(overdue(timing, first, until, definition.catchup, [span]))
        except ZoneFault:
            return Plan([], [], None)
        if timing.max_runs is not None:
            found = within(await self._facts.budget_left(db, old["job_id"]), found)
        return found

    async def make_overdue(self, db: Connection, old: Record, fires: Sequence[datetime]) -> None:
        if fires:
            await self._fetch(db, "make_overdue", job_id=old["job_id"], dues=fires, once=old["due_at"] is not None)

    async def _keep_missed(self, db: Connection, old: Record, missed: Sequence[MissedRange]) -> None:
        if missed:
            columns = columns_of(ledger_rows(missed))
            await self._fetch(db, "keep_missed", job_id=old["job_id"], version=old["version"], **columns)

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _first_in(span: PauseSpan, timing: Timing) -> datetime | None:
    """The first due time in a pause, also one that a calendar leaves out."""
    return timing.next_event(span.start) if isinstance(timing, TimingAround) else timing.next_after(span.start)


def _counted(found: Plan | None) -> Plan:
    if found is None:
        raise Conflict("busy", "the job's missed due times are still being counted; try again in a moment")
    return found
