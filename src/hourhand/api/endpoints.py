"""An endpoint is one route, told once: routing, checks and the OpenAPI document all read it.

Its handler gets a `Call`, which is the request after everything that is the same for all routes: authenticated, its
parameters known, its body read within the limits. It gives back an `Answer`.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.api.answers import JSON, Answer
from hourhand.api.parameters import NAMESPACE, Parameter, Query, parse_id, parse_number
from hourhand.api.streaming import StreamAnswer
from hourhand.model.errors import InvalidParameter
from hourhand.model.keys import KEY_CHARS_MAX, IdempotencyKey, request_digest
from hourhand.operations.requests import Caller

NDJSON: Final = "application/x-ndjson"
_KEY: Final = re.compile(rb"[!-~]{1,%d}" % KEY_CHARS_MAX)


# A struct, because one is made per request: see JobDefinition.
class Call(msgspec.Struct):
    """One request as a handler sees it."""

    query: Query
    path: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes
    media_type: str
    """The form of answer the caller wants, of those the endpoint offers."""
    content_type: str
    base_url: str
    """Where the caller reached us: scheme, host and port."""
    client_address: str
    authenticated: Caller | None
    caller_in: Callable[[str], Awaitable[Caller]]
    """The same caller in another namespace, if its token allows that."""
    stream: AsyncIterator[bytes] | None = None
    """The body piece by piece, where the endpoint takes it so."""

    @property
    def caller(self) -> Caller:
        assert self.authenticated is not None, "a public endpoint asked for its caller"
        return self.authenticated

    def id(self, name: str) -> UUID:
        """An id in the path. Raises `InvalidParameter`."""
        return parse_id(self.path[name], name)

    def number(self, name: str) -> int:
        """A number in the path. Raises `InvalidParameter`."""
        return parse_number(self.path[name], name)

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def if_version(self) -> int | None:
        """The version that If-Match names; None when any will do."""
        raw = self.header(b"if-match")
        if raw is None or raw.strip() == "*":
            return None
        digits = raw.strip().strip('"')
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise InvalidParameter("If-Match", 'must be a version in quotes such as "3"', "invalid-header")
        return int(digits)

    def idempotency_key(self, path: str) -> IdempotencyKey | None:
        """The key that the request to `path` came with, if any."""
        raw = self.headers.get(b"idempotency-key")
        if raw is None:
            return None
        if not _KEY.fullmatch(raw):
            message = f"must be 1 to {KEY_CHARS_MAX} visible ASCII characters"
            raise InvalidParameter("Idempotency-Key", message, "invalid-header")
        return IdempotencyKey(raw.decode(), request_digest(path, self.body))


Handler = Callable[[Call], Awaitable[Answer | StreamAnswer]]


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    """With parameters in braces: /api/v1/jobs/{job_id}"""
    handler: Handler
    tag: str
    summary: str
    answer: Any = None
    """The type of the body of a good answer; None where it is not JSON."""
    status: int = 200
    body: Any = None
    """The type of the request's body; None where none is read."""
    body_required: bool = True
    body_media: tuple[str, ...] = (JSON,)
    body_bytes_max: int | None = None
    """Where the limit differs from the settings' `body_bytes_max`."""
    body_setting: str | None = None
    """The setting that this other limit comes from; None where it is fixed."""
    streamed: bool = False
    """True where the handler takes the body piece by piece and judges it itself; then `body` is not read before."""
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    """Those that mean something here and not everywhere."""
    media_types: tuple[str, ...] = (JSON,)
    """Forms in which the answer can be had; the first is the default."""
    public: bool = False
    """True where no token is needed."""
    description: str = ""
    tail: bool = False
    """True where the last parameter takes all that is left of the path, with its slashes."""

    @cached_property
    def known_parameters(self) -> Mapping[str, Parameter]:
        return {parameter.name: parameter for parameter in self.all_parameters}

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        return self.parameters if self.public else (*self.parameters, NAMESPACE)

    @property
    def body_limited_by(self) -> str | None:
        """The setting by which larger bodies could be allowed."""
        return self.body_setting if self.body_bytes_max is not None else "api.body_bytes_max"

    @property
    def operation_id(self) -> str:
        """Unique, and the same in every build: clients are generated from it."""
        return f"{self.tag}_{getattr(self.handler, '__name__', 'handler').strip('_')}".replace("-", "_").replace(
            " ", "_"
        )
