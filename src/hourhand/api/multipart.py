"""Takes the one file out of a form (multipart/form-data), piece by piece as it comes.

A form may carry any number of parts; an upload is one file. Whatever else comes is refused rather than guessed at: two
readers that see different files in the same bytes are how something is smuggled past one of them.
"""

import re
from collections.abc import AsyncIterator
from typing import Final

from hourhand.api.refusals import BadRequest

FORM: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(
    r""";\s*boundary=(?:"([0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-])"|([0-9A-Za-z'+_.-]{1,70}))"""
    r"(?=\s*(?:;|\Z))",
    re.IGNORECASE,
)
_HEADERS_BYTES_MAX: Final = 8 * 1024
_HEADERS_END: Final = b"\r\n\r\n"
_FILE: Final = re.compile(rb"form-data\s*;.*\bfilename\*?=", re.IGNORECASE)
_PLAIN_ENCODINGS: Final = frozenset({b"binary", b"8bit", b"7bit"})


def boundary_of(content_type: str) -> bytes:
    """What parts the form. Raises BadRequest where the header does not say it, or says it twice."""
    found = _BOUNDARY.findall(content_type)
    if len(found) != 1:
        raise BadRequest("multipart-boundary", "Content-Type must say the form's boundary, once: boundary=…")
    quoted, plain = found[0]
    boundary: str = quoted or plain
    return boundary.encode()


async def one_file(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[bytes]:
    """The content of the only part. Raises BadRequest as soon as the form turns out to be anything else, so whoever
    takes the content must not act on it before the end."""
    mark = b"\r\n--" + boundary
    waiting = _Waiting(pieces)
    if await waiting.take(len(mark)) != mark[2:] + b"\r\n":
        raise _malformed("it does not begin with its boundary")
    _refuse_other_than_file(await waiting.take_until(_HEADERS_END, _HEADERS_BYTES_MAX))
    async for piece in waiting.before(mark):
        yield piece
    after = await waiting.take(2)
    if after == b"\r\n":
        raise BadRequest("multipart-one-file", "send one file and nothing else: the form has a second part")
    if after != b"--":
        raise _malformed("its boundary is followed by something else")
    async for _ in waiting.rest():  # what comes behind the form is nobody's, but has to be taken off the connection
        pass


class _Waiting:
    """Bytes that have come and are not used yet; never more than one piece and a mark."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._held = b""

    async def take(self, count: int) -> bytes:
        while len(self._held) < count:
            await self._more()
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    async def take_until(self, end: bytes, most: int) -> bytes:
        while (place := self._held.find(end, 0, most)) < 0:
            if len(self._held) >= most:
                raise _malformed(f"the headers of its part are longer than {most} bytes")
            await self._more()
        taken, self._held = self._held[:place], self._held[place + len(end) :]
        return taken

    async def before(self, mark: bytes) -> AsyncIterator[bytes]:
        while (place := self._held.find(mark)) < 0:
            sure = len(self._held) - len(mark) + 1  # the rest may be the beginning of the mark
            if sure > 0:
                yield self._held[:sure]
                self._held = self._held[sure:]
            await self._more()
        if place:
            yield self._held[:place]
        self._held = self._held[place + len(mark) :]

    async def rest(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece

    async def _more(self) -> None:
        try:
            self._held += await anext(self._pieces)
        except StopAsyncIteration:
            raise _malformed("it ends before its last boundary") from None


def _refuse_other_than_file(headers: bytes) -> None:
    told: dict[bytes, bytes] = {}
    for line in headers.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or name.strip().lower() in told:
            raise _malformed("the headers of its part cannot be read")
        told[name.strip().lower()] = value.strip()
    if not _FILE.match(told.get(b"content-disposition", b"")):
        raise BadRequest("multipart-one-file", "send one file and nothing else: the first part of the form is no file")
    if told.get(b"content-transfer-encoding", b"binary").lower() not in _PLAIN_ENCODINGS:
        raise _malformed("its part is encoded")


def _malformed(why: str) -> BadRequest:
    return BadRequest("multipart-malformed", f"the form cannot be read: {why}")
