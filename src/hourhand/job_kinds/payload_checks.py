"""Checks that the payloads of several kinds share. All faults are found, not only the first."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from hourhand.model.errors import Fault
from hourhand.model.secret_refs import reference_faults


def unknown_fields(payload: Mapping[str, Any], fields: Collection[str]) -> list[Fault]:
    return [_unknown_field(name, fields) for name in payload if name not in fields]


def wrong_type(pointer: str, wanted: str, value: Any) -> Fault:
    return Fault(pointer, "wrong-type", f"must be {wanted}, not {json_type(value)}")


def text_faults(pointer: str, value: Any) -> list[Fault]:
    """What is wrong with a value that must be a text, or refer to a secret."""
    return [] if isinstance(value, str) else reference_faults(value, pointer)


def nul_byte(pointer: str) -> Fault:
    return Fault(pointer, "nul-byte", "must not contain a NUL character")


def pointer_to(*steps: str | int) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unknown_field(name: str, fields: Collection[str]) -> Fault:
    close = get_close_matches(name, fields, n=1)
    hint = f"did you mean {close[0]!r}?" if close else None
    return Fault(pointer_to(name), "unknown-field", f"{name!r} is not a field here", hint, sorted(fields))
