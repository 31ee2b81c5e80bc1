"""So many cron occurrences every second, from thousands of distinct expressions in many zones: how late is each?

Jobs are submitted before the first is due, and none is due after the last second that counts. What must happen is
counted without the product's cron code (`occurrences`); what happened is read from the witness. A recurring job's runs
share the lower half of their ids, so an occurrence is that half together with its due time.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hourhand.bench.bodies import NOOP, instant_text
from hourhand.bench.course import Course
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second
from hourhand.bench.occurrences import Expression, due_times, expected_keys, expressions, jobs_for, key_of
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import MICROS, Batch, Submitted, now_micros, refuse_late, sleep_until, submit_batches
from hourhand.bench.target import Target
from hourhand.bench.telling import beside, curves_of, read_ours, told_of_runs
from hourhand.bench.witness import Witnessed, compare

SUBMIT_RATE_LOW: Final = 2500.0
"""Recurring jobs a second that even a slow machine can submit; whether this one could is checked."""
_BATCH: Final = 500
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Recurring:
    rate: float = 1000.0
    seconds: float = 60.0
    jobs: int = 10_000
    """At least so many, each with an expression of its own; but no more than one for each occurrence of a minute."""
    lead_seconds: float | None = None
    """From the beginning of the submission to the first due time. None: by the number of jobs."""
    stages: bool = False


async def measure_recurring(target: Target, asked: Recurring, progress: Progress) -> Measured:
    jobs, often = jobs_for(asked.rate, asked.jobs)
    lead = asked.lead_seconds if asked.lead_seconds is not None else jobs / SUBMIT_RATE_LOW + 5
    begin = int(time.time() + lead) + 1
    end = begin + int(asked.seconds)
    # In less than a minute some would not fall due at all, and the server refuses what never does.
    every = expressions(jobs, often, begin, asked.seconds)
    found = [each for each in every if next(due_times(each, begin, end), None) is not None]
    progress.note(
        f"submitting {len(found):,} recurring jobs, each due {often} times a minute, from {lead:.0f} s from now on"
    )
    course = Course(target, progress)
    submitted = await submit_recurring(target, found, begin, end, progress)
    refuse_late(begin * MICROS, f"{len(found):,} recurring jobs")
    await sleep_until(begin * MICROS - int(_LOOK_SECONDS * MICROS))
    expected = list(expected_keys(found, begin, end))
    async with course:
        await sleep_until(end * MICROS)
        await drain(target, course.lines, len(expected), [])  # not every job falls due meanwhile
        seconds = now_micros() / MICROS - begin
    witnessed = await read_ours(target, course, submitted.acknowledged, len(expected))
    places = {low: place for place, low in enumerate(submitted.acknowledged.lows())}
    facts: Facts = {
        "bench": "recurring",
        "mode": "recurring",
        "rate": per_second(len(expected), end - begin),
        "expressions": len({(each.text, each.zone) for each in found}),
        "zones": len({each.zone for each in found}),
        "recurring_jobs": len(found),
        "jobs": len(expected),
        "seconds": seconds,
        "jobs_per_second": per_second(len(expected), seconds),
        "submit_per_second": submitted.per_second,
        **told_of_runs(witnessed, compare(expected, seen_keys(witnessed, places, begin, end))),
        "unexpected": unexpected(witnessed, begin, end),
        **beside(course, len(expected), stages=asked.stages),
    }
    return Measured(facts, curves_of(course, witnessed))


def seen_keys(witnessed: Witnessed, places: Mapping[int, int], begin: int, end: int) -> Iterator[int]:
    """The occurrences that happened, as numbers like the expected ones. A run that happened twice is there twice."""
    for low, due in zip(witnessed.lows, witnessed.dues, strict=True):
        second, rest = divmod(due, MICROS)
        if low in places and rest == 0 and begin <= second < end:
            yield key_of(places[low], second, begin, end)


def unexpected(witnessed: Witnessed, begin: int, end: int) -> int:
    """Runs for due times at which nothing should have been due."""
    return sum(not begin * MICROS <= due < end * MICROS or due % MICROS != 0 for due in witnessed.dues)


async def submit_recurring(
    target: Target, found: Sequence[Expression], begin: int, end: int | None, progress: Progress
) -> Submitted:
    """Submits a job for each expression, due from `begin` on and not from `end` on, in seconds since 1970."""
    async with target.wire() as wire:
        return await submit_batches(wire, _batches(found, begin, end), progress, len(found))


def _batches(found: Sequence[Expression], begin: int, end: int | None) -> Iterator[Batch]:
    for first in range(0, len(found), _BATCH):
        part = [_job(each, begin, end) for each in found[first : first + _BATCH]]
        yield msgspec.json.encode(part), len(part)


def _job(expression: Expression, begin: int, end: int | None) -> dict[str, Any]:
    # Half a second round the whole seconds that count: nothing depends on whether an end belongs to its range.
    half = MICROS // 2
    job = {
        "name": "bench",
        "payload": NOOP,
        "schedule": {"cron": expression.text},
        "zone": expression.zone,
        "start_at": instant_text(begin * MICROS - half),
    }
    return job if end is None else {**job, "end_at": instant_text(end * MICROS - half)}
