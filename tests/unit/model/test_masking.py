import base64
import html
import json
import quopri
import re
import shlex
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hourhand.job_kinds.lines import LINE_BYTES_MAX, LineSplitter
from hourhand.model.log import CUT
from hourhand.model.masking import LineMask, Masker
from hourhand.model.secret_refs import secret_bytes

VALUE: Final = "p@ss/wörd \"q\" $x 'y' \\z+9"
FORMS: Final[dict[str, Callable[[str], str]]] = {
    "as it is": lambda value: value,
    "JSON": json.dumps,
    "JSON with letters as they are": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value: json.dumps(json.dumps({"a": value})),
    "URL": lambda value: quote(value, safe=""),
    "URL with slashes": quote,
    "URL in small letters": lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
    "form": quote_plus,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 without padding": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "base64 of a line": lambda value: base64.b64encode(f"{value}\n".encode()).decode(),
    "base64 behind one letter": lambda value: base64.b64encode(f"u:{value}".encode()).decode(),
    "base64 behind two letters": lambda value: base64.b64encode(f"us:{value}@host".encode()).decode(),
    "base64 behind three letters": lambda value: base64.b64encode(f"use:{value}@".encode()).decode(),
    "hexadecimal": lambda value: value.encode().hex(),
    "capital hexadecimal": lambda value: value.encode().hex().upper(),
    "hexadecimal with colons": lambda value: value.encode().hex(":"),
    "hexadecimal in groups of four digits": lambda value: value.encode().hex(" ", -2),
    "hexadecimal with dashes": lambda value: value.encode().hex("-").upper(),
    "base64 behind a key of JSON": lambda value: base64.b64encode(json.dumps({"a": value}).encode()).decode(),
    "base64 of UTF-16 behind a name": lambda value: base64.b64encode(f"$a='{value}'".encode("utf-16-le")).decode(),
    "base64 of a value of JSON": lambda value: base64.b64encode(json.dumps(value)[1:-1].encode()).decode(),
    "base64 of UTF-16": lambda value: base64.b64encode(value.encode("utf-16-le")).decode(),
    "base32": lambda value: base64.b32encode(value.encode()).decode(),
    "base32 of a line": lambda value: base64.b32encode(f"{value}\n".encode()).decode(),
    "quoted-printable": lambda value: quopri.encodestring(value.encode()).decode().replace("=\n", ""),
    "bytes in lines": lambda value: ",\n  ".join(f"0x{octet:02x}" for octet in value.encode()),
    "shell": shlex.quote,
    "repr": repr,
    "repr of bytes": lambda value: repr(value.encode()),
    "XML": html.escape,
    "URL in JavaScript": lambda value: quote(value, safe="!'()*~"),
    "URL as a whole in JavaScript": lambda value: quote(value, safe="!'()*~;/?:@&=+$,#"),
    "form in Java": lambda value: quote_plus(value, safe="*"),
    "form in a browser": lambda value: quote_plus(value, safe="*").replace("~", "%7E"),
    "URL in a URL": lambda value: quote(quote(value, safe=""), safe=""),
    "URL in capital and small letters": lambda value: quote(value, safe="").replace("%2F", "%2f").replace("%5C", "%5c"),
    "JSON in Go": lambda value: (
        json.dumps(value).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    ),
    "JSON in .NET": lambda value: re.sub(
        r"[^A-Za-z0-9 !#$%()*,./:;=?@^_{|}~\[\]-]",
        lambda found: "".join(f"\\u{unit:04X}" for unit in _utf16(found[0])),
        value,
    ),
    "XML by numbers": lambda value: re.sub(r"[&<>\"']", lambda found: f"&#{ord(found[0])};", value),
    "XML in an attribute": lambda value: value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;"),
    "XML with names": lambda value: html.escape(value).replace("&#x27;", "&apos;"),
    "bytes of C": lambda value: "".join(f"\\x{octet:02x}" for octet in value.encode()),
    "bytes in a list": lambda value: ", ".join(f"0x{octet:02X}" for octet in value.encode()),
    "letters of Python and Go": lambda value: "".join(f"\\U{ord(letter):08x}" for letter in value),
    "letters of Rust and JavaScript": lambda value: "".join(f"\\u{{{ord(letter):X}}}" for letter in value),
    "octal": lambda value: "".join(f"\\{octet:03o}" for octet in value.encode()),
    "colours inside": lambda value: f"{value[:5]}\x1b[01;31m\x1b[K{value[5:]}\x1b[m",
    "two bytes for each letter": lambda value: value.replace("", "\x00")[1:],
}


