"""What is known of logs that have left the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.log_pack import PackedRow, Packer, Segment


@dataclass(frozen=True, slots=True)
class Pack:
    pack_id: UUID
    blob_key: str
    size_bytes: int
    segments: Sequence[Segment]


class LogPackStore(Protocol):
    async def packs_of_run(self, run_id: UUID) -> list[Pack]:
        """Those that can hold lines of the run."""

    async def large_logs(self, limit: int) -> list[UUID]:
        """Final runs whose log is so large that it should not wait for its age."""

    async def rows_to_move(self, after: tuple[UUID, int, int], before_id: UUID, limit: int) -> list[PackedRow]:
        """Rows of final runs behind a place and before a run, in order."""

    async def last_packed(self) -> UUID | None:
        """The last run of all packs that hold many."""

    async def begin_pack(
        self, node_id: int, epoch: int, pack_id: UUID, first_run: UUID, last_run: UUID, blob_key: str
    ) -> bool:
        """Notes that a pack is being made, under the leader's lease. False when that has passed."""

    async def finish_pack(self, node_id: int, epoch: int, pack_id: UUID, packer: Packer) -> bool:
        """Lets the pack take the place of its rows, all at once. False, and nothing changes, when the lease has
        passed."""

    async def forget_large(self, run_ids: Sequence[UUID]) -> None:
        """Nothing of these is in the database any more."""

    async def packs_to_drop(self, before: datetime, but: UUID, limit: int) -> list[tuple[UUID, str]]:
        """Packs of runs from before then, and unfinished ones except `but`, with the keys of their blobs."""

    async def drop_packs(self, node_id: int, epoch: int, pack_ids: Sequence[UUID]) -> int:
        """Forgets them, under the leader's lease; their blobs are gone already."""
