"""Looks how much disk attempts take, and tells of those that have taken too much.

A kernel limits the disk of a user or of a folder only where its file system was made for it, and the size of a single
file also where that file is none of our business. So folders are looked at: the first time after a second, so that
programs that are over sooner cost nothing, and then as often as a fast disk could bring them to their limit, at least
once a minute. What is measured is what the file system has given: all in the folder, and what was deleted there but is
kept open. Between two looks an attempt can take more than its limit.
"""

import asyncio
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourhand.job_kinds.deep_folders import entries_below
from hourhand.job_kinds.launcher_kernel import members

LOOK_SECONDS: Final = 1.0
_LOOK_SECONDS_MAX: Final = 60.0
_BYTES_PER_SECOND: Final = 2 * 10**9
"""No faster is a folder expected to grow: so long it is left alone."""
_REST: Final = 4
"""After a look, so many times as long as it took nobody looks: large folders cost a fifth of a core at most."""
_BLOCK_BYTES: Final = 512
_ENTRIES_AT_ONCE: Final = 500
_BREATH_SECONDS: Final = 0.001


@dataclass(slots=True)
class Watched:
    """An attempt under way."""

    folder: Path
    group: str | None
    """Its control group, by which its processes are found."""
    bytes_max: int
    tell: Callable[[int], None]
    """Called once, when it has taken more."""
    look_at: float
    bytes_peak: int | None = None
    """The most that was seen; None: nobody has looked yet."""


class DiskWatch:
    """Those of all programs of an executor."""

    def __init__(self, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._watched: dict[Path, Watched] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def watch(self, folder: Path, group: str | None, bytes_max: int, tell: Callable[[int], None]) -> Watched:
        """The program in this folder has been started."""
        watched = Watched(folder, group, bytes_max, tell, time.monotonic() + self._look_seconds)
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
                used = await asyncio.to_thread(bytes_used, watched.folder, watched.group, watched.bytes_max)
                watched.bytes_peak = max(used, watched.bytes_peak or 0)
                left = (watched.bytes_max - used) / _BYTES_PER_SECOND
                watched.look_at = time.monotonic() + min(max(left, self._look_seconds), _LOOK_SECONDS_MAX)
                if used > watched.bytes_max and self._watched.pop(watched.folder, None) is watched:
                    watched.tell(used)
        finally:
            self._looking = None
            self._rest(_REST * (time.monotonic() - began))

    def _rest(self, seconds: float) -> None:
        if self._watched:
            pause = max(seconds, self._look_seconds)
            self._timer = asyncio.get_running_loop().call_later(pause, self._begin)


def bytes_used(folder: Path, group: str | None, enough: int) -> int:
    """What all in the folder takes of its file system, each file once however often it is named there; with what is
    still open but has no name any more. Ends when it is more than `enough`."""
    seen: set[int] = set()
    try:
        device = os.lstat(folder).st_dev
    except OSError:
        return 0
    used = 0
    with suppress(OSError):
        for count, entry in enumerate(entries_below(folder), 1):
            if count % _ENTRIES_AT_ONCE == 0:
                time.sleep(_BREATH_SECONDS)  # others have something to do too
            used += _bytes_of(entry, device, seen)
            if used > enough:
                break
    if used <= enough and group is not None:
        used += _bytes_without_name(group, device, seen)
    return used


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
