"""So many jobs due every second for a while, at evenly spread instants: how late does each start?

`before`: all are submitted before the first is due, so that only planning, running and recording are measured.
`meanwhile`: each is submitted half a second to three seconds ahead of its time, in a batch with others or, at low
rates, alone: so some get their run at once and others wait in the timetable.
"""

import asyncio
import heapq
import random
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hourhand.bench.bodies import Acknowledged, at_batch, at_body_maker
from hourhand.bench.course import Course
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second, worst_p99
from hourhand.bench.readers import Readers
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import (
    MICROS,
    batches_at,
    first_due,
    now_micros,
    refuse_late,
    sleep_until,
    submit_batches,
    try_submission,
)
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told
from hourhand.bench.wire import Wire, expect
from hourhand.bench.witness import misdated
from hourhand.model.errors import WorldError

TICK_SECONDS: Final = 0.05
BATCH_MAX: Final = 5000
SINGLES_RATE_MAX: Final = 200.0
"""Up to this rate jobs are submitted one by one, as single callers do."""
AHEAD_SECONDS: Final = (0.5, 3.0)
REQUESTS_MAX: Final = 200
"""Requests under way; more mean that the server does not keep up."""
_LOOK_SECONDS: Final = 1.0
_MINUTE: Final = 60 * MICROS
_SEED: Final = 4


@dataclass(frozen=True, slots=True)
class Steady:
    rate: float = 1000.0
    seconds: float = 30.0
    submit: Literal["before", "meanwhile"] = "before"
    readers: float = 0.0
    """Lists and searches a second beside it."""
    stages: bool = False


async def measure_steady(target: Target, asked: Steady, progress: Progress) -> Measured:
    refuse_nothing(asked.rate, asked.seconds)
    async with target.wire() as wire:
        progress.note("finding out how fast jobs can be submitted")
        rate = await try_submission(target, wire, int(asked.rate * asked.seconds))
        if asked.submit == "before":
            return await _measure_before(target, wire, asked, rate, progress)
        return await _measure_meanwhile(target, wire, asked, progress)


def refuse_nothing(rate: float, seconds: float) -> None:
    """Fails when not one job would fall due: there would be nothing to tell, and it would look well."""
    if int(rate * seconds) < 1:
        raise WorldError(f"{rate:g} a second for {seconds:g} s is not one job; take a higher rate, or longer")


def spread(begin: int, rate: float, seconds: float) -> Iterator[int]:
    """Due times, in microseconds since 1970: evenly spread, `rate` a second, the first at `begin`."""
    return (begin + round(number * MICROS / rate) for number in range(int(rate * seconds)))


# --- before -----------------------------------------------------------------------------------------------


async def _measure_before(
    target: Target, wire: Wire, asked: Steady, submit_rate: float, progress: Progress
) -> Measured:
    jobs = int(asked.rate * asked.seconds)
    begin = first_due(jobs, submit_rate)
    dues = array("q", spread(begin, asked.rate, asked.seconds))
    progress.note(f"submitting {jobs:,} jobs; the first is due in {begin / MICROS - time.time():.0f} s")
    course = Course(target, progress)
    submitted = await submit_batches(wire, batches_at(dues), progress, jobs)
    refuse_late(begin, f"{jobs:,} jobs")
    progress.note(f"submitted at {submitted.per_second:,.0f} jobs/s; waiting for the first due time")
    await sleep_until(begin - int(_LOOK_SECONDS * MICROS))
    latest = submitted.acknowledged.latest()
    async with course, Readers(target, asked.readers) as readers:
        await sleep_until(dues[-1])
        await drain(target, course.lines, jobs, latest)
        ended = now_micros()
    submission = Submission(submitted.acknowledged, submitted.per_second, 0)
    return await _measured(target, asked, course, submission, readers, (begin, ended))


@dataclass(frozen=True, slots=True)
class Submission:
    acknowledged: Acknowledged
    per_second: float
    late: int
    """Jobs that were acknowledged only after they were due."""


async def _measured(
    target: Target, asked: Steady, course: Course, submission: Submission, readers: Readers, within: tuple[int, int]
) -> Measured:
    """`within`: the first due time, and when all was recorded; in microseconds."""
    witnessed = await read_ours(target, course, submission.acknowledged)
    jobs, seconds = submission.acknowledged.count, (within[1] - within[0]) / MICROS
    found = told(course, submission.acknowledged, witnessed, stages=asked.stages)
    facts: Facts = {
        "bench": "steady",
        "mode": "steady",
        "submit": asked.submit,
        "rate": asked.rate,
        "jobs": jobs,
        "seconds": seconds,
        "jobs_per_second": per_second(jobs, seconds),
        "submit_per_second": submission.per_second,
        "submitted_late": submission.late,
        **readers.facts(),
        "p99_worst_minute_ms": worst_p99(witnessed.dues, witnessed.lateness_ms(), within[0], _MINUTE),
        "misdated": misdated(spread(within[0], asked.rate, asked.seconds), witnessed, found["lost"]),
        **found,
    }
    return Measured(facts, curves_of(course, witnessed))


