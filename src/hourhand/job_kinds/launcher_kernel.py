"""What the launcher asks of the kernel: small calls without any memory of their own.

Part of a program of its own, see `launcher_process.py`: nothing of ours is imported, and little of anybody's.
"""

import contextlib
import ctypes
import errno
import os
import resource
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence

Program = tuple[list[bytes], Mapping[bytes, bytes], bytes]
"""Arguments, environment, and where it is looked for."""
Bounds = Sequence[tuple[int, tuple[int, int]]]
"""Which limit of a process; soft and hard."""
Mount = tuple[bytes, bytes, bytes | None, int, bytes | None]
Mounts = Sequence[Mount]
Sight = tuple[int, Mounts]
"""Which namespaces are an attempt's own, and what is mounted in them."""

_READ_BYTES_MAX = 4096
_LIST_BYTES_MAX = 1 << 20
_STAGE_BYTES_MAX = 1 << 26
"""Folders take nothing there, lists of accounts a page or some."""

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
MS_BIND, _MS_MOVE, _MS_REC, _MS_SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
_MS_READ_ONLY, _MS_CHANGE = 0x1, 0x20
_MS_NO_PROGRAMS = 0x8
_MS_PLAIN = 0x2 | 0x4 | _MS_NO_PROGRAMS  # no set-user-id, no devices
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_MAKE_DEVICES = 1 << 6 | 1 << 11
_LANDLOCK_SCOPES = 1 | 2  # abstract sockets, signals

_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)
_KEYCTL_JOIN_SESSION, _KEYCTL_CLEAR, _KEYCTL_GET_PERSISTENT = 1, 7, 22
_PROCESS_KEYRING, _USER_KEYRING, _USER_SESSION_KEYRING = -2, -4, -5

SHARED_MEMORY = b"/dev/shm"
MESSAGE_QUEUES = b"/dev/mqueue"
"""Where they are seen as files: those of whoever has mounted it, whatever namespace one is in."""
TERMINALS = b"/dev/pts"
_TERMINALS_OWN = (b"devpts", TERMINALS, b"devpts", 0x2 | _MS_NO_PROGRAMS, b"newinstance,ptmxmode=0666,mode=600,max=64")
"""A machine has a few thousand for all, and who cannot have one cannot log in."""
_TMP_FOLDER = b"/.hourhand-tmp"
"""In the attempt's own folder; the executor makes it."""

_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _unshare, _mount_, syscall = _libc.prctl, _libc.unshare, _libc.mount, _libc.syscall
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_mount_.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_hardest: dict[int, int] = {}
"""Above which limit this process cannot go itself, as far as that was asked for. It does not change."""
set_limit = resource.setrlimit


# --- the process itself -----------------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """What loses its parent below us becomes our child."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise last_fault("prctl")


def die_with_parent() -> None:
    """After a change of user, which clears it."""
    if _prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0) != 0:
        raise last_fault("prctl")


def let_be_ended_first(process: bytes = b"self") -> None:
    """Whoever else lives on a machine that runs out of memory, the kernel ends this process, and what it starts, before
    that. Where root has all its rights, only root can take it back."""
    with contextlib.suppress(OSError):
        write(b"/proc/%b/oom_score_adj" % process, b"1000")


def gain_nothing() -> None:
    """No program that is executed from now on, whatever its mode, has more rights than this process."""
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise last_fault("prctl")


def take_own_keyring() -> bool:
    """Lets this process and its children have an empty session keyring instead of that of its parent. False where the
    kernel has none, does not let us, or has no room for more of them; then it is still that of the parent."""
    return _KEYCTL is not None and syscall(_KEYCTL, _KEYCTL_JOIN_SESSION, None) > 0


