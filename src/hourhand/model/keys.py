"""Keys that a submission can carry, so that doing it twice does no harm.

An idempotency key stands for one request: sent again, it is answered as before. A unique key stands for one job: while
that is alive, or within a period, there is no second one. Who has a key is decided where it is stored.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

IDEMPOTENCY_KEY_KEPT: Final = timedelta(hours=24)
KEY_CHARS_MAX: Final = 255
_FIRST_MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)


class IdempotencyKey(msgspec.Struct, frozen=True):
    key: str
    digest: bytes
    """Of the request. The same key with another one is a mistake of the caller."""


class UniqueKey(msgspec.Struct, frozen=True):
    key: str
    until: datetime | None = None
    """The end of the period for which it is taken; None: for as long as its job is alive."""


def request_digest(path: str, body: bytes) -> bytes:
    """The same for the same request, byte by byte."""
    return hashlib.sha256(path.encode() + b"\n" + body).digest()


def period_end(instant: datetime, period: timedelta) -> datetime:
    """The end of the period in which an instant lies. Periods are counted from a Monday, 00:00 UTC."""
    return _FIRST_MONDAY + ((instant - _FIRST_MONDAY) // period + 1) * period
