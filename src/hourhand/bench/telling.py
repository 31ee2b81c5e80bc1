"""What every measurement of no-op jobs has to tell: punctuality, completeness, what it took, and the curves of it."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from hourhand.bench.bodies import Acknowledged
from hourhand.bench.course import Course
from hourhand.bench.figures import by_interval, counts_by_interval, percentiles
from hourhand.bench.report import Facts, Line
from hourhand.bench.target import Target
from hourhand.bench.witness import Witnessed, compare, read_witness

STILL_SECONDS: Final = 5.0
_SECOND: Final = 1_000_000


async def read_ours(
    target: Target, course: Course, acknowledged: Acknowledged, expected: int | None = None
) -> Witnessed:
    """What happened since the course began, to the jobs that were acknowledged. Where others use the cluster too their
    lines are counted along, so that ours may not be complete yet: then they are waited for, as long as more come."""
    if target.own:
        return read_witness(target.witness, course.lines.offset)
    lows, wanted, seen = acknowledged.lows(), expected or acknowledged.count, -1
    still_since = time.monotonic()
    while True:
        ours = read_witness(target.witness, course.lines.offset).only(lows)
        if len(ours) != seen:
            seen, still_since = len(ours), time.monotonic()
        if len(ours) >= wanted or time.monotonic() - still_since > STILL_SECONDS:
            return ours
        await asyncio.sleep(0.2)


def told(course: Course, acknowledged: Acknowledged, witnessed: Witnessed, *, stages: bool = False) -> Facts:
    """Of jobs that run once."""
    lows = acknowledged.lows()
    completeness = compare(lows, witnessed.lows)
    return {**told_of_runs(witnessed, completeness), **beside(course, len(lows), stages=stages)}


def told_of_runs(witnessed: Witnessed, completeness: Mapping[str, int]) -> Facts:
    return {"lateness_ms": witnessed.lateness(), **completeness, "early": witnessed.early()}


def beside(course: Course, jobs: int, *, stages: bool = False) -> Facts:
    """What a measurement took: processor, memory, room; and the settings under which it was made."""
    found: Facts = {
        "cpu": course.cpu(),
        "machine": course.machine(),
        "memory_mb": course.memory_mb(),
        "tables": course.tables(),
        "writes": course.writes(jobs),
    }
    if stages:
        found["stages_us"] = course.stages(jobs)
    return {**found, "settings": course.settings()}


def curves_of(course: Course, witnessed: Witnessed, interval_seconds: float = 1.0) -> dict[str, Line]:
    """Lateness by due time and starts from the witness, second by second if not said otherwise; the rest from the
    course. Each value stands in the middle of its interval."""
    begin = int(course.samples[0].at * _SECOND)
    width = int(interval_seconds * _SECOND)
    late = by_interval(witnessed.dues, witnessed.lateness_ms(), begin, width)
    each = {number: percentiles(late[number]) for number in sorted(late)}
    middles = [(number + 0.5) * interval_seconds for number in each]
    found = {f"lateness, ms/{name}": Line(middles, [found[name] for found in each.values()]) for name in ("p50", "p99")}
    found["throughput, per second/runs started"] = _starts(witnessed, begin, interval_seconds, course.seconds)
    return {**found, **course.lines_over_time()}


def _starts(witnessed: Witnessed, begin: int, interval_seconds: float, seconds: float) -> Line:
    """Starts a second. The last interval is left out when the measurement ended within it: it would look like a fall.
    Intervals without a start count as such."""
    starts = counts_by_interval(witnessed.starts, begin, int(interval_seconds * _SECOND))
    whole = range(int(seconds / interval_seconds))
    middles = [(number + 0.5) * interval_seconds for number in whole]
    return Line(middles, [starts.get(number, 0) / interval_seconds for number in whole])
