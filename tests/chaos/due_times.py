"""When a job of the workload falls due, worked out without any code of the product.

Intervals are multiples from their anchor; cron expressions are read by cronsim. Due times are compared as whole
microseconds, which is what the database keeps.
"""

from datetime import UTC, datetime
from functools import lru_cache

from cronsim import CronSim
from tests.chaos.history import JobSpec


def micros(instant: float) -> int:
    return round(instant * 1_000_000)


def due_between(spec: JobSpec, after: float, until: float) -> list[int]:
    """The due times in (after, until] of a recurring job, as microseconds."""
    if spec.end_at is not None:
        until = min(until, spec.end_at)
    start, end = micros(after), micros(until)
    if spec.schedule == "every":
        return _every(spec, start, end)
    if spec.schedule == "cron":
        assert spec.cron is not None
        return _cron(spec.cron, start, end)
    assert spec.schedule == "at", "the due time of `now` is not known in advance"
    due = micros(spec.at or 0.0)
    return [due] if start < due <= end else []


def is_due(spec: JobSpec, due: int) -> bool:
    """Whether the schedule names this very microsecond."""
    return due_between(spec, (due - 1) / 1_000_000, due / 1_000_000) == [due]


def _every(spec: JobSpec, start: int, end: int) -> list[int]:
    assert spec.every_seconds is not None
    assert spec.anchor is not None
    interval, anchor = micros(spec.every_seconds), micros(spec.anchor)
    first = anchor if start < anchor else anchor + ((start - anchor) // interval + 1) * interval
    return list(range(first, end + 1, interval))


@lru_cache(maxsize=100_000)
def _cron(text: str, start: int, end: int) -> list[int]:
    found: list[int] = []
    for instant in CronSim(text, datetime.fromtimestamp(start // 1_000_000, UTC)):
        due = round(instant.timestamp()) * 1_000_000
        if due > end:
            break
        if due > start:
            found.append(due)
    return found
