"""What `hourhand secret rotate-key` does, beside a running cluster."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path


async def rotate_keys(given: Mapping[str, str | None], new: bool, forget_old: bool, say: Callable[[str], None]) -> None:
    from hourhand.cli.supervisor import running_database_url
    from hourhand.config import load_config
    from hourhand.operations.secret_keys import forget_old as forget
    from hourhand.operations.secret_keys import rotate
    from hourhand.runtime.keyring import keyring_of
    from hourhand.wiring import open_store

    file = Path(given["config_file"]) if given["config_file"] else None
    config = load_config(file, flags={"home": given["home"], "database.url": given["database"]})
    config = replace(config, database=replace(config.database, url=await running_database_url(config)))
    keyring = keyring_of(config)
    async with open_store(config, "rotate key") as store:
        count = await rotate(store.secrets, store.audit, keyring, "operator", new)
        say(f"{count} secrets are sealed by the key {keyring.key_ids[0]} now; {keyring.path} has it first")
        if forget_old:
            gone = await forget(store.secrets, keyring)
            say(f"{gone} old keys are gone from the file")
