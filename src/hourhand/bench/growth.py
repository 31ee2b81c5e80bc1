"""What a job costs when little is stored, and when much is.

History is made in the database itself, from rows that the product wrote for one job that ran: the same columns, other
ids and times, spread over the partitions of the past weeks as if it had been lived through. Then whole lives are
measured, first with little, then with all of it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from hourhand.bench.bodies import job_body
from hourhand.bench.cluster import SCHEMA, Cluster
from hourhand.bench.draining import drain
from hourhand.bench.lifecycle import Lifecycle, measure_lifecycle
from hourhand.bench.meter import CLIENT
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.target import Target
from hourhand.bench.wire import expect
from hourhand.bench.witness import LineCount
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.servers import Connection
from hourhand.store.partitions import Cut, Partitions

DAYS: Final = 28
"""Shorter than runs are kept, so that nothing of it is dropped meanwhile."""
SLICE: Final = 250_000
_JOB: Final = {"job_id": "x.id", "due_at": "x.at", "created_at": "x.at", "updated_at": "x.at"}
_RUN: Final = {
    "run_id": f"{SCHEMA}.scheduled_run_id(x.at, x.id)",
    "job_id": "x.id",
    "scheduled_for": "x.at",
    "started_at": "x.at + interval '5 ms'",
    "ended_at": "x.at + interval '6 ms'",
}
_IDS: Final = """
    SELECT at, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
                || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid AS id
      FROM (SELECT $1::timestamptz + g * $2::interval AS at, md5(($3::bigint + g)::text) AS h
              FROM generate_series(0, $4::int - 1) g) made"""


@dataclass(frozen=True, slots=True)
class Growth:
    stored: int = 10_000_000
    base: int = 10_000
    seconds: float = 30.0
    mode: Literal["immediate", "future"] = "immediate"


async def measure_growth(target: Target, asked: Growth, progress: Progress) -> Measured:
    assert target.cluster is not None, "what is stored is made in a temporary cluster"
    await _run_one(target)
    filler = Filler(target.cluster, progress)
    await filler.fill(asked.base)
    base = await _measure(target, asked, progress)
    seconds = await filler.fill(asked.stored - asked.base)
    grown = await _measure(target, asked, progress)
    small, large = cost_us(base.facts), cost_us(grown.facts)
    facts: Facts = {
        **grown.facts,
        "bench": "growth",
        "stored": asked.stored,
        "fill_seconds": seconds,
        "compared": {
            "base": {"stored": asked.base, "cost_us": small, **_brief(base.facts)},
            "grown": {"stored": asked.stored, "cost_us": large, **_brief(grown.facts)},
        },
        "cost_ratio": round(large / small, 3) if small else 0.0,
    }
    return Measured(facts, grown.series)


def cost_us(facts: Mapping[str, Any]) -> float:
    """Microseconds of processor time per job, of everything but the client."""
    cores = sum(share for role, share in facts["cpu"].items() if role != CLIENT)
    return round(cores * facts["seconds"] / facts["jobs"] * 1e6, 2) if facts["jobs"] else 0.0


def _brief(facts: Mapping[str, Any]) -> dict[str, float]:
    return {"jobs_per_second": facts["jobs_per_second"], "p99_ms": facts["lateness_ms"]["p99"]}


async def _measure(target: Target, asked: Growth, progress: Progress) -> Measured:
    await measure_lifecycle(target, Lifecycle(min(asked.seconds, 5.0), asked.mode), Progress.silent())  # warmth
    return await measure_lifecycle(target, Lifecycle(asked.seconds, asked.mode), progress)


async def _run_one(target: Target) -> None:
    """Lets one job run: its rows are the model for all others."""
    lines = LineCount(target.witness)
    async with target.wire() as wire:
        expect(await wire.post("/api/v1/jobs", job_body()), 202, "a job")
    await drain(target, lines, 1, [])
    lines.close()


class Filler:
    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self._cluster = cluster
        self._progress = progress
        self._made = 0

    async def fill(self, count: int) -> float:
        """Adds so many finished jobs with a run each; how long that took."""
        began, per_day = time.monotonic(), -(-count // DAYS)
        await self._make_partitions()
        database = await self._cluster.connect()
        try:
            await _keep_models(database)
            for day in range(DAYS):
                begin = _midnight() - timedelta(days=day + 1)
                await self._fill_day(database, begin, min(per_day, count - day * per_day), count)
            self._progress.end()
            for table in ("jobs", "runs"):
                await database.execute(f"VACUUM (ANALYZE) {SCHEMA}.{table}")
            await database.execute("CHECKPOINT")
        finally:
            await database.close()
        return time.monotonic() - began

    async def _fill_day(self, database: Connection, begin: datetime, count: int, total: int) -> None:
        for place in range(0, max(count, 0), SLICE):
            size, step = min(SLICE, count - place), timedelta(days=1) / count
            values = (begin + place * step, step, self._made, size)
            for table, replaced in (("jobs", _JOB), ("runs", _RUN)):
                await database.execute(await _insertion(database, table, replaced), *values)
            self._made += size
            self._progress.update(f"storing {total:,} jobs and runs: {self._made:,} so far")

    async def _make_partitions(self) -> None:
        """The past has its partitions, as it would have had them."""
        database = Database(DatabaseSettings(url=self._cluster.database_url, pool_max=1), "bench")
        await database.open()
        try:
            for day in range(DAYS):
                then = _midnight() - timedelta(days=day + 1)
                await Partitions(database).maintain([Cut("jobs", 7, 0, None), Cut("runs", 1, 0, None)], then)
        finally:
            await database.close()


async def _keep_models(database: Connection) -> None:
    for table in ("jobs", "runs"):
        await database.execute(f"CREATE TEMPORARY TABLE model_of_{table} AS SELECT * FROM {SCHEMA}.{table} LIMIT 1")


async def _insertion(database: Connection, table: str, replaced: Mapping[str, str]) -> str:
    """Copies the model into all columns that the table has, whichever those are, but for ids and times."""
    rows = await database.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' ORDER BY attnum",
        f"{SCHEMA}.{table}",
    )
    columns = [row["attname"] for row in rows]
    values = ", ".join(replaced.get(column, f"m.{column}") for column in columns)
    return f"INSERT INTO {SCHEMA}.{table} ({', '.join(columns)}) SELECT {values} FROM model_of_{table} m, ({_IDS}) x"


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
