"""When a run with a jitter could start is told as long as it waits, and afterwards."""

from datetime import timedelta

from crew import Executor, Scheduler, SetClock, the_run
from msgspec.structs import replace
from sample_jobs import NAMESPACE, START, at, every, insert, new_job, own_all_shards, rows

from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.run import Run
from hourhand.ports.job_kind import Task
from hourhand.wiring import Store


async def nothing(task: Task) -> Outcome:
    return Succeeded()


async def test_a_finished_run_tells_when_it_could_start_as_it_did_while_it_waited(store: Store) -> None:
    clock = SetClock(START)
    scheduler = Scheduler(store, clock)
    scheduler.node_id, _ = await own_all_shards(store)
    await scheduler.lookout.run_once()
    spread = replace(every(20), jitter=timedelta(seconds=15))
    [job_id] = await insert(store, new_job(spread, next_due=at(0)))
    [plain_id] = await insert(store, new_job(every(20), next_due=at(0)))
    await scheduler.planner.run_once()
    waiting = {row["job_id"]: row for row in await rows(store, "live_runs")}
    assert at(0) < waiting[job_id]["ready_at"] < at(15)
    clock.time = at(16)
    executor = await Executor(store, nothing, clock=clock).join()
    await executor.drain()
    told: list[Run] = [await the_run(store, waiting[each]["run_id"]) for each in (job_id, plain_id)]
    assert [(run.scheduled_for, run.ready_at) for run in told] == [(at(0), waiting[job_id]["ready_at"]), (at(0), None)]
    listed = await store.runs.list_runs(NAMESPACE, None, [told[0].state], None, 10)
    assert {run.run_id: run.ready_at for run in listed} == {run.run_id: run.ready_at for run in told}
