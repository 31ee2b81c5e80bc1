"""Bytes outside the database: large results, files that runs leave, uploaded code, old logs."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class Stored(NamedTuple):
    size: int
    digest: str
    """SHA-256 of the content, in hexadecimal."""


class BlobMissing(Exception):
    """Nothing is kept under the key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no blob {key}")
        self.key = key


class Blobs(Protocol):
    """Content by key. A key is a path of plain words ("artifacts/default/ab12…"); whoever writes chooses keys that
    nobody else writes, so that content under a key never changes. Rows in the database say what there is and what it
    is for; a blob that no row names is rubbish of a writer that died, and may be deleted."""

    async def put(self, key: str, content: AsyncIterable[bytes]) -> Stored:
        """Keeps the content, read piece by piece. It is durable and whole when this returns; when it raises, nothing is
        kept under the key."""

    def get(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The content from `start` up to but not including `end`, piece by piece. BlobMissing comes first."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Removes what is there; a key that is not is no fault."""

    async def close(self) -> None:
        """Ends connections."""
