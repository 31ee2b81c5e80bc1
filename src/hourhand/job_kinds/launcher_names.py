"""Gives the user of an attempt a name, where attempts have users of their own.

To the kernel a number is enough, but programs ask the machine's list of accounts who they are, and many give up when
nobody knows: ssh, whoami, and what takes the home from there. So an attempt sees that list with one more entry, its
own. Groups have their names anyway: it is that of an account. Part of the launcher, see `launcher_process.py`.
"""

import os
import sys

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_kernel as kernel
    from hourhand.job_kinds import launcher_view as views
else:
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]
    import launcher_view as views  # type: ignore[import-not-found,no-redef]

ACCOUNTS = b"/etc/passwd"
NAME, OTHER_NAME = b"job", b"hourhand-job"
"""The other one is for machines on which somebody is called like the first."""
BYTES_MAX = 64 * 1024
"""Of the machine's list. A longer one would cost every start too much: attempts go without a name then."""


class Names:
    """The lists of attempts, in a folder of the stage that none of them can enter."""

    def __init__(self, stage: bytes) -> None:
        """Raises OSError where there is nothing that could be made."""
        self._folder = stage + b"/.names"
        self._seen = 0, 0
        self.edition = 0
        """Another one whenever the machine's list is another. A mount over the old one may be gone with that."""
        self._name = NAME
        self._others = b""
        os.mkdir(self._folder, 0o700)
        self._look()

    def write(self, name: bytes, account: tuple[int, int], home: bytes) -> int:
        """The list that attempts in the seat of that name see, for the one that is next. Which edition of the machine's
        it is made of; 0 where it has to go without."""
        try:
            self._look()
            if not self._others or b":" in home or b"\n" in home:
                return 0
            entry = b"%b:x:%d:%d:Hourhand job:%b:/bin/sh\n" % (self._name, *account, home)
            _write(self._path_of(name), entry + self._others)
        except OSError:  # a program without a name is better than none
            return 0
        return self.edition

    def mounts_for(self, name: bytes) -> "views.Mounts":
        """What shows it to them."""
        return ((self._path_of(name), ACCOUNTS, None, views.MS_BIND, None),)

    def forget(self, name: bytes) -> None:
        with kernel.suppress(OSError):
            os.unlink(self._path_of(name))

    def _path_of(self, name: bytes) -> bytes:
        return self._folder + b"/" + name

    def _look(self) -> None:
        """Reads the machine's list if it is another than before."""
        facts = os.stat(ACCOUNTS)
        seen = facts.st_ino, facts.st_mtime_ns
        if seen == self._seen:
            return
        listed = kernel.read(ACCOUNTS, BYTES_MAX + 1)
        self._seen = seen
        self.edition += 1
        self._others = listed if len(listed) <= BYTES_MAX else b""
        taken = {line.partition(b":")[0] for line in listed.splitlines()}
        self._name = OTHER_NAME if NAME in taken else NAME


def _write(path: bytes, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o644)  # whatever the mask
        if os.write(handle, content) != len(content):
            raise OSError("there is no room for all of it")
    finally:
        os.close(handle)
