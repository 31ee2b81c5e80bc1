"""Starts programs through a small process of its own, and hears of their ends.

One per executor, started with it and started again when it dies. Programs that it had started die with it: whoever
waits for one of them is told by `LauncherDied` and has to see to what is left.
"""

import asyncio
import errno
import os
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourhand.job_kinds import launcher_process
from hourhand.job_kinds.cgroups import GroupPlan
from hourhand.job_kinds.private_places import NOWHERE, PrivatePlaces
from hourhand.job_kinds.work_folders import Account
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 15.0
_IN_PACKET_BYTES_MAX: Final = 48 * 1024
_SEND_BUFFER_BYTES: Final = 1024 * 1024
_FOR_NOW: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS})
"""Faults of sending that pass: what was not sent is sent again."""
_IMPORT: Final = "import sys; sys.path.append(sys.argv.pop(1)); import launcher_process; launcher_process.main()"
"""Its folder comes last in the path: some of our names there are the standard library's too."""


class LauncherDied(Exception):
    """The process that had started the program is gone, and has taken it along."""


@dataclass(frozen=True, slots=True)
class SetUp:
    room: Path
    """Where the folders of all attempts are."""
    account: Account | None
    contains: bool
    hidden: Sequence[Path] = ()
    """What no program may see."""
    groups: Sequence[str] = ()
    """The folders that groups of attempts are made in."""
    places: PrivatePlaces = NOWHERE
    """Of which each attempt sees its own."""
    kept: Sequence[int] = ()
    """Descriptors that the process keeps open for as long as it lives, and programs do not get: locks."""


@dataclass(frozen=True, slots=True)
class Launch:
    argv: Sequence[str]
    environment: Mapping[str, str]
    path: str
    folder: Path
    start_in: Path
    plan: GroupPlan
    limits: Sequence[tuple[int, int, int]]
    """Which limit of the process, soft, hard."""
    contained: bool
    parts: Sequence[str]
    """Folders that go at the end if they are empty, its own last."""
    marks: Sequence[int] = ()
    """When each was changed last: all stay if that is so at the end too."""
    user_id: int | None = None
    """Who it is, in the group of the account; None: the account itself."""
    forgets_keys: bool = False
    """Somebody may have left keys to that user."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing of the program is left."""

    code: int
    """What it exited with; below zero: the signal that ended it."""
    step: str
    """What failed before there was a program: `prepare`, `contain`, `enter`, `execute`; empty when there was one."""
    error_number: int
    error: str
    folder_is_removed: bool
    cpu_seconds: float = 0.0
    memory_bytes_peak: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    readings: Sequence[str] = ()
    """What the plan's events and reads came to, in their order."""
    folder_is_untouched: bool = False
    """Nobody has changed anything in it: it can be another's."""
    readings_before: Sequence[str] = ()
    """The same before the attempt, where its groups had been used."""


class Launched:
    """A program under way."""

    def __init__(self, launcher: "Launcher", number: bytes) -> None:
        self._launcher = launcher
        self._number = number
        loop = asyncio.get_running_loop()
        self.changed: asyncio.Future[None] = loop.create_future()
        """Done with the first of the two below. For one who waits."""
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self.pid: asyncio.Future[int] = loop.create_future()
        """Known only of what is not contained, when it was asked to end or has left something: who has to look after
        that needs it. The number is taken until `reap`."""

    def ask(self) -> None:
        """Asks everything of it to end; what does not goes on until `kill`."""
        self._launcher.send((b"ask", self._number))

    def kill(self) -> None:
        self._launcher.send((b"kill", self._number))

    def reap(self) -> None:
        """Nothing is left of it, as far as the caller can see."""
        self._launcher.send((b"reap", self._number))


