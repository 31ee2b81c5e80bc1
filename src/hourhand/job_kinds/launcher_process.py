"""The process that starts programs for an executor, and is the parent of all of them.

An executor has threads and much memory: a fork of it is slow, and what a child of it may safely do before its exec is
next to nothing. This process has one thread and hardly any memory. It is started by `launcher.py` as a program of its
own, imports nothing of ours but `launcher_kernel.py`, and is told what to do over a socket in packets of fields without
NUL, which is what arguments, variables and paths are anyway.

It promises that an attempt is reported as ended only when nothing of it is left, that the number of its first process
is taken until then, and that everything ends when the executor does: also when that was killed, which shows as the end
of the socket. Which limits and groups there are is the executor's to decide; here they are only put into effect.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` wraps: fewer steps between fork and exec
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # last: some of our names are the standard library's
    import launcher_attempt as attempts  # type: ignore[import-not-found]
    import launcher_fence as fence  # type: ignore[import-not-found]
    import launcher_keeper as keeper  # type: ignore[import-not-found]
    import launcher_kernel as kernel  # type: ignore[import-not-found]
    import launcher_names as names  # type: ignore[import-not-found]
else:
    from hourhand.job_kinds import launcher_attempt as attempts
    from hourhand.job_kinds import launcher_fence as fence
    from hourhand.job_kinds import launcher_keeper as keeper
    from hourhand.job_kinds import launcher_kernel as kernel
    from hourhand.job_kinds import launcher_names as names

PACKET_BYTES_MAX = 128 * 1024
HANDLES_SPACE = socket.CMSG_SPACE(4 * 4)
HEARD_AT_ONCE = 16
PAUSE_SECONDS_MAX = 0.1
BURY_SECONDS = 1.0
"""How long what has lost its parent and died may wait to be buried. Until then it counts as a process."""
FAREWELL_SECONDS_MAX = 10.0
NOT_EXECUTED = 127
LEFT, REMOVED, UNTOUCHED = b"0", b"1", b"2"
"""What has become of an attempt's folder."""
MASKED = (int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGHUP))
"""Meant for the executor, which decides what follows. Masked, not ignored: what is ignored stays so in programs."""

UNMASKED = (*MASKED, *map(int, keeper.HEARD))
"""What programs hear again."""

Fields = Sequence[bytes]


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.setblocking(False)
    for handle in map(int, sys.argv[1:]):  # further ones are locks that are to live as long as this process
        os.set_inheritable(handle, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, (*MASKED, *keeper.HEARD))
    # Python ignores some, and whoever started the executor may have ignored others: nohup does. So would programs.
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    kernel.adopt_orphans()
    launcher = Launcher(channel)
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection in a child would copy every page that it touches
    launcher.serve()
    launcher.end_everything()


