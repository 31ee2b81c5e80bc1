"""What an operator may ask of the keys that secrets are sealed by: whether they are all here, and a new one."""

from typing import Final

from hourhand.model.errors import BadConfiguration
from hourhand.ports.secret_stores import AuditStore, SecretStore
from hourhand.runtime.keyring import Keyring, add_key, drop_old_keys, missing_keys

_BATCH: Final = 200


async def refuse_without_keys(store: SecretStore, keyring: Keyring) -> None:
    """Whoever cannot open the secrets that there are does not start. Raises BadConfiguration."""
    keyring.key_ids  # noqa: B018 - a file that cannot be used is told also where there are no secrets yet
    missing_keys(keyring, await store.key_ids())


async def rotate(store: SecretStore, audit: AuditStore, keyring: Keyring, actor: str, new: bool = True) -> int:
    """Makes a new key the current one and seals every secret's own key by it; how many. Values are not touched, and
    nodes that have read the file anew can open everything at any moment. Stopped in the middle, it can be repeated."""
    await refuse_without_keys(store, keyring)
    if new:
        add_key(keyring.path)
    elif not keyring.key_ids:
        raise BadConfiguration([f"secrets.key_file: {keyring.path} does not exist, so there is no key to seal by"])
    current = keyring.key_ids[0]
    count = 0
    while rows := await store.wrapped_by_others(current, _BATCH):
        count += await store.put_wrapped([(place, keyring.rewrap(sealed, place)) for place, sealed in rows])
    await audit.append_audit(None, actor, "secret.rotate_key", f"key/{current}", {"secrets": count})
    return count


async def forget_old(store: SecretStore, keyring: Keyring) -> int:
    """Takes keys out of the file that no secret needs any more; how many. Refused while one does."""
    needed = await store.key_ids()
    missing_keys(keyring, needed)
    old = needed.difference(keyring.key_ids[:1])
    return 0 if old else drop_old_keys(keyring.path)
