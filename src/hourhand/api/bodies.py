"""Reads a request's body within its limits of size and time, and checks in which form it comes.

All bodies that are in hand at one time share a room. When it is full, more are refused at the door: whoever comes back
a second later costs nothing meanwhile, whoever is let in and kept waiting costs memory until there is none.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from hourhand.api.asgi import Receive
from hourhand.api.refusals import RequestTimeout
from hourhand.model.errors import BodyTooLarge, Overloaded, UnsupportedMedia

_T = TypeVar("_T")


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


class Patience:
    """Ends the wait for bodies that do not come. One timer looks after all of them: one for each would cost more than
    to read most bodies."""

    def __init__(self, seconds_max: float) -> None:
        self.seconds_max = seconds_max
        self._waiting: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._watched = False

    async def read(self, receive: Receive, bytes_max: int, place: Place) -> bytes:
        """Raises `RequestTimeout`."""
        return await self.wait(_read(receive, bytes_max, self.seconds_max, place))

    async def wait(self, arriving: Awaitable[_T]) -> _T:
        """What arrives, if it does in time. Raises `RequestTimeout`."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._waiting[task] = loop.time() + self.seconds_max
        if not self._watched:
            self._watched = True
            loop.call_later(self._rest, self._look)
        try:
            return await arriving
        except asyncio.CancelledError:
            if task in self._ended and task.uncancel() == 0:  # by nobody else
                raise RequestTimeout(self.seconds_max) from None
            raise
        finally:
            del self._waiting[task]
            self._ended.discard(task)

    @property
    def _rest(self) -> float:
        return min(self.seconds_max / 4, 1.0)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._watched = bool(self._waiting)
        if self._watched:
            loop.call_later(self._rest, self._look)
        now = loop.time()
        for task in [task for task, until in self._waiting.items() if until <= now and task not in self._ended]:
            self._ended.add(task)
            task.cancel()


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, bytes_max: int, patience: Patience, place: Place
) -> bytes:
    """The whole body. Stops reading at the limit, whatever Content-Length says."""
    announced = headers.get(b"content-length", b"").lstrip(b"0")
    if announced.isdigit() and int(announced[:20]) > bytes_max:
        raise BodyTooLarge(bytes_max)
    return await patience.read(receive, bytes_max, place)


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


def refuse_other_content(headers: Mapping[bytes, bytes], accepted: Sequence[str]) -> None:
    """As `content_type_of`, but a body that does not say what it is may be anything."""
    content_type_of({b"content-type": accepted[0].encode(), **headers}, accepted)


async def stream_body(
    headers: Mapping[bytes, bytes], receive: Receive, bytes_max: int, seconds_max: float
) -> AsyncIterator[bytes]:
    """The body piece by piece, as it comes. `seconds_max` is the patience with each piece: a large body takes its time,
    but whoever sends nothing for so long has gone."""
    announced = headers.get(b"content-length", b"").lstrip(b"0")
    if announced.isdigit() and int(announced[:20]) > bytes_max:
        raise BodyTooLarge(bytes_max)
    size = 0
    while True:
        try:
            async with asyncio.timeout(seconds_max):
                message = await receive()
        except TimeoutError:
            raise RequestTimeout(seconds_max) from None
        if message["type"] != "http.request":
            raise RequestTimeout(seconds_max)  # the caller hung up; nobody reads the answer
        piece = message.get("body", b"")
        size += len(piece)
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        if piece:
            yield piece
        if not message.get("more_body"):
            return
