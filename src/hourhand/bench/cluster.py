"""Temporary clusters: started in a folder of their own, gone afterwards.

`TemporaryUp` is what `hourhand up` starts. `TemporaryRoles` are single roles on a PostgreSQL of their own, each started
when it is wanted: for measurements in which one of them must not be there yet, or not at all. Neither sees the
`HOURHAND_` variables of the caller: a figure must not depend on what somebody's shell happens to hold.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import asyncpg
import httpx

from hourhand.bench.report import Progress
from hourhand.config import load_config
from hourhand.database.embedded import EmbeddedServer
from hourhand.database.servers import Connection
from hourhand.model.errors import ServerUnreachable, WorldError

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
SCHEMA: Final = "hourhand"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is known of a temporary cluster beyond its address."""

    home: Path
    database_url: str
    settings: Mapping[str, str]
    """Settings that differ from the defaults, by key."""
    supervisor: int | None = None
    """Process id of `hourhand up`."""

    async def connect(self) -> Connection:
        """A connection to its database that is not the product's."""
        told = {"application_name": "hourhand bench"}
        return await asyncpg.connect(self.database_url, server_settings=told, command_timeout=3600)

    def postmaster(self) -> int | None:
        """Process id of its PostgreSQL."""
        try:
            return int((self.home / "postgres" / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None


def variables_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings by key (`executor.slots_inline`) as the variables that name them."""
    return {f"HOURHAND_{key.replace('.', '_').upper()}": value for key, value in settings.items()}


def environment_of(home: Path, witness: Path, port: int, settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOURHAND_")}
    own = {"HOURHAND_BENCH_WITNESS": str(witness), "HOURHAND_HOME": str(home), "HOURHAND_PORT": str(port)}
    return kept | own | variables_of(settings)


@contextlib.asynccontextmanager
async def temporary_up(
    folder: Path, witness: Path, settings: Mapping[str, str], progress: Progress
) -> AsyncIterator[tuple[str, str, Cluster]]:
    """`hourhand up`; its address, its token, and what else is known of it."""
    home, port = folder / "home", free_port()
    environment = environment_of(home, witness, port, settings)
    url = f"http://127.0.0.1:{port}"
    with (folder / "output").open("wb") as output:
        process = await _start(["up"], environment, output)
    try:
        progress.note(f"starting a temporary cluster on port {port}")
        await _ready(f"{url}/readyz", "", process, folder / "output")
        config = load_config(None, environment)
        found = await EmbeddedServer(home, config.embedded).find_running()
        assert found is not None, "a cluster that is ready has a database"
        yield url, (home / "token").read_text().strip(), Cluster(home, found, settings, process.pid)
    finally:
        await _stop(process, signal.SIGINT)


class TemporaryRoles:
    """A PostgreSQL, and the roles that have been started on it. Use it as a context manager."""

    def __init__(self, folder: Path, settings: Mapping[str, str], progress: Progress) -> None:
        self._folder = folder
        self._settings = settings
        self._progress = progress
        self._home, self._port = folder / "home", free_port()
        self.witness = folder / "witness"
        self.url = f"http://127.0.0.1:{self._port}"
        self.token = ""
        self.cluster: Cluster | None = None
        self._processes: list[asyncio.subprocess.Process] = []
        self._server: EmbeddedServer | None = None

    async def __aenter__(self) -> "TemporaryRoles":
        from hourhand.operations.access import Access
        from hourhand.wiring import open_store, prepare_database

        self.witness.touch()
        self._environment = environment_of(self._home, self.witness, self._port, self._settings)
        config = load_config(None, self._environment)
        self._server = EmbeddedServer(self._home, config.embedded)
        self._progress.note("starting a temporary PostgreSQL")
        url = await self._server.start()
        try:
            config = replace(config, database=replace(config.database, url=url))
            await prepare_database(config)
            async with open_store(config, "token") as store:
                self.token = await Access(store.tokens, store.names).create_token("admin")
        except BaseException:
            await self._server.stop()
            raise
        self._environment["HOURHAND_DATABASE_URL"] = url
        self._environment["HOURHAND_KINDS_HANDLER_MODULES"] = "hourhand.job_kinds.samples"
        self.cluster = Cluster(self._home, url, self._settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.gather(*(_stop(process, signal.SIGTERM) for process in self._processes))
        finally:
            assert self._server is not None
            await self._server.stop()

    async def start(self, role: str, settings: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
        """Starts one more node; `settings` are for it alone. Returns at once, but for an API: once that answers."""
        environment = self._environment | variables_of(settings or {})
        output = self._folder / f"output-{len(self._processes)}"
        with output.open("wb") as file:
            process = await _start([role], environment, file)
        self._processes.append(process)
        if role == "api":
            await _ready(f"{self.url}/api/v1/whoami", self.token, process, output)
        return process


async def _start(words: list[str], environment: Mapping[str, str], output: IO[bytes]) -> asyncio.subprocess.Process:
    """Away from our terminal: its Ctrl-C is for us, who then end the cluster. Ended before us it would look broken."""
    command = [sys.executable, "-m", "hourhand.cli", *words]
    return await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=output, stderr=output, start_new_session=True
    )


async def _stop(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # or one that a measurement has stopped could not end
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
    except TimeoutError:
        process.kill()  # its children end with it
        await process.wait()


async def _ready(url: str, token: str, process: asyncio.subprocess.Process, output: Path) -> None:
    headers: dict[str, Any] = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if process.returncode is not None:
                said = await asyncio.to_thread(output.read_text, errors="replace")
                raise WorldError(f"the temporary cluster did not start:\n{said[-2000:]}")
            with contextlib.suppress(httpx.HTTPError):
                if (await http.get(url)).status_code == 200:
                    return
            await asyncio.sleep(0.05)
    raise ServerUnreachable(f"{url} was not ready within {READY_SECONDS_MAX:g} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
