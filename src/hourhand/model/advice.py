"""Whether what a job declares fits what its attempts have taken: a pure look at the last of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hourhand.model.resources import CPU, MEMORY, Resources, format_size, tell_size

SAMPLES_MAX: Final = 50
SAMPLES_MIN: Final = 5
"""Of fewer nothing is said."""
WASTEFUL: Final = 0.5
"""Who needs less than this part of what it declares keeps others waiting."""
CLOSE: Final = 0.95
SPARE: Final = 1.25
"""What is advised is so much more than what was needed."""
SECONDS_MIN: Final = 1.0
"""Of attempts that are over sooner, the processor time says nothing about cores."""
WORTH_DECLARING: Final = 64_000_000
_MEMORY_STEPS: Final = tuple(
    sorted(
        unit * count // 10
        for unit, counts in (
            (10**6, (160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680)),
            (10**9, (10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 5120)),
        )
        for count in counts
    )
)
_CPU_STEPS: Final = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)


class AdviceCode(StrEnum):
    """Part of the documented API."""

    TOO_MUCH = "too_much"
    """It declares far more than it takes: others wait for nothing."""
    TOO_LITTLE = "too_little"
    """It takes all of what it declares, or nearly: it is slowed down, or ended, by its limit."""
    NOTHING = "nothing_declared"
    """It takes much and declares nothing: its executor may be overloaded."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one attempt has taken."""

    memory_bytes: int
    cpu_seconds: float
    seconds: float
    cached_bytes: int = 0
    """Up to so much of the memory was the cache of files, which a limit makes smaller and nobody suffers."""

    @property
    def kept_bytes(self) -> int:
        """What it certainly needed of the memory: at its peak no more than all of the cache was cache."""
        return max(self.memory_bytes - self.cached_bytes, 0)


@dataclass(frozen=True, slots=True)
class Remark:
    resource: str
    code: AdviceCode
    text: str
    declared: str | float | None
    suggested: str | float


@dataclass(frozen=True, slots=True)
class Advice:
    samples: int
    memory_bytes_p95: int | None
    memory_cached_p95: int | None
    """How much of it may be the cache of files, for which no more is advised."""
    cpu_p95: float | None
    """Cores, on the average of each attempt."""
    remarks: Sequence[Remark]


def advise(declared: Resources | None, samples: Sequence[Sample]) -> Advice:
    """`samples`: the newest first; of more than `SAMPLES_MAX` those are left out that are older."""
    samples = samples[:SAMPLES_MAX]
    takes = declared or Resources()
    peaks = sorted(sample.memory_bytes for sample in samples)
    cores = sorted(sample.cpu_seconds / sample.seconds for sample in samples if sample.seconds >= SECONDS_MIN)
    cached = sorted(min(sample.cached_bytes, sample.memory_bytes) for sample in samples)
    remarks = []
    if len(peaks) >= SAMPLES_MIN:
        remarks += _of_memory(takes.memory, peaks, sorted(sample.kept_bytes for sample in samples))
    if len(cores) >= SAMPLES_MIN and takes.cpu is not None:
        remarks += _of_cpu(takes.cpu, cores)
    return Advice(
        len(samples),
        int(percentile(peaks)) if peaks else None,
        int(percentile(cached)) if cached else None,
        round(percentile(cores), 3) if cores else None,
        remarks,
    )


def percentile(ordered: Sequence[float], part: float = 0.95) -> float:
    """The smallest that so large a part is not above of."""
    return ordered[max(math.ceil(len(ordered) * part) - 1, 0)]


def _of_memory(declared: int | None, peaks: Sequence[int], kept: Sequence[int]) -> list[Remark]:
    """`kept`: the peaks without what may be the cache of files. More is advised only by that; less only by the peaks,
    so that it is never too little: what was cache at the end need not have been at the peak."""
    usual, most = percentile(peaks), peaks[-1]
    of = f"p95 of the last {len(peaks)} runs is {tell_size(usual)}"
    if declared is None:
        better = _memory_for(usual)
        if percentile(kept) < WORTH_DECLARING:
            return []
        return [Remark(MEMORY, AdviceCode.NOTHING, f"declares none, {of}: declare {better}", None, better)]
    said = tell_size(declared)
    if kept[-1] >= declared * CLOSE:
        better = _memory_for(max(most, declared))
        text = f"declared {said}, and came within 5 % of it ({tell_size(most)}): declare {better}"
        return [Remark(MEMORY, AdviceCode.TOO_LITTLE, text, format_size(declared), better)]
    better = _memory_for(most)
    if usual < declared * WASTEFUL and _size_of(most) < declared:
        text = f"declared {said}, {of}: declare {better}"
        return [Remark(MEMORY, AdviceCode.TOO_MUCH, text, format_size(declared), better)]
    return []


def _of_cpu(declared: float, cores: Sequence[float]) -> list[Remark]:
    usual = percentile(cores)
    of = f"p95 of the last {len(cores)} runs is {usual:.2g}"
    if usual >= declared * CLOSE:
        better = _step(_CPU_STEPS, declared * SPARE)
        text = f"declared {declared:g}, {of}: it uses all of it; declare {better:g} if it shall be faster"
        return [Remark(CPU, AdviceCode.TOO_LITTLE, text, declared, better)]
    better = _step(_CPU_STEPS, usual * SPARE)
    if usual < declared * WASTEFUL and better < declared:
        return [Remark(CPU, AdviceCode.TOO_MUCH, f"declared {declared:g}, {of}: declare {better:g}", declared, better)]
    return []


def _memory_for(needed: float) -> str:
    return format_size(_size_of(needed))


def _size_of(needed: float) -> int:
    return int(_step(_MEMORY_STEPS, needed * SPARE))


def _step(steps: Sequence[float], least: float) -> float:
    return next((step for step in steps if step >= least), math.ceil(least))
