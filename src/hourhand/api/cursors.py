"""Page cursors: opaque to callers, bound to the filters they were made with.

A cursor holds the last id seen and a short digest over it, the route and the filters, so that an edited cursor or
one of another listing is refused instead of giving a wrong page. It guards against mistakes, not against attackers:
an id alone opens nothing.
"""

import base64
import binascii
import hashlib
from typing import Final
from uuid import UUID

from hourhand.model.errors import InvalidParameter

_DIGEST_BYTES: Final = 8


def make_cursor(before: UUID, bound_to: str) -> str:
    return base64.urlsafe_b64encode(before.bytes + _digest(before, bound_to)).decode()


def read_cursor(cursor: str | None, bound_to: str) -> UUID | None:
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        before = UUID(bytes=raw[:16])
    except (ValueError, binascii.Error):
        raw, before = b"", UUID(int=0)
    if raw[16:] != _digest(before, bound_to):
        message = "is not one of this listing; send next_cursor unchanged and keep the filters"
        raise InvalidParameter("cursor", message, "invalid-cursor")
    return before


def _digest(before: UUID, bound_to: str) -> bytes:
    return hashlib.blake2b(before.bytes + bound_to.encode(), digest_size=_DIGEST_BYTES, person=b"cursor").digest()
