"""Outcomes that the database cannot take now, kept in a file until it can.

One file per executor, made when it is first needed and gone when everything in it is delivered. A lock that the kernel
gives back with the process tells whether its executor still lives: the next one to start in the same folder adopts what
the dead have left and delivers it. Delivering is fenced, so an outcome that is delivered twice, or too late, changes
nothing. Everything here waits for the disk and belongs into a thread of its own.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from hourhand.ports.stores import Finish, Requeue

Entry = Finish | Requeue
SUFFIX: Final = ".outcomes"


class _Line(msgspec.Struct, omit_defaults=True):
    """One outcome, as it stands in the file."""

    finish: Finish | None = None
    requeue: Requeue | None = None


_encode = msgspec.json.Encoder(enc_hook=str).encode
_decode = msgspec.json.Decoder(_Line).decode


class JournalFull(Exception):
    """No room is left for these outcomes; those before them are kept."""


class Journal:
    def __init__(self, folder: Path, name: str, bytes_max: int) -> None:
        self._folder = folder
        self._name = re.sub(r"[^\w.-]", "_", name)
        self._bytes_max = bytes_max
        self._file: int | None = None
        self._path = folder
        self._bytes = 0

    def fault(self) -> str | None:
        """Why nothing could be kept here, as far as that can be said before."""
        nearest = next(path for path in (self._folder, *self._folder.parents) if os.path.exists(path))
        if not nearest.is_dir():
            return f"{nearest} is not a folder"
        return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} is not writable"

    def append(self, entries: Sequence[Entry]) -> None:
        """Returns when they are on disk. Raises OSError, or JournalFull when they do not fit."""
        data = b"".join(map(_line, entries))
        if self._bytes + len(data) > self._bytes_max:
            raise JournalFull(f"{self._bytes_max} bytes are not enough")
        if self._file is None:
            self._file = self._make()
        try:
            _write(self._file, data)
            os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):  # half a line would swallow the one that is written after it
                os.ftruncate(self._file, self._bytes)
            raise
        self._bytes += len(data)

    def clear(self) -> None:
        """Everything was delivered. The file goes too: one that is there means that something waits in it."""
        if self._file is not None:
            with suppress(FileNotFoundError):
                self._path.unlink()
            os.close(self._file)  # after that the lock is gone
            self._file = None
            self._bytes = 0

    def close(self) -> None:
        """Lets go of the file and of what is in it: the next executor delivers that."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def orphans(self) -> Iterator["Orphan"]:
        """What dead executors have left here, one file after the other."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path != self._path and (file := _lock(path)) is not None:
                yield Orphan(path, file)

    def _make(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            # Process numbers come again, in containers even every time.
            path = self._folder / f"{self._name}-{secrets.token_hex(4)}{SUFFIX}"
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:  # else somebody took it for an orphan before it was locked
                break
            os.close(file)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # without it the file's name could be lost with the power
        finally:
            os.close(folder)
        self._path, self._bytes = path, 0
        return file


class Orphan:
    """A file whose executor is gone, in our hands alone."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file = file
        self.unreadable = 0
        """Lines that say nothing any more. One at the end is usual: the executor died while writing it."""
        self.entries = self._read()

    def remove(self) -> None:
        """Its outcomes were delivered."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self.release()

    def release(self) -> None:
        os.close(self._file)

    def _read(self) -> list[Entry]:
        entries: list[Entry] = []
        for line in self.path.read_bytes().splitlines():
            try:
                read = _decode(line)
            except msgspec.MsgspecError:
                self.unreadable += 1
                continue
            entry = read.finish or read.requeue
            if entry is not None:
                entries.append(entry)
        return entries


def _lock(path: Path) -> int | None:
    """The file, locked; None when its executor lives or somebody else was quicker."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink:
            return file
    except OSError:
        pass
    os.close(file)
    return None


def _line(entry: Entry) -> bytes:
    try:
        return _encoded(entry)
    except (ValueError, TypeError):  # a result that is no JSON, an error with half a pair of surrogates
        error = None if entry.error is None else entry.error.encode(errors="replace").decode()
        told = {"error": error} if isinstance(entry, Requeue) else {"error": error, "result": None}
        return _encoded(msgspec.structs.replace(entry, **told))


def _encoded(entry: Entry) -> bytes:
    return _encode(_Line(finish=entry) if isinstance(entry, Finish) else _Line(requeue=entry)) + b"\n"


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
