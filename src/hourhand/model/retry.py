"""When a failed run is tried again.

By default three retries, 15 seconds doubled each time, plus or minus a fifth, at most an hour; or a list of
delays that is used in order, its last one repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

RETRIES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_retries: int = 3
    base_seconds: float = 15.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.2
    """Share of the delay by which chance moves it either way, so that what failed together does not return together."""
    delays_seconds: tuple[float, ...] | None = None
    """Explicit delays; replaces base and factor. Not moved by chance: who wrote 30 s means 30 s."""

    def delay_after(self, failures: int, chance: float) -> timedelta:
        """The wait after the given number of failures (1 = the first). `chance` is in [0, 1)."""
        assert failures >= 1
        if self.delays_seconds:
            return timedelta(seconds=self.delays_seconds[min(failures, len(self.delays_seconds)) - 1])
        # Capped before the power is taken: 2.0 ** 1000 overflows.
        doublings = min(failures - 1, 64)
        seconds = min(self.base_seconds * self.factor**doublings, self.max_seconds)
        return timedelta(seconds=min(seconds * (1 + self.jitter * (2 * chance - 1)), self.max_seconds))


DEFAULT_RETRY: Final = RetryPolicy()


def retry_to_json(policy: RetryPolicy) -> dict[str, Any] | None:
    """What is stored beside `max_retries`; None for the default curve, which most jobs have."""
    if policy is DEFAULT_RETRY:
        return None
    if policy.delays_seconds is not None:
        return {"delays": list(policy.delays_seconds)}
    curve = {"base": policy.base_seconds, "factor": policy.factor, "max": policy.max_seconds, "jitter": policy.jitter}
    default = {"base": 15.0, "factor": 2.0, "max": 3600.0, "jitter": 0.2}
    return None if curve == default else curve


def retry_from_json(max_retries: int, stored: Mapping[str, Any] | None) -> RetryPolicy:
    if not stored:
        return DEFAULT_RETRY if max_retries == DEFAULT_RETRY.max_retries else RetryPolicy(max_retries)
    if "delays" in stored:
        return RetryPolicy(max_retries, delays_seconds=tuple(stored["delays"]))
    return RetryPolicy(max_retries, stored["base"], stored["factor"], stored["max"], stored["jitter"])
