"""Reads a request's body within its limits of size and time, and checks in which form it comes."""

import asyncio
from collections.abc import Mapping, Sequence

from hourhand.api.asgi import Receive
from hourhand.api.refusals import RequestTimeout
from hourhand.model.errors import BodyTooLarge, UnsupportedMedia


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, bytes_max: int, seconds_max: float) -> bytes:
    """The whole body. Stops reading at the limit, whatever Content-Length says."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:20]) > bytes_max:
        raise BodyTooLarge(bytes_max)
    try:
        async with asyncio.timeout(seconds_max):
            return await _read(receive, bytes_max, seconds_max)
    except TimeoutError:
        raise RequestTimeout(seconds_max) from None


async def _read(receive: Receive, bytes_max: int, seconds_max: float) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):  # one piece: nearly always
        return _within(message.get("body", b""), bytes_max)
    pieces = bytearray()
    while message["type"] == "http.request":
        pieces += message.get("body", b"")
        _within(pieces, bytes_max)
        if not message.get("more_body"):
            return bytes(pieces)
        message = await receive()
    raise RequestTimeout(seconds_max)  # the caller hung up; nobody reads the answer


def _within(body: bytes | bytearray, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise BodyTooLarge(bytes_max)
    return body  # type: ignore[return-value]  # a bytearray is only measured here


def content_type_of(headers: Mapping[bytes, bytes], accepted: Sequence[str]) -> str:
    """The body's media type. Raises `UnsupportedMedia`.

    Strict on purpose: a web form of a foreign page can send text/plain without asking, but never application/json.
    """
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        raise UnsupportedMedia(f"content-encoding {encoding.decode('latin-1')[:40]}", ["without content-encoding"])
    raw = headers.get(b"content-type", b"").decode("latin-1")
    if raw in accepted:
        return raw
    media_type, _, rest = raw.partition(";")
    media_type = media_type.strip().lower()
    name, _, charset = rest.partition("=")
    foreign_charset = name.strip().lower() == "charset" and charset.strip().strip('"').lower() not in {"utf-8", "utf8"}
    if media_type not in accepted or foreign_charset:
        raise UnsupportedMedia(raw[:100], accepted)
    return media_type
