"""Logs that have left the database: what the packs hold and where."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.ids import lowest_id_at
from hourhand.model.log_pack import PackedRow, Packer, Segment
from hourhand.ports.log_pack_stores import Pack


class LogPacks:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "log_packs.sql", database.schema)

    async def packs_of_run(self, run_id: UUID) -> list[Pack]:
        rows = await self._database.fetch(self._queries["packs_of_run"], run_id=run_id)
        columns = ("segment_runs", "segment_attempts", "segment_lines", "segment_starts")
        return [
            Pack(
                row["pack_id"],
                row["blob_key"],
                row["size_bytes"],
                [Segment(*each) for each in zip(*(row[name] for name in columns), strict=True)],
            )
            for row in rows
        ]

    async def large_logs(self, limit: int) -> list[UUID]:
        return [row["run_id"] for row in await self._database.fetch(self._queries["large_logs"], limit=limit)]

    async def rows_to_move(self, after: tuple[UUID, int, int], before_id: UUID, limit: int) -> list[PackedRow]:
        run_id, attempt, first_line = after
        rows = await self._database.fetch(
            self._queries["rows_to_move"],
            run_id=run_id,
            attempt=attempt,
            first_line=first_line,
            before_id=before_id,
            limit=limit,
        )
        return [PackedRow(**dict(row)) for row in rows]

    async def last_packed(self) -> UUID | None:
        row = await self._database.fetch_one(self._queries["last_packed"])
        return None if row is None else row["last_run"]

    async def begin_pack(
        self, node_id: int, epoch: int, pack_id: UUID, first_run: UUID, last_run: UUID, blob_key: str
    ) -> bool:
        made = await self._database.fetch_one(
            self._queries["begin_pack"],
            node_id=node_id,
            epoch=epoch,
            pack_id=pack_id,
            first_run=first_run,
            last_run=last_run,
            blob_key=blob_key,
        )
        return made is not None

    async def finish_pack(self, node_id: int, epoch: int, pack_id: UUID, packer: Packer) -> bool:
        segments, keys = packer.segments, packer.keys
        done = await self._database.fetch_one(
            self._queries["finish_pack"],
            node_id=node_id,
            epoch=epoch,
            pack_id=pack_id,
            size_bytes=packer.size,
            line_count=packer.line_count,
            segment_runs=[segment.run_id for segment in segments],
            segment_attempts=[segment.attempt for segment in segments],
            segment_lines=[segment.first_line for segment in segments],
            segment_starts=[segment.start for segment in segments],
            run_ids=[key[0] for key in keys],
            attempts=[key[1] for key in keys],
            first_lines=[key[2] for key in keys],
        )
        return done is not None

    async def forget_large(self, run_ids: Sequence[UUID]) -> None:
        await self._database.fetch(self._queries["forget_large_logs"], run_ids=run_ids)

    async def packs_to_drop(self, before: datetime, but: UUID, limit: int) -> list[tuple[UUID, str]]:
        rows = await self._database.fetch(
            self._queries["packs_to_drop"], before_id=lowest_id_at(before), but=but, limit=limit
        )
        return [(row["pack_id"], row["blob_key"]) for row in rows]

    async def drop_packs(self, node_id: int, epoch: int, pack_ids: Sequence[UUID]) -> int:
        rows = await self._database.fetch(self._queries["drop_packs"], node_id=node_id, epoch=epoch, pack_ids=pack_ids)
        return len(rows)
