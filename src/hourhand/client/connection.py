"""Where a client's requests go and what every one of them carries. Shared by both clients."""

import ssl
from collections.abc import AsyncIterable, Iterable
from typing import Any, Final

import httpx

from hourhand.client.calls import Call
from hourhand.client.ears import SILENCE_SECONDS_MAX
from hourhand.client.problems import is_loopback, unreachable
from hourhand.model.errors import InvalidParameter, ServerUnreachable

TIMEOUT_SECONDS: Final = 30.0
CONNECTIONS_MAX: Final = 100
"""Requests under way at once; further ones wait. All are kept open, so that a busy caller never connects anew."""


class Connection:
    """A checked address with the headers and parameters that go with it."""

    def __init__(self, url: str, token: str | None, namespace: str | None, timeout: float) -> None:
        self.url = checked_url(url)
        self.namespace = namespace
        self.timeout_seconds = timeout
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {_checked_token(token)}"

    def options(self) -> dict[str, Any]:
        """Arguments for `httpx.Client` and `httpx.AsyncClient` alike."""
        return {
            "base_url": self.url,
            "headers": self._headers,
            # Waiting for a free connection is the caller's own doing and not the server's silence.
            "timeout": httpx.Timeout(self.timeout_seconds, pool=None),
            "limits": httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
            # A proxy of the environment knows nothing of this machine's own addresses.
            "trust_env": not is_loopback(self.url.host),
            # Without TLS an empty context does: loading all authorities takes longer than most requests.
            "verify": True if self.url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        }

    def request(
        self,
        call: Call[Any],
        http: httpx.Client | httpx.AsyncClient,
        content: Iterable[bytes] | AsyncIterable[bytes] | None = None,
        answer_seconds: float | None = None,
    ) -> httpx.Request:
        """`content`: a body that is made while it is sent. `answer_seconds`: the patience with the answer."""
        timeout = httpx.Timeout(self.timeout_seconds, pool=None, read=answer_seconds or self.timeout_seconds)
        params = dict(call.params) if self.namespace is None else {**call.params, "namespace": self.namespace}
        return http.build_request(
            call.method,
            call.path,
            params=params or None,
            content=call.content if content is None else content,
            headers=dict(call.headers),
            timeout=timeout,
        )

    def listening_request(self, call: Call[Any], http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """For a stream, which may be silent for a moment but not for long."""
        request = self.request(call, http)
        timeout = httpx.Timeout(self.timeout_seconds, read=SILENCE_SECONDS_MAX, pool=None)
        request.extensions["timeout"] = timeout.as_dict()
        return request

    def lost(self, error: httpx.HTTPError, request: httpx.Request) -> ServerUnreachable:
        return unreachable(error, request, self.timeout_seconds)


def checked_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidParameter("server", f"{text!r} is not an address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidParameter("server", f"{text!r} is not an address; write for example http://127.0.0.1:8420")
    if url.userinfo or url.query or url.fragment:
        raise InvalidParameter("server", "the address may hold scheme, host, port and path only")
    return url


def _checked_token(token: str) -> str:
    """Refuses what cannot stand in a header. The token itself is never shown."""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidParameter("token", "a token is one word of printable ASCII characters; this one is not")
    return token
