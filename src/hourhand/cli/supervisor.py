"""Keeps the processes of `hourhand up`: the embedded database, and one process per role.

A role that ends by itself is started again. Children are in sessions of their own, so that Ctrl-C reaches only this
process, which stops them in order; and they die with it when it is killed. The database survives that on purpose: the
next start adopts it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hourhand.cli.exits import ExitCode
from hourhand.cli.own_address import address_of, forget_address, keep_address
from hourhand.job_kinds.work_folders import base_of, remove_abandoned
from hourhand.model.errors import BadConfiguration, HomeUnusable, HourhandError, PartEnded, WorldError
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

if TYPE_CHECKING:
    from hourhand.config import Config
    from hourhand.database.embedded import EmbeddedServer

ROLES = ("scheduler", "executor", "api")
READY_SECONDS_MAX = 60.0
RESTART_SECONDS_MAX = 10.0
DATABASE_LOOK_SECONDS = 2.0
_SAMPLES = ("hourhand.job_kinds.samples", "hourhand.bench.day_job")
"""Handlers that are there without being asked for: of the demo and of the benchmarks."""


class Supervisor:
    def __init__(self, config: "Config", config_file: Path | None, say: Callable[[str], None]) -> None:
        self._config = config
        self._config_file = config_file
        self._say = say
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._urged = asyncio.Event()
        self._has_told_address = False

    async def run(self) -> None:
        """Starts everything, says where it is, and stays until it is asked to stop."""
        from hourhand.database.embedded import EmbeddedServer
        from hourhand.runtime.sockets import free_port
        from hourhand.wiring import prepare_database

        self._watch_signals()
        api = self._config.api
        self._config = replace(self._config, api=replace(api, port=free_port(api.host, api.port)))
        server = None if self._config.database.url else EmbeddedServer(self._config.home, self._config.embedded)
        try:
            if server is not None:
                url = await server.start()
                self._config = replace(self._config, database=replace(self._config.database, url=url))
            await prepare_database(self._config)
            token_file = await keep_token(self._config)
            await keep_key(self._config)
            keep_address(self._config.home, self._config.api.host, self._config.api.port)
            self._has_told_address = True
            await self._start_children()
            if not self._stopping.is_set():
                await self._welcome(token_file)
            if server is not None:
                self._keepers.append(asyncio.create_task(self._keep_database(server), name="keeper of the database"))
            await self._stay()
        finally:
            await self._stop_children()
            if self._has_told_address:  # else it may be that of another, which has this home
                forget_address(self._config.home)
            if server is not None:
                await server.stop()
        self._say("Stopped. Nothing is left running; the data is kept.")

    async def _stay(self) -> None:
        """Until it is asked to stop. A keeper that ended by itself would leave something without one: then all ends."""
        stop = asyncio.create_task(self._stopping.wait())
        waits: set[asyncio.Task[Any]] = {stop, *self._keepers}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for keeper in self._keepers:
            if keeper.done() and not self._stopping.is_set():
                raise PartEnded(keeper.get_name()) from keeper.exception()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop_asked)

    def _stop_asked(self) -> None:
        if self._stopping.is_set():
            self._say("Stopping at once …")
            self._urged.set()
            self._signal_children()
        else:
            self._say("\nStopping … (once more to stop at once)")
        self._stopping.set()

    async def _welcome(self, token_file: Path) -> None:
        link = await new_login_link(self._config)
        self._say(
            f"\nHourhand is up at {base_url(self._config)}\n"
            f"  log in (once, within an hour): {link}\n"
            f"  API token: in {token_file}, found by the `hourhand` command by itself\n"
            f"  try: hourhand demo; hourhand status\n"
            "Ctrl-C stops everything."
        )

    # --- children ----------------------------------------------------------------------------------------

    async def _start_children(self) -> None:
        starts = [asyncio.create_task(self._start(role)) for role in ROLES]
        stop = asyncio.create_task(self._stopping.wait())
        everything = asyncio.create_task(_all(starts))
        waits: set[asyncio.Task[Any]] = {everything, stop}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if everything.done():
            everything.result()
        else:  # asked to stop while starting
            everything.cancel()
            await asyncio.gather(everything, return_exceptions=True)
        self._keepers = [asyncio.create_task(self._keep(role), name=f"keeper of {role}") for role in self._children]

    async def _start(self, role: str) -> None:
        """Starts a role and waits until it says that it is ready."""
        reader, writer = os.pipe()
        command = [
            sys.executable,
            "-m",
            "hourhand.cli",
            role,
            "--ready-fd",
            str(writer),
            "--die-with",
            str(os.getpid()),
        ]
        try:
            child = await asyncio.create_subprocess_exec(
                *command,
                env=self._environment(),
                pass_fds=[writer],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self._children[role] = child
        try:
            await asyncio.wait_for(_readable(reader), READY_SECONDS_MAX)
            said = os.read(reader, 1)
        except TimeoutError:
            _send(child, signal.SIGKILL)  # or nobody would start another in its place
            raise WorldError(f"the {role} was not ready within {READY_SECONDS_MAX:.0f} s") from None
        finally:
            os.close(reader)
        if not said and not self._stopping.is_set():
            code = await child.wait()
            if code == ExitCode.CONFIGURATION:
                raise BadConfiguration([f"the {role} refused its configuration; its message is above"])
            raise WorldError(f"the {role} ended while starting, with exit code {code}; its message is above")

    async def _keep(self, role: str) -> None:
        """Starts a role again whenever it ends by itself, more slowly when it keeps ending."""
        pause = 0.1
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._children[role].wait()
            if self._stopping.is_set():
                return
            emit(Event.CHILD_ENDED, child=role, exit_code=code)
            lived = asyncio.get_running_loop().time() - began
            pause = 0.1 if lived > 30 else min(pause * 2, RESTART_SECONDS_MAX)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            try:
                if not self._stopping.is_set():
                    await self._start(role)
            except (HourhandError, OSError) as fault:  # also when no process can be made just now
                emit(Event.LOOP_FAILED, loop=role, error=str(fault))

    async def _keep_database(self, server: "EmbeddedServer") -> None:
        """Starts the database again when it was killed; the roles come back to it by themselves."""
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DATABASE_LOOK_SECONDS)
            if self._stopping.is_set() or server.pid is not None:
                continue
            emit(Event.CHILD_ENDED, child="postgres", exit_code=None)
            try:
                await server.start()
            except (HourhandError, OSError) as fault:
                emit(Event.LOOP_FAILED, loop="database", error=str(fault))

    async def _stop_children(self) -> None:
        self._stopping.set()
        self._signal_children()
        if self._urged.is_set():
            self._signal_children()
        limit = self._config.executor.stop_seconds + self._config.kinds.grace_seconds + 15
        ends = [asyncio.create_task(child.wait()) for child in self._children.values()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=limit)
            if late:
                self._signal_children(signal.SIGKILL)
                await asyncio.wait(late, timeout=5)
        # What commands left behind when an executor was killed; there is nobody else to end it any more.
        await asyncio.to_thread(remove_abandoned, base_of(self._config.kinds.work_root))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    def _signal_children(self, number: signal.Signals = signal.SIGTERM) -> None:
        for child in self._children.values():
            _send(child, number)

    def _environment(self) -> Mapping[str, str]:
        """What the roles are told: the same configuration, and what only this process knows."""
        config = self._config
        modules = (*config.kinds.handler_modules, *_SAMPLES)
        told = {
            "HOURHAND_HOME": str(config.home),
            "HOURHAND_DATABASE_URL": config.database.url,
            "HOURHAND_API_HOST": config.api.host,
            "HOURHAND_API_PORT": str(config.api.port),
            "HOURHAND_KINDS_HANDLER_MODULES": ",".join(dict.fromkeys(modules)),
            "HOURHAND_BENCH_WITNESS": os.environ.get("HOURHAND_BENCH_WITNESS") or str(config.home / "bench.witness"),
        }
        if self._config_file is not None:
            told["HOURHAND_CONFIG"] = str(self._config_file.resolve())
        chosen = {setting.key for setting in config.settings if setting.origin != "default"}
        if "kinds.allow_private_targets" not in chosen:  # on one's own machine jobs may call what runs on it
            told["HOURHAND_KINDS_ALLOW_PRIVATE_TARGETS"] = "true"
        if "executor.queues" not in chosen:  # nobody else is there to serve the other queues
            told["HOURHAND_EXECUTOR_QUEUES"] = "*"
        if "log.level" not in chosen:  # the terminal is for people; what goes wrong is still told
            told["HOURHAND_LOG_LEVEL"] = "warning"
        return os.environ | told


def base_url(config: "Config") -> str:
    if config.api.public_url:
        return config.api.public_url.rstrip("/")
    host = f"[{config.api.host}]" if ":" in config.api.host else config.api.host
    return f"http://{host}:{config.api.port}"


async def new_login_link(config: "Config") -> str:
    from hourhand.operations.access import Access
    from hourhand.wiring import open_store

    config = replace(config, database=replace(config.database, url=await running_database_url(config)))
    async with open_store(config, "login") as store:
        code = await Access(store.tokens, store.names).create_login_code()
    address = config.api.public_url or address_of(config.home) or base_url(config)
    return f"{address.rstrip('/')}/login?code={code}"


async def keep_token(config: "Config") -> Path:
    """The token of this machine's own command line: made at the first start, and again when it no longer works."""
    from hourhand.model.errors import Unauthenticated
    from hourhand.operations.access import Access
    from hourhand.wiring import open_store

    path = config.home / "token"
    async with open_store(config, "token") as store:
        access = Access(store.tokens, store.names)
        with contextlib.suppress(FileNotFoundError, Unauthenticated):
            await access.authenticate(path.read_text().strip(), None)
            return path
        token = await access.create_token("admin")
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return path


async def keep_key(config: "Config") -> None:
    """The key that secrets are sealed by: made at the first start. Never made anew where it was lost: secrets that
    nobody can open are a reason to stop and look for it."""
    from hourhand.operations.secret_keys import refuse_without_keys
    from hourhand.runtime.keyring import keyring_of, make_key_file
    from hourhand.wiring import open_store

    keyring = keyring_of(config)
    async with open_store(config, "keys") as store:
        if not keyring.path.exists() and not await store.secrets.key_ids():
            with contextlib.suppress(FileExistsError):
                make_key_file(keyring.path)
        await refuse_without_keys(store.secrets, keyring)


async def running_database_url(config: "Config") -> str:
    """The database in use: the one that was named, or the embedded one of a running `hourhand up`."""
    from hourhand.database.embedded import EmbeddedServer

    url = config.database.url or await EmbeddedServer(config.home, config.embedded).find_running()
    if not url:
        raise HomeUnusable(
            f"nothing is running in {config.home}: start it with `hourhand up`, or name --home or --database"
        )
    return url


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Waits for all; the first that fails ends the others."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _send(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