def _utf16(text: str) -> list[int]:
    octets = text.encode("utf-16-be")
    return [octets[at] << 8 | octets[at + 1] for at in range(0, len(octets), 2)]


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_replaced_in_every_form_that_programs_give_it(form: str) -> None:
    masker = Masker({"DB": VALUE})
    written = FORMS[form](VALUE)

    masked = masker.text(f"before {written} after")

    assert "[secret DB]" in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    if "behind" not in form and "in JSON" not in form:  # there something of the user's own is left
        assert not _tells(masked, written)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=8, max_size=60),
    st.sampled_from(sorted(FORMS)),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
)
@example("0000000\\", "colours inside", "")
@example("0000000%41", "colours inside", "%41")
@example("00&lt;%41", "XML by numbers", "")
@example("00'\\n%41", "XML with names", "")
@example("<000000%41", "JSON in Go", "")
@example("\\000000&lt;", "JSON in .NET", "\\n")
@example("%41000&lt;", "URL as a whole in JavaScript", "&lt;")
@example("\\|0x41\\n0", "URL in a URL", "<")
def test_whatever_the_value_is_no_form_of_it_is_left(value: str, form: str, around: str) -> None:
    masked = Masker({"S": value}).text(f"{around}|{FORMS[form](value)}|{around}")

    assert FORMS[form](value) not in masked or len(FORMS[form](value)) < 4
    assert value not in masked.replace("[secret S]", "")


@pytest.mark.parametrize("value", ["00000000\\", "a\\nb%41&lt;0x41 \\", "\\u0041%2541&amp;lt;\"<'"])
@pytest.mark.parametrize("inner", ["as it is", "JSON in Go", "XML by numbers", "URL"])
@pytest.mark.parametrize("outer", ["colours inside", "JSON in .NET", "XML with names", "URL as a whole in JavaScript"])
def test_what_looks_like_an_escape_in_a_value_is_not_undone_with_those_around_it(
    value: str, inner: str, outer: str
) -> None:
    written = FORMS[outer](FORMS[inner](value).strip('"'))

    masked = Masker({"S": value}).text(f"before 100%25 \\| {written} \\| 100%25 after")

    assert masked.removesuffix("\x1b[m \\| 100%25 after").removesuffix(" \\| 100%25 after") == (
        "before 100%25 \\| [secret S]"
    )


def test_a_value_with_colours_inside_is_missed_if_it_begins_like_the_rest_of_an_escape_before_it() -> None:
    masker = Masker({"S": "new-password"})
    assert masker.text("C:\\new-\x1b[1mpassword") == "C:\\new-\x1b[1mpassword"
    assert masker.text("C:\\new-password") == "C:\\[secret S]"
    assert masker.text("C:\\\\new-\x1b[1mpassword") == "C:\\\\[secret S]"


def test_a_value_of_several_lines_that_looks_escaped_is_recognised_line_by_line_with_colours_inside() -> None:
    masker = Masker({"S": "first-line\\n\nab%41\nlast-line%41"})
    assert masker.text("first-\x1b[1mline\\n\nab\x1b[1m%41\nlast-\x1b[1mline%41") == (
        "[secret S]\nab\x1b[1m%41\n[secret S]"
    )


def test_lines_of_a_value_that_stand_far_apart_are_not_taken_for_one() -> None:
    lines = ["\x1b[1mab%41", "what stands between", "cd%41\x1b[m"]
    assert Masker({"S": "ab%41\ncd%41"}).lines(lines) == lines


def test_what_holds_no_secret_is_the_same_object() -> None:
    line = "a line like any other"
    assert Masker({"S": "s3cr3t-value"}).text(line) is line
    assert not Masker({})
    assert Masker({}).text(line) is line
    assert Masker({}).cut_text(line) is line


def test_the_longer_of_two_values_is_taken_where_one_is_part_of_the_other() -> None:
    masker = Masker({"SHORT": "hunter22", "LONG": "hunter22-and-more"})
    assert (
        masker.text("hunter22-and-more, hunter22-and, hunter22") == "[secret LONG], [secret SHORT]-and, [secret SHORT]"
    )


def test_a_value_of_several_lines_is_recognised_line_by_line_and_as_a_whole() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqh\nkiG9w0BAQEFAASCBK\n-----END PRIVATE KEY-----\n"
    masker = Masker({"KEY": key})
    assert masker.text("  MIIEvQIBADANBgkqh") == "  [secret KEY]"
    assert masker.text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"
    assert "MIIE" not in masker.text(json.dumps(key))
    assert masker.text(f"<{key}>") == "<[secret KEY]>"


def test_base64_that_is_broken_into_lines_is_recognised_line_by_line() -> None:
    value = "".join(chr(33 + n * 7 % 90) for n in range(300))
    wrapped = base64.encodebytes(value.encode()).decode()
    for line in wrapped.splitlines():
        assert Masker({"S": value}).text(line) == "[secret S]"


def test_a_value_that_is_very_long_is_taken_out_as_one() -> None:
    value = "".join(chr(33 + n * n * 31 % 90) for n in range(65536))
    masker = Masker({"S": value})
    assert masker.text(f"<{value}>") == "<[secret S]>"
    assert masker.text(f"<{base64.b64encode(value.encode()).decode()}>") == "<[secret S]>"


def test_short_values_are_left_alone() -> None:
    assert Masker({"PIN": "123"}).text("0123") == "0123"
    assert Masker({"PIN": "1234"}).text("01234") == "0[secret PIN]"


