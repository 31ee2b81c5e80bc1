"""The folders of attempts, made ahead, and given to the next attempt where the last one has left them as they were.

To make a folder and to remove it costs a file system more than everything else that sets an attempt apart, and most
programs never write into theirs. A folder is as it was if its time of change is: every entry that is made, renamed or
removed in it sets that time, and so does every change of its mode, its owner or its attributes, and nobody but the
kernel can set it. So the time is all that has to be looked at, and nothing of one attempt is ever seen by another.

Times are only as fine as the kernel's ticks, on some file systems as seconds. A folder that is younger than that when
it is given away could be changed without a sign of it, so such a one is used once and then removed.

For contained programs only: nothing of them is alive any more when their folder is looked at.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from hourhand.job_kinds.private_places import TMP_FOLDER
from hourhand.job_kinds.work_folders import WorkFolders, remove

SPARES_MAX: Final = 64
_SETTLED_SECONDS: Final = 0.05
_SETTLED_SECONDS_BY_SECONDS: Final = 2.5
_SECOND_NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """One attempt's, with the folders that are in it from the beginning."""

    path: Path
    parts: Sequence[str]
    """All of them, each after those that are in it; its own is the last."""
    marks: Sequence[int]
    """When each was changed last, in nanoseconds. Empty where that says nothing: it must be removed after its use."""
    settled_at: float
    """From when on a change would show. By our own clock: that of the file system may be another machine's."""


class SpareFolders:
    """Those of one executor. All of them lie in its room and go with it."""

    def __init__(self, folders: WorkFolders, points: Sequence[str], has_tmp: bool) -> None:
        """Points: paths below the private folder for temporary files at which something is mounted."""
        self._folders = folders
        self._points = points
        self._has_tmp = has_tmp
        self._numbers = count(1)
        self._spare: dict[str, deque[OwnFolder]] = {}
        """By the folder inside that those attempts expect."""

    def take(self, inner: str = "") -> OwnFolder:
        """A folder with an empty one of that name in it, if there is one, and nothing else of anybody's."""
        spare = self._spare.get(inner)
        if spare and spare[0].settled_at < time.monotonic():
            return spare.popleft()
        made = self._make(inner)
        return OwnFolder(made.path, made.parts, (), 0)

    def give_back(self, own: OwnFolder, inner: str = "") -> bool:
        """Of one that nobody has touched. False: there are enough, and it is the caller's to remove."""
        spare = self._spare.setdefault(inner, deque())
        if len(spare) >= SPARES_MAX:
            return False
        spare.append(own)
        return True

    def replace(self, inner: str = "") -> None:
        """One is gone: makes another, early enough that it has settled when its turn comes. That none can be made is
        left to be said by whoever needs one."""
        spare = self._spare.setdefault(inner, deque())
        if len(spare) < SPARES_MAX:
            try:
                spare.append(self._make(inner))
            except OSError:
                return

    def _make(self, inner: str) -> OwnFolder:
        path, _ = self._folders.make(str(next(self._numbers)), "")
        try:
            parts = [str(part) for part in reversed([path, *self._make_inside(path, inner)])]
            marks = [os.stat(part).st_ctime_ns for part in parts]
        except OSError:
            remove(path)
            raise
        by_seconds = all(mark % _SECOND_NANOSECONDS == 0 for mark in marks)
        wait = _SETTLED_SECONDS_BY_SECONDS if by_seconds else _SETTLED_SECONDS
        return OwnFolder(path, parts, marks, time.monotonic() + wait)

    def _make_inside(self, path: Path, inner: str) -> Iterator[Path]:
        """Each before what is in it."""
        if inner:
            yield self._folders.make_private(path / inner)
        if self._has_tmp:
            yield self._folders.make_private(path / TMP_FOLDER)
            for point in self._points:
                yield from self._folders.make_point(path / TMP_FOLDER, point)
