"""JSON columns: bytes of user data in and out, at the speed of msgspec. PostgreSQL checks what it stores."""

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=str)
_decode = msgspec.json.Decoder().decode


def to_json_bytes(value: Any) -> bytes:
    return _encoder.encode(value)


def to_json(value: Any) -> str:
    return _encoder.encode(value).decode()


def to_json_or_null(value: Any) -> str | None:
    """None and empty objects are stored as NULL: most jobs have no labels."""
    return to_json(value) if value else None


def from_json(text: str | None) -> Any:
    return None if text is None else _decode(text)