def forget_keys() -> None:
    """Empties the keyrings that the kernel keeps for the user that we are, whoever was it before. It makes them for
    that if they are not there, and never removes them: so only where somebody was."""
    for keyring in (_USER_KEYRING, _USER_SESSION_KEYRING):
        if syscall(_KEYCTL, _KEYCTL_CLEAR, keyring) != 0:
            raise last_fault("keyctl")
    persistent = syscall(_KEYCTL, _KEYCTL_GET_PERSISTENT, -1, _PROCESS_KEYRING)  # not all kernels have them
    if persistent > 0 and syscall(_KEYCTL, _KEYCTL_CLEAR, persistent) != 0:
        raise last_fault("keyctl")


def bounds(limits: Sequence[int]) -> Bounds:
    """Limits for a child, from threes of which, soft and hard: never above what we may have ourselves."""
    found = []
    for at in range(0, len(limits), 3):
        which, soft, hard = limits[at : at + 3]
        most = _hardest.get(which)
        if most is None:
            most = _hardest[which] = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            hard = min(hard, most)
        found.append((which, (min(soft, hard), hard)))
    return found


def become(user: int, group: int) -> None:
    """Another user for good, and in no other group."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def execute(argv: list[bytes], environment: Mapping[bytes, bytes], path: bytes) -> None:
    """As execvpe does, but the error tells of the program that was found, not of the last place it is not in."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell, on purpose
    _in_path(argv[0], path, lambda program: os.execve(program, argv, environment))  # noqa: S606


def spawn(argv: list[bytes], environment: Mapping[bytes, bytes], path: bytes, handles: Sequence[int]) -> int:
    """Starts a program in a session of its own with these descriptors, without copying this process: quicker than a
    fork, but nothing can be done in between."""
    actions = [(os.POSIX_SPAWN_DUP2, handle, target) for target, handle in enumerate(handles)]

    def start(program: bytes) -> int:
        return os.posix_spawn(program, argv, environment, file_actions=actions, setsid=True, setsigmask=())

    return _in_path(argv[0], path, start)


def _in_path(program: bytes, path: bytes, start: Callable[[bytes], int]) -> int:
    if b"/" in program:
        return start(program)
    fault: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in path.split(b":"):
        try:
            return start(os.path.join(folder, program))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                fault = error
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                break
    raise fault


def children() -> list[int]:
    """Ours, looked at until two looks say the same: a list that is read while one ends may lack another."""
    path = b"/proc/self/task/%d/children" % os.getpid()
    now, last = read(path, _LIST_BYTES_MAX), None
    while now != last:
        now, last = read(path, _LIST_BYTES_MAX), now
    return [int(pid) for pid in now.split()]


