"""Streams of server-sent events (`text/event-stream`).

A route hands in an async generator of events and gets an answer. What is the same for all streams is here: the
form on the wire, a comment now and then so that no proxy takes the silence for an end, the bound on how many
streams a node carries, and a polite end when the node stops: the caller is told to come back soon, and goes on
behind the last event that it has got (`Last-Event-ID`), on whichever node it finds.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

from hourhand.api.answers import encode, header
from hourhand.api.streaming import StreamAnswer, Streams, stream_answer

EVENT_STREAM: Final = "text/event-stream"
HEARTBEAT_SECONDS: Final = 10.0
"""After so long without an event a comment is sent. Most proxies give up on an answer that is silent for a minute."""
STREAM_SECONDS_MAX: Final = 900.0
"""A stream ends after so long, and its caller comes back: nobody reads on for hours by a token that is revoked."""
RETRY_MILLISECONDS: Final = 1000
"""How long a browser waits before it comes back."""
_HEADERS: Final = [
    header("cache-control", "no-store, no-transform"),
    header("x-accel-buffering", "no"),  # nginx would else collect events until its buffer is full
]
_HEARTBEAT: Final = b": still here\n\n"
_FIRST: Final = b": hello\nretry: %d\n\n" % RETRY_MILLISECONDS
_LAST: Final = b": come back for more\n\n"


class ServerEvent(NamedTuple):
    event: str
    """A word that programs choose by."""
    id: str | None
    """Where to go on behind this event; comes back as `Last-Event-ID`. None: nothing to go on behind."""
    data: Any
    """Sent as JSON."""


async def events_answer(
    streams: Streams,
    events: AsyncGenerator[ServerEvent, None],
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> StreamAnswer:
    """The events as a stream, as they come, to the end of the generator. It is closed when the caller has gone or the
    node stops, wherever it waits. Raises `Overloaded` when the node carries too many streams already."""
    streams.enter()
    # From here on the generator inside is begun: however it ends, it gives the place back.
    return await stream_answer(_on_the_wire(streams, events, heartbeat_seconds), EVENT_STREAM, _HEADERS)


async def _on_the_wire(
    streams: Streams, events: AsyncGenerator[ServerEvent, None], heartbeat_seconds: float
) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + STREAM_SECONDS_MAX
    closing = asyncio.create_task(streams.closing.wait())
    coming: asyncio.Task[ServerEvent | None] | None = None
    try:
        yield _FIRST
        while True:
            coming = coming or asyncio.create_task(_next_of(events))
            await asyncio.wait({coming, closing}, timeout=heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                event, coming = coming.result(), None
                if event is None:
                    return
                yield wire_form(event)
            if closing.done() or loop.time() >= ends_at:
                yield _LAST
                return
            if coming is not None:
                yield _HEARTBEAT
    finally:
        streams.leave()
        waits = [task for task in (closing, coming) if task is not None]
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await events.aclose()  # only now: nobody waits inside it any more


async def _next_of(events: AsyncGenerator[ServerEvent, None]) -> ServerEvent | None:
    return await anext(events, None)


def wire_form(event: ServerEvent) -> bytes:
    """JSON has no line ends of its own, so that one line of data is enough."""
    name = b"" if event.id is None else b"id: " + event.id.encode() + b"\n"
    return b"event: " + event.event.encode() + b"\n" + name + b"data: " + encode(event.data) + b"\n\n"
