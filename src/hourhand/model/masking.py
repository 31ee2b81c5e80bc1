"""Takes the values of secrets out of everything that an attempt says, before any of it is stored.

A value is recognised as it is, in the forms that programs commonly give it (`secret_forms`), where it shows when the
text is read without its escapes, colours and breaks (`escapes`), and in dumps (`hex_dumps`). That protects from
accidents. Who wants to get a value past this can (spelt backwards, letter by letter), so logs stay as confidential as
the job.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from hourhand.model.escapes import has_signs, octets_of, unbroken, unescaped
from hourhand.model.hex_dumps import OCTETS_MIN, dumps_in
from hourhand.model.log import CUT
from hourhand.model.secret_forms import (
    VALUE_CHARS_MIN,
    WRAPPED,
    base64_forms,
    hexadecimal_forms,
    plain_forms,
    rare_base64_forms,
    rare_forms,
    readings,
)

FRAGMENT_CHARS_MIN: Final = 8
"""A piece of a value at a place where text may have been cut is masked if it is as long as that."""
CUT_CHARS_MIN: Final = 4
"""The same where it is known to have been cut: of a value that lies across, at most three characters can be told."""
FORMS_CHARS_MAX: Final = 256 * 1024
"""All forms together, the most likely ones first: of a very long value not every form is known."""
_HEAD_CHARS: Final = 24
"""What is looked for is how forms begin; the rest is compared where that is found. So an expression for long values is
no larger than one for short ones."""
_DEPTH_MAX: Final = 100
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")


class _Span(NamedTuple):
    """A place that is not to be told."""

    begin: int
    end: int
    mask: str


class Masker:
    """For the secrets of one attempt. Made once, used for every line."""

    __slots__ = ("_base64", "_forms", "_fragment_max", "_mask_of", "_readings", "_signs", "_sorted", "_sorted_ends")

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: by the names of their secrets."""
        self._mask_of: dict[str, str] = {}
        self._base64: set[str] = set()
        left = FORMS_CHARS_MAX
        for forms_of in (plain_forms, base64_forms, hexadecimal_forms, rare_base64_forms, rare_forms):
            for name, value in values.items():
                for form in forms_of(value):
                    if VALUE_CHARS_MIN <= len(form) <= left and not form.isspace() and form not in self._mask_of:
                        left -= len(form)
                        self._mask_of[form] = f"[secret {name}]"
                        if forms_of in (base64_forms, rare_base64_forms):
                            self._base64.add(form)
        self._sorted = sorted(self._mask_of)
        self._sorted_ends = sorted(form[::-1] for form in self._sorted)
        self._fragment_max = max(map(len, self._sorted), default=0)
        self._forms = _Finder(self._mask_of)
        self._readings = _Finder(_read_forms(values))
        self._signs = any(map(has_signs, values.values()))
        """Whether a value has something in it that could be undone as if it were an escape of the text."""

    def __bool__(self) -> bool:
        return bool(self._mask_of)

    def __repr__(self) -> str:
        return f"<masker of {len(set(self._mask_of.values()))} secrets>"

    def text(self, text: str) -> str:
        """With every value replaced by the name of its secret."""
        spans = self._spans(text)
        return _replaced(text, spans) if spans else text

    def lines(self, lines: list[str]) -> list[str]:
        """The same for lines that follow each other; as many come back. Values that go over several are found."""
        joined = "\n".join(lines)
        spans = self._spans(joined)
        if not spans:  # as nearly always: one search for all of them
            return lines
        return _replaced(joined, [part for span in spans for part in _by_line(joined, span)]).split("\n")

    def cut_text(self, text: str) -> str:
        """The same for text whose lines may have been cut before they came here: pieces of values at the beginnings and
        the ends of lines are replaced, too."""
        if not self._mask_of:
            return text
        return "\n".join(self.piece(line, begins_cut=True, ends_cut=True) for line in self.text(text).split("\n"))

    def piece(self, text: str, begins_cut: bool, ends_cut: bool, chars_min: int = FRAGMENT_CHARS_MIN) -> str:
        """A piece of a line that was too long to be kept as one, with or without the marks that say so."""
        text = self.text(text)
        if begins_cut:
            mark = CUT if text.startswith(CUT) else ""
            rest = text.removeprefix(CUT)
            if found := self._fragment(rest[: self._fragment_max][::-1], self._sorted_ends, chars_min):
                text = mark + self._mask_of[found[0][::-1]] + rest[found[1] :]
        if ends_cut:
            mark = CUT if text.endswith(CUT) else ""
            rest = text.removesuffix(CUT)
            if found := self._fragment(rest[-self._fragment_max :], self._sorted, chars_min):
                text = rest[: len(rest) - found[1]] + self._mask_of[found[0]] + mark
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

    def _spans(self, text: str) -> list[_Span]:
        """What is not to be told of a text, in order, without overlaps."""
        if not self._mask_of:
            return []
        spans = [self._wider(text, span) for span in self._forms.spans(text)]
        for read, places in unescaped(text, by_kind=self._signs):
            if found := list(self._readings.spans(read)):
                spans += _in_the_text(found, places())
        if (joined := unbroken(text)) is not None:
            read, places = joined
            if found := [self._wider(read, span) for span in self._forms.spans(read)]:
                spans += _in_the_text(found, places())
        for dump in dumps_in(text):
            if found := [*self._readings.spans(dump.octets), *self._readings.pieces(dump.octets, OCTETS_MIN)]:
                spans += _in_the_text(found, dump.places())
        return _merged(spans) if len(spans) > 1 else spans

    def _wider(self, text: str, span: _Span) -> _Span:
        """With the letters beside base64: they hold bits of it, too."""
        begin, end, mask = span
        if text[begin:end] not in self._base64:
            return span
        most = min(len(text), end + 3)
        begin -= 1 if begin > 0 and text[begin - 1] in _BASE64 else 0
        while end < most and text[end] in _BASE64:
            end += 1
        return _Span(begin, end, mask)

    def _fragment(self, text: str, ordered: list[str], chars_min: int) -> tuple[str, int] | None:
        """The longest end of a text that a form begins with, if it is long enough to tell anything: the form, and how
        many characters."""
        for start in range(len(text) - chars_min + 1):
            piece = text[start:]
            place = bisect_left(ordered, piece)
            if place < len(ordered) and ordered[place].startswith(piece):
                return ordered[place], len(piece)
        return None


