"""Forms that carry a file: what comes out is what was put in, however it was cut on its way; all else is refused."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.api.multipart import boundary_of, one_file
from hourhand.api.refusals import BadRequest

HEAD = b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n'
END = b"\r\n--b--\r\n"


def taken(pieces: Sequence[bytes], boundary: bytes = b"b") -> bytes:
    async def come() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def take() -> bytes:
        return b"".join([piece async for piece in one_file(come(), boundary)])

    return asyncio.run(take())


def cut(whole: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(whole) + 1) for place in places}), len(whole)]
    return [whole[begin:end] for begin, end in pairwise(edges)]


@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"-", b"--", b"b", b"x", b"\r\n--", b"\r\n--a", b"\0"])),
    st.lists(st.integers(0)),
)
def test_a_file_comes_out_as_it_was_put_in_however_it_is_cut(parts: list[bytes], places: list[int]) -> None:
    content = b"".join(parts).replace(b"\r\n--b", b"")
    if b"\r\n--b" not in b"\r\n" + content:
        assert taken(cut(HEAD + content + END, places)) == content


@given(st.binary(max_size=300), st.lists(st.integers(0)))
def test_bytes_that_are_no_form_are_refused_and_nothing_else_happens(data: bytes, places: list[int]) -> None:
    with pytest.raises(BadRequest) as raised:
        taken(cut(data, places))
    assert raised.value.code in ("multipart-malformed", "multipart-one-file")


def part(headers: bytes, content: bytes = b"x") -> bytes:
    return b"--b\r\n" + headers + b"\r\n\r\n" + content + b"\r\n"


FILE = b'Content-Disposition: form-data; name="f"; filename="x"'


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (b"", "multipart-malformed"),
        (b"preamble\r\n" + HEAD + END, "multipart-malformed"),
        (HEAD + b"x", "multipart-malformed"),
        (HEAD + b"x\r\n--b", "multipart-malformed"),
        (HEAD + b"x\r\n--bb--\r\n", "multipart-malformed"),
        (part(FILE) + part(FILE) + b"--b--\r\n", "multipart-one-file"),
        (part(FILE) + part(b'Content-Disposition: form-data; name="a"') + b"--b--\r\n", "multipart-one-file"),
        (part(b'Content-Disposition: form-data; name="a"') + b"--b--\r\n", "multipart-one-file"),
        (part(b'Content-Disposition: attachment; filename="a"') + b"--b--\r\n", "multipart-one-file"),
        (part(b"Content-Type: text/plain") + b"--b--\r\n", "multipart-one-file"),
        (part(FILE + b"\r\n" + FILE) + b"--b--\r\n", "multipart-malformed"),
        (part(FILE + b"\r\nContent-Transfer-Encoding: base64") + b"--b--\r\n", "multipart-malformed"),
        (part(FILE + b"\r\n" + b"X: " + b"y" * 9000) + b"--b--\r\n", "multipart-malformed"),
        (part(FILE + b"\r\nnonsense") + b"--b--\r\n", "multipart-malformed"),
    ],
)
def test_a_form_that_does_not_carry_exactly_one_file_is_refused(form: bytes, code: str) -> None:
    for pieces in ([form], cut(form, range(len(form)))):
        with pytest.raises(BadRequest) as raised:
            taken(pieces)
        assert raised.value.code == code


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ("multipart/form-data;boundary=abc;charset=utf-8", b"abc"),
        ('multipart/form-data; boundary="a b?c"', b"a b?c"),
        (
            "Multipart/Form-Data; BOUNDARY=----WebKitFormBoundary7MA4YWxkTrZu0gW",
            b"----WebKitFormBoundary7MA4YWxkTrZu0gW",
        ),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ('multipart/form-data; boundary=""', None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        (f"multipart/form-data; boundary={'x' * 71}", None),
        ("multipart/form-data; boundary=a\x00b", None),
        ("multipart/form-data; xboundary=a", None),
    ],
)
def test_the_boundary_is_said_once_and_rightly(header: str, boundary: bytes | None) -> None:
    if boundary is not None:
        assert boundary_of(header) == boundary
        return
    with pytest.raises(BadRequest) as raised:
        boundary_of(header)
    assert raised.value.code == "multipart-boundary"
