"""Takes the values of secrets out of everything that an attempt says, before any of it is stored.

A value is recognised as it is, and in the forms that programs commonly give it: escaped for JSON, a shell, a URL, XML
or Python; in base64 wherever it begins, in hexadecimal; line by line if it has several. That protects from accidents.
Who wants to get a value past this can (spelt backwards, letter by letter), so logs stay as confidential as the job.
"""

import base64
import html
import json
import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from hourhand.model.secret_refs import secret_bytes

VALUE_CHARS_MIN: Final = 4
"""Shorter values are not masked: they are part of too much that is no secret."""
LINE_CHARS_MIN: Final = 8
"""The same for a line of a value that has several."""
FRAGMENT_CHARS_MIN: Final = 8
"""A piece of a value at a place where text was cut is masked if it is as long as that."""
LONG_LINE_CHARS: Final = 4096
"""Lines of that length may be pieces of longer ones: those are cut after 16 KiB, and a character has up to 4 bytes."""
FORMS_CHARS_MAX: Final = 256 * 1024
"""All forms together, the most likely ones first: of a very long value not every form is known."""
_HEAD_CHARS: Final = 24
"""What is looked for is how forms begin; the rest is compared where that is found. So an expression for long values is
no larger than one for short ones."""
_DEPTH_MAX: Final = 100
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
_WRAPPED: Final = (76, 64)
"""Columns at which programs break base64 into lines."""
_ARMOUR: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
"""The first and the last line of keys and certificates, which are no secret."""


class Masker:
    """For the secrets of one attempt. Made once, used for every line."""

    __slots__ = ("_base64", "_begins", "_fragment_max", "_mask_of", "_search", "_sorted", "_sorted_ends")

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: by the names of their secrets."""
        self._mask_of: dict[str, str] = {}
        self._base64: set[str] = set()
        left = FORMS_CHARS_MAX
        for forms_of in (_plain_forms, _base64_forms, _hexadecimal_forms):
            for name, value in values.items():
                for form in forms_of(value):
                    if VALUE_CHARS_MIN <= len(form) <= left and not form.isspace() and form not in self._mask_of:
                        left -= len(form)
                        self._mask_of[form] = f"[secret {name}]"
                        if forms_of is _base64_forms:
                            self._base64.add(form)
        self._sorted = sorted(self._mask_of)
        self._sorted_ends = sorted(form[::-1] for form in self._sorted)
        self._fragment_max = max(map(len, self._sorted), default=0)
        self._begins = _begins(self._sorted)
        self._search = re.compile(_pattern(sorted(self._begins), 0)).search if self._sorted else None

    def __bool__(self) -> bool:
        return bool(self._mask_of)

    def __repr__(self) -> str:
        return f"<masker of {len(set(self._mask_of.values()))} secrets>"

    def text(self, text: str) -> str:
        """With every value replaced by the name of its secret."""
        return text if self._search is None or self._search(text) is None else self._replaced(text)

    def cut_text(self, text: str) -> str:
        """The same for text whose lines may have been cut before they came here: pieces of values at the beginnings and
        the ends of lines are replaced, too."""
        if not self._mask_of:
            return text
        return "\n".join(self.piece(line, begins_cut=True, ends_cut=True) for line in self.text(text).split("\n"))

    def piece(self, text: str, begins_cut: bool, ends_cut: bool) -> str:
        """A piece of a line that was too long to be kept as one."""
        text = self.text(text)
        if begins_cut and (found := self._fragment(text[: self._fragment_max][::-1], self._sorted_ends)):
            mask = self._mask_of[found[0][::-1]]
            text = mask + text[found[1] :]
        if ends_cut and (found := self._fragment(text[-self._fragment_max :], self._sorted)):
            text = text[: len(text) - found[1]] + self._mask_of[found[0]]
        return text

    def json(self, value: Any, depth: int = 0) -> Any:
        """The same value without secrets in its texts, its keys and its numbers."""
        match value:
            case str():
                return self.text(value)
            case bool() | None:
                return value
            case int() | float():
                masked = self.text(str(value))
                return value if masked == str(value) else masked
            case Mapping() if depth < _DEPTH_MAX:
                return {self.text(str(key)): self.json(inner, depth + 1) for key, inner in value.items()}
            case list() | tuple() if depth < _DEPTH_MAX:
                return [self.json(inner, depth + 1) for inner in value]
            case _ if depth >= _DEPTH_MAX:
                return "[left out: nested too deep to look for secrets]"
            case _:
                return value

    # --- steps -------------------------------------------------------------------------------------------

    def _replaced(self, text: str) -> str:
        parts: list[str] = []
        kept = at = 0
        last = ""
        while (found := self._find(text, at)) is not None:
            begin, form = found
            end = begin + len(form)
            if form in self._base64:  # the letters beside it hold bits of it, too
                most = end + 3
                begin -= 1 if begin > kept and text[begin - 1] in _BASE64 else 0
                while end < min(len(text), most) and text[end] in _BASE64:
                    end += 1
            mask = self._mask_of[form]
            if begin > kept or mask != last:  # else it goes on: the lines of one value are one
                parts += [text[kept:begin], mask]
            kept = at = end
            last = mask
        return "".join([*parts, text[kept:]])

    def _find(self, text: str, at: int) -> tuple[int, str] | None:
        """The first form from there on, the longest that begins at its place."""
        assert self._search is not None
        while (match := self._search(text, at)) is not None:
            begin = match.start()
            for form in self._begins[match[0]]:
                if text.startswith(form, begin):
                    return begin, form
            at = begin + 1
        return None

    def _fragment(self, text: str, ordered: list[str]) -> tuple[str, int] | None:
        """The longest end of a text that a form begins with, if it is long enough to tell anything: the form, and how
        many characters."""
        for start in range(len(text) - FRAGMENT_CHARS_MIN + 1):
            piece = text[start:]
            place = bisect_left(ordered, piece)
            if place < len(ordered) and ordered[place].startswith(piece):
                return ordered[place], len(piece)
        return None


class LineMask:
    """Masks the lines of one attempt as they come, many at a time. Lines that were too long come in pieces, the rest of
    one at the beginning of what comes next; a value is not told by halves there either."""

    __slots__ = ("_masker", "_seen_long")

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._seen_long = False

    def __call__(self, texts: list[str]) -> list[str]:
        masker = self._masker
        if not self._seen_long and max(map(len, texts), default=0) < LONG_LINE_CHARS:
            joined = "\n".join(texts)
            # One search for all: nearly always there is nothing to do.
            return texts if masker.text(joined) is joined else [masker.text(text) for text in texts]
        masked = []
        after_long = self._seen_long
        for text in texts:
            is_long = len(text) >= LONG_LINE_CHARS
            masked.append(masker.piece(text, begins_cut=after_long, ends_cut=is_long))
            after_long = is_long
        self._seen_long = True
        return masked


def _begins(forms: list[str]) -> dict[str, list[str]]:
    """For each beginning that is looked for, what may stand there: the longest form first."""
    heads = {form[:_HEAD_CHARS] for form in forms}
    begins: dict[str, list[str]] = {head: [] for head in heads}
    for form in sorted(forms, key=len, reverse=True):
        begins[form[:_HEAD_CHARS]].append(form)
    for head in heads:  # a form that is shorter than another beginning may stand there alone
        begins[head] += [head[:size] for size in range(len(head) - 1, 0, -1) if head[:size] in heads]
    return begins


def _pattern(forms: list[str], at: int) -> str:
    """An expression that finds the longest form at the first place that has any. All agree up to `at`, and are sorted;
    what they have in common is looked at once, which makes it several times as fast as a plain list of them."""
    ends = len(forms[0]) == at
    groups: dict[str, list[str]] = {}
    for form in forms[1:] if ends else forms:
        groups.setdefault(form[at], []).append(form)
    branches = []
    for group in groups.values():
        common = _common(group[0], group[-1])
        rest = "" if len(group) == 1 else _pattern(group, common)
        branches.append(re.escape(group[0][at:common]) + rest)
    if not branches:
        return ""
    joined = "|".join(branches)
    return f"(?:{joined})?" if ends else f"(?:{joined})" if len(branches) > 1 else joined


def _common(one: str, other: str) -> int:
    """How many characters they begin with alike."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))


