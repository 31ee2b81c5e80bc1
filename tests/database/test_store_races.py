"""Writers that meet: a claim and a new run, an end and a change of its job, batches in different orders."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace
from sample_jobs import (
    NAMESPACE,
    at,
    claim,
    due_job,
    every,
    execute,
    ids,
    insert,
    new_job,
    once,
    own_all_shards,
    returned,
    rows,
    succeeded,
)

from hourhand.database.connections import Connection, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.keys import IdempotencyKey
from hourhand.model.local_time import ZoneFault
from hourhand.model.policy import Overlap, Policy
from hourhand.model.schedule import Timing
from hourhand.model.states import JobState, RunState
from hourhand.ports.stores import EPOCH, Finish, Requeue
from hourhand.ports.submission_stores import Submission
from hourhand.store.gates import WantedGate
from hourhand.wiring import Store


async def limit_of_the_only_gate(store: Store) -> int | None:
    [gate] = await rows(store, "gates")
    return gate["capacity"]  # type: ignore[no-any-return]


async def change(store: Store, job_id: UUID, policy: Policy, version: int = 1) -> list[UUID] | None:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    definition = replace(job.definition, policy=policy)
    cursor = None if job.definition.timing.only_instant else at(60)
    return await store.jobs.change_job(NAMESPACE, job_id, definition, version, cursor, at(1), "eve")


async def run_now(store: Store, job_id: UUID, now: datetime) -> None:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    assert await store.runs.insert_manual_run(ids.new_id(now), job, NAMESPACE, "eve", None, None, now)


def first_call_after(gates: Any, meanwhile: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens meanwhile is over when the numbers of gates are first asked for."""
    real = gates.numbers

    async def numbers(*args: Any, **how: Any) -> Any:
        monkeypatch.setattr(gates, "numbers", real)
        await meanwhile()
        return await real(*args, **how)

    monkeypatch.setattr(gates, "numbers", numbers)


# --- limits -----------------------------------------------------------------------------------------------


async def test_a_pause_does_not_bring_back_the_limit_that_was_changed_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = await insert(store, new_job(every(60), next_due=at(60), policy=Policy(max_concurrency=5)))
    first_call_after(store.jobs._gates, lambda: change(store, job_id, Policy(max_concurrency=1)), monkeypatch)
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, None, at(1))
    assert await limit_of_the_only_gate(store) == 1


async def test_a_change_that_is_refused_changes_no_limit(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(60), next_due=at(60), policy=Policy(max_concurrency=1)))
    assert await change(store, job_id, Policy(max_concurrency=50), version=7) is None
    assert await limit_of_the_only_gate(store) == 1


async def test_a_repeated_request_does_not_bring_back_the_limit_it_named(store: Store) -> None:
    def named(limit: int) -> Policy:
        return Policy(concurrency_key="customer-7", concurrency_limit=limit)

    key = IdempotencyKey("k", b"d" * 32)
    assert await store.submissions.insert_submissions([Submission([due_job(policy=named(5))], key)]) == [None]
    await insert(store, due_job(policy=named(1)))
    [verdict] = await store.submissions.insert_submissions([Submission([due_job(policy=named(5))], key)])
    assert verdict is not None
    assert await limit_of_the_only_gate(store) == 1
    other = IdempotencyKey("l", b"d" * 32)
    assert await store.submissions.insert_submissions([Submission([due_job(policy=named(3))], other)]) == [None]
    assert await limit_of_the_only_gate(store) == 3, "what is stored has its say"


async def test_a_repetition_obeys_a_limit_that_its_job_is_given_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = await insert(store, due_job())
    [run] = await claim(store, 1)
    await store.live_runs.finish_runs([Finish(run.run_id, run.fence, RunState.FAILED, at(0), at(1))])
    first_call_after(store.runs._gates, lambda: change(store, job_id, Policy(max_concurrency=1)), monkeypatch)
    for seconds in (2, 3):
        new_ids = {run.run_id: ids.new_id(at(seconds))}
        await store.runs.retry_runs(NAMESPACE, new_ids, [], "ada", None, True, at(seconds))
    assert len(await claim(store, 2, at(10))) <= 1