def test_bytes_that_are_no_text_are_recognised_in_their_forms() -> None:
    octets = bytes(range(128, 160))
    masker = Masker({"B": octets.decode("utf-8", "surrogateescape")})
    assert masker.text(octets.hex()) == "[secret B]"
    assert masker.text(base64.b64encode(octets).decode()) == "[secret B]"
    assert masker.text(repr(octets)) == "b'[secret B]'"


def test_a_value_that_was_cut_in_two_is_recognised_on_both_sides() -> None:
    value = "0123456789abcdefghij-XYZ"
    masker = Masker({"S": value})
    for at in range(8, len(value) - 8):
        line = f"{'x' * 50} {value} {'y' * 50}"
        place = 51 + at
        first = masker.piece(line[:place], begins_cut=False, ends_cut=True)
        second = masker.piece(line[place:], begins_cut=True, ends_cut=False)
        assert first == f"{'x' * 50} [secret S]"
        assert second == f"[secret S] {'y' * 50}"


@pytest.mark.parametrize("at", range(1, 24))
@pytest.mark.parametrize("together", [True, False], ids=["of one read", "of two reads"])
def test_a_line_that_was_cut_inside_a_value_tells_three_characters_at_most(at: int, together: bool) -> None:
    value = "0123456789abcdefghij-XYZ"
    splitter = LineSplitter()
    line = f"{'x' * (LINE_BYTES_MAX - at)}{value}{'y' * 50}\n".encode()
    mask = LineMask(Masker({"S": value}))

    batches = [splitter.feed(line[: LINE_BYTES_MAX + 1]), splitter.feed(line[LINE_BYTES_MAX + 1 :])]
    if together:
        batches = [[text for batch in batches for text in batch]]
    first, second = [text for batch in batches for text in mask(batch)]

    assert first.startswith("xxxx")
    assert first.endswith(CUT)
    assert second.startswith(CUT)
    assert second.endswith("y" * 50)
    told = first.strip("x").strip(CUT) + second.strip("y").strip(CUT)
    assert "[secret S]" in told
    assert len(told.replace("[secret S]", "")) <= (0 if together else 3)


@pytest.mark.parametrize("before", range(0, 60, 7))
@pytest.mark.parametrize("size", [1, 2, 1000], ids=["line by line", "by twos", "in one read"])
def test_base64_that_is_broken_inside_a_value_tells_nothing_of_it(before: int, size: int) -> None:
    value = "correct-horse-battery-staple-and-so-on"
    lines = base64.encodebytes(f"{'u' * before}:{value}@example.org".encode()).decode().splitlines()
    mask = LineMask(Masker({"S": value}))

    masked = [line for at in range(0, len(lines), size) for line in mask(lines[at : at + size])]

    assert len(masked) == len(lines)
    assert "[secret S]" in "".join(masked)
    whole = base64.b64encode(value.encode()).decode()
    assert not any(whole[at : at + 12] in "".join(masked) for at in range(len(whole) - 12))


def test_lines_stay_as_many_as_they_were() -> None:
    key = "first line of it\nab\n\nlast line of it"
    mask = LineMask(Masker({"KEY": key}))
    assert mask(["before", *key.split("\n"), "after"]) == [
        "before", "[secret KEY]", "[secret KEY]", "", "[secret KEY]", "after",
    ]  # fmt: skip
    assert mask([]) == []
    untouched = ["a line", "100 % of it, C:\\new", "&nbsp; …"]
    assert mask(untouched) == untouched


def test_an_error_that_quotes_the_beginning_of_a_value_does_not_tell_it() -> None:
    masker = Masker({"S": "correct-horse-battery-staple"})
    assert masker.cut_text("exited with 1\ncannot log in with correct-horse-ba") == (
        "exited with 1\ncannot log in with [secret S]"
    )


def test_results_are_masked_in_texts_keys_and_numbers() -> None:
    masker = Masker({"S": "s3cr3t!value", "N": "918273645"})
    assert masker.json({"a": ["s3cr3t!value", 1, True, None, 2.5], "s3cr3t!value": {"n": 918273645}}) == {
        "a": ["[secret S]", 1, True, None, 2.5],
        "[secret S]": {"n": "[secret N]"},
    }


def test_nothing_of_a_result_gets_past_by_lying_deep() -> None:
    value: object = "s3cr3t!value"
    for _ in range(150):
        value = [value]
    assert "s3cr3t" not in json.dumps(Masker({"S": "s3cr3t!value"}).json(value))


def test_a_masker_does_not_show_what_it_hides() -> None:
    assert "s3cr3t" not in repr(Masker({"S": "s3cr3t!value"}))


def _tells(masked: str, written: str) -> bool:
    """Whether eight characters in a row of what was written are left."""
    return any(written[at : at + 8] in masked for at in range(len(written) - 7))


def test_the_bytes_of_a_value_come_back_from_what_masking_works_with() -> None:
    assert secret_bytes("é") == "é".encode()