def _plain_forms(value: str) -> Iterator[str]:
    """The value, and what becomes of it in quotes."""
    texts = [value, value.strip()]
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:  # a log has it line by line
        texts += [line for line in lines if len(line) >= LINE_CHARS_MIN and not _ARMOUR.fullmatch(line)]
        texts.append(value.replace("\r\n", "\n"))
    texts = list(dict.fromkeys(texts))
    yield from texts
    for text in texts:
        escaped = json.dumps(text)[1:-1]
        yield escaped
        yield json.dumps(escaped)[1:-1]  # JSON inside JSON
        yield escaped.replace("/", "\\/")
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield repr(text)[1:-1]
        yield repr(secret_bytes(text))[2:-1]
        yield from _shell_forms(text)
        yield from _url_forms(text)
        yield from (html.escape(text), html.escape(text, quote=False))
        if not text.isprintable() or not text.isascii():
            yield text.encode(errors="replace").decode()  # what is no text is stored like this
            yield secret_bytes(text).decode(errors="replace")


def _shell_forms(text: str) -> Iterator[str]:
    yield shlex.quote(text).removeprefix("'").removesuffix("'")
    yield text.replace("'", "'\\''")
    yield re.sub(r"([^\w@%+=:,./-])", r"\\\1", text)  # as printf %q and set -x write it
    yield re.sub(r'(["$`\\])', r"\\\1", text)  # inside double quotes
    yield text.replace("\\", "\\\\").replace("'", "\\'")


def _url_forms(text: str) -> Iterator[str]:
    for encoded in (_quoted(quote, text, ""), _quoted(quote, text, "/"), _quoted(quote_plus, text, "")):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)


def _quoted(quoting: Callable[..., str], text: str, safe: str) -> str:
    return quoting(secret_bytes(text), safe=safe)


def _base64_forms(value: str) -> Iterator[str]:
    """In base64, wherever in a longer text the value begins: only what no neighbour has a part in."""
    octets = secret_bytes(value)
    for text in dict.fromkeys((octets, octets.strip())):
        if len(text) < VALUE_CHARS_MIN:
            continue
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + text).rstrip(b"=").decode()
            skipped = (0, 2, 3)[shift]  # these hold bits of what comes before
            held = (shift + len(text)) // 3 * 4  # what follows has a part in the rest
            yield from _either_alphabet(encoded[skipped:held])
            yield from _either_alphabet(encoded[skipped:])
        whole = base64.b64encode(text).decode()
        for columns in _WRAPPED:
            if len(whole) > columns:
                pieces = (whole[at : at + columns] for at in range(0, len(whole), columns))
                yield from (piece for piece in pieces if len(piece.rstrip("=")) >= FRAGMENT_CHARS_MIN)


def _hexadecimal_forms(value: str) -> Iterator[str]:
    octets = secret_bytes(value)
    for text in dict.fromkeys((octets, octets.strip())):
        if len(text) >= VALUE_CHARS_MIN:
            for form in (text.hex(), text.hex(" "), text.hex(":")):
                yield from (form, form.upper())


def _either_alphabet(encoded: str) -> Iterator[str]:
    if len(encoded) >= VALUE_CHARS_MIN:
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")
