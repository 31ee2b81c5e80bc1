"""Says everything that is wrong with a body that could not be decoded, and reads what can be read of it.

Runs only after the quick path has refused a body, so it may take its time: it reads the text with Python's own
parser, which knows lines and columns, then walks the value beside the expected type.
"""

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect as shapes

from hourhand.api.faults import FAULTS_MAX, PAYLOAD, is_inside_payload
from hourhand.model.errors import Fault, InvalidFields, MalformedBody
from hourhand.model.schedule_form import KINDS as SCHEDULE_KINDS
from hourhand.model.schedule_form import OTHER_WORDS
from hourhand.operations.requests import JobPatch, JobRequest

_Shape = TypeVar("_Shape")
_Plain: TypeAlias = Any
_READ_ONLY: Final = frozenset(
    {
        "job_id",
        "status",
        "state",
        "pause_reason",
        "pauses",
        "next_due",
        "version",
        "created_at",
        "created_by",
        "updated_at",
    }
)
"""Fields of a job's answer that no request may set."""
_AT_CREATION: Final = frozenset(set(JobRequest.__struct_fields__) - set(JobPatch.__struct_fields__))
_OF_A_CHANGE: Final = list(JobPatch.__struct_fields__)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)")


def explain_body(raw: bytes, shape: type[_Shape]) -> tuple[_Shape, list[Fault]]:
    """What is wrong with one object."""
    plain = _parse(raw)
    if not isinstance(plain, dict):
        message = f"the body must be an object, not {_named(plain)}"
        raise MalformedBody("wrong-top-level-type", message)
    [value], faults = _explained([("", plain)], raw, shape, shape)
    return value, faults


def explain_batch(raw: bytes, shape: type[_Shape], items_max: int) -> tuple[list[_Shape], list[Fault]]:
    """What is wrong with an array of objects."""
    plain = _parse(raw)
    if not isinstance(plain, list):
        message = f"the body must be a list of objects, not {_named(plain)}"
        raise MalformedBody("wrong-top-level-type", message)
    if len(plain) > items_max:
        message = f"a batch has at most {items_max} items, this one has {len(plain)}"
        raise InvalidFields([Fault("", "batch-too-large", message)])
    return _explained([(f"/{index}", item) for index, item in enumerate(plain)], raw, shape, list[shape])  # type: ignore[valid-type]


def explain_lines(raw: bytes, shape: type[_Shape], items_max: int) -> tuple[list[_Shape], list[Fault]]:
    """What is wrong with NDJSON. Pointers count items from 0; malformed lines are named by their number from 1."""
    items: list[tuple[str, _Plain]] = []
    index = -1
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        index += 1
        try:
            plain = _parse(line)
        except MalformedBody as malformed:
            raise MalformedBody(malformed.code, f"line {number}: {malformed}") from None
        items.append((f"/{index}", plain))
    if index < 0:
        raise MalformedBody("body-required", "a body is needed: one JSON object per line")
    if index >= items_max:
        message = f"a batch has at most {items_max} items, this one has {index + 1}"
        raise InvalidFields([Fault("", "batch-too-large", message)])
    return _explained(items, raw, shape, shape)


def _explained(
    items: Sequence[tuple[str, _Plain]], raw: bytes, shape: type[_Shape], whole: Any
) -> tuple[list[_Shape], list[Fault]]:
    """What of the items could be read, and everything wrong with them, up to the item that fills the list."""
    values: list[_Shape] = []
    faults: list[Fault] = []
    for prefix, item in items:
        found = _faults(item, shape)
        values.append(_readable(item, shape, found))
        faults += [fault.under(prefix) for fault in found]
        if len(faults) >= FAULTS_MAX:
            break
    if faults:
        return values, faults
    # The walk below knows every type the requests are made of; should a new one slip by, msgspec's word is passed on.
    try:
        msgspec.json.decode(raw, type=whole)
    except (msgspec.MsgspecError, ValueError) as refused:
        raise InvalidFields([Fault("", "wrong-type", str(refused))]) from None
    raise AssertionError("a body was refused although nothing is wrong with it")


def _readable(plain: _Plain, shape: type[_Shape], faults: Sequence[Fault]) -> _Shape:
    """The object without its wrong fields. A required one is empty text then: all of them are text. A payload of which
    only some values cannot be used has others in their place, so that its kind can say what else is wrong with it."""
    given = plain if isinstance(plain, dict) else {}
    wrong = {fault.pointer.split("/")[1] for fault in faults if fault.pointer and not is_inside_payload(fault)}
    if any(map(is_inside_payload, faults)):
        given = {**given, PAYLOAD: _usable(given[PAYLOAD])}
    values: dict[str, _Plain] = {}
    for field in _fields_of(shape):
        name = field.encode_name
        if name in given and name not in wrong:
            values[name] = given[name]
        elif field.required:
            values[name] = ""
    return msgspec.convert(values, shape)


