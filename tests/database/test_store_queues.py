"""Queues and namespaces: paused, limited, weighted; what runs already counts, and what waits goes on."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sample_jobs import NAMESPACE, START, claim, due_job, insert, rows, succeeded

from hourhand.model.errors import Overloaded
from hourhand.model.ids import scheduled_run_id
from hourhand.model.policy import Rate
from hourhand.ports.operator_stores import LimitChange
from hourhand.ports.stores import NewJob, Wish
from hourhand.store import queues as module
from hourhand.wiring import Store

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
"""Before now by any clock, also the database's."""


async def due_in(store: Store, queue: str, count: int = 1, **fields: Any) -> list[UUID]:
    jobs = [due_job(LONG_AGO + timedelta(seconds=place), queue=queue, **fields) for place in range(count)]
    await insert(store, *jobs)
    return [scheduled_run_id(LONG_AGO + timedelta(seconds=place), job.job_id) for place, job in enumerate(jobs)]


async def claimed(store: Store, executor_id: int = 1, limit: int = 100) -> list[UUID]:
    return [one.run_id for one in await claim(store, executor_id, LONG_AGO + timedelta(days=1), limit)]


async def wishes(store: Store, lanes: list[int]) -> list[Wish]:
    return [Wish(head, 1, 10) for head in await store.live_runs.peek_ready(lanes)]


async def states(store: Store) -> list[int]:
    return [row["state"] for row in await rows(store, "live_runs", "ready_at, run_id")]


async def limit(store: Store, queue: str, **change: Any) -> None:
    await store.queues.limit_queue(NAMESPACE, queue, LimitChange(**change))


# --- pause ------------------------------------------------------------------------------------------------


async def test_nothing_of_a_paused_queue_is_claimed_until_it_is_resumed(store: Store) -> None:
    [held] = await due_in(store, "reports")
    [free] = await due_in(store, "default")

    await store.queues.pause_queue(NAMESPACE, "reports", "ada", "holiday")
    assert await claimed(store) == [free]

    await store.queues.resume_queue(NAMESPACE, "reports")
    assert await claimed(store) == [held]


async def test_a_lane_that_is_made_while_its_queue_is_paused_is_held_too(store: Store) -> None:
    await store.queues.pause_queue(NAMESPACE, "reports", "ada", None)
    await due_in(store, "reports", needs="first")
    await due_in(store, "reports", needs="second")
    assert await claimed(store) == []

    await store.queues.resume_queue(NAMESPACE, "reports")
    assert len(await claimed(store)) == 2


async def test_pausing_again_keeps_the_time_and_takes_the_newer_reason(store: Store) -> None:
    await store.queues.pause_queue(NAMESPACE, "reports", "ada", "holiday")
    first = await store.queues.get_queue(NAMESPACE, "reports")
    await store.queues.pause_queue(NAMESPACE, "reports", "bob", "the disk")
    second = await store.queues.get_queue(NAMESPACE, "reports")

    assert first is not None
    assert second is not None
    assert (second.paused_at, second.paused_by, second.pause_reason) == (first.paused_at, "bob", "the disk")


async def test_a_queue_of_the_same_name_in_another_namespace_goes_on(store: Store) -> None:
    await store.names.create_namespace("team-a")
    other = await store.names.find_namespace("team-a")
    assert other is not None
    await store.queues.pause_queue(other, "default", "ada", None)
    await due_in(store, "default")
    assert len(await claimed(store)) == 1


# --- limits -----------------------------------------------------------------------------------------------


async def test_what_is_running_already_counts_against_a_new_limit(store: Store) -> None:
    await due_in(store, "reports", 8)
    assert len(await claimed(store, limit=2)) == 2

    await limit(store, "reports", capacity=3)

    assert len(await claimed(store)) == 1
    assert len(await rows(store, "gate_slots")) == 3
    assert (await states(store)).count(1) == 5, "the others wait outside the ready index"
    assert await claimed(store) == []


async def test_a_run_from_before_the_limit_gives_its_place_to_one_that_waits(store: Store) -> None:
    await due_in(store, "reports", 3)
    [first] = await claim(store, 1, LONG_AGO + timedelta(days=1), 1)
    await limit(store, "reports", capacity=1)
    assert await claimed(store) == []

    await store.live_runs.finish_runs([succeeded(first)])

    assert len(await claimed(store)) == 1
    assert len(await rows(store, "gate_slots")) == 1


