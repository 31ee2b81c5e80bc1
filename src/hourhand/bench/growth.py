"""What a job costs when little is stored, and when much is.

History is made in the database itself, from rows that the product wrote for one job that ran: the same columns, other
ids and times, spread over today and the past weeks, and their partitions, as if it had been lived through. Then whole
lives are measured by turns on two clusters: the one with all of it, and one with little, which is made anew for each
turn, because whole lives leave half a million jobs behind. Who goes first changes from pair to pair; the one whose turn
it is not has come to rest.
"""

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from hourhand.bench.bodies import job_body
from hourhand.bench.cluster import SCHEMA, Cluster
from hourhand.bench.draining import drain
from hourhand.bench.lifecycle import Lifecycle, measure_lifecycle
from hourhand.bench.meter import CLIENT
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.target import Target, open_target
from hourhand.bench.wire import expect
from hourhand.bench.witness import LineCount
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.servers import Connection
from hourhand.store.partitions import Cut, Partitions

DAYS: Final = 28
"""Shorter than runs are kept, so that nothing of it is dropped meanwhile."""
SLICE: Final = 250_000
REST_SECONDS_MAX: Final = 60.0
_VACUUMING: Final = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')"
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
    pairs: int = 1


async def measure_growth(target: Target, asked: Growth, progress: Progress) -> Measured:
    assert target.cluster is not None, "what is stored is made in a temporary cluster"
    await _run_one(target)
    seconds = await Filler(target.cluster, progress).fill(asked.stored)
    bases: list[Measured] = []
    growns: list[Measured] = []
    for pair in range(asked.pairs):
        progress.note(f"pair {pair + 1} of {asked.pairs}")
        if pair % 2 == 0:
            bases.append(await _measure_base(target, asked, progress))
            growns.append(await _measure_grown(target, asked, progress))
        else:
            growns.append(await _measure_grown(target, asked, progress))
            bases.append(await _measure_base(target, asked, progress))
    ratios = [cost_us(grown.facts) / cost_us(base.facts) for base, grown in zip(bases, growns, strict=True)]
    facts: Facts = {
        **growns[-1].facts,
        "bench": "growth",
        "stored": asked.stored,
        "fill_seconds": seconds,
        "compared": {
            "base": {"stored": asked.base, **_brief(bases)},
            "grown": {"stored": asked.stored, **_brief(growns)},
        },
        "cost_ratio": round(statistics.median(ratios), 3),
        "cost_ratios": [round(ratio, 3) for ratio in ratios],
        "lost": sum(each.facts["lost"] for each in (*bases, *growns)),
        "doubled": sum(each.facts["doubled"] for each in (*bases, *growns)),
        "early": sum(each.facts["early"] for each in (*bases, *growns)),
    }
    return Measured(facts, growns[-1].series)


def cost_us(facts: Mapping[str, Any]) -> float:
    """Microseconds of processor time per job, of everything but the client."""
    cores = sum(share for role, share in facts["cpu"].items() if role != CLIENT)
    return round(cores * facts["seconds"] / facts["jobs"] * 1e6, 2) if facts["jobs"] else 0.0


def _brief(several: Sequence[Measured]) -> dict[str, float]:
    """Medians."""
    every = [each.facts for each in several]
    return {
        "cost_us": statistics.median(cost_us(facts) for facts in every),
        "jobs_per_second": statistics.median(facts["jobs_per_second"] for facts in every),
        "p99_ms": statistics.median(facts["lateness_ms"]["p99"] for facts in every),
    }


async def _measure_base(target: Target, asked: Growth, progress: Progress) -> Measured:
    assert target.cluster is not None
    async with open_target(settings=target.cluster.settings, progress=progress) as little:
        assert little.cluster is not None
        await _run_one(little)
        await Filler(little.cluster, progress).fill(asked.base)
        return await _measure(little, asked, progress)


async def _measure_grown(target: Target, asked: Growth, progress: Progress) -> Measured:
    assert target.cluster is not None
    measured = await _measure(target, asked, progress)
    await _rest(target.cluster)
    return measured


async def _rest(cluster: Cluster) -> None:
    """Lets a cluster do what it has put off: it must not do so while the other one is measured."""
    database = await cluster.connect()
    try:
        await database.execute("CHECKPOINT")
        deadline = time.monotonic() + REST_SECONDS_MAX
        while await database.fetchval(_VACUUMING) and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.5)
    finally:
        await database.close()


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
                await self._fill_day(database, day, min(per_day, count - day * per_day), count)
            self._progress.end()
            for table in ("jobs", "runs"):
                await database.execute(f"VACUUM (ANALYZE) {SCHEMA}.{table}")
            await database.execute("CHECKPOINT")
        finally:
            await database.close()
        return time.monotonic() - began

    async def _fill_day(self, database: Connection, day: int, count: int, total: int) -> None:
        """So many days ago; 0: today, as far as it is over. What is measured is written behind that."""
        begin = _midnight() - timedelta(days=day)
        length = timedelta(days=1) if day else datetime.now(UTC) - begin
        for place in range(0, max(count, 0), SLICE):
            size, step = min(SLICE, count - place), length / count
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
                then = _midnight() - timedelta(days=day)
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
