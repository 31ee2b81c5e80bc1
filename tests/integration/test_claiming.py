"""How an executor takes runs: several claims in a row, and what changes while one is under way."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from crew import Executor, Scheduler, SetClock
from sample_jobs import at, due_job, insert, new_job, once, rows

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.run import Claim
from hourhand.ports.job_kind import Task
from hourhand.ports.stores import EPOCH, Claimed, Head
from hourhand.runtime.longest import Longest
from hourhand.runtime.looks import ThoroughLook, ThoroughLooks
from hourhand.store.live_runs import LiveRuns
from hourhand.wiring import Store


async def at_once(task: Task) -> Outcome:
    return Succeeded()


async def for_ever(task: Task) -> Outcome:
    await asyncio.Event().wait()
    return Succeeded()


def places_taken(executor: Executor) -> int:
    return executor.capacity.facts()["inline"]["used"]


async def test_a_claim_that_brought_all_it_asked_for_is_followed_by_the_next(store: Store) -> None:
    await insert(store, *(due_job(at(-1)) for _ in range(300)))
    executor = await Executor(store, for_ever, slots=250, clock=SetClock(at(0))).join()
    assert await executor.receiver.run_once() == 0, "there may be more"
    assert len(executor.attempts) == places_taken(executor) == 250
    assert executor.receiver.claims_begun == executor.receiver.claims_ended == 4
    executor.attempts.stop_all()


async def test_the_next_claim_is_asked_for_before_what_the_last_one_brought_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, *(due_job(at(-1)) for _ in range(300)))
    executor = await Executor(store, for_ever, slots=250, clock=SetClock(at(0))).join()
    happened: list[str] = []
    read = LiveRuns._claims

    async def claims(self: LiveRuns, *given: Any, **more: Any) -> list[Claim]:
        happened.append(f"read the one before {executor.receiver.claims_begun}")
        return await read(self, *given, **more)

    monkeypatch.setattr(LiveRuns, "_claims", claims)
    await executor.receiver.run_once()
    assert happened[:2] == ["read the one before 2", "read the one before 3"]
    executor.attempts.stop_all()


async def test_places_of_several_claims_in_a_row_all_come_back(store: Store) -> None:
    await insert(store, *(due_job(at(-1)) for _ in range(500)))
    executor = await Executor(store, at_once, slots=200, clock=SetClock(at(0))).join()
    await executor.drain()
    assert len(await rows(store, "runs")) == 500
    assert places_taken(executor) == 0
    assert executor.receiver.claims_begun == executor.receiver.claims_ended


@pytest.mark.parametrize(("count", "claimed"), [(70, 70), (69, 0)])
async def test_a_crowd_is_claimed_early_although_no_claim_has_told_of_it(
    store: Store, count: int, claimed: int
) -> None:
    """As many as one claim can bring are a crowd; fewer are claimed shortly before their time."""
    await insert(store, *(due_job(at(1)) for _ in range(count)))
    clock = SetClock(at(0.2))
    executor = await Executor(store, for_ever, slots=250, clock=clock).join()
    await executor.receiver.run_once()
    assert len(executor.attempts) == 0
    clock.time = at(0.65)
    await executor.receiver.run_once()
    assert len(executor.attempts) == claimed
    executor.attempts.stop_all()


async def test_what_stands_behind_a_head_is_looked_at_once_and_not_where_the_next_run_is_always_near(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, *(due_job(at(second)) for second in (1, 1.1, 1.2)))
    clock = SetClock(at(0))
    executor = await Executor(store, at_once, clock=clock).join()
    is_crowd, asked = store.live_runs.is_crowd, list[datetime]()

    async def noting(head: Head, until: datetime, count: int) -> bool:
        asked.append(head.ready_at)
        return await is_crowd(head, until, count)

    monkeypatch.setattr(store.live_runs, "is_crowd", noting)
    for moment in (0, 0.3, 0.5, 0.9, 1.0, 1.1, 1.2):
        clock.time = at(moment)
        await executor.turn()
    assert asked == [at(1)]


@pytest.mark.parametrize("gone", [{}, None])
async def test_what_is_claimed_while_its_queue_is_paused_is_started_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, gone: dict[int, Any] | None
) -> None:
    await insert(store, *(due_job(at(-1)) for _ in range(300)))
    executor = await Executor(store, for_ever, slots=250, clock=SetClock(at(0))).join()
    claim_runs = store.live_runs.claim_runs

    async def pausing(*arguments: Any) -> Claimed:
        claimed = await claim_runs(*arguments)
        executor.receiver.lanes = gone or {}
        return claimed

    monkeypatch.setattr(store.live_runs, "claim_runs", pausing)
    await executor.receiver.run_once()
    assert len(executor.attempts) == places_taken(executor) == 250
    async with asyncio.timeout(5):
        await executor.receiver.claims_answered()
    executor.attempts.stop_all()


async def test_a_following_claim_that_fails_leaves_no_places_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, *(due_job(at(-1)) for _ in range(300)))
    executor = await Executor(store, for_ever, slots=250, clock=SetClock(at(0))).join()
    claim_runs, asked = store.live_runs.claim_runs, 0

    async def failing(*arguments: Any) -> Claimed:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise DatabaseUnavailable("gone")
        return await claim_runs(*arguments)

    monkeypatch.setattr(store.live_runs, "claim_runs", failing)
    with pytest.raises(DatabaseUnavailable):
        await executor.receiver.run_once()
    assert len(executor.attempts) == places_taken(executor) == 70, "what the first one brought"
    assert executor.receiver.claims_begun == executor.receiver.claims_ended == 2
    executor.attempts.stop_all()


class Short(ThoroughLooks):
    """Never thorough."""

    def begin(self) -> None:
        return None


async def test_a_lane_that_is_new_is_looked_at_however_slow_looks_are(store: Store) -> None:
    await insert(store, due_job(at(-1)))
    executor = await Executor(store, at_once, clock=SetClock(at(0))).join()
    executor.receiver.looking.thorough = Short()
    await executor.turn()
    await insert(store, due_job(at(-1), queue="default", kind="number", needs="number", priority=9))
    await insert(store, due_job(at(0)))
    await executor.turn()
    assert len(await rows(store, "runs")) == 2, "the known priority is looked at, the new one has to wait"
    executor.receiver._settings = executor.receiver._settings.__class__(claim_max=70, queues=("*",))
    await insert(store, due_job(at(-60), queue="another", priority=1))
    await executor.turn()
    assert len(await rows(store, "runs")) == 3, "of the new lane all priorities are looked at"


class Long(ThoroughLooks):
    """Takes every look at everything for a long one."""

    def begin(self) -> ThoroughLook:
        return ThoroughLook(self, time.monotonic(), is_slow=True)


class LongLooks:
    """An executor whose looks at everything are taken beside the others from now on, and end when they may."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, clock: SetClock | None = None) -> None:
        self.store = store
        self.executor = Executor(store, at_once, clock=clock or SetClock(at(0)))
        self.may_end, self.ended = asyncio.Event(), asyncio.Event()
        self.fault: Exception | None = None
        self.passed_by = asyncio.Event()
        """One has seen all that it will see, and has not ended."""
        self._monkeypatch = monkeypatch
        self._peek_ready = store.live_runs.peek_ready

    async def begin(self) -> None:
        await self.executor.join()
        await self.executor.turn()
        self.executor.receiver.looking.thorough = Long()
        self.executor.receiver.looking.on_found = self.ended.set
        self._monkeypatch.setattr(self.store.live_runs, "peek_ready", self._wait)

    async def _wait(self, *args: Any) -> list[Head]:
        heads = await self._peek_ready(*args)
        self.passed_by.set()
        await self.may_end.wait()
        if self.fault is not None:
            raise self.fault
        return heads

    async def end(self) -> None:
        """The one under way comes to its end."""
        self.ended.clear()
        self.may_end.set()
        async with asyncio.timeout(5):
            await self.ended.wait()
        self.may_end.clear()

    async def turn(self) -> int:
        """How many runs have ended after one more turn."""
        await self.executor.turn()
        return len(await rows(self.store, "runs"))