# --- one after the other ----------------------------------------------------------------------------------


async def claim_on(store: Store, db: Connection, executor_id: int, now: datetime, until: datetime) -> list[Any]:
    lanes = list(await store.names.lanes())
    query = load_queries("hourhand.store.sql", "live_runs.sql", store.database.schema)["claim_runs"]
    found = await store.database.fetch_on(
        db, query, lanes=lanes, priorities=[5] * len(lanes), since=[EPOCH] * len(lanes), shares=[1] * len(lanes),
        limits=[10] * len(lanes), now=now, until=until, others_until=until + timedelta(milliseconds=250),
        executor_id=executor_id,
    )  # fmt: skip
    return [row for row in found if row["fence"] is not None]


async def test_a_run_that_is_made_while_a_later_one_is_claimed_is_not_claimed_beside_it(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(60), fires=[at(0.04)], next_due=at(60)))
    async with store.database.transaction() as db:
        assert len(await claim_on(store, db, 1, at(0), at(0.05))) == 1
        await run_now(store, job_id, at(0.01))
        async with store.database.connection() as other:
            assert await claim_on(store, other, 2, at(0.02), at(0.07)) == []
    states = sorted(row["state"] for row in await rows(store, "live_runs"))
    assert states == [RunState.WAITING, RunState.CLAIMED]


async def test_who_does_not_see_the_earlier_run_yet_finds_the_later_one_gone_from_the_ready_ones(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(60), fires=[at(0.04)], next_due=at(60)))
    async with store.database.connection() as db, db.transaction(isolation="repeatable_read"):
        await db.fetchval("SELECT txid_current()")  # it sees what there is now, as a long statement does
        await run_now(store, job_id, at(0.01))
        async with store.database.connection() as other:
            assert len(await claim_on(store, other, 2, at(0.02), at(0.03))) == 1
        with pytest.raises(asyncpg.SerializationError):
            await claim_on(store, db, 1, at(0.02), at(0.05))
    later = max(await rows(store, "live_runs"), key=lambda row: row["run_id"])
    assert (later["state"], later["waits_on"]) == (RunState.WAITING, 0)


async def test_a_careful_claim_steps_back_from_a_later_run_that_is_just_being_claimed(store: Store) -> None:
    policy = Policy(max_concurrency=5, overlap=Overlap.SKIP)
    [job_id] = await insert(store, new_job(every(60), fires=[at(0.04)], next_due=at(60), policy=policy))
    async with store.database.transaction() as db:
        await db.execute(
            f"UPDATE {store.database.schema}.live_runs SET state = 2, executor_id = 1, attempt = 1, fence = 1"
        )
        await run_now(store, job_id, at(0.01))
        assert await claim(store, 2, at(0.05)) == []


async def test_a_run_that_no_other_follows_soon_leaves_later_ones_alone(store: Store) -> None:
    await insert(store, new_job(every(1), fires=[at(0), at(1)], next_due=at(2)))
    assert len(await claim(store, 1)) == 1
    assert sorted(row["state"] for row in await rows(store, "live_runs")) == [RunState.QUEUED, RunState.CLAIMED]


@pytest.mark.parametrize("ahead", [True, False])
async def test_the_run_of_a_job_that_runs_once_waits_behind_another_when_its_job_says_so(
    store: Store, ahead: bool
) -> None:
    node_id, epoch = await own_all_shards(store)
    fires, next_due = ((), at(10)) if ahead else ([at(10)], None)
    policy = Policy(overlap=Overlap.SKIP)
    [job_id] = await insert(store, new_job(once(at(10)), fires=fires, next_due=next_due, policy=policy))
    await run_now(store, job_id, at(0))
    assert len(await claim(store, 1, at(1))) == 1
    await store.timetable.fire_once(node_id, epoch, at(11), 10)
    assert await claim(store, 2, at(11)) == []


