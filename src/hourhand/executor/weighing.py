"""Work that takes more of an executor than a place: how much there is in all, and who gets room first.

Many small runs could for ever take what a large one waits for. So of the runs that have waited too long for room the
oldest is served first, and until it fits the others get only what it would leave over. Not for longer than a bound:
what it waits for may be held by something that runs for days, and then the others have their turn for as long.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from hourhand.executor.settings import ExecutorSettings
from hourhand.model.resources import CPU, MEMORY, parse_amount
from hourhand.ports.stores import Head, Lane, Wish
from hourhand.runtime.machine import usable_cores, usable_memory

MEMORY_PART: Final = 0.8
"""Of the machine's memory that runs may declare; the rest is for the executor itself and for what declares nothing."""
WEIGHING_MAX: Final = 32
"""Lanes that are asked one by one in a turn; further ones have theirs in the next."""


def things_of(settings: ExecutorSettings) -> dict[str, float]:
    """What an executor has of all that is counted: what is configured, cores and memory else by the machine."""
    said = dict(parse_amount(text) for text in settings.resources)
    return {CPU: usable_cores(), MEMORY: float(int(usable_memory() * MEMORY_PART))} | said


class Keeping:
    """Chooses for whom room is kept."""

    def __init__(self, wait: timedelta, hold: timedelta) -> None:
        self._wait = wait
        self._hold = hold
        self._kept: Head | None = None
        self._since: datetime | None = None

    def choose(self, heads: Sequence[Head], lanes: Mapping[int, Lane], now: datetime) -> Head | None:
        """`heads` are due. None: nobody has waited too long, or it is the others' turn."""
        late = [head for head in heads if head.ready_at < now - self._wait and lanes[head.lane_id].demands.weighs]
        oldest = min(late, key=lambda head: head.ready_at, default=None)
        if oldest is None:
            self._kept = self._since = None
            return None
        if oldest != self._kept or self._since is None:
            self._kept, self._since = oldest, now
        return oldest if (now - self._since) // self._hold % 2 == 0 else None


def apart(wishes: Sequence[Wish], lanes: Mapping[int, Lane]) -> Iterator[list[Wish]]:
    """In the same order: those that take a place each together, each of the others alone."""
    together: list[Wish] = []
    for wish in wishes:
        if not lanes[wish.head.lane_id].demands.weighs:
            together.append(wish)
            continue
        if together:
            yield together
            together = []
        yield [wish]
    if together:
        yield together