def children_of(pid: int) -> list[int]:
    """Those of all threads of a process."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += read(os.fsencode(f"/proc/{pid}/task/{thread}/children"), _LIST_BYTES_MAX).split()
    return [int(child) for child in found]


def parent_of(pid: int) -> int:
    """0 when it is gone."""
    # The second field is the program's name in brackets, which may itself hold brackets and spaces.
    fields = read(b"/proc/%d/stat" % pid).rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


# --- what it can see and reach ----------------------------------------------------------------------------------


def landlock_version() -> int:
    """Not above 0 where the kernel has no Landlock."""
    version: int = syscall(_LANDLOCK_CREATE, None, 0, 1)
    return version


def landlock_rules(asked: int = _LANDLOCK_MAKE_DEVICES) -> int:
    """Rules that set apart: who is outside cannot be looked into, nor, from version 6 on, signalled or reached by
    abstract sockets; files are left alone but for what is asked. A descriptor, negative without Landlock."""
    version = landlock_version()
    if version <= 0:
        return -1
    rules = (ctypes.c_uint64 * 3)(asked, 0, _LANDLOCK_SCOPES)
    handle: int = syscall(_LANDLOCK_CREATE, ctypes.byref(rules), 24 if version >= 6 else 8, 0)
    return handle


def landlock(rules: int) -> None:
    if syscall(_LANDLOCK_RESTRICT, rules, 0) != 0:
        raise last_fault("landlock")


def hide(paths: Iterable[bytes], room: bytes, stage: bytes) -> None:
    """Puts emptiness over the paths for us and all our children, but not over the room, wherever it is. The stage, in
    the room, becomes a folder in memory: much is made and removed there. Raises OSError where the kernel does not let
    us."""
    user, group = os.geteuid(), os.getegid()
    if _unshare(_CLONE_NEWNS if user == 0 else _CLONE_NEWNS | _CLONE_NEWUSER) != 0:
        raise last_fault("unshare")
    if user != 0:
        write(b"/proc/self/setgroups", b"deny")
        write(b"/proc/self/uid_map", b"%d %d 1" % (user, user))
        write(b"/proc/self/gid_map", b"%d %d 1" % (group, group))
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
    for line in read(b"/proc/self/mountinfo", _LIST_BYTES_MAX).splitlines():
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
        return self._namespaces, [*first, *self._mounts_of(name)]

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


def see_one_folder(namespaces: int, mounts: Mounts) -> None:
    """Lets this process see nothing in the room but one folder, and share nothing that the namespaces are for."""
    if _unshare(namespaces) != 0:
        raise last_fault("unshare")
    for mount in mounts:
        if _mount_(*mount) != 0:
            raise last_fault("mount")


# --- control groups ---------------------------------------------------------------------------------------------


def members(group: bytes) -> list[int]:
    """Those in the group, and in groups that they have made in it."""
    groups = [group, *inner_groups(group)]
    return [int(pid) for each in groups for pid in read(each + b"/cgroup.procs", _LIST_BYTES_MAX).split()]


def inner_groups(group: bytes) -> list[bytes]:
    """Groups in this one, each after those that are in it."""
    found = [group]
    for outer in found:  # it grows meanwhile; not by recursion: a stranger says how deep it goes
        with contextlib.suppress(OSError):
            if os.stat(outer).st_nlink > 2:  # else there are none, as nearly always
                with os.scandir(outer) as entries:
                    found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return found[:0:-1]


def send_to_member(group: bytes, pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(pid)
        try:
            if pid in members(group):  # only now is the number pinned to one process
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def kill_members(group: bytes) -> None:
    try:
        write(group + b"/cgroup.kill", b"1")
    except OSError:  # of version 1, or older than the file
        _kill_one_by_one(group)


def _kill_one_by_one(group: bytes) -> None:
    with contextlib.suppress(OSError):  # frozen, they cannot fork while they are killed
        write(group + b"/freezer.state", b"FROZEN")
    for pid in members(group):
        send_to_member(group, pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        write(group + b"/freezer.state", b"THAWED")


def remove_groups(groups: Iterable[bytes]) -> bool:
    """Whether none of these groups is there any more: the kernel removes one only when nobody is in it. Those that a
    program has made in its own go with it; else it could keep its attempt from ever ending."""
    for group in groups:
        try:
            os.rmdir(group)
        except FileNotFoundError:
            continue
        except OSError:
            if not remove_all([*inner_groups(group), group]):
                return False
    return True


def remove_all(folders: Iterable[bytes]) -> bool:
    """Whether none of these folders is there any more. What follows one that is not empty is left too."""
    for folder in folders:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def are_as_marked(folders: Sequence[bytes], marks: Sequence[bytes]) -> bool:
    """Whether nobody has changed these folders since, nor put anything into them."""
    try:
        for folder, mark in zip(folders, marks, strict=True):
            if os.stat(folder).st_ctime_ns != int(mark):
                return False
    except OSError:
        return False
    return True


# --- files ------------------------------------------------------------------------------------------------------


def write(path: bytes, value: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value)
    finally:
        os.close(handle)


def read_small(path: bytes) -> bytes:
    """A file that the kernel makes up of a few lines. Empty when it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, _READ_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(handle)


def read(path: bytes, bytes_max: int = _READ_BYTES_MAX) -> bytes:
    """Empty when it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces = []
    try:
        while bytes_max > 0 and (piece := os.read(handle, bytes_max)):
            pieces.append(piece)
            bytes_max -= len(piece)
    except OSError:
        pass
    finally:
        os.close(handle)
    return b"".join(pieces)


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    if _mount_(source, target, kind, flags, data) != 0:
        raise last_fault("mount")


def last_fault(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")