@pytest.fixture
async def long_looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LongLooks]:
    await insert(store, due_job(at(-1)))
    stage = LongLooks(store, monkeypatch)
    await stage.begin()
    yield stage
    await stage.executor.receiver.looking.stop()


async def test_what_is_known_does_not_wait_for_a_long_look_at_everything(long_looks: LongLooks) -> None:
    store = long_looks.store
    for count in (2, 3):
        await insert(store, due_job(at(0)))
        assert await long_looks.turn() == count
    await insert(store, due_job(at(-2)), due_job(at(-1), priority=9))
    assert await long_looks.turn() == 3, "what nobody knows of waits for it"
    await long_looks.end()
    await long_looks.turn()
    await long_looks.end()
    assert await long_looks.turn() == 5
    await insert(store, due_job(at(0)))
    assert await long_looks.turn() == 6, "what was known before it is known after it"


async def test_a_long_look_that_fails_does_not_keep_others_from_being_taken(long_looks: LongLooks) -> None:
    long_looks.fault = DatabaseUnavailable("it takes too long")
    await insert(long_looks.store, due_job(at(0)))
    assert await long_looks.turn() == 2
    await long_looks.end()
    await insert(long_looks.store, due_job(at(0)))
    assert await long_looks.turn() == 3


async def test_what_nobody_expected_of_a_long_look_is_told_once_and_looking_goes_on(long_looks: LongLooks) -> None:
    long_looks.fault = RuntimeError("our mistake")
    assert await long_looks.turn() == 1
    await long_looks.end()
    with pytest.raises(RuntimeError, match="our mistake"):
        await long_looks.executor.receiver.looking.look()
    long_looks.fault = None
    await insert(long_looks.store, due_job(at(0)))
    assert await long_looks.turn() == 2


