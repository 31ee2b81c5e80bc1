"""Reads a request's body within its limits of size and time, and checks in which form it comes.

All bodies that are in hand at one time share a room. When it is full, more are refused at the door: whoever comes back
a second later costs nothing meanwhile, whoever is let in and kept waiting costs memory until there is none.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType

from hourhand.api.asgi import Receive
from hourhand.api.refusals import RequestTimeout
from hourhand.model.errors import BodyTooLarge, Overloaded, UnsupportedMedia


class BodyRoom:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0

    def take(self, count: int) -> None:
        """Raises `Overloaded`. A body that is alone finds room whatever its size: others have limits for that."""
        if self._taken and self._taken + count > self._bytes_max:
            raise Overloaded(f"requests under way have {self._taken} bytes of bodies in hand; send yours again")
        self._taken += count

    def give_back(self, count: int) -> None:
        self._taken -= count


class Place:
    """The place of one body in the room; free again when the request is over."""

    __slots__ = ("_room", "taken")

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.taken = 0

    def __enter__(self) -> "Place":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.give_back(self.taken)

    def grow_to(self, count: int) -> None:
        if count > self.taken:
            self._room.take(count - self.taken)
            self.taken = count


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, bytes_max: int, seconds_max: float, place: Place
) -> bytes:
    """The whole body. Stops reading at the limit, whatever Content-Length says."""
    announced = headers.get(b"content-length", b"").lstrip(b"0")
    if announced.isdigit() and int(announced[:20]) > bytes_max:
        raise BodyTooLarge(bytes_max)
    try:
        async with asyncio.timeout(seconds_max):
            return await _read(receive, bytes_max, seconds_max, place)
    except TimeoutError:
        raise RequestTimeout(seconds_max) from None


async def _read(receive: Receive, bytes_max: int, seconds_max: float, place: Place) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):  # one piece: nearly always
        body = _within(message.get("body", b""), bytes_max)
        place.grow_to(len(body))
        return body
    pieces = bytearray()
    while message["type"] == "http.request":
        pieces += message.get("body", b"")
        _within(pieces, bytes_max)
        place.grow_to(len(pieces))
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
