"""What runs leave outside the database: names of files, keys of blobs, and the form of a result that is too large.

The key of a blob tells its run, the attempt's fence and the day of the run's id. Days are what retention goes by, and
the fence tells whether an attempt may still be heard of: so it can be told of any blob whether somebody may need it.
"""

import re
from datetime import date
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from hourhand.model.ids import instant_of

SPACE: Final = "runs"
"""The first word of the keys of all these blobs; nobody else's begin with it."""
RESULT: Final = "result"
NAME_CHARS_MAX: Final = 300
NAME_PARTS_MAX: Final = 16
RESULT_INLINE_BYTES_MAX: Final = 256 * 1024
"""Larger results go to blobs. A row of this size is still read and shown in a millisecond or two."""
RESULT_BYTES_HARD_MAX: Final = 64 * 1024 * 1024
"""No result is larger than this, whatever is set: it is held in memory whole, by whoever makes and whoever reads it."""
_REFERENCE: Final = "$blob"
_KEY: Final = re.compile(r"runs/(\d{8})/([0-9a-f-]{36})/(\d{1,19})/(result|\d{1,6})")


class RunFile(msgspec.Struct, frozen=True):
    """A file that an attempt has left."""

    number: int
    name: str
    """Its path below the output folder, with / between its parts."""
    size: int
    digest: str
    attempt: int
    fence: int


class ResultReference(msgspec.Struct, frozen=True):
    """Stands for a result that is in a blob."""

    size: int
    digest: str
    fence: int


class LargeResult(msgspec.Struct, frozen=True):
    """JSON that does not fit in a row. Whoever records the outcome puts it in a blob first."""

    encoded: bytes


class BlobOwner(NamedTuple):
    run_id: UUID
    fence: int
    number: int | None
    """Of a file; None is the result."""


def day_of(run_id: UUID) -> str:
    return f"{instant_of(run_id):%Y%m%d}"


def file_key(run_id: UUID, fence: int, number: int) -> str:
    return f"{SPACE}/{day_of(run_id)}/{run_id}/{fence}/{number}"


def result_key(run_id: UUID, fence: int) -> str:
    return f"{SPACE}/{day_of(run_id)}/{run_id}/{fence}/{RESULT}"


def owner_of(key: str) -> BlobOwner | None:
    """Whose blob it is; None for a key that is none of ours."""
    parts = _KEY.fullmatch(key)
    if parts is None:
        return None
    return BlobOwner(UUID(parts[2]), int(parts[3]), None if parts[4] == RESULT else int(parts[4]))


def parse_day(word: str) -> date | None:
    """The day that a word below the space stands for."""
    try:
        return date(int(word[:4]), int(word[4:6]), int(word[6:])) if re.fullmatch(r"\d{8}", word) else None
    except ValueError:
        return None


def name_fault(name: str) -> str | None:
    """Why a file of this name is not kept. Names go into addresses, headers and terminals."""
    if len(name) > NAME_CHARS_MAX:
        return f"its name is longer than {NAME_CHARS_MAX} characters"
    if name.count("/") >= NAME_PARTS_MAX:
        return f"it lies deeper than {NAME_PARTS_MAX} folders"
    if not name.isprintable():
        return "its name has characters that cannot be shown, or is not UTF-8"
    return None


def needs_blob(result: Any) -> bool:
    """Whether a result, however small, would be taken for a reference in a row."""
    return isinstance(result, dict) and _REFERENCE in result


def stored_form(reference: ResultReference) -> dict[str, Any]:
    """What stands in a row in the place of the result."""
    return {_REFERENCE: msgspec.structs.asdict(reference)}


def reference_in(stored: Any) -> ResultReference | None:
    """The reference that a row holds in the place of a result. Results that look like one are never kept in rows."""
    if type(stored) is not dict or _REFERENCE not in stored:
        return None
    return msgspec.convert(stored[_REFERENCE], ResultReference)
