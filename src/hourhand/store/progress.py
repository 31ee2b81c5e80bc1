"""How far running attempts have come: the newest word of each, kept while its run is live."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.progress import Progress
from hourhand.model.states import RunState
from hourhand.ports.progress_stores import Glance, Told

_SWEPT_AFTER: Final = timedelta(minutes=10)


class ProgressBoard:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "progress.sql", database.schema)

    async def write_progress(self, told: Sequence[Told]) -> None:
        # In the order of their keys: two executors never wait for each other in a circle.
        rows = sorted(told, key=lambda each: each.run_id)
        await self._database.fetch(
            self._queries["write_progress"],
            run_ids=[each.run_id for each in rows],
            fences=[each.fence for each in rows],
            percents=[each.progress.percent for each in rows],
            messages=[each.progress.message for each in rows],
            ats=[each.progress.at for each in rows],
        )

    async def forget_progress(self, attempts: Sequence[tuple[UUID, int]]) -> None:
        rows = sorted(attempts)
        await self._database.fetch(
            self._queries["forget_progress"],
            run_ids=[run_id for run_id, _ in rows],
            fences=[fence for _, fence in rows],
        )

    async def sweep(self, now: datetime) -> None:
        await self._database.fetch(self._queries["sweep_progress"], before=now - _SWEPT_AFTER)

    async def glance_at_runs(self, run_ids: Sequence[UUID]) -> dict[UUID, Glance]:
        rows = await self._database.fetch(self._queries["glance_at_runs"], run_ids=list(run_ids))
        return {
            row["run_id"]: Glance(RunState(row["state"]), row["attempt"], row["started_at"], progress_in(row))
            for row in rows
        }


def progress_in(row: Record | Any) -> Progress | None:
    """Of a row with `percent`, `message` and `at`."""
    return None if row["at"] is None else Progress(row["percent"], row["message"], row["at"])