class Launcher:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._attempts: dict[bytes, attempts.Attempt] = {}
        self._by_handle: dict[int, attempts.Attempt] = {}
        self._by_pid: dict[int, attempts.Attempt] = {}
        self._waiting: set[attempts.Attempt] = set()
        """Their first process has ended, and something of them is left."""
        self._bury_at = 0.0
        self._has_orphans = False
        self._unsent: list[bytes] = []
        self._is_open = True
        self._account: tuple[int, int] | None = None
        self._contains = False
        self._has_keyrings = False
        self._rules = -1
        self._stage = b""
        self._view: kernel.View | None = None
        """What attempts see; None where all may see all."""
        self._names: names.Names | None = None
        self._fence: fence.Fence | None = None
        self._faults, self._faults_write = os.pipe()
        os.set_blocking(self._faults, False)
        self._told: dict[int, Fields] = {}
        self._reports, self._reports_write = os.pipe()
        os.set_blocking(self._reports, False)
        self._reported: dict[int, Fields] = {}
        self._ways: list[tuple[bytes, bytes]] = []
        """How folders of groups are reached where their own paths are shut."""
        self._epoll = select.epoll()
        self._epoll.register(channel.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        while self._is_open:
            for handle, _ in self._epoll.poll(self._seconds_to_next_look()):
                if handle == self._channel.fileno():
                    self._hear()
                else:
                    self._note_exit(self._by_handle.pop(handle))
            self._look_again()
            self._flush()

    # --- what the executor says -------------------------------------------------------------------------------

    def _hear(self) -> None:
        for _ in range(HEARD_AT_ONCE):  # then it is the turn of those that have exited
            try:
                data, handles = self._receive()
            except BlockingIOError:
                return
            except ConnectionError:
                data, handles = b"", []
            if not data:
                self._is_open = False
                return
            try:
                self._do(attempts.lists_of(data), handles)
            finally:
                for handle in handles:
                    os.close(handle)

    def _receive(self) -> tuple[bytes, list[int]]:
        data, beside, _, _ = self._channel.recvmsg(PACKET_BYTES_MAX, HANDLES_SPACE, socket.MSG_CMSG_CLOEXEC)
        handles = [handle for _, _, packed in beside for handle in memoryview(packed).cast("i")]
        if data == b"\0":  # too long for a packet: it lies in a file in memory
            with open(handles.pop(), "rb") as file:
                file.seek(0)
                data = file.read()
        return data, handles

    def _do(self, lists: Sequence[Fields], handles: Sequence[int]) -> None:
        [verb, *about], rest = lists[0], lists[1:]
        if verb == b"launch":
            self._launch(about[0], handles, *rest)
        elif verb == b"set_up":
            self._set_up(*rest)
        else:
            attempt = self._attempts.get(about[0])  # it may just have ended
            if attempt is not None:
                {b"ask": self._ask, b"kill": self._kill, b"reap": self._reap}[verb](attempt)

    def _set_up(
        self, how: Fields, account: Fields, hidden: Fields, groups: Fields, places: Fields, shared: Fields
    ) -> None:
        """Once, before anything is launched. Says what it could do; whether that is enough is the executor's to say."""
        done = []
        contains, room = how
        if account:
            self._account = int(account[0]), int(account[1])
        self._contains = contains == b"1"
        if self._contains:
            self._rules = kernel.landlock_rules()
            if self._rules >= 0:
                done.append(b"landlock")
            # The launcher too: an attempt for which there is no room for one would have the executor's otherwise.
            self._has_keyrings = kernel.take_own_keyring()
            if self._has_keyrings:
                done.append(b"keyring")
            with contextlib.suppress(OSError):
                self._stage = os.path.join(room, b".stage")
                kernel.hide(hidden, room, self._stage)
                self._view = kernel.View(room, self._stage, places, shared)
                done.append(b"mounts")
                with contextlib.suppress(OSError):
                    self._names = names.Names(self._stage)
                if self._view.has_own_ipc:
                    done.append(b"ipc")
            if self._view is None:
                with contextlib.suppress(OSError):
                    self._fence = fence.Fence(places, shared)
                    done.append(b"fence")
            if self._view is not None and self._account is None and groups:
                with contextlib.suppress(OSError):
                    ways = [(group, b"/proc/self/fd/%d" % os.open(group, os.O_PATH | os.O_CLOEXEC)) for group in groups]
                    kernel.shut_groups()
                    self._ways = ways
                    done.append(b"groups")
            with contextlib.suppress(OSError):  # only root may
                if self._view is not None:
                    kernel.hide_processes()
                    done.append(b"proc")
        elif self._account is not None:  # who is spawned has no moment in which to change it himself
            kernel.become(*self._account)
        self._say(b"ready", b" ".join(done))

    def _launch(self, number: bytes, handles: Sequence[int], *what: Fields) -> None:
        how, argv, environment, groups, writes, reads, limits, folders, marks = what
        path, start_in, contains, user, forgets = how
        if self._ways:
            groups, writes, reads = map(self._reached, (groups, writes, reads))
        attempt = attempts.Attempt(number, groups, reads, folders, marks)
        step = b"prepare"
        view = self._view if contains == b"1" else None
        joins: list[int] = []
        rules = self._rules
        account = (int(user), self._account[1]) if user and self._account is not None else self._account
        try:
            for group in groups:
                os.mkdir(group, 0o755)
            for target, value in zip(writes[::2], writes[1::2], strict=True):
                kernel.write(target, value)
            if view is not None:
                attempt.point = (self._stage + b"/" + attempt.name,)
                os.mkdir(attempt.point[0], 0o700)
            program = list(argv), attempts.environment_of(environment), path
            if not self._contains:
                step = b"enter"
                os.chdir(start_in)
                step = b"execute"
                attempt.pid = kernel.spawn(*program, handles[:3])
            else:
                # All that can be done before the fork is done here: whatever a child touches is copied for it first.
                for group in groups:
                    joins.append(os.open(group + b"/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
                bounds = kernel.bounds([int(part) for part in limits])
                sight = None if view is None else view.sight_of(attempt.name, self._named(attempt, user, account))
                if self._fence is not None:
                    rules = self._fence.rules_for(folders[-1])
                attempt.is_kept = not groups
                attempt.pid = os.fork()
                if attempt.pid == 0:
                    who = rules if contains == b"1" else None, account, forgets == b"1" and self._has_keyrings
                    become = partial(self._become, program, handles, joins, bounds, sight, start_in, *who)
                    if not attempt.is_kept:
                        become()
                    self._keep(become, handles)
        except OSError as error:
            kernel.remove_groups(groups)
            self._leave_stage(attempt)
            self._say(b"refused", number, step, b"%d" % (error.errno or 0), os.fsencode(str(error)))
            return
        finally:
            for join in joins:
                os.close(join)
            if rules != self._rules:
                os.close(rules)
        if joins:
            kernel.let_be_ended_first(b"%d" % attempt.pid)
        attempt.handle = os.pidfd_open(attempt.pid)
        self._attempts[number] = self._by_handle[attempt.handle] = self._by_pid[attempt.pid] = attempt
        self._epoll.register(attempt.handle, select.EPOLLIN)

    def _named(self, attempt: attempts.Attempt, user: bytes, account: tuple[int, int] | None) -> kernel.Mounts:
        if not user or self._names is None or account is None:
            return ()
        listed: kernel.Mounts = self._names.mount_for(attempt.name, account, attempt.folders[-1])
        attempt.is_named = bool(listed)
        return listed

    def _leave_stage(self, attempt: attempts.Attempt) -> None:
        kernel.remove_all(attempt.point)
        if attempt.is_named and self._names is not None:
            self._names.forget(attempt.name)

    def _reached(self, paths: Fields) -> Fields:
        for group, way in self._ways:
            paths = [way + path[len(group) :] if path.startswith(group + b"/") else path for path in paths]
        return paths

    def _ask(self, attempt: attempts.Attempt) -> None:
        """Asks everything of an attempt to end, each once: what is not in the first one's group, by itself."""
        attempt.has_grace = True
        if attempt.is_kept:
            os.kill(attempt.pid, keeper.ASK)  # not waited for yet: the number is its own
            return
        self._signal_group(attempt, signal.SIGTERM)
        for group in attempt.groups[:1]:
            for pid in kernel.members(group):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(pid) != attempt.pid:
                        kernel.send_to_member(group, pid, signal.SIGTERM)
        if not attempt.groups:
            self._say(b"asked", attempt.number, b"%d" % attempt.pid)

    def _kill(self, attempt: attempts.Attempt) -> None:
        attempt.has_grace = False
        if attempt.is_kept:
            os.kill(attempt.pid, keeper.KILL)
            return
        self._signal_group(attempt, signal.SIGKILL)
        for group in attempt.groups[:1]:
            kernel.kill_members(group)

    def _reap(self, attempt: attempts.Attempt) -> None:
        """The executor has seen to what was left. It may know sooner than we that it has exited."""
        attempt.is_seen_to = True
        if attempt.has_exited:
            self._finish(attempt)

    # --- the new process --------------------------------------------------------------------------------------

    def _keep(self, become: Callable[[], None], handles: Sequence[int]) -> None:
        """In the child, where there are no groups: keeps what becomes the program. Never returns."""
        own = (self._channel.fileno(), self._epoll.fileno(), self._faults, self._reports, self._faults_write)
        keeper.keep(become, self._reports_write, (*handles, *own))

    def _become(
        self, program: kernel.Program, handles: Sequence[int], joins: Sequence[int], bounds: kernel.Bounds,
        sight: kernel.Sight | None, start_in: bytes, rules: int | None, account: tuple[int, int] | None, forgets: bool,
    ) -> None:  # fmt: skip
        """In the child: becomes the program, or says why not and ends. Never returns. Without rules it may gain
        rights."""
        step = b"contain"
        try:
            os.setsid()
            for join in joins:
                os.write(join, b"0")
            if not joins:  # else the launcher says so: what a child does costs more
                kernel.let_be_ended_first()
            for which, bound in bounds:
                kernel.set_limit(which, bound)
            if sight is not None:
                kernel.see_one_folder(*sight)
            if rules is not None:
                kernel.take_own_keyring()  # before the change of user, who may have few keys: it is not one of his
            if account is not None:
                kernel.become(*account)
                if forgets:
                    kernel.forget_keys()
            kernel.die_with_parent()
            step = b"enter"
            os.chdir(start_in)
            step = b"contain"
            if rules is not None:
                kernel.gain_nothing()
                if rules >= 0:
                    kernel.landlock(rules)
            os.dup2(handles[0], 0)
            os.dup2(handles[1], 1)
            os.dup2(handles[2], 2)
            # What was sent meanwhile is delivered now, and does to it what it does to any program.
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, UNMASKED)
            step = b"execute"
            kernel.execute(*program)
        except BaseException as error:
            number = error.errno or 0 if isinstance(error, OSError) else 0
            said = os.fsencode(str(error))[:200].replace(b"\n", b" ")
            os.write(self._faults_write, b"\0".join((b"%d" % os.getpid(), step, b"%d" % number, said)) + b"\n")
        finally:
            os._exit(NOT_EXECUTED)

    # --- ends -------------------------------------------------------------------------------------------------

    def _note_exit(self, attempt: attempts.Attempt) -> None:
        self._epoll.unregister(attempt.handle)
        os.close(attempt.handle)
        attempt.has_exited = True
        self._look(attempt)

    def _look(self, attempt: attempts.Attempt) -> None:
        """Finishes the attempt if nothing of it is left; else sees to it, and looks again later."""
        if attempt.groups:
            attempt.readings = [kernel.read_small(path) for path in attempt.reads]
            if kernel.remove_groups(attempt.groups):
                self._finish(attempt)
                return
            if not attempt.has_grace:
                kernel.kill_members(attempt.groups[0])
            attempt.look_at = time.monotonic() + attempt.pause
            attempt.pause = min(2 * attempt.pause, PAUSE_SECONDS_MAX)
            self._waiting.add(attempt)
        elif attempt.is_kept or attempt.is_seen_to or not self._orphans():
            self._finish(attempt)
        elif not attempt.is_left:
            attempt.is_left = True
            if not attempt.has_grace:
                self._signal_group(attempt, signal.SIGKILL)
            self._say(b"left", attempt.number, b"%d" % attempt.pid)

    def _finish(self, attempt: attempts.Attempt) -> None:
        self._waiting.discard(attempt)
        _, status, used = os.wait4(attempt.pid, 0)
        del self._attempts[attempt.number], self._by_pid[attempt.pid]
        first = attempt.pid
        facts = (used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, used.ru_inblock * 512, used.ru_oublock * 512)
        took: Fields = [b"%.6f" % fact for fact in facts]
        if attempt.is_kept and (report := self._report_of(attempt.pid)):  # else somebody has killed it
            first, status, took = int(report[0]), int(report[1]), report[2:]
        elif attempt.is_kept:
            attempt.marks = ()  # nobody knows what is left of it
        step, number, said = self._fault_of(first) if status == NOT_EXECUTED << 8 else (b"", b"0", b"")
        self._leave_stage(attempt)
        if attempt.marks and kernel.are_as_marked(attempt.folders, attempt.marks):
            folder = UNTOUCHED
        else:
            folder = REMOVED if kernel.remove_all(attempt.folders) else LEFT
        self._say(
            b"ended", attempt.number, b"%d" % status, step, number, said, folder, b" ".join(took), *attempt.readings
        )

    def _report_of(self, pid: int) -> Fields:
        """What a keeper has said: its program's first process, how that ended, what all of it took."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._reports, 65536).splitlines():
                of, *said = line.split()
                self._reported[int(of)] = said
        return self._reported.pop(pid, ())

    def _fault_of(self, pid: int) -> Fields:
        """What a child said that did not become its program."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._faults, 65536).split(b"\n"):
                if line:
                    of, *said = line.split(b"\0")
                    self._told[int(of)] = said
        return self._told.pop(pid, (b"", b"0", b""))

    def _orphans(self) -> list[int]:
        """Children that are no attempt's first process: they have lost their parent. The dead are buried."""
        found = []
        for pid in kernel.children():
            if pid not in self._by_pid:
                with contextlib.suppress(ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG)[0] == 0:
                        found.append(pid)
        self._has_orphans = bool(found)
        return found

    def _look_again(self) -> None:
        now = time.monotonic()
        for attempt in [attempt for attempt in self._waiting if attempt.look_at <= now]:
            self._look(attempt)
        if now >= self._bury_at or not self._attempts:
            self._bury_at = now + BURY_SECONDS
            for pid in self._orphans():
                if not self._attempts:  # whoever it belonged to has ended
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)  # not waited for yet: the number is its own

    def _seconds_to_next_look(self) -> float:
        if self._unsent:
            return 0.01
        if self._waiting:
            soonest: float = min(attempt.look_at for attempt in self._waiting)
            return max(0.0, soonest - time.monotonic())
        return BURY_SECONDS if self._attempts or self._has_orphans else -1

    def _signal_group(self, attempt: attempts.Attempt, number: int) -> None:
        try:
            os.killpg(attempt.pid, number)  # not waited for yet: the number is its own
        except ProcessLookupError:  # it has no session yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(attempt.pid, number)
        except PermissionError:
            pass

    def end_everything(self) -> None:
        """The executor is gone: nobody wants what these programs do any more, others will get their runs."""
        end = time.monotonic() + FAREWELL_SECONDS_MAX
        while time.monotonic() < end:
            for attempt in self._attempts.values():
                self._kill(attempt)
            alive = 0
            for pid in kernel.children():
                with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    alive += os.waitpid(pid, os.WNOHANG)[0] == 0
            left = [attempt for attempt in self._attempts.values() if not kernel.remove_groups(attempt.groups)]
            if not alive and not left:
                break
            time.sleep(0.002)

    # --- what is said to the executor ---------------------------------------------------------------------------

    def _say(self, *fields: bytes) -> None:
        self._unsent.append(b"\0".join(fields))

    def _flush(self) -> None:
        while self._unsent:
            try:
                self._channel.send(self._unsent[0], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._is_open = False
                return
            del self._unsent[0]


if __name__ == "__main__":
    main()
