"""What can go wrong between client and server, each in one clear line.

`ApiProblem` means the server answered and said no; `ServerUnreachable` that no usable answer came. Programs tell
them apart because only after the second one is it open whether the request was carried out.
"""

import socket
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec

from hourhand.model.errors import Fault, HourhandError, ServerUnreachable, WorldError

_TRANSIENT: Final = frozenset({429, 502, 503, 504})
_AFTER_SENDING: Final = (
    httpx.ReadTimeout,
    httpx.WriteTimeout,
    httpx.ReadError,
    httpx.WriteError,
    httpx.RemoteProtocolError,
)
_TYPE_PREFIX: Final = "urn:hourhand:problem:"


class ApiProblem(HourhandError):
    """The server refused. `errors` holds every field at fault, in the server's order."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: list[Fault] | None = None,
        *,
        instance: str | None = None,
        retry_after_seconds: float | None = None,
        job_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors or []
        self.instance = instance
        """The server's name for the request; its logs know it."""
        self.retry_after_seconds = retry_after_seconds
        self.job_id = job_id
        """Of a `duplicate-job`: the one that is there already."""

    @property
    def is_transient(self) -> bool:
        """True when the same request may succeed in a moment."""
        return self.status in _TRANSIENT


class AnswerLost(ServerUnreachable):
    """The request went out and no answer came: it may have been carried out."""


class JobEndedWithoutRun(HourhandError):
    """A job whose run was awaited will never have one."""

    code = "job-ended-without-run"

    def __init__(self, job_id: UUID, status: str) -> None:
        super().__init__(f"job {job_id} is {status} and has no run to wait for")
        self.job_id = job_id


class WaitTimedOut(WorldError):
    code = "wait-timed-out"

    def __init__(self, run_id: UUID, status: str, seconds: float) -> None:
        super().__init__(f"run {run_id} is still {status} after {seconds:g} s")
        self.run_id = run_id


class _Document(msgspec.Struct):
    """RFC 9457. Everything is optional because proxies in between have their own ideas."""

    type: str = ""
    title: str = ""
    detail: str = ""
    instance: str | None = None
    job_id: str | None = None
    errors: list[dict[str, Any]] = []


def problem_of(response: httpx.Response) -> HourhandError:
    """The error that an answer of 400 or more stands for."""
    document = _document(response)
    if document is None:
        return _without_document(response)
    code = document.type.removeprefix(_TYPE_PREFIX) or f"http-{response.status_code}"
    detail = document.detail or document.title or _status_words(response.status_code)
    errors = [_fault(error) for error in document.errors]
    return ApiProblem(
        response.status_code,
        code,
        detail,
        errors,
        instance=document.instance,
        retry_after_seconds=_retry_after(response),
        job_id=document.job_id,
    )


def unreadable(response: httpx.Response, fault: str) -> ServerUnreachable:
    """An answer that is a success by its status and yet not what this client can read."""
    return ServerUnreachable(
        f"{origin(response.request.url)} answered in a way this client cannot read ({fault}). "
        "Is it Hourhand, and of a similar version?"
    )


def unreachable(error: httpx.HTTPError, request: httpx.Request, timeout_seconds: float) -> ServerUnreachable:
    """No answer came: why, and what to do about it."""
    why, advice = _reason(error, request, timeout_seconds)
    kind = AnswerLost if isinstance(error, _AFTER_SENDING) else ServerUnreachable
    return kind(f"cannot reach {origin(request.url)} ({why}). {advice}".strip())


def origin(url: httpx.URL) -> str:
    """The part of an address that is safe and useful to show: no path, no user, no password."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _document(response: httpx.Response) -> _Document | None:
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        return msgspec.json.decode(response.content, type=_Document)
    except msgspec.MsgspecError:
        return None


def _without_document(response: httpx.Response) -> HourhandError:
    status = response.status_code
    if status in _TRANSIENT or status >= 500:
        detail = f"{origin(response.request.url)} answered {_status_words(status)}"
        return ApiProblem(status, f"http-{status}", detail, retry_after_seconds=_retry_after(response))
    return unreadable(response, f"{_status_words(status)} without an explanation")


def _status_words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _fault(error: dict[str, Any]) -> Fault:
    allowed = error.get("allowed")
    return Fault(
        pointer=str(error.get("pointer", "")),
        code=str(error.get("code", "")),
        message=str(error.get("message", "")),
        hint=str(error["hint"]) if error.get("hint") else None,
        allowed=[str(word) for word in allowed] if isinstance(allowed, list) else None,
    )


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):  # absent, or a date, which we never send
        return None


def _reason(error: httpx.HTTPError, request: httpx.Request, timeout_seconds: float) -> tuple[str, str]:
    host = request.url.host
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {timeout_seconds:g} s", "Is the address right?"
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {timeout_seconds:g} s", _uncertain(request)
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return f"its certificate is not accepted: {cause.verify_message}", ""
            case ssl.SSLError():
                return f"TLS failed: {cause.reason or cause}", "Does it speak https?"
            case ConnectionRefusedError():
                start = " Start it with: hourhand up" if is_loopback(host) else ""
                return "connection refused", f"Is it running?{start}"
            case socket.gaierror():
                return f"no address is known for {host}", "Is the name right?"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        return "the connection was closed without an answer", _uncertain(request)
    return _one_line(str(error) or type(error).__name__), "Is it running?"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and everything that led to it; the asynchronous back end gathers failed addresses in a group."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member)
        return
    yield error
    before = error.__cause__ or error.__context__
    if before is not None:
        yield from _causes(before)


def _uncertain(request: httpx.Request) -> str:
    return "" if request.method == "GET" else "Whether the request was carried out is not known."


def _one_line(text: str) -> str:
    return " ".join(text.split())
