"""A short name for a failure that like failures share, however their numbers, ids and quoted words differ."""

import hashlib
import re
from typing import Final

from hourhand.model.states import Reason

_LINE_CHARS_MAX: Final = 1000
_OWN_WORDS: Final = frozenset({Reason.EXIT_CODE, Reason.SIGNAL, Reason.HTTP_STATUS, Reason.TIMEOUT})
"""Their first line is ours, and the number in it tells one failure from another."""
_WITH_OUTPUT: Final = frozenset({Reason.EXIT_CODE, Reason.SIGNAL})
"""Their text ends with what the program wrote last."""

_VARYING: Final = re.compile(
    r"""
      (?P<quoted> "[^"\n]*" | (?<!\w)'[^'\n]*' | `[^`\n]*` )
    | (?P<uuid> \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b )
    | (?P<hex> \b0x[0-9a-fA-F]+\b | \b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b )
    | (?P<number> [0-9]+ (?:[.,:][0-9]+)* )
    """,
    re.X,
)


def fingerprint(reason: str | None, error: str | None) -> str | None:
    """The same for failures of one sort. None where nothing failed."""
    if reason is None:
        return None
    lines = [line for line in (error or "").splitlines() if line.strip()]
    first = lines[0] if lines else ""
    parts = [reason, first if reason in _OWN_WORDS else _without_varying(first)]
    if reason in _WITH_OUTPUT and len(lines) > 1:
        parts.append(_without_varying(lines[-1]))
    return hashlib.blake2s("\n".join(parts).encode("utf-8", "replace"), digest_size=6).hexdigest()


def _without_varying(line: str) -> str:
    replaced = _VARYING.sub(lambda found: f"<{found.lastgroup}>", line[:_LINE_CHARS_MAX])
    return " ".join(replaced.split())
