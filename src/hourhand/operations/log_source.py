"""Reads the lines of a run from wherever they are: from the database, or from a pack that they have moved to."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
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
        """Rows in order, from the one on that holds the line behind the place. Nothing when nothing of the run has
        moved. Raises `BlobsUnavailable` when it should be there and cannot be read."""


class LogSource:
    def __init__(self, logs: LogStore, moved: MovedLogs | None = None) -> None:
        self._logs = logs
        self._moved = moved

    async def rows(self, run_id: UUID, after: Place, is_final: bool) -> AsyncGenerator[LogRow, None]:
        """Every row from the one on that holds the line behind the place. Only final runs can have moved."""
        moved = self._moved if is_final else None
        async for row in _moved_rows(moved, run_id, after):
            yield row
            after, moved = max(after, row.end), None
        count = ROWS_FIRST
        while True:
            rows = await self._logs.read_rows(run_id, after, count)
            for row in rows:
                if row.end > after:  # the first one is told again while nothing follows it
                    yield row
                    after = row.end
            if len(rows) < count:
                break
            count = min(count * 4, ROWS_MAX)
        # It may have moved just between the two looks, or between two pages: then the rest is there now.
        async for row in _moved_rows(moved, run_id, after):
            yield row

    async def search(
        self, run_id: UUID, after: Place, text: str, ignore_case: bool, is_final: bool
    ) -> AsyncGenerator[LogRow | Place, None]:
        """The same rows; of one that cannot hold the text only the place behind it."""
        moved = self._moved if is_final else None
        async for row in _moved_rows(moved, run_id, after):
            yield row
            after, moved = max(after, row.end), None
        # What the database calls the lower case of a letter outside ASCII depends on its locale.
        by_database = text.isascii() or not ignore_case
        while True:
            found: Sequence[LogRow | Place]
            if by_database:
                found = await self._logs.search_rows(run_id, after, text, ignore_case, ROWS_MAX)
            else:
                found = await self._logs.read_rows(run_id, after, ROWS_MAX)
            for each in found:
                end = each.end if isinstance(each, LogRow) else each
                if end > after:
                    yield each
                    after = end
            if len(found) < ROWS_MAX:
                break
        async for row in _moved_rows(moved, run_id, after):
            yield row

    async def ends(self, run_id: UUID) -> dict[int, LogEnd]:
        """Where the log of each attempt ends that is in the database. What has moved says so by itself."""
        return await self._logs.log_ends(run_id)


async def _moved_rows(moved: MovedLogs | None, run_id: UUID, after: Place) -> AsyncGenerator[LogRow, None]:
    if moved is not None:
        async with aclosing(moved.rows(run_id, after)) as rows:
            async for row in rows:
                yield row
