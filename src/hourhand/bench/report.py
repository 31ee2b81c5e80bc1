"""How a measurement is told: while it runs, and when it is over, to people and to programs.

Progress goes to stderr: on a terminal one line that changes, elsewhere a plain line every few seconds, so that a log
stays short. Results are one dict whose keys do not change; the table for people is made of the same dict, so that the
two cannot say different things.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final

PLAIN_SECONDS: Final = 5.0
_UNITS: Final = {
    "_ms": " ms",
    "_seconds": " s",
    "_per_second": "/s",
    "_mb": " MB",
    "_gb": " GB",
    "_us": " µs",
    "_percent": " %",
}
_LABELS: Final = {
    "lateness_ms": "lateness",
    "cpu": "cpu, cores",
    "machine": "machine, cores",
    "memory_mb": "memory",
    "writes": "written",
    "stages_us": "per job",
}

Facts = dict[str, Any]
KEYS: Final = (
    "bench", "mode", "jobs", "seconds", "jobs_per_second", "submit_per_second", "submitting_seconds", "lateness_ms",
    "lost", "doubled", "early", "cpu", "machine", "memory_mb", "tables", "writes", "settings",
)  # fmt: skip
"""What `lifecycle` tells, and so every measurement: None where there is nothing of the kind."""


@dataclass(slots=True)
class Measured:
    """What came of a measurement: what is printed, and what is drawn."""

    facts: Facts
    series: dict[str, "Line"] = field(default_factory=dict)
    """By panel and name ("lateness ms/p99")."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: seconds since the measurement began, and a value for each."""

    seconds: list[float]
    values: list[float]


class Progress:
    """Says what is going on. Never data: that goes to stdout, once."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out if out is not None else sys.stderr
        self._lively = self._out.isatty()
        self._said_at = 0.0
        self._open = False
        """On a terminal: whether the last line can still change."""

    @classmethod
    def silent(cls) -> "Progress":
        return _Silent()

    def note(self, text: str) -> None:
        """Something that stays to be read."""
        self.end()
        self._write(f"{text}\n")

    def update(self, text: str) -> None:
        """How far it is; replaces what was said before."""
        if self._lively:
            self._open = True
            self._write(f"\r\x1b[K{text}")
        elif time.monotonic() - self._said_at >= PLAIN_SECONDS:
            self._said_at = time.monotonic()
            self._write(f"{text}\n")

    def end(self) -> None:
        if self._open:
            self._open = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class _Silent(Progress):
    def note(self, text: str) -> None:
        return

    def update(self, text: str) -> None:
        return


# --- results ----------------------------------------------------------------------------------------------


def as_json(facts: Facts) -> str:
    """One line. Whoever reads it finds every key that measurements share, whichever this is."""
    return json.dumps({**facts, **{key: None for key in KEYS if key not in facts}})


def as_table(facts: Facts) -> str:
    """Names, aligned values, units. What has parts is told part by part."""
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        if isinstance(value, Mapping) and any(isinstance(part, Mapping) for part in value.values()):
            for name, part in value.items():
                rows.append((f"{_label(key)}, {name}", _value(key, part)))
        elif value is not None:
            rows.append((_label(key), _value(key, value)))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:>{width}}  {value}" for name, value in rows)


def _label(key: str) -> str:
    if key in _LABELS:
        return _LABELS[key]
    return key.replace("_", " ") if key.endswith("_per_second") else _bare(key)


def _value(key: str, value: Any) -> str:
    unit = _unit(key)
    if isinstance(value, Mapping):
        return "   ".join(f"{_bare(name)} {_number(part)}{_unit(name) or unit}" for name, part in value.items()) or "-"
    if isinstance(value, list):
        return "   ".join(_number(part) + unit for part in value)
    return _number(value) + unit


def _unit(name: str) -> str:
    """What a name says its number is in."""
    if name == "seconds":
        return " s"
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")


def _bare(name: str) -> str:
    """The name without its unit, in words."""
    for ending in _UNITS:
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"
    return str(value)
