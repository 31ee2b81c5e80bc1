"""The seats of contained programs: each is control groups and a keeper in them, see `launcher_keeper.py`, who sees one
folder for attempts.

A seat is made for the attempt that has its folder, and kept for the next one that gets this folder if the attempt has
left nothing: no process, no file, no shared memory, no event in its groups. Programs that are the user of their keeper
have seats for themselves. Seats that nobody uses for a while go. Part of the launcher, see `launcher_process.py`.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import os
import select
import sys
import time
from _collections_abc import Sequence

if "hourhand" in sys.modules:
    from hourhand.job_kinds import launcher_attempt as attempts
    from hourhand.job_kinds import launcher_fence as fence
    from hourhand.job_kinds import launcher_keeper as keeper
    from hourhand.job_kinds import launcher_kernel as kernel
    from hourhand.job_kinds import launcher_names as names
    from hourhand.job_kinds import launcher_view as views
else:
    import launcher_attempt as attempts  # type: ignore[import-not-found,no-redef]
    import launcher_fence as fence  # type: ignore[import-not-found,no-redef]
    import launcher_keeper as keeper  # type: ignore[import-not-found,no-redef]
    import launcher_kernel as kernel  # type: ignore[import-not-found,no-redef]
    import launcher_names as names  # type: ignore[import-not-found,no-redef]
    import launcher_view as views  # type: ignore[import-not-found,no-redef]

FREE_MAX = 64
FREE_SECONDS_MAX = 5.0
"""A keeper takes a megabyte or so: after a crowd they are not kept for long."""
HELD_BYTES_MAX = 16 << 20
"""With its keeper a group holds two or three megabytes. What an attempt has read, and nobody else before, adds to that,
and would be taken for what the next one needs."""
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.001, 0.1
END_SECONDS_MAX = 1.0
"""How long an attempt waits for the end of a seat that is not fit for it any more."""
Fields = Sequence[bytes]


class Seat:
    """One, from its making until its keeper and its groups are gone."""

    def __init__(self, order: "attempts.Order", groups: Fields) -> None:
        self.folder = order.folders[-1]
        self.name = order.name
        self.groups = groups
        """As we reach them."""
        self.is_contained = order.is_contained
        self.writes: Fields = ()
        """What its limits are."""
        self.channel: socket.socket
        self.pid = 0
        """Of its keeper, until that is waited for."""
        self.point: Fields = ()
        """Where its folder is mounted on its way to its place."""
        self.edition = 0
        """Of the list of accounts; 0: it has none of its own."""
        self.shared: Sequence[tuple[int, int]] = ()
        self.attempt: attempts.Attempt | None = None
        self.events: Fields = ()
        self.reads: Fields = ()
        self.holds: Fields = ()
        self.first_events: Fields = ()
        """What was read before anybody was in it."""
        self.last: Fields = ()
        """What was read at the end of the attempt before."""
        self.free_until = 0.0
        self.pause = PAUSE_SECONDS_MIN
        self.look_at = 0.0

    def send(self, packet: bytes, handles: Sequence[int] = ()) -> None:
        packed = b"".join([handle.to_bytes(4, sys.byteorder) for handle in handles])
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if handles else []
        self.channel.sendmsg([packet], beside, socket.MSG_NOSIGNAL)

    def read(self) -> None:
        """Takes down what the groups say at the end of the attempt."""
        if self.attempt is not None and self.groups:
            self.attempt.before = self.last
            self.attempt.readings = [kernel.read_small(path) for path in (*self.events, *self.reads)]

    def is_empty(self) -> bool:
        """Whether nobody is in it but its keeper: said by the kernel, where there are groups."""
        return not self.groups or kernel.members(self.groups[0]) == [self.pid]

    def holds_much(self) -> bool:
        return any(int(kernel.read_small(path) or HELD_BYTES_MAX + 1) > HELD_BYTES_MAX for path in self.holds)

    def kill(self) -> None:
        """Everybody in it, with its keeper, who may not have joined it yet."""
        for group in self.groups[:1]:
            kernel.kill_members(group)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # not waited for yet: the number is its own


class Seats:
    """Those of one launcher, and what is the same for all of them."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self.contains = False
        self.account: tuple[int, int] | None = None
        self._has_keyrings = False
        self._rules = -1
        self._stage = b""
        self._view: views.View | None = None
        """What attempts see; None where all may see all."""
        self._names: names.Names | None = None
        self._fence: fence.Fence | None = None
        self._ways: list[tuple[bytes, bytes]] = []
        """How folders of groups are reached where their own paths are shut."""
        self.by_handle: dict[int, Seat] = {}
        self.by_pid: dict[int, Seat] = {}
        self._free: dict[bytes, Seat] = {}
        """By their folders, in the order in which they became free."""
        self.ending: dict[bytes, Seat] = {}
        """Those that are to go, until they are gone, by their folders."""

    def set_up(
        self, how: Fields, account: Fields, hidden: Fields, groups: Fields, places: Fields, shared: Fields
    ) -> list[bytes]:
        """Once, before anything is launched. Says what it could do; whether that is enough is the executor's to say."""
        contains, room = how
        if account:
            self.account = int(account[0]), int(account[1])
        self.contains = contains == b"1"
        if not self.contains:
            if self.account is not None:  # who is spawned has no moment in which to change it himself
                kernel.become(*self.account)
            return []
        done = []
        self._rules = kernel.landlock_rules()
        if self._rules >= 0:
            done.append(b"landlock")
        # The launcher too: an attempt for which there is no room for one would have the executor's otherwise.
        self._has_keyrings = kernel.take_own_keyring()
        if self._has_keyrings:
            done.append(b"keyring")
        with kernel.suppress(OSError):
            self._stage = os.path.join(room, b".stage")
            views.hide(hidden, room, self._stage)
            self._view = views.View(room, self._stage, places, shared)
            done.append(b"mounts")
            with kernel.suppress(OSError):
                self._names = names.Names(self._stage)
            if self._view.has_own_ipc:
                done.append(b"ipc")
        if self._view is None:
            with kernel.suppress(OSError):
                self._fence = fence.Fence(places, shared)
                done.append(b"fence")
            return done
        if self.account is None and groups:
            with kernel.suppress(OSError):
                ways = [(group, b"/proc/self/fd/%d" % os.open(group, os.O_PATH | os.O_CLOEXEC)) for group in groups]
                views.shut_groups()
                self._ways = ways
                done.append(b"groups")
        with kernel.suppress(OSError):  # only root may
            views.hide_processes()
            done.append(b"proc")
        return done

    # --- for an attempt -----------------------------------------------------------------------------------------

    def take(self, order: "attempts.Order") -> Seat:
        """A seat for what is ordered, with its limits: the one that is there for its folder, or a new one. Raises
        OSError."""
        groups, writes, resets = map(self._reached, (order.groups, order.writes, order.resets))
        seat = self._free.pop(order.folders[-1], None)
        if seat is not None:
            with kernel.suppress(OSError):
                if self._fits(seat, order, groups, writes):
                    if seat.writes != writes:
                        _write_all(writes)
                        seat.writes = writes
                    _write_all(resets)
                    return seat
            self.end(seat)
        if order.folders[-1] in self.ending:
            self._wait_for_end(self.ending[order.folders[-1]])
        return self._made(order, groups, writes)

    def _fits(self, seat: Seat, order: "attempts.Order", groups: Fields, writes: Fields) -> bool:
        if seat.groups != groups or seat.is_contained != order.is_contained:
            return False
        if seat.writes[::2] != writes[::2]:  # a limit that is not written anew would stay
            return False
        if self._view is not None and seat.shared != self._view.shared_now():
            return False
        return not seat.is_contained or self._list_account(seat, order) == seat.edition

    def _made(self, order: "attempts.Order", groups: Fields, writes: Fields) -> Seat:
        seat = Seat(order, groups)
        ours: socket.socket | None = None
        try:
            for group in groups:
                _make_group(group)
            _write_all(writes)
            seat.writes = writes
            seat.events, seat.reads, seat.holds = map(self._reached, (order.events, order.reads, order.holds))
            seat.first_events = [kernel.read_small(path) for path in seat.events]
            around = self._surroundings(seat, order)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                # Opened here: what it sees of groups may be shut.
                for group in groups:
                    around.joins.append(os.open(group + b"/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
                seat.pid = os.fork()
                if seat.pid == 0:
                    keeper.keep(theirs, around, seat.folder)
            finally:
                theirs.close()
                for handle in (*around.joins, *({around.rules} - {self._rules})):
                    os.close(handle)
        except OSError:
            if ours is not None:
                ours.close()
            kernel.remove_groups(groups)
            self._leave_stage(seat)
            raise
        ours.setblocking(False)
        seat.channel = ours
        self.by_handle[ours.fileno()] = self.by_pid[seat.pid] = seat
        self._epoll.register(ours.fileno(), select.EPOLLIN)
        return seat

    def _surroundings(self, seat: Seat, order: "attempts.Order") -> "keeper.Surroundings":
        sight, rules = None, self._rules
        if self._view is not None and seat.is_contained:
            seat.point = (self._stage + b"/" + seat.name,)
            os.mkdir(seat.point[0], 0o700)
            seat.shared = self._view.shared_now()
            seat.edition = self._list_account(seat, order)
            first = self._names.mounts_for(seat.name) if seat.edition and self._names is not None else ()
            sight = self._view.sight_of(seat.name, first)
        if self._fence is not None:
            rules = self._fence.rules_for(seat.folder)
        return keeper.Surroundings([], sight, rules, self.account, self._has_keyrings)

    def _list_account(self, seat: Seat, order: "attempts.Order") -> int:
        """Writes the list of accounts that programs in the seat see. Which edition it is; 0 where there is none."""
        account = order.account(self.account)
        if self._names is None or not order.user or account is None:
            return 0
        return self._names.write(seat.name, account, seat.folder)

    def _leave_stage(self, seat: Seat) -> None:
        kernel.remove_all(seat.point)
        if seat.edition and self._names is not None:
            self._names.forget(seat.name)

    def _reached(self, paths: Fields) -> Fields:
        for group, way in self._ways:
            paths = [way + path[len(group) :] if path.startswith(group + b"/") else path for path in paths]
        return paths

    # --- after it -----------------------------------------------------------------------------------------------

    def give_back(self, seat: Seat) -> None:
        """Its attempt has ended, and has left nothing but figures in its groups. If these allow it, it is kept for the
        next one."""
        attempt, seat.attempt = seat.attempt, None
        readings: Fields = () if attempt is None else attempt.readings
        has_events = [*readings[: len(seat.events)]] != [*seat.first_events]
        if has_events or seat.holds_much() or any(map(kernel.inner_groups, seat.groups)):
            self.end(seat)
            return
        seat.last = readings
        seat.free_until = time.monotonic() + FREE_SECONDS_MAX
        self._free[seat.folder] = seat
        if len(self._free) > FREE_MAX:
            self.end(self._free.pop(next(iter(self._free))))

    def end(self, seat: Seat) -> None:
        """Kills everybody in it. It is gone when `look` says so."""
        self._free.pop(seat.folder, None)
        seat.kill()
        self.ending[seat.folder] = seat
        seat.look_at = time.monotonic() + seat.pause

    def look(self, seat: Seat) -> bool:
        """Whether one that is to end is gone; else it is killed again, and to be looked at later."""
        if seat.pid and os.waitpid(seat.pid, os.WNOHANG)[0]:
            del self.by_pid[seat.pid]
            seat.pid = 0
        if not seat.pid:
            seat.read()
            if not self._has_left(seat) and kernel.remove_groups(seat.groups):
                del self.ending[seat.folder]
                self.forget_channel(seat)
                self._leave_stage(seat)
                return True
        seat.kill()
        seat.pause = min(2 * seat.pause, PAUSE_SECONDS_MAX)
        seat.look_at = time.monotonic() + seat.pause
        return False

    def _has_left(self, seat: Seat) -> bool:
        """Where there are no groups: whether children of ours are alive that are no keepers. They were below a keeper
        that has been killed, and are killed too."""
        if seat.groups:
            return False
        found = [pid for pid in kernel.children() if pid not in self.by_pid and kernel.buried(pid)[0] == 0]
        for pid in found:
            os.kill(pid, signal.SIGKILL)  # not waited for yet: the number is its own
        return bool(found)

    def is_ending(self, seat: Seat) -> bool:
        return self.ending.get(seat.folder) is seat

    def forget_channel(self, seat: Seat) -> None:
        """Its keeper has died: that it has hung up would be heard again and again."""
        if self.by_handle.pop(seat.channel.fileno(), None) is not None:
            self._epoll.unregister(seat.channel.fileno())
            seat.channel.close()

    def _wait_for_end(self, seat: Seat) -> None:
        until = time.monotonic() + END_SECONDS_MAX
        while not self.look(seat):
            if time.monotonic() > until:
                raise OSError("those who were in its groups before cannot be ended")
            time.sleep(0.001)

    def end_free(self) -> None:
        """Ends those that nobody has used for a while."""
        now = time.monotonic()
        for seat in [seat for seat in self._free.values() if seat.free_until <= now]:
            self.end(seat)

    def next_look_at(self) -> float | None:
        times = [seat.look_at for seat in self.ending.values()]
        for seat in self._free.values():  # the first is the oldest
            times.append(seat.free_until)
            break
        return min(times, default=None)


def _make_group(group: bytes) -> None:
    try:
        os.mkdir(group, 0o755)
    except FileExistsError:  # of a launcher that has died, with all that it had started
        kernel.remove_groups([group])
        os.mkdir(group, 0o755)


def _write_all(pairs: Fields) -> None:
    for target, value in zip(pairs[::2], pairs[1::2], strict=True):
        kernel.write(target, value)
