"""Makes the calls of HTTP jobs. Redirects are followed here, hop by hop, each through the checks of the first."""

import asyncio
import errno
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import aiohttp
import msgspec
from yarl import URL

from hourhand.job_kinds.addresses import TargetBlocked
from hourhand.job_kinds.http import HttpSettings
from hourhand.job_kinds.http_answers import outcome_of_answer, redirect_target
from hourhand.job_kinds.http_network import Network, Road, Tls
from hourhand.job_kinds.http_oauth import TokenRefused, Tokens
from hourhand.job_kinds.http_options import CALLBACK, callback_seconds
from hourhand.job_kinds.http_payload import EXPECT_DEFAULT, header_value_is_bad
from hourhand.job_kinds.http_tls import BadCertificate, TlsContexts
from hourhand.model.durations import parse_duration
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.masking import CUT_CHARS_MIN, Masker
from hourhand.model.outcome import Failed, Outcome, Succeeded, clipped
from hourhand.model.secret_refs import filled, references
from hourhand.model.states import Reason
from hourhand.model.webhooks import HEADERS as SIGNATURE_HEADERS
from hourhand.model.webhooks import keys_in, signed_headers
from hourhand.ports.job_kind import Task

REDIRECTS_MAX: Final = 5
_OURS_ALONE: Final = frozenset(
    {"authorization", "cookie", "hourhand-callback-url", "hourhand-callback-token", "hourhand-callback-secret"}
    | {*SIGNATURE_HEADERS}
)
"""Meant for one server; a redirect must not carry them to another."""
_OF_BODY: Final = frozenset({"content-type", *SIGNATURE_HEADERS})
"""Mean nothing without the body that they came with."""


class RedirectBlocked(Exception):
    """A server sent us to where jobs may not go."""


class TooManyRedirects(Exception):
    pass


class BadSecret(Exception):
    """A secret that the payload refers to is not there, or cannot stand where it should. The message names no value."""


@dataclass(slots=True)
class _Order:
    """A call that is to be made."""

    url: URL
    method: str
    headers: dict[str, str]
    data: bytes | None
    private: frozenset[str]
    """Headers that only the first server may see, in small letters."""
    road: Road
    tls: Tls
    idle_seconds: float


