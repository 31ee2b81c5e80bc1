"""Executors as processes: their leases hold whatever their handlers do, what they finish is not lost, and they leave in
good order."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from harness import Process, Roles, Up, read_witness, run_async, sql, wait_for

from hourhand.client import Client
from hourhand.client.attempt_views import AttemptView
from hourhand.database.embedded import EmbeddedServer
from hourhand.model.states import RunState

LEASE_SECONDS = 3
"""As the harness sets it."""

HANDLERS = '''
"""Each leaves its witness at the start."""
import asyncio
import time
from hourhand import Context, job
from hourhand.job_kinds.samples import noop


@job("blocks")
async def blocks(ctx: Context, seconds: float) -> str:
    await noop(ctx)
    time.sleep(seconds)
    return "done"


@job("ignores")
async def ignores(ctx: Context) -> None:
    await noop(ctx)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@job("takes")
async def takes(ctx: Context, seconds: float) -> str:
    await noop(ctx)
    await asyncio.sleep(seconds)
    return "done"
'''


def roles_in(folder: Path, url: str, schema: str, **settings: str) -> Roles:
    folder.mkdir(exist_ok=True)
    (folder / "lease_handlers.py").write_text(HANDLERS)
    modules = "hourhand.job_kinds.samples,lease_handlers"
    return Roles(
        folder, url, schema, {"PYTHONPATH": str(folder), "HOURHAND_KINDS_HANDLER_MODULES": modules, **settings}
    )


def started(cluster: Roles, *executors: str) -> Roles:
    for role in ("scheduler", "api"):
        cluster.start(role, f"{role}-only")
    for name in executors:
        cluster.start("executor", name)
    cluster.wait_until_ready()
    return cluster


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    settings = {"HOURHAND_EXECUTOR_STOP_SECONDS": "60", "HOURHAND_KINDS_GRACE_SECONDS": "30"}
    with roles_in(tmp_path, database_url, schema, **settings) as roles:
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def submit(client: Client, handler: str, **payload: Any) -> UUID:
    return client.create_job(name=handler, payload={"handler": handler, **payload}).job_id


def in_hand(cluster: Roles, executor: str = "") -> list[UUID]:
    """Runs that the executor has, begun or not."""
    rows = sql(
        cluster.database,
        f"SELECT r.run_id FROM {cluster.schema}.live_runs r JOIN {cluster.schema}.nodes n ON n.node_id = r.executor_id "
        "WHERE r.state IN (2, 3) AND n.name LIKE $1",
        f"{executor}%",
    )
    return [row["run_id"] for row in rows]


def buried(cluster: Roles) -> int:
    [row] = sql(cluster.database, f"SELECT count(*) FROM {cluster.schema}.nodes WHERE ended_at IS NOT NULL")
    return int(row["count"])


def test_a_handler_that_blocks_the_loop_longer_than_the_lease_is_not_run_a_second_time(cluster: Roles) -> None:
    started(cluster, "first", "second")
    with cluster.client() as client:
        job_id = submit(client, "blocks", seconds=3 * LEASE_SECONDS)
        run = client.wait_for_job(job_id, 60)
    assert (run.status, run.attempt, run.result) == ("succeeded", 1, "done")
    assert len(read_witness(cluster.witness)) == 1
    assert buried(cluster) == 0, "nobody was held for dead"


def test_an_executor_that_stands_still_is_missed_and_what_it_says_afterwards_is_shown_as_late(cluster: Roles) -> None:
    started(cluster, "first", "second")
    with cluster.client() as client:
        job_id = submit(client, "takes", seconds=1)
        [run_id] = wait_for(lambda: in_hand(cluster), "it is claimed")
        holder = "first" if in_hand(cluster, "first") else "second"
        cluster.processes[holder].send(signal.SIGSTOP)
        try:
            run = client.wait_for_job(job_id, 60)
        finally:
            cluster.processes[holder].send(signal.SIGCONT)
        assert (run.run_id, run.status, run.attempt) == (run_id, "succeeded", 2)
        [lost] = wait_for(lambda: shown_as_late(client, run_id), "the late outcome is shown")
    assert (lost.status, lost.reason) == ("lost", "executor_lost")
    assert lost.late is not None
    assert lost.late.state in ("succeeded", "lost")
    wait_for(lambda: late_outcomes(cluster) == 1, "it is counted")


def shown_as_late(client: Client, run_id: UUID) -> list[AttemptView]:
    return [attempt for attempt in client.get_run(run_id).attempts if attempt.late is not None]


def late_outcomes(cluster: Roles) -> int:
    rows = sql(
        cluster.database,
        f"SELECT (facts ->> 'late_outcomes')::int AS late FROM {cluster.schema}.nodes "
        "WHERE role = 'executor' AND ended_at IS NULL",
    )
    return sum(row["late"] for row in rows)


# --- leaving ----------------------------------------------------------------------------------------------


def test_an_executor_that_is_told_to_stop_ends_its_runs_under_its_lease(cluster: Roles) -> None:
    started(cluster, "first")
    with cluster.client() as client:
        job_id = submit(client, "takes", seconds=2.5 * LEASE_SECONDS)
        wait_for(lambda: read_witness(cluster.witness), "it runs")
        cluster.start("executor", "second")
        wait_for(lambda: len(cluster.present()) == 4, "somebody else could take it")
        cluster.processes["first"].send(signal.SIGTERM)
        later = submit(client, "takes", seconds=0)
        assert client.wait_for_job(later, 30).status == "succeeded", "the other takes what is new"
        assert cluster.processes["first"].exit_code is None, "it is still busy"
        run = client.wait_for_job(job_id, 60)
    assert (run.status, run.attempt) == ("succeeded", 1)
    assert cluster.processes["first"].wait(30) == 0
    assert len(read_witness(cluster.witness)) == 2, "one line each"


def deaf_command(client: Client) -> UUID:
    """A program that does not end when it is asked to."""
    argv = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]
    return client.create_job(name="deaf", kind="command", payload={"argv": argv}).job_id


def test_a_second_signal_ends_an_executor_at_once_and_its_runs_go_back(cluster: Roles) -> None:
    started(cluster, "first")
    with cluster.client() as client:
        deaf_command(client)
        wait_for(lambda: in_hand(cluster), "it is claimed")
        wait_for(lambda: any("trap" in name for name in cluster.cage.names()), "it runs")
        process = cluster.processes["first"]
        process.send(signal.SIGTERM)
        wait_for(lambda: "node stopping" in process.said, "it was told")
        assert in_hand(cluster), "it may take its time"
        ends_at_once(process)
    assert not any("trap" in name for name in cluster.cage.names()), "nothing of it is left"
    [row] = sql(cluster.database, f"SELECT state, attempt, losses, failures FROM {cluster.schema}.live_runs")
    assert (row["state"], row["attempt"], row["losses"], row["failures"]) == (RunState.QUEUED, 1, 0, 0)


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    settings = {"HOURHAND_EXECUTOR_STOP_SECONDS": "60", "HOURHAND_KINDS_GRACE_SECONDS": "30"}
    with Up(tmp_path, environment=settings) as up:
        with up.client() as client:
            deaf_command(client)
            wait_for(lambda: any("trap" in name for name in up.cage.names()), "it runs")
        assert up.process is not None
        up.process.send(signal.SIGTERM)
        wait_for(lambda: "once more to stop at once" in up.said, "it was told")
        ends_at_once(up.process)
        assert up.cage.names() == []


def test_an_executor_ends_although_a_handler_ignores_that_it_was_cancelled(cluster: Roles) -> None:
    started(cluster, "first")
    with cluster.client() as client:
        submit(client, "ignores")
        wait_for(lambda: read_witness(cluster.witness), "it runs")
        process = cluster.processes["first"]
        process.send(signal.SIGTERM)
        wait_for(lambda: "node stopping" in process.said, "it was told")
        ends_at_once(process)
    assert "handler did not end when it was cancelled" in process.said
    assert not [name for name in cluster.present() if "executor" in name], "it has left: others get its run at once"


def test_a_handler_that_ignores_its_cancellation_and_one_that_blocks_beyond_its_time_end_as_they_should(
    tmp_path: Path, database_url: str, schema: str
) -> None:
    with roles_in(tmp_path, database_url, schema, HOURHAND_KINDS_GRACE_SECONDS="0.5") as cluster:
        started(cluster, "first")
        with cluster.client() as client:
            ignores = submit(client, "ignores")
            wait_for(lambda: read_witness(cluster.witness), "it runs")
            client.cancel_job(ignores)
            assert client.wait_for_job(ignores, 30).status == "cancelled"
            blocks = client.create_job(
                name="blocks", payload={"handler": "blocks", "seconds": 1.5}, timeout="0.5s", max_retries=0
            )
            assert client.wait_for_job(blocks.job_id, 30).status == "timed_out"
            assert client.wait_for_job(submit(client, "takes", seconds=0), 30).status == "succeeded"
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def ends_at_once(process: Process) -> None:
    began = time.monotonic()
    process.send(signal.SIGTERM)
    assert process.wait(25) == 0, process.said
    assert time.monotonic() - began < 25, "less than the grace of a program, and far less than the time to stop"


def test_orders_are_obeyed_without_a_restart(tmp_path: Path, database_url: str, schema: str) -> None:
    settings = {"HOURHAND_EXECUTOR_STOP_SECONDS": "0.5"}
    with roles_in(tmp_path, database_url, schema, **settings) as cluster:
        started(cluster, "first")

        def order(orders: str) -> None:
            sql(database_url, f"UPDATE {schema}.nodes SET orders = $1 WHERE role = 'executor'", orders)

        with cluster.client() as client:
            long = submit(client, "takes", seconds=3600)
            wait_for(lambda: in_hand(cluster), "it is claimed")
            order("cordon")
            short = [submit(client, "takes", seconds=0)]
            cordoned = wait_for(lambda: stays_queued(client, submit(client, "takes", seconds=0)), "nothing is taken")
            short.append(cordoned)
            assert len(in_hand(cluster)) == 1, "what it has goes on"
            order("drain")
            wait_for(lambda: not in_hand(cluster), "the run was given back")
            assert client.job_status(long).latest_run.status == "queued"
            assert any(name.startswith("first-executor") for name in cluster.present()), "it stays"
            order("work")
            for job_id in short:
                assert client.wait_for_job(job_id, 30).status == "succeeded"
            client.cancel_job(long)
            wait_for(lambda: not in_hand(cluster), "it is cancelled")
        assert cluster.processes["first"].exit_code is None
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def stays_queued(client: Client, job_id: UUID) -> UUID | None:
    """The job, if its run is not taken within the time in which it usually is."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        run = client.job_status(job_id).latest_run
        if run is not None and run.status != "queued":
            return None
        time.sleep(0.05)
    return job_id


