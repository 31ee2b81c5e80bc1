"""Bytes outside the database: large results, files that runs leave, uploaded code, old logs."""

import re
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

KEY_CHARS_MAX: Final = 400
_KEY: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*")


class Stored(NamedTuple):
    size: int
    digest: str
    """SHA-256 of the content, in hexadecimal."""


class Found(NamedTuple):
    """One blob, as a listing shows it."""

    key: str
    size: int
    changed_at: datetime
    """When it was kept, by the clock of the storage."""


class BlobMissing(Exception):
    """Nothing is kept under the key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no blob {key}")
        self.key = key


class Blobs(Protocol):
    """Content by key. A key is a path of plain words ("artifacts/default/ab12…"); whoever writes chooses keys that
    nobody else writes, so that content under a key never changes. Rows in the database say what there is and what it
    is for; a blob that no row names is rubbish of a writer that died, and may be deleted.

    Whatever is wrong with the storage itself is a BlobsUnavailable, after a bounded time, in words that name the place
    and never a credential."""

    async def check(self) -> None:
        """Whether content can be kept and found here. BlobsUnsuitable says that it never will be as things are set."""

    async def put(self, key: str, content: AsyncIterable[bytes]) -> Stored:
        """Keeps the content, read piece by piece. It is durable and whole when this returns; when it raises, nothing is
        kept under the key."""

    def get(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The content from `start` up to but not including `end`, piece by piece. BlobMissing comes first."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Removes what is there; a key that is not is no fault."""

    def list(self, prefix: str) -> AsyncIterator[Sequence[Found]]:
        """What is kept under a prefix of whole words ("runs/2026-11-16"), in batches, in no order."""

    async def words(self, prefix: str) -> Sequence[str]:
        """The next words of the keys below a prefix, each once: `runs` has the days for which something is kept."""

    async def close(self) -> None:
        """Ends connections."""


def is_key(key: str) -> bool:
    """A path that means the same everywhere: no word begins with a dot, so none leads out of its place or hides."""
    return len(key) <= KEY_CHARS_MAX and _KEY.fullmatch(key) is not None
