"""Files that runs have left, as rows; their content is in blobs."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hourhand.database.connections import Connection, Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.run_blobs import BlobOwner, RunFile


class RunFiles:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "run_files.sql", database.schema)

    async def add_on(self, db: Connection, files: Sequence[tuple[UUID, RunFile]]) -> None:
        """Inside the transaction that records the end of the attempts which have left them."""
        await self._database.fetch_on(db, self._queries["add_run_files"], **_values(files))

    async def run_files(self, run_id: UUID, attempt: int, limit: int) -> list[RunFile]:
        rows = await self._database.fetch(self._queries["run_files"], run_id=run_id, attempt=attempt, limit=limit)
        return [_file(row) for row in rows]

    async def find_run_file(self, run_id: UUID, attempt: int, name: str) -> RunFile | None:
        row = await self._database.fetch_one(self._queries["find_run_file"], run_id=run_id, attempt=attempt, name=name)
        return None if row is None else _file(row)

    async def unneeded_blobs(self, owners: Sequence[BlobOwner]) -> list[int]:
        rows = await self._database.fetch(
            self._queries["unneeded_blobs"],
            run_ids=[owner.run_id for owner in owners],
            fences=[owner.fence for owner in owners],
            numbers=[owner.number for owner in owners],
        )
        return [row["position"] - 1 for row in rows]

    async def days_with_rows(self) -> set[str]:
        rows = await self._database.fetch(self._queries["days_with_rows"], schema=self._database.schema)
        return {row["day"] for row in rows}


def _values(files: Sequence[tuple[UUID, RunFile]]) -> dict[str, Any]:
    return {
        "run_ids": [run_id for run_id, _ in files],
        "fences": [file.fence for _, file in files],
        "numbers": [file.number for _, file in files],
        "attempts": [file.attempt for _, file in files],
        "names": [file.name for _, file in files],
        "sizes": [file.size for _, file in files],
        "digests": [bytes.fromhex(file.digest) for _, file in files],
    }


def _file(row: Record) -> RunFile:
    return RunFile(row["number"], row["name"], row["size"], row["digest"], row["attempt"], row["fence"])
