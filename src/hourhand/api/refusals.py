"""Refusals that only HTTP knows. Everything else that can be wrong is in `hourhand.model.errors`."""

from collections.abc import Mapping, Sequence
from typing import Final

from hourhand.model.errors import InvalidParameter, RequestError

_PARAMETERS_TOLD_MAX: Final = 20


class BadRequest(RequestError):
    """The request as a whole cannot be used; `code` says why: token-in-url, repeated-header, ..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidParameters(InvalidParameter):
    """Several at once; the code is that of the first."""

    def __init__(self, wrong: Sequence[InvalidParameter]) -> None:
        told = list(dict.fromkeys(str(each) for each in wrong))
        RequestError.__init__(self, "; also ".join(told[:_PARAMETERS_TOLD_MAX]))
        self.name = wrong[0].name
        self.code = wrong[0].code


class RouteNotFound(RequestError):
    code = "not-found"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path[:200]}; the routes are listed at /docs")


class MethodNotAllowed(RequestError):
    code = "method-not-allowed"

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allowed = sorted(allowed)
        super().__init__(f"{method} is not possible here; use {' or '.join(self.allowed)}")


class NotAcceptable(RequestError):
    code = "not-acceptable"

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"the answer can be had as {' or '.join(offered)} only; change the Accept header")


class RequestTimeout(RequestError):
    code = "request-timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the body did not arrive within {seconds:g} seconds")


class UrlTooLong(RequestError):
    code = "url-too-long"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the address is longer than {limit_bytes} bytes")


class HeadersTooLarge(RequestError):
    code = "headers-too-large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the headers are larger than {limit_bytes} bytes")


class HostNotAllowed(RequestError):
    code = "host-not-allowed"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"this server does not answer for the host {host[:100]!r}; add it to allowed_hosts if it should"
        )


class CsrfFailed(RequestError):
    code = "csrf-failed"

    def __init__(self) -> None:
        super().__init__("a change made with the browser's session must come from this server's own pages")


class TooManyTries(RequestError):
    code = "too-many-tries"

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"too many wrong login codes; try again in {retry_after_seconds} seconds")
        self.retry_after_seconds = retry_after_seconds


class NotReady(RequestError):
    """This node cannot do its work just now. `checks` has what was looked at, and "ok" or what is wrong with it."""

    code = "not-ready"

    def __init__(self, checks: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {found}" for name, found in checks.items() if found != "ok"))
        self.checks = dict(checks)
