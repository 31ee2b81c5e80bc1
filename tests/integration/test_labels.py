"""Runs that ask for labels go to executors that have them, and to no other."""

import asyncio
from uuid import UUID

from crew import Executor, Scheduler, SetClock
from sample_jobs import NAMESPACE, at, definition, due_job, every, insert, new_job, once, rows

from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.placement import Placement
from hourhand.model.policy import Policy
from hourhand.model.states import Reason, RunState
from hourhand.ports.job_kind import Task
from hourhand.wiring import Store

GPU = Policy(placement=Placement(("gpu",)))
GPU_EU = Policy(placement=Placement(("gpu", "zone=eu")))


class Worker:
    """An executor with labels that remembers what it ran."""

    def __init__(self, store: Store, *labels: str) -> None:
        self.ran: list[UUID] = []
        self.outcome: Outcome = Succeeded()
        self.executor = Executor(store, self._run, clock=SetClock(at(0)), labels=labels)

    async def _run(self, task: Task) -> Outcome:
        self.ran.append(task.job_id)
        return self.outcome

    async def join(self) -> "Worker":
        await self.executor.join()
        return self

    async def turn(self) -> None:
        await self.executor.turn()
        while len(self.executor.attempts):
            await asyncio.sleep(0)
        await self.executor.recorder.run_once()


async def test_a_run_goes_only_to_an_executor_with_its_labels(store: Store) -> None:
    plain, gpu = await Worker(store).join(), await Worker(store, "gpu").join()
    both = await Worker(store, "gpu", "zone=eu", "ssd").join()
    [any_id, gpu_id, both_id] = await insert(
        store, due_job(at(-3)), due_job(at(-2), policy=GPU), due_job(at(-1), policy=GPU_EU)
    )
    for _ in range(3):
        await plain.turn()
    assert plain.ran == [any_id]
    await gpu.turn()
    assert gpu.ran == [gpu_id]
    await gpu.turn()
    assert {row["job_id"] for row in await rows(store, "live_runs")} == {both_id}, "it waits for the third"
    await both.turn()
    assert both.ran == [both_id]
    assert await rows(store, "live_runs") == []


async def test_a_run_that_nobody_may_take_starts_when_such_an_executor_comes(store: Store) -> None:
    plain = await Worker(store).join()
    [job_id] = await insert(store, due_job(at(-1), policy=GPU))
    await plain.turn()
    [run] = await rows(store, "live_runs")
    assert (run["state"], run["attempt"]) == (RunState.QUEUED, 0)
    late = await Worker(store, "gpu").join()
    await late.turn()
    assert (plain.ran, late.ran) == ([], [job_id])


async def test_a_recurring_job_and_its_retries_stay_with_their_labels(store: Store) -> None:
    plain, gpu = await Worker(store).join(), await Worker(store, "gpu").join()
    scheduler = Scheduler(store, SetClock(at(0)))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    job = new_job(every(60), next_due=at(0), policy=GPU)
    await insert(store, job)
    await scheduler.planner.run_once()
    gpu.outcome = Failed(Reason.EXCEPTION, "once")
    for worker in (plain, gpu, plain):
        worker.executor.clock.time = at(1)  # type: ignore[attr-defined]
        await worker.turn()
    assert (plain.ran, gpu.ran) == ([], [job.job_id])
    gpu.outcome = Succeeded()
    for worker in (plain, gpu):
        worker.executor.clock.time = at(50)  # type: ignore[attr-defined]
        await worker.turn()
    assert (plain.ran, gpu.ran) == ([], [job.job_id] * 2)


async def test_a_change_of_placement_moves_what_is_not_claimed_yet(store: Store) -> None:
    plain, gpu = await Worker(store).join(), await Worker(store, "gpu").join()
    job = due_job(at(-1), policy=GPU)
    await insert(store, job)
    await plain.turn()
    assert plain.ran == []
    changed = definition(once(at(-1)))
    assert await store.jobs.change_job(NAMESPACE, job.job_id, changed, 1, None, at(0), "ada") is not None
    await plain.turn()
    assert (plain.ran, gpu.ran) == ([job.job_id], [])


async def test_a_stored_job_has_the_need_of_its_kind_whatever_it_demands(store: Store) -> None:
    job = due_job(at(-1), policy=GPU)
    await insert(store, job)
    found = await store.jobs.get_job(NAMESPACE, job.job_id)
    assert found is not None
    assert (found.definition.needs, found.definition.policy) == ("number", GPU)


async def test_plain_jobs_keep_their_lane_and_those_with_equal_labels_share_one(store: Store) -> None:
    await insert(store, due_job(), due_job(), due_job(policy=GPU), due_job(policy=GPU), due_job(policy=GPU_EU))
    lanes = [row["needs"] for row in await rows(store, "lanes")]
    assert sorted(lanes) == ["number", 'number {"labels":["gpu","zone=eu"]}', 'number {"labels":["gpu"]}']
