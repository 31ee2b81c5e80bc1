"""Answers whose body is made while it is sent: downloads, and streams of events.

Nothing of them is held in memory but the piece under way: while a caller does not read, its next piece is not asked
for. One that does not read for long, or has gone, is let go of, and whatever made the pieces is closed. When a piece
cannot be made any more the connection is cut, so that nobody takes a part for the whole.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from hourhand.api.answers import TEXT, Facts, Header, facts_of, full_headers
from hourhand.api.asgi import Receive, Scope, Send
from hourhand.model.errors import Overloaded
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

SEND_SECONDS_MAX: Final = 60.0
"""How long a caller may take to read one piece; after that it is held for gone."""


class Streams:
    """The streams of one node that are under way: only so many, and all of them end when the node does."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._none_left = asyncio.Event()
        self._none_left.set()
        self.closing = asyncio.Event()
        """Set when the node stops: whoever waits for something to send ends its stream instead."""

    def __len__(self) -> int:
        return self._count

    def enter(self) -> None:
        """Takes a place. Raises `Overloaded` when there is none; each call is followed by one of `leave`."""
        if self.closing.is_set() or self._count >= self._most:
            raise Overloaded(f"this node carries {self._count} streams already; try again, or ask another node", 2)
        self._count += 1
        self._none_left.clear()

    def leave(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._none_left.set()

    async def close(self, seconds_max: float) -> None:
        """Asks all streams to end, and returns when they have, or the time is over."""
        self.closing.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._none_left.wait(), seconds_max)


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """Sends itself, as an ASGI application does. Made by `stream_answer`."""

    first: bytes
    rest: AsyncGenerator[bytes, None]
    media_type: str = TEXT
    headers: Sequence[Header] = ()
    status: int = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts = facts_of(scope)
        headers = full_headers(facts, self.media_type, self.headers)
        async with aclosing(self.rest):
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            if not facts.head and not await self._send_all(facts, receive, send):
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, facts: Facts, receive: Receive, send: Send) -> bool:
        """False when the caller has gone."""
        sending = asyncio.create_task(_send_pieces(self.first, self.rest, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                return False
            sending.result()
            return True
        except TimeoutError:
            raise  # whoever serves cuts the connection
        except Exception as fault:
            emit(Event.REQUEST_FAILED, request_id=facts.request_id, method="GET", path="", exc_info=fault)
            raise
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)


async def stream_answer(
    pieces: AsyncGenerator[bytes, None], media_type: str, headers: Sequence[Header] = (), status: int = 200
) -> StreamAnswer:
    """An answer with these pieces as its body. The first one is made before the answer begins: what cannot be had at
    all is told as a problem, not as a broken answer."""
    try:
        first = await anext(pieces, b"")
    except BaseException:
        await pieces.aclose()
        raise
    return StreamAnswer(first, pieces, media_type, headers, status)


async def _send_pieces(first: bytes, rest: AsyncIterator[bytes], send: Send) -> None:
    await _send_piece(first, send)
    async for piece in rest:
        await _send_piece(piece, send)


async def _send_piece(piece: bytes, send: Send) -> None:
    if piece:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _gone(receive: Receive) -> None:
    """Returns when the caller has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
