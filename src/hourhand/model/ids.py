"""Identifiers. All are UUIDs whose leading bits are a time, so that they sort by it and partitions follow it.

A scheduled run's id is computed from its due time and its job, never drawn: planning the same due time
twice yields the same id, and the primary key refuses the second. SQL has the same rule in the function
`hourhand.scheduled_run_id`; a test holds the two together.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from uuid import UUID, SafeUUID

SHARDS: int = 1024
"""How many slices all jobs are cut into. Fixed for ever: stored rows carry the number."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOW_64_BITS = (1 << 64) - 1
_VERSION_7 = 7 << 76
_VARIANT = 2 << 62
_LOW_62_BITS = (1 << 62) - 1
_new: Final = object.__new__
_set: Final = object.__setattr__
_UNKNOWN: Final = SafeUUID.unknown  # to ask the class for it takes as long as all else that makes an id


def time_ordered_id(instant: datetime, chance: int) -> UUID:
    """A UUIDv7 of the instant; `chance` brings at least 74 random bits."""
    return _uuid(_head(instant) | (chance >> 62 & 0xFFF) << 64 | chance & _LOW_62_BITS)


def scheduled_run_id(due: datetime, job_id: UUID) -> UUID:
    """The id of the one run that a job may have for a due time."""
    return _uuid(_scheduled_head(due) | job_id.int & _LOW_64_BITS)


def scheduled_run_head(due: datetime) -> bytes:
    """The first half of such an id; the second is that of the job's."""
    return (_scheduled_head(due) >> 64).to_bytes(8, "big")


@lru_cache(maxsize=16)
def _head(instant: datetime) -> int:
    """Kept for a moment: the jobs of a batch are made at one instant, and many fall due at one."""
    return microseconds_since_epoch(instant) // 1000 << 80 | _VERSION_7 | _VARIANT


@lru_cache(maxsize=16)
def _scheduled_head(due: datetime) -> int:
    millis, micros = divmod(microseconds_since_epoch(due), 1000)
    return millis << 80 | _VERSION_7 | (micros << 2) << 64


def _uuid(number: int) -> UUID:
    """The same as UUID(int=number) for a number that is known to fit, in less than half the time."""
    made = _new(UUID)
    _set(made, "int", number)
    _set(made, "is_safe", _UNKNOWN)
    return made


def lowest_id_at(instant: datetime) -> UUID:
    """The lower bound of all ids of an instant: the edge between two partitions."""
    return UUID(int=microseconds_since_epoch(instant) // 1000 << 80)


def instant_of(identifier: UUID) -> datetime:
    """The time in an id's leading bits, to the millisecond."""
    millis = identifier.int >> 80
    return datetime.fromtimestamp(millis / 1000, UTC)


def shard_of(job_id: UUID) -> int:
    """The slice a job belongs to: its lowest bits, which are random in a UUIDv7."""
    return job_id.int & (SHARDS - 1)


def microseconds_since_epoch(instant: datetime) -> int:
    passed = instant - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
