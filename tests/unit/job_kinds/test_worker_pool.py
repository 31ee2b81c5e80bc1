import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import uvloop

from hourhand.job_kinds.output_folders import OutputFolders
from hourhand.job_kinds.worker_pool import WorkerPool, WorkerPoolSettings
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Failed, Snoozed, Succeeded
from hourhand.model.run_blobs import RESULT_BYTES_HARD_MAX, LargeResult
from hourhand.model.states import Reason

MODULES = ("job_kind_test_handlers",)


@pytest.fixture
async def open_pool():
    pools = []

    async def open_with(**settings):
        pool = WorkerPool(WorkerPoolSettings(**{"modules": MODULES, "processes_max": 2, **settings}))
        pools.append(pool)
        await pool.open()
        return pool

    yield open_with
    for pool in pools:
        pids = pool.worker_pids
        await pool.close()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.fixture
async def pool(open_pool):
    return await open_pool(grace_seconds=0.2)


@pytest.fixture
def run(pool, make_task):
    async def run_handler(handler, **payload):
        return await pool.run(make_task(payload).task, handler)

    return run_handler


async def test_a_synchronous_handler_runs_in_another_process(run):
    assert (await run("t.pid")).result != os.getpid()
    assert await run("t.add", a=2) == Succeeded(3)
    assert await run("t.noop") == Succeeded(None)


async def test_arguments_of_any_size_and_kind_arrive(run):
    assert (await run("t.length", text="é" * 250_000)).result == 250_000
    assert (await run("t.add", a=2**80)).result == 2**80 + 1


async def test_a_context_travels_to_the_worker(pool, make_task):
    task, _ = make_task({"k": [1, None]})
    assert (await pool.run(task, "t.facts")).result == {
        "run": str(task.run_id),
        "fence": task.fence,
        "at": "2030-01-02T03:04:05Z",
        "payload": {"k": [1, None]},
    }


async def test_what_a_handler_prints_is_in_its_own_log_when_it_ends(open_pool, make_task):
    pool = await open_pool(processes_max=1)
    for word in ("first", "second"):
        logged = make_task({"word": word})
        await pool.run(logged.task, "t.talk")
        assert sorted(logged.of("stdout")) == sorted([word, f"unfinished {word} raw {word}", f"child {word}"])
        assert logged.of("stderr") == [f"to stderr {word}"]
        assert logged.of("log") == [f"logged {word}"]


async def test_failures_are_told_as_for_asynchronous_handlers(run):
    outcome = await run("t.raise")
    assert outcome.reason is Reason.EXCEPTION
    assert outcome.error.startswith("ValueError: no such customer\n")
    assert "worker_process" not in outcome.error
    assert {"ValueError", "builtins.ValueError", "Exception"} <= set(outcome.tags)
    assert not (await run("t.no-retry")).retryable
    assert (await run("t.add", b=1)).reason is Reason.BAD_ARGUMENTS
    assert (await run("t.big", size=RESULT_BYTES_HARD_MAX)).reason is Reason.RESULT_TOO_LARGE
    large = await run("t.big", size=300_000)
    assert large.result == LargeResult(b'"' + b"x" * 300_000 + b'"')
    assert len((await run("t.big", size=200_000)).result) == 200_000


async def test_files_in_the_output_folder_are_kept_also_when_the_process_dies(tmp_path, make_task):
    outputs = OutputFolders(str(tmp_path))
    outputs.open()
    pool = WorkerPool(WorkerPoolSettings(modules=MODULES, processes_max=1), outputs)
    await pool.open()
    kept = []

    async def keep(folder):
        kept.append({path.name: path.read_text() for path in folder.iterdir()})

    for dies in (False, True):
        task = make_task({"text": "done", "dies": dies}).task
        task.keep_outputs = keep
        assert isinstance(await pool.run(task, "t.leaves-file"), Failed) is dies
    nothing = make_task({"a": 1, "b": 2}).task
    nothing.keep_outputs = keep
    await pool.run(nothing, "t.add")
    await pool.close()
    outputs.close()

    assert kept == [{"report.txt": "done"}, {"report.txt": "done"}]
    assert list(tmp_path.iterdir()) == []


