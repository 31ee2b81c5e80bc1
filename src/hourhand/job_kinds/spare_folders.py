"""The folders of attempts, made ahead, and given to the next attempt where the last one has left them as they were.

To make a folder and to remove it costs a file system more than everything else that sets an attempt apart, and most
programs never write into theirs. A folder is as it was if its time of change is: every entry that is made, renamed or
removed in it sets that time, and so does every change of its mode, its owner or its attributes, and nobody but the
kernel can set it. So the time is all that has to be looked at, and nothing of one attempt is ever seen by another.

Times are only as fine as the kernel's ticks, on some file systems as seconds. A folder that is younger than that when
it is given away could be changed without a sign of it, so such a one is used once and then removed.

Where attempts have users of their own, a folder has its next user from the moment it is given back: that change of its
owner has settled, like any other, before somebody gets it.

For contained programs only: nothing of them is alive any more when their folder is looked at.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from hourhand.job_kinds.private_places import TMP_FOLDER
from hourhand.job_kinds.user_ids import OwnUser, UserIds
from hourhand.job_kinds.work_folders import Account, WorkFolders, remove

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
    user: OwnUser | None = None
    """Whose it is; None: of the account of all."""

    @property
    def account(self) -> Account | None:
        return None if self.user is None else self.user.account


class SpareFolders:
    """Those of one executor. All of them lie in its room and go with it."""

    def __init__(
        self, folders: WorkFolders, points: Sequence[str], has_tmp: bool, users: UserIds | None = None
    ) -> None:
        """Points: paths below the private folder for temporary files at which something is mounted."""
        self._folders = folders
        self._points = points
        self._has_tmp = has_tmp
        self._users = users
        self._numbers = count(1)
        self._spare: dict[str, deque[OwnFolder]] = {}
        """By the folder inside that those attempts expect."""

    def take(self, inner: str = "") -> OwnFolder:
        """A folder with an empty one of that name in it, if there is one, and nothing else of anybody's."""
        spare = self._spare.get(inner)
        if spare and spare[0].settled_at < time.monotonic():
            return spare.popleft()
        made = self._make(inner)
        return replace(made, marks=(), settled_at=0.0)

    def give_back(self, own: OwnFolder, inner: str = "") -> bool:
        """Of one that nobody has touched. False: there are enough, and it is the caller's to remove."""
        spare = self._spare.setdefault(inner, deque())
        if len(spare) >= SPARES_MAX:
            return False
        try:
            spare.append(self._for_the_next(own))
        except OSError:
            return False
        return True

    def _for_the_next(self, own: OwnFolder) -> OwnFolder:
        """The same folder, of a user that was not seen yet. On an error it is still to be given up by `replace`."""
        users, last = self._users, own.user
        if users is None or last is None:
            return own
        user = users.take()
        try:
            for part in own.parts:
                if os.stat(part).st_uid == last.account.user_id:  # else it is nobody's to write to
                    os.chown(part, user.account.user_id, user.account.group_id)
            marks, settled_at = _marks_of(own.parts)
        except OSError:
            users.give_back(user)
            raise
        users.give_back(last)
        return replace(own, marks=marks, settled_at=settled_at, user=user)

    def replace(self, inner: str = "", gone: OwnFolder | None = None) -> None:
        """One is gone: makes another, early enough that it has settled when its turn comes. That none can be made is
        left to be said by whoever needs one."""
        if self._users is not None and gone is not None and gone.user is not None:
            self._users.give_back(gone.user)
        spare = self._spare.setdefault(inner, deque())
        if len(spare) < SPARES_MAX:
            try:
                spare.append(self._make(inner))
            except OSError:
                return

    def _make(self, inner: str) -> OwnFolder:
        user = None if self._users is None else self._users.take()
        try:
            return self._made_for(user, inner)
        except OSError:
            if self._users is not None and user is not None:
                self._users.give_back(user)
            raise

    def _made_for(self, user: OwnUser | None, inner: str) -> OwnFolder:
        account = None if user is None else user.account
        path, _ = self._folders.make(str(next(self._numbers)), "", account)
        try:
            parts = [str(part) for part in reversed([path, *self._make_inside(path, inner, account)])]
            return OwnFolder(path, parts, *_marks_of(parts), user)
        except OSError:
            remove(path)
            raise

    def _make_inside(self, path: Path, inner: str, account: Account | None) -> Iterator[Path]:
        """Each before what is in it."""
        if inner:
            yield self._folders.make_private(path / inner, account)
        if self._has_tmp:
            yield self._folders.make_private(path / TMP_FOLDER, account)
            for point in self._points:
                yield from self._folders.make_point(path / TMP_FOLDER, point, account)


def _marks_of(parts: Sequence[str]) -> tuple[Sequence[int], float]:
    """When folders that were changed just now say that they were, and from when on another change would show."""
    marks = [os.stat(part).st_ctime_ns for part in parts]
    by_seconds = all(mark % _SECOND_NANOSECONDS == 0 for mark in marks)
    return marks, time.monotonic() + (_SETTLED_SECONDS_BY_SECONDS if by_seconds else _SETTLED_SECONDS)
