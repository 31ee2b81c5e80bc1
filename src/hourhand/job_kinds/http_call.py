"""Makes the calls of HTTP jobs: one session for all, every address checked before it is connected to.

Names are resolved by our own resolver, all their addresses are judged, and the connection goes to one of
exactly these. Each socket is judged once more by the address it is about to connect to, which covers
addresses spelled out in the URL and any way around the resolver. Redirects are followed here, hop by hop,
through the same checks.
"""

import asyncio
import socket
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from hourhand.job_kinds.addresses import TargetBlocked, blocked_because, host_blocked_because
from hourhand.job_kinds.http import HttpSettings
from hourhand.job_kinds.http_payload import EXPECT_DEFAULT, expects
from hourhand.model.outcome import Failed, Outcome, Succeeded, clipped
from hourhand.model.retry import http_tags
from hourhand.model.states import Reason
from hourhand.ports.job_kind import Task

REDIRECTS_MAX: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_WORTH_RETRYING: Final = frozenset({408, 425, 429})
_RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
_READ_BYTES: Final = 16 * 1024
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie"})
"""Meant for one server; a redirect must not carry them to another."""


class TooManyRedirects(Exception):
    pass


class HttpCaller:
    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=_CheckedResolver(settings.allow_private),
                socket_factory=self._checked_socket,
                use_dns_cache=False,
                limit=0,  # the executor's slots are the limit
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_seconds_max),
            cookie_jar=aiohttp.DummyCookieJar(),  # runs must not see each other's cookies
            auto_decompress=False,  # a small answer could become a huge one
            trust_env=False,
        )

    async def close(self) -> None:
        await self._session.close()

    async def call(self, task: Task) -> Outcome:
        try:
            return await self._call(task)
        except TargetBlocked as error:
            return Failed(Reason.TARGET_BLOCKED, clipped(str(error)), retryable=False)
        except TooManyRedirects:
            return Failed(Reason.HTTP_STATUS, f"more than {REDIRECTS_MAX} redirects", retryable=False)
        except (aiohttp.InvalidURL, ValueError) as error:
            return Failed(Reason.BAD_ARGUMENTS, clipped(f"cannot be called: {_said(error)}"), retryable=False)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Failed(Reason.CONNECTION, clipped(_said(error)))

    async def _call(self, task: Task) -> Outcome:
        payload = task.payload
        url, method, body = URL(payload["url"]), payload.get("method", "GET"), payload.get("body")
        headers = _headers(task)
        self._check(url)
        for _ in range(REDIRECTS_MAX + 1):
            data = _encoded(body)
            async with self._session.request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as response:
                target = _redirect_target(response) if payload.get("follow_redirects", False) else None
                if target is None:
                    return await self._outcome(response, payload.get("expect_status", EXPECT_DEFAULT))
            self._check(target)
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, body = "GET" if method != "HEAD" else method, None
                headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
            if target.origin() != url.origin():
                headers = {name: value for name, value in headers.items() if name.lower() not in _SECRET_HEADERS}
            url = target
        raise TooManyRedirects

    def _check(self, url: URL) -> None:
        if url.scheme not in ("http", "https"):
            raise TargetBlocked(str(url.scheme) + ":", "not a scheme that jobs may use")
        host = url.raw_host or ""
        why = host_blocked_because(host, self._settings.allow_private)
        if why is not None:
            raise TargetBlocked(host, why)

    def _checked_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        _judge(str(target[0]), str(target[0]), self._settings.allow_private)
        return socket.socket(family, kind, protocol)

    async def _outcome(self, response: aiohttp.ClientResponse, expected: Any) -> Outcome:
        body, truncated = await self._body(response)
        kept = {"content-type": value} if (value := response.headers.get("Content-Type")) else {}
        result = {"status": response.status, "headers": kept, "body": body, "truncated": truncated}
        if expects(response.status, expected):
            return Succeeded(result)
        return Failed(
            Reason.HTTP_STATUS,
            f"expected {' or '.join(map(str, expected))}, got {response.status}",
            retryable=not 400 <= response.status < 500 or response.status in _WORTH_RETRYING,
            retry_after_seconds=_retry_after(response.headers.get("Retry-After"), datetime.now(UTC)),
            result=result,
            tags=http_tags(response.status),
        )

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[str, bool]:
        """The beginning of the body as text, and whether there was more."""
        limit = self._settings.body_bytes_max
        data = bytearray()
        truncated = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.body_seconds_max):
                while len(data) <= limit and (piece := await response.content.read(_READ_BYTES)):
                    data += piece
                truncated = len(data) > limit
        if truncated:
            response.close()  # the rest is not worth reading to keep the connection
        return _as_text(bytes(data[:limit]), response.charset), truncated


class _CheckedResolver(ThreadedResolver):
    def __init__(self, allow_private: bool) -> None:
        super().__init__()
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """All addresses of a name. One that is blocked blocks the name: nobody has honest use for a mixture."""
        found = await super().resolve(host, port, family)
        for result in found:
            _judge(host, result["host"], self._allow_private)
        return found


def _judge(host: str, address: str, allow_private: bool) -> None:
    why = blocked_because(ip_address(address), allow_private)
    if why is not None:
        raise TargetBlocked(host, why)


def _headers(task: Task) -> dict[str, str]:
    payload = task.payload
    headers = {"User-Agent": "hourhand", "Accept-Encoding": "identity"}
    if "body" in payload:
        headers["Content-Type"] = (
            "text/plain; charset=utf-8" if isinstance(payload["body"], str) else "application/json"
        )
    given = payload.get("headers", {})
    overridden = {name.lower() for name in given}
    return {
        **{name: value for name, value in headers.items() if name.lower() not in overridden},
        **given,
        "Idempotency-Key": str(task.run_id),
        "Hourhand-Run-Id": str(task.run_id),
        "Hourhand-Attempt": str(task.attempt),
        "Hourhand-Fence-Token": str(task.fence),
    }


def _encoded(body: Any) -> bytes | None:
    if body is None:
        return None
    return body.encode("utf-8", "replace") if isinstance(body, str) else msgspec.json.encode(body)


def _redirect_target(response: aiohttp.ClientResponse) -> URL | None:
    location = response.headers.get("Location")
    if response.status not in _REDIRECTS or location is None:
        return None
    return response.url.join(URL(location))


def _as_text(data: bytes, charset: str | None) -> str:
    try:
        text = data.decode(charset or "utf-8", "replace")
    except (LookupError, ValueError):  # the server names an encoding that does not exist, or is none for text
        text = data.decode("utf-8", "replace")
    return text.replace("\x00", "\N{SYMBOL FOR NULL}")


def _retry_after(value: str | None, now: datetime) -> float | None:
    """The header's delay: a number of seconds or a date (RFC 9110). Nonsense is the same as nothing."""
    if value is None:
        return None
    if value.strip().isdecimal():
        seconds = float(value)
    else:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return min(max(seconds, 0.0), _RETRY_AFTER_SECONDS_MAX)


def _said(error: BaseException) -> str:
    """An error in words: several of aiohttp's have none of their own."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
