"""Processes of the embedded PostgreSQL: starting them as somebody, and telling ours from a stranger's.

Promises that no signal ever goes to a process that is not a server of the given data folder: a process id read from
a file is a rumour until the process itself confirms it, because ids are used again after a crash or a reboot. Leaves
to `embedded` when to start and when to end.
"""

import asyncio
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

POLL_SECONDS: Final = 0.01

_ENVIRONMENT: Final = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
"""All that PostgreSQL gets to see: a PGOPTIONS or PGDATA of the caller must not change the server."""


async def wait_until(condition: Callable[[], object], seconds_max: float = math.inf) -> bool:
    """Asks again and again, because no process that is not our child would tell us. Whether it came true in time."""
    deadline = asyncio.get_running_loop().time() + seconds_max
    while not (true := condition()) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
    return bool(true)


@dataclass(frozen=True, slots=True)
class RunAs:
    """As whom PostgreSQL's programs run, and from which folder."""

    binaries: Path
    uid: int
    """Owner of the process and its files, seen from outside of any user namespace."""
    gid: int
    prefix: tuple[str, ...] = ()
    """Command that enters the user namespace and becomes the program, keeping its process id."""

    def spawn(self, program: str, arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts in a session of its own, so that Ctrl-C at our terminal does not reach it."""
        drops = self.uid != os.geteuid()
        return subprocess.Popen(
            [*self.prefix, str(self.binaries / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_ENVIRONMENT,
            start_new_session=True,
            user=self.uid if drops else None,
            group=self.gid if drops else None,
            extra_groups=[] if drops else None,
        )

    async def run(self, program: str, arguments: Sequence[str]) -> tuple[int, str]:
        """Runs to the end; returns the exit status and everything it said."""
        with tempfile.TemporaryFile() as output:
            try:
                child = self.spawn(program, arguments, output)
            except OSError as error:
                return 126, f"{self.binaries / program}: {error.strerror}"
            try:
                await wait_until(lambda: child.poll() is not None)
            finally:
                if child.poll() is None:  # cancelled: nobody would wait for it any more
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
            output.seek(0)
            return child.returncode, output.read().decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class PostmasterFile:
    """What postmaster.pid says. True only if the process confirms it."""

    pid: int
    status: str
    """starting, ready or stopping; empty as long as the file is being written."""


def read_postmaster_file(data: Path) -> PostmasterFile | None:
    try:
        lines = (data / "postmaster.pid").read_text(errors="replace").splitlines()
        pid = abs(int(lines[0]))
    except (FileNotFoundError, IndexError, ValueError):
        return None
    return PostmasterFile(pid, lines[7].strip() if len(lines) > 7 else "") if pid else None


def find_postmaster(data: Path, uid: int) -> PostmasterFile | None:
    """The server that is running on this data folder, if one is."""
    found = read_postmaster_file(data)
    return found if found and is_postmaster(found.pid, data, uid) else None


def is_postmaster(pid: int, data: Path, uid: int) -> bool:
    """Whether this process is alive, belongs to our user and is a server of this data folder."""
    if not Path("/proc/self").exists():
        return _is_postmaster_by_ps(pid, data, uid)
    process = Path(f"/proc/{pid}")
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
        if process.stat().st_uid != uid or os.path.basename(command[0]) != b"postgres":
            return False
        # The folder may have been moved since: then the command line tells its old name, but the working folder moved
        # along. It is asked second because a container's root may not read it for other users.
        return [b"-D", os.fsencode(data)] == command[1:3] or os.path.samefile(process / "cwd", data)
    except OSError:
        return False


def _is_postmaster_by_ps(pid: int, data: Path, uid: int) -> bool:
    """The same question where there is no /proc (macOS)."""
    said = subprocess.run(
        ["ps", "-ww", "-o", "uid=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return len(said) == 2 and said[0] == str(uid) and f"postgres -D {data}" in said[1]


def signal_postmaster(pid: int, data: Path, uid: int, number: signal.Signals) -> None:
    """Signals the server after making sure that it is ours; nothing happens if it is gone."""
    if is_postmaster(pid, data, uid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_family(data: Path, uid: int) -> int:
    """Kills whatever server process still works in the data folder, leader or not; says how many there were."""
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name = os.path.basename((process / "cmdline").read_bytes().split(b"\0")[0].split(b":")[0])
            if name == b"postgres" and process.stat().st_uid == uid and os.path.samefile(process / "cwd", data):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
    return killed


def remove_foreign_lock_files(data: Path, sockets: Path, uid: int) -> None:
    """Removes lock files that name a living process which is not our server.

    PostgreSQL sees through a dead process id by itself, but takes any living one for another server and refuses to
    start. Its further guard, the shared memory block tied to the data folder, still stands.
    """
    for path in (data / "postmaster.pid", *sockets.glob(".s.PGSQL.*.lock")):
        with suppress(OSError, ValueError, IndexError):
            pid = abs(int(path.read_text().splitlines()[0]))
            os.kill(pid, 0)  # raises for a dead one: left to PostgreSQL
            if not is_postmaster(pid, data, uid):
                path.unlink()
