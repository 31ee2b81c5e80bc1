"""Fetches runs that are due, as many as there is room for, and has each started at its time.

It looks first (`looking.py`) and claims only what is due within `claim_ahead`, in order of priority and waiting time;
what has to pass gates is claimed when it is due, not before. Between looks it sleeps until the next run is near,
somebody says that there is work, or the poll interval is over: the last is the truth, the others shorten it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, Protocol

from hourhand.executor.capacity import Capacity, Kept
from hourhand.executor.fan_out import LEADING, as_leading
from hourhand.executor.looking import Looking
from hourhand.executor.settings import ExecutorSettings
from hourhand.executor.weighing import WEIGHING_MAX, Keeping, apart
from hourhand.executor.wishes import Sharing, by_urgency, in_turn
from hourhand.model.demands import NO_DEMANDS, Demands
from hourhand.model.placement import missing_labels
from hourhand.model.run import Claim
from hourhand.ports.job_kind import SlotClass
from hourhand.ports.stores import Claimed, Head, Lane, LiveRunStore, Wish, nothing_begun
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.longest import Longest

LOOK_AGAIN_SECONDS: Final = 0.003
"""After a claim of runs that were due already: so soon that what follows is not much later, and not at once, so that
the next claim is not a small one."""
LOOK_AGAIN_PART: Final = 3
"""After a claim of runs that all were ahead of their time: this part of the time by which runs are claimed ahead."""


AHEAD_OF_LONGEST: Final = 2.0
"""Where claims have lately taken longer than runs are claimed ahead, they are claimed so many times the longest ahead:
some of them when a third of that is over already."""
CROWDED_SECONDS: Final = 10.0
"""How long a claim that brought all it could is a reason to expect a crowd at the next instant, too."""
FOLLOWING_MAX: Final = 3
"""Claims in a row after one look: what has become more urgent meanwhile waits so long."""
CLOCKS_DIFFER: Final = timedelta(milliseconds=250)
"""What the clocks of two executors differ by at most."""
_ready_at: Final = attrgetter("ready_at")


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
        start: "Callable[[*tuple[Claim, ...]], None]",
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
        self._crowded_until = 0.0
        self.longest = Longest()
        """Of the claims."""
        self._judged: Head | None = None
        """The head behind which a crowd was looked for last."""
        wait_max = timedelta(seconds=settings.priority_wait_seconds)
        self._sharing = {slot_class: Sharing(wait_max) for slot_class in SlotClass}
        self._keeping = Keeping(
            timedelta(seconds=settings.resource_wait_seconds), timedelta(seconds=settings.resource_hold_seconds)
        )
        self._with_parts = False
        """Whether runs of any lane go to several executors."""
        self._resting: dict[int, float] = {}
        """Lanes of parts that had nothing for this executor, and until when they are not asked again."""
        self._weighing = False
        """Whether runs of any lane take more than a place. While none does, nothing is done about it."""
        self.lanes: dict[int, Lane] = {}
        self.looking = Looking(live_runs, clock, lambda: self.lanes)
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
        queues, before = self._settings.queues, set(self.lanes)
        self.lanes = {
            lane_id: lane
            for lane_id, lane in (await self._names.lanes()).items()
            if lane.needs in self._offers and not lane.held and (lane.queue in queues or "*" in queues)
            # What is demanded is asked for last: hardly a lane demands anything.
            if lane.demands is NO_DEMANDS or self._can_carry(lane)
        }
        demands = [lane.demands for lane in self.lanes.values() if lane.demands is not NO_DEMANDS]
        self._weighing = any(each.weighs and not each.part for each in demands)
        self._with_parts = any(each.fan or each.part for each in demands)
        if before != set(self.lanes):
            self.looking.learn_lanes(before)
        return None

    def _can_carry(self, lane: Lane) -> bool:
        """Whether one of its runs would fit if nothing else ran here."""
        is_there = not missing_labels(lane.demands.labels, self._settings.labels)
        return is_there and self._capacity.could_carry(self._offers[lane.needs], lane.demands)

    async def claims_answered(self) -> None:
        """Returns when no claim is under way, and what they brought is started. For when nothing new is taken."""
        await self._none_under_way.wait()

    async def run_once(self) -> float | None:
        """Claims what is due and there is room for; says how long it may sleep."""
        if not self.claiming or not self.lanes or not self._executor_id():
            return None
        heads = await self.looking.look()
        lanes = self.lanes  # as they were at the look: others are learnt while claims are under way
        await self._expect_crowd(heads, lanes)
        now = self._clock.now()
        due = [head for head in heads if self._is_due(head, lanes, now)]
        rests = [
            self._until_next(heads, lanes, now),
            self.looking.thorough.seconds_left() or self._settings.poll_seconds,
        ]
        if self._with_parts:
            due = await self._take_parts(due, lanes)
        kept = await self._serve_oldest(due, lanes, now) if self._weighing else None
        for slot_class in SlotClass:
            of_class = [head for head in due if self._offers[lanes[head.lane_id].needs] is slot_class]
            if of_class:
                rests.append(await self._claim(slot_class, by_urgency(of_class, lanes), lanes, kept))
        rest = min(rests)
        return None if rest == self._settings.poll_seconds else rest  # then together with the other loops

    def _is_due(self, head: Head, lanes: Mapping[int, Lane], now: datetime) -> bool:
        lane = lanes[head.lane_id]
        if lane.careful:
            return head.ready_at <= now and self.claiming_carefully
        return head.ready_at <= now + self._ahead(self._offers[lane.needs])

    def _ahead(self, slot_class: SlotClass) -> timedelta:
        """How early runs are claimed: earlier where many fall due at one instant, which takes several claims, and where
        claims take long. A place is kept meanwhile; of those for processes there are too few to keep them long."""
        usual, most = self._settings.claim_ahead_seconds, self._settings.claim_ahead_crowded_seconds
        if time.monotonic() < self._crowded_until:
            return timedelta(seconds=most)
        longest = self.longest.seconds()
        if slot_class is SlotClass.PROCESS or longest <= usual:
            return timedelta(seconds=usual)
        return timedelta(seconds=max(usual, min(AHEAD_OF_LONGEST * longest, most)))

    async def _expect_crowd(self, heads: Sequence[Head], lanes: Mapping[int, Lane]) -> None:
        """Looks once what stands behind a head that is near: after a quiet time no claim has told of the crowd yet, and
        when the first one does it is too late to claim the others ahead of their time."""
        settings = self._settings
        if time.monotonic() < self._crowded_until or not heads:
            return
        first = min(heads, key=_ready_at)
        left = self._clock.seconds_until(first.ready_at)
        # In most cases not at all: where runs follow each other closely, the next is always nearer than that.
        near = (
            settings.claim_ahead_crowded_seconds / 2
            < left
            <= (settings.claim_ahead_crowded_seconds + settings.poll_seconds)
        )
        if not near or first == self._judged or lanes[first.lane_id].careful:
            return
        self._judged = first
        until = first.ready_at + timedelta(seconds=settings.claim_ahead_seconds)
        if await self._live_runs.is_crowd(first, until, settings.claim_max):
            self._crowded_until = time.monotonic() + CROWDED_SECONDS

    async def _take_parts(self, due: Sequence[Head], lanes: Mapping[int, Lane]) -> list[Head]:
        """Claims runs to lead, and parts that are for this executor, before all else: they are few. What remains."""
        others = []
        for head in due:
            lane = lanes[head.lane_id]
            if not lane.demands.fan and not lane.demands.part:
                others.append(head)
                continue
            if time.monotonic() < self._resting.get(head.lane_id, 0.0):
                continue
            slot_class = SlotClass.INLINE if lane.demands.fan else self._offers[lane.needs]
            demands = LEADING if lane.demands.fan else lane.demands
            count = min(self._capacity.fitting(slot_class, demands), self._settings.claim_max)
            if count <= 0:
                self._capacity.want(slot_class, demands)
                continue
            careful = lane.careful and not demands.part
            claimed = await self._ask(slot_class, [Wish(head, 0, count)], careful, again=False, demands=demands)
            if not claimed.shares:  # for others, who may be long in coming
                self._resting[head.lane_id] = time.monotonic() + self._settings.poll_seconds / 2
        return others

    async def _serve_oldest(self, due: Sequence[Head], lanes: Mapping[int, Lane], now: datetime) -> Kept | None:
        """Claims the run that has waited too long for room, before all others; what to keep, if it does not fit."""
        head = self._keeping.choose(due, lanes, now)
        if head is None:
            return None
        lane = lanes[head.lane_id]
        slot_class = self._offers[lane.needs]
        if not self._capacity.fitting(slot_class, lane.demands):
            self._capacity.want(slot_class, lane.demands)
            return Kept(slot_class, lane.demands)
        wish = Wish(head, 2 * lane.namespace_id, 1)
        await self._ask(slot_class, [wish], lane.careful, again=False, demands=lane.demands)
        return None

    async def _claim(
        self, slot_class: SlotClass, heads: Sequence[Head], lanes: Mapping[int, Lane], kept: Kept | None = None
    ) -> float:
        """Claims; says how long nothing more is to be expected. `kept`: what nobody here may take."""
        limit = min(
            self._capacity.free(slot_class) - (kept.places(slot_class) if kept else 0), self._settings.claim_max
        )
        if limit <= 0:
            self._capacity.want_more()
            return self._settings.poll_seconds
        sharing, begun = self._sharing[slot_class], self._clock.now()
        wishes = sharing.wishes(heads, lanes, limit, begun)
        got: Counter[int] = Counter()
        put_aside = weighed = 0
        alone = len({wish.share for wish in wishes}) == 1
        for part in self._parts(wishes, lanes):
            lane = lanes[part[0].head.lane_id]
            careful, weighs = lane.careful, self._weighing and lane.demands.weighs
            open_wishes = [Wish(wish.head, wish.share, wish.limit - got[wish.share]) for wish in part]
            if weighs:
                open_wishes = self._fitting(slot_class, open_wishes, lane.demands, kept)
            asked = [wish for wish in open_wishes if wish.limit > 0]
            if weighs and asked:
                weighed += 1
                if weighed > WEIGHING_MAX:  # each is a claim of its own: the others have their turn at the next look
                    return 0.0
            again = alone and not careful and not weighs and kept is None
            claimed = await self._ask(slot_class, asked, careful, again, lane.demands if weighs else NO_DEMANDS)
            for share, count in claimed.shares.items():
                got[share] += count * lane.demands.slots if weighs else count
            put_aside += claimed.put_aside
        sharing.settle(got)
        if got.total() >= limit == self._settings.claim_max:
            self._crowded_until = time.monotonic() + CROWDED_SECONDS
        # What one share left over another may still want.
        shared = not alone and got.total() > 0
        if shared or got.total() >= limit or put_aside > 0:
            return 0.0
        if not got.total():
            return self._settings.poll_seconds
        # Behind the head that was taken stands another, whose time nobody knows before the next look.
        in_time = min(head.ready_at for head in heads) > begun
        ahead = self._ahead(slot_class).total_seconds()
        return max(ahead / LOOK_AGAIN_PART, LOOK_AGAIN_SECONDS) if in_time else LOOK_AGAIN_SECONDS

    def _parts(self, wishes: Sequence[Wish], lanes: Mapping[int, Lane]) -> Iterator[list[Wish]]:
        """What can be asked for at once, in turn."""
        if not self._weighing:
            return in_turn(wishes, lanes)
        return (part for turn in in_turn(wishes, lanes) for part in apart(turn, lanes))

    def _fitting(
        self, slot_class: SlotClass, wishes: Sequence[Wish], demands: Demands, kept: Kept | None
    ) -> list[Wish]:
        """The one wish for runs that weigh, with as many as there is room for now."""
        [wish] = wishes
        count = min(wish.limit // demands.slots, self._capacity.fitting(slot_class, demands, kept))
        if count <= 0:
            self._capacity.want(slot_class, demands)
        return [Wish(wish.head, wish.share, count)]

    async def _ask(
        self,
        slot_class: SlotClass,
        wishes: Sequence[Wish],
        careful: bool,
        again: bool,
        demands: Demands = NO_DEMANDS,
    ) -> Claimed:
        """Claims and starts what it can get, all of plain lanes or all of lanes with gates (`careful`). `again`: more
        may be asked for at once when it gets all that it asks for. `demands`: of each, beyond a place."""
        shares: Counter[int] = Counter()
        put_aside, left = 0, FOLLOWING_MAX if again else 0
        following: list[asyncio.Task[Claimed | None]] = []

        def follow(count: int) -> bool:
            # The same once more, before what was claimed is even read: the database looks for it while these run.
            nonlocal left
            limit = min(self._capacity.free(slot_class), wishes[0].limit)
            if not left or count < wishes[0].limit or limit <= 0:
                return False
            left -= 1
            more = [Wish(wish.head, wish.share, limit) for wish in wishes]
            claim = self._claim_once(slot_class, more, careful=False, follow=follow)
            following.append(asyncio.create_task(claim, name="claim"))
            return True

        try:
            claimed = await self._claim_once(slot_class, wishes, careful, demands, follow)
            while claimed is not None:
                shares.update(claimed.shares)
                put_aside += claimed.put_aside
                self._start(*claimed.claims)
                self._answered()
                claimed = await following[0] if following else None
                del following[:1]
        finally:
            for left_over in following:  # stopped meanwhile
                self._leave(slot_class, left_over)
        return Claimed([], shares, put_aside)

    def _leave(self, slot_class: SlotClass, asked: "asyncio.Task[Claimed | None]") -> None:
        """Nobody will start what a claim brings; lost claims are found and returned."""
        if not asked.done():
            asked.cancel()
        elif not asked.cancelled() and asked.exception() is None and asked.result() is not None:
            self._give_back(slot_class, asked.result())
            self._answered()

    async def _claim_once(
        self,
        slot_class: SlotClass,
        wishes: Sequence[Wish],
        careful: bool,
        demands: Demands = NO_DEMANDS,
        follow: Callable[[int], bool] = nothing_begun,
    ) -> Claimed | None:
        """What it gets has its places and is not started yet; then `_answered` must follow. None: nothing was asked.
        `follow` is told how many it has got as soon as that is known, and says whether it has begun the next."""
        node_id = self._executor_id()
        if not wishes or not self.claiming or not node_id:  # orders may have come since the look
            return None
        # Reserved before asking, given back for what did not come: two claims under way never overbook.
        places = sum({wish.share: wish.limit for wish in wishes}.values())
        if demands is NO_DEMANDS:
            self._capacity.take(slot_class, places)
        else:
            self._capacity.take_for(slot_class, demands, places)
        self.claims_begun += 1
        self._none_under_way.clear()
        claimed = None
        try:
            claimed = await self._ask_store(node_id, slot_class, wishes, careful, demands, follow)
        finally:
            spare = places - (0 if claimed is None else len(claimed.claims))
            if demands is NO_DEMANDS:
                for _ in range(spare):
                    self._capacity.give_back(slot_class)
            else:
                self._capacity.untake(slot_class, demands, spare)
            if claimed is None:
                self._answered()
        if demands is not NO_DEMANDS:
            for claim in claimed.claims:
                self._capacity.hold(claim.fence, claim.run_id, demands)
            if demands.fan:
                claimed = Claimed([as_leading(claim) for claim in claimed.claims], claimed.shares, claimed.put_aside)
        if node_id != self._executor_id():  # held for dead meanwhile: others return these runs
            self._give_back(slot_class, claimed)
            return Claimed([])
        return claimed

    def _answered(self) -> None:
        """A claim is over, and what it brought is started."""
        self.claims_ended += 1
        if self.claims_ended == self.claims_begun:
            self._none_under_way.set()

    def _give_back(self, slot_class: SlotClass, claimed: Claimed | None) -> None:
        for claim in claimed.claims if claimed else ():
            self._capacity.give_back(slot_class, claim.fence)

    async def _ask_store(
        self,
        node_id: int,
        slot_class: SlotClass,
        wishes: Sequence[Wish],
        careful: bool,
        demands: Demands,
        follow: Callable[[int], bool],
    ) -> Claimed:
        now, asked = self._clock.now(), self.longest.monotonic()
        if demands.part:
            [wish] = wishes
            return await self._live_runs.claim_parts(node_id, wish.head.lane_id, now, wish.limit)
        if careful:
            return await self._live_runs.claim_carefully(node_id, wishes, now)
        # Others may claim as early as anybody does, and by clocks that differ a little.
        most = max(self._settings.claim_ahead_seconds, self._settings.claim_ahead_crowded_seconds)
        others_until = now + timedelta(seconds=most) + CLOCKS_DIFFER
        until = now + self._ahead(slot_class)
        claimed = await self._live_runs.claim_runs(node_id, wishes, now, until, others_until, follow)
        self.longest.note(asked)
        return claimed

    def _until_next(self, heads: Sequence[Head], lanes: Mapping[int, Lane], now: datetime) -> float:
        """Until the first head that is not due yet comes near enough to be claimed."""
        waits = [self._settings.poll_seconds]
        for head in heads:
            lane = lanes[head.lane_id]
            ahead = self._ahead(self._offers[lane.needs])
            if head.ready_at > now + ahead and not lane.careful:
                waits.append(max(self._clock.seconds_until(head.ready_at) - ahead.total_seconds(), 0.0))
            elif head.ready_at > now:  # careful, or held back by an earlier run until it is due
                waits.append(max(self._clock.seconds_until(head.ready_at), 0.001))
        return min(waits)
