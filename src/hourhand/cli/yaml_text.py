"""Plain data as YAML. Strings that could be taken for anything else are quoted as in JSON, which YAML includes."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
"""Words that some reader takes for a boolean or for nothing."""


def yaml_text(value: Any) -> str:
    """The value as a YAML document, ending with a line break."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from _entry(f"{_scalar(key)}:", item)
        case list() if value:
            for item in value:
                yield from _item(item)
        case _:
            yield _scalar(value)


def _entry(head: str, item: Any) -> Iterator[str]:
    if not _is_nested(item):
        yield f"{head} {_scalar(item)}"
        return
    yield head
    for line in _lines(item):
        yield f"  {line}"


def _item(item: Any) -> Iterator[str]:
    first, *rest = _lines(item)
    yield f"- {first}"
    for line in rest:
        yield f"  {line}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _scalar(value: Any) -> str:
    match value:
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        case float() if "." not in repr(value):  # 1e+16: without a point old readers take it for a string
            mantissa, _, exponent = repr(value).partition("e")
            return f"{mantissa}.0e{exponent}"
        case _:
            # Line and paragraph separators and DEL end or break a line for YAML, though not for JSON.
            return re.sub(
                r"[\x7f-\x9f\u2028\u2029\ufeff]", lambda m: f"\\u{ord(m[0]):04x}", json.dumps(value, ensure_ascii=False)
            )
