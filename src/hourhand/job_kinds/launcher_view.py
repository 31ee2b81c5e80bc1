"""What attempts see of the machine: the mounts of the launcher, and those of each attempt. Part of the launcher, see
`launcher_process.py`."""

import ctypes
import os
import sys
from _collections_abc import Iterable, Sequence

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_kernel as kernel
else:
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]

Mount = tuple[bytes, bytes, bytes | None, int, bytes | None]
Mounts = Sequence[Mount]


class Sight:
    """What is an attempt's own."""

    def __init__(self, namespaces: int, mounts: Mounts, has_memory: bool, has_ipc: bool) -> None:
        """Memory: what is shared by its name. Ipc: System V objects and message queues."""
        self.namespaces = namespaces
        self.mounts = mounts
        """Made in them."""
        self.has_memory = has_memory
        self.has_ipc = has_ipc


_STAGE_BYTES_MAX = 1 << 26
"""Folders take nothing there, lists of accounts a page or some."""

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
MS_BIND, _MS_MOVE, _MS_REC, _MS_SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
_MS_READ_ONLY, _MS_CHANGE = 0x1, 0x20
_MS_NO_PROGRAMS = 0x8
_MS_PLAIN = 0x2 | 0x4 | _MS_NO_PROGRAMS  # no set-user-id, no devices

SHARED_MEMORY = b"/dev/shm"
MESSAGE_QUEUES = b"/dev/mqueue"
"""Where they are seen as files: those of whoever has mounted it, whatever namespace one is in."""
TERMINALS = b"/dev/pts"
_TERMINALS_OWN = (b"devpts", TERMINALS, b"devpts", 0x2 | _MS_NO_PROGRAMS, b"newinstance,ptmxmode=0666,mode=600,max=64")
"""A machine has a few thousand for all, and who cannot have one cannot log in."""
_IPC_TABLES = (b"/proc/sysvipc/shm", b"/proc/sysvipc/sem", b"/proc/sysvipc/msg")
_DETACHED = 2
_TMP_FOLDER = b"/.hourhand-tmp"
"""In the attempt's own folder; the executor makes it."""

_libc = ctypes.CDLL(None, use_errno=True)
_unshare, _mount_, _unmount = _libc.unshare, _libc.mount, _libc.umount2
_mount_.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_unmount.argtypes = (ctypes.c_char_p, ctypes.c_int)


