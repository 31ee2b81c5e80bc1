"""Keeps programs out of /tmp and the like where no mounts can be made, by Landlock.

Landlock can only allow, and allows by what is there when it is asked: so all around these places is allowed, folder by
folder, and in them only the attempt's own folder and what is shared. The folders on the way to them, such as the root,
cannot be listed then or written to, and what is new there is not reached until the next start. Shared memory stays
open: programs that could not make a semaphore would not run. Part of the launcher, see `launcher_process.py`.
"""

import ctypes
import os
import stat
import sys
from _collections_abc import Iterator, Sequence

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_kernel as kernel
    from hourhand.job_kinds import launcher_view as views
else:
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]
    import launcher_view as views  # type: ignore[import-not-found,no-redef]

VERSION_MIN = 3
"""Older ones cannot let a file be moved from folder to folder, or do not see that one is cut short."""
_WRITE_FILE, _READ_FILE, _TRUNCATE = 1 << 1, 1 << 2, 1 << 14
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ_FOLDER, _REMOVE, _REFER = 1 << 3, 1 << 4 | 1 << 5, 1 << 13
_MAKE = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12
_OF_FOLDERS = _OF_FILES | _READ_FOLDER | _REMOVE | _REFER | _MAKE
_DEVICES = 1 << 6 | 1 << 11
"""Asked for and never allowed."""
_ADD_RULE, _BENEATH = 445, 1


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("handle", ctypes.c_int32))


class Fence:
    """Around these places, as they are now. Raises OSError where the kernel cannot do it."""

    def __init__(self, places: Sequence[bytes], shared: Sequence[bytes]) -> None:
        if kernel.landlock_version() < VERSION_MIN:
            raise OSError("this kernel has no Landlock that would do")
        self._allowed: list[tuple[int, int]] = []
        closed = [place for place in places if place != views.SHARED_MEMORY]
        if not closed:
            raise OSError("there is nothing to keep them out of")
        for path in (*_around(closed), *shared):
            handle = _opened(path)
            if handle is not None:
                self._allowed.append(handle)

    def rules_for(self, own: bytes) -> int:
        """A descriptor of rules that let an attempt into its own folder too."""
        rules = kernel.landlock_rules(_OF_FOLDERS | _DEVICES)
        try:
            handle = os.open(own, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for allowed in (*self._allowed, (handle, _OF_FOLDERS)):
                    _allow(rules, *allowed)
            finally:
                os.close(handle)
        except OSError:
            os.close(rules)
            raise
        return rules


def _around(places: Sequence[bytes]) -> Iterator[bytes]:
    """All that is beside these places, and beside the folders on the way to them."""
    ways = {b"/"}
    for place in places:
        parts = place.split(b"/")
        ways.update(b"/".join(parts[:length]) for length in range(2, len(parts)))
    for way in sorted(ways):
        for name in os.listdir(way):
            path = (b"" if way == b"/" else way) + b"/" + name
            if path not in ways and path not in places:
                yield path


def _opened(path: bytes) -> tuple[int, int] | None:
    """Kept open, with what may be done there. What a link leads to is allowed where it lies."""
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    mode = os.fstat(handle).st_mode
    if stat.S_ISLNK(mode):
        os.close(handle)
        return None
    return handle, _OF_FOLDERS if stat.S_ISDIR(mode) else _OF_FILES


def _allow(rules: int, handle: int, allowed: int) -> None:
    rule = _Rule(allowed, handle)
    if kernel.syscall(_ADD_RULE, rules, _BENEATH, ctypes.byref(rule), 0) != 0:
        raise kernel.last_fault("landlock")
