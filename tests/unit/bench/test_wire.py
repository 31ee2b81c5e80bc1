"""The lean client reads what our server sends, in whatever pieces it comes, and never sends a request twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hourhand.bench.wire import Answered, Wire, expect, read_answer
from hourhand.model.errors import ServerUnreachable, WorldError

PLAIN = b'HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n3;x=y\r\nefg\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\ncontent-length: 4\r\n\r\nfull"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (PLAIN, Answered(202, b'{"a":1}')),
        (CHUNKED, Answered(200, b"abcdefg")),
        (EMPTY, Answered(204, b"")),
        (REFUSED, Answered(503, b"full", 7)),
        (REFUSED.replace(b"Retry-After", b"X-Else"), Answered(503, b"full", None)),
    ],
)
def test_an_answer_is_read_once_it_is_whole(sent: bytes, answered: Answered) -> None:
    for end in range(len(sent)):
        assert read_answer(bytearray(sent[:end])) is None
    assert read_answer(bytearray(sent + b"next")) == (answered, len(sent))


def test_what_is_not_http_is_refused() -> None:
    with pytest.raises(ValueError, match="SSH"):
        read_answer(bytearray(b"SSH-2.0-x\r\n\r\n"))


def test_an_answer_of_another_status_is_an_error_with_its_text() -> None:
    assert expect(Answered(202, b"ok"), 202, "a job") == b"ok"
    with pytest.raises(WorldError, match="a job was answered 429: slow down"):
        expect(Answered(429, b"slow down"), 202, "a job")


class Server:
    """Answers each request with the number of its connection and of the request on it."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.hang_up = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number, count = self.connections, 0
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                count += 1
                length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                self.requests.append(head + body)
                if self.hang_up:
                    return
                content = b"%d/%d" % (number, count)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Wire]]:
    counted = Server()
    listening = await asyncio.start_server(counted.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with Wire(f"http://127.0.0.1:{port}", "secret") as wire:
        yield counted, wire
    listening.close()


async def test_a_connection_is_kept_and_used_again(server: tuple[Server, Wire]) -> None:
    _, wire = server
    assert [(await wire.get("/x")).body for _ in range(3)] == [b"1/1", b"1/2", b"1/3"]


async def test_requests_at_the_same_time_have_connections_of_their_own(server: tuple[Server, Wire]) -> None:
    _, wire = server
    answers = await asyncio.gather(*(wire.get("/x") for _ in range(3)))
    assert sorted(answer.body for answer in answers) == [b"1/1", b"2/1", b"3/1"]


async def test_a_request_carries_token_and_body(server: tuple[Server, Wire]) -> None:
    counted, wire = server
    await wire.post("/api/v1/jobs", b'{"name": "x"}')
    [request] = counted.requests
    assert request.startswith(b"POST /api/v1/jobs HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer secret\r\n" in request
    assert b"\r\nContent-Type: application/json\r\n" in request
    assert request.endswith(b'\r\n\r\n{"name": "x"}')


async def test_a_request_whose_answer_never_came_is_told_and_not_repeated(server: tuple[Server, Wire]) -> None:
    counted, wire = server
    counted.hang_up = True
    with pytest.raises(ServerUnreachable, match="hung up"):
        await wire.get("/x")
    assert len(counted.requests) == 1
    counted.hang_up = False
    assert (await wire.get("/x")).body == b"2/1"


async def test_a_server_that_is_not_there_is_told() -> None:
    async with Wire("http://127.0.0.1:1", "x") as wire:
        with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:1"):
            await wire.get("/")
