"""What a forecast is made of: cursors, all of them counted or some of them in full, and how long runs took lately."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.calendar import CalendarRule


@dataclass(frozen=True, slots=True)
class ForecastJob:
    job_id: UUID
    next_fire: datetime
    timing: str
    """As it is stored: jobs with the same text share their schedule."""
    needs: str
    """What an executor must offer."""
    name: str | None
    """None for jobs of other namespaces."""
    rules: Mapping[str, CalendarRule] = field(default_factory=dict)
    """What its calendars say."""
    paused_until: datetime | None = None
    """None: no pause of many holds it. The end of time: one without an end does."""
    runs_left: int | None = None
    """Of its `max_runs`; None: it has none."""


class ForecastStore(Protocol):
    async def count_recurring(self, most: int) -> int:
        """How many jobs fall due again and again, in all namespaces; counted up to `most`."""

    async def forecast_jobs(
        self, namespace_id: int, now: datetime, until: datetime, shards: int, limit: int
    ) -> list[ForecastJob]:
        """Recurring jobs of the first shards that fall due before `until`: a fair sample of those that do, because jobs
        belong to shards by chance. Also those that a pause holds, with where they really stand."""

    async def count_next_fires(
        self, recurring: bool, since: datetime, until: datetime, shards: int
    ) -> Mapping[datetime, int]:
        """How many cursors of the first shards stand in each minute; overdue ones in that of `since`."""

    async def learned_seconds(self, runs: int, namespaces: int) -> Mapping[UUID, tuple[float, int]]:
        """For each job that succeeded among the newest `runs` of its namespace: how long that took on average, and how
        often that was."""