class LineMask:
    """Masks the lines of one attempt as they come, many at a time. A line that was too long comes in pieces, and base64
    in lines, the rest of them at the beginning of what comes next; a value is not told by halves there either."""

    __slots__ = ("_goes_on", "_masker")

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._goes_on = False
        """Whether base64 may go on in the next line."""

    def __call__(self, texts: list[str]) -> list[str]:
        masker = self._masker
        if not texts or not masker:
            return texts
        went_on, self._goes_on = self._goes_on, len(texts[-1]) in WRAPPED and _BASE64.issuperset(texts[-1])
        masked = masker.lines(texts)
        if CUT in "".join(texts):
            masked = [
                masker.piece(line, line.startswith(CUT), line.endswith(CUT), CUT_CHARS_MIN) if CUT in line else line
                for line in masked
            ]
        if went_on or self._goes_on:
            masked = list(masked)
            masked[0] = masker.piece(masked[0], begins_cut=went_on, ends_cut=False)
            masked[-1] = masker.piece(masked[-1], begins_cut=False, ends_cut=self._goes_on)
        return masked


class _Finder:
    """Finds the first of many forms, the longest at its place."""

    __slots__ = ("_begins", "_mask_of", "_search")

    def __init__(self, mask_of: Mapping[str, str]) -> None:
        self._mask_of = mask_of
        self._begins = _begins(sorted(mask_of))
        self._search = re.compile(_pattern(sorted(self._begins), 0)).search if mask_of else None

    def spans(self, text: str) -> Iterator[_Span]:
        at = 0
        while self._search is not None and (match := self._search(text, at)) is not None:
            begin = match.start()
            at = begin + 1
            for form in self._begins[match[0]]:
                if text.startswith(form, begin):
                    at = begin + len(form)
                    yield _Span(begin, at, self._mask_of[form])
                    break

    def pieces(self, text: str, chars_min: int) -> Iterator[_Span]:
        """What a text that may have been cut has of forms: an end that one begins with, a beginning that one ends with,
        or nothing but a part of one."""
        size = len(text)
        if size < chars_min:
            return
        for form, mask in self._mask_of.items():
            if text in form:
                yield _Span(0, size, mask)
            elif len(form) > chars_min:
                begin = text.find(form[:chars_min], max(size - len(form), 0))
                while begin >= 0 and not form.startswith(text[begin:]):
                    begin = text.find(form[:chars_min], begin + 1)
                if begin >= 0:
                    yield _Span(begin, size, mask)
                end = text.rfind(form[-chars_min:], 0, len(form)) + chars_min
                while end >= chars_min and not form.endswith(text[:end]):
                    end = text.rfind(form[-chars_min:], 0, end - 1) + chars_min
                if end >= chars_min:
                    yield _Span(0, end, mask)


def _read_forms(values: Mapping[str, str]) -> dict[str, str]:
    """What is looked for where escapes are read: the values themselves, as bytes."""
    forms: dict[str, str] = {}
    left = FORMS_CHARS_MAX
    for name, value in values.items():
        for reading in readings(value):
            for form in dict.fromkeys((octets_of(reading), octets_of(reading.replace(" ", "+")))):
                if VALUE_CHARS_MIN <= len(form) <= left and not form.isspace() and form not in forms:
                    left -= len(form)
                    forms[form] = f"[secret {name}]"
    return forms


def _in_the_text(spans: list[_Span], places: Any) -> list[_Span]:
    """Where in a text that stands which was found in a reading of it."""
    return [_Span(places[span.begin][0], places[span.end - 1][1], span.mask) for span in spans]


def _merged(spans: list[_Span]) -> list[_Span]:
    """In order; what overlaps becomes one, by the name of the first."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda each: (each.begin, -each.end)):
        if merged and span.begin < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _by_line(text: str, span: _Span) -> Iterator[_Span]:
    """A part of it for each line that it goes over; the marks where a line was cut stay."""
    begin = span.begin
    while begin < span.end:
        line_end = text.find("\n", begin, span.end)
        end = span.end if line_end < 0 else line_end - text.endswith(CUT, begin, line_end)
        if begin < end:
            yield _Span(begin, end, span.mask)
        if line_end < 0:
            return
        begin = line_end + 1 + text.startswith(CUT, line_end + 1)


def _replaced(text: str, spans: list[_Span]) -> str:
    parts: list[str] = []
    kept, last = 0, ""
    for begin, end, mask in spans:
        if begin > kept or mask != last:  # else it goes on: the lines of one value are one
            parts += [text[kept:begin], mask]
        kept, last = end, mask
    return "".join([*parts, text[kept:]])


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