class HttpCaller:
    def __init__(self, settings: HttpSettings, wall_clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._wall_clock = wall_clock
        self._network = Network(settings)
        self._contexts = TlsContexts(settings.ca_file)
        self._tokens = Tokens(self._network)

    async def open(self) -> None:
        await self._contexts.open()

    async def close(self) -> None:
        await self._network.close()

    async def call(self, task: Task) -> Outcome:
        try:
            if task.payload.get("complete_by") == CALLBACK:
                return await self._call_and_wait(task)
            return await self._call_in_time(task, {})
        except TargetBlocked as error:
            return Failed(Reason.TARGET_BLOCKED, clipped(str(error)), retryable=False)
        except RedirectBlocked as error:
            return Failed(Reason.REDIRECT_BLOCKED, clipped(str(error)), retryable=False)
        except TooManyRedirects:
            return Failed(Reason.TOO_MANY_REDIRECTS, f"more than {REDIRECTS_MAX} redirects", retryable=False)
        except TokenRefused as error:
            reason = Reason.CONNECTION if error.status is None else Reason.HTTP_STATUS
            return Failed(reason, clipped(str(error)), retryable=error.retryable)
        except (BadSecret, BadCertificate) as error:
            return Failed(Reason.BAD_ARGUMENTS, clipped(str(error)), retryable=False)
        except DatabaseUnavailable as error:  # where callbacks are kept
            return Failed(Reason.CONNECTION, clipped(str(error)))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if isinstance(error, aiohttp.InvalidURL):
                return Failed(Reason.BAD_ARGUMENTS, clipped(f"cannot be called: {_said(error)}"), retryable=False)
            return Failed(Reason.CONNECTION, clipped(_said(error)))
        except ValueError as error:  # after those, some of which are errors of values too
            return Failed(Reason.BAD_ARGUMENTS, clipped(f"cannot be called: {_said(error)}"), retryable=False)

    async def _call_and_wait(self, task: Task) -> Outcome:
        """The call begins the work; whoever does it says later how it ended."""
        if task.callback is None:
            message = "this executor does not know where the API can be called back: an operator sets api.public_url"
            return Failed(Reason.BAD_ARGUMENTS, message, retryable=False)
        async with task.callback(callback_seconds(task.payload)) as pending:
            headers = {"Hourhand-Callback-Url": pending.url, "Hourhand-Callback-Token": pending.token}
            if pending.secret is not None:
                headers["Hourhand-Callback-Secret"] = pending.secret
            outcome = await self._call_in_time(task, headers)
            if isinstance(outcome, Succeeded):
                return await pending.outcome()
            # The answer may have been lost after the work was done.
            return await pending.said_already() or outcome

    async def _call_in_time(self, task: Task, more: Mapping[str, str]) -> Outcome:
        payload = _with_secrets(task)
        limit = asyncio.timeout(self._settings.total_seconds_max)
        try:
            async with limit:
                order = await self._order(task, payload, more)
                if "oauth" not in payload:
                    return await self._follow(order, payload)
                return await self._call_with_token(task, payload, order)
        except TimeoutError:
            if not limit.expired():
                raise
            return Failed(Reason.TIMEOUT, f"the call took longer than {self._settings.total_seconds_max:g} seconds")

    async def _call_with_token(self, task: Task, payload: Mapping[str, Any], order: _Order) -> Outcome:
        asked = (task.namespace, payload["oauth"], order.road, order.tls, order.idle_seconds)
        token = await self._tokens.token(*asked)
        order.headers["Authorization"] = f"Bearer {token}"
        outcome = await self._follow(order, payload)
        if isinstance(outcome, Failed) and outcome.result is not None and outcome.result["status"] == 401:
            # It may have been revoked before its time. A second refusal is meant for us.
            token = await self._tokens.token(*asked, spent=token)
            order.headers["Authorization"] = f"Bearer {token}"
            outcome = await self._follow(order, payload)
        return _without_token(outcome, token)

    async def _order(self, task: Task, payload: Mapping[str, Any], more: Mapping[str, str]) -> _Order:
        idle = self._settings.idle_seconds_max
        if "idle_timeout" in payload:
            idle = min(idle, parse_duration(payload["idle_timeout"]).total_seconds())
        headers, data = _headers(task, payload), _encoded(payload.get("body"))
        if "sign_with" in payload:
            headers |= self._signature(task, payload["sign_with"], data or b"")
        if more:
            headers |= more
        private = _OURS_ALONE
        if given := task.payload.get("headers"):
            private = private.union(name.lower() for name, value in given.items() if not isinstance(value, str))
        return _Order(
            URL(payload["url"]),
            payload.get("method", "GET"),
            headers,
            data,
            private,
            self._network.road(payload),
            await self._contexts.of(payload) if len(payload) > 1 else self._contexts.usual,
            idle,
        )

    def _signature(self, task: Task, keys: str, body: bytes) -> dict[str, str]:
        """By the wall clock: the one who checks it has no other. The id is the run's, so that a call that is made again
        is known to be the same."""
        try:
            return signed_headers(keys_in(keys), str(task.run_id), int(self._wall_clock()), body)
        except ValueError as error:
            raise BadSecret(f"the calls cannot be signed by what is in sign_with: {error}") from None

    async def _follow(self, order: _Order, payload: Mapping[str, Any]) -> Outcome:
        url, method, headers, data = order.url, order.method, order.headers, order.data
        follows = payload.get("follow_redirects", False)
        settings = self._settings
        for hop in range(REDIRECTS_MAX + 1):
            try:
                what = (method, url, headers, data, order.road, order.tls, order.idle_seconds)
                if order.road.proxy is None:
                    request = self._network.direct_request(*what)
                else:
                    request = await self._network.request(*what)
                async with request as response:
                    target = redirect_target(response, url) if follows else None
                    if target is None:
                        expected = payload.get("expect_status", EXPECT_DEFAULT)
                        return await outcome_of_answer(
                            response, expected, settings.body_bytes_max, settings.body_seconds_max
                        )
            except TargetBlocked as error:
                if hop:
                    raise RedirectBlocked(f"redirected to {url.host or 'no server'}: {error}") from None
                raise
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, data = "GET" if method != "HEAD" else method, None
                headers = {name: value for name, value in headers.items() if name.lower() not in _OF_BODY}
            if target.scheme not in ("http", "https") or target.origin() != url.origin():
                headers = {name: value for name, value in headers.items() if name.lower() not in order.private}
            url = target
        raise TooManyRedirects


def _without_token(outcome: Outcome, token: str) -> Outcome:
    """A server may repeat what it was sent. Secrets of the job are masked by the executor, which does not know this."""
    if not isinstance(outcome, Succeeded | Failed) or outcome.result is None:
        return outcome
    masker, result = _token_masker(token), outcome.result
    if result["truncated"]:
        body = masker.piece(result["body"], begins_cut=False, ends_cut=True, chars_min=CUT_CHARS_MIN)
        result = {**result, "body": body}
    return replace(outcome, result=masker.json(result))


@lru_cache(maxsize=16)  # tokens are shared by many calls
def _token_masker(token: str) -> Masker:
    return Masker({"access token": token})


def _with_secrets(task: Task) -> Mapping[str, Any]:
    """The payload with texts in the places of its references. For the call, and for nothing else."""
    payload = task.payload
    if len(payload) == 1:  # nothing but an address
        return payload
    missing = [name for _, name in references("http", payload) if name not in task.secrets]
    if missing:
        raise BadSecret(f"the secret {missing[0]!r} was not given to this attempt")
    payload = filled(payload, task.secrets)
    if task.secrets:
        for name, value in payload.get("headers", {}).items():
            if header_value_is_bad(value):
                raise BadSecret(f"the secret in the header {name} has a line end or a control character")
    return payload


def _headers(task: Task, payload: Mapping[str, Any]) -> dict[str, str]:
    headers = {"User-Agent": "hourhand", "Accept-Encoding": "identity"}
    if "body" in payload:
        is_text = isinstance(payload["body"], str)
        headers["Content-Type"] = "text/plain; charset=utf-8" if is_text else "application/json"
    given = payload.get("headers")
    if given:
        overridden = {name.lower() for name in given}
        headers = {name: value for name, value in headers.items() if name.lower() not in overridden} | given
    headers["Idempotency-Key"] = headers["Hourhand-Run-Id"] = str(task.run_id)
    headers["Hourhand-Attempt"] = str(task.attempt)
    headers["Hourhand-Fence-Token"] = str(task.fence)
    return headers


def _encoded(body: Any) -> bytes | None:
    if body is None:
        return None
    return body.encode("utf-8", "replace") if isinstance(body, str) else msgspec.json.encode(body)


def _why(error: OSError) -> str:
    """What the kernel says. Of a call that failed, asyncio's text only repeats the address."""
    number = error.errno
    return os.strerror(number).lower() if number is not None and number in errno.errorcode else str(error.strerror)


def _said(error: BaseException) -> str:
    """An error in words that name a server and a remedy: aiohttp's own are for programmers, and several have none."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as why):
            advice = "give its CA as tls.ca, or to all jobs by kinds.http_ca_file"
            return f"the certificate of {error.host}:{error.port} is not believed ({why.verify_message}): {advice}"
        case aiohttp.ClientConnectorDNSError():
            return f"no address is known for {error.host}: {error.strerror}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy {error.host}:{error.port} cannot be reached: {_why(error)}"
        case aiohttp.ClientConnectorError() if error.strerror:
            return f"{error.host}:{error.port} cannot be reached: {_why(error)}"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection without an answer"
    text = str(error)
    if "ALERT_CERTIFICATE_REQUIRED" in text:
        return "the server asks for a certificate of the caller: give one as tls.cert and tls.key"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
