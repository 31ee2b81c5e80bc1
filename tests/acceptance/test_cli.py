"""The command line against a running server: the README as it stands, output for programs, exit codes, signals."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import BIN, Cage, Process, Up, clean_environment, is_port_free, wait_for, wait_until_ready

from held_ports import held_port

README = Path(__file__).parents[2] / "README.md"
HOURHAND = str(BIN / "hourhand")


@pytest.fixture
def ask(running: Up) -> "Ask":
    return Ask(running)


class Ask:
    """Runs `hourhand …` as a person would who is in the folder of a running one."""

    def __init__(self, up: Up) -> None:
        self.environment = clean_environment(HOURHAND_HOME=str(up.home), HOURHAND_PORT=str(up.port))
        self._folder = up.folder

    def __call__(self, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [HOURHAND, *words],
            cwd=self._folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self("-o", "json", *words).stdout)


# --- the README -------------------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def logical_lines(block: str) -> list[str]:
    """Lines as a shell reads them: continued ones are one, empty ones none."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture(scope="module")
def readme_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder as after `make up`: with .venv, and with the README's own way to start one's own handlers running.

    The port is the README's if it is free, and else another, which is all that is changed of what is typed.
    """
    folder = tmp_path_factory.mktemp("readme")
    (folder / ".venv").symlink_to(BIN.parent)
    (folder / "tasks.py").write_text(blocks("python")[0])
    port = "8420" if is_port_free(8420) else str(held_port())
    [start] = [line for block in blocks("sh") for line in logical_lines(block) if "hourhand up" in line]
    cage = Cage(folder)
    try:
        script = f". .venv/bin/activate; {start}"
        process = Process(cage, ["sh", "-c", script], folder, {} if port == "8420" else {"HOURHAND_PORT": port})
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield folder, port
        # The shell waits for its command; Ctrl-C at a terminal would reach both.
        [hourhand] = psutil.Process(process.pid).children() or [psutil.Process(process.pid)]
        hourhand.send_signal(signal.SIGINT)
        assert process.wait() == 0, process.said
        assert cage.names() == []
    finally:
        cage.close()


def typed(folder: Path, port: str, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Types lines into one shell; any that fails ends it."""
    script = "\n".join(["set -e", *lines]).replace("8420", port)
    environment = clean_environment() if port == "8420" else clean_environment(HOURHAND_PORT=port)
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_examples_of_the_readme_work_as_they_stand(readme_folder: tuple[Path, str]) -> None:
    folder, port = readme_folder
    first_screen = next(block for block in blocks("sh") if "activate" in block)
    lines = logical_lines(first_screen)
    assert sum(line.startswith("hourhand ") for line in lines) >= 8
    done = typed(folder, port, lines)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for word in ("greet", "disk", "report", "heartbeat", "nightly-report", "flaky", "succeeded"):
        assert word in done.stdout, done.stdout


def test_the_call_by_curl_of_the_readme_works_as_it_stands(readme_folder: tuple[Path, str]) -> None:
    folder, port = readme_folder
    [block] = [block for block in blocks("sh") if "curl" in block]
    done = typed(folder, port, [block])
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert (job["name"], job["kind"], job["status"]) == ("ping", "http", "scheduled")


def test_the_handler_of_the_readme_works_as_it_stands(readme_folder: tuple[Path, str]) -> None:
    folder, port = readme_folder
    [line] = [line for block in blocks("sh") for line in logical_lines(block) if "--handler" in line]
    done = typed(folder, port, [". .venv/bin/activate", line])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": 42}


# --- output -----------------------------------------------------------------------------------------------


