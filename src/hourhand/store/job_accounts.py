"""What becomes of a job's due times that nobody has decided about, at the moment when it is changed.

Those that passed while nobody was planning, and those of a pause, belong to the job as it was: they get their runs or
their rows of the ledger before anything else is written.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange, PauseSpan, Plan, ready_when_made
from hourhand.model.errors import Conflict
from hourhand.model.exclusion import TimingAround
from hourhand.model.local_time import ZoneFault
from hourhand.model.planning import overdue, plan_job, within
from hourhand.model.schedule import Timing
from hourhand.model.states import Reason
from hourhand.store.job_definitions import definition_of
from hourhand.store.job_pauses import ended_by, is_paused, own_span
from hourhand.store.job_rows import catchup_from_json
from hourhand.store.ledger_rows import columns_of, ledger_rows
from hourhand.store.pauses import Pauses
from hourhand.store.timing_facts import TimingFacts

COUNTING_SECONDS_MAX: Final = 10.0
_TICK: Final = timedelta(microseconds=1)
_TOLD_APART: Final = (Reason.PAUSED, Reason.EXCLUDED)
"""Why a due time would not have run even if the job had not been cancelled."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of due times that nobody had decided about."""

    made: int = 0
    """Runs that were made of them."""
    held: datetime | None = None
    """The first that a pause of many holds: still nobody decides about it and what follows."""


class Patience:
    """How long somebody waits who changes a job of which there is much to count first."""

    def __init__(self) -> None:
        self._until = time.monotonic() + COUNTING_SECONDS_MAX

    def check(self) -> None:
        if time.monotonic() > self._until:
            raise _still_counted()


