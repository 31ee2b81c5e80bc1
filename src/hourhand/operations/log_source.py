"""Reads the lines of a run from wherever they are: from the database, or from a pack that they have moved to."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, Protocol
from uuid import UUID

from hourhand.model.log import LogEnd, LogRow, Place
from hourhand.ports.log_stores import LogStore

ROWS_FIRST: Final = 4
ROWS_MAX: Final = 64
"""Rows fetched at once. Most logs are a row or two; of long ones the rows are large."""


class MovedLogs(Protocol):
    """Logs that have left the database."""

    def rows(self, run_id: UUID, after: Place) -> AsyncGenerator[LogRow, None]:
        """Rows in order, from the one on that holds the line behind the place. None when nothing of the run has moved.
        Raises `LogMissing` when it should be there and is not."""


class LogSource:
    def __init__(self, logs: LogStore, moved: MovedLogs | None = None) -> None:
        self._logs = logs
        self._moved = moved

    async def rows(self, run_id: UUID, after: Place, is_final: bool) -> AsyncGenerator[LogRow, None]:
        """Every row from the one on that holds the line behind the place. Only final runs can have moved."""
        if is_final and self._moved is not None:
            async for row in self._moved.rows(run_id, after):
                yield row
                after = max(after, row.end)
        count = ROWS_FIRST
        while True:
            rows = await self._logs.read_rows(run_id, after, count)
            for row in rows:
                yield row
            if len(rows) < count:
                return
            after, count = max(after, rows[-1].end), min(count * 4, ROWS_MAX)

    async def search(
        self, run_id: UUID, after: Place, text: str, ignore_case: bool, is_final: bool
    ) -> AsyncGenerator[LogRow | Place, None]:
        """The same rows; of one that cannot hold the text only the place behind it."""
        if is_final and self._moved is not None:
            async for row in self._moved.rows(run_id, after):
                yield row
                after = max(after, row.end)
        # What the database calls the lower case of a letter outside ASCII depends on its locale.
        by_database = text.isascii() or not ignore_case
        while True:
            found: Sequence[LogRow | Place]
            if by_database:
                found = await self._logs.search_rows(run_id, after, text, ignore_case, ROWS_MAX)
            else:
                found = await self._logs.read_rows(run_id, after, ROWS_MAX)
            for each in found:
                yield each
            if len(found) < ROWS_MAX:
                return
            last = found[-1]
            after = max(after, last.end if isinstance(last, LogRow) else last)

    async def ends(self, run_id: UUID) -> dict[int, LogEnd]:
        """Where the log of each attempt ends that is in the database. What has moved says so by itself."""
        return await self._logs.log_ends(run_id)
