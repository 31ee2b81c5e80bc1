"""What goes back to the caller: status, headers and bytes, ready to be sent."""

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Answer:
    """Sends itself, as an ASGI application does."""

    content: bytes
    status: int = 200
    media_type: str = JSON
    headers: Sequence[Header] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", self.media_type.encode()),
            (b"content-length", str(len(self.content)).encode()),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.content, "more_body": False})


def json_answer(value: Any, status: int = 200, headers: Sequence[Header] = ()) -> Answer:
    return Answer(encode(value), status, JSON, headers)


def header(name: str, value: str) -> Header:
    return name.encode("latin-1"), value.encode("latin-1", "replace")


def replay_header(replayed: bool) -> Sequence[Header]:
    """Says that the answer is one of before: the request came again with its Idempotency-Key."""
    return [header("idempotent-replay", "true")] if replayed else []