class JobAccounts:
    def __init__(self, database: Database, pauses: Pauses, facts: TimingFacts) -> None:
        self._database = database
        self._pauses = pauses
        self._facts = facts
        self._queries = load_queries("hourhand.store.sql", "jobs.sql", database.schema)

    async def settle_overdue(
        self, db: Connection, old: Record, now: datetime, runs: bool, keep_held: bool = False, made: int = 0
    ) -> Settled:
        """Due times that passed while nobody was planning belong to the job as it was: before its cursor is set anew
        they get their runs by its catch-up policy, or without `runs` an entry in the ledger. Those of a pause of many
        are paused, also if that goes on, unless `keep_held` leaves them to whoever ends it; and what a calendar leaves
        out is excluded. Of a budget of runs so many are taken that were `made` of earlier due times."""
        await self._pauses.wake_cursor(db, old["job_id"])
        cursors = await self._fetch(db, "lock_cursor", job_id=old["job_id"])
        if not cursors or cursors[0]["next_fire"] > now or is_paused(old, now):
            return Settled()
        policy = catchup_from_json(old["catchup"]) if runs else CatchUpPolicy(CatchUp.NONE)
        spans = await self._pauses.spans_on(db, old["job_id"])
        try:
            timing = await self._facts.with_calendars(old["job_id"], definition_of(old).timing, db)
            cursor = _behind(own_span(old, now, definition_of(old).timing), timing, cursors[0]["next_fire"])
            if cursor is None or cursor > now:
                return Settled()
            found = _counted(overdue(timing, cursor, now, policy, spans, keep_held=keep_held))
        except ZoneFault:
            # Nobody can say any more which times those were; the change may be what gives it another zone.
            return Settled()
        if timing.max_runs is not None:
            left = await self._facts.budget_left(db, old["job_id"])
            found = within(None if left is None else max(left - made, 0), found)
        missed = found.missed
        if not runs:
            missed = missed + [MissedRange(due, due, 1, Reason.JOB_CANCELLED) for due in found.fires]
            missed = [gap if gap.reason in _TOLD_APART else replace(gap, reason=Reason.JOB_CANCELLED) for gap in missed]
        else:
            await self.make_overdue(db, old, found.fires, now)
        await self._keep_missed(db, old, missed)
        held = found.next_due if found.next_due is not None and found.next_due <= now else None
        return Settled(len(found.fires) if runs else 0, held)

    async def _count_overdue(self, db: Connection, old: Record, now: datetime) -> bool:
        """Of due times of a pause of many, if they are more than can be told at once, puts the first ones into the
        ledger and moves the cursor behind them. False when all that is overdue can be told."""
        await self._pauses.wake_cursor(db, old["job_id"])
        cursors = await self._fetch(db, "lock_cursor", job_id=old["job_id"])
        if not cursors or cursors[0]["next_fire"] > now or is_paused(old, now):
            return False
        spans = await self._pauses.spans_on(db, old["job_id"])
        if not spans:
            return False
        try:
            timing = await self._facts.with_calendars(old["job_id"], definition_of(old).timing, db)
            cursor = _behind(own_span(old, now, definition_of(old).timing), timing, cursors[0]["next_fire"])
            if cursor is None or cursor > now:
                return False
            part = overdue(timing, cursor, now, catchup_from_json(old["catchup"]), spans, plans_max=1)
        except ZoneFault:
            return False
        if part is None or part.next_due is None or part.next_due > now or part.fires or not part.missed:
            return False
        await self._keep_missed(db, old, part.missed)
        await self._fetch(db, "move_cursor", job_id=old["job_id"], next_fire=part.next_due)
        return True

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

    async def count_pauses(self, db: Connection, old: Record, now: datetime, patience: Patience) -> bool:
        """Of pauses with more due times than can be told at once, puts the first ones into the ledger; to be called
        again in a transaction of its own. False when all that is left can be told. What is told stays so: whoever is
        refused in the end finds less to do when they come again."""
        patience.check()
        return await self._count_pause(db, old, now) or await self._count_overdue(db, old, now)

    async def _count_pause(self, db: Connection, old: Record, now: datetime) -> bool:
        """Of a pause with more due times than can be told at once, puts the first ones into the ledger and counts the
        pause from there on. False when all of it can be told."""
        if old["pause_from"] is None:
            return False
        timing = definition_of(old).timing
        span = await self._own_span(db, old, now, timing)
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
        span = await self._own_span(db, old, now, definition.timing, catch_up)
        if span is None or span.end is None:
            return Plan([], [], None)
        try:
            timing = await self._facts.with_calendars(old["job_id"], definition.timing, db)
            # What is due behind its end has a cursor of its own.
            first, until = _first_in(span, timing), min(now, span.end - _TICK)
            if first is None or first > until:
                return Plan([], [], first)
            spans = [span, *await self._beside(db, old, span)]
            found = _counted(overdue(timing, first, until, definition.catchup, spans))
        except ZoneFault:
            return Plan([], [], None)
        if timing.max_runs is not None:
            found = within(await self._facts.budget_left(db, old["job_id"]), found)
        return found

    async def _beside(self, db: Connection, old: Record, span: PauseSpan) -> list[PauseSpan]:
        """Pauses of many that hold some of what fell into the job's own pause: they may have less of it run."""
        if span.catch_up is CatchUp.NONE:
            return []
        return await self._pauses.spans_since(db, old["namespace_id"], old["job_id"], span.start)

    async def _own_span(
        self, db: Connection, old: Record, now: datetime, timing: Timing, catch_up: CatchUp = CatchUp.NONE
    ) -> PauseSpan | None:
        """Its own pause, as far as anything was due in it: after the last run of its budget nothing is."""
        span = own_span(old, now, timing, catch_up)
        if span is None or timing.max_runs is None or await self._facts.budget_left(db, old["job_id"]) != 0:
            return span
        [last] = await self._fetch(db, "last_due", job_id=old["job_id"])
        return ended_by(span, last["due"] or old["created_at"])

    async def make_overdue(self, db: Connection, old: Record, fires: Sequence[datetime], now: datetime) -> None:
        if fires:
            ready = [ready_when_made(due, now) for due in fires]
            once = old["due_at"] is not None
            await self._fetch(db, "make_overdue", job_id=old["job_id"], dues=fires, ready=ready, once=once)

    async def _keep_missed(self, db: Connection, old: Record, missed: Sequence[MissedRange]) -> None:
        if missed:
            columns = columns_of(ledger_rows(missed))
            await self._fetch(db, "keep_missed", job_id=old["job_id"], version=old["version"], **columns)

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _first_in(span: PauseSpan, timing: Timing) -> datetime | None:
    """The first due time in a pause, also one that a calendar leaves out."""
    return _event_after(span.start, timing)


def _behind(span: PauseSpan | None, timing: Timing, cursor: datetime) -> datetime | None:
    """The cursor, moved past the job's own pause that is over: what fell into that is told apart."""
    if span is None or span.end is None or cursor >= span.end:
        return cursor
    return _event_after(span.end - _TICK, timing)


def _event_after(instant: datetime, timing: Timing) -> datetime | None:
    return timing.next_event(instant) if isinstance(timing, TimingAround) else timing.next_after(instant)


def _counted(found: Plan | None) -> Plan:
    if found is None:
        raise _still_counted()
    return found


def _still_counted() -> Conflict:
    return Conflict("busy", "the job's missed due times are still being counted; try again in a moment")
