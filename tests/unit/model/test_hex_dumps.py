import base64
from typing import Final

import pytest

from hourhand.model.hex_dumps import dumps_in
from hourhand.model.masking import LineMask, Masker

TOKEN: Final = "ghp_A1b2C3d4E5f6G7h8J9k0LmNpQrStUvWxYz12"
KEY: Final = f"-----BEGIN KEY-----\n{base64.encodebytes(bytes(range(7, 200))).decode()}-----END KEY-----\n"


def _shown(part: bytes) -> str:
    return "".join(chr(octet) if 32 <= octet < 127 else "." for octet in part)


def _rows(octets: bytes, width: int = 16) -> list[tuple[int, bytes]]:
    return [(at, octets[at : at + width]) for at in range(0, len(octets), width)]


def _turned(part: bytes) -> str:
    """Words of two bytes, as they are in the memory of most machines."""
    return " ".join((part[at : at + 2][::-1]).hex().zfill(4) for at in range(0, len(part), 2))


DUMPS: Final = {
    "xxd": lambda octets: [f"{at:08x}: {row.hex(' ', -2):<39}  {_shown(row)}" for at, row in _rows(octets)],
    "xxd -g4": lambda octets: [f"{at:08x}: {row.hex(' ', -4):<35}  {_shown(row)}" for at, row in _rows(octets)],
    "xxd -p": lambda octets: [row.hex() for _, row in _rows(octets, 30)],
    "od -An -tx1": lambda octets: [f" {row.hex(' ')}" for _, row in _rows(octets)],
    "od -tx1": lambda octets: [*(f"{at:07o} {row.hex(' ')}" for at, row in _rows(octets)), f"{len(octets):07o}"],
    "od -Ax -tx1z": lambda octets: [f"{at:06x} {row.hex(' '):<47}  >{_shown(row)}<" for at, row in _rows(octets)],
    "od -x": lambda octets: [f"{at:07o} {_turned(row)}" for at, row in _rows(octets)],
    "hexdump -C": lambda octets: [
        *(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  |{_shown(row)}|" for at, row in _rows(octets)),
        f"{len(octets):08x}",
    ],
}


def _is_told(value: str, text: str) -> bool:
    """Whether eight bytes of a value can be read in what is left of a dump, in either column."""
    pieces = [value.encode()[at : at + 8] for at in range(len(value) - 7)]
    bare = "".join(text.split()).lower()
    return any(piece.hex() in bare or _turned(piece).replace(" ", "") in bare for piece in pieces) or any(
        _shown(piece) in text for piece in pieces
    )


@pytest.mark.parametrize("before", ["", "x", "password = "])
@pytest.mark.parametrize("value", [TOKEN, KEY, "s3cr3t-of-20-letters"])
@pytest.mark.parametrize("tool", DUMPS)
def test_nothing_of_a_value_is_told_by_a_dump(tool: str, value: str, before: str) -> None:
    lines = DUMPS[tool](f"{before}{value}\nand what is not secret at all".encode())
    assert _is_told(value, "\n".join(lines))
    masked = LineMask(Masker({"KEY": value}))(lines)
    assert len(masked) == len(lines)
    assert "[secret KEY]" in masked[0] or before
    assert not _is_told(value, "\n".join(masked))


@pytest.mark.parametrize("tool", DUMPS)
def test_lines_of_a_dump_that_come_one_by_one_tell_nothing_either(tool: str) -> None:
    mask = LineMask(Masker({"TOKEN": TOKEN}))
    masked = [line for each in DUMPS[tool](TOKEN.encode()) for line in mask([each])]
    assert not _is_told(TOKEN, "\n".join(masked))


def test_what_stands_around_a_value_in_a_dump_stays() -> None:
    lines = DUMPS["xxd"](b"0123456789abcdef" + TOKEN.encode() + bytes(8) + b"the next line...")
    masked = LineMask(Masker({"TOKEN": TOKEN}))(lines)
    assert (masked[0], masked[-1]) == (lines[0], lines[-1])


@pytest.mark.parametrize(
    "lines",
    [
        ["31", "32", "33", "34"],  # a column of numbers
        ["2026 1131", "3233 3412", "1111 2222"],
        ["4142434445464731", "2026-01-01", "323334"],  # not one behind the other
    ],
)
def test_numbers_that_are_no_dump_are_left_alone(lines: list[str]) -> None:
    assert LineMask(Masker({"PIN": "1234"}))(lines) == lines


def test_the_text_beside_a_dump_is_not_read_as_bytes() -> None:
    [dump, _] = dumps_in("00000000: 6465 6164 2062 6561 6420 6361 6665 2031  dead bead cafe 1")
    assert dump.octets == "dead bead cafe 1"


def test_text_without_dumps_has_none() -> None:
    assert list(dumps_in("added a face to the facade\n2026-11-17 12:00:00 ok\n\n  - 12 34\nab cd ef\n")) == []