def _fields_of(shape: type) -> Sequence[shapes.Field]:
    expected = _shape_of(shape)
    assert isinstance(expected, shapes.StructType), "bodies are objects"
    return expected.fields


# --- from bytes to plain values ---------------------------------------------------------------------------


class _ConstantFound(Exception):
    pass


class _RepeatedKey(Exception):
    pass


def _parse(raw: bytes) -> _Plain:
    try:
        text = raw.decode()
    except UnicodeDecodeError as wrong:
        message = f"the body is not UTF-8: byte {wrong.start + 1} is {raw[wrong.start]:#04x}"
        raise MalformedBody("malformed-json", message) from None
    if not text.strip(" \t\r\n"):
        raise MalformedBody("body-required", "a body is needed: a JSON object")
    if text.startswith("\ufeff"):
        raise MalformedBody("malformed-json", "the body begins with a byte order mark; leave it out")
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        plain, end = _STRICT.raw_decode(text, start)
    except json.JSONDecodeError as wrong:
        message = f"not JSON: {wrong.msg} at line {wrong.lineno} column {wrong.colno}"
        raise MalformedBody("malformed-json", message) from None
    except _ConstantFound as found:
        raise MalformedBody("malformed-json", f"{found} is not JSON{_place_of_refusal(raw)}") from None
    except _RepeatedKey as found:
        raise MalformedBody("duplicate-key", f"the key {str(found)[:100]!r} is given twice in one object") from None
    except RecursionError:
        raise MalformedBody("malformed-json", "the body is nested too deeply") from None
    rest = text[end:].lstrip(" \t\r\n")
    if rest:
        message = f"there is more after the JSON value{_place(text, len(text) - len(rest))}"
        raise MalformedBody("trailing-data", message)
    return plain


def _place_of_refusal(raw: bytes) -> str:
    """Python's parser does not say where a constant stands; msgspec refuses at the same place and does."""
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as refused:
        byte = _BYTE.search(str(refused))
        if byte:
            before = raw[: int(byte[1])].decode(errors="replace")
            return _place(before, len(before))
    return ""


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f" at line {line} column {position - text.rfind(chr(10), 0, position)}"


def _refuse_constant(name: str) -> None:
    raise _ConstantFound(name)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKey(key)
        found[key] = value
    return found


def _integer(digits: str) -> int | float:
    # Nothing above 20 digits fits 64 bits, and Python itself refuses thousands of digits.
    return int(digits) if len(digits) <= 20 else math.inf


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_constant=_refuse_constant, parse_int=_integer
)


# --- from plain values to faults --------------------------------------------------------------------------


def _faults(plain: _Plain, shape: type) -> list[Fault]:
    unusable = list(_unusable_values(plain, ""))
    spoiled = {fault.pointer for fault in unusable}
    return unusable + [fault for fault in _misfits(plain, _shape_of(shape), "") if fault.pointer not in spoiled]


def _unusable_values(plain: _Plain, pointer: str) -> Iterator[Fault]:
    """Values that no field may have: numbers out of range, broken text."""
    if isinstance(plain, str):
        yield from _unusable_text(plain, pointer)
    elif isinstance(plain, float):
        if not math.isfinite(plain):
            yield Fault(pointer, "number-out-of-range", "the number is too large; larger ones can be sent as a string")
    elif isinstance(plain, int):
        if not -(1 << 63) <= plain < 1 << 63:
            yield Fault(pointer, "number-out-of-range", "integers have at most 64 bits; send larger ones as a string")
    elif isinstance(plain, list):
        for index, item in enumerate(plain):
            yield from _unusable_values(item, f"{pointer}/{index}")
    elif isinstance(plain, dict):
        for key, value in plain.items():
            yield from _unusable_text(key, _below(pointer, key))
            yield from _unusable_values(value, _below(pointer, key))


def _usable(plain: _Plain) -> _Plain:
    """The value with others in the place of those that no field may have; without keys of that sort."""
    if isinstance(plain, list):
        return [_usable(item) for item in plain]
    if isinstance(plain, dict):
        return {key: _usable(value) for key, value in plain.items() if not any(_unusable_text(key, ""))}
    if any(_unusable_values(plain, "")):
        return "\N{REPLACEMENT CHARACTER}" if isinstance(plain, str) else 0
    return plain


def _unusable_text(text: str, pointer: str) -> Iterator[Fault]:
    if _LONE_SURROGATE.search(text):
        yield Fault(pointer, "invalid-unicode", "the text has half of a surrogate pair, which is no character")
    elif "\x00" in text:
        yield _nul_fault(pointer)


