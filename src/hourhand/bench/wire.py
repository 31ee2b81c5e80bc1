"""HTTP/1.1 as lean as it can be: connections that are kept, one request at a time on each.

A general client costs more per request than the server that is to be measured, and on a shared machine it takes the
processor away from it. This one knows what our own server answers, and nothing else: no redirects, no cookies, no
compression. Promises that a request is sent once: what fails in between is told, never repeated.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from hourhand.model.errors import ServerUnreachable, WorldError

ANSWER_SECONDS_MAX: Final = 60.0
CONNECTIONS_MAX: Final = 256
"""More at once than a server takes off its hands would be turned away by the kernel, and wait for seconds."""


_REFUSALS: Final = (429, 503)


class Answered(NamedTuple):
    status: int
    body: bytes
    retry_after: int | None = None
    """Of a refusal: after how many seconds to come back, if it says so."""


class Connection(asyncio.Protocol):
    """One kept connection. Whoever has it waits for the answer before sending the next request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: asyncio.Future[Answered] | None = None
        self.closed = False

    async def ask(self, request: bytes) -> Answered:
        assert self._transport is not None, "connected first"
        assert self._waiting is None, "one request at a time"
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one, but does not say so

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._waiting is None or self._waiting.done():
            return
        try:
            found = read_answer(self._received)
        except ValueError as fault:
            self._waiting.set_exception(WorldError(f"the server answered what is not HTTP: {fault}"))
            self.close()
            return
        if found is not None:
            answered, used = found
            del self._received[:used]
            self._waiting.set_result(answered)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ServerUnreachable(f"the server hung up: {exc or 'no answer'}"))


def read_answer(received: bytearray) -> tuple[Answered, int] | None:
    """The first whole answer and how many bytes it took; None while there is more to come."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    if not received.startswith(b"HTTP/1."):
        raise ValueError(bytes(received[:40]))
    head = bytes(received[:end]).lower()
    status, begin = int(head[9:12]), end + 4
    place = head.find(b"\r\ncontent-length:")
    if place >= 0:
        stop = begin + int(head[place + 17 :].split(b"\r\n", 1)[0])
        if len(received) < stop:
            return None
        retry_after = _retry_after(head) if status in _REFUSALS else None
        return Answered(status, bytes(received[begin:stop]), retry_after), stop
    if b"\r\ntransfer-encoding: chunked" in head:
        return _read_chunks(received, status, begin)
    return Answered(status, b""), begin  # 204 and the like


def _retry_after(head: bytes) -> int | None:
    _, named, rest = head.partition(b"\r\nretry-after:")
    value = rest.split(b"\r\n", 1)[0].strip()
    return int(value) if named and value.isdigit() else None


def _read_chunks(received: bytearray, status: int, place: int) -> tuple[Answered, int] | None:
    body = bytearray()
    while (line_end := received.find(b"\r\n", place)) >= 0:
        size = int(bytes(received[place:line_end]).split(b";")[0], 16)
        stop = line_end + 2 + size
        if len(received) < stop + 2:
            return None
        if size == 0:
            return Answered(status, bytes(body)), stop + 2
        body += received[line_end + 2 : stop]
        place = stop + 2
    return None


class Wire:
    """Connections to one server, made when they are needed and kept."""

    def __init__(self, url: str, token: str, connections_max: int = CONNECTIONS_MAX) -> None:
        self._places = asyncio.Semaphore(connections_max)
        parts = urlsplit(url)
        assert parts.hostname, f"{url} names no host"
        self._host = parts.hostname
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/")
        self._head = f"HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n".encode()
        self._free: list[Connection] = []

    async def __aenter__(self) -> "Wire":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The bytes of a request, to be made once and sent often."""
        line = f"{method} {self._path}{path} ".encode()
        if body is None:
            return line + self._head + b"\r\n"
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return line + self._head + length + body

    async def ask(self, request: bytes) -> Answered:
        """Sends it on a free connection."""
        async with self.connection() as connection, asyncio.timeout(ANSWER_SECONDS_MAX):
            return await connection.ask(request)

    async def get(self, path: str) -> Answered:
        return await self.ask(self.request("GET", path))

    async def post(self, path: str, body: bytes) -> Answered:
        return await self.ask(self.request("POST", path, body))

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for the caller alone; given back whole or not at all. Waits while all are in use."""
        async with self._places:
            while self._free and self._free[-1].closed:
                self._free.pop()
            connection = self._free.pop() if self._free else await self._connect()
            try:
                yield connection
            except BaseException:  # an answer may still be on its way, and would be taken for the next one's
                connection.close()
                raise
            if not connection.closed:
                self._free.append(connection)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_connection(Connection, self._host, self._port, ssl=self._secure)
        except OSError as fault:
            raise ServerUnreachable(f"cannot connect to {self._host}:{self._port}: {fault}") from None
        return made


def expect(answered: Answered, status: int, what: str) -> bytes:
    """The body of an answer that must have this status."""
    if answered.status != status:
        said = answered.body[:500].decode(errors="replace")
        raise WorldError(f"{what} was answered {answered.status}: {said}")
    return answered.body
