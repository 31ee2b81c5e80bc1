"""Servers that mean harm to those who call them (rows 101 to 115): what they get is an end, and nothing more."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SENT_BYTES_MAX = 20_000_000
"""What a server can make us read at the most, whatever it sends: buffers of the kernel on both sides, and ours."""


class Harm:
    """A server that reads a request and then sends what it likes, byte by byte."""

    def __init__(self, pieces, pause=0.0):
        self._pieces = pieces
        self._pause = pause
        self.sent = 0

    @asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def _serve(self, reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in self._pieces:
                writer.write(piece)
                self.sent += len(piece)
                await writer.drain()
                if self._pause:
                    await asyncio.sleep(self._pause)
        writer.close()


@pytest.fixture
async def call(make_task):
    kind = HttpKind(HttpSettings(allow_private=True, idle_seconds_max=2.0, total_seconds_max=4.0, body_seconds_max=1.0))
    await kind.open()

    async def call_harm(harm, **payload):
        async with harm.serving() as url:
            return await asyncio.wait_for(kind.run(make_task({"url": url, **payload}, kind="http").task), 30)

    yield call_harm
    await kind.close()


def forever(piece):
    return itertools.repeat(piece)


def after(head, pieces):
    return itertools.chain([head], pieces)


ENDLESS = {
    "headers": lambda: after(HEAD, (b"X-%d: %s\r\n" % (each, b"a" * 4000) for each in itertools.count())),
    "a header": lambda: after(HEAD + b"X: ", forever(b"a" * 10_000)),
    "one header again and again": lambda: after(HEAD, forever(b"X: a\r\n" * 1000)),
    "words for a status": lambda: after(b"HTTP/1.1 200 ", forever(b"OK" * 10_000)),
    "lines with nothing": lambda: forever(b"\r\n" * 10_000),
    "trailers": lambda: after(CHUNKED + b"0\r\n", forever(b"X: y\r\n" * 1000)),
    "go on, go on": lambda: forever(b"HTTP/1.1 100 Continue\r\n\r\n" * 500),
    "hints": lambda: forever(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 500),
}
READ_AND_FORGOTTEN = ("go on, go on", "hints", "lines with nothing")


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_never_ends_is_ended_and_takes_no_memory(call, what):
    harm = Harm(ENDLESS[what]())
    begun = time.monotonic()
    outcome = await call(harm)
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason in (Reason.CONNECTION, Reason.TIMEOUT), outcome
    assert time.monotonic() - begun < 20
    assert len(outcome.error) <= 4000
    if what not in READ_AND_FORGOTTEN:
        assert harm.sent < SENT_BYTES_MAX


@pytest.mark.parametrize(
    "pieces", [after(CHUNKED + b"1;", forever(b"x" * 10_000)), after(CHUNKED, forever(b"0" * 10_000))]
)
async def test_a_chunk_that_never_begins_is_a_body_that_is_cut_off(call, pieces):
    outcome = await call(Harm(pieces))
    assert isinstance(outcome, Succeeded), outcome
    assert (outcome.result["body"], outcome.result["truncated"]) == ("", True)


async def test_a_head_that_drips_is_waited_for_no_longer_than_any_call(call):
    harm = Harm((HEAD[each : each + 1] for each in itertools.cycle(range(len(HEAD) - 2))), pause=0.2)
    outcome = await call(harm)
    assert outcome.reason in (Reason.CONNECTION, Reason.TIMEOUT)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00" * 100,
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 -200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhalf",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_is_an_end_of_some_sort_that_can_be_stored(call, answer):
    outcome = await call(Harm([answer]))
    assert isinstance(outcome, Failed | Succeeded)
    if isinstance(outcome, Failed):
        assert outcome.reason in (Reason.CONNECTION, Reason.HTTP_STATUS, Reason.TIMEOUT), outcome
        msgspec.json.encode(outcome.error)
    if outcome.result is not None:
        assert b"\\u0000" not in msgspec.json.encode(outcome.result)


@pytest.mark.parametrize(
    "content_type",
    [b"text/\xff\xfe", b"text/plain; charset=\xe4\xf6", b"\xed\xa0\x80/x", b"text/plain; charset=utf-7", b"a" * 8000],
)
async def test_what_a_server_says_of_its_answer_can_be_stored_whatever_it_is(call, content_type):
    answer = HEAD + b"Content-Type: " + content_type + b"\r\nContent-Length: 2\r\n\r\nok"
    outcome = await call(Harm([answer]))
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["body"] == "ok"
    msgspec.json.encode(outcome.result)
    assert len(outcome.result["headers"]["content-type"]) <= 4000


METADATA = [
    b"http://169.254.169.254/",
    b"//169.254.169.254/",
    b"http://[::ffff:169.254.169.254]/",
    b"HTTP://2852039166/",
    b"http://x@169.254.169.254/",
    b"http://169.254.169.254:80#@127.0.0.1/",
    "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/".encode(),
    "http://169。254。169。254/".encode(),
    "http://１６９.254.169.254/".encode(),
    b"http://0xa9.0xfe.43518/",
    b"http://169.254.169.254./",
    b"http://[::ffff:0:a9fe:a9fe]/",
    b"http://[64:ff9b:1::a9fe:a9fe]/",
    b"http://[fe80::1%25lo]/",
]
NOWHERE = [
    b"file:///etc/passwd",
    b"gopher://127.0.0.1:70/",
    b"javascript:alert(1)",
    b"http://",
    b"http://[",
    b"http://a b/",
    b"http://" + b"a" * 300 + b"/",
    b"http://127.0.0.1:99999/",
]


async def sent_on(call, location):
    answer = b"HTTP/1.1 307 Go\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
    return await call(Harm([answer]), follow_redirects=True)


@pytest.mark.parametrize("location", METADATA)
async def test_a_server_cannot_send_us_on_to_what_hands_out_credentials(call, location):
    outcome = await sent_on(call, location)
    assert isinstance(outcome, Failed), outcome
    assert (outcome.reason, outcome.retryable) == (Reason.REDIRECT_BLOCKED, False), outcome


@pytest.mark.parametrize("location", NOWHERE)
async def test_a_server_that_sends_us_on_to_nowhere_ends_the_attempt(call, location):
    outcome = await sent_on(call, location)
    assert isinstance(outcome, Failed), outcome
    ends = (Reason.REDIRECT_BLOCKED, Reason.BAD_ARGUMENTS, Reason.CONNECTION, Reason.TOO_MANY_REDIRECTS)
    assert outcome.reason in ends, outcome
    msgspec.json.encode(outcome.error)


@pytest.mark.parametrize("location", [each for each in METADATA if each.lower().startswith(b"http")])
async def test_an_address_is_judged_by_where_it_leads_and_not_by_how_it_looks(make_task, location):
    kind = HttpKind(HttpSettings(allow_private=True, connect_seconds_max=1.0, total_seconds_max=3.0))
    await kind.open()
    try:
        outcome = await kind.run(make_task({"url": location.decode()}, kind="http").task)
    finally:
        await kind.close()
    assert isinstance(outcome, Failed)
    assert outcome.reason in (Reason.TARGET_BLOCKED, Reason.BAD_ARGUMENTS), outcome
