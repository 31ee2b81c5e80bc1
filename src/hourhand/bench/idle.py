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
from typing import Final

from hourhand.bench.figures import shares
from hourhand.bench.meter import CLIENT, OTHER, POSTGRES, Meter, machine_seconds
from hourhand.bench.report import Facts, Line, Measured, Progress
from hourhand.bench.stages import role_pids
from hourhand.bench.target import Target
from hourhand.model.errors import WorldError

LOOK_SECONDS: Final = 5.0
"""Between two looks at the course: the kernel counts in hundredths of a second."""


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
    looks = _Looks(meter)
    for number in range(asked.windows):
        before, began = meter.all_seconds(), time.monotonic()
        await looks.keep_looking(asked.seconds)
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
    return Measured(facts, looks.lines)


class _Looks:
    """The course within the windows, from outside: nothing of what is looked at is asked anything."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._began = time.monotonic()
        self._last, self._last_at = meter.seconds(), self._began
        self.lines: dict[str, Line] = {}

    async def keep_looking(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_SECONDS))
            self._look()

    def _look(self) -> None:
        spent, now = self._meter.seconds(), time.monotonic()
        moment = (self._last_at + now) / 2 - self._began
        for role, share in shares(self._last, spent, now - self._last_at).items():
            if role != CLIENT:
                self._add(f"processor, percent of a core/{POSTGRES if role == OTHER else role}", moment, 100 * share)
        for role, mb in self._meter.resident_mb().items():
            if role != CLIENT:
                self._add(f"memory, resident MB/{role}", now - self._began, mb)
        self._last, self._last_at = spent, now

    def _add(self, key: str, moment: float, value: float) -> None:
        line = self.lines.setdefault(key, Line([], []))
        line.seconds.append(moment)
        line.values.append(value)


def meter_of(target: Target, status: dict[str, object]) -> Meter:
    assert target.cluster is not None, "an idle cluster is a temporary one"
    postmaster = target.cluster.postmaster()
    if postmaster is None:
        raise WorldError("the process of PostgreSQL cannot be found, and it must be counted")
    supervisor = {target.cluster.supervisor: "supervisor"} if target.cluster.supervisor else {}
    return Meter(role_pids(status, socket.gethostname()), supervisor, postmaster)
