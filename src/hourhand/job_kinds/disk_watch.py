"""Looks how much disk attempts take, in bytes and in files, and tells of those that have taken too much.

A kernel limits the disk of a user or of a folder only where its file system was made for it, and the size of a single
file also where that file is none of our business. So folders are looked at: the first time after a second, so that
programs that are over sooner cost nothing, and then as often as a fast disk could bring them to their limit, at least
once a minute. What is measured is what the file system has given: all in the folder, and what was deleted there but is
kept open. Files count by their names, folders like files: each of them takes one of a number that a file system may not
be able to raise, and time to be looked at and removed. Between two looks an attempt can take more than its limit; but
the last look is at what it has left when it is over, so what is left is never more.
"""

import asyncio
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hourhand.job_kinds.cgroups import cache_in
from hourhand.job_kinds.deep_folders import entries_below
from hourhand.job_kinds.launcher_kernel import members

LOOK_SECONDS: Final = 1.0
_LOOK_SECONDS_MAX: Final = 60.0
_BYTES_PER_SECOND: Final = 2 * 10**9
_FILES_PER_SECOND: Final = 100_000
"""No faster is a folder expected to grow: so long it is left alone."""
_REST: Final = 4
"""After a look, so many times as long as it took nobody looks: large folders cost a fifth of a core at most."""
_BLOCK_BYTES: Final = 512
_ENTRIES_AT_ONCE: Final = 500
_BREATH_SECONDS: Final = 0.001


class Taken(NamedTuple):
    """What an attempt has of a disk, or may have."""

    bytes: int
    files: int

    def exceeds(self, limit: "Taken") -> bool:
        return self.bytes > limit.bytes or self.files > limit.files

    def seconds_to(self, limit: "Taken") -> float:
        """How long it takes at least to get there from here."""
        by_bytes, by_files = limit.bytes - self.bytes, limit.files - self.files
        return min(by_bytes / _BYTES_PER_SECOND, by_files / _FILES_PER_SECOND)


@dataclass(slots=True)
class Watched:
    """An attempt under way."""

    folder: Path
    group: str | None
    """Its control group, by which its processes are found."""
    limit: Taken
    tell: Callable[[Taken], None]
    """Called once, when it has taken more."""
    look_at: float
    bytes_peak: int | None = None
    """The most that was seen; None: nobody has looked yet."""
    memory_stat: str | None = None
    """The file that says what the memory of its control group is used for. Whoever writes much to a disk has much of
    it as the cache of files, which goes when the files go: it has to be seen before that."""
    cached_peak: int | None = None
    """The most that was seen of that cache."""

    def look_last(self) -> Taken:
        """At what is left when nobody lives any more who could take more. Belongs into a thread."""
        taken = taken_in(self.folder, None, self.limit)
        self.bytes_peak = max(taken.bytes, self.bytes_peak or 0)
        return taken


class DiskWatch:
    """Those of all programs of an executor."""

    def __init__(self, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._watched: dict[Path, Watched] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def watch(
        self,
        folder: Path,
        group: str | None,
        limit: Taken,
        tell: Callable[[Taken], None],
        memory_stat: str | None = None,
    ) -> Watched:
        """The program in this folder has been started."""
        look_at = time.monotonic() + self._look_seconds
        watched = Watched(folder, group, limit, tell, look_at, memory_stat=memory_stat)
        self._watched[folder] = watched
        if self._timer is None and self._looking is None:
            self._timer = asyncio.get_running_loop().call_later(self._look_seconds, self._begin)
        return watched

    def forget(self, folder: Path) -> None:
        """It is over. May be called for a folder that nobody watches."""
        self._watched.pop(folder, None)

    async def close(self) -> None:
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            await asyncio.wait({self._looking})

    def _begin(self) -> None:
        self._timer = None
        now = time.monotonic()
        due = [watched for watched in self._watched.values() if watched.look_at <= now]
        if due:
            self._looking = asyncio.create_task(self._look(due))
        else:
            self._rest(0.0)

    async def _look(self, due: list[Watched]) -> None:
        began = time.monotonic()
        try:
            for watched in due:
                if self._watched.get(watched.folder) is not watched:
                    continue  # it has ended meanwhile
                taken = await asyncio.to_thread(taken_in, watched.folder, watched.group, watched.limit)
                watched.bytes_peak = max(taken.bytes, watched.bytes_peak or 0)
                _look_at_memory(watched)
                left = taken.seconds_to(watched.limit)
                watched.look_at = time.monotonic() + min(max(left, self._look_seconds), _LOOK_SECONDS_MAX)
                if taken.exceeds(watched.limit) and self._watched.pop(watched.folder, None) is watched:
                    watched.tell(taken)
        finally:
            self._looking = None
            self._rest(_REST * (time.monotonic() - began))

    def _rest(self, seconds: float) -> None:
        if self._watched:
            pause = max(seconds, self._look_seconds)
            self._timer = asyncio.get_running_loop().call_later(pause, self._begin)


def _look_at_memory(watched: Watched) -> None:
    if watched.memory_stat is None:
        return
    with suppress(OSError), open(watched.memory_stat) as file:  # it may have ended meanwhile
        cached = cache_in(file.read())
        if cached is not None:
            watched.cached_peak = max(cached, watched.cached_peak or 0)


def taken_in(folder: Path, group: str | None, enough: Taken) -> Taken:
    """What all in the folder takes of its file system, each file's bytes once however often it is named there; with
    those of what is still open but has no name any more. Ends when it is more than `enough`."""
    seen: set[int] = set()
    used = files = 0
    try:
        device = os.lstat(folder).st_dev
        for entry in entries_below(folder):
            files += 1
            if files % _ENTRIES_AT_ONCE == 0:
                time.sleep(_BREATH_SECONDS)  # others have something to do too
            used += _bytes_of(entry, device, seen)
            if used > enough.bytes or files > enough.files:
                return Taken(used, files)
    except OSError:  # it is gone
        return Taken(used, files)
    if group is not None:
        used += _bytes_without_name(group, device, seen)
    return Taken(used, files)


def size_of_files(folder: Path, enough: int) -> int:
    """The bytes that one would read from all plain files in it, which may be far more than they take: holes are free.
    Ends when it is more than `enough`."""
    size = 0
    with suppress(OSError):  # it is gone
        for entry in entries_below(folder):
            with suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                size += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
            if size > enough:
                break
    return size


def _bytes_of(entry: "os.DirEntry[str]", device: int, seen: set[int]) -> int:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    if facts.st_dev != device or facts.st_ino in seen:
        return 0
    if facts.st_nlink > 1 and not stat.S_ISDIR(facts.st_mode):
        seen.add(facts.st_ino)
    return facts.st_blocks * _BLOCK_BYTES


def _bytes_without_name(group: str, device: int, seen: set[int]) -> int:
    """Programs delete files that they go on writing to: most do so with those that are temporary."""
    used = 0
    for pid in members(os.fsencode(group)):
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as handles:
            for handle in handles:
                with suppress(OSError):
                    facts = os.stat(handle.path)
                    is_nameless = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0
                    if is_nameless and facts.st_dev == device and facts.st_ino not in seen:
                        seen.add(facts.st_ino)
                        used += facts.st_blocks * _BLOCK_BYTES
    return used
