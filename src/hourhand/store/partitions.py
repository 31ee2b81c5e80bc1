"""Partitions: made ahead, dropped when their time is over.

History is cut by day, definitions by week; both by the time in the leading bits of the id. Rows whose day has no
partition land in the table's `_rest` partition, so that nothing is refused; making a partition first moves such
rows into it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.ids import lowest_id_at
from hourhand.model.keys import IDEMPOTENCY_KEY_KEPT

_BEFORE_ALL_DAYS: Final = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday: weeks are counted from it
_NAME: Final = re.compile(r"^(\w+)_(\d{8})$")
SLICE: Final = 5000
"""Keys that are looked at in one statement."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How one table is cut."""

    table: str
    days: int
    ahead: int
    """Partitions made before they are needed."""
    keep_days: int | None
    """None: kept for ever."""


class Partitions:
    def __init__(self, database: Database, keep_audit_days: int | None = None) -> None:
        """`keep_audit_days`: older entries of the audit go; None leaves them all."""
        self._database = database
        self._keep_audit_days = keep_audit_days
        self._queries = load_queries("hourhand.store.sql", "partitions.sql", database.schema)

    async def maintain(self, cuts: Sequence[Cut], now: datetime) -> tuple[list[str], list[str]]:
        """Makes what will be needed and drops what is over; the names of both."""
        rows = await self._database.fetch(self._queries["list_partitions"], schema=self._database.schema)
        present = {row["name"] for row in rows}
        made, dropped = [], []
        for cut in cuts:
            for start in _needed(cut, now):
                name = f"{cut.table}_{start:%Y%m%d}"
                if name not in present:
                    await self._make(cut, name, start)
                    made.append(name)
            for name in sorted(present):
                if _is_over(cut, name, now):
                    await self._drop(name)
                    dropped.append(name)
            if cut.keep_days is not None:
                await self._sweep_rest(cut, now - timedelta(days=cut.keep_days))
        kept = [cut.keep_days for cut in cuts if cut.keep_days is not None]
        if kept:
            await self._prune(now - timedelta(days=max(kept)))
        await self._prune_keys(now)
        if self._keep_audit_days is not None:
            await self._prune_audit(now - timedelta(days=self._keep_audit_days))
        return made, dropped

    async def _prune(self, before: datetime) -> None:
        """Small tables that go by the same retention, row by row."""
        for name in ("prune_run_requests", "prune_run_parts"):
            await self._database.fetch(self._queries[name], before_id=lowest_id_at(before))
        for name in ("prune_ledger_ranges", "prune_pauses", "prune_nodes", "prune_tokens"):
            await self._database.fetch(self._queries[name], before=before)

    async def _prune_audit(self, before: datetime) -> None:
        """A slice at a time: there may be very many."""
        query = self._queries["prune_audit"]
        while len(await self._database.fetch(query, before=before, limit=SLICE)) == SLICE:
            pass

    async def _prune_keys(self, now: datetime) -> None:
        """Keys of submissions that stand for nothing any more, a slice at a time: others may be waiting for one."""
        query, before = self._queries["prune_idempotency_keys"], now - IDEMPOTENCY_KEY_KEPT
        while len(await self._database.fetch(query, before=before, limit=SLICE)) == SLICE:
            pass
        place: Record | None = None
        while True:
            namespace_id, key = (0, "") if place is None else (place["namespace_id"], place["key"])
            place = await self._database.fetch_one(
                self._queries["prune_unique_keys"], namespace_id=namespace_id, key=key, now=now, limit=SLICE
            )
            if place is None:
                return

    async def _make(self, cut: Cut, name: str, start: datetime) -> None:
        schema = self._database.schema
        low, high = lowest_id_at(start), lowest_id_at(start + timedelta(days=cut.days))
        async with self._database.transaction() as db:
            await _bound_waiting(db)
            await db.execute(
                f"CREATE TABLE {schema}.{name} (LIKE {schema}.{cut.table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
            )
            await db.execute(
                f"WITH strays AS (DELETE FROM {schema}.{cut.table}_rest WHERE {_key(cut)} >= '{low}' "
                f"AND {_key(cut)} < '{high}' RETURNING *) INSERT INTO {schema}.{name} SELECT * FROM strays"
            )
            await db.execute(
                f"ALTER TABLE {schema}.{cut.table} ATTACH PARTITION {schema}.{name} "
                f"FOR VALUES FROM ('{low}') TO ('{high}')"
            )

    async def _sweep_rest(self, cut: Cut, before: datetime) -> None:
        """Rows that found no partition of their own go by the same rule."""
        async with self._database.connection() as db:
            await db.execute(
                f"DELETE FROM {self._database.schema}.{cut.table}_rest WHERE {_key(cut)} < '{lowest_id_at(before)}'"
            )

    async def _drop(self, name: str) -> None:
        async with self._database.transaction() as db:
            await _bound_waiting(db)
            await db.execute(f"DROP TABLE {self._database.schema}.{name}")


async def _bound_waiting(db: Connection) -> None:
    # Behind a waiting exclusive lock every other statement queues up; better to give up and try again later.
    await db.execute("SET LOCAL lock_timeout = '1s'")


def _key(cut: Cut) -> str:
    return "job_id" if cut.table == "jobs" else "run_id"


def _needed(cut: Cut, now: datetime) -> list[datetime]:
    length = timedelta(days=cut.days)
    first = _BEFORE_ALL_DAYS + (now - _BEFORE_ALL_DAYS) // length * length
    return [first + length * step for step in range(cut.ahead + 1)]


def _is_over(cut: Cut, name: str, now: datetime) -> bool:
    match = _NAME.match(name)
    if cut.keep_days is None or match is None or match[1] != cut.table:
        return False
    start = datetime.strptime(match[2], "%Y%m%d").replace(tzinfo=UTC)
    return start + timedelta(days=cut.days + cut.keep_days) <= now
