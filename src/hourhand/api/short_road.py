"""The short road from a plain submission to its answer; everything else takes the long one, behind the gate.

Most requests are one job that runs once, sent again and again by a few callers whose headers hardly differ. Headers
that were found to be right are remembered, as a digest, for as long as the caller behind them is; a body that says
nothing beyond the basics is judged at once; and the answer is put together from pieces. Promises that nobody can tell
the roads apart but by the clock: the same checks, limits and answers, byte for byte. Whatever is unusual, let alone
wrong, is not judged here: the long road begins anew, with the part of the body that was read.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from hourhand.api.accepting import negotiate
from hourhand.api.answers import JSON, Facts, Header, full_headers
from hourhand.api.asgi import App, Message, Receive, Scope, Send
from hourhand.api.auth import Authenticator, read_credentials
from hourhand.api.bodies import BodyRoom, Patience, content_type_of
from hourhand.api.decoding import read_plainly
from hourhand.api.gate import request_id_of
from hourhand.api.hosts import HostCheck
from hourhand.api.plain_answers import id_in, plain_answer
from hourhand.api.problems import problem_answer
from hourhand.api.refusals import RequestTimeout
from hourhand.api.settings import ApiSettings
from hourhand.model.errors import RequestError
from hourhand.operations.jobs import JobOperations
from hourhand.operations.requests import Caller

PATH: Final = "/api/v1/jobs"
_LOCATION: Final = f"{PATH}/".encode()
_PASSED_OVER: Final = frozenset({b"traceparent", b"tracestate", b"baggage", b"date"})
"""Headers that differ from request to request and mean nothing here."""
_UNUSUAL: Final = frozenset({b"idempotency-key", b"cookie", b"expect", b"transfer-encoding"})
_REMEMBERED_MAX: Final = 1000
_COMMON: Final[Sequence[Header]] = tuple(full_headers(Facts("", {}), JSON, ()))
_BEFORE: Final = _COMMON[0]
_BETWEEN: Final = [pair for pair in _COMMON[1:] if pair[0] not in (b"x-request-id", b"cache-control")]
_LAST: Final = _COMMON[-1]


class ShortRoad:
    def __init__(
        self,
        long_road: App,
        jobs: JobOperations,
        authenticator: Authenticator,
        settings: ApiSettings,
        room: BodyRoom,
        patience: Patience,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._long_road = long_road
        self._jobs = jobs
        self._authenticator = authenticator
        self._settings = settings
        self._header_bytes_max = settings.header_bytes_max
        self._body_bytes_max = settings.body_bytes_max
        self._hosts = HostCheck(settings)
        self._room = room
        self._patience = patience
        self._monotonic = monotonic
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != PATH or scope["query_string"]:
            await self._long_road(scope, receive, send)
            return
        caller, length, given_id = self._caller(scope["headers"])
        if caller is None:
            await self._long_road(scope, receive, send)
            return
        try:
            message = await self._patience.wait(receive())
        except RequestTimeout as error:
            await self._refuse(error, given_id, scope, receive, send)
            return
        body = message.get("body", b"")
        size = len(body)
        # As many bytes as announced are the whole: the server says only with one message more that nothing follows.
        if message["type"] != "http.request" or size != length:
            await self._long_road(scope, _with_first(message, receive), send)
            return
        try:
            self._room.take(size)
        except RequestError as error:
            await self._refuse(error, given_id, scope, receive, send)
            return
        try:
            decoded = read_plainly(body)
            job = None if decoded is None else self._jobs.plain.read(caller, decoded)
            if job is not None:
                await self._jobs.plain.store(job)
                self._jobs.plain.tell(job)
        except Exception as error:  # whatever it is, the caller gets an answer; what nobody expected is logged
            await self._refuse(error, given_id, scope, receive, send)
            return
        finally:
            self._room.give_back(size)
        if job is None:
            await self._long_road(scope, _with_first(message, receive), send)
            return
        content = plain_answer(job, caller.namespace)
        await send({"type": "http.response.start", "status": 202, "headers": _headers(content, given_id)})
        await send({"type": "http.response.body", "body": content, "more_body": False})

    def _caller(self, headers: Sequence[Header]) -> tuple[Caller | None, int, bytes | None]:
        """Who sends these headers, if there is nothing to say against or beyond them; how long the body is, and the
        request's id."""
        size = 0
        length = given_id = None
        kept: list[bytes] = []
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"content-length":
                if length is not None:
                    return None, 0, None
                length = value
            elif name == b"x-request-id":
                given_id = value
            elif name not in _PASSED_OVER:
                kept.append(name)
                kept.append(value)
        if length is None or size > self._header_bytes_max:
            return None, 0, None
        announced = int(length) if length.isdigit() and len(length) < 12 else 0
        if not 0 < announced <= self._body_bytes_max:  # refused before the body is there
            return None, 0, None
        digest = hashlib.sha256(b"\n".join(kept)).digest()
        known = self._known.get(digest)
        if known is None or known[0] <= self._monotonic():
            known = self._learn(digest, kept)
        return (None if known is None else known[1]), announced, given_id

    def _learn(self, digest: bytes, kept: Sequence[bytes]) -> tuple[float, Caller] | None:
        self._known.pop(digest, None)
        headers = dict(zip(kept[::2], kept[1::2], strict=True))
        if 2 * len(headers) != len(kept) or not _UNUSUAL.isdisjoint(headers):
            return None
        try:
            self._hosts.check(headers.get(b"host"))
            credentials = read_credentials(headers, "POST", self._settings.public_url)
            negotiate(headers.get(b"accept"), (JSON,))
            content_type_of(headers, (JSON,))
        except RequestError:  # told by the long road, in its order
            return None
        known = self._authenticator.remembered(credentials)
        if known is not None:
            self._known[digest] = known
            if len(self._known) > _REMEMBERED_MAX:
                self._known.popitem(last=False)
        return known

    async def _refuse(
        self, error: Exception, given_id: bytes | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        request_id = request_id_of(given_id)
        scope["hourhand"] = Facts(request_id, {})
        await problem_answer(error, request_id, scope["method"], scope["path"])(scope, receive, send)


def _headers(content: bytes, given_id: bytes | None) -> list[Header]:
    return [
        _BEFORE,
        (b"content-length", b"%d" % len(content)),
        (b"location", _LOCATION + id_in(content)),
        *_BETWEEN,
        (b"x-request-id", request_id_of(given_id).encode()),
        _LAST,
    ]


def _with_first(message: Message, receive: Receive) -> Receive:
    """Gives the message that was read once more, then what follows it."""
    left = [message]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
