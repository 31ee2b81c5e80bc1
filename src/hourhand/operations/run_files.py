"""What a caller may ask of what runs have left: their files, and results that are too large to be shown with them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from hourhand.model.errors import BlobsUnavailable, NotFound
from hourhand.model.run import Run
from hourhand.model.run_blobs import ResultReference, RunFile, file_key, result_key
from hourhand.operations.requests import Caller
from hourhand.ports.blobs import BlobMissing, Blobs
from hourhand.ports.run_file_stores import RunFileStore

FILES_MAX: Final = 100_000
"""As many as an attempt can have been allowed to leave."""


class Runs(Protocol):
    async def get(self, caller: Caller, run_id: UUID) -> Run: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """Content that can be read, from anywhere to anywhere."""

    key: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class RunFileList:
    run: Run
    attempt: int
    files: list[RunFile]


class RunFileOperations:
    def __init__(self, runs: Runs, files: RunFileStore, blobs: Blobs) -> None:
        self._runs = runs
        self._files = files
        self._blobs = blobs

    async def list(self, caller: Caller, run_id: UUID, attempt: int | None) -> RunFileList:
        """What an attempt has left; without a number the last one."""
        run = await self._runs.get(caller, run_id)
        attempt = run.attempt if attempt is None else attempt
        return RunFileList(run, attempt, await self._files.run_files(run_id, attempt, FILES_MAX))

    async def find(self, caller: Caller, run_id: UUID, name: str, attempt: int | None) -> Kept:
        run = await self._runs.get(caller, run_id)
        file = await self._files.find_run_file(run_id, run.attempt if attempt is None else attempt, name)
        if file is None:
            raise NotFound("file", name[:300])
        return Kept(file_key(run_id, file.fence, file.number), file.size, file.digest)

    async def result(self, caller: Caller, run_id: UUID) -> Kept | Any:
        """The result itself, or where its content is."""
        run = await self._runs.get(caller, run_id)
        reference: ResultReference | None = run.result_reference
        if reference is not None:
            return Kept(result_key(run_id, reference.fence), reference.size, reference.digest)
        if run.result is None:
            raise NotFound("result of run", run_id)
        return run.result

    async def read(self, kept: Kept, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Its bytes, piece by piece. A row without its blob, or with a shorter one, is told as what it is: storage that
        is not the same for all nodes, or has lost something."""
        source = self._blobs.get(kept.key, start, end)
        left, held, is_first = end - start, b"", True
        try:
            async with aclosing(source):  # type: ignore[type-var]
                async for piece in source:
                    left -= len(piece)
                    if is_first and left > 0:  # sent with the second one: what ends with the first is told as a problem
                        held, is_first = piece, False
                        continue
                    if held:
                        yield held
                        held = b""
                    yield piece
                    is_first = False
        except BlobMissing:
            remedy = "see that blobs.url is the same place for every node"
            raise BlobsUnavailable(f"the content is not in the storage of blobs: {remedy}") from None
        if left > 0:
            raise BlobsUnavailable(f"the content in the storage of blobs was cut short: {left} bytes are missing")
