"""Uploaded code: what there is, and which jobs use it."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.artifacts import Reference
from hourhand.ports.artifact_stores import ArtifactRow, JobUsing

_JOBS_NAMED_MAX: Final = 5
Rows = Sequence[ArtifactRow]  # inside a class with a method `list`, that word is the method


class Artifacts:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "artifacts.sql", database.schema)

    async def put(self, namespace_id: int, row: ArtifactRow) -> UUID | None:
        same = {"namespace_id": namespace_id, "name": row.name, "digest": row.digest}
        async with self._database.transaction() as db:
            old = await self._fetch(db, "lock_same_artifact", **same)
            await self._fetch(
                db,
                "put_artifact",
                **same,
                artifact_id=row.artifact_id,
                size=row.size,
                form=row.form,
                entries=row.entries,
                unpacked_bytes=row.unpacked_bytes,
                uploaded_at=row.uploaded_at,
                uploaded_by=row.uploaded_by,
                signature=row.signature,
                signed_by=row.signed_by,
            )
        return old[0]["artifact_id"] if old else None

    async def list(self, namespace_id: int, name: str | None, before: UUID | None, limit: int) -> Rows:
        rows = await self._database.fetch(
            self._queries["list_artifacts"], namespace_id=namespace_id, name=name, before=before, limit=limit
        )
        return tuple(_artifact(row) for row in rows)

    async def find(self, namespace_id: int, reference: Reference) -> ArtifactRow | None:
        row = await self._database.fetch_one(
            self._queries["find_artifact"], namespace_id=namespace_id, name=reference.name, digest=reference.digest
        )
        return None if row is None else _artifact(row)

    async def find_in(self, namespace: str, reference: Reference) -> ArtifactRow | None:
        row = await self._database.fetch_one(
            self._queries["find_artifact_in"], namespace=namespace, name=reference.name, digest=reference.digest
        )
        return None if row is None else _artifact(row)

    async def delete(self, namespace_id: int, artifact_id: UUID) -> Sequence[JobUsing] | None:
        async with self._database.transaction() as db:
            found = await self._fetch(db, "lock_artifact", namespace_id=namespace_id, artifact_id=artifact_id)
            if not found:
                return None
            name, digest = found[0]["name"], f"sha256:{found[0]['digest']}"
            refs = [f"{name}@{digest}"]
            refs += [name] if found[0]["newest"] else []  # else the name goes on to mean a newer one
            refs += [digest] if found[0]["only"] else []
            users = await self._fetch(
                db, "jobs_of_artifact", namespace_id=namespace_id, refs=refs, limit=_JOBS_NAMED_MAX
            )
            if not users:
                await self._fetch(db, "delete_artifact", namespace_id=namespace_id, artifact_id=artifact_id)
            return [JobUsing(row["job_id"], row["name"]) for row in users]

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> Sequence[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def _artifact(row: Record) -> ArtifactRow:
    return ArtifactRow(**dict(row))
