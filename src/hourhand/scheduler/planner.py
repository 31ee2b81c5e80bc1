"""Moves cursors and creates live runs ahead of their time, in batches, for the shards this scheduler owns.

Whether it still owns them is decided inside each statement. A planner that comes late continues from the stored
cursor, never from now; what was missed meanwhile is planned by the job's own catch-up policy.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from hourhand.model.catchup import GRACE, CatchUpPolicy, PauseSpan, plan
from hourhand.model.ids import shard_of
from hourhand.model.schedule import Timing
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import EPOCH, Cursor, Move, TimetableStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.looks import ThoroughLooks
from hourhand.scheduler.apart import move_apart
from hourhand.scheduler.pause_keeper import PauseKeeper
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.scheduler.unplannable import Unplannable
from hourhand.scheduler.writes import Writes, place_of

PART = 500
"""Cursors that are computed in one go."""
LOOK_BACK = timedelta(seconds=1)
"""How far a look that is not thorough goes back behind what was planned."""
SOON = timedelta(seconds=1)
"""Executors look at least this often; runs that are ready sooner than that are announced."""

BUDGET_SECONDS = 0.1
"""How long late jobs may keep the planner from writing what it has."""
PLAN_MAX = timedelta(seconds=4)
"""A plan that takes longer begins anew. It must not go on by what it has heard of pauses: one that it has not heard of
holds by itself only what is due within ten seconds, and what was heard counts for three."""
PAUSED_PLAN_MAX = timedelta(seconds=1)
"""The same while there are pauses: what they hold is put aside for as far as the plan may come, each time."""
PLANNED_MAX = 65_536
"""Jobs of which is remembered where their cursors were put."""
PAUSED_SECONDS_MIN = 0.25
"""How long it sleeps at least while there are pauses: what they hold it would else look at again and again."""
_Alike = dict[tuple[Timing, datetime, CatchUpPolicy], Move]
_NO_SPANS: Mapping[UUID, Sequence[PauseSpan]] = {}
_TICK = timedelta(microseconds=1)


class Planner:
    def __init__(
        self,
        timetable: TimetableStore,
        node_id: Callable[[], int],
        clock: DatabaseClock,
        bus: EventBus,
        settings: SchedulerSettings,
        pauses: PauseKeeper,
    ) -> None:
        self._timetable = timetable
        self._pauses = pauses
        self._node_id = node_id
        self._clock = clock
        self._bus = bus
        self._settings = settings
        self._horizon = timedelta(seconds=settings.horizon_seconds)
        self._shards_owned = 0
        self._epoch = 0
        self.thorough = ThoroughLooks()
        self._planned_until = EPOCH
        self._spans = _NO_SPANS
        self._unplannable = Unplannable()
        self._planned: dict[UUID, tuple[Timing, datetime]] = {}
        """Due times at which this planner has put cursors itself, and by what they were computed."""

    def own(self, shards: int, epoch: int) -> None:
        """Hears how many shards are owned now. The epoch goes with every write until it hears of another."""
        if (shards, epoch) != (self._shards_owned, self._epoch):
            self._planned_until = EPOCH  # not of those that are new
        self._shards_owned, self._epoch = shards, epoch

    async def run_once(self) -> float | None:
        """Plans everything up to the horizon; says how long it may sleep. None: until it is woken."""
        if not self._shards_owned:
            return None
        owned = self._epoch
        paused = await self._pauses.in_force()
        ends = self._clock.now() + (PAUSED_PLAN_MAX if paused else PLAN_MAX)
        if paused:
            await self._pauses.hold(self._clock.now(), ends + self._horizon)
            self._planned_until = EPOCH  # what a pause held comes back behind what was planned
        upcoming = await self._look()
        until = min(self._clock.now(), ends) + self._horizon
        if upcoming is not None and upcoming <= until:
            if not await self._plan_all(upcoming, ends, paused):
                return 0.0
            upcoming = await self._timetable.next_cursor(upcoming)
        if owned == self._epoch:
            self._planned_until = until
        if upcoming is None:
            return self.thorough.seconds_left() or None
        pause = self._clock.seconds_until(upcoming) - self._settings.horizon_seconds
        if pause > self._settings.tick_seconds:
            return self.thorough.seconds_left() or None
        return max(pause, PAUSED_SECONDS_MIN if paused else self._settings.tick_seconds_min)

    async def _look(self) -> datetime | None:
        """When the next job falls due. What was planned before is passed over, unless it is time to look there too:
        somebody may have set a cursor back, or taken long to store a job."""
        look, sent = self.thorough.begin(), time.monotonic()

        def hear_time(now: datetime) -> None:  # before anything is held for late by it
            self._clock.notice(now, sent, time.monotonic())

        if look is None:
            return await self._timetable.next_cursor(max(self._planned_until - LOOK_BACK, EPOCH), hear_time)
        upcoming = await self._timetable.next_cursor(EPOCH, hear_time)
        look.end()
        return upcoming

    async def _plan_all(self, upcoming: datetime, ends: datetime, paused: bool) -> bool:
        """Whether it came to its end in time. What enters the horizon meanwhile is planned with what is left: nobody
        has to wait for a crowd."""
        async with Writes(self._write) as writes:
            since: tuple[datetime, int] | None = upcoming, 0
            while since is not None:
                since = await self._plan_batch(*since, ends, writes, paused)
                if self._clock.now() > ends:
                    break
        return since is None

    async def _plan_batch(
        self, since: datetime, shard: int, ends: datetime, writes: Writes, paused: bool = False
    ) -> tuple[datetime, int] | None:
        """One batch of each sort. From when and which shard on there may be more; None when there is none. The last
        parts of a batch are still written while the next one is read."""
        now = self._clock.now()
        until = min(now, ends) + self._horizon
        limit, node_id = self._settings.batch_max, self._node_id()
        once = await self._timetable.fire_once(node_id, self._epoch, until, limit, since)
        self._announce(once, now)
        under_way = writes.places()
        found, more = await self._timetable.due_cursors(node_id, self._epoch, until, limit, since, shard)
        cursors = [cursor for cursor in found if place_of(cursor) not in under_way] if under_way else found
        late = [cursor.job_id for cursor in cursors if cursor.next_fire <= now] if paused else ()
        self._spans = await self._pauses.spans_of(late) if late else _NO_SPANS
        moved = 0
        for moves in self._moves(cursors, now):
            moved += len(moves)
            await writes.begin(moves, now)
        # What was moved left dead entries behind in the index: not to be walked over again with each batch.
        goes_on = [(max(once), 0)] if len(once) >= limit else []
        if moved < len(cursors):
            goes_on.append((since, shard))
        elif more and cursors:
            goes_on.append((cursors[-1].next_fire, shard_of(cursors[-1].job_id)))
        elif more and found:  # nothing but what is under way: there is more behind it, and that comes first
            await writes.end()
            goes_on.append((since, shard))
        return min(goes_on, default=None)

    async def _write(self, moves: Sequence[Move], now: datetime) -> None:
        ready = await self._timetable.advance_cursors(self._node_id(), self._epoch, moves, now)
        self._announce(ready, self._clock.now())  # others may have been computed before it was written

    def _moves(self, cursors: Sequence[Cursor], now: datetime) -> Iterator[list[Move]]:
        """Jobs that are on time first; then those that are late, as far as the time allows. After a long silence
        counting what was missed takes a while, and neither the others nor the leases may wait for it."""
        late = now - GRACE
        on_time = [cursor for cursor in cursors if cursor.next_fire >= late]
        for begin in range(0, len(on_time), PART):
            yield [self._move(cursor, now) for cursor in on_time[begin : begin + PART]]
        moves = list[Move]()
        alike: _Alike = {}
        ends = time.monotonic() + BUDGET_SECONDS
        for cursor in cursors:
            if cursor.next_fire < late:
                moves.append(self._late_move(cursor, now, alike))
                if time.monotonic() > ends:
                    break
                if len(moves) >= PART:
                    yield moves
                    moves = []
        if moves:
            yield moves

    def _late_move(self, cursor: Cursor, now: datetime, alike: _Alike) -> Move:
        """`alike` has what was planned of others at this `now`: after a long silence many jobs have missed the same."""
        if cursor.is_apart or self._spans:
            return self._move(cursor, now)
        key = cursor.timing, cursor.next_fire, cursor.catchup
        known = alike.get(key)
        if known is not None:
            return Move(cursor.job_id, cursor.next_fire, cursor.version, known.fires, known.missed, known.next_fire)
        move = self._move(cursor, now)
        if move.missed:
            alike[key] = move
        return move

    def _move(self, cursor: Cursor, now: datetime) -> Move:
        try:
            if cursor.is_apart:
                return move_apart(cursor, now, self._horizon, self._spans.get(cursor.job_id, ()))
            due = self._due_at(cursor)
            if due is None:
                return Move(cursor.job_id, cursor.next_fire, cursor.version, (), (), None)
            spans = self._spans.get(cursor.job_id) if self._spans else None
            if spans:
                planned = plan(cursor.timing, due, now, self._horizon, cursor.catchup, pauses=spans)
            else:
                planned = plan(cursor.timing, due, now, self._horizon, cursor.catchup)
        except Exception as fault:  # whatever is wrong with one job must not hold up everybody else's
            return self._unplannable.put_aside(cursor, fault, now)
        self._note(cursor, planned.next_due)
        return Move(cursor.job_id, cursor.next_fire, cursor.version, planned.fires, planned.missed, planned.next_due)

    def _due_at(self, cursor: Cursor) -> datetime | None:
        """The due time at which a cursor stands, or the next one: where a job could not be planned, or by the rules of
        another time, it stands at none. What was put there by the same timing is not computed a second time."""
        planned = self._planned.get(cursor.job_id)
        if planned is not None and planned[0] is cursor.timing and planned[1] == cursor.next_fire:
            return cursor.next_fire
        return cursor.timing.next_after(cursor.next_fire - _TICK)

    def _note(self, cursor: Cursor, next_due: datetime | None) -> None:
        if next_due is None:
            self._planned.pop(cursor.job_id, None)
            return
        if len(self._planned) >= PLANNED_MAX:  # whichever: see Timetable
            for job_id in list(self._planned)[::2]:
                del self._planned[job_id]
        self._planned[cursor.job_id] = cursor.timing, next_due

    def _announce(self, ready: Sequence[datetime], now: datetime) -> None:
        """Of runs that were made, when they are ready."""
        if any(at <= now + SOON for at in ready):
            self._bus.publish(Topic.READY)
