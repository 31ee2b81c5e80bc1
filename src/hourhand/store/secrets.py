"""Secrets, sealed. Nothing here can read a value: keys are elsewhere."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.secrets import EVERY_JOB, Grant, Sealed, SecretPlace, grant_from_json
from hourhand.ports.secret_stores import SecretRow, UsedSecret, WantedSecret
from hourhand.store.jsons import from_json, to_json

_JOBS_NAMED_MAX: Final = 5
Rows = Sequence[SecretRow]  # inside a class with a method `list`, that word is the method
Names = list[str]


class Secrets:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "secrets.sql", database.schema)

    async def find_grants(self, namespace_id: int, names: Sequence[str]) -> dict[str, Grant]:
        rows = await self._database.fetch(
            self._queries["find_grants"], namespace_id=namespace_id, names=sorted(set(names))
        )
        return {row["name"]: grant_from_json(from_json(row["grants"])) for row in rows}

    async def list(self, namespace_id: int, after: str | None, limit: int) -> Rows:
        rows = await self._database.fetch(
            self._queries["list_secrets"], namespace_id=namespace_id, after=after, name=None, limit=limit
        )
        return tuple(_secret(row) for row in rows)

    async def get(self, namespace_id: int, name: str) -> SecretRow | None:
        row = await self._database.fetch_one(
            self._queries["list_secrets"], namespace_id=namespace_id, after=None, name=name, limit=1
        )
        return None if row is None else _secret(row)

    async def version(self, namespace_id: int, name: str) -> int:
        row = await self._database.fetch_one(self._queries["secret_version"], namespace_id=namespace_id, name=name)
        return 0 if row is None else row["version"]

    async def put(
        self, place: SecretPlace, sealed: Sealed, description: str | None, grant: Grant | UnsetType, changed_by: str
    ) -> bool:
        row = await self._database.fetch_one(
            self._queries["put_secret"],
            **msgspec.structs.asdict(place),
            **msgspec.structs.asdict(sealed),
            **_change(description, grant, changed_by),
        )
        return row is not None

    async def change(
        self, namespace_id: int, name: str, description: str | None, grant: Grant | UnsetType, changed_by: str
    ) -> bool:
        values = _change(description, grant, changed_by)
        row = await self._database.fetch_one(
            self._queries["change_secret"], namespace_id=namespace_id, name=name, **values
        )
        return row is not None

    @tried_twice
    async def delete(self, namespace_id: int, name: str, force: bool, changed_by: str) -> Names | None:
        async with self._database.transaction() as db:
            if not await self._fetch(db, "lock_secret", namespace_id=namespace_id, name=name):
                return None
            using = await self._fetch(db, "jobs_of_secret", namespace_id=namespace_id, name=name, limit=_JOBS_NAMED_MAX)
            if using and not force:
                return [f"{row['name']} ({row['job_id']})" for row in using]
            forced = bool(using)
            await self._fetch(
                db, "delete_secret", namespace_id=namespace_id, name=name, changed_by=changed_by, forced=forced
            )
            return []

    async def use_secrets(self, executor_id: int, wanted: Sequence[WantedSecret]) -> Sequence[UsedSecret]:
        rows = await self._database.fetch(
            self._queries["use_secrets"],
            executor_id=executor_id,
            run_ids=[each.run_id for each in wanted],
            fences=[each.fence for each in wanted],
            names=[each.name for each in wanted],
        )
        return [
            UsedSecret(
                row["run_id"],
                row["fence"],
                SecretPlace(row["namespace_id"], row["name"], row["version"] or 0),
                None if row["version"] is None else Sealed(row["key_id"], row["wrapped_key"], row["sealed"]),
            )
            for row in rows
        ]

    async def key_ids(self) -> set[str]:
        return {row["key_id"] for row in await self._database.fetch(self._queries["key_ids"])}

    async def wrapped_by_others(self, key_id: str, limit: int) -> Sequence[tuple[SecretPlace, Sealed]]:
        rows = await self._database.fetch(self._queries["wrapped_by_others"], key_id=key_id, limit=limit)
        return [
            (
                SecretPlace(row["namespace_id"], row["name"], row["version"]),
                Sealed(row["key_id"], row["wrapped_key"], b""),
            )
            for row in rows
        ]

    async def put_wrapped(self, rewrapped: Sequence[tuple[SecretPlace, Sealed]]) -> int:
        [key_id] = {sealed.key_id for _, sealed in rewrapped}
        rows = await self._database.fetch(
            self._queries["put_wrapped"],
            key_id=key_id,
            namespace_ids=[place.namespace_id for place, _ in rewrapped],
            names=[place.name for place, _ in rewrapped],
            versions=[place.version for place, _ in rewrapped],
            wrapped=[sealed.wrapped_key for _, sealed in rewrapped],
        )
        return len(rows)

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> Sequence[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _change(description: str | None, grant: Grant | UnsetType, changed_by: str) -> dict[str, Any]:
    return {
        "description": description,
        "grants": None if grant is UNSET or grant == EVERY_JOB else to_json(grant),
        "keep_grants": grant is UNSET,
        "changed_by": changed_by,
    }


def _secret(row: Record) -> SecretRow:
    run_id = row["last_used_run"]
    return SecretRow(
        row["name"],
        row["version"],
        row["description"],
        grant_from_json(from_json(row["grants"])),
        row["created_at"],
        row["updated_at"],
        row["updated_by"],
        row["jobs"],
        row["last_used_at"],
        None if run_id is None else UUID(run_id),
    )
