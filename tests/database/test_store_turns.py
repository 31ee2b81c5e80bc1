"""Runs that wait behind earlier ones of their job, and runs that waited too long."""

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    due_job,
    every,
    ids,
    insert,
    new_job,
    own_all_shards,
    returned,
    rows,
    succeeded,
)

from hourhand.database.connections import Record
from hourhand.model.ids import scheduled_run_id
from hourhand.model.policy import Overlap, Policy
from hourhand.model.states import Reason, RunState
from hourhand.ports.stores import Claimed, Head, Move, NewJob, Wish
from hourhand.wiring import Store

ALLOWED = Policy(overlap=Overlap.ALLOW)
BEHIND = 0


def beat(*fires: datetime, **fields: Any) -> NewJob:
    """A recurring job, one run made for each of the times."""
    return new_job(every(10), fires=fires, next_due=at(1000), **fields)


async def state_of(store: Store, run_id: UUID) -> tuple[RunState, int | None]:
    [row] = [row for row in await rows(store, "live_runs") if row["run_id"] == run_id]
    return RunState(row["state"]), row["waits_on"]


async def look(store: Store, now: datetime, until: datetime) -> Claimed:
    """A plain claim that is ahead of time."""
    await store.names.lanes()
    wishes = [Wish(Head(1, 5, START), 1, 10)]
    return await store.live_runs.claim_runs(1, wishes, now, until)


async def ended(store: Store) -> list[Record]:
    return await rows(store, "runs", "scheduled_for")


async def ask_for(store: Store, job_id: UUID, now: datetime, overlap: str | None = None) -> UUID:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    run_id = ids.new_id(now)
    assert await store.runs.insert_manual_run(run_id, job, NAMESPACE, "ada", None, None, now, overlap)
    return run_id


# --- claims -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("careful", [False, True])
async def test_a_run_behind_an_unfinished_one_is_put_aside_once_it_is_due(store: Store, careful: bool) -> None:
    job = beat(at(0), at(10), policy=Policy(at_most_once=True) if careful else Policy())
    await insert(store, job)
    first, second = (scheduled_run_id(due, job.job_id) for due in (at(0), at(10)))
    [running] = await claim(store, 1, at(9))
    assert running.run_id == first
    assert await claim(store, 1, at(10)) == []
    assert await state_of(store, second) == (RunState.WAITING, BEHIND)
    assert await store.live_runs.peek_ready([1]) == []


async def test_a_run_behind_an_unfinished_one_stays_ready_as_long_as_it_is_not_due(store: Store) -> None:
    """The one before it may be gone by then."""
    job = beat(at(0), at(10))
    await insert(store, job)
    second = scheduled_run_id(at(10), job.job_id)
    [running] = await claim(store, 1, at(0))
    claimed = await look(store, at(9.96), at(10.01))
    assert (claimed.claims, claimed.put_aside) == ([], 0)
    assert await state_of(store, second) == (RunState.QUEUED, None)
    await store.live_runs.finish_runs([succeeded(running)])
    assert [one.run_id for one in (await look(store, at(9.97), at(10.02))).claims] == [second]


async def test_what_is_put_aside_is_told(store: Store) -> None:
    await insert(store, beat(at(0), at(10)))
    await claim(store, 1, at(0))
    assert (await look(store, at(10), at(10))).put_aside == 1


@pytest.mark.parametrize("unfinished", ["running", "retrying", "waiting", "cancelling"])
async def test_whatever_is_not_finished_stands_in_the_way(store: Store, unfinished: str) -> None:
    job = beat(at(0), at(10))
    await insert(store, job)
    [first] = await claim(store, 1, at(0))
    if unfinished == "retrying":
        await store.live_runs.requeue_runs([returned(first, at(500), failed=True)])
    elif unfinished == "cancelling":
        await store.runs.cancel_runs(NAMESPACE, [first.run_id], "cancelled", at(1))
    elif unfinished == "waiting":
        await ask_for(store, job.job_id, at(1))
        assert await claim(store, 1, at(2)) == []
        await store.live_runs.finish_runs([succeeded(first)])
    assert await claim(store, 1, at(10)) == []


