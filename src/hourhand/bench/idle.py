"""What a cluster costs while nothing is to be done: processor time and memory of all its processes.

A fresh cluster first comes to rest: PostgreSQL analyses a new database in its first minute. Then nothing is asked of
it; the processes are looked at from outside, at the beginning and the end of each window. Short-lived processes count:
what a process leaves behind is in its parent's books.
"""

import asyncio
import socket
import statistics
import time
from dataclasses import dataclass

from hourhand.bench.figures import shares
from hourhand.bench.meter import CLIENT, OTHER, POSTGRES, Meter, machine_seconds
from hourhand.bench.report import Facts, Line, Measured, Progress
from hourhand.bench.stages import role_pids
from hourhand.bench.target import Target
from hourhand.model.errors import WorldError


@dataclass(frozen=True, slots=True)
class Idle:
    seconds: float = 60.0
    windows: int = 3
    rest_seconds: float = 60.0


async def measure_idle(target: Target, asked: Idle, progress: Progress) -> Measured:
    status = await target.status()
    meter = meter_of(target, status)
    progress.note(f"coming to rest for {asked.rest_seconds:g} s")
    await asyncio.sleep(asked.rest_seconds)
    percents: list[float] = []
    first, machine, first_at = meter.seconds(), machine_seconds(), time.monotonic()
    for number in range(asked.windows):
        before, began = meter.all_seconds(), time.monotonic()
        await asyncio.sleep(asked.seconds)
        percents.append(100 * (meter.all_seconds() - before) / (time.monotonic() - began))
        progress.note(f"window {number + 1}: {percents[-1]:.2f} % of a core")
    seconds = time.monotonic() - first_at
    cores = shares(first, meter.seconds(), seconds)
    cores[POSTGRES] = cores.pop(OTHER, 0.0)  # its sessions are not asked for: whoever asks is one more
    memory = meter.proportional_mb()
    facts: Facts = {
        "bench": "idle",
        "mode": "idle",
        "jobs": 0,
        "seconds": asked.seconds * asked.windows,
        "windows_percent": [round(percent, 3) for percent in percents],
        "core_percent": round(statistics.median(percents), 3),
        "cpu": {role: round(share, 4) for role, share in sorted(cores.items())},
        "machine": {name: round(share, 3) for name, share in shares(machine, machine_seconds(), seconds).items()},
        "besides_postgres_mb": round(sum(mb for role, mb in memory.items() if role not in (CLIENT, POSTGRES)), 1),
        "memory_mb": {role: round(mb, 1) for role, mb in sorted(memory.items()) if role != CLIENT},
        "settings": target.settings(status),
    }
    windows = [asked.seconds * (number + 1) for number in range(asked.windows)]
    return Measured(facts, {"percent of a core/all processes": Line(windows, percents)})


def meter_of(target: Target, status: dict[str, object]) -> Meter:
    assert target.cluster is not None, "an idle cluster is a temporary one"
    postmaster = target.cluster.postmaster()
    if postmaster is None:
        raise WorldError("the process of PostgreSQL cannot be found, and it must be counted")
    supervisor = {target.cluster.supervisor: "supervisor"} if target.cluster.supervisor else {}
    return Meter(role_pids(status, socket.gethostname()), supervisor, postmaster)
