"""How far a run has come can be read while it goes on, and only then."""

import asyncio
from uuid import UUID

from crew import Executor, the_run
from sample_jobs import NAMESPACE, due_job, insert, rows

from hourhand.executor.progress import ProgressKeeper
from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.progress import Progress
from hourhand.model.states import Reason, RunState
from hourhand.operations.run_watch import RunWatch
from hourhand.ports.job_kind import Task
from hourhand.ports.progress_stores import Told
from hourhand.store.progress import ProgressBoard
from hourhand.wiring import Store


class Telling:
    """An attempt that says what it is told to say, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self.outcome: Outcome = Succeeded()
        self.task: Task | None = None

    async def __call__(self, task: Task) -> Outcome:
        self.task = task
        self.begun.set()
        await self.over.wait()
        return self.outcome


async def started(store: Store, telling: Telling) -> tuple[Executor, UUID, ProgressKeeper]:
    executor = await Executor(store, telling).join()
    keeper = executor.attempts.progress = ProgressKeeper(ProgressBoard(store.database), executor.clock.now)
    job = due_job(executor.clock.now())
    await insert(store, job)
    while not telling.begun.is_set():
        await executor.turn()
    assert telling.task is not None
    return executor, telling.task.run_id, keeper


async def test_a_running_run_shows_its_newest_progress_and_a_finished_one_none(store: Store) -> None:
    telling = Telling()
    executor, run_id, keeper = await started(store, telling)
    assert telling.task is not None
    assert (await the_run(store, run_id)).progress is None
    telling.task.progress(10, "began")
    telling.task.progress(40, "halfway")
    await keeper.run_once()
    shown = (await the_run(store, run_id)).progress
    assert shown is not None
    assert (shown.percent, shown.message) == (40, "halfway")
    [listed] = await store.runs.list_runs(NAMESPACE, None, [*RunState], None, 10)
    assert listed.progress == shown

    telling.over.set()
    await executor.drain()
    assert (await the_run(store, run_id)).progress is None
    await asyncio.sleep(1.0)  # writes are a second apart
    await keeper.run_once()
    assert await rows(store, "run_progress") == []


async def test_what_an_earlier_attempt_said_is_not_shown_for_a_later_one(store: Store) -> None:
    telling = Telling()
    telling.outcome = Failed(Reason.EXCEPTION, "no", retry_after_seconds=0)
    executor, run_id, keeper = await started(store, telling)
    assert telling.task is not None
    telling.task.progress(90, "nearly")
    await keeper.run_once()
    telling.begun.clear()
    telling.over.set()
    while not telling.begun.is_set():
        await executor.turn()
    assert [row["message"] for row in await rows(store, "run_progress")] == ["nearly"]
    assert (await the_run(store, run_id)).progress is None


async def test_a_word_of_an_older_attempt_changes_nothing(store: Store) -> None:
    telling = Telling()
    executor, run_id, _ = await started(store, telling)
    assert telling.task is not None
    board, now, fence = ProgressBoard(store.database), executor.clock.now(), telling.task.fence
    await board.write_progress([Told(run_id, fence, Progress(50, "new", now))])
    await board.write_progress([Told(run_id, fence - 1, Progress(99, "old", now))])
    await board.forget_progress([(run_id, fence - 1)])
    shown = (await the_run(store, run_id)).progress
    assert shown is not None
    assert shown.message == "new"
    telling.over.set()
    await executor.drain()


async def test_what_dead_executors_left_is_swept_up(store: Store) -> None:
    telling = Telling()
    executor, run_id, keeper = await started(store, telling)
    assert telling.task is not None
    telling.task.progress(1, "alive")
    await keeper.run_once()
    board, now = ProgressBoard(store.database), executor.clock.now()
    await board.write_progress([Told(UUID(int=5), 1, Progress(2, "left behind", now.replace(year=2020)))])
    await board.sweep(now)
    assert [row["run_id"] for row in await rows(store, "run_progress")] == [run_id]
    telling.over.set()
    await executor.drain()


async def test_a_watcher_sees_state_and_progress_and_the_end(store: Store) -> None:
    telling = Telling()
    executor, run_id, keeper = await started(store, telling)
    assert telling.task is not None
    watch = RunWatch(ProgressBoard(store.database), look_seconds=0.01)
    seen = []
    async with asyncio.timeout(30):
        async for glance in watch.follow(run_id):
            seen.append(glance.progress and glance.progress.percent)
            if len(seen) == 1:
                telling.task.progress(70, "")
                await keeper.run_once()
            elif glance.progress is not None:
                telling.over.set()
                await executor.drain()
    assert seen[0] is None
    assert seen[-1] == 70
    await watch.close()