async def ask_for_many(store: Store, job_id: UUID, count: int) -> None:
    run_ids = [ids.new_id(at(0)) for _ in range(count)]
    await execute(
        store,
        "INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version,"
        " state, priority, cause, waits_on) SELECT u, $2, $3, $3, 1, 1, 1, CASE WHEN o = 1 THEN 3 ELSE 1 END, 5, 2,"
        " CASE WHEN o > 1 THEN 0 END FROM unnest($1::uuid[]) WITH ORDINALITY AS x(u, o)",
        run_ids, job_id, at(0),
    )  # fmt: skip
    await execute(
        store,
        "INSERT INTO hourhand.run_requests (run_id, requested_by, requested_at, overlap)"
        " SELECT u, 'ada', $2, 'queue_all' FROM unnest($1::uuid[]) u",
        run_ids, at(0),
    )  # fmt: skip


async def test_of_thousands_that_wait_for_one_another_the_first_is_looked_at(store: Store) -> None:
    node_id, _ = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(60), next_due=at(600)))
    await ask_for_many(store, job_id, 10_000)
    await execute(store, "ANALYZE hourhand.live_runs")
    begun = time.monotonic()
    turns = await store.turns.waiting_turns(node_id, 1000)
    unfinished = await store.turns.unfinished_of(turns)
    assert time.monotonic() - begun < 5, "once over all of them, not once for each"
    assert len(turns) == 1
    assert len(unfinished) == 2, "the one that runs, and itself"


# --- ends -------------------------------------------------------------------------------------------------


async def test_a_run_of_a_cancelled_job_that_is_brought_back_meanwhile_is_not_run_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = await insert(store, due_job())
    [run] = await claim(store, 1)
    real, tasks = store.jobs._held_runs, []

    async def last_step(db: Connection, old: Any) -> list[UUID]:
        tasks.append(asyncio.create_task(store.live_runs.requeue_runs([returned(run, failed=True)])))
        await asyncio.sleep(0.2)
        return await real(db, old)

    monkeypatch.setattr(store.jobs, "_held_runs", last_step)
    await store.jobs.set_status(NAMESPACE, job_id, JobState.CANCELLED, None, None, at(1))
    assert await asyncio.gather(*tasks) == [set()]
    assert await claim(store, 2, at(100)) == []


@pytest.mark.parametrize("how", ["finished", "returned"])
async def test_a_run_that_ends_while_its_job_is_given_a_limit_leaves_no_place_behind(
    store: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = await insert(store, new_job(every(60), fires=[at(0)], next_due=at(60)))
    [run] = await claim(store, 1)
    real, tasks = store.jobs._held_runs, []

    async def last_step(db: Connection, old: Any) -> list[UUID]:
        end = (
            store.live_runs.finish_runs([succeeded(run)])
            if how == "finished"
            else store.live_runs.requeue_runs([returned(run, failed=True)])
        )
        tasks.append(asyncio.create_task(end))
        await asyncio.sleep(0.2)
        return await real(db, old)

    monkeypatch.setattr(store.jobs, "_held_runs", last_step)
    assert await change(store, job_id, Policy(max_concurrency=1)) is not None
    assert await asyncio.gather(*tasks) == [{run.run_id}]
    assert await rows(store, "gate_slots") == []


async def test_a_place_that_its_run_takes_again_meanwhile_is_not_freed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, due_job(policy=Policy(max_concurrency=1)))
    [run] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(run, at(1), failed=True)])
    slot = "INSERT INTO hourhand.gate_slots (run_id, gate_id) SELECT $1, gate_id FROM hourhand.gates"
    await execute(store, slot, run.run_id)
    real = store.live_runs._fetch

    async def fetch(db: Connection, query: str, /, **values: Any) -> Any:
        if query == "lock_gates":
            monkeypatch.setattr(store.live_runs, "_fetch", real)
            await execute(store, "UPDATE hourhand.live_runs SET state = 2, executor_id = 2")
        return await real(db, query, **values)

    monkeypatch.setattr(store.live_runs, "_fetch", fetch)
    assert await store.turns.free_stray_slots() == 0
    assert len(await rows(store, "gate_slots")) == 1


