"""Spreads starts: a run may start a while after its due time, each job and due time by its own share of the jitter.

The due time itself never moves. The share follows from the job's id and the due time alone, so that whoever plans the
same due time again comes to the same start, and no start reaches the next due time.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hourhand.model.ids import microseconds_since_epoch

_TICK: Final = timedelta(microseconds=1)


def start_of(due: datetime, following: datetime | None, jitter: timedelta, job_id: UUID) -> datetime:
    """When the run of a due time may start; `following` is the job's next due time, if it has one."""
    room = jitter if following is None else min(jitter, following - due)
    seed = job_id.bytes + microseconds_since_epoch(due).to_bytes(8)
    share = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest())
    return due + _TICK * ((room // _TICK) * share >> 64)


def starts_of(
    dues: Sequence[datetime], following: datetime | None, jitter: timedelta | None, job_id: UUID
) -> Sequence[datetime]:
    """The same for due times in order, perhaps none; `following` comes after the last of them."""
    if jitter is None or not dues:
        return dues
    nexts = [*dues[1:], following]
    return [start_of(due, after, jitter, job_id) for due, after in zip(dues, nexts, strict=True)]
