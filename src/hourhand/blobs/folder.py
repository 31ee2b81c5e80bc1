"""Blobs in a folder: one file per key, whole or not there.

A blob is written under another name, made durable, and only then given its own; a crash at any moment leaves at most a
file in `.incoming`, which nobody takes for a blob. Everything belongs to the node's user alone.
"""

import asyncio
import contextlib
import itertools
import os
import stat
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from hourhand.blobs.pieces import Measured
from hourhand.model.errors import BlobsUnavailable, BlobsUnsuitable
from hourhand.ports.blobs import BlobMissing, Found, Stored, is_key

_T = TypeVar("_T")

_INCOMING: Final = ".incoming"
_PIECE_BYTES: Final = 1024 * 1024
"""Read, digested and written at once: large enough that the way to a thread costs nothing beside it."""
_THREADS_MAX: Final = 4
_LISTED_AT_ONCE: Final = 1000
_INCOMING_KEPT_SECONDS: Final = 86400.0
"""A file that nobody has written to for so long is what a dead writer left."""


class FolderBlobs:
    def __init__(self, root: Path) -> None:
        self._root = root
        # Not the threads of everybody: making a large file durable takes seconds, and programs are started by those.
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="blobs")

    async def check(self) -> None:
        try:
            await self._in_thread(self._prepare)
        except OSError as error:
            raise BlobsUnsuitable(f"blobs cannot be kept in {self._root}: {_words(error)}") from None

    def _prepare(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.chmod(0o700)
        incoming = self._root / _INCOMING
        incoming.mkdir(mode=0o700, exist_ok=True)
        trial = incoming / f"{uuid.uuid4().hex}.trial"
        trial.touch(mode=0o600)
        trial.unlink()
        self._clear(incoming)

    @staticmethod
    def _clear(incoming: Path) -> None:
        long_ago = datetime.now(UTC).timestamp() - _INCOMING_KEPT_SECONDS
        with os.scandir(incoming) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another node clears up as well
                    if entry.stat(follow_symlinks=False).st_mtime < long_ago:
                        os.unlink(entry.path)

    async def put(self, key: str, content: AsyncIterable[bytes]) -> Stored:
        place = self._place(key)
        temporary = self._root / _INCOMING / uuid.uuid4().hex
        measured = Measured(content, _PIECE_BYTES)
        try:
            with self._faults():
                file = await self._in_thread(self._create, temporary)
            try:
                async for piece in measured.pieces():
                    with self._faults():
                        await self._in_thread(_append, file, piece, measured)
                with self._faults():
                    await self._in_thread(os.fsync, file)
            finally:
                os.close(file)
            with self._faults():
                await self._in_thread(self._name, temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        return measured.stored

    def _create(self, temporary: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(temporary, flags, 0o600)
        except FileNotFoundError:  # somebody has cleared the folder away since the start
            self._prepare()
            return os.open(temporary, flags, 0o600)

    def _name(self, temporary: Path, place: Path) -> None:
        for _ in range(10):
            try:
                made = self._make_folders(place.parent)
                os.rename(temporary, place)
            except FileNotFoundError:
                continue  # a delete has taken the folder away again, because it was empty
            for folder in {place.parent, *made}:
                _sync_folder(folder)
            return
        raise FileNotFoundError(place)

    def _make_folders(self, folder: Path) -> list[Path]:
        """Makes what is missing; the folders that have got a new one in them."""
        missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
        return [each.parent for each in missing]

    async def get(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        place = self._place(key)
        with self._faults():
            try:
                file = await self._in_thread(_open_file, place)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise BlobMissing(key) from None
        try:
            while end is None or start < end:
                wanted = _PIECE_BYTES if end is None else min(_PIECE_BYTES, end - start)
                with self._faults():
                    piece = await self._in_thread(os.pread, file, wanted, start)
                if not piece:
                    return
                start += len(piece)
                yield piece
        finally:
            os.close(file)

    async def delete(self, keys: Sequence[str]) -> None:
        places = [self._place(key) for key in keys]
        with self._faults():
            await self._in_thread(self._remove, places)

    def _remove(self, places: Sequence[Path]) -> None:
        for place in places:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                place.unlink()
        for folder in {place.parent for place in places}:
            self._remove_empty(folder)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._root and self._root in folder.parents:
            try:
                folder.rmdir()
            except OSError:  # something else is in it, or it is gone
                return
            folder = folder.parent

    async def list(self, prefix: str) -> AsyncIterator[Sequence[Found]]:
        walk = self._walk(self._place(prefix))
        while True:
            with self._faults():
                batch = await self._in_thread(_take, walk, _LISTED_AT_ONCE)
            if not batch:
                return
            yield batch

    def _walk(self, folder: Path) -> Iterator[Found]:
        waiting = [folder]
        while waiting:
            try:
                entries = list(os.scandir(waiting.pop()))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                    continue
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    key = str(Path(entry.path).relative_to(self._root))
                    yield Found(key, facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC))

    async def words(self, prefix: str) -> Sequence[str]:
        with self._faults():
            return await self._in_thread(_folders_in, self._place(prefix))

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _in_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """As asyncio.to_thread; but one who is cancelled waits for the thread, which may be using a file of theirs."""
        working = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            while not working.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([working])
            raise

    def _place(self, key: str) -> Path:
        assert is_key(key), key
        return self._root / key

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Tells what the machine says in words. Not around reading the content: its faults are its own."""
        try:
            yield
        except OSError as error:
            raise BlobsUnavailable(f"the blobs in {self._root} cannot be used: {_words(error)}") from error


def _open_file(place: Path) -> int:
    file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise IsADirectoryError(place)
    return file


def _append(file: int, piece: bytearray, measured: Measured) -> None:
    measured.add(piece)
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _folders_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _take(walk: Iterator[Found], count: int) -> list[Found]:
    return list(itertools.islice(walk, count))


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
