"""Nothing is missing without a word: a node that is no longer whole ends, and one that is late is seen to be."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest
from harness import HOURHAND, NO_TLS, Cage, Process, Roles, sql, wait_for

from held_ports import held_port
from hourhand.cli.exits import ExitCode

LOOP_DIES = """
import hourhand.wiring as wiring
start = wiring.Node.start
async def broken(self):
    await start(self)
    next(loop for loop in self.loops if loop.name == "planner")._task.cancel()
wiring.Node.start = broken
from hourhand.cli.main import main
main()
"""
SERVER_DIES = """
import hourhand.wiring as wiring
start = wiring.ApiNode.start
async def broken(self):
    await start(self)
    self._serving.cancel()
wiring.ApiNode.start = broken
from hourhand.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("role", "program", "part"),
    [("scheduler", LOOP_DIES, "planner"), ("api", SERVER_DIES, "HTTP server")],
    ids=["a loop", "the HTTP server"],
)
def test_a_node_of_which_a_part_has_ended_ends_too_so_that_it_is_started_again(
    tmp_path: Path, cage: Cage, database_url: str, schema: str, role: str, program: str, part: str
) -> None:
    where = ["--database", database_url, "--schema", schema]
    assert Process(cage, [*HOURHAND, "db", "migrate", *where], tmp_path).wait() == 0
    port = ["--port", str(held_port())] if role == "api" else []
    process = Process(cage, [HOURHAND[0], "-c", program, role, *where, *port], tmp_path)
    assert process.wait(30) == ExitCode.ERROR, process.said
    assert f"the part '{part}' ended by itself" in process.said.splitlines()[-1]
    assert "Traceback" not in process.said
    assert sql(database_url, f"SELECT 1 FROM {schema}.nodes WHERE ended_at IS NULL") == [], "it left in order"
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    with Roles(tmp_path, database_url, schema) as roles:
        for role in ("scheduler", "executor", "api"):
            roles.start(role, role)
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def checks_when_red(cluster: Roles, check: str) -> str:
    """Waits until readiness is red for this reason; what it says about it."""

    def found() -> str:
        answer = httpx.get(f"{cluster.urls[0]}/readyz", timeout=5, verify=NO_TLS)
        told = answer.json()["checks"][check]
        assert (answer.status_code == 200) == all(each == "ok" for each in answer.json()["checks"].values())
        if told == "ok":
            return ""
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.json()["type"] == "urn:hourhand:problem:not-ready"
        assert f"{check}: {told}" in answer.json()["detail"]
        return str(told)

    return wait_for(found, f"{check} is red", 20)


def wait_until_green(cluster: Roles) -> None:
    wait_for(lambda: httpx.get(f"{cluster.urls[0]}/readyz", verify=NO_TLS).status_code == 200, "readiness is green", 20)


def test_readiness_is_red_while_no_scheduler_plans_in_time_and_says_which_loop_is_late(cluster: Roles) -> None:
    with locked(cluster, "timetable"):  # all loops are alive, and those that look into it do not come through
        assert "lookout" in checks_when_red(cluster, "scheduler")
        with cluster.client() as client:
            [scheduler] = [node for node in client.nodes() if node.role == "scheduler"]
            assert "lookout" in scheduler.facts["late_loops"]
    wait_until_green(cluster)

    cluster.processes["scheduler"].send(signal.SIGSTOP)
    assert checks_when_red(cluster, "scheduler") == "no live scheduler"
    cluster.processes["scheduler"].send(signal.SIGCONT)
    wait_until_green(cluster)


@contextlib.contextmanager
def locked(cluster: Roles, table: str) -> Iterator[None]:
    """A table that somebody else does not let go of."""

    async def hold() -> None:
        db = await asyncpg.connect(cluster.database, server_settings={"application_name": "locker"})
        with contextlib.suppress(asyncpg.PostgresError):
            await db.execute(f"LOCK TABLE {cluster.schema}.{table} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)")

    locker = "FROM pg_stat_activity WHERE application_name = 'locker'"
    thread = threading.Thread(target=asyncio.run, args=(hold(),))
    thread.start()
    try:
        wait_for(lambda: sql(cluster.database, f"SELECT 1 {locker} AND wait_event = 'PgSleep'"), "the table is locked")
        yield
    finally:
        sql(cluster.database, f"SELECT pg_terminate_backend(pid) {locker}")
        thread.join(10)
