"""Runs as they are read: live and finished ones as one list, newest first."""

from datetime import timedelta
from uuid import UUID

import pytest
from sample_jobs import NAMESPACE, START, at, claim, due_job, every, ids, insert, new_job, once, returned, succeeded

from hourhand.model.ids import scheduled_run_id
from hourhand.model.job import Job
from hourhand.model.policy import Overlap, Policy
from hourhand.model.run import Run
from hourhand.model.states import FINAL_STATES, LIVE_STATES, Cause, RunState
from hourhand.wiring import Store


async def job_of(store: Store, job_id: UUID) -> Job:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    return job


async def pages(store: Store, job: Job | None, states: list[RunState], limit: int) -> list[Run]:
    found: list[Run] = []
    before = None
    while page := await store.runs.list_runs(NAMESPACE, job, states, before, limit):
        assert len(page) <= limit
        found += page
        before = page[-1].run_id
    return found


@pytest.fixture
async def beat(store: Store) -> Job:
    """A recurring job with ten due times: the first four finished, the next three held, the last three waiting."""
    fires = [at(10 * n) for n in range(10)]
    beside = Policy(overlap=Overlap.ALLOW)
    [job_id] = await insert(store, new_job(every(10), fires=fires, next_due=at(100), policy=beside))
    done = await claim(store, 1, at(30))
    await store.live_runs.finish_runs([succeeded(one) for one in done])
    await claim(store, 1, at(60))
    return await job_of(store, job_id)


@pytest.mark.parametrize("limit", [1, 3, 4, 50])
@pytest.mark.parametrize("of_job", [True, False])
async def test_live_and_finished_runs_are_one_list_without_gap_or_repetition(
    store: Store, beat: Job, limit: int, of_job: bool
) -> None:
    found = await pages(store, beat if of_job else None, [*RunState], limit)
    assert [run.scheduled_for for run in found] == [at(10 * n) for n in range(9, -1, -1)]
    assert [run.state.word for run in found] == ["queued"] * 3 + ["claimed"] * 3 + ["succeeded"] * 4


@pytest.mark.parametrize(
    ("states", "count"),
    [(LIVE_STATES, 6), (FINAL_STATES, 4), ([RunState.CLAIMED], 3), ([RunState.FAILED], 0), ([RunState.QUEUED, 10], 7)],
)
async def test_a_list_can_be_narrowed_to_states(store: Store, beat: Job, states: list[RunState], count: int) -> None:
    chosen = [RunState(state) for state in states]
    assert len(await pages(store, beat, chosen, 2)) == len(await pages(store, None, chosen, 50)) == count


async def test_the_runs_of_a_job_are_only_its_own(store: Store, beat: Job) -> None:
    single = due_job(at(5))
    await insert(store, single)
    [found] = await pages(store, await job_of(store, single.job_id), [*RunState], 10)
    assert (found.run_id, found.cause) == (scheduled_run_id(at(5), single.job_id), Cause.ONCE)
    assert len(await pages(store, beat, [*RunState], 50)) == 10


async def test_runs_of_another_namespace_are_not_seen(store: Store, beat: Job) -> None:
    run_id = scheduled_run_id(at(0), beat.job_id)
    await store.runs.list_runs(NAMESPACE, None, [*RunState], None, 1)
    assert await store.runs.get_run(NAMESPACE, run_id) is not None
    assert await store.runs.get_run(NAMESPACE + 1, run_id) is None


async def test_a_run_is_read_in_one_shape_through_its_whole_life(store: Store) -> None:
    executor = await store.nodes.register_node("executor", "worker-7", 60, {})
    job = due_job(name="one")
    await insert(store, job)
    run_id = scheduled_run_id(START, job.job_id)

    async def read() -> Run:
        run = await store.runs.get_run(NAMESPACE, run_id)
        assert run is not None
        return run

    waiting = await read()
    assert (waiting.state, waiting.executor, waiting.attempt, waiting.ready_at) == (RunState.QUEUED, None, 0, START)
    [first] = await claim(store, executor)
    await store.live_runs.start_runs([(run_id, first.fence, at(0.2))])
    running = await read()
    assert (running.state, running.executor, running.started_at) == (RunState.RUNNING, "worker-7", at(0.2))
    await store.live_runs.requeue_runs([returned(first, at(9), failed=True)])
    again = await read()
    assert (again.state, again.executor, again.started_at, again.ready_at) == (RunState.QUEUED, None, None, at(9))
    [second] = await claim(store, executor, at(9))
    await store.live_runs.finish_runs([succeeded(second, at(10))])
    ended = await read()
    assert (ended.state, ended.attempt, ended.ended_at, ended.job_name) == (RunState.SUCCEEDED, 2, at(10), "one")
    assert {run.scheduled_for for run in (waiting, running, again, ended)} == {START}


async def test_a_manual_run_says_who_asked_and_why(store: Store) -> None:
    [job_id] = await insert(store, new_job(once(at(900)), next_due=at(900)))
    run_id = ids.new_id(START)
    await store.runs.insert_manual_run(run_id, await job_of(store, job_id), NAMESPACE, "ada", "a test", None, START)
    run = await store.runs.get_run(NAMESPACE, run_id)
    assert run is not None
    assert (run.cause, run.requested_by, run.note, run.scheduled_for) == (Cause.MANUAL, "ada", "a test", START)
    [held] = await claim(store, 1)
    await store.live_runs.finish_runs([succeeded(held)])
    ended = await store.runs.get_run(NAMESPACE, run_id)
    assert ended is not None
    assert (ended.requested_by, ended.note) == ("ada", "a test")


async def test_runs_are_counted_by_state_live_ones_and_those_since_a_time(store: Store, beat: Job) -> None:
    assert await store.runs.count_live(NAMESPACE) == {RunState.QUEUED: 3, RunState.CLAIMED: 3}
    assert await store.runs.count_finished(NAMESPACE, START - timedelta(hours=1)) == {RunState.SUCCEEDED: 4}
    assert await store.runs.count_finished(NAMESPACE, at(20)) == {RunState.SUCCEEDED: 2}
