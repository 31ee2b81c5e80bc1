"""An executor with few places and much to do: shared by weight between namespaces, and nobody waits for ever."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from crew import Executor, SetClock
from sample_jobs import NAMESPACE, at, due_job, insert, rows

from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.policy import Policy
from hourhand.ports.job_kind import Task
from hourhand.ports.operator_stores import LimitChange
from hourhand.ports.stores import NewJob
from hourhand.wiring import Store

GATED = Policy(at_most_once=True)


class Counted:
    """What was started, by the names of the jobs, in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, task: Task) -> Outcome:
        self.names.append(task.job_name)
        await asyncio.sleep(0)
        return Succeeded()


async def for_ever(task: Task) -> Outcome:
    await asyncio.Event().wait()
    return Succeeded()


async def crowd(store: Store, count: int, name: str, namespace_id: int = NAMESPACE, **fields: Any) -> None:
    jobs: list[NewJob] = [
        msgspec.structs.replace(due_job(at(-100), name=name, **fields), namespace_id=namespace_id) for _ in range(count)
    ]
    await insert(store, *jobs)


async def namespace(store: Store, name: str) -> int:
    await store.names.create_namespace(name)
    found = await store.names.find_namespace(name)
    assert found is not None
    return found


async def started(store: Store, turns: int, slots: int) -> Counter[str]:
    """What an executor with so many places has started after so many turns."""
    counted = Counted()
    executor = await Executor(store, counted, slots=slots, clock=SetClock(at(0))).join()
    for _ in range(turns):
        await executor.turn()
    return Counter(counted.names)


async def test_namespaces_get_their_weight_one_with_a_limit_and_one_without(store: Store) -> None:
    other = await namespace(store, "other")
    await store.queues.change_namespace(other, 3, LimitChange(capacity=1000))
    await crowd(store, 150, "plain", priority=9)
    await crowd(store, 150, "limited", other, priority=0)
    counts = await started(store, 30, slots=4)
    assert counts.total() >= 80
    assert counts["limited"] >= 2.5 * counts["plain"] > 0


async def test_with_one_place_namespaces_take_turns(store: Store) -> None:
    other = await namespace(store, "other")
    await crowd(store, 30, "one")
    await crowd(store, 30, "other", other)
    counts = await started(store, 20, slots=1)
    assert abs(counts["one"] - counts["other"]) <= 1


async def test_a_crowd_of_high_priority_does_not_keep_a_low_one_with_gates_from_starting_for_ever(store: Store) -> None:
    await crowd(store, 100, "high", priority=9)
    await crowd(store, 20, "low", priority=1, policy=GATED)
    counts = await started(store, 10, slots=4)
    assert counts["low"] >= 5
    assert counts["high"] >= 15


async def test_the_more_urgent_go_first_whether_they_have_gates_or_not(store: Store) -> None:
    for name, policy, priority in (("a", Policy(), 9), ("b", GATED, 7), ("c", Policy(), 5), ("d", GATED, 3)):
        jobs = [due_job(at(-1), name=name, policy=policy, priority=priority) for _ in range(5)]
        await insert(store, *jobs)
    counted = Counted()
    executor = await Executor(store, counted, slots=3, clock=SetClock(at(0))).join()
    async with asyncio.timeout(30):
        while await rows(store, "live_runs"):
            await executor.turn()
    assert "".join(counted.names) == "aaaaabbbbbcccccddddd"


async def test_places_that_one_namespace_cannot_use_go_to_the_others_at_once(store: Store) -> None:
    other = await namespace(store, "other")
    await crowd(store, 100, "many")
    await crowd(store, 1, "few", other)
    executor = await Executor(store, for_ever, slots=50, clock=SetClock(at(0))).join()
    async with asyncio.timeout(10):
        while executor.capacity.facts()["inline"]["used"] < 50:
            assert await executor.receiver.run_once() == 0, "it does not sleep while there is room"


async def test_runs_whose_lease_is_in_doubt_are_left_to_others(store: Store) -> None:
    await crowd(store, 1, "plain")
    await crowd(store, 1, "gated", policy=GATED)
    counted = Counted()
    executor = await Executor(store, counted, clock=SetClock(at(0))).join()
    executor.receiver.claiming_carefully = False
    await executor.turn()
    assert counted.names == ["plain"]
    executor.receiver.claiming_carefully = True
    await executor.turn()
    assert counted.names == ["plain", "gated"]


async def test_a_run_with_gates_is_waited_for_until_its_very_instant(store: Store) -> None:
    job: NewJob = due_job(at(0.2), policy=GATED)
    run_ids: list[UUID] = await insert(store, job)
    assert len(run_ids) == 1
    counted = Counted()
    clock = SetClock(at(0.16))
    executor = await Executor(store, counted, clock=clock).join()
    assert await executor.receiver.run_once() == 0.04
    clock.time += timedelta(seconds=0.04)
    await executor.turn()
    assert counted.names == ["job"]
