"""Checks payloads by the schema that a plugin brings: a part of JSON Schema that is quick, and has no surprises.

A schema comes from a stranger. It is judged as a whole when it is read; a word that is not understood is refused,
because a rule that nobody checks is worse than none.
"""

from collections.abc import Mapping
from typing import Any, Final

from hourhand.job_kinds.payload_checks import pointer_to, unknown_fields, wrong_type
from hourhand.model.errors import Fault

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}
_WORDS: Final[Mapping[str, tuple[type, ...]]] = {
    "type": (str,),
    "properties": (dict,),
    "required": (list,),
    "additionalProperties": (bool,),
    "items": (dict,),
    "enum": (list,),
    "minimum": (int, float),
    "maximum": (int, float),
    "minLength": (int,),
    "maxLength": (int,),
}
_NOTES: Final = frozenset({"title", "description", "default", "examples", "$schema", "$comment"})
_DEPTH_MAX: Final = 10
_ARTICLES: Final = {"integer": "a whole number", "object": "an object", "array": "a list", "null": "null"}
SCHEMA_WORDS: Final = tuple(_WORDS)


def schema_faults(schema: Any, place: str = "schema", depth: int = 0) -> list[Fault]:
    """What keeps a schema from being used. It is the plugin's fault, so none points into a request."""
    if not isinstance(schema, dict):
        return [_wrong(f"{place} must be an object")]
    if depth > _DEPTH_MAX:
        return [_wrong(f"{place} is nested too deeply")]
    faults = [_not_understood(word, place) for word in schema if word not in _WORDS and word not in _NOTES]
    for word, types in _WORDS.items():
        if word in schema and not _is(schema[word], types):
            faults.append(_wrong(f"{place}.{word} has the wrong type"))
    if isinstance(schema.get("type"), str) and schema["type"] not in _TYPES:
        faults.append(_wrong(f"{place}.type must be one of {', '.join(_TYPES)}"))
    if depth == 0 and schema.get("type", "object") != "object":
        faults.append(_wrong(f"{place}.type must be object: a payload is one"))
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        faults += schema_faults(inner, f"{place}.properties.{name}", depth + 1)
    if "items" in schema:
        faults += schema_faults(schema["items"], f"{place}.items", depth + 1)
    return faults


def _wrong(message: str) -> Fault:
    return Fault("", "schema-invalid", message)


def _not_understood(word: str, place: str) -> Fault:
    """Two words are told apart, because what they ask for is never done: to fetch what lies elsewhere, and to run the
    expressions of strangers, of which some take for ever."""
    if word in ("$ref", "$dynamicRef", "$recursiveRef"):
        return Fault("", "remote-ref", f"{place}.{word} is never followed: write the whole schema")
    if word in ("pattern", "patternProperties"):
        return Fault("", "pattern-too-complex", f"{place}.{word} is never used: check texts in the plugin itself")
    return _wrong(f"{place}.{word[:80]} is not understood; known are {', '.join(_WORDS)}")


def faults_by(schema: Mapping[str, Any], value: Any, *path: str | int) -> list[Fault]:
    """Everything in which a value differs from its schema, which has no faults itself."""
    pointer = pointer_to(*path)
    wanted = schema.get("type")
    if wanted is not None and not _is(value, _TYPES[wanted]):
        return [wrong_type(pointer, _ARTICLES.get(wanted, f"a {wanted}"), value)]
    if "enum" in schema and value not in schema["enum"]:
        allowed = [str(each) for each in schema["enum"]]
        return [Fault(pointer, "unknown-value", "is not one of the values that are known here", allowed=allowed)]
    faults = _bounds(schema, value, pointer)
    if isinstance(value, Mapping):
        faults += _object_faults(schema, value, path)
    elif isinstance(value, list | tuple) and "items" in schema:
        for place, inner in enumerate(value):
            faults += faults_by(schema["items"], inner, *path, place)
    return faults


def _object_faults(schema: Mapping[str, Any], value: Mapping[str, Any], path: tuple[str | int, ...]) -> list[Fault]:
    known = schema.get("properties", {})
    faults = [
        Fault(pointer_to(*path, name), "required", "is required")
        for name in schema.get("required", ())
        if name not in value
    ]
    if not schema.get("additionalProperties", True):
        faults += [fault.under(pointer_to(*path)) for fault in unknown_fields(value, known)]
    for name, inner in known.items():
        if name in value:
            faults += faults_by(inner, value[name], *path, name)
    return faults


def _bounds(schema: Mapping[str, Any], value: Any, pointer: str) -> list[Fault]:
    size, what = value, ""
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(value, str):
        size, what, least, most = len(value), " characters", schema.get("minLength"), schema.get("maxLength")
    if not _is(size, (int, float)):
        return []
    if least is not None and size < least:
        return [Fault(pointer, "out-of-range", f"must be at least {least}{what}")]
    if most is not None and size > most:
        return [Fault(pointer, "out-of-range", f"must be at most {most}{what}")]
    return []


def _is(value: Any, types: tuple[type, ...]) -> bool:
    """Booleans are no numbers here, though Python takes them for some."""
    return isinstance(value, types) and (not isinstance(value, bool) or bool in types)
