"""Signatures of calls by the Standard Webhooks scheme: who signs, when, and what exactly. No clock and no IO.

A call has three headers: an id, which stays the same when the call is made again; the second in which it was signed;
and one or several signatures, HMAC-SHA256 of `id.second.body`, so that a key can be replaced while both are known.
Whoever checks one must look at all three: a signature without its time can be replayed for ever, one without its id
for minutes.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hourhand.model.errors import BadSignature, StaleSignature

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
HEADERS: Final = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
TOLERANCE_SECONDS: Final = 300
"""How far the clocks of two machines may be apart, and how old a call may be."""
KEY_PREFIX: Final = "whsec_"
KEY_BYTES_MIN: Final = 16
KEY_BYTES_MAX: Final = 128
KEYS_MAX: Final = 4
SIGNATURES_MAX: Final = 16
"""That are looked at in one call."""

_VERSION: Final = "v1"
_ID: Final = re.compile(r"[!-\-/-~]{1,256}")
"""Visible ASCII, but no dot: it ends the id in what is signed, and must not be a part of it."""
_SECOND: Final = re.compile(r"[0-9]{1,12}")


class SignedCall(NamedTuple):
    """What the headers of a call claim. Nothing of it is true before `signed_by` has said so."""

    message_id: str
    second: int
    signatures: tuple[str, ...]


def key_text(key: bytes) -> str:
    """A key as libraries for webhooks take it."""
    return KEY_PREFIX + base64.b64encode(key).decode()


def keys_in(text: str) -> list[bytes]:
    """The keys in a text, the newest first: one, or several while one is replaced by another. Raises ValueError, whose
    message repeats nothing of the text."""
    words = text.split()
    if not 1 <= len(words) <= KEYS_MAX:
        raise ValueError(f"must hold 1 to {KEYS_MAX} keys, with spaces between them")
    return [_key_in(word) for word in words]


def signature(key: bytes, message_id: str, second: int, body: bytes) -> str:
    told = hmac.new(key, f"{message_id}.{second}.".encode() + body, hashlib.sha256).digest()
    return f"{_VERSION},{base64.b64encode(told).decode()}"


def signed_headers(keys: Sequence[bytes], message_id: str, second: int, body: bytes) -> dict[str, str]:
    """The headers of a call that is signed by each of the keys."""
    signatures = " ".join(signature(key, message_id, second, body) for key in keys)
    return {ID_HEADER: message_id, TIMESTAMP_HEADER: str(second), SIGNATURE_HEADER: signatures}


def read_signed(given: Mapping[str, str | None], now_seconds: float) -> SignedCall:
    """What the headers claim, if they have their form and their time is near. Raises BadSignature, StaleSignature."""
    missing = [name for name in HEADERS if not given.get(name)]
    if missing:
        raise BadSignature(f"a signed call needs the headers {', '.join(HEADERS)}; {', '.join(missing)} is missing")
    message_id, second, signatures = (str(given[name]).strip() for name in HEADERS)
    if not _ID.fullmatch(message_id):
        raise BadSignature(f"{ID_HEADER} must be 1 to 256 visible ASCII characters without a dot")
    if not _SECOND.fullmatch(second):
        raise BadSignature(f"{TIMESTAMP_HEADER} must be the time of signing in seconds since 1970, in digits alone")
    away = int(second) - now_seconds
    if abs(away) > TOLERANCE_SECONDS:
        raise StaleSignature(away, TOLERANCE_SECONDS)
    return SignedCall(message_id, int(second), tuple(signatures.split()[:SIGNATURES_MAX]))


def signed_by(call: SignedCall, keys: Sequence[bytes], body: bytes) -> int | None:
    """Which of the keys has signed the call; None: none. Takes the same time whichever it is."""
    found = None
    for place, key in enumerate(keys):
        right = signature(key, call.message_id, call.second, body).encode()
        for given in call.signatures:
            if hmac.compare_digest(right, given.encode("utf-8", "replace")):
                found = place
    return found


def _key_in(word: str) -> bytes:
    try:
        key = base64.b64decode(word.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"a key is base64, with {KEY_PREFIX} before it or without") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in base64")
    return key
