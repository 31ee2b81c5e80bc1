"""Log lines, kept as rows of consecutive lines."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.errors import LogOutOfOrder
from hourhand.model.log import STREAMS, LogEnd, LogRow, Place, lines_in
from hourhand.model.run import LogLine
from hourhand.ports.log_stores import LogChunk, LogTip

__all__ = ["STREAMS", "Logs"]

LARGE_BYTES: Final = 4 * 1024 * 1024
ROWS_FIRST: Final = 4
ROWS_MAX: Final = 256


class Logs:
    def __init__(self, database: Database, large_bytes: int | None = LARGE_BYTES) -> None:
        """`large_bytes`: logs of that size are noted, to be moved out of the database. None: none is."""
        self._database = database
        self._large_bytes = large_bytes
        self._queries = load_queries("hourhand.store.sql", "logs.sql", database.schema)

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(c.run_id, c.attempt, c.first_line, c.at, c.stream, c.lines, c.left_out, c.is_last) for c in chunks]
        bound = self._large_bytes
        large = [c.run_id for c in chunks if bound is not None and c.total_bytes >= bound]
        going_on = _going_on(chunks)
        async with self._database.transaction() as db:
            if going_on:
                await self._refuse_out_of_order(db, going_on)
            # Durable when this returns: a row that a crash of the database takes back, while later ones stay, would be
            # a hole that nobody has declared.
            await db.executemany(self._queries["append_logs"].text, rows)
            if large:
                await self._database.fetch_on(db, self._queries["note_large_logs"], run_ids=large)

    async def _refuse_out_of_order(self, db: Connection, chunks: Sequence[LogChunk]) -> None:
        wrong = await self._database.fetch_on(
            db,
            self._queries["rows_before"],
            run_ids=[chunk.run_id for chunk in chunks],
            attempts=[chunk.attempt for chunk in chunks],
            first_lines=[chunk.first_line for chunk in chunks],
            after=[chunk.after for chunk in chunks],
        )
        for row in wrong:
            [found] = await self._database.fetch_on(db, self._queries["expected_line"], **dict(row))
            expected = found["expected"] if found["is_live"] else None
            raise LogOutOfOrder(row["run_id"], row["attempt"], row["first_line"], expected, found["now"])

    async def read_rows(self, run_id: UUID, after: Place, limit: int) -> list[LogRow]:
        rows = await self._database.fetch(
            self._queries["read_logs"],
            run_id=run_id,
            after_attempt=after.attempt,
            after_line=after.line,
            limit=limit,
        )
        return [_row(row) for row in rows]

    async def search_rows(
        self, run_id: UUID, after: Place, text: str, ignore_case: bool, limit: int
    ) -> list[LogRow | Place]:
        rows = await self._database.fetch(
            self._queries["search_logs"],
            run_id=run_id,
            after_attempt=after.attempt,
            after_line=after.line,
            text=text,
            fold=ignore_case,
            limit=limit,
        )
        return [_row(row) if row["lines"] is not None else _end(row) for row in rows]

    async def log_ends(self, run_id: UUID) -> dict[int, LogEnd]:
        rows = await self._database.fetch(self._queries["log_ends"], run_id=run_id)
        return {row["attempt"]: LogEnd(_end(row).line + 1, row["at"], row["is_last"]) for row in rows}

    async def log_tips(self, run_ids: Sequence[UUID]) -> dict[UUID, LogTip]:
        rows = await self._database.fetch(self._queries["log_tips"], run_ids=list(run_ids))
        return {row["run_id"]: _tip(row) for row in rows}

    async def read_logs(self, run_id: UUID, after_attempt: int, after_line: int, limit: int) -> list[LogLine]:
        """Lines behind a place, at most so many: as they are in the database."""
        place, lines, rows_max = Place(after_attempt, after_line), list[LogLine](), ROWS_FIRST
        while len(lines) < limit:
            rows = await self.read_rows(run_id, place, rows_max)
            for row in rows:
                lines += lines_in(row, place)
            if len(rows) < rows_max:
                break
            place, rows_max = rows[-1].end, min(rows_max * 4, ROWS_MAX)
        return lines[:limit]


def _going_on(chunks: Sequence[LogChunk]) -> list[LogChunk]:
    """Rows that follow one which must be stored already. Most logs are one row, and of a long one all but the first
    follow a row that is stored with them."""
    found: list[LogChunk] = []
    newest: dict[tuple[UUID, int], int] = {}
    for chunk in chunks:
        if chunk.after and newest.get((chunk.run_id, chunk.attempt)) != chunk.after:
            found.append(chunk)
        newest[chunk.run_id, chunk.attempt] = chunk.first_line
    return found


def _row(row: Record) -> LogRow:
    return LogRow(row["attempt"], row["first_line"], row["at"], row["stream"], row["lines"], row["left_out"])


def _tip(row: Record) -> LogTip:
    return LogTip(row["attempt"], row["first_line"], row["state"], row["live_attempt"])


def _end(row: Record) -> Place:
    return Place(row["attempt"], row["first_line"] + max(row["line_count"], row["left_out"]) - 1)
