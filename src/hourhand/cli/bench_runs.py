"""The measurements behind `hourhand bench`.

Effects are counted from raw lines that the handler itself appends to a witness file: run id, attempt, time. A run's id
carries its due time, so lateness needs nothing that the product says about itself; and its lower half is its job's,
so what was acknowledged can be compared with what happened.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec

from hourhand.model.errors import ServerUnreachable, WorldError

Say = Callable[[str], None]

_LOW_64_BITS: Final = (1 << 64) - 1
FUTURE_SECONDS: Final = 2.2
"""How far ahead future jobs are due: beyond the planner's horizon, so that each passes through the timetable."""
IN_FLIGHT: Final = 3
DRAIN_SECONDS_MAX: Final = 120.0
LINE_BYTES_MIN: Final = 36 + 1 + 1 + 1 + 16 + 1
"""A witness line: run id, attempt, microseconds."""


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    token: str
    witness: Path
    own: bool
    """True when nobody else submits to it."""

    def client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)


@contextlib.asynccontextmanager
async def open_target(server: str | None, token: str | None, witness: Path | None, say: Say) -> AsyncIterator[Target]:
    """A running Hourhand, or a temporary one that is gone afterwards."""
    if server is not None:
        if not token:
            raise WorldError("--server needs --token")
        target = Target(server.rstrip("/"), token, witness or Path(), own=False)
        yield target if witness else replace(target, witness=await _witness_of(target))
        return
    with tempfile.TemporaryDirectory(prefix="hourhand-bench-") as folder:
        async with _temporary_cluster(Path(folder), say) as target:
            yield target


@contextlib.asynccontextmanager
async def _temporary_cluster(folder: Path, say: Say) -> AsyncIterator[Target]:
    home, witness, port = folder / "home", folder / "witness", free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOURHAND_")}
    environment |= {"HOURHAND_BENCH_WITNESS": str(witness), "HOURHAND_HOME": str(home), "HOURHAND_PORT": str(port)}
    witness.touch()
    with (folder / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hourhand.cli", "up", env=environment, stdout=output, stderr=output
        )
    try:
        say(f"starting a temporary cluster on port {port}")
        await _ready(f"http://127.0.0.1:{port}", process, folder / "output")
        yield Target(f"http://127.0.0.1:{port}", (home / "token").read_text().strip(), witness, own=True)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 60)


async def _witness_of(target: Target) -> Path:
    """The witness file that the executors of a running cluster say they append to."""
    async with target.client() as http:
        answer = await http.get("/api/v1/cluster")
    if answer.status_code != 200:
        raise WorldError(f"{target.url} answered {answer.status_code}: {answer.text[:300]}")
    executors = [node["facts"] for node in answer.json()["nodes"] if node["role"] == "executor"]
    paths = {facts.get("bench_witness") for facts in executors}
    path = Path(paths.pop() or "/nowhere") if len(paths) == 1 else None
    if path is None or not path.parent.is_dir():
        raise WorldError("the executors of that server do not append to one file here: name it by --witness")
    path.touch()
    return path


