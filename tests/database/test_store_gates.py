"""Gates: a limit is never exceeded, however runs are claimed and end, and whoever waits goes on when there is room."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from gate_words import ask_for, keyed, live, other_namespace, states
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    due_job,
    execute,
    insert,
    returned,
    rows,
    succeeded,
)

from hourhand.model.policy import Overlap, Policy
from hourhand.model.run import Claim
from hourhand.model.states import RunState
from hourhand.ports.operator_stores import LimitChange
from hourhand.ports.stores import Head, Wish
from hourhand.wiring import Store

HELD = (RunState.CLAIMED, RunState.RUNNING, RunState.CANCELLING)


# --- never exceeded ---------------------------------------------------------------------------------------


async def shared_key(store: Store) -> int:
    await insert(store, *(keyed(limit=3, priority=number % 3) for number in range(60)))
    return 3


async def limit_of_a_job(store: Store) -> int:
    job = due_job(policy=Policy(max_concurrency=3))
    await insert(store, job)
    await ask_for(store, job.job_id, 59)
    return 3


async def limit_of_a_queue(store: Store) -> int:
    await store.queues.limit_queue(NAMESPACE, "small", LimitChange(capacity=3))
    jobs = [due_job(queue="small", priority=number % 3) for number in range(30)]
    await insert(store, *jobs, *(due_job(queue="small", policy=Policy(at_most_once=True)) for _ in range(30)))
    return 3


async def limit_of_a_namespace(store: Store) -> int:
    await insert(store, *(due_job(queue=f"queue-{number % 4}", needs=f"need-{number % 2}") for number in range(60)))
    await store.queues.change_namespace(NAMESPACE, None, LimitChange(capacity=3))
    return 3


async def limit_that_comes_later(store: Store) -> int:
    """Runs are claimed already when the limit is given."""
    await insert(store, *(due_job(queue="small") for _ in range(62)))
    first = await claim(store, 99, limit=2)
    await store.queues.limit_queue(NAMESPACE, "small", LimitChange(capacity=3))
    await store.live_runs.finish_runs([succeeded(one) for one in first])
    return 3


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "limited", [shared_key, limit_of_a_job, limit_of_a_queue, limit_of_a_namespace, limit_that_comes_later]
)
async def test_four_claimers_at_once_never_exceed_a_limit(store: Store, limited: Any, seed: int) -> None:
    limit = await limited(store)
    chance = random.Random(seed)
    held: set[UUID] = set()
    most = 0

    async def claimer(executor_id: int) -> None:
        nonlocal most
        async with asyncio.timeout(60):
            while await states(store):
                mine = await claim(store, executor_id, at(5), chance.randint(1, 5))
                held.update(one.run_id for one in mine)
                counted = await states(store)
                most = max(most, len(held), sum(counted[state] for state in HELD))
                assert most <= limit
                for one in mine:
                    held.remove(one.run_id)
                    await give_up(store, one, chance)

    async def healer() -> None:
        while True:
            await store.turns.let_go_on(1000)
            await asyncio.sleep(0)

    healing = asyncio.create_task(healer())
    try:
        await asyncio.gather(*(claimer(executor_id) for executor_id in range(1, 5)))
    finally:
        healing.cancel()
    assert most == limit
    assert len(await rows(store, "runs")) >= 60
    assert await rows(store, "gate_slots") == []


async def give_up(store: Store, one: Claim, chance: random.Random) -> None:
    """Ends a run, or has it fail or be lost, and at times both are said."""
    match chance.randint(0, 4):
        case 0:
            await store.live_runs.requeue_runs([returned(one, at(2), failed=True)])
        case 1:
            await store.live_runs.requeue_runs([returned(one, at(0), lost=True)])
            assert await store.live_runs.finish_runs([succeeded(one)]) == set(), "its fence has passed"
        case _:
            await store.live_runs.finish_runs([succeeded(one)])


async def test_customers_do_not_wait_for_each_other(store: Store) -> None:
    await insert(store, *(keyed(customer) for customer in (1, 2, 3) for _ in range(3)))
    assert len(await claim(store, 1)) == 3
    assert await states(store) == {RunState.CLAIMED: 3, RunState.WAITING: 6}


async def test_a_key_of_one_namespace_is_not_that_of_another(store: Store) -> None:
    other = await other_namespace(store)
    await insert(store, keyed(), keyed(), *(msgspec.structs.replace(keyed(), namespace_id=other) for _ in range(2)))
    assert len(await claim(store, 1)) == 2


async def test_a_run_takes_a_place_in_all_of_its_gates_or_in_none(store: Store) -> None:
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=2))
    await insert(store, keyed(1), keyed(1), keyed(2), keyed(3))
    claimed = await claim(store, 1)
    assert len(claimed) == 2
    slots = Counter(row["run_id"] for row in await rows(store, "gate_slots"))
    assert slots == {one.run_id: 2 for one in claimed}


async def test_a_run_that_somebody_asks_for_obeys_the_limit_of_its_own_key(store: Store) -> None:
    [job_id] = await insert(store, keyed(1))
    [first] = await claim(store, 1)
    [same] = await ask_for(store, job_id)
    [other] = await ask_for(store, job_id, payload={"n": 1, "id": 2})
    assert [one.run_id for one in await claim(store, 1)] == [other]
    assert (await live(store))[same]["state"] == RunState.WAITING
    await store.live_runs.finish_runs([succeeded(first)])
    assert [one.run_id for one in await claim(store, 1)] == [same]


# --- waiting ----------------------------------------------------------------------------------------------


async def test_runs_that_wait_for_a_place_are_out_of_the_ready_index(store: Store) -> None:
    await insert(store, *(keyed() for _ in range(5)))
    await claim(store, 1)
    assert await states(store) == {RunState.CLAIMED: 1, RunState.WAITING: 4}
    assert await store.live_runs.peek_ready([*await store.names.lanes()]) == []


async def test_more_wait_than_are_looked_at_at_once_and_still_nobody_is_passed_over(store: Store) -> None:
    await insert(store, *(keyed() for _ in range(1200)), keyed(2, at(0.5)))
    claimed = [one for _ in range(3) for one in await claim(store, 1, at(1))]
    assert len(claimed) == 2
    assert await states(store) == {RunState.CLAIMED: 2, RunState.WAITING: 1199}


async def test_the_end_of_runs_without_gates_tells_nobody(store: Store) -> None:
    told: list[str] = []
    store.live_runs.on_let_go = lambda: told.append("look")
    await insert(store, due_job(), keyed())
    await store.live_runs.finish_runs([succeeded(one) for one in await claim(store, 1)])
    assert told == []


@pytest.mark.parametrize("how", ["failed", "lost"])
async def test_a_run_that_goes_back_to_the_queue_gives_its_place_to_another(store: Store, how: str) -> None:
    await insert(store, keyed(), keyed())
    [first] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(first, at(60), **{how: True})])
    [second] = await claim(store, 1)
    assert second.run_id != first.run_id
    assert [row["run_id"] for row in await rows(store, "gate_slots")] == [second.run_id]
    assert await claim(store, 1, at(60)) == [], "the place is taken when it comes back"
    assert (await live(store))[first.run_id]["state"] == RunState.WAITING


async def test_a_run_that_is_cancelled_gives_its_place_to_another_when_it_is_gone(store: Store) -> None:
    await insert(store, keyed(), keyed())
    [first] = await claim(store, 1)
    await store.runs.cancel_runs(NAMESPACE, [first.run_id], "cancelled", START)
    assert await claim(store, 1) == []
    await store.live_runs.finish_runs([succeeded(first)])
    assert len(await claim(store, 1)) == 1


async def test_a_place_that_the_next_one_cannot_use_is_passed_on_at_once(store: Store) -> None:
    """The next in the queue's line is of a customer that runs already; behind it stand others that could start."""
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=2))
    await insert(store, keyed(1), keyed(2))
    _first, second = sorted(await claim(store, 1), key=lambda one: one.payload["id"])
    await insert(store, *(keyed(1, at(number)) for number in range(1, 5)), keyed(3, at(5)))
    assert await claim(store, 1, at(10)) == []

    await store.live_runs.finish_runs([succeeded(second)])

    claimed = [one for _ in range(6) for one in await claim(store, 1, at(10))]
    assert [one.payload["id"] for one in claimed] == [3]


