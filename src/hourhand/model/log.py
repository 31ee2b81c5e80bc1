"""Log lines as they are kept, and the rules of their numbers.

Every line has the number of its printing within its attempt, from 1. A mark stands for lines that are not kept: it has
the number of the first of them and says how many they are. So the number behind a line is its own plus one, behind a
mark its own plus what it stands for, and whoever finds another number there has found a fault.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import repeat
from typing import Final, NamedTuple

from hourhand.model.run import LogLine

STREAMS: Final = ["stdout", "stderr", "log"]
"""Stored by position; never reorder."""
NUMBER_MAX: Final = 2**31 - 2
CUT: Final = "…"
"""Ends a piece of a line that was too long, and begins the next one."""
LOST_TEXT: Final = "… the log ends here: what came after this was not stored …"
_STEERING: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # sequences that move, clear and colour
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # those that carry a text, such as a window's title
    r"|\x1b[ -/]*[0-~]?"  # short ones
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # and those that turn the order of letters around
)
_COLOUR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_COLOURED: Final = ("38", "48", "58")
"""Letters, what is behind them, and the line below them."""
_NUMBERS_OF: Final = {"5": 1, "2": 3}
"""How many numbers a colour of a table has, and one of red, green and blue."""
_CONCEAL: Final = "8"
"""Text that is there and not seen."""
NO_COLOUR: Final = "\x1b[0m"
"""Ends every colour."""


class Place(NamedTuple):
    """Behind this line; (0, 0) is before the first."""

    attempt: int
    line: int


START: Final = Place(0, 0)


class LogRow(NamedTuple):
    """Lines that are stored together. Times and streams are one for each line, or one for all of them."""

    attempt: int
    first_line: int
    at: Sequence[datetime]
    stream: Sequence[int]
    lines: Sequence[str]
    left_out: int = 0

    @property
    def end(self) -> Place:
        """The place behind it."""
        return Place(self.attempt, self.first_line + max(len(self.lines), self.left_out) - 1)


class LogEnd(NamedTuple):
    """Where the log of an attempt ends."""

    next_line: int
    at: datetime | None
    is_whole: bool | None
    """Whether the attempt itself said that nothing follows. None: nobody can tell."""


def lines_in(row: LogRow, after: Place) -> Iterator[LogLine]:
    """Its lines that come behind a place."""
    times = row.at if len(row.at) > 1 else repeat(row.at[0] if row.at else None)
    streams = row.stream if len(row.stream) > 1 else repeat(row.stream[0] if row.stream else 2)
    for number, (text, at, stream) in enumerate(zip(row.lines, times, streams, strict=False), row.first_line):
        if (row.attempt, number + max(row.left_out - 1, 0)) > after:
            assert at is not None, "a row with lines has times"
            yield LogLine(number, at, STREAMS[stream], text, row.attempt, row.left_out)


def end_of(line: LogLine) -> Place:
    """The place behind a line or mark."""
    return Place(line.attempt, line.number + max(line.left_out - 1, 0))


def without_steering(text: str, *, colours: bool = False) -> str:
    """A line without anything that steers a terminal; colours may stay."""
    if text.isprintable():
        return text
    return _STEERING.sub(lambda found: found[0] if colours and _is_colour(found[0]) else "", text)


def _is_colour(sequence: str) -> bool:
    """Colours, bold letters and the like; nothing that hides a text."""
    match = _COLOUR.fullmatch(sequence)
    if match is None:
        return False
    numbers = iter([number.lstrip("0") for number in match[1].split(";")])
    for number in numbers:
        if number.partition(":")[0] == _CONCEAL:
            return False
        if number in _COLOURED:  # what follows says which colour, and an 8 in it is no more than a number
            following = _NUMBERS_OF.get(next(numbers, ""))
            if following is None:
                return False
            for _ in range(following):
                next(numbers, "")
    return True
