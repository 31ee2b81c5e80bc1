"""Reads logs that have left the database."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import Final
from uuid import UUID

from hourhand.model.errors import BlobsUnavailable
from hourhand.model.log import LogRow, Place
from hourhand.model.log_pack import PackedRow, rows_in, segments_from
from hourhand.ports.blobs import BlobMissing, Blobs
from hourhand.ports.log_pack_stores import LogPackStore, Pack

SEGMENTS_KEPT_MAX: Final = 8
"""Segments that stay unpacked for whoever reads on: pages are shorter than they are."""


class PackReader:
    def __init__(self, packs: LogPackStore, blobs: Blobs) -> None:
        self._packs = packs
        self._blobs = blobs
        self._unpacked: OrderedDict[tuple[UUID, int, UUID], list[PackedRow]] = OrderedDict()

    async def rows(self, run_id: UUID, after: Place) -> AsyncGenerator[LogRow, None]:
        for pack in await self._packs.packs_of_run(run_id):
            for at in segments_from(pack.segments, run_id, after):
                for row in await self._segment(pack, at, run_id):
                    if row.as_row().end > after:
                        yield row.as_row()

    async def _segment(self, pack: Pack, at: int, run_id: UUID) -> list[PackedRow]:
        key = (pack.pack_id, at, run_id)
        found = self._unpacked.get(key)
        if found is None:
            start = pack.segments[at].start
            end = pack.segments[at + 1].start if at + 1 < len(pack.segments) else pack.size_bytes
            try:
                packed = b"".join([piece async for piece in self._blobs.get(pack.blob_key, start, end)])
            except BlobMissing:
                moved = f"the log of run {run_id} has moved to the storage of blobs, where {pack.blob_key} is missing"
                remedy = "see that blobs.url is the same place for every node"
                raise BlobsUnavailable(f"{moved}: {remedy}") from None
            found = await asyncio.to_thread(lambda: list(rows_in(packed, run_id)))
            self._unpacked[key] = found
            while len(self._unpacked) > SEGMENTS_KEPT_MAX:
                self._unpacked.popitem(last=False)
        return found
