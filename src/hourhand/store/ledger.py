"""Reads what is known of a job's due times: runs, stretches without any, and what follows from the job itself."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.catchup import MissedRange
from hourhand.model.ids import lowest_id_at, scheduled_run_id
from hourhand.model.ledger import Became, LedgerFacts, RangeFact, RunFact, older_part
from hourhand.model.schedule import At, Timing, timing_from_json
from hourhand.model.states import RunState
from hourhand.ports.stores import NEVER
from hourhand.store.job_pauses import ended_by, own_span
from hourhand.store.job_rows import catchup_from_json
from hourhand.store.jsons import from_json
from hourhand.store.ledger_rows import split_row
from hourhand.store.pauses import Pauses
from hourhand.store.timing_facts import TimingFacts

_MILLISECOND: Final = timedelta(milliseconds=1)


class Ledger:
    def __init__(self, database: Database, pauses: Pauses) -> None:
        self._database = database
        self._pauses = pauses
        self._queries = load_queries("hourhand.store.sql", "ledger.sql", database.schema)
        self._facts = TimingFacts(database)

    async def read_ledger(
        self, namespace_id: int, job_id: UUID, begin: datetime, until: datetime, now: datetime, limit: int
    ) -> LedgerFacts | None:
        async with (
            self._database.connection() as db,
            db.transaction(isolation="repeatable_read", readonly=True),
        ):
            found = await self._fetch(db, "ledger_job", namespace_id=namespace_id, job_id=job_id)
            if not found:
                return None
            [job] = found
            timings = await self._timings(db, job)
            span = {"since": begin, "until": until, "limit": limit + 1}
            rows = await self._fetch(
                db,
                "ledger_runs",
                namespace_id=namespace_id,
                job_id=job_id,
                lowest=lowest_id_at(begin),
                highest=lowest_id_at(until + _MILLISECOND),
                once_run_id=None if job["due_at"] is None else scheduled_run_id(job["due_at"], job_id),
                **span,
            )
            stretches = await self._fetch(db, "ledger_stretches", job_id=job_id, **span)
            backfilled = await self._fetch(db, "ledger_backfills", job_id=job_id, **span)
            spans = await self._pauses.spans_on(db, job_id)
            current = timings[job["version"]][1]
            timing = await self._facts.with_calendars(job_id, current, db)
        # What there is more of is not known beyond: the page ends there at the latest.
        if len(rows) > limit:
            until = min(until, rows[-1]["scheduled_for"])
        if len(stretches) > limit:
            until = min(until, stretches[-1]["first_due"])
        return LedgerFacts(
            now=now,
            begin=begin,
            until=until,
            created_at=job["created_at"],
            timing=timing,
            runs=[_run(row) for row in rows],
            ranges=[part for row in stretches for part in _ranges(row, timings, current)],
            cursor=None if job["next_fire"] == NEVER else job["next_fire"],
            spans=spans,
            own_span=ended_by(own_span(job, now, current), job["ended_at"]),
            earlier=[(ends, timing) for version, (ends, timing) in sorted(timings.items()) if version < job["version"]],
            ended_at=job["ended_at"],
            catchup_window=catchup_from_json(job["catchup"]).window,
            backfilled={row["due"]: row["run_id"] for row in backfilled},
        )

    async def _timings(self, db: Connection, job: Record) -> dict[int, tuple[datetime, Timing]]:
        """By version, each with the end of its time."""
        timings = {job["version"]: (NEVER, _timing(job["timing"], job["due_at"]))}
        if job["version"] > 1:
            rows = await self._fetch(db, "ledger_versions", job_id=job["job_id"], updated_at=job["updated_at"])
            for row in rows:
                due_at = None if row["due_at"] is None else datetime.fromisoformat(row["due_at"])
                timings[row["version"]] = row["replaced_at"], _timing(row["timing"], due_at)
        return timings

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _timing(stored: str | None, due_at: datetime | None) -> Timing:
    read = from_json(stored)
    if read is not None:
        return timing_from_json(read)
    assert due_at is not None, "a job has a schedule or an instant"
    return Timing((At(due_at),))


def _run(row: Record) -> RunFact:
    return RunFact(
        row["run_id"],
        row["scheduled_for"],
        RunState(row["state"]),
        row["reason"],
        row["error"],
        row["started_at"],
        row["ended_at"],
    )


_BECAME: Final[Mapping[str, Became]] = {"paused": Became.PAUSED, "excluded": Became.EXCLUDED}


def _ranges(row: Record, timings: Mapping[int, tuple[datetime, Timing]], current: Timing) -> list[RangeFact]:
    timing = timings[row["version"]][1] if row["version"] in timings else current
    parts = [_range(part, timing) for part in split_row(row)]
    return [older_part(parts[0]), *parts[1:]] if len(parts) > 1 else parts


def _range(part: MissedRange, timing: Timing) -> RangeFact:
    reason = part.reason.value
    became = _BECAME.get(reason, Became.MISSED)
    return RangeFact(part.first, part.last, part.count, became, reason, timing, part.detail)
