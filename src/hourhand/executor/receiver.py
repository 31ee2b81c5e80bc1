"""Fetches runs that are due, as many as there is room for, and has each started at its time.

It looks first (`peek_ready`) and claims only what is due within `claim_ahead`, in order of priority and waiting time.
Between looks it sleeps until the next run is near, somebody says that there is work, or the poll interval is over: the
last is the truth, the others shorten it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from hourhand.executor.capacity import Capacity
from hourhand.executor.settings import ExecutorSettings
from hourhand.model.run import Claim
from hourhand.ports.job_kind import SlotClass
from hourhand.ports.stores import Head, LiveRunStore
from hourhand.runtime.clock import DatabaseClock


class Lanes(Protocol):
    async def lanes(self) -> Mapping[int, tuple[str, str]]: ...


class Receiver:
    def __init__(
        self,
        live_runs: LiveRunStore,
        names: Lanes,
        offers: Mapping[str, SlotClass],
        capacity: Capacity,
        executor_id: Callable[[], int],
        clock: DatabaseClock,
        start: Callable[[Claim], None],
        settings: ExecutorSettings,
    ) -> None:
        """`offers`: every need this executor can fill, and the room that it takes."""
        self._live_runs = live_runs
        self._names = names
        self._offers = offers
        self._capacity = capacity
        self._executor_id = executor_id
        self._clock = clock
        self._start = start
        self._settings = settings
        self._ahead = timedelta(seconds=settings.claim_ahead_seconds)
        self.lanes: dict[int, SlotClass] = {}
        self.claiming = True
        """False while stopping: nothing new is taken."""

    async def learn_lanes(self) -> float | None:
        """Sees which lanes exist and which of them this executor serves."""
        queues = self._settings.queues
        self.lanes = {
            lane_id: self._offers[needs]
            for lane_id, (queue, needs) in (await self._names.lanes()).items()
            if needs in self._offers and (queue in queues or "*" in queues)
        }
        return None

    async def run_once(self) -> float | None:
        """Claims what is due and there is room for; says how long it may sleep."""
        if not self.claiming or not self.lanes:
            return None
        heads = await self._live_runs.peek_ready([*self.lanes])
        horizon = self._clock.now() + self._ahead
        due = [head for head in heads if head.ready_at <= horizon]
        due.sort(key=lambda head: (-head.priority, head.ready_at))
        full = False
        for slot_class in SlotClass:
            of_class = [head for head in due if self.lanes[head.lane_id] is slot_class]
            if of_class:
                full |= await self._claim(slot_class, of_class)
        if full:
            return 0
        later = [self._clock.seconds_until(head.ready_at) for head in heads if head.ready_at > horizon]
        return min([self._settings.poll_seconds, *(max(left - self._ahead.total_seconds(), 0.0) for left in later)])

    async def _claim(self, slot_class: SlotClass, heads: Sequence[Head]) -> bool:
        """True when it got all it asked for, so that there may be more."""
        limit = min(self._capacity.free(slot_class), self._settings.claim_max)
        if limit <= 0:
            self._capacity.want_more()
            return False
        # Reserved before asking, given back for what did not come: two claims under way never overbook.
        self._capacity.take(slot_class, limit)
        claims: list[Claim] = []
        try:
            until = self._clock.now() + self._ahead
            claims = await self._live_runs.claim_runs(self._executor_id(), heads, until, limit)
        finally:
            for _ in range(limit - len(claims)):
                self._capacity.give_back(slot_class)
        for claim in claims:
            self._start(claim)
        return len(claims) == limit
