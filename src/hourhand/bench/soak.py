"""A steady load for long, submitted meanwhile: are the last minutes as good as the first?

Told for every minute: lateness, processor time, memory and table sizes; and the first minutes against the last, of
which three things are judged: how many runs started a second, how late they typically were, and what one cost.

What is typical is the median of the p99s of stretches of ten seconds. The p99 of all five minutes is the lateness of
their worst three seconds: one checkpoint, or a neighbour on the machine, in the last minutes but not in the first ones
doubles it and says nothing of wear. Thirty stretches are worn out together or not at all. And a difference below a
millisecond is none, because nothing here tells less apart: at 5 ms a tenth is half a millisecond, which is less than
what a process waits for its turn on a shared core. What grows with time, by bloat or a leak, passes a millisecond long
before it harms; and its cost, which is counted and not sampled, tells of it first.
"""

import statistics
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hourhand.bench.course import Course, Sample
from hourhand.bench.draining import drain
from hourhand.bench.figures import by_interval, counts_by_interval, per_second, percentiles, shares
from hourhand.bench.meter import CLIENT
from hourhand.bench.readers import Readers
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.steady import refuse_nothing, spread, stream_steadily
from hourhand.bench.submitting import MICROS, now_micros, try_submission
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told
from hourhand.bench.witness import Witnessed, misdated

MINUTE: Final = 60
TYPICAL_SECONDS: Final = 10
"""How long the stretches are of which the typical one counts."""
RESOLUTION_MS: Final = 1.0
WORSE_MAX: Final = 1.1
"""The last minutes may be worse by a tenth."""
_UNITS: Final = ("_ms", "_us", "_mb")


@dataclass(frozen=True, slots=True)
class Soak:
    minutes: float = 30.0
    rate: float = 5000.0
    compare_minutes: float = 5.0
    readers: float = 0.0


async def measure_soak(target: Target, asked: Soak, progress: Progress) -> Measured:
    refuse_nothing(asked.rate, asked.minutes * MINUTE)
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
    first, last = (_compared(course, witnessed, moment, width) for moment in (begin, end - width))
    minutes = {
        str(number + 1): _stretch(
            course, values, begin + number * MINUTE * MICROS, begin + (number + 1) * MINUTE * MICROS
        )
        for number, values in sorted(late.items())
    }
    found = told(course, stream.acknowledged, witnessed)
    dues = spread(begin, asked.rate, asked.minutes * MINUTE)
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
        "compared": {"first": first, "last": last, "last_to_first": ratios(first, last), "worse": worse(first, last)},
        "p99_worst_minute_ms": max((minute["p99_ms"] for minute in minutes.values()), default=0.0),
        "misdated": misdated(dues, witnessed, found["lost"]),
        **found,
    }
    return Measured(facts, curves_of(course, witnessed))


def ratios(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """The last against the first, for everything that both have. 1.1 means a tenth more, of whatever unit."""
    return {_bare(name): round(last[name] / value, 3) for name, value in first.items() if value and name in last}


def worse(first: Mapping[str, float], last: Mapping[str, float]) -> list[str]:
    """In what the last minutes are worse than the first by more than a tenth, and by more than can be told apart."""
    found = []
    if last["starts_per_second"] * WORSE_MAX < first["starts_per_second"]:
        found.append("starts_per_second")
    typical = first["p99_typical_ms"]
    if last["p99_typical_ms"] > max(typical * WORSE_MAX, typical + RESOLUTION_MS):
        found.append("p99_typical")
    if last["cpu_us"] > first["cpu_us"] * WORSE_MAX:
        found.append("cpu")
    return found


def typical_p99(dues: Iterable[int], lateness: Iterable[float], begin: int, width: int) -> float:
    """The median of the p99s of what was due in each stretch of ten seconds."""
    stretches = by_interval(dues, lateness, begin, TYPICAL_SECONDS * MICROS)
    whole = [stretches[number] for number in sorted(stretches) if number * TYPICAL_SECONDS * MICROS < width]
    return statistics.median(percentiles(values)["p99"] for values in whole) if whole else 0.0


def _compared(course: Course, witnessed: Witnessed, begin: int, width: int) -> dict[str, float]:
    """Everything about a stretch that is compared with another."""
    here = by_interval(witnessed.dues, witnessed.lateness_ms(), begin, width).get(0, array("d"))
    started = counts_by_interval(witnessed.starts, begin, width).get(0, 0)
    return {
        **_stretch(course, here, begin, begin + width),
        "starts_per_second": round(per_second(started, width / MICROS), 1),
        "p99_typical_ms": round(typical_p99(witnessed.dues, witnessed.lateness_ms(), begin, width), 3),
    }


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
