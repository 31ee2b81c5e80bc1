"""Outcomes while the database is away: none is lost, whatever becomes of the executor, and late ones are shown."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from crew import Executor, the_run
from sample_jobs import at, claim, due_job, insert, returned, rows, succeeded

from hourhand.executor import recorder as recorder_module
from hourhand.executor.journal import SUFFIX, Journal
from hourhand.executor.keeper import Keeper
from hourhand.executor.recorder import Recorder
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.outcome import Failed, Interrupted, Succeeded
from hourhand.model.run import Claim
from hourhand.model.states import Reason, RunState
from hourhand.ports.log_stores import LogChunk
from hourhand.ports.stores import Finish
from hourhand.runtime.clock import DatabaseClock
from hourhand.store.live_runs import LiveRuns
from hourhand.wiring import Store


class Line(LiveRuns):
    """The way to the database, which can be cut."""

    is_cut = False
    loses_answers = False
    fault: Exception | None = None
    """What the next write meets."""
    ill_fated: UUID | None = None
    """A run whose outcome is not taken, for no fault of its own."""

    async def finish_runs(self, finishes: Sequence[Finish]) -> set[UUID]:
        if self.is_cut:
            raise DatabaseUnavailable("away")
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        if self.ill_fated in [finish.run_id for finish in finishes]:
            raise asyncpg.InternalServerError("cache lookup failed")
        done = await super().finish_runs(finishes)
        if self.loses_answers:
            raise DatabaseUnavailable("the answer was lost")
        return done


class Desk:
    """A recorder with its journal."""

    def __init__(self, store: Store, folder: Path, bytes_max: int = 1_000_000) -> None:
        self.folder = folder
        self.line = Line(store.database, store.names)
        self.journal = Journal(folder, "executor", bytes_max)
        self.recorder = Recorder(self.line, store.logs, DatabaseClock(), lambda: 0.5, Keeper(self.journal))

    async def write(self) -> None:
        """A turn of the recorder; the database may be away."""
        try:
            await self.recorder.run_once()
        except DatabaseUnavailable:
            await self.recorder.keep_rest()

    def die(self) -> None:
        """As a kill -9 does, the kernel lets go of the file."""
        self.journal.close()

    async def adopt(self) -> int:
        adopted = 0
        for orphan in self.journal.orphans():
            if not await self.recorder.deliver(orphan.entries):
                orphan.release()
                continue
            adopted += len(orphan.entries)
            orphan.remove()
        return adopted

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    async def settled(self) -> None:
        """Waits for the journal to be as it should be."""
        assert self.recorder._keeper is not None
        await self.recorder._keeper.kept()


async def claims_of(store: Store, count: int) -> list[Claim]:
    await insert(store, *(due_job(at(-n)) for n in range(count)))
    return await claim(store, 1, at(0), count)


async def test_outcomes_are_delivered_when_the_database_is_back_and_the_journal_is_gone(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path)
    claims = await claims_of(store, 10)
    desk.line.is_cut = True
    for one in claims[:5]:
        desk.recorder.ended(one, at(0), at(1), Succeeded({"n": 1}))
    await desk.write()
    for one in claims[5:]:  # kept as they come: nobody waits for the next try
        desk.recorder.ended(one, at(0), at(1), Succeeded({"n": 1}))
    await desk.settled()
    assert len(desk.files) == 1
    assert len(desk.files[0].read_bytes().splitlines()) == 10, "each once"
    desk.line.is_cut = False
    await desk.write()
    await desk.settled()
    assert desk.files == []
    assert {row["state"] for row in await rows(store, "runs")} == {RunState.SUCCEEDED}
    assert len(await rows(store, "runs")) == 10


async def test_an_executor_that_is_killed_while_the_database_is_away_loses_nothing(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path)
    good, bad, given_back = await claims_of(store, 3)
    desk.line.is_cut = True
    desk.recorder.ended(good, at(0), at(1), Succeeded({"rows": 42}))
    desk.recorder.ended(bad, at(0), at(1), Failed(Reason.EXCEPTION, "no"))
    desk.recorder.ended(given_back, at(0), at(1), Interrupted())
    await desk.write()
    desk.die()

    successor = Desk(store, tmp_path)
    assert await successor.adopt() == 3
    assert successor.files == []
    run = await the_run(store, good.run_id)
    assert (run.state, run.result) == (RunState.SUCCEEDED, {"rows": 42})
    [tried] = await store.runs.list_attempts(bad.run_id)
    assert (tried.state, tried.reason, tried.error) == ("failed", "exception", "no")
    assert (await the_run(store, given_back.run_id)).state is RunState.QUEUED


async def test_what_was_delivered_and_is_adopted_again_changes_nothing_and_is_not_late(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path)
    first, second = await claims_of(store, 2)
    desk.line.loses_answers = True
    desk.recorder.ended(first, at(0), at(1), Succeeded())
    desk.recorder.ended(second, at(0), at(1), Failed(Reason.EXCEPTION, "no"))
    await desk.write()
    desk.die()
    successor = Desk(store, tmp_path)
    assert await successor.adopt() == 2
    assert successor.recorder.late_outcomes == 0
    assert (await the_run(store, first.run_id)).state is RunState.SUCCEEDED
    assert [one.late_state for one in await store.runs.list_attempts(second.run_id)] == [None]


async def test_an_outcome_whose_answer_was_lost_is_not_counted_as_late(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, tmp_path)
    [one] = await claims_of(store, 1)
    desk.line.loses_answers = True
    desk.recorder.ended(one, at(0), at(1), Succeeded())
    await desk.write()
    desk.line.loses_answers = False
    await desk.write()
    assert desk.recorder.late_outcomes == 0
    assert desk.recorder.unwritten() == set()


async def test_a_late_outcome_is_refused_counted_and_shown_with_its_attempt(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, tmp_path)
    [late] = await claims_of(store, 1)
    await store.live_runs.requeue_runs([returned(late, lost=True)])  # as the reaper does
    [newer] = await claim(store, 2, at(60))
    desk.recorder.ended(late, at(0), at(30), Succeeded({"late": True}))
    await desk.recorder.run_once()
    assert desk.recorder.late_outcomes == 1
    [shown] = await store.runs.list_attempts(late.run_id)
    assert (shown.state, shown.reason, shown.late_state, shown.late_at) == (
        "lost",
        "executor_lost",
        "succeeded",
        at(30),
    )
    assert (await the_run(store, late.run_id)).state is RunState.CLAIMED
    assert await store.live_runs.finish_runs([succeeded(newer)]) == {newer.run_id}


async def test_a_late_outcome_of_a_run_that_another_has_finished_is_counted(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, tmp_path)
    [late] = await claims_of(store, 1)
    await store.live_runs.requeue_runs([returned(late, lost=True)])
    [newer] = await claim(store, 2, at(60))
    await store.live_runs.finish_runs([succeeded(newer)])
    desk.recorder.ended(late, at(0), at(30), Failed(Reason.EXCEPTION, "no"))
    await desk.recorder.run_once()
    assert desk.recorder.late_outcomes == 1
    [shown] = await store.runs.list_attempts(late.run_id)
    assert shown.late_state == "failed"
    assert (await the_run(store, late.run_id)).state is RunState.SUCCEEDED


async def test_a_write_that_hangs_does_not_keep_outcomes_out_of_the_journal(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "KEEP_AFTER_SECONDS", 0.01)
    desk = Desk(store, tmp_path)
    go_on = asyncio.Event()

    async def hanging(finishes: Any) -> set[UUID]:
        await go_on.wait()
        return await LiveRuns.finish_runs(desk.line, finishes)

    monkeypatch.setattr(desk.line, "finish_runs", hanging)
    first, second = await claims_of(store, 2)
    desk.recorder.ended(first, at(0), at(1), Succeeded())
    writing = asyncio.create_task(desk.recorder.run_once())
    async with asyncio.timeout(10):
        while not desk.files:
            await asyncio.sleep(0.005)
    desk.recorder.ended(second, at(0), at(1), Succeeded())
    await desk.settled()
    assert len(desk.files[0].read_bytes().splitlines()) == 2
    go_on.set()
    await writing
    await desk.write()
    await desk.settled()
    assert desk.files == []
    assert len(await rows(store, "runs")) == 2


async def test_a_journal_that_is_full_is_told_once_and_outcomes_wait_in_memory(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(store, tmp_path, bytes_max=5000)
    claims = await claims_of(store, 20)
    desk.line.is_cut = True
    for one in claims:
        desk.recorder.ended(one, at(0), at(1), Succeeded({"text": "x" * 1000}))
        await desk.write()
    assert capsys.readouterr().out.count("journal full") == 1
    desk.line.is_cut = False
    await desk.write()
    assert len(await rows(store, "runs")) == 20


@pytest.mark.parametrize(
    "fault",
    [asyncpg.DeadlockDetectedError("deadlock detected"), asyncpg.LockNotAvailableError("busy"), KeyError("a mistake")],
    ids=["a deadlock", "a lock", "a mistake of ours"],
)
async def test_a_fault_that_passes_does_not_change_what_an_attempt_said(
    store: Store, tmp_path: Path, fault: Exception
) -> None:
    desk = Desk(store, tmp_path)
    claims = await claims_of(store, 3)
    for one in claims:
        desk.recorder.ended(one, at(0), at(1), Succeeded({"n": 1}))
    desk.line.fault = fault
    for _ in range(2):
        with suppress(type(fault)):
            await desk.recorder.run_once()
    assert [(row["state"], row["error"]) for row in await rows(store, "runs")] == [(RunState.SUCCEEDED, None)] * 3
    assert (desk.recorder.unwritten(), desk.recorder.late_outcomes) == (set(), 0)
    await desk.settled()
    assert desk.files == []


async def test_a_fault_that_passes_leaves_the_batch_to_the_loop_and_outcomes_in_the_journal(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path)
    for one in await claims_of(store, 3):
        desk.recorder.ended(one, at(0), at(1), Succeeded())
    desk.line.fault = asyncpg.DeadlockDetectedError("deadlock detected")
    with pytest.raises(asyncpg.DeadlockDetectedError):
        await desk.recorder.run_once()
    assert len(desk.recorder.unwritten()) == 3
    await desk.settled()
    assert len(desk.files[0].read_bytes().splitlines()) == 3


async def test_an_outcome_that_is_not_taken_holds_up_no_other_and_is_said_again_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr(recorder_module, "_monotonic", lambda: now)
    desk = Desk(store, tmp_path)
    *claims, ill_fated, last = await claims_of(store, 9)
    desk.line.ill_fated = ill_fated.run_id
    for one in (*claims, ill_fated):
        desk.recorder.ended(one, at(0), at(1), Succeeded())
    wait = await desk.recorder.run_once()
    assert wait == pytest.approx(recorder_module.ASIDE_SECONDS_MIN)
    assert len(await rows(store, "runs")) == 7
    assert desk.recorder.unwritten() == {(ill_fated.run_id, ill_fated.fence)}
    assert str(ill_fated.run_id) in capsys.readouterr().out

    desk.recorder.ended(last, at(0), at(1), Succeeded())
    await desk.recorder.run_once()
    assert len(await rows(store, "runs")) == 8
    assert capsys.readouterr().out == "", "its time has not come: it was not tried"

    for _ in range(10):
        now += recorder_module.ASIDE_SECONDS_MAX
        with pytest.raises(asyncpg.InternalServerError):
            await desk.recorder.run_once()
    assert await desk.recorder.run_once() == pytest.approx(recorder_module.ASIDE_SECONDS_MAX)
    await desk.settled()
    assert str(ill_fated.run_id) in desk.files[0].read_text(), "it would survive the executor"

    desk.line.ill_fated = None
    now += recorder_module.ASIDE_SECONDS_MAX
    await desk.recorder.run_once()
    assert [row["state"] for row in await rows(store, "runs")] == [RunState.SUCCEEDED] * 9
    await desk.settled()
    assert (desk.files, desk.recorder.unwritten()) == ([], set())


async def test_what_an_ended_executor_left_stays_in_its_journal_until_all_of_it_is_taken(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path)
    good, ill_fated = await claims_of(store, 2)
    desk.line.is_cut = True
    for one in (good, ill_fated):
        desk.recorder.ended(one, at(0), at(1), Succeeded())
    await desk.write()
    desk.die()
    successor = Desk(store, tmp_path)
    successor.line.ill_fated = ill_fated.run_id
    assert await successor.adopt() == 0
    assert len(successor.files) == 1
    assert (await the_run(store, good.run_id)).state is RunState.SUCCEEDED
    successor.line.ill_fated = None
    assert await successor.adopt() == 2
    assert (await the_run(store, ill_fated.run_id)).state is RunState.SUCCEEDED
    assert (successor.files, successor.recorder.late_outcomes) == ([], 0)


@pytest.mark.parametrize(
    "result",
    ["a\x00b", "\udcff", reduce(lambda inner, _: [inner], range(10_000), [])],
    ids=["NUL", "half a pair of surrogates", "too deep"],
)
async def test_an_outcome_that_cannot_be_stored_ends_its_run_as_failed(
    store: Store, tmp_path: Path, result: Any
) -> None:
    desk = Desk(store, tmp_path)
    [one] = await claims_of(store, 1)
    desk.recorder.ended(one, at(0), at(1), Succeeded(result))
    await desk.recorder.run_once()
    run = await the_run(store, one.run_id)
    assert (run.state, run.reason) == (RunState.FAILED, "exception")
    assert "could not be stored" in str(run.error)


async def test_lines_that_nobody_takes_do_not_fill_the_memory(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, tmp_path)
    [one] = await claims_of(store, 1)
    text = "x" * 1_000_000
    for number in range(26):
        assert not desk.recorder.is_crowded()
        desk.recorder.log(LogChunk(one.run_id, 1, number + 1, [at(0)], [0], [text]))
    assert desk.recorder.is_crowded()
    await desk.recorder.run_once()
    assert not desk.recorder.is_crowded()


async def test_whoever_waits_for_the_log_waits_until_it_is_stored(store: Store) -> None:
    executor = Executor(store, lambda _: asyncio.sleep(0))  # type: ignore[arg-type, return-value]
    [one] = await claims_of(store, 1)
    await executor.recorder.logs_written()  # nothing to wait for
    executor.recorder.log(LogChunk(one.run_id, 1, 1, [at(0)], [0], ["a line"]))
    waiting = asyncio.create_task(executor.recorder.logs_written())
    await asyncio.sleep(0)
    assert not waiting.done()
    await executor.recorder.run_once()
    await waiting
    assert [line.text for line in await store.logs.read_logs(one.run_id, 0, 0, 10)] == ["a line"]