async def test_a_synchronous_handler_is_told_how_to_get_a_transaction(run):
    outcome = await run("t.transaction")
    assert outcome.error.startswith("ctx.transaction() needs an asynchronous handler: write `async def`")
    assert not outcome.retryable


async def test_a_synchronous_handler_can_snooze(run):
    assert await run("t.snooze", seconds=90) == Snoozed(90, "not yet")
    assert await run("t.snooze", seconds=10**9) == Snoozed(7 * 86_400, "not yet")


async def test_leaving_with_exit_or_an_interrupt_does_not_end_the_worker(pool, run):
    before = pool.worker_pids
    assert (await run("t.exit")).error.startswith("SystemExit: 3")
    assert (await run("t.interrupt")).error.startswith("KeyboardInterrupt")
    assert pool.worker_pids == before


async def test_a_handler_that_ends_its_process_fails_its_own_run_only(pool, run, make_task):
    logged = make_task({})
    outcome = await pool.run(logged.task, "t.os-exit")
    error = "the handler's process ended with code 7 in the middle of the run"
    assert outcome == Failed(Reason.EXIT_CODE, error, tags=("exit:7",))
    assert logged.of("stdout") == ["last words"]
    assert await run("t.add", a=1) == Succeeded(2)


async def test_a_handler_that_crashes_the_interpreter_is_told_by_its_signal(run):
    outcome = await run("t.segfault")
    assert outcome == Failed(Reason.SIGNAL, "the handler's process was killed by SIGSEGV", tags=("signal:SIGSEGV",))
    assert await run("t.add", a=1) == Succeeded(2)


async def test_a_hung_handler_is_killed_with_its_children_and_its_worker_replaced(
    pool, run, make_task, tmp_path, until, alive
):
    marker = tmp_path / "marker"
    running = asyncio.create_task(pool.run(make_task({"marker": str(marker)}).task, "t.hang"))
    await until(lambda: marker.exists() and len(marker.read_text().split()) == 3)
    pids = [int(pid) for pid in marker.read_text().split()]
    assert all(map(alive, pids))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(alive, pids)), "gone when run has raised, not some time later"
    assert pids[0] not in pool.worker_pids
    assert await run("t.add", a=1) == Succeeded(2)


