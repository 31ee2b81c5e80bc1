"""Numbers of users for attempts, so that to the kernel each is a stranger to all others.

What one process may do to another (its limits, its priority, its processors), how much there is of some things
(watches, pipes, keys) and one set of keyrings go by the number of the user, in whatever namespaces two processes are.
So every contained attempt of an executor that is root has a number that nobody else alive has on this machine.

The numbers of a machine are cut into slices, and an executor has one for itself, by the lock of a file that is named
after it. The launcher holds the same lock: a slice is free again only when neither lives, however they died. In its
slice an executor goes round, so that a number comes again as late as can be; where it is in it stands in the file, for
whoever has the slice next.
"""

import errno
import fcntl
import os
import pwd
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from hourhand.job_kinds.work_folders import Account
from hourhand.model.errors import BadConfiguration

FIRST: Final = 0x7000_0000
"""Above the numbers that systemd gives to containers, and below all that it keeps for itself: nobody's, by its list."""
COUNT: Final = 1 << 24
COUNT_MIN: Final = 1024
"""Folders that are made ahead have users too, so a few would not do."""
LAST_MAX: Final = (1 << 31) - 1
"""Above it, file systems and older calls take numbers for negative ones."""
SLICE: Final = 1 << 16
"""Slices begin at its multiples, so that executors with other settings know them by the same names."""
FOLDER: Final = Path("/run/hourhand-users")
_AHEAD: Final = 1024
"""Every so many numbers the file is written, ahead: who is killed has not used more than it says."""
_KEY_USERS: Final = "/proc/key-users"
_KEY_USERS_BYTES_MAX: Final = 4_000_000
_SPECIAL: Final = frozenset({65534, 65535})
"""Nobody, and what was "no user" when numbers were shorter."""
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnUser(NamedTuple):
    """Who an attempt is."""

    account: Account
    may_have_keys: bool
    """Another has been it before, and may have left keys to it."""


class UserIds:
    """Those of one executor, until `close`."""

    def __init__(self, lock: int, numbers: range, account: Account) -> None:
        """Account: whose group they are in."""
        self.lock = lock
        """Held by whoever has this descriptor open."""
        self._numbers = numbers
        self._account = account
        self._taken = _alive_in(numbers)
        self._given = self._written = self._given_before()
        self._with_keys: Collection[int] | None = ()
        """Those that the kernel kept keys for when we looked last; None: it does not say."""
        self._ended_since: set[int] = set()

    def take(self) -> OwnUser:
        """One that nobody has. Raises OSError when there is none."""
        for _ in range(len(self._numbers)):
            if self._given >= self._written:
                self._write(self._given + _AHEAD)
                self._with_keys = _with_keys(self._numbers)
                self._ended_since.clear()
            number = self._numbers[self._given % len(self._numbers)]
            may_have_keys = self._given >= len(self._numbers) and self._is_known_for_keys(number)
            self._given += 1
            if number not in self._taken and number not in _SPECIAL and number != self._account.user_id:
                self._taken.add(number)
                return OwnUser(Account(str(number), number, self._account.group_id), may_have_keys)
        raise OSError(errno.EAGAIN, "all numbers of users (kinds.uid_count) are taken")

    def give_back(self, user: OwnUser) -> None:
        """Nothing of the attempt is alive."""
        self._taken.discard(user.account.user_id)
        self._ended_since.add(user.account.user_id)

    def _is_known_for_keys(self, number: int) -> bool:
        return self._with_keys is None or number in self._with_keys or number in self._ended_since

    def close(self) -> None:
        with suppress(OSError):
            self._write(self._given)
        os.close(self.lock)

    def _given_before(self) -> int:
        told = os.pread(self.lock, 100, 0).split()
        if not told:
            return 0
        try:
            start, stop, given = map(int, told)
        except ValueError:
            return len(self._numbers)
        # By other settings, or torn: nobody knows which were used, so all may have been.
        return given if (start, stop) == (self._numbers.start, self._numbers.stop) else len(self._numbers)

    def _write(self, given: int) -> None:
        text = b"%d %d %d\n" % (self._numbers.start, self._numbers.stop, given)
        os.pwrite(self.lock, text.ljust(64), 0)
        self._written = given


def open_user_ids(account: Account | None, first: int, count: int | None, folder: Path = FOLDER) -> UserIds | None:
    """None where attempts are all one user: nobody is root, or wants it otherwise, or it cannot be had. What was asked
    for in so many words and cannot be had is a BadConfiguration.

    Without a count, programs have numbers of their own where they are nobody anyway. An account that was chosen by its
    name was chosen for what it may do, which a number could not."""
    if account is None or count == 0 or (count is None and account.name != "nobody"):
        return None
    if count is not None and count < COUNT_MIN:
        raise BadConfiguration([f"kinds.uid_count: must be 0 or at least {COUNT_MIN}"])
    wanted = range(first, first + (COUNT if count is None else count))
    try:
        return _opened(account, wanted, folder)
    except OSError as error:
        if count is None:
            return None
        raise BadConfiguration([f"kinds.uid_count: attempts cannot have users of their own: {error}"]) from None


def _opened(account: Account, wanted: range, folder: Path) -> UserIds:
    if wanted[-1] > LAST_MAX or not _are_known(wanted):
        raise OSError(errno.EINVAL, f"there are no users {wanted[0]} to {wanted[-1]} on this machine")
    somebody = next((entry.pw_name for entry in pwd.getpwall() if entry.pw_uid in wanted), None)
    if somebody is not None:
        raise OSError(errno.EINVAL, f"{somebody} is one of the users {wanted[0]} to {wanted[-1]} already")
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise OSError(errno.EPERM, f"{folder} is not a folder of our own")
    for numbers in _slices(wanted):
        lock = os.open(folder / str(numbers.start // SLICE), _LOCK, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return UserIds(lock, numbers, account)
        except BlockingIOError:  # another executor has it
            os.close(lock)
        except BaseException:
            os.close(lock)
            raise
    raise OSError(errno.EAGAIN, "other executors of this machine have them all")


def _slices(wanted: range) -> Iterator[range]:
    for start in range(wanted.start // SLICE * SLICE, wanted.stop, SLICE):
        yield range(max(start, wanted.start), min(start + SLICE, wanted.stop))


def _alive_in(numbers: range) -> set[int]:
    """Those that somebody is: what an executor has left that was killed together with its launcher."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = (process / "status").read_text().partition("\nUid:")[2].split(maxsplit=1)
            if told and int(told[0]) in numbers:
                found.add(int(told[0]))
    return found


def _with_keys(numbers: range) -> Collection[int] | None:
    """Those that the kernel keeps keys for. Hardly any program has keys, and to empty the keyrings of a user makes them
    for good: done for everybody, the kernel has 200,000 of them one day, and looks through all of them, under one lock,
    for each that goes."""
    try:
        with open(_KEY_USERS, "rb") as file:
            listed = file.read(_KEY_USERS_BYTES_MAX)
    except OSError:
        return None
    if len(listed) == _KEY_USERS_BYTES_MAX:
        return None
    users = (int(line.partition(b":")[0]) for line in listed.splitlines())
    return {user for user in users if user in numbers}


def _are_known(wanted: range) -> bool:
    """Whether this user namespace has all of them: in some containers there are only a few thousand."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        start, _, count = map(int, line.split())
        if start <= wanted.start and wanted.stop <= start + count:
            return True
    return False
