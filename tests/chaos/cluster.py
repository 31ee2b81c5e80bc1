"""A whole cluster of real processes: PostgreSQL, schedulers, executors, APIs. Each may be killed at any time.

Every node is started through the `hourhand` command, as an operator would, and started again when it ends. Promises
that nothing is left at the end, and that everything dies with the process that started it. Knows no fault: `nemesis`
decides what happens to whom.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import asyncpg
import psutil
from tests.chaos.collector import Collector
from tests.chaos.truth import LogFile, TrueClock
from tests.held_ports import held_port

from hourhand.database.embedded import EmbeddedServer

HERE = Path(__file__).parent
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Leases:
    """How long whom is waited for. What is shortened by configuration keeps its proportions."""

    executor_seconds: float = 15.0
    scheduler_seconds: float = 9.0
    grace_seconds: float = 10.0
    self_fence_seconds: float = 10.0
    self_fence_kill_seconds: float = 2.0
    slack_seconds: float = 0.0
    """How much longer than promised things may take: promises are made for the usual leases. A machine that is busy
    for a moment is no fault of leases that are a third of them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By key; those that this version does not have are left out."""


DEFAULT_LEASES = Leases()
SHORT_LEASES = Leases(
    executor_seconds=5.0,
    scheduler_seconds=3.0,
    grace_seconds=2.0,
    self_fence_seconds=3.0,
    self_fence_kill_seconds=1.0,
    slack_seconds=2.0,
    settings={
        "executor.lease_seconds": "5",
        "executor.heartbeat_seconds": "1",
        "executor.self_fence_seconds": "3",
        "executor.self_fence_kill_seconds": "1",
        "scheduler.lease_seconds": "3",
        "scheduler.heartbeat_seconds": "1",
        "kinds.grace_seconds": "2",
    },
)


class Node:
    """One place in the cluster. Its process changes with every restart, its name and folder do not."""

    def __init__(self, name: str, role: str, port: int | None) -> None:
        self.name = name
        self.role = role
        self.port = port
        self.incarnation = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.wanted = False
        """False while somebody has taken it down on purpose."""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Cluster:
    def __init__(
        self,
        folder: Path,
        leases: Leases,
        *,
        source: Path,
        schedulers: int = 3,
        executors: int = 3,
        apis: int = 2,
        node_environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`source` is the folder whose package `hourhand` the nodes run; logs go to `folder`. `node_environment` has
        further variables of single nodes."""
        self.folder = folder
        self.leases = leases
        self.clock = TrueClock()
        self.log = LogFile(folder / "processes.jsonl")
        self.token = ""
        self.url = ""
        self.nodes: dict[str, Node] = {}
        for role, count in (("scheduler", schedulers), ("executor", executors), ("api", apis)):
            for number in range(1, count + 1):
                name = f"{role}-{number}"
                self.nodes[name] = Node(name, role, held_port() if role == "api" else None)
        self._source = source
        self._node_environment = node_environment or {}
        self._private = Path(tempfile.mkdtemp(prefix="hh-chaos-"))  # sockets need short paths
        self._private.chmod(0o755)
        self._server = EmbeddedServer(self._private / "postgres")
        self._settings: dict[str, str] = {}
        self._keeper: asyncio.Task[None] | None = None
        self.collector: Collector | None = None

    # --- from start to end --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            self.collector = Collector(self._private / "witness", self.folder / "witness.jsonl", self.clock.offset)
            self.url = await self._server.start()
            await self._prepare_database()
            ready = await asyncio.gather(*(self.start_node(name) for name in self.nodes))
            if not all(ready):
                said = "".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.stderr"))
                raise AssertionError(f"not every node could be started; they said:\n{said}")
            await self._wait_until_ready()
        except BaseException:
            await self._end_all(gently=False)
            raise
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._end_all(gently=kind is None)

    async def _prepare_database(self) -> None:
        db = await self.connect()
        try:
            # When each transaction was committed is then known for certain, and not guessed from its beginning.
            await db.execute("ALTER SYSTEM SET track_commit_timestamp = on")
        finally:
            await db.close()
        await self.restart_postgres(signal.SIGINT)
        self._settings = self._known_settings()
        self._run(["db", "migrate"])
        self.token = self._run(["token", "create", "chaos", "--database", self.url]).strip()

    def _known_settings(self) -> dict[str, str]:
        """The shortened leases as variables, without those that this version does not know."""
        ask = "from hourhand.config import all_keys; print(*[key.name + '=' + key.variables[0] for key in all_keys()])"
        said = subprocess.run(
            [sys.executable, "-c", ask], env=self._environment("probe"), capture_output=True, text=True, check=True
        )
        variables = dict(word.split("=") for word in said.stdout.split())
        return {variables[key]: value for key, value in self.leases.settings.items() if key in variables}

    def _run(self, arguments: Sequence[str]) -> str:
        said = subprocess.run(
            [sys.executable, "-m", "hourhand.cli", *arguments],
            env=self._environment("tool"),
            cwd=self._private,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert said.returncode == 0, said.stderr
        return said.stdout

    async def _wait_until_ready(self) -> None:
        async with aiohttp.ClientSession() as http, asyncio.timeout(READY_SECONDS_MAX):
            for node in self.nodes.values():
                while node.role == "api":
                    with contextlib.suppress(aiohttp.ClientError):
                        async with http.get(f"{node.url}/readyz") as answer:
                            if answer.status == 200:
                                break
                    await asyncio.sleep(0.05)

    async def _end_all(self, *, gently: bool) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for node in self.nodes.values():
            node.wanted = False
            if node.pid is not None:
                os.kill(node.pid, signal.SIGCONT)
                os.kill(node.pid, signal.SIGTERM if gently else signal.SIGKILL)
        for node in self.nodes.values():
            if node.process is None:
                continue
            try:
                code = await asyncio.to_thread(node.process.wait, STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                node.process.kill()
                code = await asyncio.to_thread(node.process.wait, 10)
            if gently:
                self._say("stopped", node, exit_code=code)
        await self._server.stop()
        if self.collector is not None:
            self.collector.stop()
        for pid in self.processes_with_a_run():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.log.close()
        shutil.rmtree(self._private, ignore_errors=True)

    # --- nodes --------------------------------------------------------------------------------------------

    async def start_node(self, name: str) -> bool:
        """Starts it and waits until it says that it is ready, or has ended again. Whether it is ready."""
        node = self.nodes[name]
        assert node.pid is None, f"{name} runs already"
        node.incarnation += 1
        node.wanted = True
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "hourhand.cli", node.role, "--name", name]
        command += ["--ready-fd", str(writer), "--die-with", str(os.getpid())]
        command += ["--port", str(node.port)] if node.role == "api" else []
        with (self.folder / f"{name}.stderr").open("ab") as output:
            output.write(f"--- {name}, start {node.incarnation}\n".encode())
            output.flush()
            # From this thread and no other: the node dies with the thread that started it.
            node.process = subprocess.Popen(
                command,
                env=self._environment(name, node.incarnation),
                cwd=self._private,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writer],
                start_new_session=True,
            )
        os.close(writer)
        self._say("started", node)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                ready = await _read_once(reader)
        except TimeoutError:
            ready = False
        finally:
            os.close(reader)
        self._say("ready" if ready else "not ready", node)
        return ready

    def kill_node(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Sends the signal, by the process id of the process we started; says which that was."""
        node = self.nodes[name]
        pid = node.pid
        assert pid is not None, f"{name} does not run"
        if number is signal.SIGKILL:
            node.wanted = False
        os.kill(pid, number)
        if number is signal.SIGKILL:
            assert node.process is not None
            node.process.wait(10)
        return pid

    async def drain_node(self, name: str) -> None:
        """Asks it to stop, as a deployment does, and waits until it has."""
        node = self.nodes[name]
        assert node.process is not None
        node.wanted = False
        os.kill(node.process.pid, signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS_MAX):
            while node.process.poll() is None:
                await asyncio.sleep(0.02)
        self._say("stopped", node, exit_code=node.process.returncode)

    async def _keep(self) -> None:
        """Starts again what ended by itself, as a supervisor would, and writes down that it did."""
        while True:
            await asyncio.sleep(0.2)
            for node in self.nodes.values():
                if node.wanted and node.process is not None and node.process.poll() is not None:
                    self._say("ended by itself", node, exit_code=node.process.returncode)
                    await asyncio.sleep(0.5)
                    await self.start_node(node.name)

    def _say(self, what: str, node: Node, **more: Any) -> None:
        pid = node.process.pid if node.process is not None else None
        line = {"at": self.clock.now(), "event": what, "node": node.name, "start": node.incarnation, "pid": pid, **more}
        self.log.write(line)

    def _environment(self, name: str, incarnation: int = 0) -> dict[str, str]:
        handlers = self._private / "handlers"
        if not handlers.exists():
            handlers.mkdir()
            shutil.copy(HERE / "witness.py", handlers / "witness.py")
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        # An own session setting tells the database's log which node, and which start of it, is writing.
        speaker = f"{name}.{incarnation}"
        url = f"{self.url}&chaos.node={speaker}" if incarnation else self.url
        return {
            "LANG": "C.UTF-8",
            **kept,
            "HOME": str(self._private),
            "PYTHONPATH": f"{self._source}:{handlers}",
            "PYTHONUNBUFFERED": "1",
            "CHAOS_WITNESS": str(self._private / "witness"),
            "HOURHAND_HOME": str(self._private / name),
            "HOURHAND_DATABASE_URL": url,
            "HOURHAND_KINDS_HANDLER_MODULES": "witness",
            "HOURHAND_KINDS_RUN_AS": "none",  # the interpreter may lie where nobody else can reach it
            "HOURHAND_KINDS_SHARED": str(self._private),  # the witness is there, and its socket
            "HOURHAND_EXECUTOR_STOP_SECONDS": "5",
            **self._settings,
            **self._node_environment.get(name, {}),
        }

    @property
    def witness_command(self) -> list[str]:
        """How a command job begins; its mode, its seconds and its beat follow."""
        handlers = self._private / "handlers" / "witness.py"
        return [sys.executable, "-I", "-S", str(handlers), str(self._private / "witness")]

    @property
    def api_names(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.role == "api"]

    # --- the database -------------------------------------------------------------------------------------

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """A session of the test's own, which no fault is aimed at."""
        return await asyncpg.connect(
            self.url, timeout=10, command_timeout=60, server_settings={"application_name": "chaos"}
        )

    async def ask(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """One question; the database may be away, and then the answer is empty."""
        try:
            db = await self.connect()
            try:
                return await db.fetch(statement, *arguments)
            finally:
                await db.close()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return []

    async def stop_postgres(self, number: signal.Signals) -> int:
        """SIGINT: fast, SIGQUIT: immediate, SIGKILL: the whole family at once. Returns when it is gone."""
        pid = self._server.pid
        assert pid is not None, "PostgreSQL does not run"
        leader = psutil.Process(pid)
        family = leader.children(recursive=True) if number is signal.SIGKILL else []
        for process in [leader, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        async with asyncio.timeout(60):
            while self._server.pid is not None or any(_lives(process) for process in family):
                await asyncio.sleep(0.01)
        return pid

    def signal_backend(self, pid: int, number: signal.Signals) -> None:
        """Signals a session's process, if it still is one of our server."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.ppid() == self._server.pid:
                process.send_signal(number)

    async def start_postgres(self) -> None:
        await self._server.start()

    async def restart_postgres(self, number: signal.Signals) -> None:
        await self.stop_postgres(number)
        await self.start_postgres()

    # --- looking ------------------------------------------------------------------------------------------

    async def leader(self) -> str | None:
        """The scheduler that leads now."""
        rows = await self.ask(
            "SELECT n.name FROM hourhand.leases l JOIN hourhand.nodes n USING (node_id)"
            " WHERE l.name = 'leader' AND l.lease_until > clock_timestamp()"
        )
        pids = {int(row["name"].rpartition("-")[2]) for row in rows}
        return next((name for name, node in self.nodes.items() if node.pid in pids), None)

    def processes_with_a_run(self) -> dict[int, str]:
        """Every living process that carries a run's id of this cluster, with that id."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                ours = "HOURHAND_RUN_ID" in environment and str(self._private) in " ".join(process.cmdline())
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = environment["HOURHAND_RUN_ID"]
        return found


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def _read_once(descriptor: int) -> bool:
    """Whether something came before the other end was closed."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(descriptor, lambda: readable.done() or readable.set_result(None))
    try:
        await readable
        return bool(os.read(descriptor, 1))
    finally:
        loop.remove_reader(descriptor)
