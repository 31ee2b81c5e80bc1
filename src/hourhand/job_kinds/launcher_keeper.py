"""Lives where attempts are to live, starts one program after the other there, and sees each through to its end.

A keeper is a child of the launcher that has joined the control groups of a seat and sees what attempts in that seat
may see. What it forks is there from its first moment: to move a process into a group stops all forks and ends on the
machine for a while, and to make and to end namespaces takes the kernel longer than all the rest of a start.

Whatever loses its parent becomes a child of the nearest process above that adopts such children: so all of an attempt
is found below its keeper as long as it lives, also what has started a new session and wiped its environment. In groups
the launcher kills, keeper and all; without them the keeper kills what is below it. It is in nobody's reach who is
contained, and reports whether anything was left in what attempts share with nobody but their successors here. Part of
the launcher, see `launcher_process.py`.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import os
import select
import sys
from _collections_abc import Sequence

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_attempt as attempts
    from hourhand.job_kinds import launcher_kernel as kernel
    from hourhand.job_kinds import launcher_view as views
else:
    import launcher_attempt as attempts  # type: ignore[import-not-found,no-redef]
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]
    import launcher_view as views  # type: ignore[import-not-found,no-redef]

PACKET_BYTES_MAX = 128 * 1024
HANDLES_SPACE = socket.CMSG_SPACE(4 * 4)
ASK, KILL = b"ask", b"kill"
"""What the launcher tells it beside orders: ask all of it to end; kill all of it."""
FAULT, ENDED, LEFT = b"fault", b"ended", b"left"
"""What it tells: why there is no program; nobody is left; the first process has ended, and somebody is left."""
MASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Meant for the executor, which decides what follows. Masked, not ignored: what is ignored stays so in programs."""
UNMASKED = (*MASKED, signal.SIGCHLD)
"""What programs hear again."""
NOT_EXECUTED = 127
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.002, 0.1
LOOKS_MAX = 3
"""Before signals are sent: who forks faster than that is told with the next round, if there is one."""
NEVER_ENDED = b"-1000"
"""Says to the kernel: look for somebody else when memory is short."""


class Surroundings:
    """What a keeper goes into before it starts anything, and what it is itself in nobody's eyes."""

    def __init__(
        self, joins: list[int], sight: "views.Sight | None", rules: int, account: tuple[int, int] | None,
        has_keyrings: bool,
    ) -> None:  # fmt: skip
        self.joins = joins
        """Lists of the members of its groups, to be written to. None: it has no groups."""
        self.sight = sight
        self.rules = rules
        """Of Landlock, a descriptor. Below zero: none."""
        self.account = account
        self.has_keyrings = has_keyrings

    @property
    def is_apart(self) -> bool:
        """Whether programs are other users than their keeper. One of the same user could change its limits, and the
        modes of what was mounted by it, and so harm whoever it starts next."""
        return self.account is not None and self.account[0] != os.geteuid()

    def enter(self) -> None:
        for join in self.joins:
            os.write(join, b"0")
            os.close(join)
        with kernel.suppress(OSError):  # who may not has to take its chance
            kernel.write(b"/proc/self/oom_score_adj", NEVER_ENDED)
        if self.sight is not None:
            views.see_one_folder(self.sight)


def keep(channel: socket.socket, around: Surroundings, own_folder: bytes) -> None:
    """In a child of the launcher. Never returns."""
    code = 1
    try:
        kernel.close_all_but(sorted({channel.fileno(), around.rules, *around.joins} - {-1}))
        os.setsid()
        kernel.adopt_orphans()
        kernel.die_with_parent()
        try:
            around.enter()
            traces = views.Traces(around.sight, own_folder) if around.sight and around.is_apart else None
        except OSError as error:
            channel.send(_fault(b"contain", error))
            return
        channel.setblocking(True)
        _Keeper(channel, around, traces).serve()
        code = 0
    finally:
        os._exit(code)


