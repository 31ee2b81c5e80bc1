"""What a job asks for beyond the ordinary: limits, overlap, rates, how long its runs may wait and last.

Most jobs ask for nothing, and then nothing of this is stored, read or checked on their way.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.placement import Placement
from hourhand.model.resources import Resources


class Overlap(StrEnum):
    """What becomes of a run that falls due while an earlier one of its job is not finished."""

    SKIP = "skip"
    """It is not run. The default of recurring jobs."""
    QUEUE_ONE = "queue_one"
    """One waits for its turn, further ones are skipped."""
    QUEUE_ALL = "queue_all"
    """All wait for their turn, up to `overlap_max`."""
    CANCEL_RUNNING = "cancel_running"
    """The earlier ones are cancelled; it starts when they are gone."""
    ALLOW = "allow"
    """It runs beside them. The default of jobs that run once."""


class OnNextDue(StrEnum):
    """What becomes of a run that waits for a retry when the next one falls due."""

    WAIT = "wait"
    """It counts as unfinished, like any other."""
    SUPERSEDE = "supersede"
    """The new one takes its place; it ends as skipped."""


OVERLAP_MAX_DEFAULT: Final = 100
RATE_COUNT_MAX: Final = 1_000_000
_RATE_SECONDS_MAX: Final = 86_400.0
_RATE: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*([0-9a-zA-Z. ]{1,20})\s*")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so many seconds, never more in any window of that length."""

    count: int
    seconds: float


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored as JSON beside the job; what is ordinary is left out."""

    overlap: Overlap | None = None
    """None: skip for recurring jobs, allow for the others."""
    overlap_max: int = OVERLAP_MAX_DEFAULT
    on_next_due: OnNextDue = OnNextDue.WAIT
    max_concurrency: int | None = None
    concurrency_key: str | None = None
    """May hold fields of the payload in braces: customer-{id}."""
    concurrency_limit: int = 1
    rate: Rate | None = None
    queue_timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    """From the due time on, over all attempts."""
    at_most_once: bool = False
    kill_on_disconnect: bool = False
    pause_after_failures: int | None = None
    """So many failed runs in a row pause the job."""
    template_zone: str | None = None
    """The payload names the time that a run stands for; local forms of it are in this zone. None: it names none."""
    placement: Placement | None = None
    """Which executors may take its runs. None: any that has its kind."""
    resources: Resources | None = None
    """What each attempt takes of its executor."""
    secrets: tuple[str, ...] = ()
    """Those that the payload refers to: by this an executor knows that it has to ask for values."""

    @property
    def gated(self) -> bool:
        """Whether its runs are claimed one by one, with a look at the gates, and never ahead of time."""
        return bool(
            self.max_concurrency or self.concurrency_key or self.rate or self.at_most_once or self.kill_on_disconnect
        )

    def overlap_of(self, recurring: bool) -> Overlap:
        return self.overlap or (Overlap.SKIP if recurring else Overlap.ALLOW)

    def expires_at(self, due: datetime, ready_at: datetime) -> datetime | None:
        """Until when a run may wait: for its first start by queue_timeout, for anything by the deadline."""
        ends = [
            start + timedelta(seconds=seconds)
            for start, seconds in ((ready_at, self.queue_timeout_seconds), (due, self.deadline_seconds))
            if seconds is not None
        ]
        return min(ends, default=None)

    def deadline_of(self, due: datetime) -> datetime | None:
        return None if self.deadline_seconds is None else due + timedelta(seconds=self.deadline_seconds)


ORDINARY: Final = Policy()
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder(Policy).decode


def policy_to_json(policy: Policy) -> str | None:
    return None if policy is ORDINARY or policy == ORDINARY else _to_json(policy).decode()


def policy_from_json(stored: str | None) -> Policy:
    return ORDINARY if stored is None else _from_json(stored)


class RateFault(ValueError):
    pass


def parse_rate(text: str) -> Rate:
    """Reads "100/m", "5/s", "10/30s". Raises RateFault with a sentence."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise RateFault("a rate is written like 100/m, 5/s or 10/30s")
    count, per = int(match[1]), match[2].strip()
    try:
        seconds = _UNITS[per] if per in _UNITS else parse_duration(per).total_seconds()
    except DurationFault as fault:
        raise RateFault(f"a rate is written like 100/m, 5/s or 10/30s: {fault}") from None
    if not 1 <= count <= RATE_COUNT_MAX:
        raise RateFault(f"a rate allows 1 to {RATE_COUNT_MAX} starts")
    if not 0 < seconds <= _RATE_SECONDS_MAX:
        raise RateFault("a rate counts over at most a day")
    return Rate(count, seconds)


def format_rate(rate: Rate) -> str:
    unit = next((unit for unit, seconds in _UNITS.items() if seconds == rate.seconds), None)
    return f"{rate.count}/{unit or format_duration(timedelta(seconds=rate.seconds))}"


class KeyFault(ValueError):
    pass


_FIELD: Final = re.compile(r"\{([^{}]*)\}")
KEY_CHARS_MAX: Final = 200


def concurrency_key(template: str, payload: Mapping[str, Any]) -> str:
    """The key of a run: fields of its payload put in. Raises KeyFault where one is missing or no plain value."""

    def value_of(match: re.Match[str]) -> str:
        value: Any = payload
        for part in match[1].split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise KeyFault(f"the payload has no field {match[1]!r}")
            value = value[part]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise KeyFault(f"the payload's field {match[1]!r} must be a string or an integer")
        return str(value)

    return _checked_key(_FIELD.sub(value_of, template))


def check_template(template: str) -> None:
    """What can be said of a key before there is a payload. Raises KeyFault."""
    plain = _FIELD.sub("", template)
    if "{" in plain or "}" in plain:
        raise KeyFault("a brace has no other: fields of the payload are written like customer-{id}")
    if not _FIELD.search(template):
        _checked_key(template)


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= KEY_CHARS_MAX or "\x00" in key:  # which PostgreSQL cannot store
        raise KeyFault(f"a key has 1 to {KEY_CHARS_MAX} characters, and not the character NUL")
    return key
