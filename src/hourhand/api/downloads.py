"""Content that is sent as it is read: whole, or a range of it, or not at all when the caller has it already."""

import base64
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

from hourhand.api.answers import Answer, header
from hourhand.api.endpoints import Call
from hourhand.api.streaming import StreamAnswer, Streams, stream_answer

BYTES: Final = "application/octet-stream"
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._ -]")
_NOT_CACHED: Final = header("cache-control", "private, no-cache")

Read = Callable[[int, int], AsyncGenerator[bytes, None]]
"""The bytes from here up to there."""


async def download(
    call: Call, streams: Streams, size: int, digest: str, read: Read, media_type: str, name: str
) -> Answer | StreamAnswer:
    """The content, as a file of this name. Raises `Overloaded` when the node carries too many streams already."""
    etag = f'"sha256:{digest}"'
    headers = [
        header("etag", etag),
        header("accept-ranges", "bytes"),
        header("content-disposition", _disposition(name)),
        _NOT_CACHED,
    ]
    if _has_it(call, etag):
        return Answer(b"", 304, media_type, headers)
    start, end, status = 0, size, 200
    wanted = _range_of(call, size, etag)
    if wanted is not None:
        start, end = wanted
        if start >= end:
            return Answer(b"", 416, media_type, [*headers, header("content-range", f"bytes */{size}")])
        status = 206
        headers.append(header("content-range", f"bytes {start}-{end - 1}/{size}"))
    else:
        headers.append(header("repr-digest", f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"))
    headers.append(header("content-length", str(end - start)))
    streams.enter()
    return await stream_answer(_leaving(streams, read(start, end)), media_type, headers, status)


async def _leaving(streams: Streams, content: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Gives the place back however it ends; `stream_answer` begins it at once."""
    try:
        async with aclosing(content):
            async for piece in content:
                yield piece
    finally:
        streams.leave()


def _has_it(call: Call, etag: str) -> bool:
    known = call.header(b"if-none-match")
    return known is not None and (known.strip() == "*" or etag in [each.strip() for each in known.split(",")])


def _range_of(call: Call, size: int, etag: str) -> tuple[int, int] | None:
    """None: all of it. What is not understood is passed over, as HTTP has it; one range is enough for everybody."""
    given, condition = call.header(b"range"), call.header(b"if-range")
    found = None if given is None else _RANGE.fullmatch(given.strip())
    if found is None or (condition is not None and condition.strip() != etag) or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(size - int(found[2]), 0), size if int(found[2]) else 0
    start = int(found[1])
    end = size if not found[2] else min(int(found[2]) + 1, size)
    if found[2] and int(found[2]) < start:
        return None
    return start, end


def _disposition(name: str) -> str:
    """Always a file to be saved: content of jobs is never shown in a browser that is logged in here."""
    last = name.rpartition("/")[2]
    plain = _PLAIN.sub("_", last)
    extended = "" if plain == last else f"; filename*=UTF-8''{quote(last, safe='')}"
    return f'attachment; filename="{plain}"{extended}'
