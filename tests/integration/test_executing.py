"""Receiver, attempts and recorder together, on a real database and its real clock."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from crew import Executor, the_run
from sample_jobs import NAMESPACE, START, at, claim, due_job, insert, rows

from hourhand.executor.recorder import BATCH_MAX, Recorder
from hourhand.model.ids import scheduled_run_id
from hourhand.model.outcome import Cancelled, Failed, Interrupted, Outcome, Succeeded
from hourhand.model.policy import Policy
from hourhand.model.resources import Resources
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import Reason, RunState
from hourhand.ports.job_kind import Task
from hourhand.ports.log_stores import LogChunk, LogStore
from hourhand.ports.stores import Finish, LiveRunStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.wiring import Store


async def nothing(task: Task) -> Outcome:
    return Succeeded()


async def for_ever(task: Task) -> Outcome:
    await asyncio.Event().wait()
    return Succeeded()


async def test_two_thousand_jobs_run_once_each_and_slots_are_never_exceeded(store: Store) -> None:
    calls: Counter[UUID] = Counter()

    async def counted(task: Task) -> Outcome:
        calls[task.run_id] += 1
        await asyncio.sleep(0)
        task.log("stdout", f"attempt {task.attempt}")
        return Succeeded({"fence": task.fence})

    executors = [Executor(store, counted, slots) for slots in (100, 37)]
    for executor in executors:
        await executor.join()
    now = executors[0].clock.now()
    for _ in range(4):
        await insert(store, *(due_job(now, priority=n % 10) for n in range(500)))
    await asyncio.gather(*(executor.drain() for executor in executors))

    history = await rows(store, "runs")
    assert len(history) == len(calls) == 2000
    assert set(calls.values()) == {1}
    assert {(row["state"], row["attempt"]) for row in history} == {(RunState.SUCCEEDED, 1)}
    assert all(1 < executor.kind.most_active <= slots for executor, slots in zip(executors, (100, 37), strict=True))
    assert {row["executor_id"] for row in history} == {executor.membership.node_id for executor in executors}
    assert await rows(store, "attempts") == []


async def test_an_attempt_is_told_what_its_job_has_declared(store: Store) -> None:
    told: list[Resources | None] = []

    async def tells(task: Task) -> Outcome:
        told.append(task.resources)
        return Succeeded()

    executor = await Executor(store, tells).join()
    declared = Resources(pids=20)
    await insert(store, due_job(executor.clock.now(), policy=Policy(resources=declared)), due_job(executor.clock.now()))
    await executor.drain()
    assert sorted(told, key=bool) == [None, declared]


async def test_an_executor_fills_its_slots_and_takes_no_more_until_one_is_free(store: Store) -> None:
    go_on = asyncio.Event()

    async def waiting(task: Task) -> Outcome:
        await go_on.wait()
        return Succeeded()

    executor = await Executor(store, waiting, slots=90).join()
    now = executor.clock.now()
    await insert(store, *(due_job(now) for _ in range(200)))
    for _ in range(5):
        await executor.turn()
    states = Counter(row["state"] for row in await rows(store, "live_runs"))
    assert (executor.kind.active, states[RunState.QUEUED]) == (90, 110)
    go_on.set()
    await executor.drain()
    assert executor.kind.most_active == 90
    assert executor.capacity.facts()["inline"] == {"slots": 90, "used": 0}


async def test_no_run_starts_before_its_time_by_the_clock_of_the_database(store: Store) -> None:
    # The server is on this machine, so its clock is the one that time.time() shows.
    started: dict[UUID, float] = {}

    async def noted(task: Task) -> Outcome:
        started[task.run_id] = time.time()
        return Succeeded()

    executor = await Executor(store, noted).join()
    now = executor.clock.now()
    due = [now + timedelta(milliseconds=2 * n) for n in range(150)]
    jobs = [due_job(instant) for instant in due]
    await insert(store, *jobs)
    await executor.drain()
    early = [
        instant.timestamp() - started[scheduled_run_id(instant, job.job_id)]
        for instant, job in zip(due, jobs, strict=True)
    ]
    assert max(early) <= 0
    assert all(row["started_at"] >= row["scheduled_for"] for row in await rows(store, "runs"))


async def test_a_run_that_always_fails_is_retried_and_every_attempt_is_kept(store: Store) -> None:
    async def failing(task: Task) -> Outcome:
        return Failed(Reason.EXIT_CODE, f"attempt {task.attempt} failed")

    executor = await Executor(store, failing).join()
    job = due_job(executor.clock.now(), retry=RetryPolicy(3, delays_seconds=(0.001,)))
    await insert(store, job)
    await executor.drain()
    [row] = await rows(store, "runs")
    run = await the_run(store, row["run_id"])
    assert (run.state, run.reason, run.error, run.attempt) == (RunState.FAILED, "exit_code", "attempt 4 failed", 4)
    attempts = await store.runs.list_attempts(run.run_id)
    assert [(one.attempt, one.state, one.error) for one in attempts] == [
        (number, "failed", f"attempt {number} failed") for number in (1, 2, 3)
    ]


async def test_a_run_that_succeeds_at_last_is_a_success_with_its_failures_kept(store: Store) -> None:
    async def flaky(task: Task) -> Outcome:
        return Failed(Reason.CONNECTION, "no") if task.attempt < 3 else Succeeded({"attempt": task.attempt})

    executor = await Executor(store, flaky).join()
    await insert(store, due_job(executor.clock.now(), retry=RetryPolicy(3, delays_seconds=(0.001,))))
    await executor.drain()
    [row] = await rows(store, "runs")
    run = await the_run(store, row["run_id"])
    assert (run.state, run.result, run.attempt) == (RunState.SUCCEEDED, {"attempt": 3}, 3)
    assert len(await store.runs.list_attempts(run.run_id)) == 2


async def test_an_attempt_that_takes_too_long_ends_as_timed_out(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    await insert(store, due_job(executor.clock.now(), timeout_seconds=0.02, retry=RetryPolicy(0)))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"]) == (RunState.TIMED_OUT, "timeout")
    assert row["ended_at"] - row["started_at"] >= timedelta(seconds=0.02)
    assert executor.kind.active == 0


async def test_a_timed_out_attempt_is_retried_like_a_failed_one(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    retry = RetryPolicy(1, delays_seconds=(0.001,))
    await insert(store, due_job(executor.clock.now(), timeout_seconds=0.01, retry=retry))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert (row["state"], row["attempt"]) == (RunState.TIMED_OUT, 2)
    assert [one.state for one in await store.runs.list_attempts(row["run_id"])] == ["timed_out"]


async def held(store: Store, executor: Executor) -> UUID:
    """A run in the executor's hands, its attempt going on."""
    await insert(store, due_job(executor.clock.now()))
    await executor.turn()
    async with asyncio.timeout(5):
        while not executor.kind.active:
            await asyncio.sleep(0)
    [row] = await rows(store, "live_runs")
    run_id: UUID = row["run_id"]
    return run_id


