"""Cron expressions whose due times can be told without the product's own cron code.

Each has a list of seconds, any minute, and either any hour or a list of hours by its zone's clock. So whether an
instant is one of its due times takes nothing but the standard library's time zones, and what the product did can be
compared with a count that is not its own.

Every second of a minute has the same number of occurrences. They all fall on whole seconds, as cron knows nothing
finer: a rate of 5,000 a second means 5,000 at each full second.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

ZONES: Final = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Kyiv", "Europe/Istanbul", "Africa/Cairo",
    "Africa/Lagos", "Africa/Johannesburg", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Asia/Shanghai",
    "Asia/Dubai", "Asia/Tehran", "Asia/Singapore", "Australia/Sydney", "Australia/Adelaide", "Pacific/Auckland",
    "Pacific/Chatham", "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles",
    "America/Sao_Paulo", "America/St_Johns",
)  # fmt: skip
MINUTE: Final = 60
_SEED: Final = 6


@dataclass(frozen=True, slots=True)
class Expression:
    seconds: tuple[int, ...]
    hours: tuple[int, ...] | None
    """By the clock of the zone; None: every hour."""
    zone: str

    @property
    def text(self) -> str:
        hours = "*" if self.hours is None else ",".join(map(str, self.hours))
        return f"{','.join(map(str, self.seconds))} * {hours} * * *"


def jobs_for(rate: float, jobs_min: int) -> tuple[int, int]:
    """How many jobs, and how often a minute each: at least so many jobs, together `rate` occurrences a second. Their
    number is a multiple of 60, so that every second gets the same share."""
    often = max(int(rate * MINUTE / jobs_min), 1)
    often = min(often, MINUTE // 2)
    rounds = max(round(rate / often), 1)
    return rounds * MINUTE, often


def expressions(jobs: int, often: int, begin: int, seconds: float) -> list[Expression]:
    """Distinct ones, for jobs that fall due from `begin` (seconds since 1970) on for so long. Sixty in a row have the
    same pattern, turned by a second each, so that together they fall due evenly."""
    chance = random.Random(_SEED)  # noqa: S311 - the same every time
    found: list[Expression] = []
    texts: set[tuple[str, str]] = set()
    while len(found) < jobs:
        pattern = [0, *sorted(chance.sample(range(1, MINUTE), often - 1))]
        zone = ZONES[len(found) // MINUTE % len(ZONES)]
        hours = _hours(zone, begin, seconds, chance) if chance.random() < 0.5 or often == 1 else None
        turned = [
            Expression(tuple(sorted((second + turn) % MINUTE for second in pattern)), hours, zone)
            for turn in range(MINUTE)
        ]
        fresh = {(each.text, zone) for each in turned}
        if len(fresh) == MINUTE and not fresh & texts:  # a pattern that repeats itself when turned is not sixty
            texts |= fresh
            found += turned
    return found[:jobs]


def _hours(zone: str, begin: int, seconds: float, chance: random.Random) -> tuple[int, ...]:
    """The hours that the zone's clock shows meanwhile, and some others."""
    clock = ZoneInfo(zone)
    shown = {
        datetime.fromtimestamp(at, clock).hour for at in (begin - MINUTE, *range(begin, int(begin + seconds), 900))
    }
    shown.add(datetime.fromtimestamp(begin + seconds, clock).hour)
    others = chance.sample(range(24), chance.randint(0, 12))
    return tuple(sorted(shown.union(others)))


def due_times(expression: Expression, begin: int, end: int) -> Iterator[int]:
    """Due times from `begin` to before `end`, in seconds since 1970. All zones of today are whole minutes off UTC, so
    their seconds are ours."""
    clock = ZoneInfo(expression.zone)
    for minute in range(begin - begin % MINUTE, end, MINUTE):
        if expression.hours is None or datetime.fromtimestamp(minute, clock).hour in expression.hours:
            yield from (minute + second for second in expression.seconds if begin <= minute + second < end)


def expected_keys(found: Sequence[Expression], begin: int, end: int) -> Iterator[int]:
    """One number for each due time of each: `key_of` its place and the instant."""
    for place, expression in enumerate(found):
        for due in due_times(expression, begin, end):
            yield key_of(place, due, begin, end)


def key_of(place: int, due: int, begin: int, end: int) -> int:
    return place * (end - begin) + (due - begin)
