"""The outermost layer: every request passes it on the way in.

Request id, sizes of address and headers, headers given twice, the host, tokens in the address. What is behind it may
rely on `scope["hourhand"]`, and the headers that every answer carries come with the answer.
"""

import random
import re
from collections.abc import Sequence
from typing import Final

from hourhand.api.answers import Facts, Header
from hourhand.api.asgi import App, Receive, Scope, Send
from hourhand.api.auth import refuse_token_in_url
from hourhand.api.hosts import HostCheck
from hourhand.api.problems import problem_answer
from hourhand.api.refusals import BadRequest, HeadersTooLarge, UrlTooLong
from hourhand.api.settings import ApiSettings
from hourhand.model.errors import RequestError

_SINGLE: Final = frozenset(
    {
        b"authorization",
        b"host",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"origin",
        b"if-match",
        b"idempotency-key",
        b"webhook-id",
        b"webhook-timestamp",
        b"webhook-signature",
    }
)
"""Headers that may come once only: two of them mean that somebody on the way reads another one than we do."""
_chance: Final = random.Random().getrandbits  # noqa: S311 - ids need to be unlike, not secret
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


class Gate:
    def __init__(self, app: App, settings: ApiSettings) -> None:
        self._app = app
        self._hosts = HostCheck(settings)
        self._url_bytes_max = settings.url_bytes_max
        self._header_bytes_max = settings.header_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers: dict[bytes, bytes] = {}
        refused = self._read_headers(scope["headers"], headers)
        request_id = request_id_of(headers.get(b"x-request-id"))
        head = scope["method"] == "HEAD"
        if head:
            scope["method"] = "GET"
        scope["hourhand"] = Facts(request_id, headers, head)
        try:
            if refused is not None:
                raise refused
            self._check(scope, headers)
        except RequestError as error:
            await problem_answer(error, request_id)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _read_headers(self, raw: Sequence[Header], headers: dict[bytes, bytes]) -> RequestError | None:
        """Fills `headers`; says what is wrong with them, if anything."""
        size = 0
        refused: RequestError | None = None
        for name, value in raw:
            size += len(name) + len(value)
            if name in headers and name in _SINGLE:
                refused = BadRequest("repeated-header", f"the header {name.decode('latin-1')} is given twice")
            headers[name] = value
        return HeadersTooLarge(self._header_bytes_max) if size > self._header_bytes_max else refused

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        query = scope["query_string"]
        if len(scope.get("raw_path") or scope["path"]) + len(query) > self._url_bytes_max:
            raise UrlTooLong(self._url_bytes_max)
        self._hosts.check(headers.get(b"host"))
        refuse_token_in_url(query, scope["path"])


def request_id_of(given: bytes | None) -> str:
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"{_chance(64):016x}"


async def _live(receive: Receive, send: Send) -> None:
    """Whoever serves tells when it begins and ends. The node looks after both; it is only answered here."""
    while True:
        told = (await receive())["type"]
        await send({"type": f"{told}.complete"})
        if told == "lifespan.shutdown":
            return
