"""One look a second for all parts of a scheduler, so that an idle one costs next to nothing.

It tells the planner which shards it owns, and wakes whoever has something to do. Each of them looks again by itself
before it acts, and now and then also without being woken.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from hourhand.ports.turn_stores import TurnStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.planner import Planner
from hourhand.scheduler.settings import SchedulerSettings

UNASKED_SECONDS: Final = 5.0
"""How often those that it wakes look without being woken."""


class Lookout:
    def __init__(
        self,
        turns: TurnStore,
        planner: Planner,
        node_id: Callable[[], int],
        clock: DatabaseClock,
        settings: SchedulerSettings,
    ) -> None:
        self._turns = turns
        self._planner = planner
        self._node_id = node_id
        self._clock = clock
        # What enters the horizon before the next look: the planner sleeps until that moment.
        self._near = timedelta(seconds=settings.horizon_seconds + settings.tick_seconds)
        self.wake_planner: Callable[[], None] = lambda: None
        self.wake_judge: Callable[[], None] = lambda: None
        self.wake_keeper: Callable[[], None] = lambda: None

    async def run_once(self) -> float | None:
        now = self._clock.now()
        look = await self._turns.look(self._node_id(), now)
        self._planner.own(look.owned, look.epoch)
        if look.owned and look.next_fire is not None and look.next_fire <= now + self._near:
            self.wake_planner()
        if look.turns or look.gates or look.expired:
            self.wake_judge()
        if look.pauses:
            self.wake_keeper()
        return None
