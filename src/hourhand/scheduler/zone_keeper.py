"""Plans jobs anew when their zone has got other rules: a new edition of the tz data. Done by the leader.

What the rules of each zone came to when jobs were last planned by them is stored. Only when the edition is another are
they compared; only where they differ are cursors computed anew, page by page. The new rules are stored at the very end:
a leader that is killed half-way is followed by one that begins again, and planning a job anew twice changes nothing.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID
from zoneinfo import available_timezones

from hourhand.model.local_time import ZoneFault, load_zone
from hourhand.model.zone_rules import SHIFT_MAX, replanned, rules_digest
from hourhand.ports.zone_stores import EDITION, ZonedCursor, ZoneStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.tz_data import ZoneWatch
from hourhand.scheduler.leadership import Leadership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

PAGE: Final = 2000
"""Cursors looked at by one statement."""
STRETCH_SECONDS: Final = 0.005
"""How long rules of zones are looked at in one go, of some six hundred: nothing else happens in this process then."""
PAUSE_SECONDS: Final = 0.1
"""Between two stretches. To wake up costs more than to look at a zone: a pause after each would double the work."""
FOLLOW_SECONDS: Final = 5.0
"""How soon one that has become leader looks."""


class ZoneKeeper:
    def __init__(
        self,
        zones: ZoneStore,
        leadership: Leadership,
        node_id: Callable[[], int],
        clock: DatabaseClock,
        watch: ZoneWatch,
    ) -> None:
        self._zones = zones
        self._leadership = leadership
        self._node_id = node_id
        self._clock = clock
        self._watch = watch
        self._known: tuple[int, str] | None = None
        """The epoch in which that edition was found to be stored."""

    async def run_once(self) -> float | None:
        """Compares, if there is anything to compare; says how long it may sleep."""
        epoch = self._leadership.epoch
        if epoch is None:
            return FOLLOW_SECONDS
        await self._watch.run_once()
        edition = self._watch.edition
        assert edition is not None, "the watch has just looked"
        if self._known == (epoch, edition):
            return None
        stored = await self._zones.zone_rules()
        if stored.get(EDITION) != edition and not await self._take_over(stored, edition, epoch):
            return FOLLOW_SECONDS
        self._known = (epoch, edition)
        return None

    async def _take_over(self, stored: Mapping[str, str], edition: str, epoch: int) -> bool:
        """Plans by the rules of this edition, and stores them. False when the lead was lost."""
        rules = await _all_rules()
        if stored:  # else nobody has planned by other rules that we know of
            changed = sorted(zone for zone in stored if zone != EDITION and rules.get(zone) != stored[zone])
            if changed:
                emit(Event.ZONES_CHANGED, edition=edition, zones=changed)
                await self._replan(changed, epoch)
        return await self._zones.put_zone_rules(self._node_id(), epoch, {**rules, EDITION: edition}, self._clock.now())

    async def _replan(self, zones: Sequence[str], epoch: int) -> None:
        after: UUID | None = None
        moved = 0
        while True:
            now = self._clock.now()
            page = await self._zones.cursors_in_zones(zones, after, now - 2 * SHIFT_MAX, PAGE)
            moves = [(cursor, due) for cursor in page.cursors if (due := self._due(cursor)) is not None]
            if moves:
                moved += await self._zones.move_cursors(self._node_id(), epoch, moves)
            if page.last is None:
                break
            after = page.last
            await asyncio.sleep(0)
        emit(Event.JOBS_REPLANNED, jobs=moved, zones=len(zones))

    @staticmethod
    def _due(cursor: ZonedCursor) -> datetime | None:
        try:
            return replanned(cursor.timing, cursor.next_fire, cursor.dealt_with)
        except ZoneFault:
            return None  # the zone is gone; the planner says so when the job falls due, and looks again and again


async def _all_rules() -> dict[str, str]:
    """The digest of every zone there is. Nobody waits for it, so it takes its time and leaves theirs to the others."""
    rules = {}
    began = time.perf_counter()
    for name in sorted(await asyncio.to_thread(available_timezones)):
        try:
            rules[name] = rules_digest(load_zone(name))
        except ZoneFault:
            continue
        if time.perf_counter() - began >= STRETCH_SECONDS:
            await asyncio.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
    return rules
