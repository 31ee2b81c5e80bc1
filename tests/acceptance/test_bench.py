"""Each measurement of `hourhand bench` once, very short: that it runs, tells what it must, and nothing is lost.

Measuring is mostly waiting, so several commands run at once; each test judges what one of them has printed.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import HOURHAND, Up, clean_environment

from hourhand.bench.report import KEYS

Done = subprocess.CompletedProcess[str]
Results = Callable[[str], dict[str, Any]]

pytestmark = pytest.mark.measuring
AT_ONCE = 4
PUNCTUAL = {"lateness_ms", "lost", "doubled", "early", "cpu", "memory_mb", "tables", "settings"}
ALWAYS = {*KEYS}

ON_RUNNING = {
    "lifecycle": "lifecycle --seconds 1 --batch 100",
    "future": "lifecycle --seconds 1 --batch 100 --mode future --stages",
    "immediate": "immediate --seconds 1 --rate 50",
    "before": "steady --rate 300 --seconds 2",
    "singly": "steady --rate 100 --seconds 2 --submit meanwhile",
    "meanwhile": "steady --rate 400 --seconds 2 --submit meanwhile --readers 10",
    "burst": "burst --jobs 300",
    "recurring": "recurring --rate 20 --seconds 3 --jobs 600 --lead 6",
    "soak": "soak --minutes 0.05 --rate 300 --compare 0.02",
    "day": "day --hours 0-1 --faster 900",
}
JOBS = {"immediate": 50, "before": 600, "singly": 200, "meanwhile": 800, "burst": 300, "recurring": 60, "soak": 900}
JOBS |= {"day": 937}
REQUESTS_ON_RUNNING = {
    "single": "submit --mode single --seconds 1 --connections 4",
    "batch": "submit --mode batch --seconds 1 --connections 2 --batch 50",
    "read": "read --seconds 3 --connections 4 --stored 200",
}
ON_THEIR_OWN = {
    "planner": "recurring --planner-only --jobs 600 --seconds 2 --stages",
    "own": "burst --jobs 200 --set executor.claim_max=77 --set embedded.shared_buffers_mb=200",
    "async": "flight --kind async --jobs 40 --hold 5",
    "http": "flight --kind http --jobs 20 --hold 5",
    "process": "flight --kind process --jobs 5 --hold 5",
    "growth": "growth --stored 3000 --base 300 --seconds 1",
    "idle": "idle --seconds 1 --windows 1 --rest 0",
    "overload": "overload --seconds 2 --connections 24 --batch 200 --set api.bodies_bytes_max=400000",
}


def run(words: list[str]) -> Done:
    command = [*HOURHAND, "bench", *words]
    return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def measured(running: Up, request: pytest.FixtureRequest) -> Iterator[Results]:
    """Starts what the chosen tests will ask for, the longest first; waits for it when it is asked for."""
    there = ["--server", running.url, "--token", running.token, "--witness", str(running.witness)]
    commands = {name: text.split() for name, text in ON_THEIR_OWN.items()}
    commands |= {name: [*text.split(), *there] for name, text in (ON_RUNNING | REQUESTS_ON_RUNNING).items()}
    chosen = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec") and "name" in item.callspec.params
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started: dict[str, Future[Done]] = {
            name: pool.submit(run, [*words, "--json"]) for name, words in commands.items() if name in chosen
        }

        def result(name: str) -> dict[str, Any]:
            done = started[name].result()
            assert done.returncode == 0, done.stderr[-3000:]
            found: dict[str, Any] = json.loads(done.stdout)  # one object and nothing else
            assert found.keys() >= ALWAYS  # those of lifecycle, whatever is measured
            assert all(found[key] is not None for key in ("bench", "mode", "jobs", "seconds", "settings"))
            assert found["settings"]["fsync"] == found["settings"]["synchronous_commit"] == "on"
            return found

        yield result


@pytest.mark.parametrize("name", ON_RUNNING)
def test_a_running_cluster_is_measured(measured: Results, name: str) -> None:
    found = measured(name)

    assert found["bench"] == ON_RUNNING[name].split()[0]
    assert not [key for key in PUNCTUAL if found[key] is None]
    assert found["jobs"] == JOBS.get(name, found["jobs"])
    assert found["jobs"] > 0
    assert (found["lost"], found["doubled"], found["early"], found.get("misdated", 0)) == (0, 0, 0, 0)
    late = found["lateness_ms"]
    assert 0 <= late["p50"] <= late["p99"] <= late["p99.9"] <= late["max"]
    assert {"api", "scheduler", "executor", "client"} <= found["cpu"].keys()  # its nodes are on this machine
    if name == "future":
        assert found["stages_us"]["python"]["executor"] > 0


@pytest.mark.parametrize("name", ["single", "batch"])
def test_submissions_are_counted(measured: Results, name: str) -> None:
    found = measured(name)
    assert (found["mode"], found["lost"]) == (name, 0)
    assert found["submit_per_second"] > 0


@pytest.mark.parametrize("name", ["read"])
def test_reads_are_counted(measured: Results, name: str) -> None:
    found = measured(name)
    assert found["gets_per_second"] > 0
    assert found["list_ms"]["p50"] > 0


@pytest.mark.parametrize("name", ["own"])
def test_a_temporary_cluster_tells_all_and_takes_settings(measured: Results, name: str) -> None:
    found = measured(name)
    assert found["settings"]["executor.claim_max"] == "77"
    assert {"postgres executor", "postgres api", "supervisor"} <= found["cpu"].keys()
    assert found["tables"]["runs"]["size_mb"] > 0
    assert found["writes"]["wal_bytes_per_job"] > 100
    assert found["settings"]["shared_buffers"] == "200MB"
    assert (found["lost"], found["doubled"], found["early"]) == (0, 0, 0)


@pytest.mark.parametrize(("name", "jobs"), [("async", 40), ("http", 20), ("process", 5)])
def test_runs_in_flight_are_seen(measured: Results, name: str, jobs: int) -> None:
    found = measured(name)
    assert found["in_flight_max"] == jobs
    assert found["ended"] == {"succeeded": jobs}
    assert found["executor_tree_mb"] > found["executor_mb"] / 3 > 3, "shared pages count once, so it may be less"


@pytest.mark.parametrize("name", ["growth"])
def test_growth_is_measured_with_little_and_with_much(measured: Results, name: str) -> None:
    found = measured(name)
    assert found["compared"]["base"]["cost_us"] > 0
    assert found["cost_ratio"] > 0
    assert found["tables"]["runs"]["live"] >= 3000


@pytest.mark.parametrize("name", ["overload"])
def test_what_is_too_much_is_refused_and_the_rest_is_served(measured: Results, name: str) -> None:
    found = measured(name)
    assert found["accepted"] > 0
    assert found["refused"] > 0
    assert (found["refused_unsaid"], found["broken"], found["not_alive"]) == (0, 0, 0), found["last_fault"]
    assert (found["lost"], found["doubled"], found["early"]) == (0, 0, 0)
    assert found["api_more_mb"] <= found["api_mb"] * 1.25 + 20


@pytest.mark.parametrize("name", ["idle"])
def test_an_idle_cluster_is_measured_whole(measured: Results, name: str) -> None:
    found = measured(name)
    assert found["core_percent"] >= 0
    assert found["besides_postgres_mb"] > 20
    assert {"api", "scheduler", "executor", "postgres", "supervisor"} <= found["memory_mb"].keys()


@pytest.mark.parametrize("name", ["planner"])
def test_a_planner_alone_is_measured(measured: Results, name: str) -> None:
    found = measured(name)
    assert (found["mode"], found["lost"]) == ("planner-only", 0)
    assert found["jobs"] > 0
    assert found["jobs_per_second"] > 0
    assert "executor" not in found["cpu"]


def test_people_get_a_table_and_progress(running: Up) -> None:
    there = ["--server", running.url, "--token", running.token, "--witness", str(running.witness)]
    done = run(["immediate", "--seconds", "1", "--rate", "20", *there])
    assert done.returncode == 0, done.stderr
    assert "sent to start  p50" in done.stdout
    assert "submitting 20 single jobs a second" in done.stderr
    assert "{" not in done.stdout


def test_a_setting_that_does_not_exist_is_told() -> None:
    done = run(["burst", "--set", "executor.slotz=1"])
    assert done.returncode == 1
    assert "HOURHAND_EXECUTOR_SLOTZ: there is no such variable" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_measurement_that_is_ended_leaves_nothing_running_and_says_so(number: int, tmp_path: Path) -> None:
    command = [*HOURHAND, "bench", "steady", "--rate", "50", "--seconds", "60", "--submit", "meanwhile"]
    mark = str(tmp_path)
    environment = {**clean_environment(), "TMPDIR": mark}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        while "submitting 50 jobs a second" not in process.stderr.readline():
            assert process.poll() is None
        assert len(processes_in(mark)) > 3
        os.killpg(process.pid, number)  # as a terminal does: to everybody in the foreground
        for _ in range(5):  # by somebody who does not like to wait
            time.sleep(0.1)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        said = process.stderr.read()
        assert (process.wait(60), said.strip().splitlines()[-1:]) == (130, ["hourhand: interrupted"]), said
    assert processes_in(mark) == []
    assert list(tmp_path.glob("hourhand-bench-*")) == []


def processes_in(folder: str) -> list[str]:
    """Names of the processes that have been given this folder for what they leave for a while."""
    found = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR") == folder:
                found.append(process.info["name"])
    return found
