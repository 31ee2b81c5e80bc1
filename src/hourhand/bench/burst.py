"""Many jobs due at one instant, submitted long before it."""

import time
from dataclasses import dataclass

from hourhand.bench.course import Course
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second
from hourhand.bench.report import Facts, Line, Measured, Progress
from hourhand.bench.submitting import (
    MICROS,
    batches_at,
    first_due,
    refuse_late,
    sleep_until,
    submit_batches,
    try_submission,
)
from hourhand.bench.target import Target
from hourhand.bench.telling import read_ours, told
from hourhand.bench.witness import Witnessed, misdated

_LOOK_SECONDS = 1.5
"""How long before the instant the course begins."""
_POINTS = 500
"""Of a curve: more would not be seen."""


@dataclass(frozen=True, slots=True)
class Burst:
    jobs: int = 5000


async def measure_burst(target: Target, asked: Burst, progress: Progress) -> Measured:
    async with target.wire() as wire:
        progress.note("finding out how fast jobs can be submitted")
        rate = await try_submission(target, wire, asked.jobs)
        due = first_due(asked.jobs, rate) // MICROS * MICROS + MICROS
        progress.note(f"submitting {asked.jobs:,} jobs for one instant, {due / MICROS - time.time():.1f} s from now")
        course = Course(target, progress)
        submitted = await submit_batches(wire, batches_at([due] * asked.jobs), progress, asked.jobs)
        refuse_late(due, f"{asked.jobs:,} jobs")
    await sleep_until(due - int(_LOOK_SECONDS * MICROS))
    async with course:
        await sleep_until(due)
        await drain(target, course.lines, asked.jobs, submitted.acknowledged.latest())
        seconds = time.time() - due / MICROS
    witnessed = await read_ours(target, course, submitted.acknowledged)
    facts: Facts = {
        "bench": "burst",
        "mode": "burst",
        "jobs": asked.jobs,
        "seconds": seconds,
        "jobs_per_second": per_second(asked.jobs, seconds),
        "submit_per_second": submitted.per_second,
        "all_started_seconds": (max(witnessed.starts, default=due) - due) / MICROS,
    }
    facts |= told(course, submitted.acknowledged, witnessed)
    facts["misdated"] = misdated([due] * asked.jobs, witnessed, facts["lost"])
    return Measured(facts, _curves(course, witnessed, due))


def _curves(course: Course, witnessed: Witnessed, due: int) -> dict[str, Line]:
    """All have one due time, so lateness over due times would be a point: how many have started stands instead."""
    starts = sorted(witnessed.starts)
    every = max(len(starts) // _POINTS, 1)
    shown = [*range(0, len(starts), every), len(starts) - 1] if starts else []
    begin = course.samples[0].at
    moments = [due / MICROS - begin, *(starts[place] / MICROS - begin for place in shown)]
    started = Line(moments, [0.0, *(float(place + 1) for place in shown)])
    return {"started so far, runs/due at one instant": started, **course.lines_over_time()}