def test_whatever_is_asked_can_be_had_as_json(ask: Ask) -> None:
    job = ask.json("job", "create", "as-json", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--", "true")
    assert (job["name"], job["kind"], job["zone"]) == ("as-json", "command", "Europe/Berlin")
    job_id = job["job_id"]
    assert ask.json("job", "get", job_id)["job_id"] == job_id
    assert job_id in {each["job_id"] for each in ask.json("job", "list", "--all")}
    assert len(ask.json("job", "next", job_id)) == 10
    assert ask.json("job", "update", job_id, "--priority", "high")["job"]["priority"] == 8
    assert ask.json("job", "pause", job_id)["job"]["status"] == "paused"
    assert ask.json("job", "resume", job_id)["job"]["status"] == "scheduled"
    run = ask.json("job", "run", job_id, "--wait")
    assert run["status"] == "succeeded"
    assert ask.json("run", "get", run["run_id"])["run_id"] == run["run_id"]
    assert run["run_id"] in {each["run_id"] for each in ask.json("run", "list", "--job", job_id)}
    assert ask.json("job", "delete", "--yes", job_id)["job"]["status"] == "cancelled"
    assert {node["role"] for node in ask.json("status")["nodes"]} == {"api", "scheduler", "executor"}


def test_data_goes_to_stdout_and_messages_to_stderr(ask: Ask) -> None:
    done = ask("job", "create", "quiet", "--at", "2035-01-01T00:00:00Z", "--", "true")
    assert re.fullmatch(r"[0-9a-f-]{36}\n", done.stdout)
    assert "quiet" in done.stderr


def test_create_and_wait_gives_the_result_and_the_log(ask: Ask) -> None:
    done = ask("job", "create", "waited", "--handler", "demo.hello", "--payload", '{"name": "Ada"}', "--wait")
    assert json.loads(done.stdout)["greeting"] == "Hello, Ada!"
    followed = ask("job", "create", "followed", "--wait", "--follow", "--", "sh", "-c", "echo one; echo two")
    assert followed.stdout.splitlines()[:2] == ["one", "two"]


# --- exit codes -------------------------------------------------------------------------------------------

NOBODYS = "a1b2c3d4-e5f6-7890-1234-567890abcdef"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ["status"]),
        (0, ["--version"]),
        (2, ["job", "create"]),
        (2, ["job", "create", "x", "--cron", "61 * * * *", "--", "true"]),
        (2, ["job", "create", "x", "--no-such-option"]),
        (2, ["no-such-command"]),
        (3, ["job", "get", NOBODYS]),
        (3, ["job", "get", "no job of this name"]),
        (3, ["run", "get", NOBODYS]),
        (5, ["job", "create", "failing", "--max-retries", "0", "--wait", "--", "false"]),
        (66, ["job", "create", "--from-file", "/no/such/file"]),
        (69, ["status", "--server", "http://127.0.0.1:1"]),
        (77, ["status", "--token", "hh_wrong"]),
        (2, ["status", "--server", "not an address"]),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else str(value),
)
def test_a_command_ends_with_the_code_that_is_promised(ask: Ask, code: int, words: list[str]) -> None:
    done = ask(*words, code=code)
    if code:
        assert done.stderr.splitlines()[0].startswith("hourhand: ") or code == 5
        assert len(done.stderr.splitlines()) <= 6


def test_a_conflict_ends_with_4(ask: Ask) -> None:
    job_id = ask.json("job", "create", "once", "--at", "2035-01-01T00:00:00Z", "--", "true")["job_id"]
    ask("job", "update", job_id, "--if-version", "7", "--priority", "1", code=4)
    ask("job", "delete", "--yes", job_id)
    ask("job", "resume", job_id, code=4)


def test_who_creates_a_job_whose_handler_nobody_has_is_told_at_once(ask: Ask) -> None:
    words = ("job", "create", "typo", "--at", "2035-01-01T00:00:00Z", "--handler")
    first = ask(*words, "no-such-handler").stdout.strip()
    wait_for(lambda: ask.json("job", "get", first).get("warnings"), "the API has heard of the executor")
    told = ask(*words, "no-such-handler").stderr
    assert "warning: no-matching-executor: no live executor of queue default offers python:no-such-handler" in told
    assert "warning" not in ask(*words, "daily-data-cleanup").stderr


def test_a_name_that_several_jobs_have_ends_with_4(ask: Ask) -> None:
    for _ in range(2):
        ask("job", "create", "twins", "--cron", "0 0 1 1 *", "--", "true")
    assert "twins" in ask("job", "get", "twins", code=4).stderr


# --- following and cancelling -----------------------------------------------------------------------------


