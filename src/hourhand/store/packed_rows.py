"""Rows of plain jobs in PostgreSQL's own binary form, ready to be copied.

The jobs of a batch differ in little: id and payload. What they share is turned into bytes once and put between the
rest, which takes a tenth of the time that the driver needs to turn every value of every row into bytes. Everything
that is not plain goes the driver's way, in `job_rows.py`.
"""

import struct
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from hourhand.model.ids import microseconds_since_epoch, scheduled_run_head
from hourhand.model.states import Cause
from hourhand.ports.stores import NewJob

# None of these lists names the column whose default makes a COPY write row by row: see decision 34.
JOB_COLUMNS: Final = (
    "job_id", "namespace_id", "lane_id", "name", "kind", "priority", "max_retries", "owner", "status", "version",
    "created_at", "created_by", "updated_at", "due_at", "payload",
)  # fmt: skip
RUN_COLUMNS: Final = (
    "run_id", "job_id", "namespace_id", "lane_id", "version", "state", "priority", "cause", "scheduled_for", "ready_at",
)  # fmt: skip

CURSOR_COLUMNS: Final = (
    "job_id", "namespace_id", "lane_id", "version", "priority", "recurring", "shard", "next_fire",
)  # fmt: skip

_BEGIN: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END: Final = b"\xff\xff"
_UUID: Final = struct.pack(">i", 16)
_EPOCH_2000: Final = 946_684_800_000_000
"""Times are counted from there, in microseconds."""
_int2: Final = struct.Struct(">ih").pack
_int4: Final = struct.Struct(">ii").pack
_int8: Final = struct.Struct(">iq").pack
_jsonb: Final = struct.Struct(">ib").pack
_JSONB_VERSION: Final = 1


class Packed(NamedTuple):
    """Rows of one table, as bytes."""

    columns: Sequence[str]
    rows: list[bytes]

    async def source(self) -> AsyncIterator[bytes]:
        yield b"".join((_BEGIN, *self.rows, _END))


class Frame(NamedTuple):
    """What the rows of jobs that differ in id and payload alone have in common."""

    job: bytes
    """All of its row that stands between id and payload."""
    run_head: bytes
    """Of the row of a run: all before what its id has of the job's."""
    run: bytes
    """And all behind the ids."""
    cursor: bytes
    """Of the row of a cursor: what stands between id and shard."""
    due: bytes
    """The time at which they fall due."""


def frame_of(new: NewJob, lane_id: int, due: datetime) -> Frame:
    definition, due_at, created = new.definition, _time(due), _time(new.created_at)
    job, run, cursor = _timeless(
        new.namespace_id, lane_id, definition.name, definition.kind, definition.priority,
        definition.retry.max_retries, definition.owner,
    )  # fmt: skip
    job = b"".join((job, created, _text(new.created_by), created, due_at))
    return Frame(job, _RUN_BEGIN + scheduled_run_head(due), run + due_at + due_at, cursor, due_at)


@lru_cache(maxsize=64)
def _timeless(
    namespace_id: int, lane_id: int, name: str, kind: str, priority: int, max_retries: int, owner: str
) -> tuple[bytes, bytes, bytes]:
    """The same without the times: jobs that are submitted one by one share everything but those."""
    place, version, urgency = _int4(4, namespace_id) + _int4(4, lane_id), _int4(4, 1), _int2(2, priority)
    active, queued, not_recurring = _int2(2, 0), _int2(2, 0), b"\x00\x00\x00\x01\x00"
    job = (place, _text(name), _text(kind), urgency, _int2(2, max_retries), _text(owner), active, version)
    run = (place, version, queued, urgency, _int2(2, int(Cause.ONCE)))
    return b"".join(job), b"".join(run), b"".join((place, version, urgency, not_recurring))


def pack_job(frame: Frame, job_id: bytes, payload: bytes) -> bytes:
    return b"".join((_JOB_BEGIN, job_id, frame.job, _jsonb(len(payload) + 1, _JSONB_VERSION), payload))


def pack_run(frame: Frame, job_id: bytes) -> bytes:
    """The one run of a job that runs once."""
    return b"".join((frame.run_head, job_id[8:], _UUID, job_id, frame.run))


def pack_cursor(frame: Frame, job_id: bytes, shard: int) -> bytes:
    return b"".join((_CURSOR_BEGIN, job_id, frame.cursor, _int2(2, shard), frame.due))


_CURSOR_BEGIN: Final = struct.pack(">h", len(CURSOR_COLUMNS)) + _UUID
_JOB_BEGIN: Final = struct.pack(">h", len(JOB_COLUMNS)) + _UUID
_RUN_BEGIN: Final = struct.pack(">h", len(RUN_COLUMNS)) + _UUID


def _time(instant: datetime) -> bytes:
    return _int8(8, microseconds_since_epoch(instant) - _EPOCH_2000)


@lru_cache(maxsize=64)
def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">i", len(encoded)) + encoded