async def test_a_limit_below_what_is_running_lets_nobody_in_until_it_fits(store: Store) -> None:
    await due_in(store, "reports", 4)
    running = await claim(store, 1, LONG_AGO + timedelta(days=1), 3)
    await limit(store, "reports", capacity=2)
    for run in running[:1]:
        await store.live_runs.finish_runs([succeeded(run)])
    assert await claimed(store) == []
    await store.live_runs.finish_runs([succeeded(running[1])])
    assert len(await claimed(store)) == 1


async def test_a_limit_that_is_taken_away_leaves_nothing_behind(store: Store) -> None:
    await due_in(store, "reports", 4)
    await limit(store, "reports", capacity=1)
    assert len(await claimed(store)) == 1
    assert (await states(store)).count(1) == 3

    await limit(store, "reports", capacity=None)

    assert await rows(store, "gates") == []
    assert await rows(store, "gate_slots") == []
    assert [row["gate_ids"] for row in await rows(store, "lanes")] == [None]
    assert len(await claimed(store)) == 3


async def test_a_limit_that_never_was_can_be_taken_away(store: Store) -> None:
    await limit(store, "reports", capacity=None, rate=None)
    assert await rows(store, "gates") == []


async def test_only_what_is_said_changes(store: Store) -> None:
    await limit(store, "reports", capacity=3, rate=Rate(5, 1.0))
    await limit(store, "reports", capacity=None)
    found = await store.queues.get_queue(NAMESPACE, "reports")
    assert found is not None
    assert (found.capacity, found.rate) == (None, Rate(5, 1.0))

    await limit(store, "reports", capacity=7)
    await limit(store, "reports", rate=None)
    found = await store.queues.get_queue(NAMESPACE, "reports")
    assert found is not None
    assert (found.capacity, found.rate) == (7, None)


async def test_a_lane_that_is_made_later_is_limited_too(store: Store) -> None:
    await limit(store, "reports", capacity=1)
    await due_in(store, "reports", needs="first")
    await due_in(store, "reports", needs="second")
    assert len(await claimed(store)) == 1


async def test_other_queues_pay_nothing(store: Store) -> None:
    await due_in(store, "reports")
    await due_in(store, "default")
    await limit(store, "reports", capacity=1)
    lanes = await store.names.lanes()
    assert {lane.queue: lane.careful for lane in lanes.values()} == {"reports": True, "default": False}


async def test_a_namespace_is_limited_across_its_queues_and_beside_their_own_limits(store: Store) -> None:
    for queue in ("reports", "default"):
        await due_in(store, queue, 3)
    await limit(store, "reports", capacity=1)
    await store.queues.change_namespace(NAMESPACE, 7, LimitChange(capacity=2))

    assert len(await claimed(store)) == 2
    gates = {row["gate_id"]: row["kind"] for row in await rows(store, "gates")}
    by_queue = {row["queue"]: [gates[gate_id] for gate_id in row["gate_ids"]] for row in await rows(store, "lanes")}
    assert by_queue == {"reports": ["queue", "namespace"], "default": ["namespace"]}
    found = await store.queues.get_namespace(NAMESPACE)
    assert (found.name, found.weight, found.capacity, found.running) == ("default", 7, 2, 2)

    await store.queues.change_namespace(NAMESPACE, None, LimitChange(capacity=None))
    assert (await store.queues.get_namespace(NAMESPACE)).weight == 7
    assert {row["queue"]: len(row["gate_ids"] or []) for row in await rows(store, "lanes")} == {
        "reports": 1,
        "default": 0,
    }


# --- rates ------------------------------------------------------------------------------------------------


async def test_what_a_rate_has_put_off_goes_on_when_the_rate_is_taken_away(store: Store) -> None:
    await due_in(store, "reports", 4)
    await limit(store, "reports", rate=Rate(1, 3600.0))
    now = datetime.now(UTC)
    lanes = [*await store.names.lanes()]
    taken = await store.live_runs.claim_carefully(1, await wishes(store, lanes), now)
    assert len(taken.claims) == 1
    later = [row for row in await rows(store, "live_runs") if row["state"] == 0]
    assert all(row["ready_at"] > now and row["waits_on"] for row in later)

    await limit(store, "reports", rate=None)

    freed = [row for row in await rows(store, "live_runs") if row["state"] == 0]
    assert len(freed) == 3
    assert all(row["ready_at"] < now + timedelta(minutes=1) and row["waits_on"] is None for row in freed)


