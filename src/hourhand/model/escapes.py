"""Texts read as whoever looks at them would read them: without escapes, without colours, without breaks of lines.

Programs escape more or less of a text, in small or capital letters, once or twice. Instead of guessing every way to
write a value, the text is read. A reading knows for each of its characters where in the text it stands.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from hourhand.model.log import CUT

ROUNDS: Final = 2
"""JSON in JSON, a URL in a URL."""
_KINDS: Final = {
    "%": r"[0-9A-Fa-f]{2}",  # URLs
    "\\": r"(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"  # JSON
    r"|U00[01][0-9A-Fa-f]{5}|u\{[0-9A-Fa-f]{1,6}\}"  # Python and Go, Rust and JavaScript
    r"|x[0-9A-Fa-f]{2}|[0-3][0-7]{2}|[bfnrt]|[^A-Za-z0-9\s\x00])",  # programming languages and shells
    "&": r"(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|amp|lt|gt|quot|apos);",  # XML
    "0": r"x[0-9A-Fa-f]{2}(?![0-9A-Za-z])(?:,?\s{0,9}(?=0x))?",  # bytes one by one, in lines too
    "\x1b": r"\[[0-?]*[ -/]*[@-~]",  # colours
    "\x00": "",
    "\xe2": r"\x90\x80",  # what stands for NUL
}
"""How the escapes of each kind go on behind the character that they begin with."""
_ESCAPE: Final = re.compile(  # one of these first, and then which: that makes it fast
    f"[{re.escape(''.join(_KINDS))}](?:{'|'.join(f'(?<={re.escape(first)}){rest}' for first, rest in _KINDS.items())})"
)
_ESCAPES: Final = tuple(re.compile(re.escape(first) + rest) for first, rest in _KINDS.items())
"""The same, each kind by itself."""
_SIGNS: Final = ("%", "\\", "&", "0x", "\x1b", "\x00", "\N{SYMBOL FOR NULL}", "\xe2\x90\x80")
"""One of them is in every escape, in text and in bytes; looking for them costs nearly nothing."""
_APART: Final = "\n\u0100"
"""Between lines that are read together: in no value, because it is no byte, and in no escape."""
_CUT: Final = f"{CUT}\n{CUT}"
_BREAK: Final = re.compile(r"\n(?<=[A-Za-z0-9+/_-]{60}\n)(?=[A-Za-z0-9+/_=-])")
"""Where base64 goes on in the next line. It begins with what is rare in a text: that makes it fast."""
_CUT_OR_BREAK: Final = re.compile(f"{_CUT}|{_BREAK.pattern}")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

Places = Sequence[tuple[int, int]]
"""Where each character of a reading stands: where it begins in the text, and where it ends."""


class Reading(NamedTuple):
    text: str
    places: Callable[[], Places]
    """Asked for only where something was found."""

    def without(self, escapes: re.Pattern[str]) -> "Reading":
        read = escapes.sub(lambda found: _meant(found[0]), self.text)
        return Reading(read, lambda: _through(escapes, _meant, self.text, self.places()))


def octets_of(text: str) -> str:
    """The text with a character for each of its bytes: what escapes stand for is bytes. ASCII stays as it is."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:  # half of a pair of surrogates
        return text.encode("utf-8", "surrogatepass").decode("latin-1")


def has_signs(text: str) -> bool:
    """Whether there may be escapes in it, or something that looks like one together with what stands beside it."""
    return any(sign in text for sign in _SIGNS)


def unescaped(text: str, by_kind: bool) -> Iterator[Reading]:
    """Each reading of it without another layer of escapes, as bytes (`octets_of`). Nothing if there are none.

    `by_kind`: lines that have several kinds of escapes are also read with one kind undone at a time. Whoever escapes a
    text escapes what looks like an escape of that kind, and leaves those of other kinds as they are. Where a value has
    such in it, to undo all of them would undo a part of the value.
    """
    if not has_signs(text):
        return
    whole = Reading(octets_of(text), lambda: _octet_places(text))
    seen: set[int] = set()
    for rounds in range(ROUNDS, 0, -1):
        before, whole = whole, whole.without(_ESCAPE)
        if whole.text == before.text:
            return
        yield whole
        if by_kind and (mixed := _mixed_lines(before)) is not None:
            yield from _by_kind(mixed, rounds, seen)


def unbroken(text: str) -> Reading | None:
    """The text with lines joined that were one, and how to get its places; None if there are none."""
    if _CUT not in text and _BREAK.search(text) is None:
        return None

    def places() -> Places:
        return _through(_CUT_OR_BREAK, lambda _: "", text, [(at, at + 1) for at in range(len(text))])

    return Reading(_CUT_OR_BREAK.sub("", text), places)


def _by_kind(reading: Reading, rounds: int, seen: set[int]) -> Iterator[Reading]:
    """`seen`: hashes of what was read, because to keep the texts would take many times the memory of a long one."""
    for escapes in _ESCAPES:
        read = reading.without(escapes)
        if read.text != reading.text and (known := hash(read.text)) not in seen:
            seen.add(known)
            yield read
            if rounds > 1:
                yield from _by_kind(read, rounds - 1, seen)


def _mixed_lines(reading: Reading) -> Reading | None:
    """The lines that have escapes of several kinds, each by itself; None if there are none."""
    text = reading.text
    kinds = Counter(line for escapes in _ESCAPES for line in _lines_with(escapes, text))
    lines = sorted(line for line, count in kinds.items() if count > 1)

    def places() -> Places:
        all_places = reading.places()
        apart = [(0, 0)] * len(_APART)
        return [place for begin, end in lines for place in (*all_places[begin:end], *apart)]

    return Reading("".join(text[begin:end] + _APART for begin, end in lines), places) if lines else None


def _lines_with(escapes: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end that have such an escape."""
    end = 0
    while (match := escapes.search(text, end)) is not None:
        begin = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        yield begin, end


def _octet_places(text: str) -> Places:
    return [(at, at + 1) for at, letter in enumerate(text) for _ in octets_of(letter)]


def _through(pattern: re.Pattern[str], meant: Callable[[str], str], text: str, places: Places) -> Places:
    """The places of what a text means, from those of its own characters."""
    found: list[tuple[int, int]] = []
    kept = 0
    for match in pattern.finditer(text):
        begin, end = match.span()
        found += places[kept:begin]
        found += [(places[begin][0], places[end - 1][1])] * len(meant(match[0]))
        kept = end
    found += places[kept:]
    return found


@lru_cache(4096)
def _meant(escape: str) -> str:
    """What an escape stands for, as bytes."""
    match escape[0]:
        case "%":
            return chr(int(escape[1:], 16))
        case "0":
            return chr(int(escape[2:4], 16))
        case "&":
            name = escape[1:-1]
            if name[0] != "#":
                return _NAMED[name]
            return _letter(int(name[2:], 16) if name[1] in "xX" else int(name[1:]))
        case "\\":
            return _meant_by_backslash(escape[1:])
        case _:
            return ""


def _meant_by_backslash(rest: str) -> str:
    if len(rest) == 11:
        high, low = int(rest[1:5], 16), int(rest[7:], 16)
        return _letter(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    if rest[0] in "uU":
        return _letter(int(rest[1:].strip("{}"), 16))
    if rest[0] == "x":
        return chr(int(rest[1:], 16))
    if len(rest) == 3:
        return chr(int(rest, 8))
    return _LETTERS.get(rest, rest)


def _letter(code: int) -> str:
    return octets_of(chr(code)) if code <= 0x10FFFF else ""