class _Keeper:
    def __init__(self, channel: socket.socket, around: Surroundings, traces: "views.Traces | None") -> None:
        self._channel = channel
        self._around = around
        self._traces = traces
        self._deaths = kernel.signal_handle(signal.SIGCHLD)
        self._poll = select.poll()
        for handle in (channel.fileno(), self._deaths):
            self._poll.register(handle, select.POLLIN)

    def serve(self) -> None:
        while True:
            data, beside, _, _ = self._channel.recvmsg(PACKET_BYTES_MAX, HANDLES_SPACE, socket.MSG_CMSG_CLOEXEC)
            if not data:
                return
            handles = [handle for _, _, packed in beside for handle in memoryview(packed).cast("i")]
            if not handles:
                continue  # about a program that has ended meanwhile
            try:
                first = self._start(attempts.Order(attempts.lists_of(data, handles)), handles)
            except OSError as error:  # the machine has no room for another process
                self._channel.send(_fault(b"prepare", error))
                return
            for handle in handles:
                os.close(handle)
            status, took = self._to_the_end(first)
            is_clean = self._traces is not None and self._traces.are_none()
            self._say(ENDED, status, took, b"1" if is_clean else b"0")

    def _say(self, verb: bytes, status: int, took: Sequence[float], *more: bytes) -> None:
        used = b" ".join([b"%.6f" % fact for fact in took])
        self._channel.send(b"\0".join((verb, b"%d" % status, used, *more)))

    # --- the new process --------------------------------------------------------------------------------------

    def _start(self, order: attempts.Order, handles: Sequence[int]) -> int:
        # All that can be done before the fork is done here: whatever a child touches is copied for it first.
        program = order.program()
        bounds = kernel.bounds([int(part) for part in order.limits])
        account = order.account(self._around.account)
        pid = os.fork()
        if pid == 0:
            self._become(order, program, handles, bounds, account)
        return pid

    def _become(
        self, order: attempts.Order, program: "kernel.Program", handles: Sequence[int], bounds: "kernel.Bounds",
        account: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        """In the child: becomes the program, or says why not and ends. Never returns."""
        step = b"contain"
        try:
            os.setsid()
            kernel.let_be_ended_first()
            for which, bound in bounds:
                kernel.set_limit(which, bound)
            if order.is_contained:
                kernel.take_own_keyring()  # before the change of user, who may have few keys: it is not one of his
            if account is not None:
                kernel.become(*account)
                if order.forgets_keys and self._around.has_keyrings:
                    kernel.forget_keys()
            kernel.die_with_parent()
            step = b"enter"
            os.chdir(order.start_in)
            step = b"contain"
            if order.is_contained:
                kernel.gain_nothing()
                if self._around.rules >= 0:
                    kernel.landlock(self._around.rules)
            os.dup2(handles[0], 0)
            os.dup2(handles[1], 1)
            os.dup2(handles[2], 2)
            # What was sent meanwhile is delivered now, and does to it what it does to any program.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, UNMASKED)
            step = b"execute"
            kernel.execute(*program)
        except BaseException as error:
            self._channel.send(_fault(step, error))
        finally:
            os._exit(NOT_EXECUTED)

    # --- its end ------------------------------------------------------------------------------------------------

    def _to_the_end(self, first: int) -> tuple[int, list[float]]:
        """Returns when there is nobody below: how the first process ended, and what all of them took."""
        status, took = 0, [0.0, 0.0, 0.0, 0.0]
        has_grace = kills = is_told = False
        pause = PAUSE_SECONDS_MIN
        while True:
            try:
                pid, how, used = kernel.buried()
            except ChildProcessError:
                return status, took
            if pid:
                cpu, read, written = used.ru_utime + used.ru_stime, used.ru_inblock * 512, used.ru_oublock * 512
                took = [took[0] + cpu, max(took[1], used.ru_maxrss * 1024), took[2] + read, took[3] + written]
                if pid == first:
                    status, kills = how, kills or not has_grace
                continue
            if kills and self._around.joins:
                if not is_told:  # the launcher kills the group then, and us with it
                    self._say(LEFT, status, took)
                    is_told = True
            elif kills:
                _send(signal.SIGSTOP)  # stopped, they cannot fork while they are killed
                _send(signal.SIGKILL)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            told = self._wait(pause if kills and not is_told else None)
            if told == ASK:
                has_grace = True
                _send(signal.SIGTERM)
            kills = kills or told == KILL

    def _wait(self, seconds: float | None) -> bytes:
        """What the launcher has told, if it was that."""
        ready = dict(self._poll.poll(None if seconds is None else seconds * 1000))
        if self._deaths in ready:
            os.read(self._deaths, kernel.SIGNAL_BYTES)
        if self._channel.fileno() not in ready:
            return b""
        told = self._channel.recv(PACKET_BYTES_MAX)
        if not told:
            os._exit(1)
        return told


def fault_of(step: bytes, error: BaseException) -> tuple[bytes, bytes, bytes]:
    number = error.errno or 0 if isinstance(error, OSError) else 0
    return step, b"%d" % number, os.fsencode(str(error))[:200].replace(b"\0", b" ")


def _fault(step: bytes, error: BaseException) -> bytes:
    return b"\0".join((FAULT, *fault_of(step, error)))


def _send(number: int) -> None:
    """To everybody below, each once. They are all found before the first one is told: what is below somebody who ends
    of it would be found no more, and what somebody starts because of it is not meant."""
    handles: dict[int, int] = {}
    try:
        for _ in range(LOOKS_MAX):
            before = len(handles)
            _find(handles)
            if len(handles) == before:
                break
        for handle in handles.values():
            with kernel.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(handle, number)
    finally:
        for handle in handles.values():
            os.close(handle)


def _find(handles: dict[int, int]) -> None:
    """Adds those below us that are new. A number stands for one process as long as its descriptor is open."""
    ours, fresh = {os.getpid()}, [os.getpid()]
    for parent in fresh:  # it grows meanwhile
        for pid in kernel.children_of(parent):
            with kernel.suppress(OSError):  # it has gone, or there is no room for more: the next round has them
                if pid not in handles:
                    handle = os.pidfd_open(pid)
                    if kernel.parent_of(pid) not in ours:  # only now is the number pinned to one process
                        os.close(handle)
                        continue
                    handles[pid] = handle
                ours.add(pid)
                fresh.append(pid)
