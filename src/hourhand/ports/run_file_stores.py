"""Where it is written down what runs have left in blobs."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from hourhand.model.run_blobs import BlobOwner, RunFile


class RunFileStore(Protocol):
    """Rows are written by the store of live runs, in the transaction that ends their attempt."""

    async def run_files(self, run_id: UUID, attempt: int, limit: int) -> list[RunFile]:
        """What one attempt has left, by name."""

    async def find_run_file(self, run_id: UUID, attempt: int, name: str) -> RunFile | None: ...


class BlobNames(Protocol):
    """Which blobs rows name, for whoever looks for rubbish."""

    async def unneeded_blobs(self, owners: Sequence[BlobOwner]) -> list[int]:
        """The positions of those that no row names and that none can name any more. Asked after the blobs were seen:
        the answer stays true for ever."""

    async def days_with_rows(self) -> set[str]:
        """The days ("20261116") of which rows of runs may still be there."""