# --- the healing sweep ------------------------------------------------------------------------------------


async def test_a_promotion_that_was_lost_is_made_up_for(store: Store) -> None:
    await insert(store, *(keyed(limit=2) for _ in range(5)))
    await claim(store, 1)
    await execute(store, "DELETE FROM hourhand.gate_slots")
    await execute(store, "DELETE FROM hourhand.live_runs WHERE state = 2")
    assert await store.turns.let_go_on(1000) == 2
    assert len(await claim(store, 1)) == 2


async def test_the_sweep_lets_no_more_go_on_than_there_is_room_for_however_often_it_looks(store: Store) -> None:
    await insert(store, *(keyed(limit=3) for _ in range(10)))
    running = await claim(store, 1)
    assert [await store.turns.let_go_on(1000) for _ in range(3)] == [0, 0, 0]
    await store.live_runs.finish_runs([succeeded(one) for one in running[:1]])
    assert [await store.turns.let_go_on(1000) for _ in range(3)] == [0, 0, 0], "one was told by the end of the other"
    assert (await states(store))[RunState.QUEUED] == 1


async def test_the_sweep_has_room_for_as_many_as_a_wide_gate_holds(store: Store) -> None:
    """The bound of one sweep is one for those it lets go, not for those that run."""
    await insert(store, *(keyed(limit=20) for _ in range(30)))
    running = await claim(store, 1)
    assert len(running) == 20
    await store.live_runs.finish_runs([succeeded(one) for one in running[:8]])
    await execute(store, "UPDATE hourhand.live_runs SET state = 1 WHERE state = 0")
    assert [await store.turns.let_go_on(3) for _ in range(4)] == [3, 3, 2, 0]


