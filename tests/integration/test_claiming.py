"""How an executor takes runs: several claims in a row, and what changes while one is under way."""

import asyncio
import time
from collections.abc import Sequence
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
    await insert(store, due_job(at(-1), queue="another"))
    await executor.turn()
    await executor.turn()
    assert len(await rows(store, "runs")) == 4


class Long(ThoroughLooks):
    """Takes every look at everything for a long one."""

    def begin(self) -> ThoroughLook:
        return ThoroughLook(self, time.monotonic(), is_slow=True)


async def test_what_is_known_does_not_wait_for_a_long_look_at_everything(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, due_job(at(-1)))
    executor = await Executor(store, at_once, clock=SetClock(at(0))).join()
    executor.receiver.looking.thorough = Long()
    await executor.turn()
    may_end, found, peek_ready = asyncio.Event(), asyncio.Event(), store.live_runs.peek_ready

    async def long(*args: Any) -> list[Head]:
        await may_end.wait()
        return await peek_ready(*args)

    monkeypatch.setattr(store.live_runs, "peek_ready", long)
    executor.receiver.looking.on_found = found.set
    for _ in range(2):
        await insert(store, due_job(at(0)))
        await executor.turn()
    assert len(await rows(store, "runs")) == 3
    await insert(store, due_job(at(-2)))
    await insert(store, due_job(at(-1), priority=9))
    await executor.turn()
    assert len(await rows(store, "runs")) == 3, "what nobody knows of waits for it"
    may_end.set()
    await found.wait()
    await executor.turn()
    assert len(await rows(store, "runs")) == 5
    await insert(store, due_job(at(0)))
    await executor.turn()
    assert len(await rows(store, "runs")) == 6, "what was known before it is known after it"
    await executor.receiver.looking.stop()


async def test_a_long_look_that_fails_is_a_fault_of_the_next_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, due_job(at(-1)))
    executor = await Executor(store, at_once, clock=SetClock(at(0))).join()
    executor.receiver.looking.thorough = Long()
    await executor.turn()
    failed, peek_ready = asyncio.Event(), store.live_runs.peek_ready

    async def failing(*_: Any) -> list[Head]:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(store.live_runs, "peek_ready", failing)
    executor.receiver.looking.on_found = failed.set
    await executor.receiver.run_once()
    await failed.wait()
    with pytest.raises(DatabaseUnavailable):
        await executor.receiver.run_once()
    monkeypatch.setattr(store.live_runs, "peek_ready", peek_ready)
    await insert(store, due_job(at(0)))
    await executor.turn()
    assert len(await rows(store, "runs")) == 2
    await executor.receiver.looking.stop()


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