async def test_a_run_that_came_after_a_long_look_had_passed_by_is_not_forgotten_when_that_ends(
    long_looks: LongLooks,
) -> None:
    looking, clock = long_looks.executor.receiver.looking, long_looks.executor.clock
    assert isinstance(clock, SetClock)
    await looking.look()
    async with asyncio.timeout(5):
        await long_looks.passed_by.wait()
    await insert(long_looks.store, due_job(at(-0.5)))
    [seen] = await looking.look()  # and there is no room for it
    clock.time = at(5)
    await long_looks.end()
    assert await looking.look() == [seen]


async def test_a_lane_that_is_not_served_any_more_is_not_looked_at(
    long_looks: LongLooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, peek_known, asked = long_looks.executor.receiver, long_looks.store.live_runs.peek_known, list[int]()

    async def noting(heads: Sequence[Head], *more: Any) -> list[Head]:
        asked.extend(head.lane_id for head in heads)
        return await peek_known(heads, *more)

    monkeypatch.setattr(long_looks.store.live_runs, "peek_known", noting)
    await receiver.looking.look()
    assert len(set(asked)) == 1
    asked.clear()
    served, receiver.lanes = receiver.lanes, {}
    receiver.looking.learn_lanes(served)
    await long_looks.end()
    assert await receiver.looking.look() == []
    assert not asked
    receiver.lanes = served
    receiver.looking.learn_lanes([])
    await insert(long_looks.store, due_job(at(-9)))
    assert len(await receiver.looking.look()) == 1, "it is new again"


async def test_where_nothing_has_been_for_long_short_looks_do_not_look(
    long_looks: LongLooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = long_looks.executor.receiver.looking
    monkeypatch.setattr("hourhand.executor.looking.KNOWN_SECONDS", 0.0)
    await insert(long_looks.store, due_job(at(0)))
    assert await looking.look() == []
    monkeypatch.undo()


@pytest.mark.parametrize(("took", "claimed"), [(0.05, 0), (0.06, 1), (60.0, 1)])
async def test_where_a_claim_has_taken_long_the_next_runs_are_claimed_earlier(
    store: Store, monkeypatch: pytest.MonkeyPatch, took: float, claimed: int
) -> None:
    await insert(store, due_job(at(0)), due_job(at(0.09)), due_job(at(1)))
    executor = await Executor(store, for_ever, clock=SetClock(at(0))).join()
    moment, claim_runs = 1000.0, store.live_runs.claim_runs

    async def taking_long(*arguments: Any) -> Claimed:
        nonlocal moment
        moment += took
        return await claim_runs(*arguments)

    monkeypatch.setattr(store.live_runs, "claim_runs", taking_long)
    executor.receiver.longest = Longest(lambda: moment)
    await executor.receiver.run_once()
    assert len(executor.attempts) == 1
    await executor.receiver.run_once()
    assert len(executor.attempts) == 1 + claimed
    executor.attempts.stop_all()


async def test_what_could_not_be_planned_is_not_taken_for_planned(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(store, SetClock(at(0)))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    scheduler.planner.thorough = Short()
    await insert(store, new_job(once(at(0.2)), next_due=at(0.2)))
    fire_once = store.timetable.fire_once

    async def failing(*_: Any) -> Sequence[datetime]:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(store.timetable, "fire_once", failing)
    with pytest.raises(DatabaseUnavailable):
        await scheduler.planner.run_once()
    monkeypatch.setattr(store.timetable, "fire_once", fire_once)
    await scheduler.planner.run_once()
    assert len(await rows(store, "live_runs")) == 1


async def test_a_planner_looks_at_everything_when_its_shards_change(store: Store) -> None:
    scheduler = Scheduler(store, SetClock(at(100)))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    scheduler.planner.thorough = Short()
    await scheduler.planner.run_once()
    await insert(store, new_job(once(at(50)), next_due=at(50)))
    await scheduler.planner.run_once()
    assert await rows(store, "live_runs") == [], "nobody stores a cursor so far back"
    scheduler.planner.own(1024, scheduler.planner._epoch + 1)
    assert scheduler.planner._planned_until == EPOCH
    await scheduler.planner.run_once()
    assert len(await rows(store, "live_runs")) == 1