async def test_the_sweep_looks_at_every_gate_and_at_those_that_are_gone(store: Store) -> None:
    await insert(store, *(keyed(customer, limit=2) for customer in range(1, 6) for _ in range(3)))
    assert len(await claim(store, 1)) == 10
    await execute(store, "DELETE FROM hourhand.gate_slots WHERE gate_id IN (2, 4)")
    await execute(store, "DELETE FROM hourhand.gates WHERE gate_id = 5")
    assert await store.turns.let_go_on(1000) == 3


async def test_runs_of_a_paused_queue_do_not_keep_others_from_a_place_that_they_share(store: Store) -> None:
    await insert(store, keyed(queue="other"))
    [running] = await claim(store, 1)
    await insert(store, keyed(priority=9, queue="paused"), keyed(priority=1, queue="other"), keyed(queue="other"))
    assert await claim(store, 1) == []
    await store.queues.pause_queue(NAMESPACE, "paused", "ada", None)

    await store.live_runs.finish_runs([succeeded(running)])
    [second] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(second, at(60), lost=True)])
    [third] = await claim(store, 1)
    await store.live_runs.finish_runs([succeeded(third)])
    assert await claim(store, 1) == []

    await store.queues.resume_queue(NAMESPACE, "paused")
    assert await store.turns.let_go_on(1000) == 1
    assert len(await claim(store, 1)) == 1


async def test_places_of_runs_that_nobody_holds_are_freed(store: Store) -> None:
    await insert(store, keyed(1), keyed(2), keyed(3))
    claimed = await claim(store, 1)
    assert await store.turns.free_stray_slots() == 0
    gone, back, _ = (one.run_id for one in claimed)
    await execute(store, "DELETE FROM hourhand.live_runs WHERE run_id = $1", gone)
    await execute(store, "UPDATE hourhand.live_runs SET state = 0 WHERE run_id = $1", back)
    assert await store.turns.free_stray_slots() == 2
    assert [row["run_id"] for row in await rows(store, "gate_slots")] == [claimed[2].run_id]