async def test_runs_that_may_overlap_are_claimed_side_by_side(store: Store) -> None:
    await insert(store, beat(at(0), at(10), policy=ALLOWED))
    assert len(await claim(store, 1, at(10))) == 2


async def test_runs_of_different_jobs_are_claimed_side_by_side(store: Store) -> None:
    await insert(store, beat(at(0)), beat(at(10)))
    assert len(await claim(store, 1, at(10))) == 2


async def test_jobs_that_run_once_do_not_stand_in_anybodys_way(store: Store) -> None:
    job = due_job()
    await insert(store, job)
    await ask_for(store, job.job_id, at(0))
    assert len(await claim(store, 1, at(0))) == 2


async def test_a_run_that_somebody_asks_for_waits_behind_an_unfinished_one(store: Store) -> None:
    job = beat(at(0))
    await insert(store, job)
    await claim(store, 1, at(0))
    asked = await ask_for(store, job.job_id, at(5))
    assert await claim(store, 1, at(5)) == []
    assert await state_of(store, asked) == (RunState.WAITING, BEHIND)


async def test_a_run_that_somebody_asks_for_runs_beside_another_when_he_says_so(store: Store) -> None:
    job = beat(at(0))
    await insert(store, job)
    await claim(store, 1, at(0))
    asked = await ask_for(store, job.job_id, at(5), "allow")
    assert [one.run_id for one in await claim(store, 1, at(5))] == [asked]


async def test_a_run_that_was_claimed_ahead_of_its_time_stands_in_the_way_of_one_asked_for_before_it(
    store: Store,
) -> None:
    job = beat(at(10))
    await insert(store, job)
    [early] = (await look(store, at(9.96), at(10))).claims
    asked = await ask_for(store, job.job_id, at(9.97))
    assert asked < early.run_id
    assert await claim(store, 1, at(9.98)) == []


async def test_a_run_that_is_made_late_does_not_run_beside_one_that_was_asked_for_meanwhile(store: Store) -> None:
    """Nobody planned for a while, and somebody ran the job by hand."""
    node_id, epoch = await own_all_shards(store)
    job = new_job(every(10), next_due=at(10))
    await insert(store, job)
    asked = await ask_for(store, job.job_id, at(14))
    assert [one.run_id for one in await claim(store, 1, at(14))] == [asked]
    move = Move(job.job_id, at(10), 1, [at(10)], [], at(20))
    await store.timetable.advance_cursors(node_id, epoch, [move], at(15))
    assert await claim(store, 1, at(15)) == []


@pytest.mark.parametrize(
    ("overlap", "shown"), [(None, 1), (Overlap.SKIP, 1), (Overlap.QUEUE_ONE, 2), (Overlap.QUEUE_ALL, 99)]
)
async def test_of_those_that_are_caught_up_one_after_the_other_only_the_first_in_line_is_looked_at(
    store: Store, overlap: Overlap | None, shown: int
) -> None:
    """A hundred jobs that catch up a hundred runs each would else be ten thousand rows to judge for each step."""
    node_id, epoch = await own_all_shards(store)
    job = new_job(every(10), next_due=at(10), policy=Policy(overlap=overlap))
    await insert(store, job)
    dues = [at(10 * number) for number in range(1, 101)]
    move = Move(job.job_id, at(10), 1, dues, [], at(1010))
    await store.timetable.advance_cursors(node_id, epoch, [move], at(1005))
    [first] = await claim(store, 1, at(1006))
    assert first.scheduled_for == at(10)
    assert await claim(store, 1, at(1006)) == []
    waiting = [row for row in await rows(store, "live_runs") if row["state"] == RunState.WAITING]
    assert len(waiting) == 99
    turns = await store.turns.waiting_turns(node_id, 1000)
    assert (len(turns), turns[0].scheduled_for, turns[0].caught_up) == (shown, at(20), True)