async def test_the_time_to_wait_for_a_start_goes_on_when_a_run_is_given_back_unstarted(store: Store) -> None:
    await insert(store, due_job(policy=Policy(queue_timeout_seconds=30)))
    for started_at, expires_at in ((None, at(30)), (at(2), None)):
        [run] = await claim(store, 1, at(5))
        back = Requeue(
            run.run_id, run.fence, RunState.LOST, started_at, at(3), at(3), "shutdown", None, failed=False, lost=False
        )
        await store.live_runs.requeue_runs([back])
        assert [row["expires_at"] for row in await rows(store, "live_runs")] == [expires_at]


# --- in each other's way ----------------------------------------------------------------------------------


async def slow_down(store: Store) -> None:
    """A pause at every row stands for the time between two rows of a large batch."""
    schema = store.database.schema
    body = "BEGIN PERFORM pg_sleep(0.2); RETURN coalesce(NEW, OLD); END"
    await execute(store, f"CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    when = f"BEFORE UPDATE OR DELETE ON {schema}.live_runs FOR EACH ROW"
    await execute(store, f"CREATE TRIGGER slow {when} EXECUTE FUNCTION {schema}.slow()")


async def test_ends_and_a_cancel_of_the_same_runs_follow_each_other(store: Store) -> None:
    await insert(store, due_job(), due_job())
    held = sorted(await claim(store, 1), key=lambda run: run.run_id)
    await slow_down(store)
    ended, _ = await asyncio.gather(
        store.live_runs.finish_runs([succeeded(run) for run in reversed(held)]),
        store.runs.cancel_runs(NAMESPACE, [run.run_id for run in held], "cancelled", at(1)),
    )
    assert ended == {run.run_id for run in held}
    assert await rows(store, "live_runs") == []


async def test_new_limits_take_gates_in_the_order_in_which_claims_do(store: Store) -> None:
    def wanted(name: str, limit: int) -> WantedGate:
        return WantedGate(NAMESPACE, "key", name, limit, None)

    async def lock(db: Connection, number: int) -> None:
        await db.execute(f"SELECT FROM {store.database.schema}.gates WHERE gate_id = $1 FOR UPDATE", number)

    gates = store.jobs._gates
    [first] = (await gates.numbers([wanted("z", 1)])).values()
    [second] = (await gates.numbers([wanted("a", 1)])).values()
    async with store.database.transaction() as db:
        await lock(db, first)
        change = asyncio.create_task(gates.numbers([wanted("z", 2), wanted("a", 2)]))
        await asyncio.sleep(0.2)
        await lock(db, second)
    await change
    assert [row["capacity"] for row in await rows(store, "gates")] == [2, 2]


@pytest.mark.parametrize("times", [1, 2])
async def test_what_stood_in_anothers_way_is_tried_once_more_and_then_told_as_passing(times: int) -> None:
    faults: list[Exception] = [asyncpg.DeadlockDetectedError("deadlock detected")] * times

    @tried_twice
    async def work(answers: Sequence[str]) -> str:
        if faults:
            raise faults.pop()
        return answers[0]

    if times == 1:
        assert await work(["done"]) == "done"
    else:
        with pytest.raises(DatabaseUnavailable):
            await work(["done"])


# --- due times that nobody planned ------------------------------------------------------------------------


async def test_a_job_whose_zone_is_gone_can_be_paused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    [job_id] = await insert(store, new_job(every(60), next_due=at(0)))

    def unknown(timing: Timing, after: datetime) -> datetime | None:
        raise ZoneFault("there is no zone Mars/Olympus")

    monkeypatch.setattr(Timing, "next_after", unknown)
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, None, at(100))
    assert [row["status"] for row in await rows(store, "jobs")] == [1]


async def test_a_time_at_which_a_job_rested_is_no_due_time(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(60), next_due=at(7)))
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, None, at(61))
    assert [row["scheduled_for"] for row in await rows(store, "live_runs")] == [at(60)]
