"""Query parameters: which ones a route knows, what they may be. Unknown ones are refused with a suggestion."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from hourhand.api.refusals import InvalidParameters
from hourhand.model.errors import InvalidParameter
from hourhand.model.keys import KEY_CHARS_MAX

_Choice = TypeVar("_Choice")
_FIELDS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter of a route, as it is checked and as the OpenAPI document shows it."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    repeatable: bool = False
    judged_by_reader: bool = False
    """What is no text for the database is left to whoever reads it, who knows better what to say of it."""


NAMESPACE: Final = Parameter("namespace", "The namespace to work in; by default the token's own.")
CURSOR: Final = Parameter("cursor", "Where the page begins: `next_cursor` of the page before, with the same filters.")

IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "Makes it safe to send the request again: within 24 hours the same key and body are answered with the same jobs, "
    "and the header Idempotent-Replay. Another body is refused.",
    {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[!-~]+$"},
)


IF_MATCH: Final = Parameter(
    "If-Match",
    "Does it only if the job has this version, as its ETag says; else the answer is 412.",
    {"type": "string", "pattern": '^(\\*|"?[0-9]{1,9}"?)$'},
)


def limit_parameter(default: int, most: int) -> Parameter:
    return Parameter(
        "limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    )


class Query:
    """The parameters of one request, known ones only."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, list[str]]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        values = self._given.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> list[str]:
        """All values of a repeatable parameter; each may also be a comma list."""
        return [word for value in self._given.get(name, ()) for word in value.split(",") if word]

    def repeated(self, name: str) -> list[str]:
        return list(self._given.get(name, ()))

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        raw = self.text(name)
        return default if raw is None else _integer(name, raw, least, most)

    def uuid(self, name: str) -> UUID | None:
        raw = self.text(name)
        return None if raw is None else parse_id(raw, name)

    def choice(self, name: str, choices: Mapping[str, _Choice]) -> _Choice | None:
        raw = self.text(name)
        return None if raw is None else pick(name, raw, choices)

    def filters(self, *without: str) -> str:
        """The parameters in one text; a cursor is bound to it."""
        return "&".join(
            f"{name}={value}" for name, values in sorted(self._given.items()) if name not in without for value in values
        )


EMPTY: Final = Query({})


def parse_query(raw: bytes, known: Mapping[str, Parameter]) -> Query:
    """Reads a query string. Raises `InvalidParameter` with everything that can be seen to be wrong without its handler:
    unknown parameters, single ones given twice, values that their schema does not allow."""
    if not raw:
        return EMPTY
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict")
    except ValueError:
        raise InvalidParameter("query", "the query string cannot be read as UTF-8 parameters") from None
    given: dict[str, list[str]] = {}
    refused: list[InvalidParameter] = []
    for name, value in pairs:
        try:
            _check(name, value, known, name in given)
        except InvalidParameter as wrong:
            refused.append(wrong)
        given.setdefault(name, []).append(value)
    if len(refused) > 1:
        raise InvalidParameters(refused)
    if refused:
        raise refused[0]
    return Query(given)


def _check(name: str, value: str, known: Mapping[str, Parameter], repeated: bool) -> None:
    parameter = known.get(name)
    if parameter is None:
        raise _unknown(name, list(known))
    if repeated and not parameter.repeatable:
        raise InvalidParameter(name, "is given twice", "repeated-parameter")
    if "\x00" in value and not parameter.judged_by_reader:
        raise InvalidParameter(name, "the character NUL is not possible")
    schema = parameter.schema
    if "enum" in schema:
        for word in [word for word in value.split(",") if word] if parameter.repeatable else [value]:
            pick(name, word, dict.fromkeys(schema["enum"]))
    elif schema["type"] == "boolean":
        pick(name, value, dict.fromkeys(("true", "false")))
    elif schema["type"] == "integer":
        _integer(name, value, schema["minimum"], schema["maximum"])
    elif schema.get("format") == "uuid":
        parse_id(value, name)


def _integer(name: str, raw: str, least: int, most: int) -> int:
    # isascii: str.isdigit also takes digits of other scripts.
    value = int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 12 else -1
    if not least <= value <= most:
        raise InvalidParameter(name, f"must be an integer from {least} to {most}, not {raw[:40]!r}")
    return value


def _unknown(name: str, known: Sequence[str]) -> InvalidParameter:
    close = difflib.get_close_matches(name[:40].lower(), known, n=1, cutoff=0.6)
    allowed = f"did you mean {close[0]}?" if close else f"this route knows {', '.join(known) or 'none'}"
    return InvalidParameter(name[:40], f"there is no such parameter; {allowed}", "unknown-parameter")


def pick(name: str, word: str, choices: Mapping[str, _Choice]) -> _Choice:
    try:
        return choices[word]
    except KeyError:
        code = "unknown-status" if name == "status" else "invalid-parameter"
        raise InvalidParameter(name, f"{word[:40]!r} is none of {', '.join(choices)}", code) from None


def parse_id(raw: str, noun: str) -> UUID:
    """An id from a path or a parameter. Only the canonical form: other spellings would be other links."""
    try:
        found = UUID(raw)
    except ValueError:
        found = None
    if found is None or len(raw) != 36:
        raise InvalidParameter(
            noun, f"{raw[:40]!r} is not an id; ids look like 0198c0de-7a5c-7000-8000-000000000000", "invalid-id"
        )
    return found


def parse_number(raw: str, noun: str) -> int:
    """The number of something that is counted, such as a node."""
    if not (raw.isascii() and raw.isdigit() and len(raw) < 10):
        raise InvalidParameter(noun, f"{raw[:40]!r} is not a number", "invalid-id")
    return int(raw)
