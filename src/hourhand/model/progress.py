"""How far an attempt says it has come."""

import re
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Final

MESSAGE_CHARS_MAX: Final = 200
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Progress:
    percent: float | None
    """0 to 100; None where nobody knows how much there is to do."""
    message: str
    at: datetime


def tidy(percent: Any, message: Any) -> tuple[float | None, str]:
    """What a job said, as it can be kept and shown: a number in its bounds, and one line of visible characters. A job
    must not fail because of what it says here, so nothing is refused."""
    number: float | None
    try:
        number = None if percent is None else float(percent)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is not None:
        number = round(min(max(number, 0.0), 100.0), 1) if isfinite(number) else None
    text = _UNSEEN.sub(" ", str(message)[: 4 * MESSAGE_CHARS_MAX]).strip()
    return number, text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
