"""Whole lives of no-op jobs, as many as the machine can: submitted, fallen due, run, recorded."""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from hourhand.bench.bodies import Acknowledged, batch_of_one_kind, instant_text, job_body
from hourhand.bench.course import Course
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import FUTURE_SECONDS, IN_FLIGHT, MICROS, now_micros
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told
from hourhand.bench.wire import Wire, expect
from hourhand.bench.witness import LineCount

WAITING_MAX = 60_000
"""Future jobs wait for their time before they can be finished; that wait is not a backlog."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    seconds: float = 30.0
    mode: Literal["immediate", "future"] = "immediate"
    batch: int = 1000
    ahead: int = 4000
    """Due but unfinished jobs at most."""
    stages: bool = False


async def measure_lifecycle(target: Target, asked: Lifecycle, progress: Progress) -> Measured:
    progress.note(f"submitting {asked.mode} no-op jobs for {asked.seconds:g} s")
    async with Course(target, progress) as course, target.wire() as wire:
        submitter = _Submitter(wire, asked, course.lines)
        began = time.monotonic()
        await submitter.run()
        submitted = time.monotonic()
        latest = submitter.acknowledged.latest()
        jobs = submitter.acknowledged.count
        await drain(target, course.lines, jobs, latest)
        ended = time.monotonic()
    witnessed = await read_ours(target, course, submitter.acknowledged)
    facts: Facts = {
        "bench": "lifecycle",
        "mode": asked.mode,
        "jobs": jobs,
        "seconds": ended - began,
        "jobs_per_second": per_second(jobs, ended - began),
        "submit_per_second": per_second(jobs, submitter.submit_seconds / IN_FLIGHT),
        "submitting_seconds": submitted - began,
    }
    facts |= told(course, submitter.acknowledged, witnessed, stages=asked.stages)
    return Measured(facts, curves_of(course, witnessed))


class _Submitter:
    """Keeps a few batches in flight, and no more jobs due but unfinished than it was told."""

    def __init__(self, wire: Wire, asked: Lifecycle, finished: LineCount) -> None:
        self._wire = wire
        self._asked = asked
        self._ahead = asked.ahead if asked.mode == "immediate" else asked.ahead + WAITING_MAX
        self._finished = finished
        self._sent = 0
        self._immediate = batch_of_one_kind(job_body(), asked.batch)
        self.acknowledged = Acknowledged()
        self.submit_seconds = 0.0

    async def run(self) -> None:
        until = time.monotonic() + self._asked.seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._submit(until))

    async def _submit(self, until: float) -> None:
        while time.monotonic() < until:
            if self._sent - self._finished.lines() >= self._ahead:
                await asyncio.sleep(0.001)
                continue
            self._sent += self._asked.batch
            body = self._body()
            began = time.monotonic()
            answered = await self._wire.post("/api/v1/jobs/batch", body)
            self.submit_seconds += time.monotonic() - began
            self.acknowledged.add_batch(expect(answered, 202, "a batch"), self._asked.batch)

    def _body(self) -> bytes:
        if self._asked.mode == "immediate":
            return self._immediate
        due = instant_text(now_micros() + int(FUTURE_SECONDS * MICROS))
        return batch_of_one_kind(job_body(schedule={"at": due}), self._asked.batch)
