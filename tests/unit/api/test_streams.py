"""Answers that are made while they are sent: only so many, let go of when nobody reads, ended when the node ends."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from hourhand.api import streaming
from hourhand.api.answers import Facts
from hourhand.api.sse import ServerEvent, events_answer, wire_form
from hourhand.api.streaming import StreamAnswer, Streams, stream_answer
from hourhand.model.errors import NotFound, Overloaded


class Caller:
    """Reads an answer, as whoever serves would on its behalf."""

    def __init__(self, *, head: bool = False) -> None:
        self.scope: dict[str, Any] = {"hourhand": Facts("r1", {}, head)}
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.whole = False
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.headers = dict(message["headers"])
        else:
            self.body += message["body"]
            self.whole = not message["more_body"]
            self.heard.put_nowait(message["body"])

    async def listen(self, answer: StreamAnswer) -> None:
        await answer(self.scope, self.receive, self.send)


class Source:
    """Events that a test lets happen."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[ServerEvent | None] = asyncio.Queue()
        self.is_closed = False

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        try:
            while (event := await self.coming.get()) is not None:
                yield event
        finally:
            self.is_closed = True


async def test_events_are_sent_as_they_come_with_what_proxies_need_to_let_them_through() -> None:
    source, streams, caller = Source(), Streams(1), Caller()
    listening = asyncio.create_task(caller.listen(await events_answer(streams, source.events())))
    assert (await caller.heard.get()).startswith(b":")
    source.coming.put_nowait(ServerEvent("lines", "1:7", {"text": "two\nlines"}))
    assert await caller.heard.get() == b'event: lines\nid: 1:7\ndata: {"text":"two\\nlines"}\n\n'
    assert caller.headers[b"content-type"] == b"text/event-stream"
    assert caller.headers[b"x-accel-buffering"] == b"no"
    assert b"no-transform" in caller.headers[b"cache-control"]
    source.coming.put_nowait(None)
    await listening
    assert caller.whole
    assert len(streams) == 0


async def test_silence_is_filled_with_comments_that_are_no_events() -> None:
    source, caller = Source(), Caller()
    listening = asyncio.create_task(caller.listen(await events_answer(Streams(1), source.events(), 0.01)))
    for _ in range(4):
        assert (await caller.heard.get()).startswith(b":")
    source.coming.put_nowait(None)
    await listening


async def test_a_caller_that_has_gone_is_let_go_of_and_its_source_is_closed() -> None:
    source, streams, caller = Source(), Streams(1), Caller()
    listening = asyncio.create_task(caller.listen(await events_answer(streams, source.events())))
    await caller.heard.get()
    source.coming.put_nowait(wire := ServerEvent("a", None, 1))
    assert await caller.heard.get() == wire_form(wire)
    caller.gone.set()
    await listening
    assert source.is_closed
    assert len(streams) == 0
    assert not caller.whole


async def test_a_caller_that_does_not_read_is_held_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SEND_SECONDS_MAX", 0.02)
    source, streams, caller = Source(), Streams(1), Caller()
    listening = asyncio.create_task(caller.listen(await events_answer(streams, source.events())))
    await caller.heard.get()
    caller.reads.clear()
    source.coming.put_nowait(ServerEvent("a", None, 1))
    with pytest.raises(TimeoutError):
        await listening
    assert source.is_closed
    assert len(streams) == 0


async def test_streams_beyond_the_bound_are_refused_and_places_come_back() -> None:
    streams, source = Streams(1), Source()
    first = await events_answer(streams, source.events())
    with pytest.raises(Overloaded):
        await events_answer(streams, Source().events())
    await Caller(head=True).listen(first)
    assert len(streams) == 0
    await Caller(head=True).listen(await events_answer(streams, Source().events()))


async def test_the_end_of_a_node_ends_its_streams_as_a_whole_answer() -> None:
    source, streams, caller = Source(), Streams(5), Caller()
    listening = asyncio.create_task(caller.listen(await events_answer(streams, source.events())))
    await caller.heard.get()
    await streams.close(5.0)
    await listening
    assert caller.whole
    assert len(streams) == 0
    with pytest.raises(Overloaded):
        await events_answer(streams, source.events())


async def test_a_body_that_cannot_be_had_at_all_is_a_problem_and_not_a_broken_answer() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        raise NotFound("run", "x")
        yield b""

    with pytest.raises(NotFound):
        await stream_answer(pieces(), "text/plain")


async def test_a_body_that_breaks_in_the_middle_is_never_ended_as_if_it_were_whole() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one"
        raise OSError("the disk is gone")

    caller = Caller()
    with pytest.raises(OSError, match="the disk is gone"):
        await caller.listen(await stream_answer(pieces(), "text/plain"))
    assert caller.body == b"one"
    assert not caller.whole
