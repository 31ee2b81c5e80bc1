"""Holds the processes of a test together, so that "nothing is left" is what the kernel says and not what we remember.

A cage is a control group where that is possible; elsewhere processes are found by a mark in their environment and by
the folder they work in.
"""

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 30.0) -> T:
    """Asks until the answer is true, and gives it. Fails with `what` was waited for."""
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        # Whoever waits long asks less often: asking costs the processor that those need who are waited for.
        time.sleep(min(0.1, max(0.02, waited / 20)))
    return answer


class Cage:
    """Holds processes together, however they detach themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = secrets.token_hex(8)
        self._known: set[psutil.Process] = set()
        self._group = _make_group(f"hourhand-test-{self._mark}")

    @property
    def environment(self) -> dict[str, str]:
        return {"HOURHAND_BENCH_CAGE": self._mark}  # a name that the configuration leaves alone

    def inside(self, command: Sequence[str]) -> list[str]:
        """The same command, entering the cage first."""
        if self._group is None:
            return list(command)
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._group / "cgroup.procs"), *command]

    def processes(self) -> list[psutil.Process]:
        """Everything alive in it. The dead that nobody has waited for do not count."""
        alive = []
        for pid in self._pids():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def names(self) -> list[str]:
        said = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                said.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
        return said

    def kill(self) -> None:
        """kill -9 of all of it, at one moment as nearly as can be."""
        deadline = time.monotonic() + 20
        while found := self.processes():
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            assert time.monotonic() < deadline, f"cannot be killed: {self.names()}"
            time.sleep(0.005)

    def close(self) -> None:
        self.kill()
        if self._group is not None:
            group = self._group

            def is_gone() -> bool:
                with contextlib.suppress(OSError):
                    for inner in sorted(_groups_in(group), reverse=True):  # executors make groups for their programs
                        inner.rmdir()
                return not group.exists()

            wait_for(is_gone, f"{group} can be removed")

    def _pids(self) -> Iterable[int]:
        if self._group is not None:
            return [pid for group in _groups_in(self._group) for pid in _members(group)]
        self._known = {process for process in self._known if process.is_running()}
        self._known |= {process for process in psutil.process_iter() if self._is_marked(process)}
        for process in list(self._known):  # commands get an environment and a folder of their own
            with contextlib.suppress(psutil.Error):
                self._known.update(process.children(recursive=True))
        return [process.pid for process in self._known]

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            if process.environ().get("HOURHAND_BENCH_CAGE") == self._mark:
                return True
            return str(self._folder) in " ".join([process.cwd(), *process.cmdline()]) and process.pid != os.getpid()
        except psutil.Error:
            return False


def _groups_in(group: Path) -> list[Path]:
    # Attempts end meanwhile, and their groups with them: a walk passes over what is gone.
    return [group, *(Path(folder) for folder, _, _ in os.walk(group) if folder != str(group))]


def _members(group: Path) -> list[int]:
    with contextlib.suppress(OSError):  # an attempt has ended, and its group with it
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    return []


def _make_group(name: str) -> Path | None:
    """A new control group that processes can be moved into; None where we may not."""
    for tree in ("unified", "", "pids", "systemd"):
        root = Path("/sys/fs/cgroup") / tree
        if not (root / "cgroup.procs").exists():
            continue
        group = root / name
        try:
            group.mkdir()
        except OSError:
            continue
        entered = subprocess.run(["sh", "-c", f"echo $$ > {group}/cgroup.procs"], capture_output=True, check=False)
        if entered.returncode == 0:
            return group
        group.rmdir()
    return None
