"""Texts read as whoever looks at them would read them: without escapes, without colours, without breaks of lines.

Programs escape more or less of a text, in small or capital letters, once or twice. Instead of guessing every way to
write a value, the text is read. A reading knows for each of its characters where in the text it stands.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from hourhand.model.log import CUT

ROUNDS: Final = 2
"""JSON in JSON, a URL in a URL."""
_ESCAPE: Final = re.compile(
    r"[%&0\\\x1b\x00\xe2](?:"  # one of these first, and then which: that makes it fast
    r"(?<=%)[0-9A-Fa-f]{2}"  # URLs
    r"|(?<=\\)(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"  # JSON
    r"|x[0-9A-Fa-f]{2}|[0-3][0-7]{2}|[bfnrt]|[^A-Za-z0-9\s\x00])"  # programming languages and shells
    r"|(?<=&)(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|amp|lt|gt|quot|apos);"  # XML
    r"|(?<=0)x[0-9A-Fa-f]{2}(?![0-9A-Za-z])(?:,?\s{0,9}(?=0x))?"  # bytes one by one, in lines too
    r"|(?<=\x1b)\[[0-?]*[ -/]*[@-~]|(?<=\x00)|(?<=\xe2)\x90\x80)"  # colours, and what stands for NUL
)
_SIGNS: Final = ("%", "\\", "&", "0x", "\x1b", "\x00", "\N{SYMBOL FOR NULL}")
"""One of them is in every escape; looking for them costs nearly nothing."""
_CUT: Final = f"{CUT}\n{CUT}"
_BREAK: Final = re.compile(r"\n(?<=[A-Za-z0-9+/_-]{60}\n)(?=[A-Za-z0-9+/_=-])")
"""Where base64 goes on in the next line. It begins with what is rare in a text: that makes it fast."""
_CUT_OR_BREAK: Final = re.compile(f"{_CUT}|{_BREAK.pattern}")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

Places = Sequence[tuple[int, int]]
"""Where each character of a reading stands: where it begins in the text, and where it ends."""


def octets_of(text: str) -> str:
    """The text with a character for each of its bytes: what escapes stand for is bytes. ASCII stays as it is."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:  # half of a pair of surrogates
        return text.encode("utf-8", "surrogatepass").decode("latin-1")


def unescaped(text: str) -> Iterator[tuple[str, Callable[[], Places]]]:
    """Each reading of it without another layer of escapes, as bytes (`octets_of`), and how to get its places. Nothing
    if there are none."""
    if not any(sign in text for sign in _SIGNS):
        return
    read = octets_of(text)
    layers: list[str] = []
    for _ in range(ROUNDS):
        before, read = read, _ESCAPE.sub(lambda found: _meant(found[0]), read)
        if read == before:
            return
        layers.append(before)
        yield read, lambda: _unescaped_places(text, layers)


def unbroken(text: str) -> tuple[str, Callable[[], Places]] | None:
    """The text with lines joined that were one, and how to get its places; None if there are none."""
    if _CUT not in text and _BREAK.search(text) is None:
        return None

    def places() -> Places:
        return _through(_CUT_OR_BREAK, lambda _: "", text, [(at, at + 1) for at in range(len(text))])

    return _CUT_OR_BREAK.sub("", text), places


def _unescaped_places(text: str, layers: Sequence[str]) -> Places:
    places: Places = [(at, at + 1) for at, letter in enumerate(text) for _ in octets_of(letter)]
    for layer in layers:
        places = _through(_ESCAPE, _meant, layer, places)
    return places


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
    if rest[0] == "u":
        return _letter(int(rest[1:], 16))
    if rest[0] == "x":
        return chr(int(rest[1:], 16))
    if len(rest) == 3:
        return chr(int(rest, 8))
    return _LETTERS.get(rest, rest)


def _letter(code: int) -> str:
    return octets_of(chr(code)) if code <= 0x10FFFF else ""
