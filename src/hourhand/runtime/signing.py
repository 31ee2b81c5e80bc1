"""Ed25519 signatures: who may vouch for something, and whether somebody has.

A public key is told as 32 bytes in base64, a signature as 64 bytes; both are no secrets. A private key lies in a file
of its owner (PEM) and never leaves the machine that signs.
"""

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hourhand.model.errors import BadConfiguration, HourhandError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE_BYTES: Final = 64
_KEY_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 16 * 1024


class SigningKeyUnusable(HourhandError):
    """The file of a private key cannot be used; the message says why and never what is in it."""

    code = "signing-key-unusable"


class TrustedKeys:
    """The public keys of those whose word counts."""

    def __init__(self, keys: Sequence[str] = (), required: bool = False) -> None:
        """`required`: nothing is accepted that none of them has signed. Raises BadConfiguration with every key that is
        none."""
        self.required = required
        self._keys: dict[str, bytes] = {}
        wrong = []
        for text in keys:
            key = read_key(text)
            if key is None:
                wrong.append(f"{text[:60]!r} is no public key: it has {_KEY_BYTES} bytes, written in base64")
            else:
                self._keys[key_id(key)] = key
        if wrong:
            raise BadConfiguration(wrong)

    def signer(self, message: bytes, signature: bytes) -> str | None:
        """The id of the key that has signed exactly this; None when none of them has."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        for name, key in self._keys.items():
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
            except (InvalidSignature, ValueError):
                continue
            return name
        return None


def read_key(text: str) -> bytes | None:
    """The bytes of a public key; None where the text is none."""
    key = _from_base64(text)
    return key if key is not None and len(key) == _KEY_BYTES else None


def read_signature(text: str) -> bytes | None:
    """The bytes of a signature, in either alphabet of base64; None where the text is none."""
    signature = _from_base64(text)
    return signature if signature is not None and len(signature) == SIGNATURE_BYTES else None


def write_signature(signature: bytes) -> str:
    """As it stands in an address."""
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()


def key_id(key: bytes) -> str:
    """A short name for a public key."""
    return hashlib.sha256(key).hexdigest()[:16]


def make_signing_key(path: Path) -> str:
    """Writes a new private key into a file that was not there, for its owner alone; its public key, in base64."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def sign(path: Path, message: bytes) -> bytes:
    """The signature of the key in the file. Raises SigningKeyUnusable; an OSError when there is no such file."""
    return _private_key(path).sign(message)


def _private_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    with open(path, "rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise SigningKeyUnusable(f"{path} can be read by others than its owner: chmod 600 {path}")
        content = file.read(_FILE_BYTES_MAX)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyUnusable(f"{path} holds no Ed25519 private key (PEM, without a passphrase)")
    return key


def _from_base64(text: str) -> bytes | None:
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
