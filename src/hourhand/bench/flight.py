"""Many runs in flight on one executor at once: handlers that wait, calls of a slow server, or processes.

How many there are is counted by those who would know: handlers leave a witness when they begin and when they end, the
slow server counts the calls it holds, and processes are counted in the kernel's list. What is lost or doubled is never
taken from the product's own tables either: the slow server leaves a line for each call, and a process carries the id of
its run in its environment. Memory is that of the executor.
"""

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from hourhand.bench.bodies import Acknowledged, batch_of_one_kind
from hourhand.bench.cluster import SCHEMA, Cluster
from hourhand.bench.course import Course
from hourhand.bench.figures import most_at_once, per_second
from hourhand.bench.meter import family, proportional_mb_of
from hourhand.bench.report import Facts, Line, Measured, Progress
from hourhand.bench.submitting import BATCH, now_micros, submit_batches
from hourhand.bench.target import Target
from hourhand.bench.telling import beside, curves_of, told_of_runs
from hourhand.bench.witness import Witnessed, compare, low_half, read_witness
from hourhand.model.errors import WorldError
from hourhand.model.states import RunState

_FILES_SPARE: Final = 500
_END_SECONDS_MAX: Final = 300.0
_BACKLOG: Final = 4096
_RUN_ID: Final = b"HOURHAND_RUN_ID="


@dataclass(frozen=True, slots=True)
class Flight:
    jobs: int = 1000
    kind: Literal["async", "http", "process"] = "async"
    hold_seconds: float | None = None

    @property
    def hold(self) -> float:
        """Long enough for all to have begun before the first ends: processes take some milliseconds each to start."""
        if self.hold_seconds is not None:
            return self.hold_seconds
        return 5 + self.jobs / (50 if self.kind == "process" else 500)


def settings_for(asked: Flight) -> dict[str, str]:
    """The executor has room for all of them."""
    if asked.kind == "process":
        return {"executor.slots_process": str(asked.jobs), "executor.slots_inline": "0"}
    return {"executor.slots_inline": str(asked.jobs)}


