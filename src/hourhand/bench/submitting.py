"""Submits jobs ahead of their time: in batches, in the order in which they fall due, a few requests at once.

What is due at an instant must be there before it, or what is measured is the submission. So the rate of submission is
found by a few jobs that are run and forgotten, the first due time is set accordingly, and whether that was enough is
checked afterwards.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hourhand.bench.bodies import Acknowledged, at_batch, at_body_maker
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second
from hourhand.bench.report import Progress
from hourhand.bench.target import Target
from hourhand.bench.wire import Wire, expect
from hourhand.bench.witness import LineCount
from hourhand.model.errors import WorldError

IN_FLIGHT: Final = 3
BATCH: Final = 1000
FUTURE_SECONDS: Final = 2.2
"""How far ahead jobs must be due to be beyond the planner's horizon, so that each passes through the timetable."""
MARGIN: Final = 1.4
"""Submission may take this much longer than the trial says."""
SETTLE_SECONDS: Final = 3.0
"""Between the end of the submission and the first due time, so that neither disturbs the other."""
TRIAL_JOBS_MAX: Final = 10_000
MICROS: Final = 1_000_000

Batch = tuple[bytes, int]
"""A body, and how many jobs it holds."""


@dataclass(frozen=True, slots=True)
class Submitted:
    acknowledged: Acknowledged
    seconds: float

    @property
    def per_second(self) -> float:
        return per_second(self.acknowledged.count, self.seconds)


def now_micros() -> int:
    return time.time_ns() // 1000


async def submit_batches(wire: Wire, batches: Iterable[Batch], progress: Progress, total: int) -> Submitted:
    """Sends all, a few at once; the next only when one of these is answered. The ids are in the order of the jobs,
    whichever batch was answered first."""
    answers: list[tuple[int, bytes, int]] = []
    left, began, sent = iter(enumerate(batches)), time.monotonic(), 0

    async def work() -> None:
        nonlocal sent
        for number, (body, count) in left:  # shared by all workers: each takes the next
            answered = await wire.post("/api/v1/jobs/batch", body)
            answers.append((number, expect(answered, 202, "a batch"), count))
            sent += count
            progress.update(f"submitted {sent:,} of {total:,}")

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())
    progress.end()
    seconds, acknowledged = time.monotonic() - began, Acknowledged()
    for _, answer, count in sorted(answers):
        acknowledged.add_batch(answer, count)
    return Submitted(acknowledged, seconds)


def batches_at(dues: Sequence[int], size: int = BATCH) -> Iterator[Batch]:
    """Bodies of jobs for these due times, made as they are needed."""
    make = at_body_maker()
    for begin in range(0, len(dues), size):
        part = dues[begin : begin + size]
        yield at_batch(make, part), len(part)


async def try_submission(target: Target, wire: Wire, jobs: int) -> float:
    """Jobs a second that can be submitted ahead of their time. Those of the trial run, and are then forgotten; they
    also warm up connections, plans and caches."""
    count = max(min(jobs // 10, TRIAL_JOBS_MAX), 50)
    due = now_micros() + int((FUTURE_SECONDS + count / 5000) * MICROS)
    lines = LineCount(target.witness)
    submitted = await submit_batches(wire, batches_at([due] * count), Progress.silent(), count)
    await drain(target, lines, count, submitted.acknowledged.latest())
    lines.close()
    return submitted.per_second


def first_due(jobs: int, jobs_per_second: float) -> int:
    """When the first of so many jobs may be due if their submission begins now."""
    return now_micros() + int((jobs / jobs_per_second * MARGIN + SETTLE_SECONDS) * MICROS)


def refuse_late(begin: int, what: str) -> None:
    """Fails when the first due time has come before all was submitted."""
    late = (now_micros() - begin) / MICROS
    if late > 0:
        raise WorldError(
            f"{what} were submitted {late:.1f} s after the first of them was due: submission has become slower than "
            "its trial; the figure would not be one of punctuality"
        )


async def sleep_until(micros: int) -> None:
    while (left := (micros - now_micros()) / MICROS) > 0:  # noqa: ASYNC110 - the clock sets no event
        await asyncio.sleep(min(left, 1.0))
