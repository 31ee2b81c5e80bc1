"""Real processes for the acceptance tests: started in a cage, watched, ended, and counted afterwards.

A cage is a control group where that is possible, so that "nothing is left" is what the kernel says and not what we
remember; elsewhere processes are found by a mark in their environment and by the folder they work in. Nothing here
sleeps a fixed time: everything polls with a deadline.
"""

import asyncio
import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

import asyncpg
import httpx
import psutil

from hourhand.client import Client

T = TypeVar("T")

HOURHAND: tuple[str, ...] = (sys.executable, "-m", "hourhand.cli")
BIN = Path(sys.executable).parent
IS_ROOT = os.geteuid() == 0
SHORT_LEASES = {
    "HOURHAND_EXECUTOR_LEASE_SECONDS": "3",
    "HOURHAND_EXECUTOR_HEARTBEAT_SECONDS": "1",
    "HOURHAND_EXECUTOR_SELF_FENCE_SECONDS": "2",
    "HOURHAND_EXECUTOR_SELF_FENCE_KILL_SECONDS": "0.5",
    "HOURHAND_SCHEDULER_LEASE_SECONDS": "3",
    "HOURHAND_SCHEDULER_HEARTBEAT_SECONDS": "1",
}
"""What dies is missed within seconds, so that tests need not wait as long as people may."""
_LOW_64_BITS = (1 << 64) - 1


def wait_for(condition: Callable[[], T], what: str, seconds: float = 30.0) -> T:
    """Asks until the answer is true, and gives it. Fails with `what` was waited for."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
    return answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def clean_environment(**more: str) -> dict[str, str]:
    """What a fresh shell would have, and nothing of ours."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {"LANG": "C.UTF-8", **kept, **more}


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it on a loop of its own, whatever loop the tests are using."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def sql(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    async def ask() -> list[asyncpg.Record]:
        db = await asyncpg.connect(url, timeout=10)
        try:
            return await db.fetch(statement, *arguments)
        finally:
            await db.close()

    return run_async(ask())


# --- cages ------------------------------------------------------------------------------------------------


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
    return [group, *(path for path in group.rglob("*") if path.is_dir())]


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


# --- processes --------------------------------------------------------------------------------------------


class Process:
    """One command in a cage, its output in a file."""

    def __init__(
        self,
        cage: Cage,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self._output = folder / f"output-{secrets.token_hex(4)}"
        if user is not None:
            command = [*become(user), *command]
        with self._output.open("wb") as output:
            self._child = subprocess.Popen(
                cage.inside(command),
                cwd=folder,
                env=clean_environment(**cage.environment, **(environment or {})),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGINT, seconds: float = 60) -> int:
        """Asks it to end as a person would, and gives the exit code."""
        if self.exit_code is None:
            self.send(number)
        return self.wait(seconds)

    def wait(self, seconds: float = 60) -> int:
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s; it said:\n{self.said[-4000:]}") from None

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait(10)


def become(user: str) -> list[str]:
    """What a command is begun with to be run as this user. The shell is needed: root's power ends with an exec only."""
    group = pwd.getpwnam(user).pw_gid
    change = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--"]
    return [*change, "sh", "-c", 'exec "$0" "$@"']


def unprivileged() -> Sequence[str]:
    """Programs that refuse to be root see somebody else, who owns what root owns."""
    if not IS_ROOT:
        return []
    number = min(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534))
    return ["unshare", "--user", f"--map-user={number}", f"--map-group={number}", "--"]


# --- a whole Hourhand -------------------------------------------------------------------------------------


