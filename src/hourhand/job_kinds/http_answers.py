"""What the answer to an HTTP call says about the attempt."""

import asyncio
import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
from yarl import URL

from hourhand.job_kinds.http_payload import expects
from hourhand.model.outcome import Failed, Succeeded, clipped
from hourhand.model.retry import http_tags
from hourhand.model.states import Reason

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_WORTH_RETRYING: Final = frozenset({408, 425, 429})
_RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
_READ_BYTES: Final = 16 * 1024
_TEXT_ENCODINGS: Final = re.compile(
    r"utf-8|ascii|utf-(16|32)(-[bl]e)?|iso8859-\d+|cp\d+|koi8-[rtu]|gb2312|gbk|gb18030|big5|shift_jis|euc_(jp|kr)|mac-\w+"
)


async def outcome_of_answer(
    response: aiohttp.ClientResponse, expected: Sequence[Any], bytes_max: int, seconds_max: float
) -> Succeeded | Failed:
    body, truncated = await _read_body(response, bytes_max, seconds_max)
    # Bytes that are no text come as halves of surrogate pairs, which can be stored nowhere.
    kept = {"content-type": clipped(value)} if (value := response.headers.get("Content-Type")) else {}
    result = {"status": response.status, "headers": kept, "body": body, "truncated": truncated}
    if expects(response.status, expected):
        return Succeeded(result)
    return Failed(
        Reason.HTTP_STATUS,
        f"expected {' or '.join(map(str, expected))}, got {response.status}",
        retryable=not 400 <= response.status < 500 or response.status in _WORTH_RETRYING,
        retry_after_seconds=retry_after(response.headers.get("Retry-After"), datetime.now(UTC)),
        result=result,
        tags=http_tags(response.status),
    )


def redirect_target(response: aiohttp.ClientResponse, url: URL) -> URL | None:
    """Where an answer to a call of `url` sends us on to. Raises ValueError when that is no address."""
    location = response.headers.get("Location")
    if response.status not in _REDIRECTS or location is None:
        return None
    return url.join(URL(location))


async def _read_body(response: aiohttp.ClientResponse, bytes_max: int, seconds_max: float) -> tuple[str, bool]:
    """The beginning of the body as text, and whether there was more."""
    content = response.content
    if content.is_eof() and content.total_bytes <= bytes_max:  # all of it came with its head: nothing to wait for
        return _as_text(content.read_nowait(), response.charset), False
    data = bytearray()
    truncated = True
    with suppress(TimeoutError):  # also that of a server which has fallen silent
        async with asyncio.timeout(seconds_max):
            while len(data) <= bytes_max and (piece := await response.content.read(_READ_BYTES)):
                data += piece
            truncated = len(data) > bytes_max
    if truncated:
        response.close()  # the rest is not worth reading to keep the connection
    return _as_text(bytes(data[:bytes_max]), response.charset), truncated


def _as_text(data: bytes, charset: str | None) -> str:
    text = data.decode(charset if charset is not None and _is_for_text(charset) else "utf-8", "replace")
    return text.replace("\x00", "\N{SYMBOL FOR NULL}")


def _is_for_text(charset: str) -> bool:
    """Whether it is an encoding that texts come in. Python knows others too, some of which take long to read."""
    try:
        return _TEXT_ENCODINGS.fullmatch(codecs.lookup(charset).name) is not None
    except (LookupError, ValueError):
        return False


def retry_after(value: str | None, now: datetime) -> float | None:
    """The header's delay: a number of seconds or a date (RFC 9110). Nonsense is the same as nothing."""
    if value is None:
        return None
    if value.strip().isdecimal():
        seconds = float(value)
    else:
        try:
            moment = parsedate_to_datetime(value)
            seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
        except (ValueError, OverflowError, TypeError, IndexError):
            return None
    return min(max(seconds, 0.0), _RETRY_AFTER_SECONDS_MAX)
