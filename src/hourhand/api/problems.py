"""Errors to problem documents (RFC 9457). The one place where a class of errors gets its HTTP status."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from hourhand.api import refusals
from hourhand.api.answers import PROBLEM, Answer, Header, encode, header
from hourhand.model import errors
from hourhand.telemetry.events import Event, emit

STATUS: Final[Mapping[type[Exception], int]] = {
    refusals.BadRequest: 400,
    refusals.RouteNotFound: 404,
    refusals.MethodNotAllowed: 405,
    refusals.NotAcceptable: 406,
    refusals.RequestTimeout: 408,
    refusals.UrlTooLong: 414,
    refusals.HostNotAllowed: 421,
    refusals.HeadersTooLarge: 431,
    refusals.CsrfFailed: 403,
    refusals.TooManyTries: 429,
    refusals.NotReady: 503,
    errors.MalformedBody: 400,
    errors.InvalidParameter: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.IdempotencyKeyReused: 422,
    errors.BodyTooLarge: 413,
    errors.ArchiveTooLarge: 413,
    errors.ArtifactNotTrusted: 403,
    errors.UnsupportedMedia: 415,
    errors.InvalidFields: 422,
    errors.Overloaded: 503,
    errors.RequestError: 400,
    errors.WorldError: 503,
}
"""Looked up along the class's ancestors, so a more special class may stand beside its base."""
STATUS_BY_CODE: Final[Mapping[str, int]] = {"version-mismatch": 412}
"""The one clash that HTTP has a status of its own for."""

GRANTED_CODES: Final = frozenset({"shell-forbidden", "unverified-tls-forbidden", "proxy-forbidden"})
"""Faults of fields that are right as such, but need a grant of the configuration. A request that has no others is
forbidden, not wrong."""

TOO_LARGE_CODES: Final = frozenset({"payload-too-large"})
"""Faults of fields that are right but for their size. A request that has no others is answered like a large body."""

_TITLES: Final[Mapping[int, str]] = {
    400: "The request cannot be read",
    401: "Not logged in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not possible",
    406: "No such form of answer",
    408: "The request took too long to arrive",
    409: "Not possible in this state",
    412: "Changed by somebody else meanwhile",
    413: "Too large",
    414: "Address too long",
    415: "Unknown form of body",
    421: "Wrong host",
    422: "Some fields are wrong",
    429: "Too many tries",
    431: "Headers too large",
    500: "The server made a mistake",
    503: "Temporarily unable",
}
_TITLES_BY_CODE: Final[Mapping[str, str]] = {"idempotency-key-reused": "The key belongs to another request"}
_INTERNAL: Final = "something went wrong inside the server; the log has more under this request id"


class FaultView(msgspec.Struct, omit_defaults=True):
    """One thing wrong with one field."""

    pointer: str
    code: str
    message: str
    hint: str | None = None
    allowed: Sequence[str] | None = None


class Problem(msgspec.Struct):
    """Why a request was refused. `type` ends in the code that programs may rely on."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    """The request id, as in the X-Request-Id header and in the log."""
    errors: list[FaultView] = []


class Unready(Problem):
    """Why this node should get no traffic."""

    checks: Mapping[str, str] = {}


class Duplicate(Problem):
    """A job that is not wanted twice is there already."""

    job_id: UUID | None = None
    """The one that is there; of a batch the first of them."""


def problem_answer(error: Exception, request_id: str, method: str = "", path: str = "") -> Answer:
    """The answer to any exception. What nobody expected is logged with the request id and told without details."""
    if not isinstance(error, errors.HourhandError):
        emit(Event.REQUEST_FAILED, request_id=request_id, method=method, path=path[:500], exc_info=error)
        return _document(500, "internal-error", _INTERNAL, request_id)
    status, headers = _status_of(error), _headers_of(error)
    if isinstance(error, errors.InvalidFields) and (special := _special_status(error)):
        return _document(special, error.faults[0].code, str(error), request_id, faults=error.faults)
    if isinstance(error, refusals.NotReady):
        return _document(status, error.code, str(error), request_id, headers=headers, checks=error.checks)
    faults = error.faults if isinstance(error, errors.InvalidFields | errors.DuplicateJob) else ()
    there = error.job_id if isinstance(error, errors.DuplicateJob) else None
    return _document(status, error.code, str(error), request_id, faults=faults, headers=headers, there=there)


def _status_of(error: errors.HourhandError) -> int:
    if isinstance(error, errors.Conflict) and error.code in STATUS_BY_CODE:
        return STATUS_BY_CODE[error.code]
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def _special_status(error: errors.InvalidFields) -> int | None:
    """Where all faults are of one sort that HTTP has a status of its own for."""
    codes = {fault.code for fault in error.faults}
    return 403 if codes <= GRANTED_CODES else 413 if codes <= TOO_LARGE_CODES else None


def _headers_of(error: errors.HourhandError) -> list[Header]:
    match error:
        case refusals.MethodNotAllowed():
            return [header("allow", ", ".join(error.allowed))]
        case errors.Unauthenticated():
            return [header("www-authenticate", "Bearer")]
        case errors.Overloaded() | refusals.TooManyTries():
            return [header("retry-after", str(error.retry_after_seconds))]
        case errors.WorldError() | refusals.NotReady():
            return [header("retry-after", "1")]
        case _:
            return []


def _document(
    status: int,
    code: str,
    detail: str,
    request_id: str,
    *,
    faults: Sequence[errors.Fault] = (),
    headers: Sequence[Header] = (),
    checks: Mapping[str, str] | None = None,
    there: UUID | None = None,
) -> Answer:
    views = [FaultView(fault.pointer, fault.code, fault.message, fault.hint, fault.allowed) for fault in faults]
    detail = detail.encode("utf-8", "replace").decode()  # a broken address may be quoted in it
    title = _TITLES_BY_CODE.get(code) or _TITLES.get(status, "Error")
    told = (f"urn:hourhand:problem:{code}", title, status, detail, request_id, views)
    document = Problem(*told) if checks is None else Unready(*told, checks)
    if there is not None:
        document = Duplicate(*told, there)
    return Answer(encode(document), status, PROBLEM, headers)
