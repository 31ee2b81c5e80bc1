"""Bodies to request types. Quick when the body is right; when it is wrong, every fault of its form is found.

The faults come beside the value, whose wrong fields are as if not given: whoever knows the meaning of the others can
judge those too. Only what cannot be read at all is raised.

The quick path is one call of msgspec's decoder. What msgspec lets pass although it is refused here (a key given
twice, integers beyond 64 bits, the character NUL, which PostgreSQL cannot store) is looked for separately.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from hourhand.api.explaining import explain_batch, explain_body, explain_lines
from hourhand.api.faults import all_faults
from hourhand.model.errors import Fault, InvalidFields, MalformedBody

_Shape = TypeVar("_Shape")

SECOND_LOOK_BYTES_MAX: Final = 64 << 10
"""Larger bodies are not searched for keys given twice and oversized integers: the search would hold up the loop."""
EXPLAIN_BYTES_MAX: Final = 4 << 20
"""Of larger batches only the first fault is told: finding all would hold up the loop for seconds."""
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The escape of NUL, but not an escaped backslash followed by "u0000"."""
_LONG_INTEGER: Final = re.compile(rb"[0-9]{19}")
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_body(raw: bytes, shape: type[_Shape]) -> tuple[_Shape, list[Fault]]:
    """The body as a value of `shape`, and every fault of its form. Raises `MalformedBody`."""
    try:
        value: _Shape = decoder_of(shape).decode(raw)
    except _UNREADABLE:
        return explain_body(raw, shape)
    return (value, []) if _is_clean(raw) else explain_body(raw, shape)


def read_plainly(raw: bytes) -> dict[str, Any] | None:
    """The body as it stands, if it is an object with nothing to object to; None leaves it to `read_body`.

    Text that is the same when it is written again holds no key twice; a second look takes half as long again.
    """
    if len(raw) > SECOND_LOOK_BYTES_MAX:
        return None
    try:
        value = _decode(raw)
        if type(value) is not dict:
            return None
        if _encode(value) != raw or _LONG_INTEGER.search(raw) or b"\\u0000" in raw:
            return value if _is_clean(raw) else None
    except (*_UNREADABLE, OverflowError):
        return None
    return value


def read_plain_items(raw: bytes, items_max: int) -> list[Any] | None:
    """The items of a batch as they stand, if there is nothing to object to; None leaves it to `read_batch`."""
    try:
        items = _decode(raw)
    except _UNREADABLE:
        return None
    return items if type(items) is list and 0 < len(items) <= items_max and _is_clean(raw) else None


def read_optional_body(raw: bytes, shape: type[_Shape]) -> tuple[_Shape, list[Fault]]:
    """The same, for routes where an absent body means all defaults."""
    return read_body(raw, shape) if raw.strip() else (shape(), [])


def decode_optional_body(raw: bytes, shape: type[_Shape]) -> _Shape:
    """The same, where form is all there is to judge: faults are raised."""
    value, faults = read_optional_body(raw, shape)
    if faults:
        raise all_faults(faults)
    return value


def read_batch(raw: bytes, shape: type[_Shape], items_max: int) -> tuple[list[_Shape], list[Fault]]:
    """A JSON array. Pointers of faults begin with the item's place: /17/name."""
    try:
        items = decoder_of(list[shape]).decode(raw)  # type: ignore[valid-type]
    except _UNREADABLE as refused:
        if len(raw) > EXPLAIN_BYTES_MAX:
            raise InvalidFields([Fault("", "wrong-type", str(refused))]) from None
        return explain_batch(raw, shape, items_max)
    return (_counted(items, items_max), []) if _is_clean(raw) else explain_batch(raw, shape, items_max)


def read_lines(raw: bytes, shape: type[_Shape], items_max: int) -> tuple[list[_Shape], list[Fault]]:
    """NDJSON: one object per line; empty lines are passed over and not counted."""
    try:
        items = decoder_of(shape).decode_lines(raw)
    except _UNREADABLE:
        return explain_lines(raw, shape, items_max)
    # msgspec takes any white space between values; only one value per line is NDJSON.
    if _has_nul(raw) or len(items) != sum(1 for line in raw.split(b"\n") if line.strip()):
        return explain_lines(raw, shape, items_max)
    if len(raw) <= SECOND_LOOK_BYTES_MAX and not all(_is_clean(line) for line in raw.split(b"\n") if line.strip()):
        return explain_lines(raw, shape, items_max)
    return _counted(items, items_max), []


def decoder_of(shape: Any) -> "msgspec.json.Decoder[Any]":
    """Making a decoder costs a hundred times more than using it, so each is made once."""
    decoder = _DECODERS.get(shape)
    if decoder is None:
        decoder = _DECODERS[shape] = msgspec.json.Decoder(shape)
    return decoder


_DECODERS: Final[dict[Any, "msgspec.json.Decoder[Any]"]] = {}


def _counted(items: Sequence[_Shape], items_max: int) -> list[_Shape]:
    if not items:
        raise MalformedBody("body-required", "the batch has no items")
    if len(items) > items_max:
        message = f"a batch has at most {items_max} items, this one has {len(items)}"
        raise InvalidFields([Fault("", "batch-too-large", message)])
    return list(items)


def _is_clean(raw: bytes) -> bool:
    if _has_nul(raw):
        return False
    if len(raw) > SECOND_LOOK_BYTES_MAX:
        return True
    try:
        _SECOND_LOOK.decode(raw.decode())
    except (_Found, RecursionError):
        return False
    return True


def _has_nul(raw: bytes) -> bool:
    return b"\\u0000" in raw and _NUL.search(raw) is not None


class _Found(Exception):
    pass


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    # This runs for every good body and must stay cheap: a dictionary is made twice as fast as a set of the names.
    if len(dict(pairs)) != len(pairs):
        raise _Found


def _refuse_long_integers(digits: str) -> int:
    if len(digits) < 19:
        return 0
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 63:
        raise _Found
    return 0


_SECOND_LOOK: Final = json.JSONDecoder(object_pairs_hook=_refuse_repeated_keys, parse_int=_refuse_long_integers)