async def test_a_running_attempt_that_is_cancelled_ends_as_cancelled(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    run_id = await held(store, executor)
    assert await store.runs.cancel_runs(NAMESPACE, [run_id], "cancelled", executor.clock.now()) == {run_id: False}
    assert (await the_run(store, run_id)).state is RunState.CANCELLING
    await executor.stop_cancelled()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    run = await the_run(store, run_id)
    assert (run.state, run.reason) == (RunState.CANCELLED, "cancelled")
    assert executor.kind.active == 0


async def test_an_attempt_that_fails_while_it_is_being_cancelled_is_not_retried(store: Store) -> None:
    fail = asyncio.Event()

    async def failing(task: Task) -> Outcome:
        await fail.wait()
        return Failed(Reason.EXIT_CODE, "1")

    executor = await Executor(store, failing).join()
    run_id = await held(store, executor)
    await store.runs.cancel_runs(NAMESPACE, [run_id], "cancelled", executor.clock.now())
    fail.set()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert (await the_run(store, run_id)).state is RunState.CANCELLED


async def test_an_executor_that_stops_gives_its_runs_back_without_using_up_a_retry(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    run_id = await held(store, executor)
    executor.attempts.stop_all()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert (await the_run(store, run_id)).state is RunState.QUEUED
    [again] = await claim(store, 99, executor.clock.now() + timedelta(seconds=1))
    assert (again.failures, again.losses, again.attempt) == (0, 0, 2)
    assert [one.reason for one in await store.runs.list_attempts(run_id)] == ["shutdown"]


async def test_a_kind_that_breaks_fails_its_run_and_the_executor_lives_on(store: Store) -> None:
    async def broken(task: Task) -> Outcome:
        raise RuntimeError("kinds must not raise")

    executor = await Executor(store, broken).join()
    await insert(store, due_job(executor.clock.now(), retry=RetryPolicy(0)))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert row["state"] == RunState.FAILED
    assert "kinds must not raise" in row["error"]
    assert executor.capacity.facts()["inline"]["used"] == 0


async def test_a_run_that_goes_on_is_shown_as_running(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    run_id = await held(store, executor)
    async with asyncio.timeout(5):
        while (await the_run(store, run_id)).state is not RunState.RUNNING:
            await executor.recorder.run_once()
    executor.attempts.stop_all()
    await executor.attempts.all_ended()


async def test_the_whole_log_can_be_read_once_the_end_is_seen(store: Store) -> None:
    async def talking(task: Task) -> Outcome:
        for number in range(30):
            task.log("stdout", f"line {number}")
            await asyncio.sleep(0)
        return Succeeded()

    executor = await Executor(store, talking).join()
    await insert(store, *(due_job(executor.clock.now()) for _ in range(20)))
    await executor.drain()
    for row in await rows(store, "runs"):
        lines = await store.logs.read_logs(row["run_id"], 0, 0, 100)
        assert [line.text for line in lines] == [f"line {number}" for number in range(30)]


# --- stops at awkward moments -----------------------------------------------------------------------------


async def test_an_attempt_that_is_stopped_before_its_first_step_ends_all_the_same(store: Store) -> None:
    executor = await Executor(store, nothing).join()
    await insert(store, due_job(executor.clock.now() - timedelta(seconds=1)))
    [one] = await claim(store, executor.membership.node_id, executor.clock.now())
    executor.capacity.take(executor.kind.slot_class_of("number"), 1)
    executor.attempts.start(one)
    assert executor.attempts.stop(one.run_id, one.fence, Cancelled())
    async with asyncio.timeout(2):
        await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert (await the_run(store, one.run_id)).state is RunState.CANCELLED
    assert executor.capacity.facts()["inline"]["used"] == 0


async def test_an_attempt_that_waits_for_its_time_can_be_given_back(store: Store) -> None:
    executor = await Executor(store, nothing).join()
    await insert(store, due_job(executor.clock.now() + timedelta(hours=1)))
    [one] = await claim(store, executor.membership.node_id, executor.clock.now() + timedelta(hours=2))
    executor.capacity.take(executor.kind.slot_class_of("number"), 1)
    executor.attempts.start(one)
    executor.attempts.give_back_unstarted()
    await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert (await the_run(store, one.run_id)).state is RunState.QUEUED


async def test_a_run_that_came_back_to_the_executor_that_lost_it_can_still_be_stopped(store: Store) -> None:
    """The executor was held for dead, went on under another number, and claimed the run that it still runs."""
    ends: dict[int, asyncio.Event] = {}

    async def until_told(task: Task) -> Outcome:
        await ends.setdefault(task.fence, asyncio.Event()).wait()
        return Succeeded()

    executor = await Executor(store, until_told).join()
    await insert(store, due_job(executor.clock.now() - timedelta(seconds=1)))
    claims = []
    for number in (executor.membership.node_id, 99):
        [one] = await claim(store, number, executor.clock.now() + timedelta(hours=1))
        claims.append(one)
        executor.capacity.take(executor.kind.slot_class_of("number"), 1)
        executor.attempts.start(one)
        await asyncio.sleep(0)
        if len(claims) == 1:
            recorder = Recorder(store.live_runs, store.logs, executor.clock, lambda: 0.5)
            recorder.ended(one, None, executor.clock.now() - timedelta(seconds=1), Interrupted())
            await recorder.run_once()
    while len(ends) < 2:
        await asyncio.sleep(0)
    ends[claims[0].fence].set()
    while executor.kind.active > 1:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(executor.attempts) == 1, "the newer attempt is still in hand"
    assert executor.attempts.stop(claims[1].run_id, claims[1].fence, Cancelled())
    ends[claims[1].fence].set()
    await executor.attempts.all_ended()


# --- what the recorder must survive -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [
        Failed(Reason.EXCEPTION, "FileNotFoundError: 'report-\udcff.csv'", retryable=False),
        Failed(Reason.EXCEPTION, "again", retry_after_seconds=float("nan")),
        Succeeded({"text": "a\x00b"}),
        Succeeded({"text": "\udcff"}),
    ],
    ids=[
        "half a surrogate pair in an error",
        "a delay that is no number",
        "NUL in a result",
        "half a pair in a result",
    ],
)
async def test_no_outcome_holds_up_those_of_others(store: Store, poison: Outcome) -> None:
    executor = await Executor(store, nothing).join()
    await insert(store, due_job(), due_job())
    bad, good = await claim(store, 1)
    executor.recorder.ended(bad, at(0), at(1), poison)
    executor.recorder.ended(good, at(0), at(1), Succeeded())
    await executor.recorder.run_once()
    assert (await the_run(store, good.run_id)).state is RunState.SUCCEEDED
    assert (await the_run(store, bad.run_id)).state is not RunState.CLAIMED


async def test_a_log_line_that_cannot_be_stored_as_it_is_does_not_hold_up_outcomes(store: Store) -> None:
    async def talking(task: Task) -> Outcome:
        task.log("stdout", "report-\udcff.csv")
        return Succeeded()

    executor = await Executor(store, talking).join()
    await insert(store, due_job(executor.clock.now()))
    await executor.drain()
    [row] = await rows(store, "runs")
    assert row["state"] == RunState.SUCCEEDED


class Notes:
    """Stands for both stores and notes in which order they are written."""

    def __init__(self) -> None:
        self.lines: set[UUID] = set()
        self.ended_without_lines: list[UUID] = []
        self.during_append: list[Any] = []

    async def append_logs(self, chunks: list[LogChunk]) -> None:
        while self.during_append:
            self.during_append.pop()()
        await asyncio.sleep(0)
        self.lines |= {chunk.run_id for chunk in chunks}

    async def finish_runs(self, finishes: list[Finish]) -> set[UUID]:
        ended = {finish.run_id for finish in finishes}
        self.ended_without_lines += ended - self.lines
        return ended


async def some_claims(store: Store, count: int) -> list[Any]:
    await insert(store, *(due_job(at(-n)) for n in range(count)))
    return await claim(store, 1, START, count)


def noting_recorder(notes: Notes) -> Recorder:
    return Recorder(cast("LiveRunStore", notes), cast("LogStore", notes), DatabaseClock(), lambda: 0.5)


async def test_lines_are_stored_before_the_end_however_many_there_are(store: Store) -> None:
    notes = Notes()
    recorder = noting_recorder(notes)
    claims = await some_claims(store, BATCH_MAX)
    for one in claims:  # two rounds of one row each: marks are not joined with what follows them
        recorder.log(LogChunk(one.run_id, 1, 1, [START], [0], ["left out"], 7))
    for one in reversed(claims):
        recorder.log(LogChunk(one.run_id, 1, 8, [START], [0], ["last"]))
    last = claims[0]
    notes.lines.clear()
    recorder.ended(last, at(0), at(1), Succeeded())
    pending = len(recorder._log_writer._chunks)
    await recorder.run_once()
    assert pending > BATCH_MAX
    assert [chunk for chunk in recorder._log_writer._chunks if chunk.run_id == last.run_id] == [], (
        "its last line is still unwritten"
    )


async def test_lines_that_come_while_others_are_written_are_stored_before_their_end(store: Store) -> None:
    notes = Notes()
    recorder = noting_recorder(notes)
    first, second = await some_claims(store, 2)
    recorder.log(LogChunk(first.run_id, 1, 1, [START], [0], ["a line"]))

    def another_ends() -> None:
        recorder.log(LogChunk(second.run_id, 1, 1, [START], [0], ["its only line"]))
        recorder.ended(second, at(0), at(1), Succeeded())

    notes.during_append.append(another_ends)
    await recorder.run_once()
    await recorder.run_once()
    assert notes.ended_without_lines == []
