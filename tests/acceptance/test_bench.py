"""Each measurement of `hourhand bench` once, very short: that it runs, tells what it must, and nothing is lost."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import HOURHAND, Up, clean_environment

PUNCTUAL = {"lateness_ms", "lost", "doubled", "early", "cpu", "memory_mb", "tables", "settings"}
ALWAYS = {"bench", "mode", "jobs", "seconds", "settings"}


def measured(*words: str) -> dict[str, Any]:
    """What a command prints with --json, which is one object and nothing else."""
    command = [*HOURHAND, "bench", *words, "--json"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.keys() >= ALWAYS
    assert found["settings"]["fsync"] == found["settings"]["synchronous_commit"] == "on"
    return found


def on(up: Up) -> list[str]:
    return ["--server", up.url, "--token", up.token, "--witness", str(up.witness)]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["lifecycle", "--seconds", "1", "--batch", "100"], None),
        (["lifecycle", "--seconds", "1", "--batch", "100", "--mode", "future", "--stages"], None),
        (["immediate", "--seconds", "1", "--rate", "50"], 50),
        (["steady", "--rate", "300", "--seconds", "2"], 600),
        (["steady", "--rate", "100", "--seconds", "2", "--submit", "meanwhile"], 200),
        (["steady", "--rate", "400", "--seconds", "2", "--submit", "meanwhile", "--readers", "10"], 800),
        (["burst", "--jobs", "300"], 300),
        (["recurring", "--rate", "20", "--seconds", "3", "--jobs", "600", "--lead", "4"], 60),
        (["soak", "--minutes", "0.05", "--rate", "300", "--compare", "0.02"], 900),
        (["day", "--hours", "0-1", "--faster", "900"], 937),
    ],
    ids=lambda given: "-".join(word for word in given if word.isalpha()) if isinstance(given, list) else "",
)
def test_a_running_cluster_is_measured(running: Up, words: list[str], jobs: int | None) -> None:
    found = measured(*words, *on(running))

    assert found["bench"] == words[0]
    assert found.keys() >= PUNCTUAL
    assert jobs is None or found["jobs"] == jobs
    assert found["jobs"] > 0
    assert (found["lost"], found["doubled"], found["early"]) == (0, 0, 0)
    late = found["lateness_ms"]
    assert 0 <= late["p50"] <= late["p99"] <= late["p99.9"] <= late["max"]
    assert {"api", "scheduler", "executor", "client"} <= found["cpu"].keys()  # its nodes are on this machine
    if "--stages" in words:
        assert found["stages_us"]["python"]["executor"] > 0


def test_submissions_and_reads_are_counted(running: Up) -> None:
    for mode in ("single", "batch"):
        found = measured(
            "submit", "--mode", mode, "--seconds", "1", "--connections", "4", "--batch", "50", *on(running)
        )
        assert (found["mode"], found["lost"]) == (mode, 0)
        assert found["submit_per_second"] > 0
    found = measured("read", "--seconds", "1", "--connections", "4", "--stored", "200", *on(running))
    assert found["gets_per_second"] > 0
    assert found["list_ms"]["p50"] > 0


def test_a_temporary_cluster_tells_all_and_takes_settings(tmp_path: Path) -> None:
    found = measured("burst", "--jobs", "200", "--set", "executor.claim_max=77")
    assert found["settings"]["executor.claim_max"] == "77"
    assert {"postgres executor", "postgres api", "supervisor"} <= found["cpu"].keys()
    assert found["tables"]["runs"]["size_mb"] > 0
    assert (found["lost"], found["doubled"], found["early"]) == (0, 0, 0)


@pytest.mark.parametrize(("kind", "jobs"), [("async", 40), ("http", 20), ("process", 5)])
def test_runs_in_flight_are_seen(kind: str, jobs: int) -> None:
    found = measured("flight", "--kind", kind, "--jobs", str(jobs), "--hold", "3")
    assert found["in_flight_max"] == jobs
    assert found["ended"] == {"succeeded": jobs}
    assert found["executor_mb"] > 10


def test_growth_is_measured_with_little_and_with_much() -> None:
    found = measured("growth", "--stored", "3000", "--base", "300", "--seconds", "1")
    assert found["compared"]["base"]["cost_us"] > 0
    assert found["cost_ratio"] > 0
    assert found["tables"]["runs"]["live"] >= 3000


def test_an_idle_cluster_costs_little() -> None:
    found = measured("idle", "--seconds", "1", "--windows", "1", "--rest", "0")
    assert 0 <= found["core_percent"] < 100
    assert found["besides_postgres_mb"] > 20


def test_a_planner_alone_is_measured() -> None:
    found = measured("recurring", "--planner-only", "--jobs", "6000", "--stages")
    assert (found["mode"], found["lost"]) == ("planner-only", 0)
    assert found["jobs_per_second"] > 0


def test_people_get_a_table_and_progress() -> None:
    command = [*HOURHAND, "bench", "immediate", "--seconds", "1", "--rate", "20"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "sent to start  p50" in done.stdout
    assert "starting a temporary cluster" in done.stderr
    assert "{" not in done.stdout


def test_a_setting_that_does_not_exist_is_told() -> None:
    command = [*HOURHAND, "bench", "burst", "--set", "executor.slotz=1"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "HOURHAND_EXECUTOR_SLOTZ: there is no such variable" in done.stderr