async def test_a_retry_is_not_put_aside_because_of_one_that_was_let_run_beside_it(store: Store) -> None:
    job = beat(at(0))
    await insert(store, job)
    [first] = await claim(store, 1, at(0))
    await ask_for(store, job.job_id, at(1), "allow")
    assert len(await claim(store, 1, at(1))) == 1
    await store.live_runs.requeue_runs([returned(first, at(2), failed=True)])
    assert [one.run_id for one in await claim(store, 1, at(2))] == [first.run_id]


async def test_two_claimers_at_once_never_run_two_of_a_job(store: Store) -> None:
    jobs = [beat(*(at(10 * n) for n in range(4))) for _ in range(20)]
    await insert(store, *jobs)
    claimed = await asyncio.gather(*(claim(store, executor_id, at(100), limit=30) for executor_id in (1, 2, 3)))
    got = [one for share in claimed for one in share]
    got += await claim(store, 1, at(100), limit=100)
    running = {one.job_id for one in got}
    assert 0 < len(got) == len(running)
    assert {one.scheduled_for for one in got} == {at(0)}
    for job in jobs:  # where others were just about to claim what follows, the first steps back and is judged
        if job.job_id not in running:
            assert await state_of(store, scheduled_run_id(at(0), job.job_id)) == (RunState.WAITING, BEHIND)


# --- planning ---------------------------------------------------------------------------------------------


async def planned(store: Store, job: NewJob, due: datetime, now: datetime) -> tuple[RunState, int | None]:
    node_id, epoch = await own_all_shards(store)
    move = Move(job.job_id, at(1000), 1, [due], [], at(2000))
    await store.timetable.advance_cursors(node_id, epoch, [move], now)
    return await state_of(store, scheduled_run_id(due, job.job_id))


async def test_a_run_is_made_waiting_when_an_earlier_one_is_overdue(store: Store) -> None:
    job = beat(at(990))
    await insert(store, job)
    await claim(store, 1, at(990))
    assert await planned(store, job, at(1000), at(998)) == (RunState.WAITING, BEHIND)


async def test_a_run_is_made_ready_when_the_one_before_it_is_not_due_yet(store: Store) -> None:
    job = beat(at(999))
    await insert(store, job)
    assert await planned(store, job, at(1000), at(998)) == (RunState.QUEUED, None)


async def test_a_run_is_made_ready_when_its_job_may_overlap(store: Store) -> None:
    job = beat(at(990), policy=ALLOWED)
    await insert(store, job)
    await claim(store, 1, at(990))
    assert await planned(store, job, at(1000), at(998)) == (RunState.QUEUED, None)


# --- what a judge reads and writes ------------------------------------------------------------------------


async def test_turns_of_own_shards_are_read_due_first_with_what_counts_for_them(store: Store) -> None:
    node_id, _ = await own_all_shards(store)
    jobs = [
        beat(at(0), at(20)),
        beat(at(0), at(10), policy=Policy(overlap=Overlap.QUEUE_ALL, overlap_max=7)),
        beat(at(0), at(15)),
    ]
    await insert(store, *jobs)
    await claim(store, 1, at(5))
    await ask_for(store, jobs[2].job_id, at(12), "cancel_running")
    await claim(store, 1, at(20))
    turns = await store.turns.waiting_turns(node_id, 100)
    assert [(turn.ready_at, turn.overlap, turn.asked_for) for turn in turns] == [
        (at(10), Overlap.QUEUE_ALL, False),
        (at(12), Overlap.CANCEL_RUNNING, True),
        (at(15), Overlap.SKIP, False),
        (at(20), Overlap.SKIP, False),
    ]
    assert turns[0].policy.overlap_max == 7
    assert await store.turns.waiting_turns(node_id + 1, 100) == []


async def test_turns_are_read_page_by_page(store: Store) -> None:
    node_id, _ = await own_all_shards(store)
    jobs = [beat(at(0), at(10)) for _ in range(5)]
    await insert(store, *jobs)
    await claim(store, 1, at(0))
    await claim(store, 1, at(10))
    first = await store.turns.waiting_turns(node_id, 3)
    second = await store.turns.waiting_turns(node_id, 3, first[-1])
    assert (len(first), len(second)) == (3, 2)
    assert len({turn.run_id for turn in (*first, *second)}) == 5


