"""The time that a run stands for, put into its parameters: `{{scheduled_time}}` and the forms of it.

Any text of a payload may name them; what they stand for is known when a run is claimed, so the same definition serves
every due time, those of a backfill as well. Nothing is evaluated: there is a fixed list of words, and each becomes
digits, dashes and colons. Two braces that are meant as such are written four times: `{{{{name}}}}`.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from hourhand.model.errors import Fault
from hourhand.model.local_time import ZoneFault, format_instant, load_zone

MARK: Final = "{{"
"""What every text with a word in it has. Whoever does not see it in a payload need not look closer."""

_WORDS: Final[Mapping[str, Callable[[datetime, ZoneInfo | None], str]]] = {
    "scheduled_time": lambda due, _: format_instant(due),
    "scheduled_time_local": lambda due, zone: due.astimezone(zone or UTC).isoformat(),
    "scheduled_date": lambda due, zone: f"{due.astimezone(zone or UTC):%Y-%m-%d}",
    "scheduled_year": lambda due, zone: f"{due.astimezone(zone or UTC):%Y}",
    "scheduled_month": lambda due, zone: f"{due.astimezone(zone or UTC):%m}",
    "scheduled_day": lambda due, zone: f"{due.astimezone(zone or UTC):%d}",
    "scheduled_hour": lambda due, zone: f"{due.astimezone(zone or UTC):%H}",
    "scheduled_minute": lambda due, zone: f"{due.astimezone(zone or UTC):%M}",
    "scheduled_unix": lambda due, _: str(int(due.timestamp())),
}
TEMPLATE_WORDS: Final = tuple(_WORDS)

# Four braces first: they are two that stand for themselves, if four others close them. JSON in a text may end in many.
_PLACE: Final = re.compile(r"\{\{\{\{(?P<literal>[^{}]{0,1000})\}\}\}\}|\{\{(?P<word>[^{}]{0,200})\}\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FAULTS_MAX: Final = 20
_DEPTH_MAX: Final = 100
"""Deeper down nothing is looked at and nothing is put in."""
_LITERAL: Final = "write {{{{…}}}} for braces that are meant as such"


def render(value: Any, due: datetime, zone: ZoneInfo | None, depth: int = 0) -> Any:
    """The same value with the time put into its texts; keys stay as they are. A word that is not known stays as it is
    written: it was stored before anybody checked, and is somebody else's."""
    match value:
        case str():
            return _render_text(value, due, zone) if MARK in value else value
        case Mapping() if depth < _DEPTH_MAX:
            return {key: render(inner, due, zone, depth + 1) for key, inner in value.items()}
        case list() if depth < _DEPTH_MAX:
            return [render(inner, due, zone, depth + 1) for inner in value]
        case _:
            return value


def zone_or_utc(name: str) -> ZoneInfo | None:
    """None stands for UTC: also where the tz data has lost the zone. Such a job is planned no more, but may be run."""
    try:
        return load_zone(name)
    except ZoneFault:
        return None


def template_faults(payload: Mapping[str, Any]) -> list[Fault]:
    """Every word of a payload that is not one of ours, with pointers below the payload."""
    faults: list[Fault] = []
    for pointer, word in _words_in(payload, "", 0):
        if len(faults) >= _FAULTS_MAX:
            break
        name = word.strip()
        if name in _WORDS:
            continue
        if _NAME.fullmatch(name):
            close = difflib.get_close_matches(name, TEMPLATE_WORDS, n=1)
            hint = f"did you mean {close[0]}? Or {_LITERAL}" if close else _LITERAL
            message = f"there is no {{{{{name[:40]}}}}}"
            faults.append(Fault(pointer, "template-unknown", message, hint, TEMPLATE_WORDS))
        else:
            message = f"{name[:40]!r} is more than a name, and nothing is evaluated between {{{{ and }}}}"
            faults.append(Fault(pointer, "template-forbidden", message, _LITERAL, TEMPLATE_WORDS))
    return faults


def literally(text: str) -> str:
    """The text written so that it stays as it is, whatever stands between its braces."""
    return _PLACE.sub(lambda match: f"{{{{{match[0]}}}}}", text) if MARK in text else text


def _render_text(text: str, due: datetime, zone: ZoneInfo | None) -> str:
    def put(match: re.Match[str]) -> str:
        if match["literal"] is not None:
            return f"{{{{{match['literal']}}}}}"
        form = _WORDS.get(match["word"].strip())
        return match[0] if form is None else form(due, zone)

    return _PLACE.sub(put, text)


def _words_in(value: Any, pointer: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        for match in _PLACE.finditer(value):
            if match["word"] is not None:
                yield pointer, match["word"]
    elif depth >= _DEPTH_MAX:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _words_in(inner, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _words_in(inner, f"{pointer}/{place}", depth + 1)
