"""Log lines, kept as chunks of consecutive lines."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.run import LogLine
from hourhand.ports.stores import LogChunk

STREAMS: Final = ["stdout", "stderr", "log"]
"""Stored by position; never reorder."""

_COLUMNS: Final = ["run_id", "attempt", "first_line", "at", "stream", "lines"]


class Logs:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "logs.sql", database.schema)

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(c.run_id, c.attempt, c.first_line, c.at, c.stream, c.lines) for c in chunks]
        async with self._database.transaction() as db:
            await db.executemany(self._queries["append_logs"].text, rows)

    async def read_logs(self, run_id: UUID, after_attempt: int, after_line: int, limit: int) -> list[LogLine]:
        rows = await self._database.fetch(
            self._queries["read_logs"], run_id=run_id, after_attempt=after_attempt, after_line=after_line, limit=limit
        )
        lines: list[LogLine] = []
        for row in rows:
            for offset, (at, stream, text) in enumerate(zip(row["at"], row["stream"], row["lines"], strict=True)):
                number = row["first_line"] + offset
                if (row["attempt"], number) > (after_attempt, after_line):
                    lines.append(LogLine(number, at, STREAMS[stream], text, row["attempt"]))
        return lines[:limit]