# --- meanwhile --------------------------------------------------------------------------------------------


async def _measure_meanwhile(target: Target, wire: Wire, asked: Steady, progress: Progress) -> Measured:
    how = "one by one" if asked.rate <= SINGLES_RATE_MAX else f"in batches every {TICK_SECONDS * 1000:g} ms"
    progress.note(
        f"submitting {asked.rate:g} jobs a second {how} for {asked.seconds:g} s, each shortly before its time"
    )
    async with Course(target, progress) as course, Readers(target, asked.readers) as readers:
        stream, begin = await stream_steadily(wire, asked.rate, asked.seconds)
        await drain(target, course.lines, stream.acknowledged.count, stream.acknowledged.latest())
        ended = now_micros()
    submission = Submission(stream.acknowledged, per_second(stream.acknowledged.count, asked.seconds), stream.late)
    return await _measured(target, asked, course, submission, readers, (begin, ended))


async def stream_steadily(wire: Wire, rate: float, seconds: float) -> tuple["Stream", int]:
    """Submits so many jobs a second, each shortly before its time; when the first was due, in microseconds."""
    begin = now_micros() + int((AHEAD_SECONDS[1] + _LOOK_SECONDS) * MICROS)
    stream = Stream(wire, singly=rate <= SINGLES_RATE_MAX)
    await stream.run(spread(begin, rate, seconds))
    return stream, begin


def in_order_of_sending(dues: Iterable[int], chance: random.Random) -> Iterator[tuple[int, int]]:
    """(when to send, when due) for each job, the earliest sent first. How far ahead differs from job to job. `dues`
    must ascend; only those of the next few seconds are held in memory."""
    low, high = (int(seconds * MICROS) for seconds in AHEAD_SECONDS)
    waiting: list[tuple[int, int]] = []
    for due in dues:
        while waiting and waiting[0][0] <= due - high:  # nothing that comes later is sent before it
            yield heapq.heappop(waiting)
        heapq.heappush(waiting, (due - low - int(chance.random() * (high - low)), due))
    while waiting:
        yield heapq.heappop(waiting)


class Stream:
    """Submits each job shortly before its time. What is behind goes along with the next batch."""

    def __init__(self, wire: Wire, *, singly: bool) -> None:
        self._wire = wire
        self._singly = singly
        self._make = at_body_maker()
        self._under_way = 0
        self.acknowledged = Acknowledged(read_at_once=True)
        self.late = 0
        """Jobs that were acknowledged only after they were due."""

    async def run(self, dues: Iterable[int]) -> None:
        sending = in_order_of_sending(dues, random.Random(_SEED))  # noqa: S311 - the same jobs every time
        following = next(sending, None)
        async with asyncio.TaskGroup() as group:
            while following is not None:
                await asyncio.sleep(self._pause(following[0]))
                now = now_micros()
                batch: list[int] = []
                while following is not None and following[0] <= now and len(batch) < BATCH_MAX:
                    batch.append(following[1])
                    following = next(sending, None)
                if batch:
                    self._send(group, batch)

    def _pause(self, next_at: int) -> float:
        wait = max((next_at - now_micros()) / MICROS, 0.0)
        return wait if self._singly else max(wait, TICK_SECONDS)

    def _send(self, group: asyncio.TaskGroup, dues: Sequence[int]) -> None:
        for part in [[due] for due in dues] if self._singly else [dues]:
            if self._under_way >= REQUESTS_MAX:
                raise WorldError(
                    f"{REQUESTS_MAX} requests are not answered: the server does not keep up with this rate"
                )
            self._under_way += 1
            group.create_task(self._one(part))

    async def _one(self, dues: Sequence[int]) -> None:
        if self._singly:
            body = expect(await self._wire.post("/api/v1/jobs", self._make(dues[0])), 202, "a job")
            self.acknowledged.add_one(body)
        else:
            body = expect(await self._wire.post("/api/v1/jobs/batch", at_batch(self._make, dues)), 202, "a batch")
            self.acknowledged.add_batch(body, len(dues))
        self._under_way -= 1
        now = now_micros()
        self.late += sum(due < now for due in dues)
