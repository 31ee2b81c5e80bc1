"""Fetches runs that are due, as many as there is room for, and has each started at its time.

It looks first (`peek_ready`) and claims only what is due within `claim_ahead`, in order of priority and waiting time;
what has to pass gates is claimed when it is due, not before. Between looks it sleeps until the next run is near,
somebody says that there is work, or the poll interval is over: the last is the truth, the others shorten it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from hourhand.executor.capacity import Capacity
from hourhand.executor.settings import ExecutorSettings
from hourhand.executor.wishes import Sharing
from hourhand.model.run import Claim
from hourhand.ports.job_kind import SlotClass
from hourhand.ports.stores import Claimed, Head, Lane, LiveRunStore
from hourhand.runtime.clock import DatabaseClock


class Lanes(Protocol):
    async def lanes(self) -> Mapping[int, Lane]: ...


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
        self._sharing = Sharing(timedelta(seconds=settings.priority_wait_seconds))
        self.lanes: dict[int, Lane] = {}
        self.claiming = True
        """False while stopping: nothing new is taken."""
        self.claiming_carefully = True
        """False while the lease is in doubt: nothing is taken that must not run twice."""

    async def learn_lanes(self) -> float | None:
        """Sees which lanes exist and which of them this executor serves."""
        queues = self._settings.queues
        self.lanes = {
            lane_id: lane
            for lane_id, lane in (await self._names.lanes()).items()
            if lane.needs in self._offers and not lane.held and (lane.queue in queues or "*" in queues)
        }
        return None

    async def run_once(self) -> float | None:
        """Claims what is due and there is room for; says how long it may sleep."""
        if not self.claiming or not self.lanes:
            return None
        heads = await self._live_runs.peek_ready([*self.lanes])
        now = self._clock.now()
        plain = [head for head in heads if not self.lanes[head.lane_id].careful and head.ready_at <= now + self._ahead]
        careful = [head for head in heads if self.lanes[head.lane_id].careful and head.ready_at <= now]
        again = False
        for slot_class in SlotClass:
            of_class = [self._of_class(some, slot_class) for some in (plain, careful)]
            turns = [(of_class[0], self._claim_plain), (of_class[1], self._claim_carefully)]
            # Neither sort goes first as such: the one with the more urgent head does.
            turns.sort(key=lambda turn: [(-head.priority, head.ready_at) for head in turn[0][:1]] or [(99, now)])
            for due, claim in turns:
                if due:
                    again |= await self._claim(slot_class, due, claim)
        return 0 if again else self._until_next(heads, now)

    def _of_class(self, heads: Sequence[Head], slot_class: SlotClass) -> list[Head]:
        found = [head for head in heads if self._offers[self.lanes[head.lane_id].needs] is slot_class]
        return sorted(found, key=lambda head: (-head.priority, head.ready_at))

    async def _claim(self, slot_class: SlotClass, heads: Sequence[Head], claim: "_Claim") -> bool:
        """True when there may be more to claim at once."""
        limit = min(self._capacity.free(slot_class), self._settings.claim_max)
        if limit <= 0:
            self._capacity.want_more()
            return False
        # Reserved before asking, given back for what did not come: two claims under way never overbook.
        self._capacity.take(slot_class, limit)
        claimed = Claimed([])
        try:
            claimed, again = await claim(heads, limit)
        finally:
            for _ in range(limit - len(claimed.claims)):
                self._capacity.give_back(slot_class)
        for one in claimed.claims:
            self._start(one)
        return again

    async def _claim_plain(self, heads: Sequence[Head], limit: int) -> tuple[Claimed, bool]:
        now = self._clock.now()
        wishes = self._sharing.wishes(heads, self.lanes, limit, now)
        claimed = await self._live_runs.claim_runs(self._executor_id(), wishes, now, now + self._ahead)
        self._sharing.settle(claimed.namespaces)
        # What one share left over another may still want.
        shared = len({wish.share for wish in wishes}) > 1 and len(claimed.claims) > 0
        return claimed, shared or len(claimed.claims) == limit or claimed.put_aside > 0

    async def _claim_carefully(self, heads: Sequence[Head], limit: int) -> tuple[Claimed, bool]:
        if not self.claiming_carefully:
            return Claimed([]), False
        now = self._clock.now()
        claimed = await self._live_runs.claim_carefully(self._executor_id(), heads, now, limit)
        return claimed, len(claimed.claims) == limit or claimed.put_aside > 0

    def _until_next(self, heads: Sequence[Head], now: datetime) -> float:
        """Until the first head that is not due yet comes near enough to be claimed."""
        waits = [self._settings.poll_seconds]
        for head in heads:
            if head.ready_at > now + self._ahead and not self.lanes[head.lane_id].careful:
                waits.append(max(self._clock.seconds_until(head.ready_at) - self._ahead.total_seconds(), 0.0))
            elif head.ready_at > now:  # careful, or held back by an earlier run until it is due
                waits.append(max(self._clock.seconds_until(head.ready_at), 0.001))
        return min(waits)


class _Claim(Protocol):
    async def __call__(self, heads: Sequence[Head], limit: int) -> tuple[Claimed, bool]: ...
