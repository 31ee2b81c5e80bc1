"""How many jobs a second can be got by id; and how long lists and searches take at a rate that people might ask."""

import asyncio
import itertools
from dataclasses import dataclass

from hourhand.bench.bodies import batch_of_one_kind, instant_text, job_body
from hourhand.bench.course import Course
from hourhand.bench.driving import Driven, drive
from hourhand.bench.readers import Readers
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submit import LATER_SECONDS
from hourhand.bench.submitting import BATCH, IN_FLIGHT, MICROS, Batch, now_micros, submit_batches
from hourhand.bench.target import Target
from hourhand.bench.telling import beside
from hourhand.bench.wire import Wire

_IDS_USED = 1000


@dataclass(frozen=True, slots=True)
class Read:
    seconds: float = 20.0
    connections: int = 32
    stored: int = 10_000
    readers: float = 50.0


async def measure_read(target: Target, asked: Read, progress: Progress) -> Measured:
    async with target.wire(max(asked.connections, IN_FLIGHT)) as wire:
        progress.note(f"submitting {asked.stored:,} jobs to read")
        job_ids = await _store(wire, asked.stored, progress)
        progress.note(f"getting jobs by id on {asked.connections} connections for {asked.seconds:g} s")
        async with Course(target, Progress.silent()) as course:
            driven = await drive_reads(wire, job_ids, asked.connections, asked.seconds, progress)
        progress.note(f"listing and searching {asked.readers:g} times a second for {asked.seconds:g} s")
        async with Readers(target, asked.readers) as readers:
            await asyncio.sleep(asked.seconds if asked.readers else 0)
    facts: Facts = {
        "bench": "read",
        "mode": "read",
        "connections": asked.connections,
        "jobs": asked.stored,
        "answers": driven.answers,
        "seconds": driven.seconds,
        "gets_per_second": driven.per_second,
        "get_ms": driven.latency(),
        **readers.facts(),
        **beside(course, driven.answers),
    }
    return Measured(facts, {**driven.lines_over_time(), **course.lines_over_time()})


async def drive_reads(
    wire: Wire,
    job_ids: list[str],
    connections: int,
    seconds: float,
    progress: Progress | None = None,
    path: str = "/api/v1/jobs",
) -> Driven:
    """Gets one job after the other, again from the first when all have been got."""
    requests = itertools.cycle([wire.request("GET", f"{path}/{job_id}") for job_id in job_ids])
    return await drive(wire, connections, seconds, lambda: next(requests), lambda _: None, 200, progress)


async def _store(wire: Wire, count: int, progress: Progress) -> list[str]:
    """Submits jobs that are due much later; some of their ids."""
    job = job_body(schedule={"at": instant_text(now_micros() + LATER_SECONDS * MICROS)})
    sizes = [min(BATCH, count - begin) for begin in range(0, count, BATCH)]
    batches: list[Batch] = [(batch_of_one_kind(job, size), size) for size in sizes]
    submitted = await submit_batches(wire, batches, progress, count)
    return submitted.acknowledged.ids(_IDS_USED)
