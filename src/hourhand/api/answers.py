"""What goes back to the caller: status, headers and bytes, ready to be sent."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hourhand.api.asgi import Receive, Scope, Send

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"

encode: Final = msgspec.json.Encoder(decimal_format="number").encode
"""One encoder for all answers. Times in UTC end in Z, with microseconds when there are any."""

Header = tuple[bytes, bytes]

CONTENT_SECURITY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
_ALWAYS: Final[Sequence[Header]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", CONTENT_SECURITY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_STORE: Final[Header] = (b"cache-control", b"no-store")


# Structs, because one of each is made per request: see JobDefinition.
class Facts(msgspec.Struct):
    """What the gate found out about a request."""

    request_id: str
    headers: dict[bytes, bytes]
    head: bool = False
    """Asked by HEAD: answered as GET without the body."""


def facts_of(scope: Scope) -> Facts:
    found: Facts = scope["hourhand"]
    return found


class Answer(msgspec.Struct, frozen=True):
    """Sends itself, as an ASGI application does, with the headers that every answer carries."""

    content: bytes
    status: int = 200
    media_type: str = JSON
    headers: Sequence[Header] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts = facts_of(scope)
        length = (b"content-length", str(len(self.content)).encode())
        headers = full_headers(facts, self.media_type, [length, *self.headers])
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if facts.head else self.content, "more_body": False})


def full_headers(facts: Facts, media_type: str, headers: Sequence[Header]) -> list[Header]:
    """Those of one answer and those that every answer carries."""
    full = [
        (b"content-type", media_type.encode()),
        *headers,
        *_ALWAYS,
        (b"x-request-id", facts.request_id.encode()),
    ]
    if not any(name == b"cache-control" for name, _ in headers):
        full.append(_NO_STORE)
    return full


def json_answer(value: Any, status: int = 200, headers: Sequence[Header] = ()) -> Answer:
    return Answer(encode(value), status, JSON, headers)


def header(name: str, value: str) -> Header:
    return name.encode("latin-1"), value.encode("latin-1", "replace")


def replay_header(replayed: bool) -> Sequence[Header]:
    """Says that the answer is one of before: the request came again with its Idempotency-Key."""
    return [header("idempotent-replay", "true")] if replayed else []
