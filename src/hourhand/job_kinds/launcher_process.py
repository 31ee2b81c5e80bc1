"""The process that starts programs for an executor, and is the parent of all of them.

An executor has threads and much memory: a fork of it is slow, and what a child of it may safely do before its exec is
next to nothing. This process has one thread and hardly any memory. It is started by `launcher.py` as a program of its
own, imports nothing of ours but its parts, and is told what to do over a socket in packets of fields without
NUL, which is what arguments, variables and paths are anyway.

It promises that an attempt is reported as ended only when nothing of it is left, that the number of its first process
is taken until then, and that everything ends when the executor does: also when that was killed, which shows as the end
of the socket. Which limits and groups there are is the executor's to decide; here they are only put into effect.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import gc
import os
import select
import sys
import time
from _collections_abc import Sequence

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_attempt as attempts
    from hourhand.job_kinds import launcher_keeper as keeper
    from hourhand.job_kinds import launcher_kernel as kernel
    from hourhand.job_kinds import launcher_seats as seats
else:
    import launcher_attempt as attempts  # type: ignore[import-not-found,no-redef]
    import launcher_keeper as keeper  # type: ignore[import-not-found,no-redef]
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]
    import launcher_seats as seats  # type: ignore[import-not-found,no-redef]

PACKET_BYTES_MAX = keeper.PACKET_BYTES_MAX
HEARD_AT_ONCE = 16
BURY_SECONDS = 1.0
"""How long what has lost its parent and died may wait to be buried. Until then it counts as a process."""
FAREWELL_SECONDS_MAX = 10.0
NOT_EXECUTED = keeper.NOT_EXECUTED
LEFT, REMOVED, UNTOUCHED = b"0", b"1", b"2"
"""What has become of an attempt's folder."""

