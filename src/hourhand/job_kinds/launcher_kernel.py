"""What the launcher asks of the kernel: small calls without any memory of their own.

Part of a program of its own, see `launcher_process.py`: nothing of ours is imported, and little of anybody's. What a
process has in memory is copied, looked through and given up again with each program that it forks, so here are the bare
modules of the interpreter (`_signal`, `_socket`) instead of those that make them pleasant.
"""

import _signal as signal  # type: ignore[import-not-found]
import ctypes
import errno
import os
import resource
import sys
from _collections_abc import Callable, Iterable, Mapping, Sequence

Program = tuple[list[bytes], Mapping[bytes, bytes], bytes]
"""Arguments, environment, and where it is looked for."""
Bounds = Sequence[tuple[int, tuple[int, int]]]
"""Which limit of a process; soft and hard."""

_READ_BYTES_MAX = 4096
LIST_BYTES_MAX = 1 << 20

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_PTRACE_DETACH = 17
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_MAKE_DEVICES = 1 << 6 | 1 << 11
_LANDLOCK_SCOPES = 1 | 2  # abstract sockets, signals

_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}.get(os.uname().machine)
_KEYCTL_JOIN_SESSION, _KEYCTL_CLEAR, _KEYCTL_GET_PERSISTENT = 1, 7, 22
_PROCESS_KEYRING, _USER_KEYRING, _USER_SESSION_KEYRING = -2, -4, -5


_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _ptrace, syscall = _libc.prctl, _libc.ptrace, _libc.syscall
_prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_hardest: dict[int, int] = {}
"""Above which limit this process cannot go itself, as far as that was asked for. It does not change."""
set_limit = resource.setrlimit
SIGNAL_BYTES = 128
_SIGNAL_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK


# --- the process itself -----------------------------------------------------------------------------------------


class suppress:  # noqa: N801 - it stands for contextlib's, which is a tenth of all that a keeper would have in memory
    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def adopt_orphans() -> None:
    """What loses its parent below us becomes our child."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise last_fault("prctl")


def die_with_parent() -> None:
    """After a change of user, which clears it."""
    if _prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0) != 0:
        raise last_fault("prctl")


def signal_handle(number: int) -> int:
    """A descriptor that can be read from, `SIGNAL_BYTES` at a time, when that signal has come. It must be blocked."""
    mask = (1 << (number - 1)).to_bytes(8, sys.byteorder) + bytes(SIGNAL_BYTES - 8)
    handle: int = _libc.signalfd(-1, mask, _SIGNAL_FLAGS)
    if handle < 0:
        raise last_fault("signalfd")
    return handle


def close_all_but(kept: Sequence[int]) -> None:
    """All descriptors above the standard ones, but for these, which are in order."""
    low = 3
    for handle in kept:
        os.closerange(low, handle)
        low = handle + 1
    os.closerange(low, max(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def let_be_ended_first() -> None:
    """Whoever else lives on a machine that runs out of memory, the kernel ends this process, and what it starts, before
    that. Where root has all its rights, only root can take it back."""
    with suppress(OSError):
        write(b"/proc/self/oom_score_adj", b"1000")


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


def buried(which: int = -1) -> tuple[int, int, resource.struct_rusage]:
    """A child that has ended, or this one if it has: its number, how it ended and what it took; 0: there is none yet.

    A child may say that it is to be traced by us, whether we want it or not. Then the kernel stops it at its next
    signal and tells us of that as it does of an end: it is let go, with its signal, and goes on as if it had not."""
    while True:
        pid, status, used = os.wait4(which, os.WNOHANG)
        if pid == 0 or not os.WIFSTOPPED(status):
            return pid, status, used
        number = os.WSTOPSIG(status)
        _ptrace(_PTRACE_DETACH, pid, None, None if number == signal.SIGTRAP else number)  # that one is for who traces


def children() -> list[int]:
    """Ours, looked at until two looks say the same: a list that is read while one ends may lack another."""
    path = b"/proc/self/task/%d/children" % os.getpid()
    now, last = read(path, LIST_BYTES_MAX), None
    while now != last:
        now, last = read(path, LIST_BYTES_MAX), now
    return [int(pid) for pid in now.split()]


def children_of(pid: int) -> list[int]:
    """Those of all threads of a process."""
    found = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += read(os.fsencode(f"/proc/{pid}/task/{thread}/children"), LIST_BYTES_MAX).split()
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


# --- control groups ---------------------------------------------------------------------------------------------


def members(group: bytes) -> list[int]:
    """Those in the group, and in groups that they have made in it."""
    groups = [group, *inner_groups(group)]
    return [int(pid) for each in groups for pid in read(each + b"/cgroup.procs", LIST_BYTES_MAX).split()]


def inner_groups(group: bytes) -> list[bytes]:
    """Groups in this one, each after those that are in it."""
    found = [group]
    for outer in found:  # it grows meanwhile; not by recursion: a stranger says how deep it goes
        with suppress(OSError):
            if os.stat(outer).st_nlink > 2:  # else there are none, as nearly always
                with os.scandir(outer) as entries:
                    found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return found[:0:-1]


def send_to_member(group: bytes, pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
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
    with suppress(OSError):  # frozen, they cannot fork while they are killed
        write(group + b"/freezer.state", b"FROZEN")
    for pid in members(group):
        send_to_member(group, pid, signal.SIGKILL)
    with suppress(OSError):
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


def last_fault(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")