def _nul_fault(pointer: str) -> Fault:
    """As whoever reads the field would say it: there a NUL is as wrong as any other strange character."""
    path = [part for part in pointer.split("/")[1:] if not part.isdigit()]
    if path[:1] == ["schedule"] and path[-1] == "cron":
        return Fault(pointer, "cron-syntax", "the character '\\x00' has no meaning in a cron expression")
    if path == ["zone"]:
        return Fault(pointer, "unknown-timezone", "the name has the character NUL and is no time zone")
    return Fault(pointer, "invalid-unicode", "the character NUL (\\u0000) cannot be stored")


def _misfits(plain: _Plain, expected: shapes.Type, pointer: str) -> Iterator[Fault]:
    """Where the value is not made as the type says. Walks on, so that every misfit is found."""
    expected = _alternative_for(plain, expected)
    if isinstance(expected, shapes.StructType) and isinstance(plain, dict):
        yield from _struct_misfits(plain, expected, pointer)
    elif isinstance(expected, shapes.DictType) and isinstance(plain, dict):
        for key, value in plain.items():
            yield from _misfits(value, expected.value_type, _below(pointer, key))
    elif isinstance(expected, shapes.ListType) and isinstance(plain, list):
        for index, item in enumerate(plain):
            yield from _misfits(item, expected.item_type, f"{pointer}/{index}")
    elif not _fits(plain, expected):
        yield Fault(pointer, "wrong-type", f"expected {_described(expected)}, not {_named(plain)}")


def _struct_misfits(plain: Mapping[str, _Plain], expected: shapes.StructType, pointer: str) -> Iterator[Fault]:
    fields = {field.encode_name: field for field in expected.fields}
    for key, value in plain.items():
        if key in fields:
            yield from _misfits(value, fields[key].type, _below(pointer, key))
        else:
            yield _unknown_field(key, list(fields), _below(pointer, key))
    for name, field in fields.items():
        if field.required and name not in plain:
            yield Fault(_below(pointer, name), "required", f"{name} is missing")


def _unknown_field(key: str, known: Sequence[str], pointer: str) -> Fault:
    if key in _READ_ONLY and "name" in known:
        return Fault(pointer, "read-only-field", f"{key} cannot be set; the server keeps it")
    if key in _AT_CREATION and known == _OF_A_CHANGE:
        return Fault(pointer, "read-only-field", f"{key} can be given only when a job is created")
    kind = OTHER_WORDS.get(key, key)
    if kind in SCHEDULE_KINDS and "schedule" in known:
        into = f'put it into the schedule: {{"schedule": {{"{kind}": …}}}}'
        return Fault(pointer, "unknown-field", f"there is no field {key[:40]!r}", into)
    close = difflib.get_close_matches(key[:40].lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else None
    allowed = None if close else known
    return Fault(pointer, "unknown-field", f"there is no field {key[:40]!r}", hint, allowed)


def _alternative_for(plain: _Plain, expected: shapes.Type) -> shapes.Type:
    """Of a union the member to compare with: objects with the object type, all else with the union itself."""
    if not isinstance(expected, shapes.UnionType):
        return expected
    for member in expected.types:
        if isinstance(member, shapes.StructType | shapes.DictType) and isinstance(plain, dict):
            return member
        if isinstance(member, shapes.ListType) and isinstance(plain, list):
            return member
    return expected


def _fits(plain: _Plain, expected: shapes.Type) -> bool:
    if isinstance(expected, shapes.UnionType):
        return any(_fits(plain, member) for member in expected.types)
    if isinstance(expected, shapes.AnyType):
        return True
    if isinstance(expected, shapes.FloatType):
        return isinstance(plain, int | float) and not isinstance(plain, bool)
    wanted = _PYTHON_TYPES.get(type(expected))
    return wanted is not None and type(plain) is wanted


_PYTHON_TYPES: Final[Mapping[type, type]] = {
    shapes.StrType: str,
    shapes.IntType: int,
    shapes.BoolType: bool,
    shapes.NoneType: type(None),
}
_DESCRIBED: Final[Mapping[type, str]] = {
    shapes.StrType: "a string",
    shapes.IntType: "an integer",
    shapes.FloatType: "a number",
    shapes.BoolType: "true or false",
    shapes.NoneType: "null",
    shapes.DictType: "an object",
    shapes.StructType: "an object",
    shapes.ListType: "a list",
}
_NAMED: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _described(expected: shapes.Type) -> str:
    if isinstance(expected, shapes.UnionType):
        words = [_described(member) for member in expected.types if not isinstance(member, shapes.NoneType)]
        return " or ".join(words)
    return _DESCRIBED.get(type(expected), "something else")


def _named(plain: _Plain) -> str:
    return _NAMED[type(plain)]


def _below(pointer: str, key: str) -> str:
    key = _LONE_SURROGATE.sub("\ufffd", key)  # the answer itself must be text
    return f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"


@cache
def _shape_of(shape: type) -> shapes.Type:
    return shapes.type_info(shape)