def allow_files(asked: Flight) -> None:
    """Raises the limit of open files, for this process and those that it starts: each run may need a few."""
    needed = asked.jobs * (4 if asked.kind == "process" else 1) + _FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise WorldError(f"{needed} files must be open at once, and this machine allows {hard}: raise `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def measure_flight(target: Target, asked: Flight, progress: Progress) -> Measured:
    assert target.cluster is not None, "one executor and its processes are looked at"
    progress.note(f"{asked.jobs:,} runs ({asked.kind}) of {asked.hold:g} s each")
    server_of = slow_server(asked.hold, target.witness)
    async with server_of as server, Course(target, progress) as course, target.wire() as wire:
        look = _Look(course, target.cluster, asked)
        job = msgspec.json.encode(_job(asked, server))
        sizes = [min(BATCH, asked.jobs - begin) for begin in range(0, asked.jobs, BATCH)]
        batches = [(batch_of_one_kind(job, size), size) for size in sizes]
        async with look:
            began = time.monotonic()
            submitted = await submit_batches(wire, batches, progress, asked.jobs)
            states = await _ended(target.cluster, asked)
            seconds = time.monotonic() - began
    witnessed = read_witness(target.witness, course.lines.offset)
    by_witness = {"async": most_at_once(witnessed.starts, witnessed.ends), "http": server.most}
    facts: Facts = {
        "bench": "flight",
        "mode": asked.kind,
        "jobs": asked.jobs,
        "seconds": seconds,
        "jobs_per_second": per_second(asked.jobs, seconds),
        "submit_per_second": submitted.per_second,
        "hold_seconds": asked.hold,
        "in_flight_max": by_witness.get(asked.kind, look.processes_max),
        "running_max": look.running_max,
        "executor_mb": round(look.memory_max, 1),
        "executor_tree_mb": None if look.tree_mb is None else round(look.tree_mb, 1),
        "ended": dict(sorted(states.items())),
        **_effects(submitted.acknowledged, witnessed, look),
        **beside(course, asked.jobs),
    }
    running = {"in flight, runs/by the tables": look.running}
    return Measured(facts, {**running, **(curves_of(course, witnessed) if witnessed else course.lines_over_time())})


def _effects(acknowledged: Acknowledged, witnessed: Witnessed, look: "_Look") -> Facts:
    """Where there are lines, what they say; of processes what the kernel's list says, which knows no lateness."""
    if witnessed:
        return told_of_runs(witnessed, compare(acknowledged.lows(), witnessed.lows))
    return dict(compare(acknowledged.lows(), look.processes.values()))


def _job(asked: Flight, server: "SlowServer") -> dict[str, Any]:
    job: dict[str, Any] = {"name": "bench", "max_retries": 0}
    match asked.kind:
        case "async":
            return {**job, "payload": {"handler": "bench.wait", "seconds": asked.hold}}
        case "http":
            return {**job, "kind": "http", "payload": {"url": f"http://127.0.0.1:{server.port}/"}}
        case "process":
            return {**job, "kind": "command", "payload": {"argv": ["sleep", f"{asked.hold:g}"]}}


async def _ended(cluster: Cluster, asked: Flight) -> dict[str, int]:
    """Waits until nothing is live any more; how many runs ended in which way."""
    database = await cluster.connect()
    deadline = time.monotonic() + asked.hold + _END_SECONDS_MAX
    try:
        while await database.fetchval(f"SELECT EXISTS (SELECT FROM {SCHEMA}.live_runs)"):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        rows = await database.fetch(f"SELECT state, count(*) AS runs FROM {SCHEMA}.runs GROUP BY 1")
        return {RunState(row["state"]).word: row["runs"] for row in rows}
    finally:
        await database.close()


class _Look:
    """Looks once a second at what is in flight, and at the executor's memory. Use it as a context manager."""

    def __init__(self, course: Course, cluster: Cluster, asked: Flight) -> None:
        nodes = course.status["nodes"]
        self._executors = [node["facts"]["pid"] for node in nodes if node["role"] == "executor"]
        self._cluster = cluster
        self._asked = asked
        self._began = course.samples[0].at
        self.running = Line([], [])
        """Runs that the tables say are running, over time."""
        self.processes: dict[int, int] = {}
        """Every process that was seen, with the lower half of its run's id."""
        self.processes_max = 0
        self.running_max = 0
        self.memory_max = 0.0
        self.tree_mb: float | None = None
        """Of the executor and all it has started, once all were in flight; what they share counts once."""

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _keep_looking(self) -> None:
        database = await self._cluster.connect()
        try:
            while True:
                running = await database.fetchval(f"SELECT count(*) FROM {SCHEMA}.live_runs WHERE state = 3")
                self.running_max = max(self.running_max, running)
                self.running.seconds.append(time.time() - self._began)
                self.running.values.append(float(running))
                self.memory_max = max(self.memory_max, sum(map(resident_mb, self._executors)))
                if self._asked.kind == "process":
                    self._look_at_processes()
                if running >= self._asked.jobs and self.tree_mb is None:  # it takes a second or two with thousands
                    self.tree_mb = await asyncio.to_thread(self._memory_of_all)
                await asyncio.sleep(1.0)
        finally:
            await database.close()

    def _memory_of_all(self) -> float:
        return sum(proportional_mb_of(pid) for root in self._executors for pid in family(root))

    def _look_at_processes(self) -> None:
        every = [pid for root in self._executors for pid in family(root)]
        sleeping = [pid for pid in every if _name_of(pid) == "sleep"]
        self.processes_max = max(self.processes_max, len(sleeping))
        for pid in sleeping:
            if pid not in self.processes and (run_id := _run_of(pid)) is not None:
                self.processes[pid] = low_half(run_id)


def resident_mb(pid: int) -> float:
    """Resident memory of one process, without what it started."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS:"))


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _run_of(pid: int) -> bytes | None:
    """The run that a process was started for, as its environment says; None when it has just ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((each.removeprefix(_RUN_ID) for each in variables if each.startswith(_RUN_ID)), None)


# --- a slow server ----------------------------------------------------------------------------------------


class SlowServer:
    """Holds each call for a while before it answers, and knows how many it has held at once."""

    def __init__(self, hold: float, witness: int) -> None:
        self._hold = hold
        self._witness = witness
        self._held = 0
        self.most = 0
        self.port = 0

    def handler(self) -> "_Call":
        return _Call(self)

    def begin(self, call: "_Call", head: bytes) -> None:
        line = b"%s %s %d\n" % (_header(head, b"hourhand-run-id"), _header(head, b"hourhand-attempt"), now_micros())
        os.write(self._witness, line)
        self._held += 1
        self.most = max(self.most, self._held)
        asyncio.get_running_loop().call_later(self._hold, self._end, call)

    def _end(self, call: "_Call") -> None:
        self._held -= 1
        call.answer()


class _Call(asyncio.Protocol):
    def __init__(self, server: SlowServer) -> None:
        self._server = server
        self._transport: Any = None
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            head, self._head = self._head, b""
            self._server.begin(self, head)

    def answer(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self._transport.close()


def _header(head: bytes, name: bytes) -> bytes:
    """A header that the executor is known to send, by its name in small letters."""
    _, _, rest = head.lower().partition(b"\r\n%s:" % name)
    return rest.partition(b"\r\n")[0].strip()


@contextlib.asynccontextmanager
async def slow_server(hold: float, witness: Path) -> AsyncIterator[SlowServer]:
    file = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    counts = SlowServer(hold, file)
    server = await asyncio.get_running_loop().create_server(counts.handler, "127.0.0.1", 0, backlog=_BACKLOG)
    counts.port = server.sockets[0].getsockname()[1]
    try:
        yield counts
    finally:
        server.close()
        os.close(file)
