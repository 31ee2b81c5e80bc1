"""Keeps what attempts leave behind besides their outcome: files, and results that are too large for a row.

The content goes to blobs before the outcome is recorded; the rows that name it are written with the outcome, under its
fence. What an attempt that is never recorded has left is named by no row, and is cleared up later.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from hourhand.executor.output_folder import OutputFolder
from hourhand.executor.settings import ExecutorSettings
from hourhand.model.errors import BlobsUnavailable, ResultTooLarge
from hourhand.model.masking import Masker
from hourhand.model.outcome import Failed, Succeeded, clipped
from hourhand.model.run import Claim
from hourhand.model.run_blobs import (
    LargeResult,
    ResultReference,
    RunFile,
    file_key,
    needs_blob,
    result_key,
    stored_form,
)
from hourhand.model.states import Reason
from hourhand.ports.blobs import Blobs, Stored
from hourhand.runtime.clock import DatabaseClock

_PIECE_BYTES: Final = 1024 * 1024
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0
"""Before the second try; four times as long before each further one."""
_WATCH_SECONDS: Final = 0.25
"""How soon an attempt that is stopped lets go of what it is just keeping."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


class InHand(Protocol):
    claim: Claim
    started_at: datetime | None
    recorded: bool
    files: tuple[RunFile, ...]
    output_fault: str | None
    masker: Masker | None

    def is_stopping(self) -> bool: ...

    def __call__(self, stream: str, text: str) -> None: ...


class Outputs:
    def __init__(self, blobs: Blobs, clock: DatabaseClock, settings: ExecutorSettings) -> None:
        self._blobs = blobs
        self._clock = clock
        self._settings = settings

    async def keep(self, attempt: InHand, path: Path) -> None:
        """Keeps the files in a folder. Never raises for anything in it: what is left out is told in the run's log, and
        what could not be kept is left in `output_fault`."""
        try:
            folder = OutputFolder(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                attempt("log", f"files of the run are not kept: the output folder is {_words(error)}")
            return
        try:
            if folder.is_empty():  # as nearly always: not worth a thread
                return
            if attempt.recorded:
                attempt("log", "files that were left after ctx.transaction() had completed the run are not kept")
                return
            await self._watched(attempt, self._keep_files(attempt, folder))
        except (BlobsUnavailable, OSError) as error:
            attempt.output_fault = clipped(f"the files of the run could not be kept: {error}")
            attempt("log", attempt.output_fault)
        finally:
            folder.close()

    async def _watched(self, attempt: InHand, keeping: Any) -> None:
        """Ends it when the attempt is stopped or its time is over, of which its kind may not tell us."""
        task = asyncio.ensure_future(keeping)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_WATCH_SECONDS)
                if not task.done() and (attempt.is_stopping() or self._is_over(attempt)):
                    raise BlobsUnavailable("the attempt was ended before they were")
            task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def _is_over(self, attempt: InHand) -> bool:
        claim, now = attempt.claim, self._clock.now()
        if claim.deadline is not None and now >= claim.deadline:
            return True
        if claim.timeout_seconds is None or attempt.started_at is None:
            return False
        return (now - attempt.started_at).total_seconds() >= claim.timeout_seconds

    async def _keep_files(self, attempt: InHand, folder: OutputFolder) -> None:
        settings = self._settings
        listing = await asyncio.to_thread(
            folder.look_through, settings.output_files_max - len(attempt.files), settings.output_bytes_max
        )
        for name in listing.names:
            try:
                attempt.files += (await self._keep_file(attempt, folder, name),)
            except OSError as error:
                listing.leave_out(name, _words(error))
        for line in listing.told():
            attempt("log", line)

    async def _keep_file(self, attempt: InHand, folder: OutputFolder, name: str) -> RunFile:
        claim, number = attempt.claim, len(attempt.files)
        stored = await self._put(file_key(claim.run_id, claim.fence, number), lambda: _content(folder, name))
        return RunFile(number, _name_told(attempt, name), stored.size, stored.digest, claim.attempt, claim.fence)

    async def keep_result(self, attempt: InHand, outcome: Succeeded | Failed) -> Succeeded | Failed:
        """The outcome with a reference in the place of its result."""
        try:
            return replace(outcome, result=await self.stored_result(attempt, outcome.result))
        except ResultTooLarge as error:
            return Failed(Reason.RESULT_TOO_LARGE, str(error), retryable=False)
        except BlobsUnavailable as error:
            return Failed(Reason.OUTPUT_NOT_KEPT, clipped(f"the result could not be kept: {error}"))

    async def stored_result(self, attempt: InHand, result: Any) -> Any:
        """What stands in the row: the result itself, or a reference to the blob that it has become. Raises
        ResultTooLarge and BlobsUnavailable."""
        if not wants_blob(result):
            return result
        encoded = result.encoded if isinstance(result, LargeResult) else _encode(result)
        if len(encoded) > self._settings.result_bytes_max:
            raise ResultTooLarge(len(encoded), self._settings.result_bytes_max)
        claim = attempt.claim
        stored = await self._put(result_key(claim.run_id, claim.fence), lambda: _once(encoded))
        return stored_form(ResultReference(stored.size, stored.digest, claim.fence))

    async def _put(self, key: str, content: Callable[[], AsyncIterator[bytes]]) -> Stored:
        pause = _PAUSE_SECONDS
        for _ in range(_TRIES - 1):
            with suppress(BlobsUnavailable):
                return await self._blobs.put(key, content())
            await asyncio.sleep(pause)
            pause *= 4
        return await self._blobs.put(key, content())


def wants_blob(result: Any) -> bool:
    """Whether it cannot stand in a row: too large, or it would be taken for a reference there."""
    return type(result) is LargeResult or needs_blob(result)


def _name_told(attempt: InHand, name: str) -> str:
    """The name without values of secrets: it stands in rows, lists and addresses. No two become one by that."""
    if attempt.masker is None or (told := attempt.masker.text(name)) == name:
        return name
    taken = {file.name for file in attempt.files}
    return told if told not in taken else f"{told} {len(attempt.files)}"


async def _content(folder: OutputFolder, name: str) -> AsyncIterator[bytes]:
    """At most as many bytes as the file has when it is opened: somebody may still write to it, for ever."""
    file = await asyncio.to_thread(folder.open_file, name)
    try:
        left = os.fstat(file).st_size
        while left > 0:
            piece = await asyncio.to_thread(os.read, file, min(_PIECE_BYTES, left))
            if not piece:
                return
            left -= len(piece)
            yield piece
    finally:
        os.close(file)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
