"""A steady load for long, submitted meanwhile: are the last minutes as good as the first?

Told for every minute: lateness, processor time, memory and table sizes; and the first minutes against the last.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hourhand.bench.course import Course, Sample
from hourhand.bench.draining import drain
from hourhand.bench.figures import by_interval, per_second, percentiles, shares
from hourhand.bench.meter import CLIENT
from hourhand.bench.readers import Readers
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.steady import stream_steadily
from hourhand.bench.submitting import MICROS, now_micros, try_submission
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told

MINUTE: Final = 60
_UNITS: Final = ("_ms", "_us", "_mb")


@dataclass(frozen=True, slots=True)
class Soak:
    minutes: float = 30.0
    rate: float = 5000.0
    compare_minutes: float = 5.0
    readers: float = 0.0


async def measure_soak(target: Target, asked: Soak, progress: Progress) -> Measured:
    async with target.wire() as wire:
        await try_submission(target, wire, int(asked.rate * MINUTE))  # for its warmth only
        progress.note(f"{asked.rate:g} jobs due a second for {asked.minutes:g} minutes, submitted meanwhile")
        async with Course(target, progress) as course, Readers(target, asked.readers) as readers:
            stream, begin = await stream_steadily(wire, asked.rate, asked.minutes * MINUTE)
            await drain(target, course.lines, stream.acknowledged.count, stream.acknowledged.latest())
            seconds = (now_micros() - begin) / MICROS
    witnessed = await read_ours(target, course, stream.acknowledged)
    jobs, end = stream.acknowledged.count, begin + int(asked.minutes * MINUTE * MICROS)
    late = by_interval(witnessed.dues, witnessed.lateness_ms(), begin, MINUTE * MICROS)
    width = int(min(asked.compare_minutes, asked.minutes / 2) * MINUTE * MICROS)
    stretches = by_interval(witnessed.dues, witnessed.lateness_ms(), begin, width)
    closing = by_interval(witnessed.dues, witnessed.lateness_ms(), end - width, width)
    first = _stretch(course, stretches.get(0, array("d")), begin, begin + width)
    last = _stretch(course, closing.get(0, array("d")), end - width, end)
    minutes = {
        str(number + 1): _stretch(
            course, values, begin + number * MINUTE * MICROS, begin + (number + 1) * MINUTE * MICROS
        )
        for number, values in sorted(late.items())
    }
    facts: Facts = {
        "bench": "soak",
        "mode": "soak",
        "rate": asked.rate,
        "jobs": jobs,
        "seconds": seconds,
        "jobs_per_second": per_second(jobs, seconds),
        "submitted_late": stream.late,
        **readers.facts(),
        "minutes": minutes,
        "compared": {"first": first, "last": last, "last_to_first": ratios(first, last)},
        "p99_worst_minute_ms": max((minute["p99_ms"] for minute in minutes.values()), default=0.0),
        **told(course, stream.acknowledged, witnessed),
    }
    return Measured(facts, curves_of(course, witnessed))


def ratios(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """The last against the first, for everything that both have. 1.1 means a tenth more, of whatever unit."""
    return {_bare(name): round(last[name] / value, 3) for name, value in first.items() if value and name in last}


def _bare(name: str) -> str:
    return next((name.removesuffix(unit) for unit in _UNITS if name.endswith(unit)), name)


def _stretch(course: Course, lateness: "array[float]", begin: int, end: int) -> dict[str, float]:
    late = percentiles(lateness)
    before, after = (sample_at(course.samples, moment / MICROS) for moment in (begin, end))
    spent = shares(before.cpu, after.cpu, 1.0)
    cluster = sum(seconds for role, seconds in spent.items() if role != CLIENT)
    found = {
        "runs": float(len(lateness)),
        "p50_ms": round(late["p50"], 3),
        "p99_ms": round(late["p99"], 3),
        "max_ms": round(late["max"], 3),
        "cpu_us": round(cluster / len(lateness) * 1e6, 2) if lateness else 0.0,
        "memory_mb": round(sum(mb for role, mb in after.memory.items() if role != CLIENT), 1),
    }
    for name in ("timetable", "live_runs"):
        if name in after.tables:
            found[f"{name}_mb"] = round(after.tables[name].bytes / 1e6, 2)
            found[f"{name}_dead"] = float(after.tables[name].dead)
    return found


def sample_at(samples: list[Sample], moment: float) -> Sample:
    """The look that was nearest to a moment, in seconds since 1970."""
    return min(samples, key=lambda sample: abs(sample.at - moment))
