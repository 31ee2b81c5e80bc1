import os
from pathlib import Path

import msgspec
import pytest

from hourhand.model.errors import BadConfiguration, SecretsUnavailable
from hourhand.model.secrets import SecretPlace
from hourhand.runtime.keyring import Keyring, add_key, drop_old_keys, make_key_file, missing_keys

PLACE = SecretPlace(1, "DB", 3)


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    make_key_file(tmp_path / "home" / "secret.key")
    return Keyring(tmp_path / "home" / "secret.key")


def test_what_was_sealed_is_opened_in_its_place(keyring: Keyring) -> None:
    sealed = keyring.seal(b"hunter2\0\xff", PLACE)
    assert keyring.open(sealed, PLACE) == b"hunter2\0\xff"
    assert b"hunter2" not in sealed.sealed + sealed.wrapped_key


def test_the_same_value_is_never_sealed_twice_alike(keyring: Keyring) -> None:
    one, two = keyring.seal(b"hunter2", PLACE), keyring.seal(b"hunter2", PLACE)
    assert one.sealed != two.sealed
    assert one.wrapped_key != two.wrapped_key


@pytest.mark.parametrize("other", [SecretPlace(2, "DB", 3), SecretPlace(1, "DC", 3), SecretPlace(1, "DB", 2)])
def test_a_row_in_the_place_of_another_cannot_be_opened(keyring: Keyring, other: SecretPlace) -> None:
    with pytest.raises(SecretsUnavailable, match="not sealed for this place"):
        keyring.open(keyring.seal(b"hunter2", PLACE), other)


@pytest.mark.parametrize("field", ["wrapped_key", "sealed"])
def test_a_damaged_or_mixed_value_is_refused_without_telling_any_of_it(keyring: Keyring, field: str) -> None:
    sealed, other = keyring.seal(b"hunter2", PLACE), keyring.seal(b"swordfish", PLACE)
    whole = getattr(sealed, field)
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    for wrong in (b"", b"x" * 8, damaged, getattr(other, field)):
        with pytest.raises(SecretsUnavailable) as caught:
            keyring.open(msgspec.structs.replace(sealed, **{field: wrong}), PLACE)
        assert "hunter2" not in str(caught.value)


def test_the_file_is_for_its_owner_alone_and_never_replaced(keyring: Keyring) -> None:
    assert keyring.path.stat().st_mode & 0o777 == 0o600
    assert keyring.path.parent.stat().st_mode & 0o777 == 0o700
    before = keyring.path.read_bytes()
    with pytest.raises(FileExistsError):
        make_key_file(keyring.path)
    assert keyring.path.read_bytes() == before
    assert [path.name for path in keyring.path.parent.iterdir()] == ["secret.key"]


def test_without_a_file_nothing_is_sealed_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "secret.key")
    assert keyring.key_ids == []
    with pytest.raises(SecretsUnavailable, match=r"hourhand secret make-key .*/secret\.key.*secrets\.key_file"):
        keyring.seal(b"hunter2", PLACE)
    with pytest.raises(BadConfiguration, match="put the file back"):
        missing_keys(keyring, {"abc"})
    missing_keys(keyring, set())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "holds no key"),
        ("# only words\n", "holds no key"),
        ("hourhand-key-1 AAAA\n", "has 3 bytes, not 32"),
        ("hourhand-key-1 " + "A" * 88 + "\n", "has 66 bytes, not 32"),
        ("hourhand-key-1 not base64!\n", "holds no base64"),
        ("AAAA\n", "does not begin with"),
        ("hourhand-key-1 é\n", "not text"),
    ],
)
def test_a_file_that_holds_no_right_key_is_refused_with_the_reason(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "secret.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(BadConfiguration, match=why):
        _ = Keyring(path).key_ids


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o606, 0o660])
def test_a_file_that_jobs_could_read_is_refused(keyring: Keyring, mode: int) -> None:
    keyring.path.chmod(mode)
    with pytest.raises(BadConfiguration, match="chmod 600"):
        _ = keyring.key_ids


def test_another_key_opens_nothing_and_is_told_apart_by_its_id(keyring: Keyring, tmp_path: Path) -> None:
    sealed = keyring.seal(b"hunter2", PLACE)
    make_key_file(tmp_path / "other.key")
    other = Keyring(tmp_path / "other.key")
    with pytest.raises(SecretsUnavailable, match=sealed.key_id):
        other.open(sealed, PLACE)
    with pytest.raises(BadConfiguration, match=f"sealed by the key {sealed.key_id}, .* has other keys"):
        missing_keys(other, {sealed.key_id})


def test_a_new_key_is_used_at_once_and_the_old_one_still_opens(keyring: Keyring) -> None:
    old = keyring.seal(b"hunter2", PLACE)
    new_id = add_key(keyring.path)
    assert keyring.key_ids == [new_id, old.key_id]
    assert keyring.open(old, PLACE) == b"hunter2"
    assert keyring.seal(b"x", PLACE).key_id == new_id

    rewrapped = keyring.rewrap(old, PLACE)
    assert drop_old_keys(keyring.path) == 1
    assert keyring.path.stat().st_mode & 0o777 == 0o600
    assert keyring.open(rewrapped, PLACE) == b"hunter2"
    assert rewrapped.sealed == old.sealed
    with pytest.raises(SecretsUnavailable):
        keyring.open(old, PLACE)


def test_a_keyring_shows_no_key(keyring: Keyring) -> None:
    text = keyring.path.read_text().split()[-1]
    assert text not in repr(keyring)
    os.truncate(keyring.path, keyring.path.stat().st_size - 12)
    with pytest.raises(BadConfiguration) as caught:
        _ = keyring.key_ids
    assert text[:20] not in str(caught.value)


def test_a_key_for_a_purpose_follows_from_the_file_and_from_the_purpose(keyring: Keyring) -> None:
    [first] = keyring.key_ids
    own = keyring.derived(first, b"callback")
    assert own is not None
    assert keyring.derived(first, b"callback") == Keyring(keyring.path).derived(first, b"callback") == own
    assert keyring.derived(first, b"callback2") != own
    add_key(keyring.path)
    newer = keyring.key_ids[0]
    assert keyring.derived(newer, b"callback") not in (None, own)
    assert keyring.derived(first, b"callback") == own, "what was signed before a new key came is known after it"
    assert own not in keyring.path.read_bytes()
    drop_old_keys(keyring.path)
    assert keyring.derived(first, b"callback") is None


def test_what_is_sealed_for_a_purpose_is_opened_for_that_alone_also_after_a_new_key(
    keyring: Keyring, tmp_path: Path
) -> None:
    [first] = keyring.key_ids
    sealed = keyring.seal_for(first, b"callback 1", b"hunter2")
    assert sealed is not None
    assert b"hunter2" not in sealed
    assert sealed != keyring.seal_for(first, b"callback 1", b"hunter2")
    add_key(keyring.path)
    assert keyring.open_for(first, b"callback 1", sealed) == b"hunter2"
    for key_id, purpose, what in (
        (first, b"callback 2", sealed),
        (first, b"callback 1", sealed[:-1] + bytes([sealed[-1] ^ 1])),
        (first, b"callback 1", b""),
        (keyring.key_ids[0], b"callback 1", sealed),
        ("no-such-key", b"callback 1", sealed),
    ):
        with pytest.raises(SecretsUnavailable):
            keyring.open_for(key_id, purpose, what)
    nobodys = Keyring(tmp_path / "none.key")
    assert nobodys.key_ids == []
    assert nobodys.seal_for(first, b"callback 1", b"hunter2") is None