# --- without a database -----------------------------------------------------------------------------------


class Server:
    """A PostgreSQL of our own that can be away."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.start()

    def start(self) -> None:
        self._server = EmbeddedServer(self._home)
        self.url = run_async(self._server.start())

    def stop(self) -> None:
        run_async(self._server.stop())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "database")
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_what_an_executor_finished_while_the_database_was_away_is_delivered_by_the_next_one(
    tmp_path: Path, server: Server, end: signal.Signals
) -> None:
    # A lease that outlives the test: what is not delivered would have to wait for its end.
    settings = {"HOURHAND_EXECUTOR_LEASE_SECONDS": "120", "HOURHAND_EXECUTOR_STOP_SECONDS": "1"}
    with roles_in(tmp_path / "cluster", server.url, "hourhand", **settings) as cluster:
        started(cluster, "first")
        journal = cluster.folder / ".hourhand" / "journal"
        with cluster.client() as client:
            jobs = [submit(client, "takes", seconds=4) for _ in range(20)]
            wait_for(lambda: len(read_witness(cluster.witness)) == 20, "all of them run")
            server.stop()
            wait_for(lambda: kept(journal) == 20, "their outcomes are kept", 60)
            process = cluster.processes.pop("first")
            process.send(end)
            process.wait(60)
            assert kept(journal) == 20
            server.start()
            cluster.start("executor", "second")
            for job_id in jobs:
                run = client.wait_for_job(job_id, 60)
                assert (run.status, run.attempt, run.result) == ("succeeded", 1, "done")
    assert kept(journal) == 0
    assert len(read_witness(cluster.witness)) == 20, "none was run again"


def kept(journal: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in journal.glob("*.outcomes"))


def test_without_a_database_an_executor_ends_what_must_not_go_on_before_its_lease_does(
    tmp_path: Path, server: Server
) -> None:
    lease_seconds = 12
    settings = {
        "HOURHAND_EXECUTOR_LEASE_SECONDS": str(lease_seconds),
        "HOURHAND_EXECUTOR_SELF_FENCE_SECONDS": "3",
        "HOURHAND_EXECUTOR_SELF_FENCE_KILL_SECONDS": "2",
        "HOURHAND_KINDS_GRACE_SECONDS": "30",
    }
    with roles_in(tmp_path / "cluster", server.url, "hourhand", **settings) as cluster:
        started(cluster, "first")
        with cluster.client() as client:
            kill = command(client, "1001", on_disconnect="kill")
            once = command(client, "1002", at_most_once=True)
            limited = command(client, "1003", max_concurrency=1)
            plain = command(client, "1004")
            wait_for(lambda: running(cluster) == {"1001", "1002", "1003", "1004"}, "all of them run")
            began = time.monotonic()
            server.stop()
            stopped = time.monotonic()
            wait_for(lambda: running(cluster) == {"1004"}, "only the plain one goes on")
            # Its last renewal was confirmed between a heartbeat before the stop began and its end.
            ended = time.monotonic()
            assert ended - stopped < lease_seconds, "before anybody else could start them"
            assert ended - began > 0.5, "not at once: a short absence does no harm"
            server.start()
            wait_for(lambda: client.job_status(once).latest_run.status == "lost", "it is not tried again")
            wait_for(lambda: running(cluster) == {"1001", "1003", "1004"}, "the others are, where there is a lease")
            assert client.job_status(plain).latest_run.attempt == 1
            assert client.job_status(kill).latest_run.attempt == 2
            assert client.job_status(limited).latest_run.attempt == 2
        cluster.processes["first"].send(signal.SIGTERM)
        wait_for(lambda: "node stopping" in cluster.processes["first"].said, "it was told")
        ends_at_once(cluster.processes["first"])


def test_a_limit_holds_also_when_a_handler_blocks_the_executor_that_has_lost_its_lease(
    tmp_path: Path, server: Server
) -> None:
    with roles_in(tmp_path / "cluster", server.url, "hourhand", HOURHAND_EXECUTOR_LEASE_SECONDS="6") as cluster:
        started(cluster, "first")
        with cluster.client() as client:
            command(client, "1003", max_concurrency=1)
            wait_for(lambda: running(cluster) == {"1003"}, "it runs")
            client.create_job(name="blocks", payload={"handler": "blocks", "seconds": 600})
            wait_for(lambda: read_witness(cluster.witness), "the loop is blocked")
            stopped = time.monotonic()
            server.stop()
            wait_for(lambda: running(cluster) == set(), "it is gone")
            assert time.monotonic() - stopped < 6, "before anybody else could start it"
            process = cluster.processes["first"]
            assert process.wait(10) == -signal.SIGKILL
            assert "the executor ends itself" in process.said
            server.start()


def command(client: Client, seconds: str, **fields: Any) -> UUID:
    """A program that is deaf to what it is asked, with a mark in its command line."""
    argv = ["sh", "-c", f"trap '' TERM; sleep {seconds} & wait; wait"]
    return client.create_job(name="sleeps", kind="command", payload={"argv": argv}, **fields).job_id


def running(cluster: Roles) -> set[str]:
    return {name.split()[-1] for name in cluster.cage.names() if name.split()[1:2] == ["sleep"]}


def test_an_executor_that_wakes_up_after_its_lease_takes_its_runs_once_more_and_not_again_and_again(
    cluster: Roles,
) -> None:
    started(cluster, "only")
    command = {"name": "long", "kind": "command", "payload": {"argv": ["sleep", "6"]}}
    with cluster.client() as client:
        job_ids = client.create_jobs([command] * 4)
        wait_for(lambda: len(in_hand(cluster, "only")) == 4, "all have begun")
        executor = cluster.processes["only"]
        executor.send(signal.SIGSTOP)
        wait_for(lambda: buried(cluster) == 1, "it is held for dead")
        executor.send(signal.SIGCONT)
        runs = [client.wait_for_job(job_id, 60) for job_id in job_ids]
        assert [(run.status, run.attempt) for run in runs] == [("succeeded", 2)] * 4
    assert buried(cluster) == 1, "it started anew under one other number"
