"""Numbers made of numbers: percentiles, rates, and one second after the other."""

from array import array
from collections.abc import Iterable, Mapping
from typing import Final

SHARES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """p50, p99, p99.9 and the largest. Each is a value that occurred; nothing is interpolated."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys((*SHARES, "max"), 0.0)
    last = len(ordered) - 1
    return {**{name: ordered[int(last * share)] for name, share in SHARES.items()}, "max": ordered[-1]}


def per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def by_interval(times: Iterable[int], values: Iterable[float], begin: int, width: int) -> dict[int, "array[float]"]:
    """Values by the number of the interval that their time lies in, counted from `begin`. Earlier ones go to none."""
    found: dict[int, array[float]] = {}
    for at, value in zip(times, values, strict=True):
        number = (at - begin) // width
        if number >= 0:
            if number not in found:
                found[number] = array("d")
            found[number].append(value)
    return found


def worst_p99(times: Iterable[int], values: Iterable[float], begin: int, width: int) -> float:
    """The p99 of the interval in which it is the highest."""
    intervals = by_interval(times, values, begin, width)
    return max((percentiles(each)["p99"] for each in intervals.values()), default=0.0)


def counts_by_interval(times: Iterable[int], begin: int, width: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for at in times:
        number = (at - begin) // width
        if number >= 0:
            found[number] = found.get(number, 0) + 1
    return found


def shares(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """How much of a core each has had, from two looks at running totals. One that is new began at nothing."""
    if seconds <= 0:
        return {}
    return {name: max(total - before.get(name, 0.0), 0.0) / seconds for name, total in after.items()}


def most_at_once(begins: Iterable[int], ends: Iterable[int]) -> int:
    """The largest number of things that were begun and not ended. One that ends when another begins makes room."""
    moments = sorted([(at, 1) for at in begins] + [(at, -1) for at in ends])
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most