async def test_a_cancelled_handler_may_clean_up(open_pool, make_task, tmp_path, until):
    pool = await open_pool(grace_seconds=30)
    marker = tmp_path / "marker"
    running = asyncio.create_task(pool.run(make_task({"marker": str(marker)}).task, "t.with-finally"))
    await until(marker.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert marker.read_text() == "cleaned up"


async def test_a_handler_that_watches_for_its_cancellation_is_not_interrupted(open_pool, make_task, tmp_path, until):
    pool = await open_pool(grace_seconds=30)
    marker = tmp_path / "marker"
    running = asyncio.create_task(pool.run(make_task({"marker": str(marker)}).task, "t.watching"))
    await until(marker.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert marker.read_text() == "ended by itself"


async def test_a_second_cancellation_ends_the_grace(open_pool, make_task, tmp_path, until, alive):
    pool = await open_pool(grace_seconds=1000)
    marker = tmp_path / "marker"
    running = asyncio.create_task(pool.run(make_task({"marker": str(marker)}).task, "t.hang"))
    await until(lambda: marker.exists() and len(marker.read_text().split()) == 3)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(alive(int(pid)) for pid in marker.read_text().split())


async def test_a_run_cancelled_while_it_waits_for_a_worker_costs_no_worker(open_pool, make_task, tmp_path):
    pool = await open_pool(processes_max=1)
    gate = tmp_path / "gate"
    first = asyncio.create_task(pool.run(make_task({"path": str(gate)}).task, "t.wait-for"))
    second = asyncio.create_task(pool.run(make_task({}).task, "t.noop"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.touch()
    assert (await first).result in pool.worker_pids


async def test_there_are_never_more_workers_than_allowed(open_pool, make_task, tmp_path, until):
    pool = await open_pool(processes_max=3)
    gate = tmp_path / "gate"
    runs = [asyncio.create_task(pool.run(make_task({"path": str(gate)}).task, "t.wait-for")) for _ in range(12)]
    await until(lambda: len(pool.worker_pids) == 3)
    gate.touch()
    pids = {(await run).result for run in runs}
    assert pids <= set(pool.worker_pids)
    assert len(pool.worker_pids) == 3


async def test_workers_that_nobody_needs_are_ended_but_the_warm_ones_stay(open_pool, make_task, tmp_path, until):
    pool = await open_pool(processes_max=2, processes_warm=1, idle_seconds=0.05)
    gate = tmp_path / "gate"
    runs = [asyncio.create_task(pool.run(make_task({"path": str(gate)}).task, "t.wait-for")) for _ in range(4)]
    await until(lambda: len(pool.worker_pids) == 2)
    gate.touch()
    await asyncio.gather(*runs)
    await until(lambda: len(pool.worker_pids) == 1)
    assert (await pool.run(make_task({"a": 1}).task, "t.add")).result == 2


async def test_a_worker_killed_from_outside_while_idle_is_replaced(pool, run, until):
    [pid] = pool.worker_pids
    os.kill(pid, signal.SIGKILL)
    await until(lambda: pid not in pool.worker_pids)
    assert await run("t.add", a=1) == Succeeded(2)


async def test_workers_that_cannot_import_their_handlers_are_told_at_the_start(open_pool):
    with pytest.raises(BadConfiguration, match="handler module 'not_there' cannot be imported"):
        await open_pool(modules=("not_there",))


async def test_runs_are_answered_when_no_worker_can_be_started(open_pool, make_task):
    pool = await open_pool(modules=("not_there",), processes_warm=0)
    outcome = await pool.run(make_task({}).task, "t.noop")
    assert outcome.reason is Reason.NOT_STARTED
    assert "not_there" in outcome.error


async def test_workers_die_with_their_executor(until, alive):
    code = """
        import asyncio
        from hourhand.job_kinds.worker_pool import WorkerPool, WorkerPoolSettings
        async def main():
            pool = WorkerPool(WorkerPoolSettings(processes_warm=2))
            await pool.open()
            print(*pool.worker_pids, flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
    """
    executor = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert executor.stdout is not None
    with executor.stdout:
        pids = [int(pid) for pid in (await asyncio.to_thread(executor.stdout.readline)).split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    executor.kill()
    executor.wait()
    await until(lambda: not any(map(alive, pids)))


def test_the_pool_works_on_uvloop(make_task):
    async def scenario():
        pool = WorkerPool(WorkerPoolSettings(modules=MODULES))
        await pool.open()
        outcomes = await asyncio.gather(*(pool.run(make_task({"a": n}).task, "t.add") for n in range(50)))
        await pool.close()
        return [outcome.result for outcome in outcomes]

    assert uvloop.run(scenario()) == list(range(1, 51))


async def test_progress_and_secrets_reach_synchronous_handlers(pool, make_task):
    task = make_task({"steps": 10_000, "secrets": ["word"]}).task
    said = []
    task.progress = lambda percent, message: said.append((percent, message))
    task.secrets = {"word": "hush"}
    assert await pool.run(task, "t.progress") == Succeeded("hush")
    assert said[0] == (0, "step 0")
    assert said[-2] == (100, "step 9999")
    assert said[-1] == (None, "nearly")
    assert len(said) < 100, "a handler that says much does not flood its executor"


async def test_a_secret_that_was_not_listed_is_not_given(pool, make_task):
    outcome = await pool.run(make_task({"steps": 0}).task, "t.progress")
    assert not outcome.retryable
    assert "the secret 'word' was not given to this run" in outcome.error