async def test_every_unfinished_run_that_may_be_in_the_way_is_seen_as_it_stands(store: Store) -> None:
    node_id, _ = await own_all_shards(store)
    job = beat(at(0), at(10), at(20))
    await insert(store, job)
    [first] = await claim(store, 1, at(0))
    await claim(store, 1, at(10))
    await store.live_runs.requeue_runs([returned(first, at(500), failed=True)])
    found = await store.turns.unfinished_of(await store.turns.waiting_turns(node_id, 10))
    assert [(row.sibling.state, row.sibling.retrying, row.sibling.held_back) for row in found] == [
        (RunState.QUEUED, True, False),
        (RunState.WAITING, False, True),
    ], "the one after it is in nobody's way"


async def test_the_single_run_of_a_job_stands_in_the_way_of_one_that_is_asked_for(store: Store) -> None:
    node_id, _ = await own_all_shards(store)
    once = due_job(at(0), policy=Policy(overlap=Overlap.QUEUE_ALL))
    await insert(store, once)
    job = await store.jobs.get_job(NAMESPACE, once.job_id)
    assert job is not None
    asked = ids.new_id(at(1))
    await store.runs.insert_manual_run(asked, job, NAMESPACE, "ada", None, None, at(1), behind=True)
    found = await store.turns.unfinished_of(await store.turns.waiting_turns(node_id, 10))
    assert [row.sibling.run_id for row in found] == [scheduled_run_id(at(0), once.job_id), asked]


async def test_a_turn_that_is_let_go_is_ready_again(store: Store) -> None:
    job = beat(at(0), at(10))
    await insert(store, job)
    [first] = await claim(store, 1, at(0))
    await claim(store, 1, at(10))
    second = scheduled_run_id(at(10), job.job_id)
    await store.live_runs.finish_runs([succeeded(first)])
    assert await store.turns.let_turns_go([second, first.run_id]) == 1
    assert await store.turns.let_turns_go([second]) == 0
    assert [one.run_id for one in await claim(store, 1, at(10))] == [second]


async def test_only_runs_that_nobody_holds_are_skipped(store: Store) -> None:
    job = beat(at(0), at(10), at(20))
    await insert(store, job)
    await claim(store, 1, at(0))
    await claim(store, 1, at(10))
    run_ids = [scheduled_run_id(due, job.job_id) for due in (at(0), at(10), at(20))]
    skips = [(run_id, Reason.OVERLAP) for run_id in run_ids]
    assert await store.turns.skip_runs(skips, at(11)) == 2
    assert [(row["run_id"], row["state"], row["reason"], row["ended_at"]) for row in await ended(store)] == [
        (run_id, RunState.SKIPPED, "overlap", at(11)) for run_id in run_ids[1:]
    ]


async def test_only_runs_that_somebody_holds_are_asked_to_end(store: Store) -> None:
    job = beat(at(0), at(10))
    await insert(store, job)
    [first] = await claim(store, 1, at(0))
    second = scheduled_run_id(at(10), job.job_id)
    assert await store.turns.ask_to_end([first.run_id, second]) == 1
    assert await store.turns.ask_to_end([first.run_id]) == 0
    assert await store.live_runs.cancelling_runs(1) == [(first.run_id, first.fence)]


# --- waits that took too long -----------------------------------------------------------------------------


async def test_a_run_that_waited_too_long_for_its_start_is_missed(store: Store) -> None:
    await insert(store, due_job(policy=Policy(queue_timeout_seconds=30)), due_job())
    assert await store.turns.expire_runs(at(29), 100) == 0
    assert await store.turns.expire_runs(at(30), 100) == 1
    [row] = await ended(store)
    assert (row["state"], row["reason"], row["ended_at"]) == (RunState.MISSED, "queue_timeout", at(30))


