"""Nodes that have not heard yet that the database's clock was set."""

import asyncio
import time
from datetime import datetime, timedelta

import pytest
from crew import Executor, Scheduler, SetClock
from sample_jobs import at, claim, due_job, every, insert, new_job, own_all_shards, rows

from hourhand.executor import attempts
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.ports.job_kind import Task
from hourhand.runtime.clock import DatabaseClock
from hourhand.wiring import Store

MINUTES = timedelta(minutes=2)


class Behind(SetClock):
    """A clock that is set by hand until somebody notices what time it is."""

    def notice(self, database_now: datetime, sent: float, received: float) -> None:
        DatabaseClock.observe(self, database_now, sent, received)
        self.time = database_now


async def nothing(task: Task) -> Outcome:
    return Succeeded()


async def database_now(store: Store) -> datetime:
    return (await store.nodes.database_times())[0]


async def test_an_executor_starts_nothing_early_when_the_databases_clock_was_set_back(store: Store) -> None:
    executor = await Executor(store, nothing, clock=Behind()).join()
    now = await database_now(store)
    executor.clock.time = now + MINUTES  # type: ignore[attr-defined] # as the database's clock showed before
    await insert(store, due_job(now + MINUTES / 2))
    await executor.turn()
    [run] = await rows(store, "live_runs")
    assert run["executor_id"] is None
    assert executor.kind.most_active == 0
    assert executor.clock.now() < now + MINUTES / 4, "the look itself has told it"


async def test_a_planner_holds_nothing_for_late_when_the_databases_clock_was_set_back(store: Store) -> None:
    now = await database_now(store)
    clock = Behind(now + MINUTES)
    scheduler = Scheduler(store, clock)
    scheduler.node_id, _ = await own_all_shards(store)
    await scheduler.lookout.run_once()
    await insert(store, new_job(every(1, now), next_due=now + timedelta(seconds=1)))
    await scheduler.planner.run_once()
    assert await rows(store, "ledger_ranges") == []
    assert [run["scheduled_for"] for run in await rows(store, "live_runs")][:1] == [now + timedelta(seconds=1)]


async def test_a_claimed_run_whose_time_was_set_away_starts_when_its_time_is_there_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "EARLY_SECONDS_MAX", 0.01)
    clock = SetClock(at(0))
    executor = await Executor(store, nothing, clock=clock).join()
    await insert(store, due_job(at(0.03)))
    [one] = await claim(store, executor.membership.node_id, at(1))
    executor.capacity.take(executor.kind.slot_class_of("number"), 1)
    clock.time = at(0) - MINUTES
    executor.attempts.start(one)
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        await asyncio.sleep(0)
    assert executor.kind.most_active == 0
    clock.time = at(1)
    async with asyncio.timeout(10):
        await executor.attempts.all_ended()
    assert executor.kind.most_active == 1


class Rough(SetClock):
    """A clock that may be off by much, as after the only answer so far was a slow one."""

    @property
    def error_seconds(self) -> float:
        return 0.3


async def test_while_the_time_is_hardly_known_nothing_starts_that_may_not_be_due(store: Store) -> None:
    started, clock = asyncio.Event(), Rough(at(0.29))

    async def note(task: Task) -> Outcome:
        started.set()
        return Succeeded()

    await insert(store, due_job(at(0)))
    executor = await Executor(store, note, clock=clock).join()
    await executor.receiver.run_once()
    assert len(executor.attempts) == 1
    for _ in range(3):
        await asyncio.sleep(0)
    assert not started.is_set()
    clock.time = at(0.3)
    async with asyncio.timeout(5):
        await started.wait()
