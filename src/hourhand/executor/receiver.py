"""Fetches runs that are due, as many as there is room for, and has each started at its time.

It looks first (`peek_ready`) and claims only what is due within `claim_ahead`, in order of priority and waiting time;
what has to pass gates is claimed when it is due, not before. Between looks it sleeps until the next run is near,
somebody says that there is work, or the poll interval is over: the last is the truth, the others shorten it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from hourhand.executor.capacity import Capacity
from hourhand.executor.settings import ExecutorSettings
from hourhand.executor.wishes import Sharing, by_urgency, in_turn
from hourhand.model.run import Claim
from hourhand.ports.job_kind import SlotClass
from hourhand.ports.stores import Claimed, Head, Lane, LiveRunStore, Wish
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.looks import ThoroughLook

LOOK_AGAIN_SECONDS: Final = 0.003
"""After a claim: so soon that nothing is late, and not at once, so that the next claim is not a small one."""


LOOKS_MAX: Final = 20
"""In a row, before others of this process get a turn for certain."""


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
        wait_max = timedelta(seconds=settings.priority_wait_seconds)
        self._sharing = {slot_class: Sharing(wait_max) for slot_class in SlotClass}
        self.lanes: dict[int, Lane] = {}
        self._thorough = ThoroughLook()
        self._heads: dict[tuple[int, int], Head] = {}
        """What was seen last of each lane and priority, since the last thorough look."""
        self.claims_begun = self.claims_ended = 0
        """Claims asked for, one after the other, and those that were answered or given up. Between the two the database
        may know of claims that this executor does not."""
        self._none_under_way = asyncio.Event()
        self._none_under_way.set()
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

    async def claims_answered(self) -> None:
        """Returns when no claim is under way, and what they brought is started. For when nothing new is taken."""
        await self._none_under_way.wait()

    async def run_once(self) -> float | None:
        """Claims what is due and there is room for; says how long it may sleep."""
        rest: float | None = 0.0
        for _ in range(LOOKS_MAX):
            # Straight to the next look, which is on its way before anything that was claimed takes its first step:
            # the database works while they run.
            rest = await self._look_and_claim()
            if rest != 0.0:
                break
        return rest

    async def _look_and_claim(self) -> float | None:
        if not self.claiming or not self.lanes or not self._executor_id():
            return None
        heads = await self._look()
        now = self._clock.now()
        due = [head for head in heads if self._is_due(head, now)]
        rests = [self._until_next(heads, now)]
        for slot_class in SlotClass:
            of_class = [head for head in due if self._offers[self.lanes[head.lane_id].needs] is slot_class]
            if of_class:
                rests.append(await self._claim(slot_class, by_urgency(of_class, self.lanes)))
        rest = min(rests)
        return None if rest == self._settings.poll_seconds else rest  # then together with the other loops

    async def _look(self) -> list[Head]:
        """What stands at the front of each lane, of those that this executor serves."""
        if self._heads and not self._thorough.is_due():
            heads = await self._live_runs.peek_known([*self._heads.values()])
        else:
            self._heads = {}
            heads = await self._live_runs.peek_ready([*self.lanes])
            self._thorough.ended()
        self._heads |= {(head.lane_id, head.priority): head for head in heads}
        return [head for head in heads if head.lane_id in self.lanes]

    def _is_due(self, head: Head, now: datetime) -> bool:
        if self.lanes[head.lane_id].careful:
            return head.ready_at <= now and self.claiming_carefully
        return head.ready_at <= now + self._ahead

    async def _claim(self, slot_class: SlotClass, heads: Sequence[Head]) -> float:
        """Claims; says how long nothing more is to be expected."""
        limit = min(self._capacity.free(slot_class), self._settings.claim_max)
        if limit <= 0:
            self._capacity.want_more()
            return self._settings.poll_seconds
        sharing = self._sharing[slot_class]
        wishes = sharing.wishes(heads, self.lanes, limit, self._clock.now())
        got: Counter[int] = Counter()
        put_aside = 0
        for part in in_turn(wishes, self.lanes):
            open_wishes = [Wish(wish.head, wish.share, wish.limit - got[wish.share]) for wish in part]
            claimed = await self._ask(slot_class, [wish for wish in open_wishes if wish.limit > 0])
            got.update(claimed.shares)
            put_aside += claimed.put_aside
        sharing.settle(got)
        # What one share left over another may still want.
        shared = len({wish.share for wish in wishes}) > 1 and got.total() > 0
        if shared or got.total() == limit or put_aside > 0:
            return 0.0
        # Behind the head that was taken stands another, whose time nobody knows before the next look.
        return LOOK_AGAIN_SECONDS if got.total() else self._settings.poll_seconds

    async def _ask(self, slot_class: SlotClass, wishes: Sequence[Wish]) -> Claimed:
        """Claims and starts what it can get, all of plain lanes or all of lanes with gates."""
        claimed, node_id = Claimed([]), self._executor_id()
        if not wishes or not self.claiming or not node_id:  # orders may have come since the look
            return claimed
        # Reserved before asking, given back for what did not come: two claims under way never overbook.
        places = sum({wish.share: wish.limit for wish in wishes}.values())
        self._capacity.take(slot_class, places)
        self.claims_begun += 1
        self._none_under_way.clear()
        try:
            claimed = await self._ask_store(node_id, wishes)
        finally:
            self.claims_ended += 1
            if self.claims_ended == self.claims_begun:
                self._none_under_way.set()
            for _ in range(places - len(claimed.claims)):
                self._capacity.give_back(slot_class)
        if node_id != self._executor_id():  # held for dead meanwhile: others return these runs
            for _ in claimed.claims:
                self._capacity.give_back(slot_class)
            return Claimed([])
        for one in claimed.claims:
            self._start(one)
        return claimed

    async def _ask_store(self, node_id: int, wishes: Sequence[Wish]) -> Claimed:
        now = self._clock.now()
        if self.lanes[wishes[0].head.lane_id].careful:
            return await self._live_runs.claim_carefully(node_id, wishes, now)
        return await self._live_runs.claim_runs(node_id, wishes, now, now + self._ahead)

    def _until_next(self, heads: Sequence[Head], now: datetime) -> float:
        """Until the first head that is not due yet comes near enough to be claimed."""
        waits = [self._settings.poll_seconds]
        for head in heads:
            if head.ready_at > now + self._ahead and not self.lanes[head.lane_id].careful:
                waits.append(max(self._clock.seconds_until(head.ready_at) - self._ahead.total_seconds(), 0.0))
            elif head.ready_at > now:  # careful, or held back by an earlier run until it is due
                waits.append(max(self._clock.seconds_until(head.ready_at), 0.001))
        return min(waits)
