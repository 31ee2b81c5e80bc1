"""Why it did not run last night, asked of a running Hourhand by its command line."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import HOURHAND, Up, clean_environment, wait_for

import hourhand


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    settings = {"PYTHONPATH": str(Path(hourhand.__file__).parents[1]), "HOURHAND_EXECUTOR_STOP_SECONDS": "1"}
    with Up(tmp_path_factory.mktemp("history"), environment=settings) as up:
        yield up


def said(up: Up, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*HOURHAND, *words], cwd=up.folder, env=clean_environment(**up.environment), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def entries(up: Up, job: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        said(up, "job", "history", job, "--from", "1h", "-o", "json", *words).stdout
    )
    return found


def statuses(up: Up, job: str) -> set[str]:
    return {entry["status"] for entry in entries(up, job)}


@pytest.mark.parametrize(
    ("pause", "resume", "who"),
    [
        (["job", "pause", "{job}"], ["job", "resume", "{job}"], "paused by"),
        (["label", "pause", "team={job}"], ["label", "resume", "team={job}"], "label team="),
        (["queue", "pause", "{job}"], ["queue", "resume", "{job}"], "queue "),
        (["namespace", "pause", "default"], ["namespace", "resume", "default"], "namespace default"),
        (["cluster", "pause"], ["cluster", "resume"], "cluster paused by"),
    ],
)
def test_a_pause_of_any_scope_is_held_shown_and_told(up: Up, pause: list[str], resume: list[str], who: str) -> None:
    job = f"beat-{pause[0]}"
    said(up, "job", "create", job, "--every", "1s", "--queue", job, "--label", f"team={job}", "--", "true")
    wait_for(lambda: "succeeded" in statuses(up, job), "it has run")
    said(up, *(word.format(job=job) for word in pause), "--reason", "moving the disks")
    wait_for(lambda: sum(entry["status"] == "paused" for entry in entries(up, job)) >= 2, "due times have passed")
    shown = said(up, "job", "get", job).stdout
    assert "moving the disks" in shown
    said(up, *(word.format(job=job) for word in resume))
    said(up, *(word.format(job=job) for word in resume))
    begun = entries(up, job)[-1]["due_at"]
    wait_for(
        lambda: any(one["status"] == "succeeded" and one["due_at"] > begun for one in entries(up, job)), "it goes on"
    )
    told = entries(up, job)
    dues = [entry["due_at"] for entry in told]
    assert dues == sorted(set(dues)), "each due time is told once"
    paused = [entry for entry in told if entry["status"] == "paused"]
    assert all(who in entry["why"] and "moving the disks" in entry["why"] for entry in paused)
    for_people = said(up, "job", "history", job, "--from", "1h")
    assert "moving the disks" in for_people.stdout
    assert f"{job}: {len(told)} due times" in for_people.stderr or "due times" in for_people.stderr
    said(up, "job", "delete", job, "--yes")


def test_a_pause_until_a_time_is_over_by_itself(up: Up) -> None:
    said(up, "job", "create", "nap", "--every", "1s", "--", "true")
    said(up, "job", "pause", "nap", "--until", "+3s", "--reason", "nap")
    assert json.loads(said(up, "job", "get", "nap", "-o", "json").stdout)["status"] == "paused"
    wait_for(lambda: statuses(up, "nap") >= {"paused", "succeeded"}, "it has slept and woken")
    assert json.loads(said(up, "job", "get", "nap", "-o", "json").stdout)["status"] == "scheduled"
    said(up, "job", "delete", "nap", "--yes")


def test_a_job_that_fails_and_fails_is_paused_if_it_asked_for_that(up: Up) -> None:
    said(
        up,
        "job",
        "create",
        "broken",
        "--every",
        "1s",
        "--max-retries",
        "0",
        "--pause-after-failures",
        "2",
        "--",
        "false",
    )
    wait_for(lambda: json.loads(said(up, "job", "get", "broken", "-o", "json").stdout)["status"] == "paused", "it is")
    job = json.loads(said(up, "job", "get", "broken", "-o", "json").stdout)
    assert job["pauses"][0]["paused_by"] == "auto-pause"
    assert job["pause_reason"] == "2 runs in a row failed"
    wait_for(lambda: statuses(up, "broken") == {"failed", "paused"}, "the ledger says both")
    said(up, "job", "delete", "broken", "--yes")
