"""Real processes for the acceptance tests: started in a cage, watched, ended, and counted afterwards.

Nothing here sleeps a fixed time: everything polls with a deadline.
"""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

import asyncpg
import httpx
from cages import Cage, wait_for
from other_users import become

from held_ports import held_port
from hourhand.client import Client

T = TypeVar("T")

HOURHAND: tuple[str, ...] = (sys.executable, "-m", "hourhand.cli")
BIN = Path(sys.executable).parent
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""What httpx makes otherwise for each call, although it is for http: it reads every authority in the world."""
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
        self.port = port or held_port()
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
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30, verify=NO_TLS, **more
        )

    @property
    def login_link(self) -> str:
        found = re.search(r"http://\S+/login\?code=\S+", self.said)
        assert found, self.said
        return found[0]


def wait_until_ready(url: str, process: Process, seconds: float = 60) -> None:
    def is_ready() -> bool:
        assert process.exit_code is None, f"it ended with {process.exit_code} and said:\n{process.said[-4000:]}"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/readyz", trust_env=False, verify=NO_TLS).status_code == 200
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
            self.token = run_async(_prepare(self.database, self.schema))
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
            port = held_port()
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


async def _prepare(url: str, schema: str) -> str:
    """A migrated schema; gives a token. Not by `hourhand db migrate`, which other tests show: a process more takes more
    time than all migrations."""
    from hourhand.config import load_config
    from hourhand.database.connections import Database, DatabaseSettings
    from hourhand.database.migrate import migrate
    from hourhand.database_setup import make_partitions
    from hourhand.operations.access import Access
    from hourhand.ports.zone_stores import EDITION
    from hourhand.runtime.tz_data import edition
    from hourhand.wiring import store_on

    # As if there were a pooler in between, since there may be one.
    database = Database(DatabaseSettings(url=url, schema=schema, pooler=True), "test")
    await database.open()
    try:
        await migrate(database)
        async with database.transaction() as db:
            # Known already: the first leader of a new database works out the rules of all zones, which takes it longer
            # than all else that a cluster does in a test.
            await db.execute(f"INSERT INTO {schema}.zone_rules VALUES ($1, $2, now())", EDITION, edition())
        store = store_on(database)
        await make_partitions(load_config(environ={}), store)  # as that command does
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
