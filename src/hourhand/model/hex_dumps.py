"""Dumps in hexadecimal, as xxd, od and hexdump print them, read as the bytes that they show.

Lines that follow each other are read as one, because what is looked for goes over their ends: all of them have as many
bytes as the first, but for the last. What stands before the bytes (where they are in the file) and behind them (the
same bytes as text) is passed over; a byte ends where its line ends, so that whoever takes it out takes out that text.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

OCTETS_MIN: Final = 8
"""A dump that begins with a shorter line is none: columns of numbers look the same."""
_WORD_DIGITS: Final = (4, 8, 16)
_DIGITS: Final = r"(?:[0-9A-Fa-f]{2})++(?![^ \t\r\n])"
_LINE: Final = re.compile(
    rf"^[ \t]*+(?:(?P<at>[0-9A-Fa-f]{{4,16}}+)(?P<colon>:?)[ \t]{{1,3}}+(?={_DIGITS}))?"
    rf"(?P<octets>{_DIGITS}(?:[ \t]{{1,2}}{_DIGITS})*+)[^\n]*+",
    re.MULTILINE,
)
_GROUP: Final = re.compile(r"[0-9A-Fa-f]+")
_GAP: Final = re.compile(r"[ \t]{2}")


class Dump(NamedTuple):
    octets: str
    """A character for each byte."""
    places: Callable[[], Sequence[tuple[int, int]]]
    """For each byte where it begins in the text, and where its line ends. Asked for only where something was found."""


class _Line(NamedTuple):
    begin: int
    end: int
    groups: list[tuple[int, str]]
    """Digits without a space between them, and where they begin."""
    size: int
    """In bytes."""


def dumps_in(text: str) -> Iterator[Dump]:
    """Every dump in a text. One of words (`od -x`, hexdump) is read a second time, as they are in memory: turned
    around."""
    for lines in _blocks(text):
        yield _read(lines)
        if len(lines[0].groups[0][1]) in _WORD_DIGITS:
            yield _read_turned(lines)


def _blocks(text: str) -> Iterator[list[_Line]]:
    """Lines that belong together."""
    block: list[_Line] = []
    for match in _LINE.finditer(text):
        line = _line(match)
        if block and line.begin == block[-1].end + 1 and block[-1].size == block[0].size >= line.size:
            block.append(line)
            continue
        if block:
            yield block
        block = [line] if line.size >= OCTETS_MIN else []
    if block:
        yield block


def _line(match: re.Match[str]) -> _Line:
    begin, end = match.span("octets")
    if match["colon"]:  # as xxd writes it: the text is behind two spaces, and may look like more of the same
        gap = _GAP.search(match.string, begin, end)
        end = end if gap is None else gap.start()
    groups = [(found.start(), found[0]) for found in _GROUP.finditer(match.string, begin, end)]
    if match["at"] and not match["colon"] and len(match["at"]) == len(groups[0][1]):  # no place in a file, but bytes
        groups.insert(0, (match.start("at"), match["at"]))
    return _Line(match.start(), match.end(), groups, sum(len(digits) for _, digits in groups) // 2)


def _read(lines: Sequence[_Line]) -> Dump:
    digits = "".join(digits for line in lines for _, digits in line.groups)

    def places() -> Sequence[tuple[int, int]]:
        return [
            (begin + at, line.end) for line in lines for begin, part in line.groups for at in range(0, len(part), 2)
        ]

    return Dump(bytes.fromhex(digits).decode("latin-1"), places)


def _read_turned(lines: Sequence[_Line]) -> Dump:
    octets = b"".join(bytes.fromhex(digits)[::-1] for line in lines for _, digits in line.groups)

    def places() -> Sequence[tuple[int, int]]:
        return [(begin, line.end) for line in lines for begin, part in line.groups for _ in range(len(part) // 2)]

    return Dump(octets.decode("latin-1"), places)
