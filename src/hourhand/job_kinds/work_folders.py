"""Private folders for commands: one per attempt, readable by its user alone, removed afterwards.

Each executor has a room of its own for them, which it keeps locked. A room that nobody has locked belonged
to an executor that was killed; whoever opens next ends what still runs in it and removes it.
"""

import fcntl
import os
import pwd
import signal
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourhand.job_kinds.cgroups import remove_groups
from hourhand.job_kinds.deep_folders import remove_below
from hourhand.model.errors import BadConfiguration

_PREFIX: Final = "hourhand-work-"
_ABANDONED_SECONDS_MIN: Final = 60.0
"""A younger room may belong to an executor that is about to lock it, unless it bears the mark."""
_MARK: Final = ".locked-once"
_KILL_ROUNDS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Account:
    """The user that commands run as."""

    name: str
    user_id: int
    group_id: int


def account_for(run_as: str | None) -> Account | None:
    """The account that commands change to, or None when they stay what the executor is: only root can change."""
    if os.geteuid() != 0 or run_as is None:
        return None
    try:
        entry = pwd.getpwnam(run_as)
    except KeyError:
        raise BadConfiguration([f"kinds.run_as: there is no user {run_as!r} on this machine"]) from None
    return Account(run_as, entry.pw_uid, entry.pw_gid)


class WorkFolders:
    """One executor's room, in which attempts get their folders. Used between `open` and `close`."""

    def __init__(self, root: str | None, account: Account | None) -> None:
        self._base = base_of(root)
        self._account = account
        self._room: Path | None = None
        self._lock: int | None = None

    def open(self) -> Path:
        """Makes the room, and clears away those that others have left."""
        try:
            if not self._base.exists():
                self._base.mkdir(parents=True)
                self._base.chmod(0o711)
            self._room = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._base))
        except OSError as error:
            fault = f"kinds.work_root: no folder can be made in {self._base}: {error.strerror}"
            raise BadConfiguration([fault]) from None
        self._room.chmod(0o711)  # others may pass through to their own folder, but not see whose else there is
        self._lock = _locked(self._room)
        (self._room / _MARK).touch()
        remove_abandoned(self._base)
        return self._room

    def remember(self, groups: Sequence[str]) -> None:
        """Control groups that go with the room: whoever finds it abandoned removes them."""
        assert self._room is not None
        (self._room / _MARK).write_text("".join(f"{group}\n" for group in groups))

    @property
    def room(self) -> Path:
        assert self._room is not None, "work folders are used between open and close"
        return self._room

    def close(self) -> None:
        if self._room is not None:
            remove(self._room)
            self._room = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def make(self, name: str, inner: str, account: Account | None = None) -> tuple[Path, Path]:
        """A new private folder, and the folder inside it in which the command starts. Here and below they are of that
        account, or without one of the account of all."""
        assert self._room is not None, "work folders are used between open and close"
        folder = self.make_private(self._room / name, account)
        return folder, self.make_start(folder, inner, account)

    def make_start(self, folder: Path, inner: str, account: Account | None = None) -> Path:
        """A folder inside an attempt's own, with those on the way to it."""
        start = folder
        for part in Path(inner).parts:
            start = start / part
            self.make_inner(start, account)
        return start

    def make_inner(self, folder: Path, account: Account | None = None) -> None:
        """A folder inside an attempt's own, if it is not there anyway."""
        if not folder.exists():
            self.make_private(folder, account)

    def make_private(self, folder: Path, account: Account | None = None) -> Path:
        os.mkdir(folder, 0o700)
        account = account or self._account
        if account is not None:
            os.chown(folder, account.user_id, account.group_id)
        return folder

    def make_point(self, folder: Path, path: str, account: Account | None = None) -> list[Path]:
        """Folders on the way from one to where something is to be mounted; the last is nobody's to write to. Those that
        were not there yet, each before what is in it."""
        made = []
        *way, last = Path(path).parts
        for part in way:
            folder = folder / part
            if not folder.exists():
                made.append(self.make_private(folder, account))
        if not (folder / last).exists():
            os.mkdir(folder / last, 0o700)
            made.append(folder / last)
        return made

    def add(self, folder: Path, files: Mapping[str, bytes], account: Account | None = None) -> None:
        """Writes files into a folder, for its user alone."""
        account = account or self._account
        for name, content in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700)
            with open(descriptor, "wb") as file:
                file.write(content)
                if account is not None:
                    os.fchown(descriptor, account.user_id, account.group_id)


def base_of(root: str | None) -> Path:
    """Where the rooms are."""
    return Path(root if root is not None else tempfile.gettempdir()).resolve()


def remove_abandoned(base: Path) -> None:
    """Ends what is left of executors that were killed, and removes their rooms."""
    for room in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            facts = room.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
                continue
            if time.time() - facts.st_mtime < _ABANDONED_SECONDS_MIN and not (room / _MARK).exists():
                continue
            lock = _locked(room)
            if lock is not None:
                remove_groups((room / _MARK).read_text().splitlines() if (room / _MARK).exists() else ())
                _end_processes(room)
                remove(room)
                os.close(lock)


def remove(folder: Path) -> None:
    """Removes the folder with everything in it, also what a job made unwritable for its own user. What cannot be
    removed is left, without a word: nobody could do anything about it here."""
    with suppress(OSError):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK) and stat.S_ISDIR(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)
        remove_below(folder)
        os.rmdir(folder)


def _locked(room: Path) -> int | None:
    """A descriptor that holds the room's lock for as long as it is open, or None when somebody else does."""
    descriptor = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _end_processes(room: Path) -> None:
    """Kills what an executor left running when it was killed itself: others have got those runs by now."""
    for _ in range(_KILL_ROUNDS_MAX):  # what is killed may just have forked
        found = [int(process.name) for process in Path("/proc").glob("[0-9]*") if _works_in(room, process)]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                handle = os.pidfd_open(pid)
                try:
                    if _works_in(room, Path(f"/proc/{pid}")):  # only now is the number pinned to one process
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        time.sleep(0.01)


def _works_in(room: Path, process: Path) -> bool:
    """Whether a process of ours lives there: by its current folder, or by the home it was given."""
    with suppress(OSError):
        if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        if room in Path(os.readlink(process / "cwd")).parents:
            return True
        mark = os.fsencode(f"HOME={room}/")
        return any(entry.startswith(mark) for entry in (process / "environ").read_bytes().split(b"\0"))
    return False
