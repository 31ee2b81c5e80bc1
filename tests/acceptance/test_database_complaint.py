"""Complaint 25 of the list that `test_complaints.py` follows, with a PostgreSQL that really goes away."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from effects import Effects, assert_no_gap, every_second, paused
from harness import NO_TLS, Roles, run_async, sql, wait_for

from hourhand.client import Client
from hourhand.database.embedded import EmbeddedServer


class Server:
    """A PostgreSQL of our own, as an operator has it: the roles know its address and nothing else."""

    def __init__(self, home: Path) -> None:
        self._server = EmbeddedServer(home)
        self.start()

    def start(self) -> None:
        self.url = run_async(self._server.start())

    def stop(self) -> None:
        run_async(self._server.stop())

    def family(self) -> list[psutil.Process]:
        assert self._server.pid is not None
        postmaster = psutil.Process(self._server.pid)
        return [postmaster, *postmaster.children(recursive=True)]


@pytest.fixture
def blips(tmp_path: Path) -> Iterator["Blips"]:
    server = Server(tmp_path / "database")
    effects = Effects(tmp_path)
    try:
        hasty = {"HOURHAND_DATABASE_LOOP_SECONDS_MAX": "1.5"}
        with Roles(tmp_path, server.url, "hourhand", effects.settings | hasty) as roles:
            for role in ("scheduler", "executor", "api"):
                roles.start(role, role)
            roles.wait_until_ready()
            yield Blips(server, roles, effects)
    finally:
        server.stop()


class Blips:
    """Ways in which a database goes away for a moment."""

    def __init__(self, server: Server, roles: Roles, effects: Effects) -> None:
        self.server = server
        self.roles = roles
        self.effects = effects

    def end_sessions(self) -> None:
        assert sql(
            self.server.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'hourhand%'",
        )

    def restart(self) -> None:
        self.server.stop()
        self.wait_until_red()
        self.server.start()

    def kill(self) -> None:
        for process in self.server.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.wait_until_red()
        self.server.start()

    def stand_still(self) -> None:
        """Every connection stays open, new ones are accepted, and nothing is ever answered: until all gave up once."""
        with paused(*(process.pid for process in self.server.family())):
            self.wait_until_red()
            for role in ("scheduler", "executor"):
                said = self.roles.processes[role]
                wait_for(lambda: "no answer within" in said.said, f"the {role} gave up")  # noqa: B023

    def ready(self) -> httpx.Response:
        return httpx.get(f"{self.roles.urls[0]}/readyz", timeout=5, verify=NO_TLS)

    def wait_until_red(self) -> None:
        def is_red() -> bool:
            answer = self.ready()
            return answer.status_code == 503 and answer.json()["checks"]["database"] != "ok"

        wait_for(is_red, "readiness is red", 10)

    def wait_until_green(self) -> None:
        wait_for(lambda: self.ready().status_code == 200, "readiness is green again", 20)


def test_a_database_that_goes_away_for_a_moment_stops_no_loop(blips: Blips) -> None:
    """A blip of the database silently ends the scheduler's loop: the process is there, and nothing ever runs again."""
    with blips.roles.client() as client:
        jobs = every_second(client, 3)
        wait_for(lambda: blips.effects.starts_of(*jobs), "they run")
        ways: list[Callable[[], None]] = [blips.end_sessions, blips.restart, blips.kill, blips.stand_still]
        for blip in ways:
            blip()
            blips.wait_until_green()
            back = time.time() * 1000
            wait_for(lambda: all(blips.effects.dues_of(job)[-1] > back for job in jobs), f"on time after {blip}", 20)  # noqa: B023
        assert [process.exit_code for process in blips.roles.processes.values()] == [None] * 3
        wait_for(lambda: not any(late_loops(client)), "no loop is late")
    for job in jobs:
        assert_no_gap(blips.effects, [job])


def late_loops(client: Client) -> list[list[str]]:
    return [node.facts["late_loops"] for node in client.cluster().nodes]
