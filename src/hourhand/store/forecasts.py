"""What a forecast is made of. Every statement is bounded, however much is stored."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.demands import need_of
from hourhand.ports.forecast_stores import ForecastJob
from hourhand.ports.stores import NEVER
from hourhand.store.timing_facts import TimingFacts


class Forecasts:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "forecasts.sql", database.schema)
        self._facts = TimingFacts(database)

    async def count_recurring(self, most: int) -> int:
        row = await self._database.fetch_one(self._queries["count_recurring"], most=most)
        return 0 if row is None else row["jobs"]

    async def forecast_jobs(
        self, namespace_id: int, now: datetime, until: datetime, shards: int, limit: int
    ) -> list[ForecastJob]:
        rows = await self._database.fetch(
            self._queries["forecast_jobs"],
            namespace_id=namespace_id,
            now=now,
            until=until,
            never=NEVER,
            shards=shards,
            limit=limit,
        )
        around_calendars = [row["job_id"] for row in rows if row["has_calendars"]]
        rules = await self._facts.rules_of(around_calendars) if around_calendars else {}
        return [
            ForecastJob(
                row["job_id"],
                row["next_fire"],
                row["timing"],
                need_of(row["needs"]),
                row["name"],
                rules.get(row["job_id"], {}),
                row["paused_until"],
                row["runs_left"],
            )
            for row in rows
        ]

    async def count_next_fires(
        self, recurring: bool, since: datetime, until: datetime, shards: int
    ) -> Mapping[datetime, int]:
        name = "count_next_fires" if recurring else "count_next_fires_once"
        rows = await self._database.fetch(self._queries[name], since=since, until=until, shards=shards)
        return {row["minute"]: row["jobs"] for row in rows}

    async def learned_seconds(self, runs: int, namespaces: int) -> Mapping[UUID, tuple[float, int]]:
        rows = await self._database.fetch(self._queries["learned_seconds"], runs=runs, namespaces=namespaces)
        return {row["job_id"]: (row["seconds"], row["runs"]) for row in rows}
