"""A job's unique key: from the caller's words to what is stored."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault
from hourhand.model.keys import KEY_CHARS_MAX, UniqueKey, period_end
from hourhand.operations.requests import JobRequest

_PERIOD_MIN: Final = timedelta(seconds=1)
_PERIOD_MAX: Final = timedelta(days=366)


def check_unique_key(request: JobRequest, refuse: Callable[[Fault], None]) -> None:
    key, period = request.unique_key, request.unique_period
    if key is not None and (not key.isprintable() or key != key.strip() or not 0 < len(key) <= KEY_CHARS_MAX):
        message = f"a unique key has 1 to {KEY_CHARS_MAX} visible characters, and spaces only between them"
        refuse(Fault("/unique_key", "invalid-key", message))
    if period is None:
        return
    if key is None:
        message = "unique_period says for how long a unique_key is taken: give that too"
        refuse(Fault("/unique_period", "conflicting-fields", message, beside="/unique_key"))
    try:
        length = parse_duration(period)
    except DurationFault as fault:
        refuse(Fault("/unique_period", "invalid-duration", str(fault)))
        return
    if not _PERIOD_MIN <= length <= _PERIOD_MAX:
        message = f"unique_period is {format_duration(_PERIOD_MIN)} to {format_duration(_PERIOD_MAX)}"
        refuse(Fault("/unique_period", "out-of-range", message))


def unique_key_of(request: JobRequest, now: datetime) -> UniqueKey | None:
    """What a request that was checked asks for."""
    if request.unique_key is None:
        return None
    period = request.unique_period
    return UniqueKey(request.unique_key, None if period is None else period_end(now, parse_duration(period)))


def repeated_unique_keys(requests: Sequence[JobRequest]) -> list[Fault]:
    """Jobs of one batch that want the same key: they can never all be stored."""
    first: dict[str, int] = {}
    faults = []
    for place, request in enumerate(requests):
        key = request.unique_key
        if key is not None and first.setdefault(key, place) != place:
            message = f"the job at /{first[key]} has the same unique key"
            faults.append(Fault(f"/{place}/unique_key", "repeated-key", message))
    return faults