def hide(paths: Iterable[bytes], room: bytes, stage: bytes) -> None:
    """Puts emptiness over the paths for us and all our children, but not over the room, wherever it is. The stage, in
    the room, becomes a folder in memory: much is made and removed there. Raises OSError where the kernel does not let
    us."""
    user, group = os.geteuid(), os.getegid()
    if _unshare(_CLONE_NEWNS if user == 0 else _CLONE_NEWNS | _CLONE_NEWUSER) != 0:
        raise kernel.last_fault("unshare")
    if user != 0:
        kernel.write(b"/proc/self/setgroups", b"deny")
        kernel.write(b"/proc/self/uid_map", b"%d %d 1" % (user, user))
        kernel.write(b"/proc/self/gid_map", b"%d %d 1" % (group, group))
    _mount(None, b"/", None, _MS_REC | _MS_SLAVE)  # what the machine mounts later is seen here too
    handle = os.open(room, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in paths:
            if os.path.isdir(path):
                _mount(b"tmpfs", path, b"tmpfs", _MS_PLAIN, b"size=64k,mode=711")
                if room.startswith(path + b"/"):
                    _make_way(room)
                    _mount(b"/proc/self/fd/%d" % handle, room, None, MS_BIND)
            elif os.path.exists(path):
                _mount(b"/dev/null", path, None, MS_BIND)
        _mount(b"tmpfs", stage, b"tmpfs", _MS_PLAIN, b"size=%d,mode=711" % _STAGE_BYTES_MAX)
    finally:
        os.close(handle)


def _make_way(folder: bytes) -> None:
    """Makes the folder, with those on the way to it, for everybody to pass through but not to see what is there."""
    mask = os.umask(0o066)
    try:
        os.makedirs(folder)
    finally:
        os.umask(mask)


def hide_processes() -> None:
    """Who looks into /proc sees those processes only that he could look into."""
    _mount(b"proc", b"/proc", b"proc", _MS_PLAIN, b"hidepid=ptraceable")


def shut_groups() -> None:
    """Lets nobody here write to control groups any more, but through descriptors that are open already. Who is of the
    same user as they are could leave his group otherwise, and with it his limits and his end."""
    for line in kernel.read(b"/proc/self/mountinfo", kernel.LIST_BYTES_MAX).splitlines():
        own, _, rest = line.partition(b" - ")
        if rest.split(b" ")[0] in (b"cgroup", b"cgroup2"):
            place = own.split(b" ")[4]
            _mount(place, place, None, MS_BIND)
            _mount(None, place, None, MS_BIND | _MS_CHANGE | _MS_READ_ONLY | _MS_PLAIN)


def has_own_ipc() -> bool:
    """Whether this kernel can give a process System V objects and message queues of its own."""
    return os.path.exists(b"/proc/self/ns/ipc")


class View:
    """What an attempt sees in place of the room of all folders, of the places for temporary files, and of what
    processes share without files."""

    def __init__(self, room: bytes, stage: bytes, places: Sequence[bytes], shared: Sequence[bytes]) -> None:
        self._room = room
        self._stage = stage
        self._shared = [(folder, _below(folder, places)) for folder in shared]
        self._holder = next((place for place in places if room.startswith(place + b"/")), None)
        """The place that the room itself lies in. Whoever covers it has to let the way to the room through."""
        others = [place for place in places if place != self._holder]
        self._memory = [place for place in others if place == SHARED_MEMORY]
        self._others = [place for place in others if place != SHARED_MEMORY]
        self._flags = MS_BIND | _MS_REC if shared else MS_BIND
        self.has_own_ipc = has_own_ipc()
        self._namespaces = _CLONE_NEWNS | (_CLONE_NEWIPC if self.has_own_ipc else 0)
        self._queues = [MESSAGE_QUEUES] if self.has_own_ipc and os.path.ismount(MESSAGE_QUEUES) else []
        self._terminals = [_TERMINALS_OWN] if os.path.ismount(TERMINALS) and _can_mount(_TERMINALS_OWN) else []

    def sight_of(self, name: bytes, first: Mounts = ()) -> Sight:
        """First: what is mounted before the stage is moved away."""
        mounts = [*first, *self._mounts_of(name)]
        return Sight(self._namespaces, mounts, bool(self._memory), self.has_own_ipc)

    def shared_now(self) -> list[tuple[int, int]]:
        """Which folders are shared. Another one of the same path is another one."""
        found = []
        for folder, _ in self._shared:
            with kernel.suppress(OSError):
                facts = os.stat(folder)
                found.append((facts.st_dev, facts.st_ino))
        return found

    def _mounts_of(self, name: bytes) -> list[Mount]:
        """What leaves only the folder of that name in the room, and in each place the one for temporary files that is
        in it. The stage has an empty folder of the name. Shared memory is a memory of the attempt's own: files there
        would stay, and with them the memory."""
        room, stage, holder = self._room, self._stage, self._holder
        tmp = room + b"/" + name + _TMP_FOLDER
        mounts: list[Mount] = []
        if holder is not None:
            mounts.append((tmp, tmp, None, MS_BIND, None))  # so that it can be moved, with all that is mounted in it
        for folder, point in self._shared:
            if os.path.isdir(folder):
                mounts.append((folder, tmp + b"/" + point, None, MS_BIND | _MS_REC, None))
        mounts.append((room + b"/" + name, stage + b"/" + name, None, MS_BIND, None))
        if holder is None:
            mounts += [(tmp, place, None, self._flags, None) for place in self._others]
            mounts.append((stage, room, None, _MS_MOVE, None))
        else:
            mounts.append((stage, tmp + room[len(holder) :], None, _MS_MOVE, None))
            mounts.append((tmp, holder, None, _MS_MOVE, None))
            mounts += [(holder, place, None, self._flags, None) for place in self._others]
        mounts += [(b"tmpfs", place, b"tmpfs", _MS_PLAIN & ~_MS_NO_PROGRAMS, b"mode=1777") for place in self._memory]
        mounts += [(b"mqueue", place, b"mqueue", _MS_PLAIN, None) for place in self._queues]
        return mounts + self._terminals


def _can_mount(mount: Mount) -> bool:
    """Whether an attempt could, by trying it in a child: one that fails there would keep programs from starting."""
    child = os.fork()
    if child == 0:
        os._exit(0 if _unshare(_CLONE_NEWNS) == 0 and _mount_(*mount) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def _below(folder: bytes, places: Sequence[bytes]) -> bytes:
    return next(folder[len(place) + 1 :] for place in places if folder.startswith(place + b"/"))


def see_one_folder(sight: Sight) -> None:
    """Lets this process see nothing in the room but one folder, and share nothing that the namespaces are for."""
    if _unshare(sight.namespaces) != 0:
        raise kernel.last_fault("unshare")
    for mount in sight.mounts:
        if _mount_(*mount) != 0:
            raise kernel.last_fault("mount")


class Traces:
    """What attempts can leave outside of their folder for those who see the same: shared memory, System V objects and
    message queues. To be made by who sees it, before anybody else does."""

    def __init__(self, sight: Sight, folder: bytes) -> None:
        """Folder: any. Raises OSError."""
        self._handles = [_opened(SHARED_MEMORY)] if sight.has_memory else []
        self._tables: Sequence[bytes] = ()
        if sight.has_ipc:
            self._tables = _IPC_TABLES
            _mount(b"mqueue", folder, b"mqueue", _MS_PLAIN)  # for a moment: the queues of a namespace are seen by that
            self._handles.append(_opened(folder))
            if _unmount(folder, _DETACHED) != 0:
                raise kernel.last_fault("umount")
        self._times = self._changed_at()

    def are_none(self) -> bool:
        try:
            if self._changed_at() != self._times:  # what was put there and is gone tells that somebody has been there
                return False
            return not any(map(os.listdir, self._handles)) and all(
                kernel.read_small(table).count(b"\n") == 1
                for table in self._tables  # their first line is a heading; without it nobody could look
            )
        except OSError:
            return False

    def _changed_at(self) -> list[int]:
        return [os.fstat(handle).st_ctime_ns for handle in self._handles]


def _opened(folder: bytes) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    if _mount_(source, target, kind, flags, data) != 0:
        raise kernel.last_fault("mount")
