"""Listening to streams of server-sent events: their form, and the answer that they come in."""

from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

import httpx

SILENCE_SECONDS_MAX: Final = 25.0
"""A stream says something every ten seconds. If nothing comes for so long, nothing will: somebody in between holds it
back, or the server is gone."""
EVENT_CHARS_MAX: Final = 64 * 1024 * 1024


class Heard(NamedTuple):
    event: str
    id: str | None
    data: str


class EventReader:
    """Takes bytes as they come and gives whole events. Comments and fields that we do not know are passed over."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Heard]:
        if len(self._rest) > EVENT_CHARS_MAX:
            raise httpx.DecodingError("an event of the stream is too long")
        *lines, self._rest = (self._rest + data).split(b"\n")
        events: list[Heard] = []
        for raw in lines:
            line = raw.removesuffix(b"\r").decode("utf-8", "replace")
            if line:
                self._take(line)
            elif self._data:
                events.append(Heard(self._event or "message", self._id, "\n".join(self._data)))
                self._event, self._data = "", []
            else:
                self._event = ""
        return events

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "id":
            self._id = value
        elif name == "data":
            self._data.append(value)


class Ear:
    """One stream that is being listened to. Its answer must be closed."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._reader = EventReader()
        self._waiting: list[Heard] = []
        self._pieces: Iterator[bytes] | None = None
        self._pieces_async: AsyncIterator[bytes] | None = None

    def next(self) -> Heard | None:
        """The next event; None when the stream has ended."""
        if self._pieces is None:
            self._pieces = self.response.iter_bytes()
        while not self._waiting:
            piece = next(self._pieces, None)
            if piece is None:
                return None
            self._waiting = self._reader.feed(piece)
        return self._waiting.pop(0)

    async def next_async(self) -> Heard | None:
        if self._pieces_async is None:
            self._pieces_async = self.response.aiter_bytes()
        while not self._waiting:
            piece = await anext(self._pieces_async, None)
            if piece is None:
                return None
            self._waiting = self._reader.feed(piece)
        return self._waiting.pop(0)
