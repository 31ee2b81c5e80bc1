"""A million recurring jobs in a temporary cluster, written straight into its tables in the shape that the API makes.

One job is submitted as everybody does it; its rows are the model of all others, which differ in id, expression, zone
and cursor. Due times are worked out from the numbers that the expressions are made of, without the product's cron code.
"""

import random
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from hourhand.bench.bodies import NOOP
from hourhand.bench.cluster import SCHEMA
from hourhand.bench.occurrences import ZONES
from hourhand.bench.target import Target
from hourhand.bench.wire import expect
from hourhand.database.servers import Connection
from hourhand.model.ids import shard_of, time_ordered_id

HOUR = 3600
FAR = "2199-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Cron:
    """Due at one second of some minutes of every hour of the days to come."""

    second: int
    minutes: tuple[int, ...]
    """By the clock of the zone."""
    hours: tuple[int, ...] | None
    zone: str
    ahead: int
    """By how many minutes the zone's clock is ahead, within the hour."""

    @property
    def text(self) -> str:
        hours = "*" if self.hours is None else ",".join(map(str, self.hours))
        return f"{self.second} {','.join(map(str, self.minutes))} {hours} * * *"

    def seconds_of_hour(self) -> list[int]:
        """By UTC."""
        return sorted((minute - self.ahead) % 60 * 60 + self.second for minute in self.minutes)

    def due_times(self, begin: int, end: int) -> Iterator[int]:
        """From `begin` to before `end`, in seconds since 1970."""
        seconds = self.seconds_of_hour()
        for hour in range(begin - begin % HOUR, end, HOUR):
            yield from (hour + second for second in seconds if begin <= hour + second < end)


def crons(jobs: int, per_second: float, now: float) -> list[Cron]:
    """Distinct expressions, of which so many fall due in each second: those of one pattern are the same minutes
    turned by a second each, so that every second of the hour gets its share."""
    chance = random.Random(7)  # the same every time
    found: list[Cron] = []
    seen: set[tuple[tuple[int, ...], tuple[int, ...] | None, str]] = set()
    rounds = max(-(-jobs // HOUR), 1)  # never fewer than asked for
    spent = 0
    while len(found) < rounds * HOUR:
        place = len(found) // HOUR
        zone = ZONES[place % len(ZONES)]
        often = min(max(round(per_second * (place + 1) / rounds) - spent, 1), 60)
        gaps = (0, *sorted(chance.sample(range(1, 60), often - 1)))
        hours = _hours(zone, now, chance) if chance.random() < 0.5 else None
        turned = [(tuple(sorted((minute + turn) % 60 for minute in gaps)), hours, zone) for turn in range(60)]
        if len(set(turned)) < 60 or seen & set(turned):
            continue
        seen |= set(turned)
        spent += often
        ahead = _minutes_ahead(zone, now)
        found += [Cron(second, minutes, hours, zone, ahead) for minutes, _, _ in turned for second in range(60)]
    return found


def _hours(zone: str, now: float, chance: random.Random) -> tuple[int, ...]:
    """The hours that the zone's clock shows from now on for a while, and some others."""
    begin = datetime.fromtimestamp(now, ZoneInfo(zone))
    shown = {(begin + timedelta(hours=hour)).hour for hour in range(-1, 5)}
    return tuple(sorted(shown.union(chance.sample(range(24), chance.randint(0, 12)))))


def _minutes_ahead(zone: str, now: float) -> int:
    offset = datetime.fromtimestamp(now, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) // 60 % 60


# --- rows -------------------------------------------------------------------------------------------------


class Stored:
    """Jobs whose rows are written; their cursors follow, when it is known from when on they are due."""

    def __init__(self, database: Connection, ids: Sequence[Any]) -> None:
        self._database = database
        self.ids = ids

    async def put_cursors(self, dues: Sequence[int]) -> float:
        """When each falls due next, in seconds since 1970. How long that took."""
        began = time.monotonic()
        columns = "job_id uuid, next_fire timestamptz, shard smallint"
        await self._database.execute(f"CREATE TEMPORARY TABLE cursors ({columns})")
        await self._database.copy_records_to_table(
            "cursors",
            columns=["job_id", "next_fire", "shard"],
            records=(
                (job_id, datetime.fromtimestamp(due, UTC), shard_of(job_id))
                for job_id, due in zip(self.ids, dues, strict=True)
            ),
        )
        replaced = {"job_id": "x.job_id", "next_fire": "x.next_fire", "shard": "x.shard"}
        await self._database.execute(await _insertion(self._database, "timetable", replaced, "cursors"))
        await self._database.execute(f"VACUUM (ANALYZE) {SCHEMA}.timetable")
        return time.monotonic() - began


async def store_jobs(target: Target, database: Connection, texts: Sequence[tuple[str, str]]) -> Stored:
    """A job for each expression and zone, without a cursor yet."""
    model = {"name": "stored", "payload": NOOP, "schedule": {"cron": "0 0 * * * *"}, "zone": "Europe/Berlin"}
    async with target.wire() as wire:
        said = expect(await wire.post("/api/v1/jobs", msgspec.json.encode({**model, "start_at": FAR})), 202, "a job")
    model_id = msgspec.json.decode(said)["job_id"]
    for table in ("jobs", "timetable"):
        where = f"FROM {SCHEMA}.{table} WHERE job_id = '{model_id}'"
        await database.execute(f"CREATE TEMPORARY TABLE model_of_{table} AS SELECT * {where}")
    timing = msgspec.json.decode(await database.fetchval("SELECT timing::text FROM model_of_jobs"))
    await database.execute("CREATE TEMPORARY TABLE made (job_id uuid, timing jsonb)")
    now = datetime.now(UTC)
    ids = [time_ordered_id(now, secrets.randbits(74)) for _ in texts]
    await database.copy_records_to_table(
        "made",
        columns=["job_id", "timing"],
        records=(
            (job_id, msgspec.json.encode(_timing(timing, text, zone)).decode())
            for job_id, (text, zone) in zip(ids, texts, strict=True)
        ),
    )
    replaced = {"job_id": "x.job_id", "timing": "x.timing", "created_at": "now()", "updated_at": "now()"}
    await database.execute(await _insertion(database, "jobs", replaced, "made"))
    await database.execute(f"VACUUM (ANALYZE) {SCHEMA}.jobs")
    return Stored(database, ids)


def _timing(model: dict[str, Any], text: str, zone: str) -> dict[str, Any]:
    [schedule] = model["schedules"]
    assert schedule["cron"] == "0 0 * * * *", schedule
    return {**model, "schedules": [{**schedule, "cron": text}], "zone": zone, "start_at": None}


async def _insertion(database: Connection, table: str, replaced: dict[str, str], source: str) -> str:
    rows = await database.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' ORDER BY attnum",
        f"{SCHEMA}.{table}",
    )
    columns = [row["attname"] for row in rows]
    values = ", ".join(replaced.get(column, f"m.{column}") for column in columns)
    return f"INSERT INTO {SCHEMA}.{table} ({', '.join(columns)}) SELECT {values} FROM model_of_{table} m, {source} x"
