"""Goes on with backfills: counts what has ended, releases what there is room for. Done by the leader.

Nothing is remembered between two turns: each begins with what is stored, and every write asks for the lead and for the
due time at which it expects the backfill to stand. A leader that is killed in the middle is followed by one that goes
on where it stopped; one that was only held up changes nothing any more.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

from hourhand.model.backfill import BackfillState, Existing, choose, dues_from, room
from hourhand.model.local_time import ZoneFault
from hourhand.model.policy import KeyFault
from hourhand.ports.backfill_stores import BackfillWork, OpenBackfill, Release
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.leadership import Leadership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

SOON_SECONDS: Final = 0.1
"""How often a backfill is looked at while its runs come to an end: that much later than one the next is released."""
LOOK_SECONDS: Final = 1.0
OPEN_MAX: Final = 1000
"""Backfills that are looked at in one turn."""
RELEASE_MAX: Final = 500
"""Runs released by one statement."""
CANDIDATES_MAX: Final = 1000
"""Due times of one backfill that are looked at in one turn: many of them may have a run already."""
FORGET_MAX: Final = 5000
FORGET_SECONDS: Final = 3600.0


class Ids(Protocol):
    def new_id(self, now: datetime) -> UUID: ...


class Backfiller:
    def __init__(
        self,
        backfills: BackfillWork,
        leadership: Leadership,
        node_id: Callable[[], int],
        clock: DatabaseClock,
        ids: Ids,
        bus: EventBus,
        keep_days: int,
    ) -> None:
        self._backfills = backfills
        self._leadership = leadership
        self._node_id = node_id
        self._clock = clock
        self._ids = ids
        self._bus = bus
        self._keep = timedelta(days=keep_days)
        self._forget_at = 0.0

    async def run_once(self) -> float | None:
        """Does what there is to do; says how long it may sleep. None: as long as usual, nothing is under way."""
        epoch = self._leadership.epoch
        if epoch is None:
            return None
        now = self._clock.now()
        await self._forget(now)
        found = await self._backfills.open_backfills(now, OPEN_MAX)
        if not found:
            return None
        settled = await self._backfills.settle_backfills(self._node_id(), epoch, now)
        if settled:
            found = await self._backfills.open_backfills(now, OPEN_MAX)
        released = 0
        for each in found:
            released += await self._go_on(each, epoch, now)
        if released:
            self._bus.publish(Topic.READY)
        if released or settled:
            return SOON_SECONDS
        active = any(each.backfill.live or each.backfill.state is BackfillState.RUNNING for each in found)
        return LOOK_SECONDS if active else None

    async def _go_on(self, each: OpenBackfill, epoch: int, now: datetime) -> int:
        """Releases what there is room for; how many runs, or due times that needed none."""
        backfill = each.backfill
        if each.job_cancelled:
            await self._backfills.end_with_job(self._node_id(), epoch, backfill.backfill_id, now)
            return 0
        request = backfill.request
        places = min(room(request.parallelism, backfill.live, request.rate, each.released_lately), RELEASE_MAX)
        if backfill.state is not BackfillState.RUNNING or backfill.next_due is None or not places:
            return 0
        try:
            release = await self._next(each, places, now)
            made = await self._backfills.release_runs(self._node_id(), epoch, release, now)
        except (ZoneFault, KeyFault) as fault:
            # Nobody else's backfill waits for it. It goes on when the zone is back, or the job was changed.
            emit(Event.BACKFILL_STUCK, backfill_id=str(backfill.backfill_id), error=str(fault))
            return 0
        if made is None:
            return 0
        emit(Event.BACKFILL_RELEASED, backfill_id=str(backfill.backfill_id), runs=len(made), left_out=release.left_out)
        return len(made) + release.left_out

    async def _next(self, each: OpenBackfill, places: int, now: datetime) -> Release:
        backfill = each.backfill
        looks = places if backfill.request.existing is Existing.REPEAT else CANDIDATES_MAX
        candidates, following = dues_from(backfill.timing, backfill.next_due, backfill.request.end, looks)
        found = await self._backfills.runs_of_dues(backfill.namespace_id, backfill.job_id, candidates)
        choice = choose(candidates, following, found, backfill.request.existing, places)
        # In the order of their ids, which is that of their turns: the oldest due time first.
        run_ids = sorted(self._ids.new_id(now) for _ in choice.dues)
        return Release(each, list(zip(run_ids, choice.dues, strict=True)), choice.left_out, choice.next_due)

    async def _forget(self, now: datetime) -> None:
        """What backfills have released is kept as long as the runs themselves are."""
        if asyncio.get_running_loop().time() < self._forget_at:
            return
        if await self._backfills.forget_runs(now - self._keep, FORGET_MAX) < FORGET_MAX:
            self._forget_at = asyncio.get_running_loop().time() + FORGET_SECONDS
