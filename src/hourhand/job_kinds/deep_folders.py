"""Goes through folders that a stranger has filled, however deep and however many they are.

Paths end at 4096 bytes, calls of functions at a thousand, open descriptors sooner; folders in folders do not end. So
the way goes from one folder to the next by its name alone, back by `..`, and two descriptors are open at any depth.
Nothing is followed that is no folder. Somebody may move folders about meanwhile: a way back that does not lead to
where it came from is given up, and the way is begun anew from the top as far as it is still there. Everything here
waits for the disk and belongs into a thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BEGUN_ANEW_MAX: Final = 1000
"""Who moves folders about more often is not followed any further: each time costs as much as the folder is deep."""
_REMOVED_AT_ONCE: Final = 1000
"""Entries of a folder that are read before they are removed: however many there are, so many are in memory."""
_OPEN: Final = 0o700


@dataclass(slots=True)
class _Level:
    """A folder on the way from the top to where we are."""

    name: str
    identity: tuple[int, int]
    folders: list[str] = field(default_factory=list)
    """Those in it that are still to be gone through."""
    has_more: bool = False
    removed: int = 0


class _Way:
    """Where we are. Raises OSError when the top is no folder."""

    def __init__(self, top: Path) -> None:
        self._top = os.open(top, _FOLDER)
        self.handle = os.dup(self._top)
        self.levels = [_Level("", _identity(self._top))]
        self._begun_anew = 0

    def close(self) -> None:
        os.close(self._top)
        os.close(self.handle)

    def enter(self, name: str) -> None:
        self._go_to(os.open(name, _FOLDER, dir_fd=self.handle))
        self.levels.append(_Level(name, _identity(self.handle)))

    def leave(self) -> str | None:
        """Goes back to the folder that this one is in. The name of this one there; None when it is not there any more:
        then we are as near to it as there is a way."""
        left = self.levels.pop()
        with suppress(OSError):
            above = os.open("..", _FOLDER, dir_fd=self.handle)
            if _identity(above) == self.levels[-1].identity:
                self._go_to(above)
                return left.name
            os.close(above)
        self._begin_anew()
        return None

    def _begin_anew(self) -> None:
        self._begun_anew += 1
        self._go_to(os.dup(self._top))
        if self._begun_anew > _BEGUN_ANEW_MAX:
            self.levels = [_Level("", self.levels[0].identity)]
        for depth, level in enumerate(self.levels[1:], 1):
            below = self._opened(level)
            if below is None:
                del self.levels[depth:]
                return
            self._go_to(below)

    def _opened(self, level: _Level) -> int | None:
        """None when something else has its name now, or nothing."""
        try:
            below = os.open(level.name, _FOLDER, dir_fd=self.handle)
        except OSError:
            return None
        if _identity(below) == level.identity:
            return below
        os.close(below)
        return None

    def _go_to(self, handle: int) -> None:
        os.close(self.handle)
        self.handle = handle


@contextmanager
def _way_through(top: Path) -> Iterator[_Way]:
    way = _Way(top)
    try:
        yield way
    finally:
        way.close()


def entries_below(top: Path) -> "Iterator[os.DirEntry[str]]":
    """Everything in the folder and in those in it, but what is gone again or closed to us. Raises OSError when it is
    no folder."""
    with _way_through(top) as way:
        yield from _entries_here(way)
        while way.levels[-1].folders or len(way.levels) > 1:
            if not way.levels[-1].folders:
                way.leave()
                continue
            with suppress(OSError):
                way.enter(way.levels[-1].folders.pop())
                yield from _entries_here(way)


def _entries_here(way: _Way) -> "Iterator[os.DirEntry[str]]":
    folders = way.levels[-1].folders
    with os.scandir(way.handle) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)


def remove_below(top: Path) -> None:
    """Removes everything in the folder, also what was made unwritable for its own user. Raises OSError when it is no
    folder; what cannot be removed is left."""
    with _way_through(top) as way:
        _remove_here(way)
        while True:
            level = way.levels[-1]
            if level.folders:
                _remove_in(way, level.folders.pop())
            elif level.has_more and level.removed:
                _remove_here(way)
            elif len(way.levels) > 1:
                _remove_left(way)
            else:
                return


def _remove_in(way: _Way, name: str) -> None:
    with suppress(OSError):
        try:
            way.enter(name)
        except PermissionError:
            _open_up(way.handle, name)
            way.enter(name)
        _remove_here(way)


def _remove_left(way: _Way) -> None:
    name = way.leave()
    if name is not None:
        with suppress(OSError):
            os.rmdir(name, dir_fd=way.handle)
            way.levels[-1].removed += 1


def _remove_here(way: _Way) -> None:
    """All but folders, of as many entries as are read at once."""
    level = way.levels[-1]
    if os.fstat(way.handle).st_mode & _OPEN != _OPEN:
        with suppress(OSError):
            os.fchmod(way.handle, _OPEN)
    with os.scandir(way.handle) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _REMOVED_AT_ONCE)]
    level.has_more, level.removed = len(found) == _REMOVED_AT_ONCE, 0
    for name, is_folder in found:
        if is_folder:
            level.folders.append(name)
            continue
        with suppress(OSError):
            os.unlink(name, dir_fd=way.handle)
            level.removed += 1


def _open_up(handle: int, name: str) -> None:
    """Opened as it is and changed by that descriptor: what a link of that name leads to is none of our business."""
    closed = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
    try:
        os.chmod(f"/proc/self/fd/{closed}", _OPEN)
    finally:
        os.close(closed)


def _identity(handle: int) -> tuple[int, int]:
    facts = os.fstat(handle)
    return facts.st_dev, facts.st_ino
