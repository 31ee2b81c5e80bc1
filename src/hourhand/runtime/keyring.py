"""Master keys in a file, and what is sealed by them.

Each value has a random key of its own, which is sealed by a master key; so a new master key means sealing the small
keys anew, not the values. Both seals name what they belong to. The file holds one key per line, the current one first;
it is read again when it has changed, so that a new key needs no restart. Whoever can read it can read every secret.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from hourhand.model.errors import BadConfiguration, SecretsUnavailable
from hourhand.model.secrets import Sealed, SecretPlace

KEY_FILE_DEFAULT: Final = "secret.key"
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_SEALING: Final = b"seal\0"
_MARK: Final = "hourhand-key-1"
_FILE_BYTES_MAX: Final = 64 * 1024
_HEAD: Final = (
    "# Secrets are sealed by the first of these keys. Without them nobody can read a secret again: keep a copy, and\n"
    "# not beside a copy of the database.\n"
)


@dataclass(frozen=True, slots=True)
class SecretSettings:
    key_file: Path | None = None
    """The file with the key that secrets are sealed by, the same for every API and executor; for its owner alone.
    None: `secret.key` in the home, which `hourhand up` makes. Who has it and the database can read every secret."""


class Keyring:
    """The keys of one file. A file that is missing is an empty keyring, which can neither seal nor open anything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: dict[str, bytes] = {}
        self._seen: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"<keyring {self.path}>"

    @property
    def key_ids(self) -> list[str]:
        """The current one first. Raises BadConfiguration when the file cannot be used."""
        return list(self._known())

    def seal(self, value: bytes, place: SecretPlace) -> Sealed:
        """Raises SecretsUnavailable where there is no key."""
        known = self._known()
        if not known:
            raise SecretsUnavailable(
                f"there is no key to seal secrets by: {self.path} does not exist on the API's machine. Make it there "
                f"with `hourhand secret make-key {self.path}`, or name the file that other nodes have by "
                "secrets.key_file; every API and every executor needs the same file"
            )
        key_id, master = next(iter(known.items()))
        own = secrets.token_bytes(KEY_BYTES)
        return Sealed(
            key_id, _encrypted(master, own, _bound("key", place)), _encrypted(own, value, _bound("value", place))
        )

    def open(self, sealed: Sealed, place: SecretPlace) -> bytes:
        """Raises SecretsUnavailable when the key is not here, or the value was not sealed for this place."""
        own = _decrypted(self._key(sealed.key_id, place), sealed.wrapped_key, "key", place)
        return _decrypted(own, sealed.sealed, "value", place)

    def rewrap(self, sealed: Sealed, place: SecretPlace) -> Sealed:
        """The same by the current key. The value itself is not touched."""
        own = _decrypted(self._key(sealed.key_id, place), sealed.wrapped_key, "key", place)
        key_id, master = next(iter(self._known().items()))
        return Sealed(key_id, _encrypted(master, own, _bound("key", place)), sealed.sealed)

    def derived(self, key_id: str, purpose: bytes) -> bytes | None:
        """A key that follows from a master key and tells nothing of it. Whoever has the same file gets the same for the
        same purpose, so that it need not be stored. None where that master key is not here."""
        key = self._known().get(key_id)
        return None if key is None else hmac.digest(key, b"hourhand derived key\0" + purpose, "sha256")

    def seal_for(self, key_id: str, purpose: bytes, value: bytes) -> bytes | None:
        """The value, sealed for those who have the same master key and know the purpose. None where it is not here."""
        key = self.derived(key_id, _SEALING + purpose)
        return None if key is None else _encrypted(key, value, purpose)

    def open_for(self, key_id: str, purpose: bytes, sealed: bytes) -> bytes:
        """Raises SecretsUnavailable when the master key is not here, or it was sealed for another purpose."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self.derived(key_id, _SEALING + purpose)
        if key is None:
            raise SecretsUnavailable(f"{self.path} has not the key {key_id} any more")
        try:
            return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose)
        except (InvalidTag, ValueError):
            raise SecretsUnavailable("what is stored was not sealed for this purpose, or is damaged") from None

    def _key(self, key_id: str, place: SecretPlace) -> bytes:
        key = self._known().get(key_id)
        if key is None:
            raise SecretsUnavailable(
                f"secret {place.name} is sealed by the key {key_id}, which {self.path} on this machine does not have: "
                "give it the key file of the others, or name that by secrets.key_file"
            )
        return key

    def _known(self) -> dict[str, bytes]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._seen, self._keys = None, {}
            return self._keys
        except OSError as error:
            raise _unusable(self.path, f"cannot be read ({(error.strerror or str(error)).lower()})") from None
        seen = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if seen != self._seen:
            self._keys, self._seen = _read(self.path, found), seen
        return self._keys


class HasKeyFile(Protocol):
    """The configuration of a node."""

    @property
    def home(self) -> Path: ...

    @property
    def secrets(self) -> SecretSettings: ...


def keyring_of(config: HasKeyFile) -> Keyring:
    return Keyring(config.secrets.key_file or config.home / KEY_FILE_DEFAULT)


def make_key_file(path: Path) -> None:
    """A new file with a new key, for its owner alone. Raises FileExistsError rather than touching one that is there."""
    _write(path, [secrets.token_bytes(KEY_BYTES)], replace=False)


def add_key(path: Path) -> str:
    """Makes a new key the current one; those before stay. Its id."""
    key = secrets.token_bytes(KEY_BYTES)
    keys = list(_read(path, path.stat()).values()) if path.exists() else []
    _write(path, [key, *keys], replace=True)
    return key_id_of(key)


def drop_old_keys(path: Path) -> int:
    """Leaves the current key only; how many are gone."""
    keys = list(_read(path, path.stat()).values())
    if len(keys) > 1:
        _write(path, keys[:1], replace=True)
    return len(keys) - 1


def key_id_of(key: bytes) -> str:
    """Follows from the key, so that no two keys can be confused, and tells nothing of it."""
    return hashlib.sha256(b"hourhand key id\0" + key).hexdigest()[:12]


def missing_keys(keyring: Keyring, needed: set[str]) -> None:
    """Refuses to go on when values are sealed by keys that are not here. Raises BadConfiguration."""
    missing = sorted(needed.difference(keyring.key_ids))
    if not missing:
        return
    what = "does not exist" if not keyring.key_ids else f"has other keys ({', '.join(keyring.key_ids)})"
    raise BadConfiguration(
        [
            f"secrets are sealed by the key {', '.join(missing)}, but {keyring.path} {what}: put the file back from a "
            "copy, or name the right one by secrets.key_file; without it, delete these secrets in the database"
        ]
    )


def _read(path: Path, found: os.stat_result) -> dict[str, bytes]:
    if found.st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        mode = stat.S_IMODE(found.st_mode)
        raise _unusable(path, f"may be read by jobs and others (mode {mode:04o}): chmod 600 it")
    if found.st_size > _FILE_BYTES_MAX or not stat.S_ISREG(found.st_mode):
        raise _unusable(path, "is not a file of keys")
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "").lower() if isinstance(error, OSError) else "it is not text"
        raise _unusable(path, f"cannot be read ({why})") from None
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            key = _key_in(line, path, number)
            keys.setdefault(key_id_of(key), key)
    if not keys:
        raise _unusable(path, "holds no key: put its content back from a copy")
    return keys


def _key_in(line: str, path: Path, number: int) -> bytes:
    mark, _, text = line.strip().partition(" ")
    if mark != _MARK:
        raise _unusable(path, f"line {number} does not begin with {_MARK}")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise _unusable(path, f"line {number} holds no base64") from None
    if len(key) != KEY_BYTES:
        raise _unusable(path, f"the key in line {number} has {len(key)} bytes, not {KEY_BYTES}")
    return key


def _write(path: Path, keys: list[bytes], *, replace: bool) -> None:
    """Whole or not at all: half a file of keys would be the loss of every secret."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(_HEAD + "".join(f"{_MARK} {base64.b64encode(key).decode()}\n" for key in keys))
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
            draft.unlink()
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unusable(path: Path, why: str) -> BadConfiguration:
    return BadConfiguration([f"secrets.key_file: {path} {why}"])


def _bound(what: str, place: SecretPlace) -> bytes:
    return msgspec.json.encode(["hourhand", what, place.namespace_id, place.name, place.version])


def _encrypted(key: bytes, text: bytes, bound: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: few commands need it

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, text, bound)


def _decrypted(key: bytes, sealed: bytes, what: str, place: SecretPlace) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(what, place))
    except (InvalidTag, ValueError):
        message = f"secret {place.name} cannot be opened: what is stored was not sealed for this place, or is damaged"
        raise SecretsUnavailable(message) from None