async def test_a_quicker_rate_counts_for_those_that_were_put_off_by_the_slower_one(store: Store) -> None:
    await due_in(store, "reports", 3)
    await limit(store, "reports", rate=Rate(1, 3600.0))
    lanes = [*await store.names.lanes()]
    now = datetime.now(UTC)
    await store.live_runs.claim_carefully(1, await wishes(store, lanes), now)
    [before] = await rows(store, "gates")

    await limit(store, "reports", rate=Rate(3, 3600.0))
    [after] = await rows(store, "gates")
    assert after["rate_starts"] == before["rate_starts"], "the same stretch of time goes on counting"
    more = await store.live_runs.claim_carefully(1, await wishes(store, lanes), datetime.now(UTC))
    assert len(more.claims) == 2

    await limit(store, "reports", rate=Rate(3, 60.0))
    [anew] = await rows(store, "gates")
    assert anew["rate_starts"] is None, "another stretch begins anew"


# --- side by side -----------------------------------------------------------------------------------------


async def test_a_limit_waits_for_a_writer_without_holding_up_the_others(store: Store) -> None:
    await due_in(store, "reports", 2)
    async with store.database.transaction() as db:
        await db.execute(f"UPDATE {store.database.schema}.live_runs SET losses = 0")
        waiting = asyncio.create_task(limit(store, "reports", capacity=1))
        for _ in range(5):  # each waits behind the lock that is asked for, but never for long
            await asyncio.wait_for(insert(store, due_job(queue="default")), 5)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 10)
    assert len(await rows(store, "gates")) == 1


async def test_a_limit_that_never_gets_its_turn_is_refused_and_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIES_MAX", 2)
    monkeypatch.setattr(module, "LOCK_MILLISECONDS_MAX", 20)
    await due_in(store, "reports")
    async with store.database.transaction() as db:
        await db.execute(f"UPDATE {store.database.schema}.live_runs SET losses = 0")
        with pytest.raises(Overloaded):
            await limit(store, "reports", capacity=1)
    assert await rows(store, "gates") == []


async def test_claims_under_way_never_exceed_a_limit_that_is_set_meanwhile(store: Store) -> None:
    await due_in(store, "reports", 60)
    counts = []

    async def work(executor_id: int) -> None:
        for _ in range(10):
            await claimed(store, executor_id, limit=1)

    async def set_limit() -> None:
        await limit(store, "reports", capacity=5)
        counts.append(sum(state in (2, 3, 4) for state in await states(store)))

    await asyncio.gather(work(1), work(2), set_limit())

    executing = sum(state in (2, 3, 4) for state in await states(store))
    assert executing <= max(5, counts[0])
    assert len(await rows(store, "gate_slots")) == executing


# --- reading ----------------------------------------------------------------------------------------------


async def test_queues_tell_what_waits_what_comes_later_and_what_runs(store: Store) -> None:
    await due_in(store, "reports", 3)
    await claimed(store, limit=1)
    future = datetime.now(UTC) + timedelta(hours=1)
    later = due_job(queue="reports")
    later = NewJob(later.job_id, NAMESPACE, later.definition, START, "ada", [future], None)
    await insert(store, later)
    await store.queues.pause_queue(NAMESPACE, "reports", "ada", "holiday")
    await limit(store, "empty", capacity=3)

    found = {row.queue: row for row in await store.queues.list_queues(NAMESPACE)}

    assert set(found) == {"reports", "empty"}
    reports = found["reports"]
    assert (reports.waiting, reports.later, reports.running, reports.pause_reason) == (2, 1, 1, "holiday")
    assert (found["empty"].capacity, found["empty"].running, found["empty"].paused_at) == (3, 0, None)
    assert await store.queues.get_queue(NAMESPACE, "nobodys") is None


async def test_a_resumed_queue_has_nothing_left_to_tell(store: Store) -> None:
    await store.queues.pause_queue(NAMESPACE, "reports", "ada", "holiday")
    await store.queues.resume_queue(NAMESPACE, "reports")
    found = await store.queues.get_queue(NAMESPACE, "reports")
    assert found is not None
    assert (found.paused_at, found.paused_by, found.pause_reason) == (None, None, None)
