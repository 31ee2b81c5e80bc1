"""The text of an iCalendar file (RFC 5545), read line by line into events: what they say, not yet what it means.

Whoever sends a file chooses every character of it, so each is looked at a fixed number of times, whatever it is: lines
are put together once, and taken apart at quotes and colons without ever going back.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"[A-Za-z0-9-]+")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_LISTS: Final = ("EXDATE", "RDATE")
"""Properties that may be given several times; of all others the first counts."""


class ICalendarFault(ValueError):
    """The text cannot be used. `line` counts from 1."""

    code = "invalid-icalendar"

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")


class Property(NamedTuple):
    """The value of a line, and its parameters by name, in capitals."""

    value: str
    parameters: Mapping[str, str]


@dataclass(slots=True)
class Event:
    """One VEVENT, without what is nested in it."""

    line: int
    properties: dict[str, Property] = field(default_factory=dict)
    lists: dict[str, list[Property]] = field(default_factory=dict)
    """Of properties that may be given several times."""

    def word(self, name: str) -> str:
        """The value of a property in capitals; empty where it is not there."""
        found = self.properties.get(name)
        return "" if found is None else found.value.upper()


def read_events(text: str) -> Iterator[Event]:
    """The events of a file, in order. Raises `ICalendarFault`."""
    lines = unfolded(text)
    if not lines or lines[0][1].strip().upper() != "BEGIN:VCALENDAR":
        raise ICalendarFault("an iCalendar file begins with BEGIN:VCALENDAR", 1)
    event: Event | None = None
    depth = 0
    for number, line in lines:
        mark = line[:16].strip().upper()
        if mark == "BEGIN:VEVENT":
            event, depth = Event(number), 0
        elif mark == "END:VEVENT":
            if event is None:
                raise ICalendarFault("END:VEVENT without its beginning", number)
            yield event
            event = None
        elif event is not None and mark.startswith(("BEGIN:", "END:")):
            depth += 1 if mark.startswith("BEGIN:") else -1  # an alarm within the event
        elif event is not None and depth == 0:
            _add_line(event, number, line)
    if event is not None:
        raise ICalendarFault("the event has no END:VEVENT", event.line)


def unfolded(text: str) -> list[tuple[int, str]]:
    """The lines, each with the number at which it begins; one that begins with a blank goes on with the line before."""
    lines: list[tuple[int, list[str]]] = []
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        if line[:1] in (" ", "\t") and lines:
            lines[-1][1].append(line[1:])
        elif line.strip():
            lines.append((number, [line]))
    return [(number, "".join(pieces)) for number, pieces in lines]


def split_line(line: str) -> tuple[str, Property] | None:
    """NAME;PARAMETER=VALUE;…:VALUE taken apart; None if it is nothing of that. What is between quotes is not looked
    into; a quote that is not closed is a character like any other."""
    colon = _colon_outside(line)
    if colon < 0:
        return None
    name, *parameters = _split_head(line[:colon])
    if not _NAME.fullmatch(name):
        return None
    return name.upper(), Property(line[colon + 1 :].strip(), dict(_parameter(each) for each in parameters))


def _colon_outside(line: str) -> int:
    """The place of the first colon that does not stand between quotes; -1 if there is none."""
    begin = 0
    pieces = line.split('"')
    for place, piece in enumerate(pieces):
        is_open = place % 2 == 1 and place == len(pieces) - 1
        colon = piece.find(":") if place % 2 == 0 or is_open else -1
        if colon >= 0:
            return begin + colon
        begin += len(piece) + 1
    return -1


def _split_head(head: str) -> list[str]:
    """At the semicolons that do not stand between quotes."""
    found: list[list[str]] = [[]]
    for place, piece in enumerate(head.split('"')):
        first, *others = piece.split(";") if place % 2 == 0 else [piece]
        found[-1].append(first)
        found += [[each] for each in others]
    return ["".join(pieces) for pieces in found]


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().upper(), value.strip()


def _add_line(event: Event, number: int, line: str) -> None:
    found = split_line(line)
    if found is None:
        raise ICalendarFault(f"{line[:40]!r} is not NAME:VALUE", number)
    name, given = found
    if name in _LISTS:
        event.lists.setdefault(name, []).append(given)
    elif name not in event.properties:
        event.properties[name] = given