def test_a_log_is_followed_while_it_is_written(ask: Ask, running: Up, short_path: Path, cage: Cage) -> None:
    """The command writes its second line only after the first was seen by whoever follows."""
    gate = short_path / "gate"
    script = f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo second"
    job = ask.json("job", "create", "slow", "--", "sh", "-c", script)
    with running.client() as client:
        run_id = str(client.wait_for_start(job["job_id"]).run_id)
    follower = Process(cage, [HOURHAND, "run", "logs", "-f", run_id], short_path, home_and_port(running))
    wait_for(lambda: follower.said == "first\n", "the first line is followed")
    assert follower.exit_code is None
    gate.touch()
    assert follower.wait() == 0
    assert follower.said == "first\nsecond\n"


def home_and_port(up: Up) -> dict[str, str]:
    return {"HOURHAND_HOME": str(up.home), "HOURHAND_PORT": str(up.port)}


def test_ctrl_c_while_following_leaves_the_run_alone(ask: Ask, running: Up, tmp_path: Path, cage: Cage) -> None:
    job = ask.json("job", "create", "left-alone", "--", "sh", "-c", "echo here; exec sleep 4141")
    with running.client() as client:
        run_id = str(client.wait_for_start(job["job_id"]).run_id)
        follower = Process(cage, [HOURHAND, "run", "logs", "-f", run_id], tmp_path, home_and_port(running))
        wait_for(lambda: "here" in follower.said, "the line is followed")
        assert follower.end() == 130
        assert "Traceback" not in follower.said
        # Short runs are never shown as running: the start of one is written only after a moment.
        wait_for(lambda: client.get_run(run_id).status == "running", "the run goes on")
        client.cancel_run(run_id)


def test_a_cancelled_command_leaves_no_process(ask: Ask, running: Up) -> None:
    """Neither the command, nor what it started, nor what tried to hide in a session of its own."""
    script = "sleep 4343 & setsid sleep 4343 & trap '' TERM; sleep 4343; sleep 4343"
    job = ask.json("job", "create", "stubborn", "--", "sh", "-c", script)
    with running.client() as client:
        run_id = str(client.wait_for_start(job["job_id"]).run_id)
    wait_for(lambda: len(sleepers(running)) >= 3, "all of it runs")
    done = ask("run", "cancel", run_id, "--wait")
    assert "cancelled" in done.stderr
    wait_for(lambda: not sleepers(running), "no process of it is left", 5)
    assert ask.json("run", "get", run_id)["status"] == "cancelled"
    ask("run", "cancel", run_id, code=4)


def sleepers(up: Up) -> list[str]:
    return [name for name in up.cage.names() if "sleep 4343" in name and "sh -c" not in name]


# --- running again ----------------------------------------------------------------------------------------


def test_failed_runs_are_found_by_their_reason_and_run_again(ask: Ask, running: Up, short_path: Path) -> None:
    """The command fails until a file is there."""
    gate = short_path / "repaired"
    script = f"test -e {gate} || {{ echo broken >&2; exit 3; }}"
    job = ask.json("job", "create", "repairable", "--max-retries", "0", "--cron", "0 0 1 1 *", "--", "sh", "-c", script)
    runs = []
    for _ in range(2):
        done = ask("job", "run", job["job_id"], "--wait", code=5)
        assert "exit_code" in done.stderr
        runs = ask.json("run", "list", "--job", job["job_id"], "--reason", "exit_code", "--since", "1h")
    assert [run["status"] for run in runs] == ["failed", "failed"]
    assert len({run["fingerprint"] for run in runs}) == 1

    gate.touch()
    again = ask("run", "retry", runs[0]["run_id"], "--note", "repaired", "--wait")
    assert "succeeded" in again.stderr
    ask("run", "retry", runs[0]["run_id"], code=4)
    rest = ask("run", "retry", "--status", "failed", "--job", job["job_id"], "--since", "1h")
    [new] = rest.stdout.split()
    assert "1 run to run again" in rest.stderr
    repeated = ask.json("run", "wait", new)
    assert (repeated["status"], repeated["retry_of"]) == ("succeeded", runs[1]["run_id"])
    assert repeated["scheduled_for"] == runs[1]["scheduled_for"]
    assert ask("run", "retry", "--status", "failed", "--job", job["job_id"]).stdout == "", "nothing is left to repeat"
