"""Live runs: claimed by one, ended by the newest claim, brought back with their attempt kept."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    due_job,
    execute,
    ids,
    insert,
    new_job,
    once,
    returned,
    rows,
    succeeded,
)

from hourhand.model.ids import scheduled_run_id
from hourhand.model.progress import Progress
from hourhand.model.run import Claim
from hourhand.model.run_blobs import RunFile
from hourhand.model.states import RunState
from hourhand.model.usage import Level, Usage
from hourhand.ports.progress_stores import Told
from hourhand.ports.stores import Finish, Head, Wish
from hourhand.store.progress import ProgressBoard
from hourhand.wiring import Store

# --- claims -----------------------------------------------------------------------------------------------


async def test_four_claimers_at_once_never_get_the_same_run(store: Store) -> None:
    await insert(store, *(due_job(priority=number % 3) for number in range(400)))
    await store.names.lanes()
    heads = [Head(1, priority, START) for priority in (2, 1, 0)]

    async def claimer(executor_id: int) -> list[object]:
        mine: list[object] = []
        wishes = [Wish(head, 1, 30) for head in heads]
        while got := (await store.live_runs.claim_runs(executor_id, wishes, START, START)).claims:
            mine += [(one.run_id, one.fence) for one in got]
        return mine

    shares = await asyncio.gather(*(claimer(executor_id) for executor_id in range(1, 5)))
    claimed = [one for share in shares for one in share]
    assert len(claimed) == len(set(claimed)) == 400


async def test_a_claim_carries_all_that_is_needed_to_run_it(store: Store) -> None:
    await store.names.find_namespace("default")
    [job_id] = await insert(store, due_job(name="one", payload={"n": 5}, timeout_seconds=2.5, queue="slow"))
    [got] = await claim(store, 1)
    assert (got.job_id, got.job_name, got.kind, got.needs, got.payload) == (job_id, "one", "number", "number", {"n": 5})
    assert (got.namespace, got.scheduled_for, got.ready_at, got.timeout_seconds) == ("default", START, START, 2.5)
    assert (got.attempt, got.failures, got.losses, got.max_retries, got.retry) == (1, 0, 0, 3, None)


async def test_higher_priorities_are_claimed_first(store: Store) -> None:
    await insert(store, *(due_job(at(-number), priority=number) for number in (0, 9, 5, 2)))
    claimed = [one for _ in range(4) for one in await claim(store, 1, limit=1)]
    assert [one.ready_at for one in claimed] == [at(-9), at(-5), at(-2), at(0)]


async def test_the_lane_that_waits_longest_goes_first_among_equals(store: Store) -> None:
    for queue, ready in (("a", at(-1)), ("b", at(-3)), ("c", at(-2))):
        await insert(store, due_job(ready, queue=queue))
    claimed = [one for _ in range(3) for one in await claim(store, 1, limit=1)]
    assert [one.ready_at for one in claimed] == [at(-3), at(-2), at(-1)]


async def test_within_a_lane_the_oldest_run_goes_first(store: Store) -> None:
    await insert(store, *(due_job(at(-number)) for number in (1, 4, 2, 3)))
    claimed = [one for _ in range(4) for one in await claim(store, 1, limit=1)]
    assert [one.ready_at for one in claimed] == [at(-4), at(-3), at(-2), at(-1)]


async def test_nothing_is_claimed_before_it_is_ready(store: Store) -> None:
    await insert(store, due_job(at(1)))
    await store.names.lanes()
    heads = await store.live_runs.peek_ready([1])
    assert heads == [Head(1, 5, at(1))]
    wishes = [Wish(head, 1, 10) for head in heads]
    assert (await store.live_runs.claim_runs(1, wishes, at(0), at(0.999))).claims == []
    assert len((await store.live_runs.claim_runs(1, wishes, at(0), at(1))).claims) == 1


async def test_a_look_sees_the_oldest_run_of_every_lane_and_priority_and_no_others(store: Store) -> None:
    await insert(
        store,
        due_job(at(5), queue="a", priority=9),
        due_job(at(3), queue="a", priority=9),
        due_job(at(1), queue="a", priority=0),
        due_job(at(7), queue="b"),
        due_job(at(0), queue="unserved"),
    )
    numbers = {lane.queue: lane_id for lane_id, lane in (await store.names.lanes()).items()}
    heads = await store.live_runs.peek_ready([numbers["a"], numbers["b"]])
    assert {(head.lane_id, head.priority, head.ready_at) for head in heads} == {
        (numbers["a"], 9, at(3)),
        (numbers["a"], 0, at(1)),
        (numbers["b"], 5, at(7)),
    }
    assert await store.live_runs.peek_ready([]) == []


async def test_a_look_at_what_is_known_begins_where_the_last_one_saw_something(store: Store) -> None:
    await insert(store, *(due_job(at(second)) for second in (0, 2, 4)))
    [head] = await store.live_runs.peek_ready([1])
    assert head.ready_at == at(0)
    assert await store.live_runs.peek_known([head]) == [head]
    assert await store.live_runs.peek_known([Head(1, head.priority, at(1))]) == [Head(1, head.priority, at(2))]
    assert await store.live_runs.peek_known([Head(1, head.priority, at(5)), Head(1, 9, at(0)), Head(7, 5, at(0))]) == []


async def test_a_crowd_is_so_many_queued_runs_of_a_lane_and_priority_within_a_moment(store: Store) -> None:
    await insert(store, *(due_job(at(second)) for second in (0, 2, 2, 2.04, 2.1)), due_job(at(2), priority=9))
    head = Head(1, 5, at(2))
    assert await store.live_runs.is_crowd(head, at(2.05), 3)
    assert not await store.live_runs.is_crowd(head, at(2.05), 4)
    await claim(store, 1, at(2), limit=10)
    assert not await store.live_runs.is_crowd(head, at(2.05), 2), "what is claimed is nobody's concern"


async def test_a_claim_takes_nothing_older_than_the_head_it_was_shown(store: Store) -> None:
    await insert(store, *(due_job(at(second)) for second in (0, 2, 4)))
    await store.names.lanes()
    claimed = await store.live_runs.claim_runs(1, [Wish(Head(1, 5, at(1)), 1, 10)], at(9), at(9))
    assert sorted(claim.scheduled_for for claim in claimed.claims) == [at(2), at(4)]


async def test_a_success_without_words_and_one_with_are_recorded_alike(store: Store) -> None:
    await insert(store, *(due_job(at(second)) for second in range(4)))
    claims = await claim(store, 1, at(9))
    plain, told, failed, late = (succeeded(each) for each in claims)
    told, failed = replace(told, result={"a": 1}), replace(failed, state=RunState.FAILED, reason="exception", error="x")
    late = replace(late, fence=late.fence + 1)
    written = await store.live_runs.finish_runs([plain, told, failed, late])
    assert written == {plain.run_id, told.run_id, failed.run_id}
    runs = {run.run_id: run for each in written if (run := await store.runs.get_run(NAMESPACE, each))}
    assert (runs[plain.run_id].state, runs[plain.run_id].result) == (RunState.SUCCEEDED, None)
    assert (runs[plain.run_id].started_at, runs[plain.run_id].ended_at) == (plain.started_at, plain.ended_at)
    assert (runs[told.run_id].state, runs[told.run_id].result) == (RunState.SUCCEEDED, {"a": 1})
    assert (runs[failed.run_id].state, runs[failed.run_id].reason) == (RunState.FAILED, "exception")


async def test_times_keep_their_microseconds_from_the_claim_to_history(store: Store) -> None:
    odd = [timedelta(days=days, microseconds=micros) for days in (0, 8000) for micros in (1, 333_333, 999_999)]
    await insert(store, *(due_job(at(0) + passed) for passed in odd))
    claims = await claim(store, 1, at(0) + odd[-1], limit=10)
    assert sorted(one.scheduled_for for one in claims) == [at(0) + passed for passed in odd]
    ends = {one.run_id: (one.scheduled_for + odd[0], one.scheduled_for + odd[1]) for one in claims}
    await store.live_runs.finish_runs(
        [Finish(one.run_id, one.fence, RunState.SUCCEEDED, *ends[one.run_id]) for one in claims]
    )
    for run_id, times in ends.items():
        run = await store.runs.get_run(NAMESPACE, run_id)
        assert run is not None
        assert (run.started_at, run.ended_at) == times


async def test_a_run_that_is_in_history_already_does_not_hold_up_the_others_of_its_batch(store: Store) -> None:
    await insert(store, due_job(), due_job(), due_job())
    claims = await claim(store, 1)
    [again, *_] = sorted(claims, key=lambda one: one.run_id)
    await execute(
        store,
        """INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, ended_at, namespace_id, version, state, cause,
                                      attempt)
           SELECT run_id, job_id, scheduled_for, ready_at, namespace_id, version, 11, cause, attempt
             FROM hourhand.live_runs WHERE run_id = $1""",
        again.run_id,
    )
    others = {one.run_id for one in claims} - {again.run_id}
    assert await store.live_runs.finish_runs([succeeded(one) for one in claims]) == others
    assert await rows(store, "live_runs") == []
    assert {row["run_id"]: row["state"] for row in await rows(store, "runs")} == {
        again.run_id: RunState.FAILED,
        **dict.fromkeys(others, RunState.SUCCEEDED),
    }


async def test_of_a_run_that_is_being_cancelled_not_even_a_plain_success_is_recorded(store: Store) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    await store.runs.cancel_runs(NAMESPACE, [held.run_id], "cancelled", at(1))
    assert await store.live_runs.finish_runs([succeeded(held)]) == {held.run_id}
    run = await store.runs.get_run(NAMESPACE, held.run_id)
    assert run is not None
    assert run.state is RunState.CANCELLED


async def test_no_more_than_the_limit_is_claimed_over_all_lanes(store: Store) -> None:
    await insert(store, *(due_job(queue=queue) for queue in "abc" for _ in range(5)))
    assert len(await claim(store, 1, limit=7)) == 7
    assert len(await claim(store, 1, limit=100)) == 8


async def test_fences_grow_with_every_claim(store: Store) -> None:
    await insert(store, *(due_job() for _ in range(20)))
    fences: list[int] = []
    for _ in range(4):
        batch = sorted(one.fence for one in await claim(store, 1, limit=5))
        assert not fences or batch[0] > fences[-1]
        fences += batch
    assert len(set(fences)) == 20


async def test_a_manual_run_brings_its_own_payload_even_an_empty_one(store: Store) -> None:
    [job_id] = await insert(store, new_job(once(at(900)), next_due=at(900), payload={"n": 1}))
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    for payload in (None, {"n": 2}, {}):
        await store.runs.insert_manual_run(ids.new_id(START), job, NAMESPACE, "ada", None, payload, START)
        [got] = await claim(store, 1)
        assert got.payload == ({"n": 1} if payload is None else payload)


# --- ends -------------------------------------------------------------------------------------------------


async def test_a_finished_run_moves_into_history_as_it_ended(store: Store) -> None:
    [job_id] = await insert(store, due_job())
    [held] = await claim(store, 1)
    finish = Finish(held.run_id, held.fence, RunState.FAILED, at(0.1), at(2), "exit_code", "code 3", {"a": [1]})
    assert await store.live_runs.finish_runs([finish]) == {held.run_id}
    assert await rows(store, "live_runs") == []
    run = await store.runs.get_run(NAMESPACE, held.run_id)
    assert run is not None
    assert (run.job_id, run.state, run.reason, run.error, run.result) == (job_id, 11, "exit_code", "code 3", {"a": [1]})
    assert (run.scheduled_for, run.started_at, run.ended_at, run.attempt) == (START, at(0.1), at(2), 1)


async def test_what_attempts_took_is_kept_with_them(store: Store) -> None:
    first_use = Usage(Level.RLIMITS, 0.25, 1_000_000, 0, 4096)
    last_use = Usage(Level.CGROUP1, 1.5, 2_000_000, 512, 8192)
    await insert(store, due_job())
    [first] = await claim(store, 1, at(1))
    await store.live_runs.requeue_runs([replace(returned(first, failed=True), usage=first_use)])
    [last] = await claim(store, 1, at(1))
    await store.live_runs.finish_runs([replace(succeeded(last), usage=last_use)])
    run = await store.runs.get_run(NAMESPACE, last.run_id)
    assert run is not None
    assert run.usage == last_use
    assert [attempt.usage for attempt in await store.runs.list_attempts(last.run_id)] == [first_use]


async def test_a_finish_with_an_old_fence_is_refused(store: Store) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    stale = Finish(held.run_id, held.fence - 1, RunState.SUCCEEDED, at(0), at(1))
    assert await store.live_runs.finish_runs([stale]) == set()
    assert await store.live_runs.finish_runs([succeeded(held)]) == {held.run_id}
    assert await store.live_runs.finish_runs([succeeded(held)]) == set(), "the second word changes nothing"


async def test_a_result_under_a_stale_lease_or_by_the_fence_of_another_is_refused(store: Store) -> None:
    """Security test S19: who has no right to a run cannot end it, give it back, or say anything of it."""
    await insert(store, due_job(), due_job())
    first, other = sorted(await claim(store, 1), key=lambda held: held.fence)
    await store.live_runs.requeue_runs([returned(first, at(1), lost=True)])
    [again] = await claim(store, 2, at(1))
    assert again.run_id == first.run_id
    foreign = {
        "the fence of the attempt before": first.fence,
        "the fence of another run that the same executor holds": other.fence,
        "a fence that nobody has": again.fence + 1,
        "none": 0,
    }
    before = await rows(store, "live_runs", "run_id")
    for what, fence in foreign.items():
        for state in (RunState.SUCCEEDED, RunState.FAILED):
            said = Finish(again.run_id, fence, state, at(0), at(1))
            assert await store.live_runs.finish_runs([said]) == set(), what
        given_back = replace(returned(again), fence=fence)
        assert await store.live_runs.requeue_runs([given_back]) == set(), what
    assert await rows(store, "live_runs", "run_id") == before
    assert await rows(store, "runs") == []
    assert await store.live_runs.finish_runs([succeeded(again), succeeded(other)]) == {again.run_id, other.run_id}


def left(attempt: Claim, name: str) -> tuple[RunFile, ...]:
    return (RunFile(0, name, 1, "ab" * 32, attempt.attempt, attempt.fence),)


@pytest.mark.parametrize("order", [1, -1])
async def test_a_late_word_in_the_same_batch_is_not_taken_for_that_of_the_newest_attempt(
    store: Store, order: int
) -> None:
    """S19: as after a commit whose answer was lost. The executor says it again, together with what came after it."""
    await insert(store, due_job())
    [first] = await claim(store, 1)
    said = replace(returned(first, at(1), failed=True), error="of the first", files=left(first, "first"))
    assert await store.live_runs.requeue_runs([said]) == {first.run_id}
    [second] = await claim(store, 1, at(1))
    then = replace(returned(second, at(2), failed=True), error="of the second")
    await store.live_runs.requeue_runs([replace(said, error="late", files=left(first, "late")), then][::order])
    assert [(row["attempt"], row["error"]) for row in await rows(store, "attempts", "attempt")] == [
        (1, "of the first"),
        (2, "of the second"),
    ]
    [third] = await claim(store, 1, at(2))
    last = replace(succeeded(third), result=3, files=left(third, "third"))
    late = replace(succeeded(second), result=2, files=left(second, "late"))
    assert await store.live_runs.finish_runs([late, last][::order]) == {first.run_id}
    assert [row["result"] for row in await rows(store, "runs")] == ["3"]
    assert sorted(row["name"] for row in await rows(store, "run_files")) == ["first", "third"]


async def test_nothing_that_a_lost_attempt_tells_is_shown_of_the_run(store: Store) -> None:
    """S19: progress and starts by the fence of the attempt before."""
    await insert(store, due_job())
    [first] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(first, at(1), lost=True)])
    [second] = await claim(store, 2, at(1))
    board = ProgressBoard(store.database)
    await board.write_progress([Told(first.run_id, first.fence, Progress(99.0, "nearly", at(1)))])
    await store.live_runs.start_runs([(first.run_id, first.fence, at(0))])
    shown = (await board.glance_at_runs([first.run_id]))[first.run_id]
    assert (shown.progress, shown.started_at) == (None, None)
    await board.write_progress([Told(first.run_id, second.fence, Progress(1.0, "begun", at(1)))])
    await board.write_progress([Told(first.run_id, first.fence, Progress(99.0, "nearly", at(1)))])
    shown = (await board.glance_at_runs([first.run_id]))[first.run_id]
    assert shown.progress is not None
    assert shown.progress.message == "begun"


async def test_a_late_finish_of_a_reaped_attempt_is_refused(store: Store) -> None:
    await insert(store, due_job())
    [first] = await claim(store, 1)
    assert await store.live_runs.requeue_runs([returned(first, at(1), lost=True)]) == {first.run_id}
    assert await store.live_runs.finish_runs([succeeded(first)]) == set(), "while it waits"
    [second] = await claim(store, 2, at(1))
    assert second.fence > first.fence
    assert await store.live_runs.finish_runs([succeeded(first)]) == set(), "while another holds it"
    assert await store.live_runs.requeue_runs([returned(first)]) == set()
    assert await store.live_runs.finish_runs([succeeded(second)]) == {second.run_id}
    assert await store.live_runs.finish_runs([succeeded(first)]) == set(), "after its end"


async def test_a_run_that_was_claimed_ahead_and_is_given_back_does_not_become_ready_before_its_time(
    store: Store,
) -> None:
    """As by an executor that is told to stop just then; the next one must not start it early."""
    await insert(store, due_job(at(10)))
    [early] = await claim(store, 1, at(10.01))
    await store.live_runs.requeue_runs([returned(early, at(9.97))])
    assert await claim(store, 2, at(9.98)) == []
    [row] = await rows(store, "live_runs")
    assert row["ready_at"] == at(10)


async def test_a_late_finish_does_not_hold_up_the_others_of_its_batch(store: Store) -> None:
    await insert(store, due_job(), due_job())
    late, good = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(late, lost=True)])
    assert await store.live_runs.finish_runs([succeeded(late), succeeded(good)]) == {good.run_id}


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.TIMED_OUT])
async def test_a_run_that_is_being_cancelled_ends_as_cancelled_whatever_is_said(store: Store, state: RunState) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    assert await store.runs.cancel_runs(NAMESPACE, [held.run_id], "cancelled", at(0)) == {held.run_id: False}
    finish = Finish(held.run_id, held.fence, state, at(0), at(1), "exit_code", None, {"secret": 1})
    assert await store.live_runs.finish_runs([finish]) == {held.run_id}
    run = await store.runs.get_run(NAMESPACE, held.run_id)
    assert run is not None
    assert (run.state, run.reason, run.result) == (RunState.CANCELLED, "cancelled", None)


async def test_a_run_that_is_being_cancelled_is_never_brought_back(store: Store) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    await store.runs.cancel_runs(NAMESPACE, [held.run_id], "cancelled", at(0))
    assert await store.live_runs.requeue_runs([returned(held, failed=True)]) == set()
    assert [row["state"] for row in await rows(store, "live_runs")] == [RunState.CANCELLING]


async def test_a_waiting_run_that_is_cancelled_ends_at_once(store: Store) -> None:
    job = due_job(at(5))
    await insert(store, job)
    run_id = scheduled_run_id(at(5), job.job_id)
    assert await store.runs.cancel_runs(NAMESPACE, [run_id], "cancelled", at(1)) == {run_id: True}
    run = await store.runs.get_run(NAMESPACE, run_id)
    assert run is not None
    assert (run.state, run.reason, run.ended_at) == (RunState.CANCELLED, "cancelled", at(1))
    assert await store.runs.cancel_runs(NAMESPACE, [run_id], "cancelled", at(2)) == {}


async def test_a_run_of_another_namespace_cannot_be_cancelled(store: Store) -> None:
    job = due_job()
    await insert(store, job)
    run_id = scheduled_run_id(START, job.job_id)
    assert await store.runs.cancel_runs(NAMESPACE + 1, [run_id], "cancelled", at(1)) == {}
    assert len(await rows(store, "live_runs")) == 1


# --- starts and returns -----------------------------------------------------------------------------------


async def test_a_start_is_shown_only_for_the_newest_attempt(store: Store) -> None:
    await insert(store, due_job())
    [first] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(first, lost=True)])
    [second] = await claim(store, 2, at(1))
    await store.live_runs.start_runs([(first.run_id, first.fence, at(0))])
    assert [row["state"] for row in await rows(store, "live_runs")] == [RunState.CLAIMED]
    await store.live_runs.start_runs([(second.run_id, second.fence, at(2))])
    [row] = await rows(store, "live_runs")
    assert (row["state"], row["started_at"]) == (RunState.RUNNING, at(2))


async def test_a_start_does_not_undo_a_cancel(store: Store) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    await store.runs.cancel_runs(NAMESPACE, [held.run_id], "cancelled", at(0))
    await store.live_runs.start_runs([(held.run_id, held.fence, at(0))])
    assert [row["state"] for row in await rows(store, "live_runs")] == [RunState.CANCELLING]


async def test_a_run_that_comes_back_counts_failures_and_losses_and_keeps_its_attempts(store: Store) -> None:
    await insert(store, due_job())
    executor = await store.nodes.register_node("executor", "worker-1", 60, {})
    for number, how in enumerate(({"failed": True}, {"lost": True}, {"failed": True}, {})):
        [held] = await claim(store, executor, at(number))
        assert held.attempt == number + 1
        assert await store.live_runs.requeue_runs([returned(held, at(number + 1), **how)]) == {held.run_id}
    [last] = await claim(store, executor, at(9))
    assert (last.failures, last.losses, last.attempt, last.scheduled_for) == (2, 1, 5, START)
    attempts = await store.runs.list_attempts(last.run_id)
    assert [(one.attempt, one.state, one.executor) for one in attempts] == [
        (1, "failed", "worker-1"),
        (2, "lost", "worker-1"),
        (3, "failed", "worker-1"),
        (4, "failed", "worker-1"),
    ]
    assert {one.error for one in attempts} == {"why"}


async def test_a_run_that_comes_back_is_ready_when_it_was_told_and_not_before(store: Store) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    await store.live_runs.requeue_runs([returned(held, at(30), failed=True)])
    assert await claim(store, 1, at(29)) == []
    [again] = await claim(store, 1, at(30))
    assert (again.ready_at, again.scheduled_for) == (at(30), START)
    [row] = await rows(store, "live_runs")
    assert row["started_at"] is None


async def test_runs_in_the_hands_of_the_dead_are_found_with_their_standing(store: Store) -> None:
    await insert(store, *(due_job() for _ in range(3)))
    dead, alive, _ = [(await claim(store, executor, limit=1))[0] for executor in (1, 2, 3)]
    await store.live_runs.start_runs([(dead.run_id, dead.fence, at(1))])
    [found] = await store.live_runs.held_by([1, 99], 10)
    assert (found.run_id, found.fence, found.state, found.started_at) == (dead.run_id, dead.fence, 3, at(1))
    assert len(await store.live_runs.held_by([1, 2, 3], 2)) == 2
    assert alive.run_id not in {found.run_id}


async def test_an_executor_is_told_of_its_own_cancelled_runs_only(store: Store) -> None:
    await insert(store, due_job(), due_job())
    mine, other = (await claim(store, 1, limit=1))[0], (await claim(store, 2, limit=1))[0]
    await store.runs.cancel_runs(NAMESPACE, [mine.run_id, other.run_id], "cancelled", at(0))
    assert await store.live_runs.cancelling_runs(1) == [(mine.run_id, mine.fence)]


async def test_a_fence_that_was_drawn_is_never_drawn_again_even_after_a_failure(store: Store) -> None:
    await insert(store, due_job())
    [held] = await claim(store, 1)
    await execute(store, "SELECT nextval('hourhand.fence')")
    await store.live_runs.requeue_runs([returned(held)])
    [again] = await claim(store, 1, at(1))
    assert again.fence == held.fence + 2
