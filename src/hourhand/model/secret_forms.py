"""The forms that programs give to the value of a secret: escaped for JSON, a shell, a URL, XML or Python; in base64
wherever it begins, in hexadecimal and base32; line by line if it has several."""

import base64
import html
import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from hourhand.model.secret_refs import secret_bytes

VALUE_CHARS_MIN: Final = 4
"""Shorter values are not masked: they are part of too much that is no secret."""
LINE_CHARS_MIN: Final = 8
"""The same for a line of a value that has several."""
WRAPPED: Final = (76, 64)
"""Columns at which programs break base64 into lines."""
_PIECE_CHARS_MIN: Final = 8
_ARMOUR: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
"""The first and the last line of keys and certificates, which are no secret."""
_NOT_IN_MAIL: Final = re.compile(rb"[^\t\n\r !-<>-~]")
"""What quoted-printable has only as numbers."""


def readings(value: str) -> list[str]:
    """The value itself as it may stand in a text: without the spaces around it, and line by line."""
    texts = [value, value.strip()]
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:  # a log has it line by line
        texts += [line for line in lines if len(line) >= LINE_CHARS_MIN and not _ARMOUR.fullmatch(line)]
        texts.append(value.replace("\r\n", "\n"))
    return list(dict.fromkeys(texts))


def plain_forms(value: str) -> Iterator[str]:
    """The value, and what becomes of it in quotes."""
    texts = readings(value)
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


def base64_forms(value: str) -> Iterator[str]:
    """In base64, wherever in a longer text the value begins: only what no neighbour has a part in."""
    octets = secret_bytes(value)
    for text in dict.fromkeys((octets, octets.strip())):
        yield from _base64_of(text)


def rare_base64_forms(value: str) -> Iterator[str]:
    """The same of what is inside JSON, or in two bytes for each letter, as Windows has texts."""
    for text in dict.fromkeys((value, value.strip())):
        escaped = json.dumps(text)[1:-1]
        if escaped != text:
            yield from _base64_of(escaped.encode())
            yield from _base64_of(secret_bytes(json.dumps(text, ensure_ascii=False)[1:-1]))
        yield from _base64_of(text.encode("utf-16-le", "surrogatepass"))


def _base64_of(text: bytes) -> Iterator[str]:
    if len(text) < VALUE_CHARS_MIN:
        return
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + text).rstrip(b"=").decode()
        skipped = (0, 2, 3)[shift]  # these hold bits of what comes before
        held = (shift + len(text)) // 3 * 4  # what follows has a part in the rest
        yield from _either_alphabet(encoded[skipped:held])
        yield from _either_alphabet(encoded[skipped:])
    yield from _wrapped(base64.b64encode(text).decode())


def _wrapped(whole: str) -> Iterator[str]:
    for columns in WRAPPED:
        if len(whole) > columns:
            pieces = (whole[at : at + columns] for at in range(0, len(whole), columns))
            yield from (piece for piece in pieces if len(piece.rstrip("=")) >= _PIECE_CHARS_MIN)


def hexadecimal_forms(value: str) -> Iterator[str]:
    """In one line; dumps of several are read (`hex_dumps`)."""
    octets = secret_bytes(value)
    for text in dict.fromkeys((octets, octets.strip())):
        if len(text) >= VALUE_CHARS_MIN:
            for form in (text.hex(), text.hex(" "), text.hex(":"), text.hex("-"), text.hex(" ", -2)):
                yield from (form, form.upper())


def rare_forms(value: str) -> Iterator[str]:
    """In base32, and as mail has texts that are not plain."""
    octets = secret_bytes(value)
    for text in dict.fromkeys((octets, octets.strip())):
        if len(text) >= VALUE_CHARS_MIN:
            whole = base64.b32encode(text).decode()
            held = whole[: len(text) * 8 // 5]  # what follows has a part in the rest
            for form in (whole, held, *_wrapped(whole)):
                yield from (form, form.lower())
        yield _NOT_IN_MAIL.sub(lambda found: f"={found[0][0]:02X}".encode(), text).decode("ascii")


def _either_alphabet(encoded: str) -> Iterator[str]:
    if len(encoded) >= VALUE_CHARS_MIN:
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")
