"""Files and large results, from the attempt to what is left of it in rows and blobs."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from crew import Executor, the_run
from sample_jobs import due_job, insert, rows

from hourhand.blobs.folder import FolderBlobs
from hourhand.executor.outputs import Outputs
from hourhand.executor.settings import ExecutorSettings
from hourhand.model.errors import BlobsUnavailable
from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.retry import RetryPolicy
from hourhand.model.run_blobs import LargeResult, file_key, result_key
from hourhand.model.states import Reason, RunState
from hourhand.ports.job_kind import Task
from hourhand.runtime.clock import DatabaseClock
from hourhand.wiring import Store

SETTINGS = ExecutorSettings(output_files_max=5, output_bytes_max=1000, result_bytes_max=400_000)


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    made = FolderBlobs(tmp_path / "blobs")
    await made.check()
    return made


def outputs_in(blobs: Any, clock: DatabaseClock) -> Outputs:
    return Outputs(blobs, clock, SETTINGS)


async def run_one(store: Store, blobs: Any, function: Any, **fields: Any) -> Executor:
    clock = DatabaseClock()
    executor = await Executor(store, function, clock=clock, outputs=outputs_in(blobs, clock)).join()
    await insert(store, due_job(executor.clock.now(), **fields))
    await executor.drain()
    await executor.recorder.run_once()
    return executor


async def content(blobs: FolderBlobs, key: str) -> bytes:
    return b"".join([piece async for piece in blobs.get(key)])


def leaves(path: Path, **files: str) -> Any:
    async def leave(task: Task) -> Outcome:
        folder = path / str(task.fence)
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        assert task.keep_outputs is not None
        await task.keep_outputs(folder)
        return Succeeded()

    return leave


async def test_files_are_named_by_rows_and_kept_in_blobs(store: Store, blobs: FolderBlobs, tmp_path: Path) -> None:
    await run_one(store, blobs, leaves(tmp_path, report="all well", empty=""))

    [run] = await rows(store, "runs")
    files = await store.run_files.run_files(run["run_id"], 1, 10)
    assert run["state"] == RunState.SUCCEEDED
    assert [(file.name, file.size) for file in files] == [("empty", 0), ("report", 8)]
    assert files[1].digest == hashlib.sha256(b"all well").hexdigest()
    assert await content(blobs, file_key(run["run_id"], files[1].fence, files[1].number)) == b"all well"
    assert await store.run_files.find_run_file(run["run_id"], 1, "report") == files[1]
    assert await store.run_files.find_run_file(run["run_id"], 2, "report") is None


async def test_what_is_left_out_is_told_in_the_log(store: Store, blobs: FolderBlobs, tmp_path: Path) -> None:
    await run_one(store, blobs, leaves(tmp_path, small="x", large="x" * 2000))

    [run] = await rows(store, "runs")
    assert [file.name for file in await store.run_files.run_files(run["run_id"], 1, 10)] == ["small"]
    [line] = await store.logs.read_logs(run["run_id"], 0, 0, 10)
    assert line.text == "'large' is not kept: with its 2000 bytes all files together have more than 1000"


async def test_the_files_of_the_last_attempt_are_those_of_the_run(
    store: Store, blobs: FolderBlobs, tmp_path: Path
) -> None:
    async def fails_first(task: Task) -> Outcome:
        await leaves(tmp_path, report=f"attempt {task.attempt}")(task)
        return Succeeded() if task.attempt == 2 else Failed(Reason.EXCEPTION, "no", retry_after_seconds=0.0)

    await run_one(store, blobs, fails_first, retry=RetryPolicy(1, delays_seconds=(0.001,)))

    [run] = await rows(store, "runs")
    for attempt in (1, 2):
        [file] = await store.run_files.run_files(run["run_id"], attempt, 10)
        text = await content(blobs, file_key(run["run_id"], file.fence, file.number))
        assert text == f"attempt {attempt}".encode()


async def test_files_of_an_attempt_that_speaks_too_late_are_in_no_row(
    store: Store, blobs: FolderBlobs, tmp_path: Path
) -> None:
    clock = DatabaseClock()
    go_on, kept = asyncio.Event(), asyncio.Event()

    async def late(task: Task) -> Outcome:
        await leaves(tmp_path, report="late")(task)
        kept.set()
        await go_on.wait()
        return Succeeded()

    executor = await Executor(store, late, clock=clock, outputs=outputs_in(blobs, clock)).join()
    await insert(store, due_job(clock.now()))
    while not kept.is_set():
        await executor.turn()
    async with store.database.connection() as db:  # as if others had held it for dead, and run it
        await db.execute(f"UPDATE {store.database.schema}.live_runs SET fence = fence + 1, attempt = attempt + 1")
    go_on.set()
    while not executor.recorder.late_outcomes:
        await asyncio.sleep(0.01)
        await executor.recorder.run_once()

    assert await rows(store, "run_files") == []
    [run] = await rows(store, "live_runs")
    keys = [found.key async for batch in blobs.list("runs") for found in batch]
    assert len(keys) == 1
    assert str(run["run_id"]) in keys[0]


async def test_a_large_result_is_a_reference_in_the_row(store: Store, blobs: FolderBlobs) -> None:
    encoded = json.dumps("x" * 300_000).encode()

    async def much(task: Task) -> Outcome:
        return Succeeded(LargeResult(encoded))

    await run_one(store, blobs, much)

    [row] = await rows(store, "runs")
    run = await the_run(store, row["run_id"])
    assert run.state is RunState.SUCCEEDED
    assert run.result is None
    assert run.result_reference is not None
    assert run.result_reference.size == len(encoded)
    assert run.result_reference.digest == hashlib.sha256(encoded).hexdigest()
    assert await content(blobs, result_key(run.run_id, run.result_reference.fence)) == encoded


async def test_a_result_that_looks_like_a_reference_is_not_taken_for_one(store: Store, blobs: FolderBlobs) -> None:
    forged = {"$blob": {"size": 1, "digest": "0" * 64, "fence": 1}}

    async def forges(task: Task) -> Outcome:
        return Succeeded(forged)

    await run_one(store, blobs, forges)

    [row] = await rows(store, "runs")
    run = await the_run(store, row["run_id"])
    assert run.result_reference is not None
    assert run.result_reference.digest != "0" * 64
    kept = await content(blobs, result_key(run.run_id, run.result_reference.fence))
    assert json.loads(kept) == forged


async def test_a_result_beyond_the_setting_fails_the_run_for_good(store: Store, blobs: FolderBlobs) -> None:
    async def too_much(task: Task) -> Outcome:
        return Succeeded(LargeResult(b"1" * 400_001))

    await run_one(store, blobs, too_much, retry=RetryPolicy(3, delays_seconds=(0.001,)))

    [run] = await rows(store, "runs")
    assert (run["state"], run["reason"], run["attempt"]) == (RunState.FAILED, Reason.RESULT_TOO_LARGE, 1)


class Broken(FolderBlobs):
    async def put(self, key: str, content: Any) -> Any:
        raise BlobsUnavailable("the blobs in s3://nowhere cannot be used: nobody listens there")


@pytest.mark.parametrize("what", ["files", "result"])
async def test_a_run_whose_outputs_cannot_be_kept_has_failed(
    store: Store, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourhand.executor.outputs._PAUSE_SECONDS", 0.001)

    async def large(task: Task) -> Outcome:
        return Succeeded(LargeResult(b"1" * 300_000))

    function = leaves(tmp_path, report="x") if what == "files" else large
    await run_one(store, Broken(tmp_path / "blobs"), function, retry=RetryPolicy(0))

    [run] = await rows(store, "runs")
    assert (run["state"], run["reason"]) == (RunState.FAILED, Reason.OUTPUT_NOT_KEPT)
    assert "nobody listens there" in run["error"]
    assert await rows(store, "run_files") == []