async def what_waits(store: Store, now: datetime) -> tuple[bool, bool, bool]:
    look = await store.turns.look(0, now)
    return look.turns, look.gates, look.expired


async def test_what_waits_is_told_apart(store: Store) -> None:
    assert await what_waits(store, START) == (False, False, False)
    await insert(store, keyed(), keyed())
    await claim(store, 1)
    assert await what_waits(store, START) == (False, True, False)
    policy = Policy(queue_timeout_seconds=5)
    await insert(store, due_job(at(0), policy=policy))
    assert await what_waits(store, at(4.9)) == (False, True, False)
    assert await what_waits(store, at(5)) == (False, True, True)


# --- lanes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Policy(), Policy(max_concurrency=5)])
async def test_nothing_of_a_paused_queue_is_claimed_by_one_who_does_not_know_yet(store: Store, policy: Policy) -> None:
    await insert(store, due_job(policy=policy))
    await store.names.lanes()
    [head] = await store.live_runs.peek_ready([1])
    await store.queues.pause_queue(NAMESPACE, "default", "ada", None)
    assert (await store.live_runs.claim_runs(1, [Wish(head, 1, 10)], START, START)).claims == []
    assert (await store.live_runs.claim_carefully(1, [Wish(head, 1, 10)], START)).claims == []
    await store.queues.resume_queue(NAMESPACE, "default")
    assert len(await claim(store, 1)) == 1


async def test_a_plain_claim_takes_nothing_of_a_lane_that_has_become_limited(store: Store) -> None:
    await insert(store, due_job(), due_job())
    await store.names.lanes()
    heads = await store.live_runs.peek_ready([1])
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=1))
    wishes = [Wish(head, 1, 10) for head in heads]
    assert (await store.live_runs.claim_runs(1, wishes, START, START)).claims == []
    assert len(await claim(store, 1)) == 1


async def test_a_plain_claim_takes_nothing_of_a_lane_whose_runs_have_gates(store: Store) -> None:
    await insert(store, keyed())
    await store.names.lanes()
    wishes = [Wish(Head(1, 5, START), 1, 10)]
    assert (await store.live_runs.claim_runs(1, wishes, START, START)).claims == []


async def test_runs_with_gates_of_their_own_have_a_lane_of_their_own(store: Store) -> None:
    await insert(store, due_job(), keyed(), due_job(policy=Policy(overlap=Overlap.ALLOW)))
    lanes = await rows(store, "lanes")
    assert sorted((row["queue"], row["gated"]) for row in lanes) == [("default", False), ("default", True)]


async def test_careful_claims_are_not_made_ahead_of_time(store: Store) -> None:
    await insert(store, keyed(ready_at=at(0.04)))
    await store.names.lanes()
    wishes = [Wish(head, 1, 10) for head in await store.live_runs.peek_ready([1])]
    assert (await store.live_runs.claim_carefully(1, wishes, START)).claims == []
    assert len((await store.live_runs.claim_carefully(1, wishes, at(0.04))).claims) == 1


# --- at most once -----------------------------------------------------------------------------------------


async def test_a_run_that_may_run_at_most_once_is_begun_with_its_claim(store: Store) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    await insert(store, due_job(past, policy=Policy(at_most_once=True)))
    [got] = await claim(store, 1, datetime.now(UTC))
    [row] = await rows(store, "live_runs")
    assert row["state"] == RunState.RUNNING
    assert abs(row["started_at"] - datetime.now(UTC)) < timedelta(seconds=30)
    assert (got.at_most_once, got.careful) == (True, True)
    [held] = await store.live_runs.held_by([1], 10)
    assert held.at_most_once


async def test_other_runs_with_gates_are_begun_when_they_begin(store: Store) -> None:
    await insert(store, keyed())
    [got] = await claim(store, 1)
    [row] = await rows(store, "live_runs")
    assert (row["state"], row["started_at"]) == (RunState.CLAIMED, None)
    assert (got.at_most_once, got.careful) == (False, True)