async def _ready(url: str, process: asyncio.subprocess.Process, output: Path) -> None:
    async with httpx.AsyncClient() as http:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if process.returncode is not None:
                said = await asyncio.to_thread(output.read_text)
                raise WorldError(f"the temporary cluster did not start:\n{said[-2000:]}")
            with contextlib.suppress(httpx.HTTPError):
                if (await http.get(f"{url}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.05)
    raise ServerUnreachable(f"{url} was not ready within 60 s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- lifecycle --------------------------------------------------------------------------------------------


class _Submitter:
    """Keeps a few batches in flight, and no more jobs due but unfinished than it was told."""

    def __init__(self, target: Target, mode: str, batch: int, ahead: int) -> None:
        self._target = target
        self._mode = mode
        self._batch = batch
        # Future jobs wait for their time before they can be finished; that wait is not a backlog.
        self._ahead = ahead if mode == "immediate" else ahead + 60_000
        self._finished = _LineCount(target.witness)
        self._begun_with = self._finished.lines()
        self._asked = 0
        self.job_ids: list[str] = []
        self.submit_seconds = 0.0

    async def run(self, seconds: float) -> None:
        async with self._target.client() as http:
            await asyncio.gather(*(self._submit(http, time.monotonic() + seconds) for _ in range(IN_FLIGHT)))

    async def _submit(self, http: httpx.AsyncClient, until: float) -> None:
        answer = msgspec.json.Decoder(dict[str, Any])
        while time.monotonic() < until:
            if self._asked - (self._finished.lines() - self._begun_with) >= self._ahead:
                await asyncio.sleep(0.001)
                continue
            self._asked += self._batch
            body = _body(self._mode, self._batch)
            sent = time.monotonic()
            response = await http.post("/api/v1/jobs/batch", content=body)
            self.submit_seconds += time.monotonic() - sent
            if response.status_code != 202:
                raise WorldError(f"a batch was answered {response.status_code}: {response.text[:500]}")
            self.job_ids += answer.decode(response.content)["job_ids"]


def _body(mode: str, batch: int) -> bytes:
    job: dict[str, Any] = {"name": "bench", "payload": {"handler": "bench.noop", "target": "old_logs", "days": 30}}
    if mode == "future":
        due = datetime.now(UTC) + timedelta(seconds=FUTURE_SECONDS)
        job["schedule"] = {"at": due.isoformat().replace("+00:00", "Z")}
    return b"[" + b",".join([msgspec.json.encode(job)] * batch) + b"]"


class _LineCount:
    """How many lines a growing file has. Lines have one length but for the attempt's digits; counted exactly."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._lines = 0

    def lines(self) -> int:
        while chunk := self._file.read(1 << 20):
            self._lines += chunk.count(b"\n")
        return self._lines


async def measure_lifecycle(
    target: Target, seconds: float, mode: str, batch: int, ahead: int, say: Say
) -> dict[str, Any]:
    offset = target.witness.stat().st_size
    submitter = _Submitter(target, mode, batch, ahead)
    say(f"submitting {mode} no-op jobs for {seconds:g} s")
    begun = time.monotonic()
    await submitter.run(seconds)
    submitted = time.monotonic()
    jobs = len(submitter.job_ids)
    say(f"submitted {jobs} jobs; waiting until all are recorded")
    async with target.client() as http:
        await _drain(http, target, offset, submitter.job_ids)
        ended = time.monotonic()
        settings = (await http.get("/api/v1/cluster")).json().get("database", {})
    witnessed = _read_witness(target.witness, offset)
    return {
        "mode": mode,
        "jobs": jobs,
        "seconds": ended - begun,
        "jobs_per_second": jobs / (ended - begun),
        "submit_per_second": jobs / (submitter.submit_seconds / IN_FLIGHT) if submitter.submit_seconds else 0.0,
        "submitting_seconds": submitted - begun,
        "lateness_ms": _percentiles([(at - due) / 1000 for _, due, at in witnessed]),
        **_compare(submitter.job_ids, witnessed),
        "settings": settings,
    }


async def _drain(http: httpx.AsyncClient, target: Target, offset: int, job_ids: Sequence[str]) -> None:
    """Waits until everything is recorded. On a cluster that others use too: until all have run, and the ends of the
    last ones are recorded."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while time.monotonic() < deadline:
        if target.own:
            status = (await http.get("/api/v1/cluster")).json()
            if not sum(status["live"].values()) and not status["next_due"]:
                return
        else:
            all_ran = target.witness.stat().st_size - offset >= len(job_ids) * LINE_BYTES_MIN
            if all_ran and all([await _is_final(http, job_id) for job_id in job_ids[-2000::100]]):
                return
        await asyncio.sleep(0.02)
    raise WorldError(f"not everything was recorded within {DRAIN_SECONDS_MAX:g} s")


async def _is_final(http: httpx.AsyncClient, job_id: str) -> bool:
    latest = (await http.get(f"/api/v1/jobs/{job_id}/status")).json().get("latest_run")
    return latest is not None and latest["ended_at"] is not None


def _read_witness(path: Path, offset: int) -> list[tuple[int, int, int]]:
    """(lower half of the run id, due time, start time), times in microseconds."""
    found = []
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            run_id, _attempt, at = line.split()
            number = UUID(run_id.decode()).int
            due = (number >> 80) * 1000 + (number >> 66 & 0x3FF)
            found.append((number & _LOW_64_BITS, due, int(at)))
    return found


def _compare(job_ids: Sequence[str], witnessed: Sequence[tuple[int, int, int]]) -> dict[str, int]:
    acknowledged = {UUID(job_id).int & _LOW_64_BITS for job_id in job_ids}
    seen = {low for low, _, _ in witnessed}
    return {"lost": len(acknowledged - seen), "doubled": len(witnessed) - len(seen)}


def _percentiles(values: list[float]) -> dict[str, float]:
    values.sort()
    if not values:
        return {"p50": 0.0, "p99": 0.0, "max": 0.0}
    last = len(values) - 1
    return {"p50": values[last // 2], "p99": values[int(last * 0.99)], "max": values[-1]}


# --- immediate --------------------------------------------------------------------------------------------


async def measure_immediate(target: Target, seconds: float, rate: float, say: Say) -> dict[str, Any]:
    offset = target.witness.stat().st_size
    sent_at: dict[int, int] = {}
    answered: list[float] = []
    say(f"submitting {rate:g} single jobs a second for {seconds:g} s")
    async with target.client() as http:
        await http.get("/api/v1/whoami")  # the connection is not what is measured
        job_ids = await _paced(http, int(seconds * rate), 1 / rate, sent_at, answered)
        await _drain(http, target, offset, job_ids)
        settings = (await http.get("/api/v1/cluster")).json().get("database", {})
    witnessed = _read_witness(target.witness, offset)
    started = [(at - sent_at[low]) / 1000 for low, _, at in witnessed if low in sent_at]
    return {
        "jobs": len(sent_at),
        "rate": rate,
        "sent_to_start_ms": _percentiles(started),
        "answered_ms": _percentiles(answered),
        "lost": len(sent_at.keys() - {low for low, _, _ in witnessed}),
        "doubled": len(witnessed) - len({low for low, _, _ in witnessed}),
        "settings": settings,
    }


async def _paced(
    http: httpx.AsyncClient, count: int, gap: float, sent_at: dict[int, int], answered: list[float]
) -> list[str]:
    body = msgspec.json.encode({"name": "bench", "payload": {"handler": "bench.noop"}})

    job_ids: list[str] = []

    async def one() -> None:
        sent = time.time_ns() // 1000
        response = await http.post("/api/v1/jobs", content=body)
        if response.status_code != 202:
            raise WorldError(f"a job was answered {response.status_code}: {response.text[:500]}")
        answered.append((time.time_ns() // 1000 - sent) / 1000)
        job_ids.append(response.json()["job_id"])
        sent_at[UUID(job_ids[-1]).int & _LOW_64_BITS] = sent

    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(begun + number * gap - time.monotonic(), 0))
            group.create_task(one())
    return job_ids