class Launcher:
    """Used between `open` and `close`."""

    def __init__(self, set_up: SetUp) -> None:
        self._set_up = set_up
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ready: asyncio.Future[str] | None = None
        self._starting = asyncio.Lock()
        self._launched: dict[bytes, Launched] = {}
        self._count = 0
        self._unsent: list[tuple[bytes, list[int]]] = []
        self.abilities: frozenset[str] = frozenset()
        """What the kernel lets it do to contain programs: `landlock`, `mounts`, `groups`, `proc`."""

    @property
    def is_up(self) -> bool:
        return self._channel is not None

    async def open(self) -> None:
        """Starts the process, unless it is there."""
        async with self._starting:
            if self.is_up:
                return
            if self._process is not None:
                await asyncio.to_thread(_wait, self._process)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                ours.setblocking(False)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
                self._process = await asyncio.to_thread(_start, theirs, self._set_up.kept)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            loop = asyncio.get_running_loop()
            self._channel, self._ready = ours, loop.create_future()
            loop.add_reader(ours.fileno(), self._hear)
            self.send(*self._set_up_lists())
            async with asyncio.timeout(READY_SECONDS_MAX):
                self.abilities = frozenset((await self._ready).split())

    async def close(self) -> None:
        """Ends the process, and everything that it has started."""
        self._hang_up()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_wait, process)

    def launch(self, what: Launch, standard: Sequence[int]) -> Launched:
        """Starts a program with these descriptors as its first three; the caller may close them. Raises LauncherDied
        when there is no process to do it, ValueError for a NUL byte."""
        self._count += 1
        number = b"%d" % self._count
        plan = what.plan
        user, forgets = "" if what.user_id is None else str(what.user_id), "1" if what.forgets_keys else "0"
        lists = (
            (b"launch", number),
            _bytes((what.path, os.fspath(what.start_in), "1" if what.contained else "0", user, forgets)),
            _bytes(what.argv),
            [_bytes_of(f"{name}={value}") for name, value in what.environment.items()],
            _bytes(plan.groups),
            _bytes(part for pair in plan.writes for part in pair),
            _bytes(part for pair in plan.resets for part in pair),
            _bytes(plan.events.values()),
            _bytes(plan.reads.values()),
            _bytes(plan.holds),
            [b"%d" % part for limit in what.limits for part in limit],
            _bytes(what.parts),
            [b"%d" % mark for mark in what.marks],
        )
        launched = Launched(self, number)
        self.send(*lists, handles=standard)
        self._launched[number] = launched
        return launched

    def send(self, *lists: Sequence[bytes], handles: Sequence[int] = ()) -> None:
        if self._channel is None:
            raise LauncherDied
        parts: list[bytes] = []
        for one in lists:
            parts.append(b"%d" % len(one))
            parts += one
        packet = b"\0".join(parts)
        if packet.count(b"\0") != len(parts) - 1:
            raise ValueError("embedded null byte")
        own = []
        if len(packet) > _IN_PACKET_BYTES_MAX:
            own = [_file_of(packet)]
            packet = b"\0"
        if self._unsent or not self._sent(packet, [*handles, *own]):
            if not self._unsent:
                asyncio.get_running_loop().add_writer(self._channel.fileno(), self._send_rest)
            self._unsent.append((packet, [*map(os.dup, handles), *own]))
        else:
            _close(own)

    def _sent(self, packet: bytes, handles: Sequence[int]) -> bool:
        assert self._channel is not None
        try:
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", handles))] if handles else []
            self._channel.sendmsg([packet], beside, socket.MSG_NOSIGNAL)
        except OSError as error:
            # Else it has died, which is heard as the end of the channel.
            return error.errno not in _FOR_NOW
        return True

    def _send_rest(self) -> None:
        while self._unsent and self._channel is not None:
            packet, handles = self._unsent[0]
            if not self._sent(packet, handles):
                return
            del self._unsent[0]
            _close(handles)
        if self._channel is not None:
            asyncio.get_running_loop().remove_writer(self._channel.fileno())

    def _set_up_lists(self) -> tuple[Sequence[bytes], ...]:
        set_up = self._set_up
        account = set_up.account
        return (
            (b"set_up",),
            _bytes(("1" if set_up.contains else "0", os.fspath(set_up.room))),
            () if account is None else (b"%d" % account.user_id, b"%d" % account.group_id),
            _bytes(map(os.fspath, set_up.hidden)),
            _bytes(set_up.groups),
            _bytes(set_up.places.places),
            _bytes(set_up.places.shared),
        )

    def _hear(self) -> None:
        while self._channel is not None:
            try:
                packet = self._channel.recv(launcher_process.PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                emit(Event.LAUNCHER_DIED, programs=len(self._launched))
                self._hang_up()
                return
            self._take(packet.split(b"\0"))

    def _take(self, fields: list[bytes]) -> None:
        verb, about, *rest = fields
        if verb == b"ready":
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(about.decode())
            return
        launched = self._launched.get(about)
        if launched is None:
            return
        if verb in (b"asked", b"left"):
            if not launched.pid.done():
                launched.pid.set_result(int(rest[0]))
        else:
            del self._launched[about]
            launched.ended.set_result(_ended(rest) if verb == b"ended" else _refused(rest))
        if not launched.changed.done():
            launched.changed.set_result(None)

    def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(channel.fileno())
        loop.remove_writer(channel.fileno())
        channel.close()
        for _, handles in self._unsent:
            _close(handles)
        self._unsent.clear()
        launched, self._launched = self._launched, {}
        waits: list[asyncio.Future[int] | asyncio.Future[Ended] | asyncio.Future[None]] = []
        for one in launched.values():
            waits += (one.pid, one.ended, one.changed)
        for wait in waits:
            if not wait.done():
                wait.set_exception(LauncherDied())
                wait.exception()  # nobody may be waiting for this one
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(LauncherDied())


def _start(theirs: socket.socket, kept: Sequence[int]) -> "subprocess.Popen[bytes]":
    # Isolated, and without the packages that are installed: the less it imports, the quicker it forks. In a session of
    # its own: what a terminal says to the executor is not meant for it.
    handles = [theirs.fileno(), *kept]
    # Imported, not run as a script: that would be compiled anew each time, and leave what this takes in its memory.
    folder = os.path.dirname(os.path.abspath(launcher_process.__file__))
    command = [sys.executable, "-I", "-S", "-c", _IMPORT, folder, *map(str, handles)]
    return subprocess.Popen(
        command,
        pass_fds=handles,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )


def _file_of(packet: bytes) -> int:
    handle = os.memfd_create("launch")
    with open(handle, "wb", closefd=False) as file:
        file.write(packet)
    return handle


def _close(handles: Iterable[int]) -> None:
    for handle in handles:
        os.close(handle)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ended(fields: Sequence[bytes]) -> Ended:
    status, step, number, error, folder, used, count, *readings = fields
    cpu, memory, read, written = map(float, used.split())
    code = os.waitstatus_to_exitcode(int(status))
    texts = [reading.decode("ascii", "replace") for reading in readings]
    after, before = texts[: int(count)], texts[int(count) :]
    is_removed, is_untouched = folder == launcher_process.REMOVED, folder == launcher_process.UNTOUCHED
    return Ended(
        code, step.decode(), int(number), os.fsdecode(error), is_removed, cpu, int(memory), int(read), int(written),
        after, is_untouched, before,
    )  # fmt: skip


def _refused(fields: Sequence[bytes]) -> Ended:
    step, number, error = fields
    return Ended(launcher_process.NOT_EXECUTED, step.decode(), int(number), os.fsdecode(error), False)


def _bytes(texts: Iterable[str]) -> list[bytes]:
    return [_bytes_of(text) for text in texts]


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