async def test_a_run_that_waits_past_its_deadline_is_timed_out(store: Store) -> None:
    await insert(store, due_job(policy=Policy(deadline_seconds=30, queue_timeout_seconds=60)))
    assert await store.turns.expire_runs(at(30), 100) == 1
    [row] = await ended(store)
    assert (row["state"], row["reason"]) == (RunState.TIMED_OUT, "deadline")


async def test_of_both_the_one_that_comes_first_ends_the_wait(store: Store) -> None:
    await insert(store, due_job(policy=Policy(deadline_seconds=60, queue_timeout_seconds=30)))
    assert await store.turns.expire_runs(at(30), 100) == 1
    [row] = await ended(store)
    assert (row["state"], row["reason"]) == (RunState.MISSED, "queue_timeout")


async def test_a_retry_may_wait_longer_than_a_first_start_but_not_past_the_deadline(store: Store) -> None:
    both = due_job(policy=Policy(deadline_seconds=60, queue_timeout_seconds=30))
    short = due_job(policy=Policy(queue_timeout_seconds=30))
    await insert(store, both, short)
    claimed = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(one, at(40), failed=True) for one in claimed])
    assert {row["job_id"]: row["expires_at"] for row in await rows(store, "live_runs")} == {
        both.job_id: at(60),
        short.job_id: None,
    }
    assert await store.turns.expire_runs(at(59), 100) == 0
    assert await store.turns.expire_runs(at(60), 100) == 1
    [row] = await ended(store)
    assert (row["job_id"], row["state"], row["reason"], row["attempt"]) == (both.job_id, 12, "deadline", 1)


async def test_runs_in_somebodys_hands_do_not_expire_here(store: Store) -> None:
    await insert(store, due_job(policy=Policy(deadline_seconds=30, queue_timeout_seconds=30)))
    [got] = await claim(store, 1)
    assert got.deadline == at(30)
    assert await store.turns.expire_runs(at(100), 100) == 0


async def test_runs_that_wait_behind_a_gate_or_an_earlier_one_expire_too(store: Store) -> None:
    gated = Policy(concurrency_key="k", queue_timeout_seconds=30)
    await insert(store, due_job(policy=gated), due_job(policy=gated))
    await insert(store, beat(at(0), at(10), policy=Policy(queue_timeout_seconds=30)))
    await claim(store, 1, at(9))
    await claim(store, 1, at(10))
    assert await store.turns.expire_runs(at(40), 100) == 2
    assert {row["reason"] for row in await ended(store)} == {"queue_timeout"}


async def test_runs_that_a_planner_makes_carry_the_end_of_their_wait(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    beating = new_job(every(10), next_due=at(10), policy=Policy(queue_timeout_seconds=30, deadline_seconds=20))
    await insert(store, beating)
    single = new_job(next_due=at(0), policy=Policy(deadline_seconds=5))
    await insert(store, single)
    await store.timetable.fire_once(node_id, epoch, at(10), 10)
    move = Move(beating.job_id, at(10), 1, [at(10)], [], at(20))
    await store.timetable.advance_cursors(node_id, epoch, [move], at(9))
    assert {row["job_id"]: row["expires_at"] for row in await rows(store, "live_runs")} == {
        beating.job_id: at(30),
        single.job_id: at(5),
    }


async def test_a_run_that_somebody_asks_for_may_wait_from_when_it_was_asked_for(store: Store) -> None:
    job = due_job(at(0), policy=Policy(deadline_seconds=60))
    await insert(store, job)
    asked = await ask_for(store, job.job_id, at(100))
    assert await store.turns.expire_runs(at(150), 100) == 1
    [got] = await claim(store, 1, at(150))
    assert got.run_id == asked
    assert got.deadline == at(160)
    await store.live_runs.requeue_runs([returned(got, at(155), failed=True)])
    assert await store.turns.expire_runs(at(160), 100) == 1


async def test_no_more_expire_at_once_than_asked_for(store: Store) -> None:
    await insert(store, *(due_job(policy=Policy(queue_timeout_seconds=1)) for _ in range(7)))
    assert [await store.turns.expire_runs(at(10), 3) for _ in range(4)] == [3, 3, 1, 0]
