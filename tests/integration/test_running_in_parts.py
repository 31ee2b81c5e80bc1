"""Runs that go to all executors or to several: one occurrence, parts that each run once where they belong, and an end
that says what they came to, whoever dies meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Literal, cast
from uuid import UUID

import pytest
from crew import Executor, Scheduler, SetClock, the_run
from sample_jobs import NAMESPACE, at, definition, due_job, every, execute, insert, new_job, once, rows

from hourhand.executor import fan_out
from hourhand.model.ids import scheduled_run_id
from hourhand.model.log import Place
from hourhand.model.outcome import Cancelled, Failed, Outcome, Succeeded
from hourhand.model.parts import is_part, part_id
from hourhand.model.placement import Placement
from hourhand.model.policy import Overlap, Policy
from hourhand.model.resources import Resources
from hourhand.model.states import Cause, Reason, RunState
from hourhand.operations.log_source import LogSource
from hourhand.operations.log_watch import LogWatch
from hourhand.operations.logs import LogOperations
from hourhand.operations.requests import Caller
from hourhand.operations.runs import RunOperations
from hourhand.ports.event_bus import EventBus
from hourhand.ports.job_kind import Task
from hourhand.runtime.bell import Bell
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.ids import IdSource
from hourhand.scheduler.orphans import Orphans
from hourhand.wiring import Store

GB = 10**9


def on(which: int | Literal["all"], *labels: str, **more: object) -> Policy:
    return Policy(placement=Placement(labels, which), **more)  # type: ignore[arg-type]


class Worker:
    """An executor that remembers what it ran, and whose attempts wait for the test if it says so."""

    def __init__(self, store: Store, *labels: str, **things: float) -> None:
        self.ran: list[tuple[int | None, int | None]] = []
        self.outcome: Outcome = Succeeded()
        self.says = ""
        self.holding: asyncio.Event | None = None
        self.executor = Executor(store, self._run, clock=SetClock(at(0)), labels=labels, things=things)

    async def _run(self, task: Task) -> Outcome:
        self.ran.append((task.index, task.total))
        if self.says:
            task.log("log", self.says.format(index=task.index))
        if self.holding is not None:
            await self.holding.wait()
        return self.outcome

    @property
    def node_id(self) -> int:
        return self.executor.membership.node_id

    async def join(self) -> "Worker":
        await self.executor.join()
        return self

    async def turn(self) -> None:
        self.executor.receiver._resting.clear()
        await self.executor.turn()
        await asyncio.sleep(0.02)
        await self.executor.recorder.run_once()

    async def die(self, store: Store) -> None:
        """Without a word; its runs are returned as those of a dead one."""
        self.executor.receiver.claiming = False
        for running in list(self.executor.attempts._in_hand.values()):
            if running.task is not None:
                running.task.cancel()
        await asyncio.sleep(0.02)
        await execute(store, "UPDATE hourhand.nodes SET ended_at = now(), lease_until = now() - interval '1 s' "
                             "WHERE node_id = $1", self.node_id)  # fmt: skip
        await execute(store, "UPDATE hourhand.live_runs SET state = 0, executor_id = NULL, fence = NULL, "
                             "losses = losses + 1 WHERE executor_id = $1", self.node_id)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(fan_out, "LOOK_SECONDS_MAX", 0.01)


async def crew(store: Store, count: int) -> list[Worker]:
    return [await Worker(store).join() for _ in range(count)]


async def turns(store: Store, *workers: Worker, most: int = 60) -> None:
    """Until nothing is live."""
    for _ in range(most):
        for worker in workers:
            await worker.turn()
        if not await rows(store, "live_runs"):
            return
    raise AssertionError([dict(row) for row in await rows(store, "live_runs")])


async def submitted(store: Store, policy: Policy) -> tuple[UUID, UUID]:
    job = due_job(at(-1), policy=policy)
    await insert(store, job)
    return job.job_id, scheduled_run_id(at(-1), job.job_id)


async def test_a_run_on_all_runs_once_on_each_executor_that_is_there(store: Store) -> None:
    workers = await crew(store, 3)
    _, run_id = await submitted(store, on("all"))
    await turns(store, *workers)
    assert sorted(place for worker in workers for place in worker.ran) == [(0, 3), (1, 3), (2, 3)]
    assert all(len(worker.ran) == 1 for worker in workers)
    run = await the_run(store, run_id)
    assert (run.state, run.result) == (RunState.SUCCEEDED, {"parts": 3, "succeeded": 3})
    assert len(await rows(store, "runs")) == 4


async def test_whoever_leads_hears_of_ends_and_need_not_look_for_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(fan_out, "LOOK_SECONDS_MAX", 3600.0)
    workers = await crew(store, 3)
    for worker in workers:
        for other in workers:  # as the event bus does it
            worker.executor.recorder.on_parts = both(worker.executor.recorder.on_parts, other.executor.fan_out.hear)
    _, run_id = await submitted(store, on("all"))
    await turns(store, *workers)
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED


async def test_executors_are_woken_when_parts_are_made_and_when_one_is_given_to_another_and_at_no_other_time(
    store: Store,
) -> None:
    leader, other, third = await crew(store, 3)
    woken: list[str] = []
    leader.executor.fan_out.wake_all = lambda: woken.append("all")
    leader.holding, other.holding = asyncio.Event(), asyncio.Event()
    await submitted(store, on(2))
    for worker in (leader, other, leader, other) * 2:
        await worker.turn()
    assert (len(leader.ran), len(other.ran), len(third.ran)) == (1, 1, 0)
    assert woken == ["all"], "once, for all parts"
    await other.die(store)
    for worker in (leader, third) * 4:
        await worker.turn()
    assert len(third.ran) == 1
    assert woken == ["all", "all"], "the part of the dead one is another's now"
    leader.holding.set()
    await turns(store, leader, third)
    assert woken == ["all", "all"]


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        one()
        other()

    return call


async def test_a_run_in_parts_counts_once(store: Store) -> None:
    workers = await crew(store, 3)
    for worker in workers:
        worker.holding = asyncio.Event()
    await submitted(store, on("all"))
    for _ in range(3):
        for worker in workers:
            await worker.turn()
    assert len(await rows(store, "live_runs")) == 4
    assert sum((await store.runs.count_live(NAMESPACE)).values()) == 1
    for worker in workers:
        assert worker.holding is not None
        worker.holding.set()
    await turns(store, *workers)
    assert len(await rows(store, "runs")) == 4
    assert await store.runs.count_finished(NAMESPACE, at(-3600)) == {RunState.SUCCEEDED: 1}


async def test_only_executors_that_fit_get_a_part(store: Store) -> None:
    plain = await Worker(store, memory=4 * GB).join()
    labelled = await Worker(store, "gpu", memory=4 * GB).join()
    small = await Worker(store, "gpu", memory=1 * GB).join()
    _, run_id = await submitted(store, on("all", "gpu", resources=Resources(memory=2 * GB)))
    await turns(store, plain, small, labelled)
    assert (plain.ran, small.ran, labelled.ran) == ([], [], [(0, 1)])
    assert labelled.executor.capacity.things()["memory"]["used"] == 0
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED


async def test_a_run_on_two_runs_on_two_of_them(store: Store) -> None:
    workers = await crew(store, 4)
    await submitted(store, on(2))
    await turns(store, *workers)
    assert sorted(len(worker.ran) for worker in workers) == [0, 0, 1, 1]
    assert sorted(place for worker in workers for place in worker.ran) == [(0, 2), (1, 2)]


async def test_a_run_on_more_than_there_are_waits_for_further_executors(store: Store) -> None:
    workers = await crew(store, 2)
    _, run_id = await submitted(store, on(3))
    for _ in range(10):
        for worker in workers:
            await worker.turn()
    assert sorted(len(worker.ran) for worker in workers) == [1, 1], "not the same one twice"
    assert not (await the_run(store, run_id)).state.is_final
    third = await Worker(store).join()
    await turns(store, *workers, third)
    assert len(third.ran) == 1
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED


async def test_a_run_with_a_part_that_fails_has_failed_and_is_not_tried_again(store: Store) -> None:
    workers = await crew(store, 2)
    workers[1].outcome = Failed(Reason.EXIT_CODE, "3", retryable=False)
    _, run_id = await submitted(store, on("all"))
    await turns(store, *workers)
    run = await the_run(store, run_id)
    assert (run.state, run.reason, run.attempt) == (RunState.FAILED, "parts", 1)
    assert "1 of 2 parts did not succeed" in (run.error or "")


async def test_a_part_is_tried_again_on_its_executor(store: Store) -> None:
    workers = await crew(store, 2)
    workers[1].outcome = Failed(Reason.EXIT_CODE, "3")
    _, run_id = await submitted(store, on("all"))
    for _ in range(6):
        for worker in workers:
            await worker.turn()
    assert len(workers[1].ran) == 1
    workers[1].outcome = Succeeded()
    for worker in workers:
        worker.executor.clock.time = at(60)  # type: ignore[attr-defined]
    await turns(store, *workers)
    assert [len(worker.ran) for worker in workers] == [1, 2]
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED


async def test_the_leader_dies_and_another_goes_on_with_the_same_parts(store: Store) -> None:
    workers = await crew(store, 3)
    for worker in workers:
        worker.holding = asyncio.Event()
    _, run_id = await submitted(store, on(2))
    await workers[0].turn()
    for worker in workers[1:] * 3:
        await worker.turn()
    parts = await store.parts.parts_of(run_id)
    assert len(parts) == 2
    await workers[0].die(store)
    for worker in workers[1:]:
        assert worker.holding is not None
        worker.holding.set()
    await turns(store, *workers[1:])
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED
    assert [part.run_id for part in await store.parts.parts_of(run_id)] == [part_id(run_id, 0), part_id(run_id, 1)]
    assert {part.state for part in await store.parts.parts_of(run_id)} == {RunState.SUCCEEDED}


@pytest.mark.parametrize(("which", "state"), [("all", RunState.FAILED), (2, RunState.SUCCEEDED)])
async def test_a_part_whose_executor_dies_is_lost_or_goes_elsewhere(
    store: Store, which: int | Literal["all"], state: RunState
) -> None:
    leader, other = await crew(store, 2)
    other.holding = asyncio.Event()
    _, run_id = await submitted(store, on(which))
    for _ in range(4):
        await leader.turn()
        await other.turn()
    assert len(other.ran) == 1
    await other.die(store)
    await turns(store, leader)
    run = await the_run(store, run_id)
    assert run.state is state
    states = sorted(part.state.word for part in await store.parts.parts_of(run_id))
    assert states == (["lost", "succeeded"] if which == "all" else ["succeeded", "succeeded"])
    lost = [part for part in await store.parts.parts_of(run_id) if part.state is RunState.LOST]
    assert [part.reason for part in lost] == (["executor_lost"] if which == "all" else [])


async def test_cancelling_the_run_cancels_every_part_before_it_ends(store: Store) -> None:
    workers = await crew(store, 2)
    for worker in workers:
        worker.holding = asyncio.Event()
    _, run_id = await submitted(store, on(3))
    for _ in range(4):
        for worker in workers:
            await worker.turn()
    assert sum(len(worker.ran) for worker in workers) == 2
    await store.runs.cancel_runs(NAMESPACE, [run_id], "cancelled", at(1))
    for _ in range(30):
        for worker in workers:
            for cancelled, fence in await store.live_runs.cancelling_runs(worker.node_id):
                worker.executor.attempts.stop(cancelled, fence, Cancelled())
            await worker.turn()
    assert await rows(store, "live_runs") == []
    assert {row["state"] for row in await rows(store, "runs")} == {RunState.CANCELLED}
    assert len(await rows(store, "runs")) == 4


async def test_parts_of_a_run_that_is_over_are_cancelled(store: Store) -> None:
    """It was cancelled while its leader was dead: the reaper ended it, and nobody else knows of its parts."""
    workers = await crew(store, 2)
    workers[1].holding = asyncio.Event()
    _, run_id = await submitted(store, on(3))
    for _ in range(4):
        for worker in workers:
            await worker.turn()
    await workers[0].die(store)
    await execute(store, "DELETE FROM hourhand.live_runs WHERE run_id = $1", run_id)
    scheduler = Scheduler(store, SetClock(at(2)))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await Orphans(store.parts, scheduler.leadership, scheduler.clock).run_once()
    assert {row["state"] for row in await rows(store, "live_runs")} <= {RunState.CANCELLING}
    await workers[1].executor.stop_cancelled()
    await workers[1].turn()
    assert await rows(store, "live_runs") == []
    await Orphans(store.parts, scheduler.leadership, scheduler.clock).run_once()
    assert not any(row["open"] for row in await rows(store, "run_parts"))


async def test_parts_are_no_occurrences_of_their_job(store: Store) -> None:
    workers = await crew(store, 2)
    scheduler = Scheduler(store, SetClock(at(0)))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    policy = on("all", overlap=Overlap.SKIP, pause_after_failures=2)
    job = new_job(every(60), next_due=at(0), policy=policy)
    await insert(store, job)
    await scheduler.planner.run_once()
    for worker in workers:
        worker.executor.clock.time = at(1)  # type: ignore[attr-defined]
        worker.outcome = Failed(Reason.EXIT_CODE, "3", retryable=False)
    for _ in range(20):
        for worker in workers:
            await worker.turn()
    found = await store.jobs.get_job(NAMESPACE, job.job_id)
    assert found is not None
    assert found.definition.needs == "number"
    runs = await store.runs.list_runs(NAMESPACE, found, [*RunState], None, 100)
    assert [(run.state, run.cause) for run in runs if run.state.is_final] == [(RunState.FAILED, Cause.SCHEDULE)]
    assert [is_part(run.run_id) for run in await store.runs.list_runs(NAMESPACE, None, [*RunState], None, 100)].count(
        True
    ) == 0
    facts = await store.ledger.read_ledger(NAMESPACE, job.job_id, at(-10), at(5), at(5), 100)
    assert facts is not None
    assert len(facts.runs) == 1
    assert found.state.value == "scheduled", "two failed parts are one failed run"
    part = await store.runs.get_run(NAMESPACE, part_id(runs[-1].run_id, 0))
    assert part is not None
    assert part.cause is Cause.PART


async def test_a_change_of_the_job_leaves_parts_where_they_are(store: Store) -> None:
    workers = await crew(store, 2)
    workers[1].holding = asyncio.Event()
    job_id, run_id = await submitted(store, on(3))
    for _ in range(4):
        for worker in workers:
            await worker.turn()
    before = {row["run_id"]: row["lane_id"] for row in await rows(store, "live_runs") if is_part(row["run_id"])}
    changed = definition(once(at(-1)), policy=on("all"), priority=9)
    assert await store.jobs.change_job(NAMESPACE, job_id, changed, 1, None, at(0), "ada") is not None
    after = {row["run_id"]: row["lane_id"] for row in await rows(store, "live_runs") if is_part(row["run_id"])}
    assert before == after
    assert before
    workers[1].holding.set()
    third = await Worker(store).join()
    await turns(store, *workers, third)
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED


async def test_fanning_out_twice_or_under_an_old_fence_makes_nothing(store: Store) -> None:
    workers = await crew(store, 2)
    workers[0].holding = workers[1].holding = asyncio.Event()
    _, run_id = await submitted(store, on("all"))
    for _ in range(3):
        await workers[0].turn()
    [row] = [row for row in await rows(store, "live_runs") if row["run_id"] == run_id]
    facts = await store.parts.fan_out_facts(run_id, row["fence"])
    assert facts is not None
    assert await store.parts.fan_out(run_id, row["fence"], facts, [1, 2, 3, 4], at(0), None) == 0
    assert await store.parts.fan_out_facts(run_id, row["fence"] - 1) is None
    parts = [part.run_id for part in await store.parts.parts_of(run_id)]
    assert await store.parts.give_parts(run_id, row["fence"] + 1, {parts[1]: 1}) == 0
    assert await store.parts.lose_parts(run_id, row["fence"] + 1, parts, at(0)) == 0
    workers[0].executor.attempts.stop_all()
    await asyncio.sleep(0.05)


async def test_an_executor_that_leaves_hands_on_what_it_leads_and_does_not_wait_for_its_parts(store: Store) -> None:
    leader, other = await crew(store, 2)
    leader.holding, other.holding = asyncio.Event(), asyncio.Event()
    _, run_id = await submitted(store, on("all"))
    for _ in range(4):
        await leader.turn()
        await other.turn()
    held = {row["run_id"]: row["executor_id"] for row in await rows(store, "live_runs")}
    assert held[run_id] == leader.node_id
    leader.executor.receiver.claiming = False
    leader.executor.attempts.give_back_unstarted()
    await asyncio.sleep(0.05)
    await leader.executor.recorder.run_once()
    assert len(leader.executor.attempts) == 1, "its own part goes on"
    await other.turn()
    held = {row["run_id"]: row["executor_id"] for row in await rows(store, "live_runs")}
    assert held[run_id] == other.node_id
    leader.holding.set()
    other.holding.set()
    await turns(store, leader, other)
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED
    assert [len(leader.ran), len(other.ran)] == [1, 1]


async def test_a_job_that_goes_to_one_by_now_has_one_part(store: Store) -> None:
    [worker] = await crew(store, 1)
    worker.holding = asyncio.Event()
    job_id, run_id = await submitted(store, on("all"))
    await worker.executor.receiver.run_once()
    changed = definition(once(at(-1)))
    assert await store.jobs.change_job(NAMESPACE, job_id, changed, 1, None, at(0), "ada") is not None
    worker.holding.set()
    others = await crew(store, 2)
    await turns(store, worker, *others)
    assert sum(len(each.ran) for each in (worker, *others)) == 1
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED


async def test_lines_of_parts_are_found_in_the_logs_of_their_job_page_by_page(store: Store) -> None:
    workers = await crew(store, 3)
    for worker in workers:
        worker.says = "of part {index}"
    job_id, run_id = await submitted(store, on("all"))
    await turns(store, *workers)
    clock, bus = cast("DatabaseClock", SetClock(at(60))), cast("EventBus", None)
    runs = RunOperations(store.runs, store.jobs, clock, IdSource(3), bus)
    logs = LogOperations(runs, LogSource(store.logs), LogWatch(store.logs, Bell()), clock.now, store.parts)
    caller = Caller("test", NAMESPACE, "default")
    found: list[str] = []
    start: tuple[UUID, Place] | None = None
    for _ in range(10):
        page = await logs.search_job(caller, job_id, "of part", False, start, 1)
        found += [match.line.text for match in page.matches]
        assert all(match.run_id != run_id and is_part(match.run_id) for match in page.matches)
        if page.next_run is None:
            break
        start = page.next_run, page.next_place
    assert found == ["of part 0", "of part 1", "of part 2"]
    whole = await logs.search_job(caller, job_id, "of part", False, None, 100)
    assert [match.line.text for match in whole.matches] == found