Fields = Sequence[bytes]


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.setblocking(False)
    for handle in map(int, sys.argv[1:]):  # further ones are locks that are to live as long as this process
        os.set_inheritable(handle, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, keeper.UNMASKED)
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
        """Of those that are not contained."""
        self._by_pid: dict[int, attempts.Attempt] = {}
        self._seat_of: dict[bytes, seats.Seat] = {}
        """Of those that are, by their numbers."""
        self._bury_at = 0.0
        self._has_orphans = False
        self._unsent: list[bytes] = []
        self._is_open = True
        self._epoll = select.epoll()
        self._epoll.register(channel.fileno(), select.EPOLLIN)
        self._seats = seats.Seats(self._epoll)

    def serve(self) -> None:
        while self._is_open:
            for handle, _ in self._epoll.poll(self._seconds_to_next_look()):
                if handle == self._channel.fileno():
                    self._hear()
                elif (seat := self._seats.by_handle.get(handle)) is not None:
                    self._hear_keeper(seat)
                elif handle in self._by_handle:
                    self._note_exit(self._by_handle.pop(handle))
            self._look_again()
            self._flush()

    # --- what the executor says -------------------------------------------------------------------------------

    def _hear(self) -> None:
        for _ in range(HEARD_AT_ONCE):  # then it is the turn of those that have exited
            try:
                data, beside, _, _ = self._channel.recvmsg(
                    PACKET_BYTES_MAX, keeper.HANDLES_SPACE, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionError:
                data, beside = b"", []
            if not data:
                self._is_open = False
                return
            handles = [handle for _, _, packed in beside for handle in memoryview(packed).cast("i")]
            try:
                self._do(data, handles)
            finally:
                for handle in handles:
                    os.close(handle)

    def _do(self, data: bytes, handles: Sequence[int]) -> None:
        lists = attempts.lists_of(data, handles)
        [verb, *about], rest = lists[0], lists[1:]
        if verb == b"launch":
            self._launch(attempts.Order(lists), data, handles)
        elif verb == b"set_up":
            self._say(b"ready", b" ".join(self._seats.set_up(*rest)))
        else:
            attempt = self._attempts.get(about[0])  # it may just have ended
            if attempt is not None:
                {b"ask": self._ask, b"kill": self._kill, b"reap": self._reap}[verb](attempt)

    def _launch(self, order: attempts.Order, data: bytes, handles: Sequence[int]) -> None:
        attempt = attempts.Attempt(order)
        step = b"prepare"
        try:
            if self._seats.contains:
                seat = self._seats.take(order)
                seat.attempt = attempt
                self._attempts[order.number], self._seat_of[order.number] = attempt, seat
                self._hand_over(seat, attempt, data, handles)
                return
            step = b"enter"
            os.chdir(order.start_in)
            step = b"execute"
            attempt.pid = kernel.spawn(*order.program(), handles[:3])
        except OSError as error:
            self._say(b"refused", order.number, step, b"%d" % (error.errno or 0), os.fsencode(str(error)))
            return
        attempt.handle = os.pidfd_open(attempt.pid)
        self._attempts[order.number] = self._by_handle[attempt.handle] = self._by_pid[attempt.pid] = attempt
        self._epoll.register(attempt.handle, select.EPOLLIN)

    def _hand_over(self, seat: seats.Seat, attempt: attempts.Attempt, data: bytes, handles: Sequence[int]) -> None:
        try:
            seat.send(data, handles)
        except OSError as error:  # its keeper has died: if that has said why, it is heard next
            attempt.fault, attempt.status = keeper.fault_of(b"prepare", error), NOT_EXECUTED << 8
            self._seats.end(seat)

    def _ask(self, attempt: attempts.Attempt) -> None:
        """Asks everything of an attempt to end, each once."""
        attempt.has_grace = True
        seat = self._seat_of.get(attempt.number)
        if seat is not None:
            with kernel.suppress(OSError):  # its keeper has died, and all of it goes
                seat.send(keeper.ASK)
            return
        self._signal_group(attempt, signal.SIGTERM)
        self._say(b"asked", attempt.number, b"%d" % attempt.pid)

    def _kill(self, attempt: attempts.Attempt) -> None:
        attempt.has_grace = False
        seat = self._seat_of.get(attempt.number)
        if seat is None:
            self._signal_group(attempt, signal.SIGKILL)
        elif seat.groups:
            self._seats.end(seat)
        else:
            with kernel.suppress(OSError):
                seat.send(keeper.KILL)

    def _reap(self, attempt: attempts.Attempt) -> None:
        """The executor has seen to what was left. It may know sooner than we that it has exited."""
        attempt.is_seen_to = True
        if attempt.has_exited:
            self._bury(attempt)

    # --- ends of what is contained ----------------------------------------------------------------------------

    def _hear_keeper(self, seat: seats.Seat) -> None:
        try:
            verb, *said = seat.channel.recv(PACKET_BYTES_MAX).split(b"\0")
        except BlockingIOError:
            return
        except ConnectionError:
            verb = b""
        attempt = seat.attempt
        if not verb:
            self._seats.forget_channel(seat)
            self._seats.end(seat)
        elif attempt is not None and verb == keeper.FAULT:
            attempt.fault, attempt.status = said, NOT_EXECUTED << 8
        elif attempt is not None:
            attempt.status, attempt.took = int(said[0]), said[1].split()
            # One that is to go is not given on, however its attempt has ended meanwhile: its keeper is killed.
            if verb == keeper.ENDED and seat.is_empty() and not self._seats.is_ending(seat):
                self._finish_in(seat, said[2] == b"1")
            else:
                self._seats.end(seat)

    def _finish_in(self, seat: seats.Seat, is_clean: bool) -> None:
        """Nobody is left but the keeper. Where the attempt has left anything else, its seat goes first."""
        attempt = seat.attempt
        assert attempt is not None
        if not is_clean or not _is_untouched(attempt):
            self._seats.end(seat)
            return
        seat.read()
        self._seats.give_back(seat)
        self._report(attempt)

    def _look_at_seat(self, seat: seats.Seat) -> None:
        """Of one that is to go: its attempt has ended when it is gone."""
        if not self._seats.look(seat) or seat.attempt is None:
            return
        attempt = seat.attempt
        if attempt.status is None:  # killed with its keeper
            attempt.status = signal.SIGKILL
            if not seat.groups:
                attempt.marks = ()  # nobody knows what is left of it
        self._report(attempt)

    # --- ends of what is not ------------------------------------------------------------------------------------

    def _note_exit(self, attempt: attempts.Attempt) -> None:
        self._epoll.unregister(attempt.handle)
        os.close(attempt.handle)
        attempt.has_exited = True
        if attempt.is_seen_to or not self._orphans():
            self._bury(attempt)
        elif not attempt.is_left:
            attempt.is_left = True
            if not attempt.has_grace:
                self._signal_group(attempt, signal.SIGKILL)
            self._say(b"left", attempt.number, b"%d" % attempt.pid)

    def _bury(self, attempt: attempts.Attempt) -> None:
        _, attempt.status, used = os.wait4(attempt.pid, 0)
        del self._by_pid[attempt.pid]
        facts = (used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, used.ru_inblock * 512, used.ru_oublock * 512)
        attempt.took = [b"%.6f" % fact for fact in facts]
        self._report(attempt)

    def _report(self, attempt: attempts.Attempt) -> None:
        del self._attempts[attempt.number]
        self._seat_of.pop(attempt.number, None)
        folder = UNTOUCHED
        if not _is_untouched(attempt):
            folder = REMOVED if kernel.remove_all(attempt.folders) else LEFT
        fault = attempt.fault if attempt.status == NOT_EXECUTED << 8 else (b"", b"0", b"")
        facts = b"%d" % (attempt.status or 0), *fault, folder, b" ".join(attempt.took), b"%d" % len(attempt.readings)
        self._say(b"ended", attempt.number, *facts, *attempt.readings, *attempt.before)

    def _orphans(self) -> list[int]:
        """Children that are no attempt's first process and no keeper: they have lost their parent. The dead are
        buried."""
        found = []
        for pid in kernel.children():
            if pid not in self._by_pid and pid not in self._seats.by_pid:
                with kernel.suppress(ChildProcessError):
                    if kernel.buried(pid)[0] == 0:
                        found.append(pid)
        self._has_orphans = bool(found)
        return found

    def _look_again(self) -> None:
        now = time.monotonic()
        self._seats.end_free()
        for seat in [seat for seat in self._seats.ending.values() if seat.look_at <= now]:
            self._look_at_seat(seat)
        if now >= self._bury_at or not self._attempts:
            self._bury_at = now + BURY_SECONDS
            for pid in self._orphans():
                if not self._attempts:  # whoever it belonged to has ended
                    with kernel.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)  # not waited for yet: the number is its own

    def _seconds_to_next_look(self) -> float:
        if self._unsent:
            return 0.01
        most = BURY_SECONDS if self._attempts or self._has_orphans else -1
        at = self._seats.next_look_at()
        if at is None:
            return most
        soonest: float = max(0.0, at - time.monotonic())
        return soonest if most < 0 else min(soonest, most)

    def _signal_group(self, attempt: attempts.Attempt, number: int) -> None:
        try:
            os.killpg(attempt.pid, number)  # not waited for yet: the number is its own
        except ProcessLookupError:  # it has no session yet
            with kernel.suppress(ProcessLookupError, PermissionError):
                os.kill(attempt.pid, number)
        except PermissionError:
            pass

    def end_everything(self) -> None:
        """The executor is gone: nobody wants what these programs do any more, others will get their runs."""
        end = time.monotonic() + FAREWELL_SECONDS_MAX
        for seat in list(self._seats.by_pid.values()):
            self._seats.end(seat)
        while time.monotonic() < end:
            for attempt in self._by_pid.values():
                self._signal_group(attempt, signal.SIGKILL)
            alive = sum([not self._seats.look(seat) for seat in list(self._seats.ending.values())])
            for pid in kernel.children():
                with kernel.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    if pid not in self._seats.by_pid:
                        os.kill(pid, signal.SIGKILL)
                        alive += kernel.buried(pid)[0] == 0
            if not alive:
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


def _is_untouched(attempt: attempts.Attempt) -> bool:
    return bool(attempt.marks) and kernel.are_as_marked(attempt.folders, attempt.marks)
