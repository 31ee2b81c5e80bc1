"""Finds what is left of an attempt's processes, wherever they went.

A process group is easily left: `setsid`, a second fork, and the kernel no longer tells where a process came
from. So an attempt's processes are known by any of four signs: its session, its process group, a parent that
has one of the signs, or marks in the environment, which children inherit unless they wipe it. A process seen
once is remembered with its start time, so that it is still known after its parent has gone.

Out of reach is only a process that wipes its environment, starts a new session and loses its parent between
two looks; that needs a control group, which this module does not use.
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(slots=True)
class Leftovers:
    """The living processes of one attempt, by what `look` has seen."""

    session: int
    """Process id of the session's leader: the process that the attempt started."""
    marks: Collection[bytes]
    """`NAME=value` entries that only this attempt's processes carry, all of them."""
    out_of_reach: set[int] = field(default_factory=set)
    """Processes that may not be signalled: they run as somebody else."""
    _known: "dict[int, _Process]" = field(default_factory=dict)

    def look(self) -> list[int]:
        """Process ids that are alive right now. The dead that nobody has reaped yet do not count."""
        processes = _processes()
        found = {pid for pid, process in processes.items() if self._is_ours(pid, process)}
        fresh = set(found)
        while fresh:
            fresh = {pid for pid, process in processes.items() if process.parent in fresh} - found
            found |= fresh
        self._known = {pid: processes[pid] for pid in found}
        return sorted(found - self.out_of_reach)

    def kill(self) -> list[int]:
        """Kills everything that is alive and says what was."""
        found = self.look()
        for pid in found:
            self._send_to(pid, signal.SIGKILL)
        return found

    def ask_outside_group(self) -> None:
        """Asks those to end that a signal to the group does not reach; the others must not be asked twice."""
        for pid in self.look():
            if self._known[pid].group != self.session:
                self._send_to(pid, signal.SIGTERM)

    def _is_ours(self, pid: int, process: "_Process") -> bool:
        known = self._known.get(pid)
        if self.session in (process.session, process.group) or (known is not None and known.started == process.started):
            return True
        return bool(self.marks) and _carries(pid, self.marks)

    def _send_to(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                # Only now is the number pinned to one process; before, it could have been given to a stranger.
                process = _process(pid)
                if process is not None and process.started == self._known[pid].started:
                    signal.pidfd_send_signal(handle, number)
            except PermissionError:
                self.out_of_reach.add(pid)
            finally:
                os.close(handle)


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    group: int
    session: int
    started: bytes


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (process := _process(int(entry))) is not None:
            found[int(entry)] = process
    return found


def _process(pid: int) -> _Process | None:
    data = _read(f"/proc/{pid}/stat")
    # The second field is the program's name in brackets, which may itself hold brackets and spaces.
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return _Process(int(fields[1]), int(fields[2]), int(fields[3]), fields[19])


def _carries(pid: int, marks: Collection[bytes]) -> bool:
    environment = b"\0" + _read(f"/proc/{pid}/environ") + b"\0"
    return all(b"\0" + mark + b"\0" in environment for mark in marks)


def _read(path: str) -> bytes:
    """A file of /proc, empty when the process has gone or is not ours to look at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = []
        while piece := os.read(descriptor, 65536):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
