"""Runs that declare what they take: never more at once than fits, whatever becomes of them, and none is starved."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from crew import Executor, SetClock
from sample_jobs import at, due_job, insert, rows

from hourhand.model.outcome import Cancelled, Failed, Interrupted, Outcome, Succeeded
from hourhand.model.policy import Policy
from hourhand.model.resources import Resources
from hourhand.model.states import Reason, RunState
from hourhand.ports.job_kind import Task
from hourhand.wiring import Store

GB = 10**9


def takes(memory: float = 0, cpu: float = 0, slots: int = 1, **custom: int) -> Policy:
    return Policy(resources=Resources(cpu or None, int(memory * GB) or None, None, slots, custom))


class Worker:
    """An executor whose attempts end when the test says so, and that adds up what they hold."""

    def __init__(self, store: Store, slots: int = 100, **things: float) -> None:
        self.things = things
        self.running: dict[UUID, asyncio.Future[Outcome]] = {}
        self.order: list[UUID] = []
        self.held: dict[str, float] = {}
        self.most: dict[str, float] = {}
        self.executor = Executor(store, self._run, slots, SetClock(at(0)), things=things)

    async def _run(self, task: Task) -> Outcome:
        asked = task.resources or Resources()
        taken = {"cpu": asked.cpu or 0, "memory": asked.memory or 0, **asked.custom}
        for name, amount in taken.items():
            self.held[name] = self.held.get(name, 0) + amount
            self.most[name] = max(self.most.get(name, 0), self.held[name])
        self.order.append(task.job_id)
        ended = self.running[task.job_id] = asyncio.get_running_loop().create_future()
        try:
            return await ended
        finally:
            del self.running[task.job_id]
            for name, amount in taken.items():
                self.held[name] -= amount

    async def join(self) -> "Worker":
        await self.executor.join()
        return self

    async def turn(self) -> None:
        await self.executor.turn()
        await asyncio.sleep(0)

    async def end(self, job_id: UUID, outcome: Outcome | None = None) -> None:
        self.running[job_id].set_result(outcome or Succeeded())
        await self._settled()

    async def _settled(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        await self.executor.recorder.run_once()

    def is_empty(self) -> bool:
        told = [*self.executor.capacity.things().values(), *self.executor.capacity.facts().values()]
        return all(each["used"] == 0 for each in told)


async def test_no_more_runs_at_once_than_there_is_memory_for(store: Store) -> None:
    worker = await Worker(store, memory=4 * GB).join()
    ids = await insert(store, *(due_job(at(-9 + place), policy=takes(memory=1.5)) for place in range(5)))
    await worker.turn()
    await worker.turn()
    assert worker.order == ids[:2]
    assert worker.executor.capacity.things()["memory"]["used"] == 3 * GB
    assert [row["state"] for row in await rows(store, "live_runs")].count(RunState.QUEUED) == 3
    for place in range(5):
        await worker.end(ids[place])
        await worker.turn()
    assert worker.order == ids
    assert worker.most["memory"] == 3 * GB
    assert await rows(store, "live_runs") == []
    assert worker.is_empty()


async def test_plain_runs_go_past_those_that_wait_for_room(store: Store) -> None:
    worker = await Worker(store, memory=2 * GB).join()
    [first, second] = await insert(store, *(due_job(at(-9), policy=takes(memory=2)) for _ in range(2)))
    plain = await insert(store, *(due_job(at(-1)) for _ in range(3)))
    await worker.turn()
    await worker.turn()
    assert set(worker.order) == {worker.order[0], *plain}
    assert worker.order[0] in (first, second)


async def test_two_slots_are_two_places(store: Store) -> None:
    worker = await Worker(store, slots=5).join()
    ids = await insert(store, *(due_job(at(-9 + place), policy=takes(slots=2)) for place in range(3)))
    await worker.turn()
    assert worker.order == ids[:2]
    assert worker.executor.capacity.facts()["inline"] == {"slots": 5, "used": 4}
    await worker.end(ids[0])
    assert worker.executor.capacity.facts()["inline"]["used"] == 2


async def test_a_run_that_is_too_large_for_one_goes_to_another(store: Store) -> None:
    small, large = await Worker(store, memory=2 * GB).join(), await Worker(store, memory=64 * GB).join()
    [job_id] = await insert(store, due_job(at(-1), policy=takes(memory=3)))
    await small.turn()
    assert small.order == []
    await large.turn()
    assert large.order == [job_id]


async def test_counted_things_are_only_where_they_are(store: Store) -> None:
    plain, gpu = await Worker(store).join(), await Worker(store, gpu=2).join()
    await insert(store, *(due_job(at(-1), policy=takes(gpu=1)) for _ in range(5)))
    await plain.turn()
    await gpu.turn()
    await gpu.turn()
    assert (len(plain.order), len(gpu.order)) == (0, 2)


Ending = Callable[[Worker, UUID], Any]


async def succeeds(worker: Worker, job_id: UUID) -> None:
    await worker.end(job_id)


async def fails(worker: Worker, job_id: UUID) -> None:
    await worker.end(job_id, Failed(Reason.EXCEPTION, "wrong"))


async def breaks(worker: Worker, job_id: UUID) -> None:
    worker.running[job_id].set_exception(RuntimeError("a kind must not raise"))
    await worker._settled()


async def _stop(worker: Worker, job_id: UUID, outcome: Outcome) -> None:
    [row] = [row for row in await rows(worker.executor.store, "live_runs") if row["job_id"] == job_id]
    worker.executor.attempts.stop(row["run_id"], row["fence"], outcome)
    await worker._settled()


async def is_cancelled(worker: Worker, job_id: UUID) -> None:
    await _stop(worker, job_id, Cancelled())


async def is_interrupted(worker: Worker, job_id: UUID) -> None:
    await _stop(worker, job_id, Interrupted())


async def loses_its_lease(worker: Worker, job_id: UUID) -> None:
    worker.executor.attempts.stop_all(lease_unsure=True)
    await worker._settled()


@pytest.mark.parametrize("ending", [succeeds, fails, breaks, is_cancelled, is_interrupted, loses_its_lease])
async def test_however_an_attempt_ends_what_it_held_comes_back(store: Store, ending: Ending) -> None:
    worker = await Worker(store, memory=2 * GB, cpu=2.0, gpu=1).join()
    [job_id] = await insert(store, due_job(at(-1), policy=takes(memory=2, cpu=0.3, slots=3, gpu=1)))
    await worker.turn()
    assert not worker.is_empty()
    await ending(worker, job_id)
    assert worker.is_empty()
    assert len(worker.executor.attempts) == 0


async def test_a_claim_that_fails_leaves_nothing_taken(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await Worker(store, memory=2 * GB).join()
    await insert(store, due_job(at(-1), policy=takes(memory=1, slots=2)))
    await worker.executor.receiver.learn_lanes()

    async def failing(*_: Any) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(store.live_runs, "claim_runs", failing)
    with pytest.raises(ConnectionError):
        await worker.executor.receiver.run_once()
    assert worker.is_empty()


async def test_what_was_claimed_under_a_number_that_is_over_gives_everything_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await Worker(store, memory=2 * GB).join()
    await insert(store, due_job(at(-1), policy=takes(memory=1, slots=2)))
    await worker.executor.receiver.learn_lanes()
    claim_runs = store.live_runs.claim_runs

    async def buried(*arguments: Any) -> Any:
        claimed = await claim_runs(*arguments)
        worker.executor.membership.node_id += 1000
        return claimed

    monkeypatch.setattr(store.live_runs, "claim_runs", buried)
    await worker.executor.receiver.run_once()
    assert worker.is_empty()
    assert worker.order == []


async def test_a_limit_and_resources_are_both_obeyed(store: Store) -> None:
    worker = await Worker(store, memory=4 * GB).join()
    keyed = Policy(resources=Resources(memory=GB), concurrency_key="one", concurrency_limit=2)
    limited = await insert(store, *(due_job(at(-9 + place), policy=keyed) for place in range(4)))
    free = await insert(store, *(due_job(at(-3 + place), policy=takes(memory=1.5)) for place in range(2)))
    for _ in range(3):
        await worker.turn()
    assert worker.order == [*limited[:2], free[0]], "two by their limit, and one by the memory that is left"
    for job_id in (limited[0], free[0], limited[1], free[1]):
        await worker.end(job_id)
        await worker.turn()
    assert worker.order[3:] == [limited[2], free[1], limited[3]]
    assert worker.most["memory"] <= 4 * GB


async def test_small_runs_do_not_starve_a_large_one(store: Store) -> None:
    worker = await Worker(store, memory=4 * GB).join()
    clock = worker.executor.clock
    assert isinstance(clock, SetClock)
    small = await insert(store, *(due_job(at(-60 + place), policy=takes(memory=1)) for place in range(4)))
    await worker.turn()
    assert worker.order == small
    [large] = await insert(store, due_job(at(-20), policy=takes(memory=4), priority=2))
    backlog = await insert(store, *(due_job(at(-10), policy=takes(memory=1)) for _ in range(20)))
    await worker.end(small[0])
    await worker.turn()
    assert len(worker.order) == 5, "it has not waited long enough yet: a small one takes the room"
    clock.time = at(15)
    for job_id in list(worker.running):
        await worker.end(job_id)
        await worker.turn()
        assert not set(worker.order[5:]) & set(backlog), "the room that comes free is kept"
    assert worker.order[5:] == [large]
    await worker.end(large)
    await worker.turn()
    assert len(worker.order) == 10, "then the others go on"
    assert worker.most["memory"] == 4 * GB


async def test_a_run_that_weighs_in_places_is_not_starved_by_plain_ones(store: Store) -> None:
    worker = await Worker(store, slots=4).join()
    clock = worker.executor.clock
    assert isinstance(clock, SetClock)
    await insert(store, *(due_job(at(-60)) for _ in range(4)))
    await worker.turn()
    [large] = await insert(store, due_job(at(-40), policy=takes(slots=3), priority=1))
    await insert(store, *(due_job(at(-10), priority=9) for _ in range(20)))
    for job_id in list(worker.running):
        await worker.end(job_id)
        await worker.turn()
    assert large in worker.order[:8], "places were kept for it"


async def test_what_is_kept_for_long_in_vain_is_given_to_the_others(store: Store) -> None:
    worker = await Worker(store, memory=4 * GB).join()
    clock = worker.executor.clock
    assert isinstance(clock, SetClock)
    [long] = await insert(store, due_job(at(-90), policy=takes(memory=1)))
    await worker.turn()
    [large] = await insert(store, due_job(at(-60), policy=takes(memory=4)))
    others = await insert(store, *(due_job(at(-1), policy=takes(memory=1)) for _ in range(3)))
    await worker.turn()
    assert worker.order == [long]
    clock.time = at(0) + timedelta(seconds=601)
    await worker.turn()
    assert sorted(worker.order[1:]) == sorted(others)
    assert large not in worker.order


async def test_never_more_than_fits_under_a_random_load(store: Store) -> None:
    for seed in range(4):
        await _random_load(store, random.Random(seed))


async def _random_load(store: Store, chance: random.Random) -> None:
    has = {"memory": 8.0 * GB, "cpu": 4.0, "gpu": 2.0}
    workers = [await Worker(store, slots=chance.randint(4, 12), **has).join() for _ in range(2)]
    jobs = [
        due_job(
            at(-chance.random() * 50),
            priority=chance.randint(0, 9),
            policy=takes(
                memory=chance.choice([0, 0.5, 2, 5]),
                cpu=chance.choice([0, 0.1, 0.7, 2]),
                slots=chance.choice([1, 1, 2, 4]),
                **({"gpu": chance.randint(1, 2)} if chance.random() < 0.2 else {}),
            ),
        )
        for _ in range(40)
    ]
    await insert(store, *jobs)
    for _ in range(400):
        if not await rows(store, "live_runs"):
            break
        worker = chance.choice(workers)
        await worker.turn()
        for name, most in worker.most.items():
            assert most <= has[name] + 1e-6
        for job_id in list(worker.running):
            if chance.random() < 0.5:
                failed = Failed(Reason.EXCEPTION, "x", retryable=False)
                worker.running[job_id].set_result(chance.choice([Succeeded(), Succeeded(), failed]))
        await worker._settled()
    assert await rows(store, "live_runs") == []
    assert all(worker.is_empty() for worker in workers)
    assert sum(len(worker.order) for worker in workers) == len(jobs)


async def test_lanes_without_demands_are_claimed_as_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look and one claim for all of them, and nothing is done about what weighs."""
    worker = await Worker(store, memory=4 * GB).join()
    await insert(store, *(due_job(at(-1), priority=place % 10, queue="default") for place in range(30)))
    await worker.executor.receiver.learn_lanes()
    await store.names.learn_namespaces()
    asked: list[str] = []
    fetch = store.live_runs._database.fetch

    async def noted(query: Any, **values: Any) -> Any:
        asked.append(query.name)
        return await fetch(query, **values)

    monkeypatch.setattr(store.live_runs._database, "fetch", noted)
    monkeypatch.setattr(worker.executor.capacity, "fitting", None)
    monkeypatch.setattr(worker.executor.capacity, "take_for", None)
    await worker.executor.receiver.run_once()
    assert asked == ["peek_ready", "claim_runs"]
    assert len(worker.executor.attempts) == 30
    assert worker.executor.capacity._held == {}
    worker.executor.attempts.stop_all()
