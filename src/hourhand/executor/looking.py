"""Looks at what stands at the front of the lanes, from the very front or from where the last look ended.

While PostgreSQL cannot clear away what is finished, a thorough look walks over all of it, for longer than runs are
claimed ahead of their time. It is taken beside shorter ones then: what is known already is not late for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.job import PRIORITIES
from hourhand.ports.stores import EPOCH, Head, Lane, LiveRunStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.looks import ThoroughLook, ThoroughLooks
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

LOOK_BACK: Final = timedelta(seconds=1)
"""How far a look that is not thorough goes back at least: what is stored may be a little older than now."""
KNOWN_SECONDS: Final = 60.0
"""How long a lane and priority without runs is still looked at by short looks."""

_Place = tuple[int, int]
"""A lane, by its id, and a priority."""


class _Thorough(NamedTuple):
    """What a look at everything has come to."""

    begun: datetime
    lanes: frozenset[int]
    heads: Mapping[_Place, Head]


class Looking:
    def __init__(self, live_runs: LiveRunStore, clock: DatabaseClock, lanes: Callable[[], Mapping[int, Lane]]) -> None:
        """`lanes`: those that this executor serves."""
        self._live_runs = live_runs
        self._clock = clock
        self._lanes = lanes
        self.thorough = ThoroughLooks()
        self._new: set[int] = set()
        """Lanes that nobody has looked at yet."""
        self._known: dict[_Place, float] = {}
        """Where runs were found lately, and when that was, by `time.monotonic`."""
        self._heads: dict[_Place, Head] = {}
        """What was found last, since the last thorough look; where there is nothing, that one has found nothing."""
        self._empty_since: datetime = EPOCH
        """When the last thorough look began."""
        self._beside: asyncio.Task[_Thorough | None] | None = None
        self._meanwhile: set[_Place] = set()
        """Where short looks have found something since the one beside began: they know better."""
        self.on_found: Callable[[], None] = lambda: None
        """Called when a look that was taken beside has ended: the next one knows more."""

    def learn_lanes(self, before: Iterable[int]) -> None:
        """The lanes are others than before: the next look is at all priorities of the new ones."""
        self._new = (self._new | self._lanes().keys() - set(before)) & self._lanes().keys()
        self._forget()

    async def look(self) -> list[Head]:
        """The first that is queued of each lane and priority, as far as they are known."""
        self._hear_beside()
        look, sent = None if self._beside else self.thorough.begin(), time.monotonic()

        def hear_time(now: datetime) -> None:  # before anything is started by it
            self._clock.notice(now, sent, time.monotonic())

        if look is None or look.is_slow:
            if look is not None:
                self._begin_beside(look)
            heads = await self._look_shortly(hear_time)
        else:
            begun, lanes = self._clock.now(), frozenset(self._lanes())
            heads = await self._live_runs.peek_ready([*lanes], hear_time)
            look.end()
            self._hear(_Thorough(begun, lanes, _by_place(heads)))
        return [head for head in heads if head.lane_id in self._lanes()]

    async def stop(self) -> None:
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.gather(self._beside, return_exceptions=True)
            self._beside = None

    async def _look_shortly(self, hear_time: Callable[[datetime], None]) -> list[Head]:
        self._forget()
        new = frozenset(self._new)
        places = [self._from(place) for place in self._known]
        places += [Head(lane_id, priority, EPOCH) for lane_id in new for priority in PRIORITIES]
        heads = await self._live_runs.peek_known(places, hear_time) if places else []
        found = _by_place(heads)
        self._new -= new
        self._meanwhile |= found.keys()
        self._heads |= found
        self._known |= dict.fromkeys(found, time.monotonic())
        return heads

    def _from(self, place: _Place) -> Head:
        """From where on to look for what follows a head. What becomes ready from now on may be earlier than one that is
        not due yet; what a gate has held back and lets go may be of any age."""
        if self._lanes()[place[0]].careful:
            return Head(*place, EPOCH)
        head = self._heads.get(place)
        since = self._empty_since if head is None else head.ready_at
        return Head(*place, min(since, self._clock.now() - LOOK_BACK))

    def _begin_beside(self, look: ThoroughLook) -> None:
        self._meanwhile = set()
        self._beside = asyncio.create_task(self._look_beside(look), name="thorough look")
        self._beside.add_done_callback(lambda _: self.on_found())

    async def _look_beside(self, look: ThoroughLook) -> _Thorough | None:
        """It does not hear what time the database has: that may have been told at any moment of a long look. A fault is
        not one of the short looks, which find out by themselves whether the database is there."""
        begun, lanes = self._clock.now(), frozenset(self._lanes())
        try:
            found = await self._live_runs.peek_ready([*lanes])
        except DatabaseUnavailable as fault:
            emit(Event.LOOP_FAILED, loop="thorough look", error=f"{type(fault).__name__}: {fault}")
            return None
        finally:
            look.end()
        return _Thorough(begun, lanes, _by_place(found))

    def _hear_beside(self) -> None:
        if self._beside is None or not self._beside.done():
            return
        beside, self._beside = self._beside, None
        found = beside.result()
        if found is None:
            return
        newer = {place: self._heads[place] for place in self._meanwhile}
        self._hear(found)
        for place, head in newer.items():  # stored, or let go, after the thorough look had passed by
            older = found.heads.get(place, head)
            self._heads[place] = min(head, older, key=lambda one: one.ready_at)

    def _hear(self, found: _Thorough) -> None:
        self._heads = dict(found.heads)
        self._known |= dict.fromkeys(found.heads, time.monotonic())
        self._empty_since = found.begun
        self._new -= found.lanes

    def _forget(self) -> None:
        """Forgets where nothing has been for long, and lanes that are served no more."""
        lanes, oldest = self._lanes(), time.monotonic() - KNOWN_SECONDS
        self._known = {place: at for place, at in self._known.items() if at >= oldest and place[0] in lanes}


def _by_place(heads: Iterable[Head]) -> dict[_Place, Head]:
    return {(head.lane_id, head.priority): head for head in heads}
