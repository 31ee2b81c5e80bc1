"""Looks at what stands at the front of the lanes, from the very front or from where the last look ended.

While PostgreSQL cannot clear away what is finished, a thorough look walks over all of it, for longer than runs are
claimed ahead of their time. It is taken beside shorter ones then: what is known already is not late for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from hourhand.ports.stores import EPOCH, Head, Lane, LiveRunStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.looks import ThoroughLook, ThoroughLooks

LOOK_BACK: Final = timedelta(seconds=1)
"""How far a look that is not thorough goes back at least: what is stored may be a little older than now."""

_Heads = dict[tuple[int, int], Head]


class Looking:
    def __init__(self, live_runs: LiveRunStore, clock: DatabaseClock, lanes: Callable[[], Mapping[int, Lane]]) -> None:
        """`lanes`: those that this executor serves."""
        self._live_runs = live_runs
        self._clock = clock
        self._lanes = lanes
        self.thorough = ThoroughLooks()
        self._known: _Heads = {}
        """What was seen last of each lane and priority."""
        self._beside: asyncio.Task[_Heads] | None = None
        self.on_found: Callable[[], None] = lambda: None
        """Called when a look that was taken beside has ended: the next one knows more."""

    def forget(self) -> None:
        """Has the next look be thorough, and waited for."""
        self._known = {}

    async def look(self) -> list[Head]:
        """The first that is queued of each lane and priority, as far as they are known."""
        self._hear_beside()
        look, sent = None if self._beside else self.thorough.begin(), time.monotonic()

        def hear_time(now: datetime) -> None:  # before anything is started by it
            self._clock.notice(now, sent, time.monotonic())

        if self._known and (look is None or look.is_slow):
            if look is not None:
                self._beside = asyncio.create_task(self._look_beside(look), name="thorough look")
                self._beside.add_done_callback(lambda _: self.on_found())
            heads = await self._live_runs.peek_known([self._from(head) for head in self._known.values()], hear_time)
        else:
            self._known = {}
            heads = await self._live_runs.peek_ready([*self._lanes()], hear_time)
            if look is not None:
                look.end()
        self._known |= _by_place(heads)
        return [head for head in heads if head.lane_id in self._lanes()]

    async def stop(self) -> None:
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.gather(self._beside, return_exceptions=True)
            self._beside = None

    async def _look_beside(self, look: ThoroughLook) -> _Heads:
        """Where short looks begin from now on: at what it finds; where there is nothing, at the time it looked. It does
        not hear what time the database has: that may have been told at any moment of a long look."""
        begun = self._clock.now()
        nothing = {(lane_id, priority): Head(lane_id, priority, begun) for lane_id, priority in self._known}
        found = await self._live_runs.peek_ready([*self._lanes()])
        look.end()
        return nothing | _by_place(found)

    def _hear_beside(self) -> None:
        """A fault of a look beside is one of the look that hears of it."""
        if self._beside is None or not self._beside.done():
            return
        beside, self._beside = self._beside, None
        found = beside.result()
        if self._known:  # or the lanes are others now
            self._known |= found

    def _from(self, head: Head) -> Head:
        """From where on to look for what follows a head. What becomes ready from now on may be earlier than one that is
        not due yet; what a gate has held back and lets go may be of any age."""
        lane = self._lanes().get(head.lane_id)
        since = EPOCH if lane is None or lane.careful else min(head.ready_at, self._clock.now() - LOOK_BACK)
        return Head(head.lane_id, head.priority, since)


def _by_place(heads: Iterable[Head]) -> _Heads:
    return {(head.lane_id, head.priority): head for head in heads}
