"""Rates, which spread starts over time, and limits that change while runs wait and run."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from gate_words import ask_for, keyed, live, states
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    due_job,
    ids,
    insert,
    returned,
    rows,
    succeeded,
)

from hourhand.model.policy import Policy, Rate
from hourhand.model.states import RunState
from hourhand.ports.operator_stores import LimitChange
from hourhand.wiring import Store

# --- rates ------------------------------------------------------------------------------------------------


async def test_a_rate_spreads_starts_over_time(store: Store) -> None:
    job = due_job(policy=Policy(rate=Rate(3, 60)))
    await insert(store, job)
    await ask_for(store, job.job_id, 9)
    started: list[int] = []
    for second in range(0, 300, 5):
        for one in await claim(store, 1, at(second)):
            started.append(second)
            await store.live_runs.finish_runs([succeeded(one, at(second))])
    assert len(started) == 10
    for first in started:
        assert sum(first <= other < first + 60 for other in started) <= 3
    assert started[-1] <= 200, "three a minute, and not much less"


async def test_two_executors_share_one_rate(store: Store) -> None:
    job = due_job(policy=Policy(rate=Rate(5, 60)))
    await insert(store, job)
    await ask_for(store, job.job_id, 20)
    claimed = await asyncio.gather(*(claim(store, executor_id, limit=4) for executor_id in (1, 2, 3)))
    assert sum(map(len, claimed)) <= 5
    more = await claim(store, 1)
    assert sum(map(len, claimed)) + len(more) == 5
    assert await claim(store, 1, at(59)) == []


async def test_runs_that_a_rate_delays_stay_ready_and_wake_by_themselves(store: Store) -> None:
    job = due_job(policy=Policy(rate=Rate(1, 60)))
    await insert(store, job)
    await ask_for(store, job.job_id, 2)
    await claim(store, 1)
    assert await states(store) == {RunState.CLAIMED: 1, RunState.QUEUED: 2}
    heads = await store.live_runs.peek_ready([*await store.names.lanes()])
    assert [at(60) <= head.ready_at <= at(62) for head in heads] == [True]


# --- changes of a limit -----------------------------------------------------------------------------------


async def change(store: Store, job_id: UUID, **fields: Any) -> None:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    changed = msgspec.structs.replace(job.definition, **fields)
    assert await store.jobs.change_job(NAMESPACE, job_id, changed, job.version, None, START, "ada") is not None


async def test_a_limit_that_is_raised_lets_more_go_on(store: Store) -> None:
    job = due_job(policy=Policy(max_concurrency=1))
    await insert(store, job)
    await ask_for(store, job.job_id, 4)
    await claim(store, 1)
    await change(store, job.job_id, policy=Policy(max_concurrency=3))
    await store.turns.let_go_on(1000)
    assert len(await claim(store, 1)) == 2


async def test_a_limit_that_is_lowered_lets_nobody_in_until_it_fits(store: Store) -> None:
    job = due_job(policy=Policy(max_concurrency=3))
    await insert(store, job)
    await ask_for(store, job.job_id, 4)
    running = await claim(store, 1)
    await change(store, job.job_id, policy=Policy(max_concurrency=2))
    for one, expected in zip(running, (0, 1, 1), strict=True):
        assert await store.live_runs.finish_runs([succeeded(one)]) == {one.run_id}
        await store.turns.let_go_on(1000)
        assert len(await claim(store, 1)) == expected


async def test_what_runs_already_counts_against_the_new_limit_of_its_job(store: Store) -> None:
    job = due_job()
    await insert(store, job)
    await ask_for(store, job.job_id, 2)
    running = await claim(store, 1)
    assert len(running) == 3
    await change(store, job.job_id, policy=Policy(max_concurrency=2))
    [waiting] = await ask_for(store, job.job_id)
    for one in running[:2]:
        assert await claim(store, 1) == []
        await store.live_runs.finish_runs([succeeded(one)])
        await store.turns.let_go_on(1000)
    assert [one.run_id for one in await claim(store, 1)] == [waiting]


async def test_a_retry_obeys_the_limit_that_its_job_was_given_meanwhile(store: Store) -> None:
    job = due_job()
    await insert(store, job)
    await ask_for(store, job.job_id, 2)
    running = await claim(store, 1)
    await change(store, job.job_id, policy=Policy(max_concurrency=1), priority=7)
    await store.live_runs.requeue_runs([returned(one, at(0), failed=True) for one in running])
    [again] = await claim(store, 1)
    [head] = [row for row in (await live(store)).values() if row["run_id"] == again.run_id]
    assert (again.careful, head["version"], head["priority"]) == (True, 2, 7)


async def test_a_limit_that_is_taken_away_holds_nobody_up(store: Store) -> None:
    job = due_job(policy=Policy(max_concurrency=1))
    await insert(store, job)
    await ask_for(store, job.job_id, 3)
    await claim(store, 1)
    await change(store, job.job_id, policy=Policy())
    assert len(await claim(store, 1)) == 3


async def test_a_rate_that_is_taken_away_or_raised_delays_nobody_any_longer(store: Store) -> None:
    for policy in (Policy(), Policy(rate=Rate(1000, 1))):
        job = due_job(policy=Policy(rate=Rate(1, 3600)))
        await insert(store, job)
        await ask_for(store, job.job_id, 2)
        assert len(await claim(store, 1)) == 1
        await change(store, job.job_id, policy=policy)
        assert len(await claim(store, 1, at(2))) == 2


async def test_a_retry_that_is_due_later_stays_so_when_its_job_changes(store: Store) -> None:
    job = due_job(policy=Policy(rate=Rate(10, 1)))
    await insert(store, job)
    [first] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(first, at(100), failed=True)])
    await change(store, job.job_id, policy=Policy(rate=Rate(5, 1)))
    assert [row["ready_at"] for row in (await live(store)).values()] == [at(100)]


async def test_a_run_with_a_payload_of_its_own_keeps_its_own_key_when_its_job_changes(store: Store) -> None:
    [job_id] = await insert(store, keyed(1))
    await claim(store, 1)
    await ask_for(store, job_id, 2, payload={"n": 1, "id": 2})
    await change(store, job_id, description="other")
    assert [one.payload["id"] for one in await claim(store, 1)] == [2]
    assert (await states(store))[RunState.WAITING] == 1
    await change(store, job_id, policy=Policy(concurrency_key="{id}-{n}", concurrency_limit=2))
    assert [one.payload["id"] for one in await claim(store, 1)] == [2]


async def test_a_run_that_somebody_asked_for_of_an_older_version_is_not_made(store: Store) -> None:
    """It would pass by the limits of the newer one."""
    [job_id] = await insert(store, due_job())
    old = await store.jobs.get_job(NAMESPACE, job_id)
    assert old is not None
    await change(store, job_id, policy=Policy(max_concurrency=1))
    made = await store.runs.insert_manual_run(ids.new_id(START), old, NAMESPACE, "ada", None, None, START)
    assert made is False


async def test_the_newest_limit_that_a_job_names_for_a_key_counts_for_all(store: Store) -> None:
    await insert(store, *(keyed(limit=5) for _ in range(4)))
    await insert(store, keyed(limit=2))
    assert len(await claim(store, 1)) == 2


async def test_a_claim_under_way_does_not_pass_by_a_limit_that_is_given_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Careful claims look first and write later; in between nobody may change what they have seen."""
    past = datetime(2026, 1, 1, tzinfo=UTC)
    await insert(store, *(due_job(past, queue="small", policy=Policy(at_most_once=True)) for _ in range(4)))
    await claim(store, 1, START, 1)
    reached, go_on = asyncio.Event(), asyncio.Event()
    ask_gates = store.live_runs._ask_gates

    async def slow(*arguments: Any) -> Any:
        verdict = await ask_gates(*arguments)
        reached.set()
        await go_on.wait()
        return verdict

    monkeypatch.setattr(store.live_runs, "_ask_gates", slow)
    claiming = asyncio.create_task(claim(store, 2, START, 2))
    await reached.wait()
    limiting = asyncio.create_task(store.queues.limit_queue(NAMESPACE, "small", LimitChange(capacity=1)))
    done, _ = await asyncio.wait([limiting], timeout=0.5)
    go_on.set()
    got = await claiming
    await limiting
    slots = await rows(store, "gate_slots")
    assert len(slots) == 1 + len(got), "what came before the limit counts against it"
    assert not done
