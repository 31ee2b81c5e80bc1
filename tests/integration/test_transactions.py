"""A job's own work and the end of its run in one transaction: both, or neither, whatever breaks in between."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from crew import the_run
from sample_jobs import NAMESPACE, claim, due_job, insert, returned, rows
from transaction_ground import Ground

from hourhand import Context, RunTaken
from hourhand.blobs.folder import FolderBlobs
from hourhand.model.errors import BlobsUnavailable
from hourhand.model.outcome import Cancelled
from hourhand.model.retry import RetryPolicy
from hourhand.model.run_blobs import result_key
from hourhand.model.states import Reason, RunState
from hourhand.ports.stores import Finish
from hourhand.store.completions import Completion
from hourhand.wiring import Store


async def test_the_work_and_the_end_of_the_run_are_committed_together(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        ctx.log("before the end")
        async with ctx.transaction(result={"rows": 1}) as db:
            await db.execute(*ground.effect(ctx))
            assert (await the_run(store, ctx.run_id)).state in (RunState.CLAIMED, RunState.RUNNING)
        run = await the_run(store, ctx.run_id)
        assert (run.state, run.result) == (RunState.SUCCEEDED, {"rows": 1}), "it is over when the block is"
        lines = await store.logs.read_logs(ctx.run_id, 0, 0, 10)
        assert [line.text for line in lines] == ["before the end"], "whoever sees the end can read the log"

    ground = await Ground(store, handler).open()
    writing = asyncio.create_task(keep_writing(ground))
    await ground.executor.drain()
    await ground.executor.attempts.all_ended()
    writing.cancel()
    assert await ground.effects() == 1
    [row] = await rows(store, "runs")
    assert (row["state"], row["attempt"], row["started_at"] is not None) == (RunState.SUCCEEDED, 1, True)
    assert ground.executor.recorder.late_outcomes == 0
    assert ground.executor.recorder.unwritten() == set()
    assert ground.executor.capacity.facts()["inline"]["used"] == 0


async def keep_writing(ground: Ground) -> None:
    while True:
        await ground.executor.recorder.run_once()
        await asyncio.sleep(0.01)


async def test_an_exception_in_the_block_takes_everything_back_and_fails_the_attempt(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            raise FileNotFoundError("report.csv")  # an OSError, but not one of the database

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    assert await ground.effects() == 0
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"]) == (RunState.FAILED, "exception")
    assert row["error"].startswith("FileNotFoundError: report.csv")


async def test_a_failed_attempt_is_retried_and_its_work_counts_once(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            if ctx.attempt < 3:
                raise ConnectionError("not yet")

    ground = await Ground(store, handler).open(retry=RetryPolicy(3, delays_seconds=(0.001,)))
    await ground.executor.drain()
    assert [row["attempt"] for row in await rows(store, "effects")] == [3]


async def test_an_attempt_whose_run_was_given_to_another_commits_nothing(store: Store) -> None:
    go_on = asyncio.Event()
    raised: list[BaseException] = []

    async def handler(ctx: Context) -> None:
        try:
            async with ctx.transaction() as db:
                await db.execute(*ground.effect(ctx))
                await go_on.wait()
        except RunTaken as error:
            raised.append(error)
            raise

    ground = await Ground(store, handler).open()
    await ground.until_in_hand()
    [row] = await rows(store, "live_runs")
    held = next(iter(ground.executor.attempts._in_hand.values())).claim
    await store.live_runs.requeue_runs([returned(held, held.ready_at, lost=True)])  # as the reaper does
    [newer] = await claim(store, 99, ground.executor.clock.now())
    go_on.set()
    await ground.executor.attempts.all_ended()
    await ground.executor.recorder.run_once()
    assert len(raised) == 1
    assert await ground.effects() == 0
    run = await the_run(store, row["run_id"])
    assert (run.state, run.attempt) == (RunState.CLAIMED, newer.attempt)


async def test_cancel_wins_over_a_transaction_that_has_not_ended(store: Store) -> None:
    go_on = asyncio.Event()

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            await go_on.wait()

    ground = await Ground(store, handler).open()
    await ground.until_in_hand()
    [row] = await rows(store, "live_runs")
    await store.runs.cancel_runs(NAMESPACE, [row["run_id"]], "cancelled", ground.executor.clock.now())
    go_on.set()  # it has not heard of the cancel yet
    await ground.executor.attempts.all_ended()
    await ground.executor.recorder.run_once()
    assert await ground.effects() == 0
    assert (await the_run(store, row["run_id"])).state is RunState.CANCELLED


async def test_an_attempt_that_is_stopped_inside_the_block_takes_everything_back(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            await asyncio.Event().wait()

    ground = await Ground(store, handler).open()
    await ground.until_in_hand()
    ground.executor.attempts.stop_all()
    await ground.executor.attempts.all_ended()
    await ground.executor.recorder.run_once()
    assert await ground.effects() == 0
    [row] = await rows(store, "live_runs")
    assert row["state"] == RunState.QUEUED


async def test_what_a_handler_does_after_its_commit_changes_nothing(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
        committed.release()
        if ctx.payload["then"] == "fail":
            raise ValueError("too late to fail")
        await asyncio.Event().wait()

    committed = asyncio.Semaphore(0)
    ground = await Ground(store, handler).open(payload={"then": "fail"})
    await insert(store, due_job(ground.executor.clock.now(), payload={"then": "wait"}))
    await ground.until_in_hand()
    async with asyncio.timeout(10):
        await committed.acquire()
        await committed.acquire()
    for held in [running.claim for running in ground.executor.attempts._in_hand.values()]:
        ground.executor.attempts.stop(held.run_id, held.fence, Cancelled())
    await ground.executor.attempts.all_ended()
    await ground.executor.recorder.run_once()
    assert {row["state"] for row in await rows(store, "runs")} == {RunState.SUCCEEDED}
    assert ground.executor.recorder.late_outcomes == 0
    assert await ground.effects() == 2


async def test_a_stop_in_the_middle_of_the_commit_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    committing, go_on = asyncio.Event(), asyncio.Event()
    complete = Completion.complete

    async def complete_slowly(opened: Completion, finish: Finish) -> bool:
        committing.set()
        await go_on.wait()
        return await complete(opened, finish)

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))

    monkeypatch.setattr(Completion, "complete", complete_slowly)
    ground = await Ground(store, handler).open()
    await ground.until_in_hand()
    await asyncio.wait_for(committing.wait(), 10)
    ground.executor.attempts.stop_all()
    go_on.set()
    await ground.executor.attempts.all_ended()
    await ground.executor.recorder.run_once()
    [row] = await rows(store, "runs")
    assert row["state"] == RunState.SUCCEEDED
    assert ground.executor.recorder.late_outcomes == 0, "nothing else was said about a run that had ended"
    assert await ground.effects() == 1


async def test_a_run_is_completed_once(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
        with pytest.raises(RuntimeError, match="the run is complete"):
            async with ctx.transaction():
                raise AssertionError("not reached")

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    assert await ground.effects() == 1


async def test_a_transaction_that_the_handler_broke_is_not_committed(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            try:
                await db.execute("SELECT 1 / 0")
            except asyncpg.DivisionByZeroError:
                return  # the transaction cannot be saved by looking away

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    assert await ground.effects() == 0
    [row] = await rows(store, "runs")
    assert row["state"] == RunState.FAILED


async def test_a_result_that_cannot_be_stored_commits_nothing(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction(result="x" * 300_000) as db:
            await db.execute(*ground.effect(ctx))

    ground = await Ground(store, handler).open(retry=RetryPolicy(3))
    await ground.executor.drain()
    assert await ground.effects() == 0
    [row] = await rows(store, "runs")
    assert (row["state"], row["attempt"]) == (RunState.FAILED, 1)
    assert "300002 bytes" in row["error"]


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    made = FolderBlobs(tmp_path / "blobs")
    await made.check()
    return made


async def test_a_large_result_is_in_its_blob_before_the_work_is_committed(store: Store, blobs: FolderBlobs) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction(result="x" * 300_000) as db:
            await db.execute(*ground.effect(ctx))

    ground = await Ground(store, handler, blobs=blobs).open()
    await ground.executor.drain()

    assert await ground.effects() == 1
    [row] = await rows(store, "runs")
    run = await the_run(store, row["run_id"])
    assert run.state is RunState.SUCCEEDED
    assert run.result_reference is not None
    kept = b"".join([piece async for piece in blobs.get(result_key(run.run_id, run.result_reference.fence))])
    assert kept == b'"' + b"x" * 300_000 + b'"'
    assert run.result_reference.digest == hashlib.sha256(kept).hexdigest()


class Away(FolderBlobs):
    async def put(self, key: str, content: Any) -> Any:
        raise BlobsUnavailable("the blobs in s3://nowhere cannot be used: nobody listens there")


@pytest.mark.parametrize(
    ("size", "kind", "reason"),
    [(400_000, FolderBlobs, Reason.RESULT_TOO_LARGE), (300_000, Away, Reason.OUTPUT_NOT_KEPT)],
    ids=["too large for a blob", "storage away"],
)
async def test_a_large_result_that_cannot_be_kept_commits_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kind: type[FolderBlobs], reason: Reason
) -> None:
    monkeypatch.setattr("hourhand.executor.outputs._PAUSE_SECONDS", 0.001)
    (tmp_path / "blobs").mkdir()

    async def handler(ctx: Context) -> None:
        async with ctx.transaction(result="x" * size) as db:
            await db.execute(*ground.effect(ctx))

    ground = await Ground(store, handler, blobs=kind(tmp_path / "blobs")).open()
    await ground.executor.drain()

    assert await ground.effects() == 0
    [row] = await rows(store, "runs")
    assert (row["state"], row["reason"]) == (RunState.FAILED, reason)


async def test_the_result_is_taken_as_it_is_at_the_end_of_the_block(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        result: dict[str, Any] = {}
        async with ctx.transaction(result) as db:
            result["rows"] = await db.fetchval("SELECT 42")

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    [row] = await rows(store, "runs")
    assert (await the_run(store, row["run_id"])).result == {"rows": 42}


async def test_nothing_of_a_session_is_left_to_the_next_handler(store: Store) -> None:
    seen: list[tuple[str, int]] = []

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            locks = await db.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
            seen.append((await db.fetchval("SHOW search_path"), locks))
            await db.execute("SET search_path TO nowhere")
            await db.execute("SELECT pg_advisory_lock(1)")
            await db.execute("CREATE TEMPORARY TABLE scratch (n int)")

    ground = await Ground(store, handler, connections=1).open(jobs=3)
    await ground.executor.drain()
    assert seen == [('"$user", public', 0)] * 3
    assert {row["state"] for row in await rows(store, "runs")} == {RunState.SUCCEEDED}


async def test_more_handlers_than_connections_wait_for_their_turn(store: Store) -> None:
    active = most = 0

    async def handler(ctx: Context) -> None:
        nonlocal active, most
        async with ctx.transaction() as db:
            active += 1
            most = max(most, active)
            await db.execute(*ground.effect(ctx))
            await db.execute("SELECT pg_sleep(0.01)")
            active -= 1

    ground = await Ground(store, handler, connections=2).open(jobs=50)
    await ground.executor.drain()
    assert await ground.effects() == 50
    assert most == 2