class Up:
    """`hourhand up` in a folder of its own. Start it again as often as wanted."""

    def __init__(
        self,
        folder: Path,
        *,
        cage: Cage | None = None,
        home: Path | None = None,
        port: int | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = HOURHAND,
        user: str | None = None,
    ) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.cage = cage or Cage(folder)
        self.home = home or folder / "home"
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.witness = folder / "witness"
        self.process: Process | None = None
        self.start_seconds = 0.0
        self._command = [*program, "up", *arguments]
        self._user = user
        self.environment = {
            "HOURHAND_HOME": str(self.home),
            "HOURHAND_PORT": str(self.port),
            "HOURHAND_BENCH_WITNESS": str(self.witness),
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.cage.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self.process is not None and self.process.exit_code is None:
                self.stop()
        finally:
            self.cage.close()

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    @property
    def said(self) -> str:
        return self.process.said if self.process else ""

    def start(self) -> Self:
        began = time.monotonic()
        self.process = process = Process(self.cage, self._command, self.folder, self.environment, self._user)
        wait_until_ready(self.url, process)
        self.start_seconds = time.monotonic() - began
        wait_for(lambda: "Ctrl-C stops everything." in process.said, "the welcome", 10)
        return self

    def stop(self) -> None:
        """Ctrl-C, and nothing is left."""
        assert self.process is not None
        assert self.process.end() == 0, self.said
        assert self.cage.names() == []
        assert is_port_free(self.port)

    def client(self, timeout: float = 30.0) -> Client:
        return Client(self.url, self.token, timeout=timeout)

    def http(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30, **more)

    @property
    def login_link(self) -> str:
        found = re.search(r"http://\S+/login\?code=\S+", self.said)
        assert found, self.said
        return found[0]


def wait_until_ready(url: str, process: Process, seconds: float = 60) -> None:
    def is_ready() -> bool:
        assert process.exit_code is None, f"it ended with {process.exit_code} and said:\n{process.said[-4000:]}"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
        return False

    wait_for(is_ready, f"{url} is ready; it said:\n{process.said[-2000:]}", seconds)


class Roles:
    """Single roles against one database, any number of copies."""

    def __init__(self, folder: Path, database: str, schema: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.cage = Cage(folder)
        self.database = database
        self.schema = schema
        self.witness = folder / "witness"
        self.processes: dict[str, Process] = {}
        self.urls: list[str] = []
        self.token = ""
        self._environment = {
            "HOURHAND_DATABASE_URL": database,
            "HOURHAND_DATABASE_SCHEMA": schema,
            "HOURHAND_BENCH_WITNESS": str(self.witness),
            "HOURHAND_KINDS_HANDLER_MODULES": "hourhand.job_kinds.samples",
            **SHORT_LEASES,
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        self.witness.touch()
        try:
            migrated = Process(self.cage, [*HOURHAND, "db", "migrate"], self.folder, self._environment)
            assert migrated.wait() == 0, migrated.said
            self.token = run_async(_new_token(self.database, self.schema))
        except BaseException:
            self.cage.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for process in self.processes.values():
                if process.exit_code is None:
                    process.send(signal.SIGTERM)
            if kind is None:
                for name, process in self.processes.items():
                    code = process.wait(45)
                    assert code in (0, -signal.SIGKILL), f"{name} ended with {code} and said:\n{process.said[-4000:]}"
                    assert "Traceback" not in process.said, f"{name} said:\n{process.said[-4000:]}"
                assert self.cage.names() == []
        finally:
            self.cage.close()

    def start(self, role: str, name: str, **settings: str) -> Process:
        """Starts one more node; `settings` are variables for it alone."""
        command = [*HOURHAND, role, "--name", name]
        if role == "api":
            port = free_port()
            command += ["--port", str(port)]
            self.urls.append(f"http://127.0.0.1:{port}")
        self.processes[name] = Process(self.cage, command, self.folder, self._environment | settings)
        return self.processes[name]

    def wait_until_ready(self) -> None:
        for url in self.urls:
            wait_until_ready(url, next(iter(self.processes.values())))
        wait_for(lambda: len(self.present()) == len(self.processes), "every node is present")

    def present(self) -> list[str]:
        rows = sql(self.database, f"SELECT name FROM {self.schema}.nodes WHERE ended_at IS NULL")
        return [row["name"] for row in rows]

    def client(self, number: int = 0) -> Client:
        return Client(self.urls[number], self.token, timeout=60)


async def _new_token(url: str, schema: str) -> str:
    from hourhand.database.connections import Database, DatabaseSettings
    from hourhand.operations.access import Access
    from hourhand.wiring import store_on

    # As if there were a pooler in between, since there may be one.
    database = Database(DatabaseSettings(url=url, schema=schema, pooler=True), "test")
    await database.open()
    try:
        store = store_on(database)
        return await Access(store.tokens, store.names).create_token("test")
    finally:
        await database.close()


# --- what happened ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Witnessed:
    """One line that the handler `bench.noop` itself has written."""

    run_id: UUID
    attempt: int

    @property
    def of(self) -> int:
        """The lower half of the run's id, which is its job's."""
        return self.run_id.int & _LOW_64_BITS


def job_key(job_id: UUID | str) -> int:
    return UUID(str(job_id)).int & _LOW_64_BITS


def read_witness(path: Path) -> list[Witnessed]:
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [Witnessed(UUID(line.split()[0].decode()), int(line.split()[1])) for line in lines]


def seen_jobs(path: Path) -> set[int]:
    return {line.of for line in read_witness(path)}


# --- other users ------------------------------------------------------------------------------------------


def program_for_user(folder: Path, user: str) -> list[str] | None:
    """A `hourhand` that this user can run: our own interpreter may lie under a closed /root. None if there is no way.

    A new environment is made with an interpreter that the user reaches; it borrows the packages of ours.
    """
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in (sys.executable, f"/usr/bin/python{wanted}", f"/usr/local/bin/python{wanted}"):
        said = subprocess.run([*become(user), python, "-c", ask], cwd="/", capture_output=True, text=True, check=False)
        if said.stdout.strip() != wanted:
            continue
        made = folder / "environment"
        subprocess.run([python, "-m", "venv", "--without-pip", str(made)], check=True, capture_output=True)
        site = next(made.glob("lib/python*/site-packages"))
        borrowed = _reachable_packages(folder, user)
        lines = [f"import site; site.addsitedir({str(path)!r})" for path in borrowed]
        (site / "borrowed.pth").write_text("\n".join(lines) + "\n")
        return [str(made / "bin" / "python"), "-m", "hourhand.cli"]
    return None


def _reachable_packages(folder: Path, user: str) -> list[Path]:
    """Where our packages and sources are, or copies of them when the user cannot read them there."""
    import hourhand

    ours = [Path(asyncpg.__file__).parent.parent, Path(hourhand.__file__).parent.parent]
    found = []
    for number, path in enumerate(dict.fromkeys(ours)):
        reads = subprocess.run([*become(user), "test", "-r", str(path)], check=False)
        if reads.returncode == 0:
            found.append(path)
        else:
            found.append(shutil.copytree(path, folder / f"packages-{number}", symlinks=True))
    return found
