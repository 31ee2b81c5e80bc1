"""The form of logs that have left the database: rows as JSON lines, in segments that are compressed each by itself.

A pack is the segments one after the other; as a whole it is an ordinary gzip file. Which line each segment begins with
is kept beside it, so that a page of a long log is read without reading what comes before.
"""

import gzip
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from hourhand.model.log import LogRow, Place

SEGMENT_BYTES: Final = 512 * 1024
"""Of JSON; what is unpacked at once to read one line."""
LEVEL: Final = 4


class PackedRow(msgspec.Struct, array_like=True):
    run_id: UUID
    attempt: int
    first_line: int
    at: list[datetime]
    stream: list[int]
    lines: list[str]
    left_out: int = 0
    is_last: bool | None = None

    def as_row(self) -> LogRow:
        return LogRow(self.attempt, self.first_line, self.at, self.stream, self.lines, self.left_out)


class Segment(NamedTuple):
    run_id: UUID
    attempt: int
    first_line: int
    start: int
    """Its first byte in the pack."""


class Packer:
    """Makes a pack, row by row in their order."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.keys: list[tuple[UUID, int, int]] = []
        self.line_count = 0
        self.size = 0
        self._first: PackedRow | None = None
        self._rows: list[bytes] = []
        self._bytes = 0

    def add(self, row: PackedRow) -> bytes:
        """What is to be written now; often nothing."""
        self.keys.append((row.run_id, row.attempt, row.first_line))
        self.line_count += len(row.lines)
        if self._first is None:
            self._first = row
        self._rows.append(msgspec.json.encode(row) + b"\n")
        self._bytes += len(self._rows[-1])
        return self.flush() if self._bytes >= SEGMENT_BYTES else b""

    def flush(self) -> bytes:
        """What is left to be written."""
        if self._first is None:
            return b""
        packed = gzip.compress(b"".join(self._rows), LEVEL, mtime=0)
        self.segments.append(Segment(self._first.run_id, self._first.attempt, self._first.first_line, self.size))
        self.size += len(packed)
        self._first, self._bytes = None, 0
        self._rows.clear()
        return packed


def segments_from(segments: Sequence[Segment], run_id: UUID, after: Place) -> Iterator[int]:
    """Numbers of the segments that hold the run's lines behind a place, or may."""
    key = (run_id, after.attempt, after.line + 1)
    first = max(bisect_right([segment[:3] for segment in segments], key) - 1, 0)
    for at in range(first, len(segments)):
        if at > first and segments[at].run_id > run_id:
            return
        yield at


def rows_in(packed: bytes, run_id: UUID) -> Iterable[PackedRow]:
    """The rows of a run in a segment."""
    for line in gzip.decompress(packed).split(b"\n"):
        if line:
            row = _decode(line)
            if row.run_id == run_id:
                yield row


_decode: Final = msgspec.json.Decoder(PackedRow).decode
