"""Gathers small pieces of a stream into large ones, and counts and digests them on their way."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator

from hourhand.ports.blobs import Stored


class Measured:
    """Content in pieces of at least `piece_bytes` but the last, which is never empty. `stored` is true at its end."""

    def __init__(self, content: AsyncIterable[bytes], piece_bytes: int) -> None:
        self._content = content
        self._piece_bytes = piece_bytes
        self._digest = hashlib.sha256()
        self._size = 0

    async def pieces(self) -> AsyncIterator[bytearray]:
        gathered = bytearray()
        async for piece in self._content:
            gathered += piece
            if len(gathered) >= self._piece_bytes:
                yield gathered
                gathered = bytearray()
        if gathered:
            yield gathered

    def add(self, piece: bytes | bytearray) -> None:
        """Takes a piece into account. It may be called from a thread: digesting a megabyte takes a millisecond."""
        self._digest.update(piece)
        self._size += len(piece)

    @property
    def stored(self) -> Stored:
        return Stored(self._size, self._digest.hexdigest())
