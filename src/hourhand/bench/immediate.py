"""Lightly loaded: from sending a request with one immediate job until its handler starts."""

import asyncio
import time
from dataclasses import dataclass

from hourhand.bench.bodies import Acknowledged, job_body
from hourhand.bench.course import Course
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second, percentiles
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import now_micros
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told
from hourhand.bench.wire import Wire, expect
from hourhand.bench.witness import low_half


@dataclass(frozen=True, slots=True)
class Immediate:
    seconds: float = 20.0
    rate: float = 100.0


async def measure_immediate(target: Target, asked: Immediate, progress: Progress) -> Measured:
    progress.note(f"submitting {asked.rate:g} single jobs a second for {asked.seconds:g} s")
    async with target.wire() as wire:
        await wire.get("/api/v1/whoami")  # the connection is not what is measured
        async with Course(target, progress) as course:
            began = time.monotonic()
            paced = _Paced(wire)
            await paced.run(max(int(asked.seconds * asked.rate), 1), 1 / asked.rate)
            await drain(target, course.lines, paced.acknowledged.count, paced.acknowledged.latest())
            seconds = time.monotonic() - began
    witnessed = await read_ours(target, course, paced.acknowledged)
    sent = paced.sent_at
    waits = [
        (start - sent[low]) / 1000 for low, start in zip(witnessed.lows, witnessed.starts, strict=True) if low in sent
    ]
    facts: Facts = {
        "bench": "immediate",
        "mode": "immediate",
        "jobs": paced.acknowledged.count,
        "rate": asked.rate,
        "seconds": seconds,
        "jobs_per_second": per_second(paced.acknowledged.count, seconds),
        "sent_to_start_ms": percentiles(waits),
        "answered_ms": percentiles(paced.answered_ms),
    }
    return Measured(facts | told(course, paced.acknowledged, witnessed), curves_of(course, witnessed))


class _Paced:
    """Sends one job after the other at fixed moments, whether or not those before are answered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._request = wire.request("POST", "/api/v1/jobs", job_body())
        self.acknowledged = Acknowledged()
        self.sent_at: dict[int, int] = {}
        """When each was sent, by the lower half of its id; in microseconds since 1970."""
        self.answered_ms: list[float] = []

    async def run(self, count: int, gap: float) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(max(began + number * gap - time.monotonic(), 0))
                group.create_task(self._one())

    async def _one(self) -> None:
        sent = now_micros()
        answered = await self._wire.ask(self._request)
        self.answered_ms.append((now_micros() - sent) / 1000)
        job_id = self.acknowledged.add_one(expect(answered, 202, "a job"))
        self.sent_at[low_half(job_id)] = sent
