"""The command as a process: exit codes as a shell sees them, no tracebacks, a quick start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stub_api import Stub

from hourhand.cli import exits
from hourhand.model import errors

Process = Callable[..., subprocess.CompletedProcess[str]]


def test_exit_codes_reach_the_shell(process: Process, stub: Stub) -> None:
    stub.add_job("x")
    stub.add_job("fails")

    assert process("job", "get", "x").returncode == 0
    assert process("job", "gte", "x").returncode == 2
    assert process("job", "get", "y").returncode == 3
    assert process("job", "run", "fails", "--wait").returncode == 5
    assert process("job", "create", "x", "--from-file", "-").returncode == 66
    assert process("status", "--token", "wrong").returncode == 77


def test_a_server_that_is_not_there_is_told_in_one_line(process: Process) -> None:
    done = process("status", "--server", "http://127.0.0.1:9")
    assert done.returncode == 69
    assert done.stderr == (
        "hourhand: cannot reach http://127.0.0.1:9 (connection refused). Is it running? Start it with: hourhand up\n"
    )


def test_a_fault_of_our_own_is_one_line_and_a_traceback_only_on_request(process: Process, stub: Stub) -> None:
    stub.add_job("x", zone="No/Such")

    quiet = process("job", "next", "x")
    assert quiet.returncode == 1
    assert quiet.stderr.startswith("hourhand: unexpected ")
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in process("job", "next", "x", HOURHAND_DEBUG="1").stderr


def test_a_closed_pipe_is_no_disaster(process: Process, stub: Stub) -> None:
    for n in range(500):
        stub.add_job(f"job-{n}")
    shell = f"{sys.executable} -m hourhand.cli job list --all -o json | head -1"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False, env=child_environment())
    assert done.stdout == "[\n"
    assert done.stderr == ""


def test_an_interrupt_ends_with_130_and_says_that_the_run_goes_on(stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"), status="waiting")
    process = subprocess.Popen(
        [sys.executable, "-m", "hourhand.cli", "run", "wait", run["run_id"]],
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    while not stub.seen:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "goes on; stop it with: hourhand run cancel" in said
    assert "Traceback" not in said


def test_help_starts_without_the_heavy_libraries(process: Process) -> None:
    code = (
        "import sys\nfrom hourhand.cli.main import run\nrun(['--help'])\nrun(['job', 'create', '--help'])\n"
        "heavy = {'rich', 'httpx', 'msgspec', 'asyncio', 'ssl', 'asyncpg', 'granian'} & sys.modules.keys()\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=child_environment()
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound("job", "x"), 3),
        (errors.Conflict("c", "m"), 4),
        (errors.DatabaseUnavailable("m"), 69),
        (errors.BadConfiguration(["m"]), 78),
        (errors.PortTaken("m"), 78),
        (errors.WorldError("m"), 1),
        (exits.RunFailed("m"), 5),
        (KeyboardInterrupt(), 130),
        (ValueError("m"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exits.exit_code_of(error) == code


def test_all_faults_of_a_configuration_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits.report(errors.BadConfiguration(["a: wrong", "b: wrong"])) == 78
    assert capsys.readouterr().err == "hourhand: the configuration has faults\n  a: wrong\n  b: wrong\n"


def test_what_is_wrong_with_something_that_has_no_fields_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exits.report(errors.InvalidFields([errors.Fault("", "archive-unsafe-path", "'../x' leads out of the archive")]))
    assert capsys.readouterr().err == "hourhand: '../x' leads out of the archive\n"


def test_a_message_that_only_repeats_the_faults_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [errors.Fault("/kind", "x", "is unknown", allowed=["command", "http"]), errors.Fault("/a", "x", "is odd")]
    assert exits.report(errors.InvalidFields(faults)) == 2
    assert capsys.readouterr().err.splitlines() == [
        "hourhand: 2 fields are wrong",
        "  /kind: is unknown [one of command, http]",
        "  /a: is odd",
    ]


def test_what_is_allowed_is_listed_in_full_unless_the_message_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    some = errors.Fault("/day", "x", "write MON, SAT-SUN", allowed=["MON", "TUE", "SUN"])
    every = errors.Fault("/gap", "x", "must be one of skip, fire_after", allowed=["skip", "fire_after"])
    exits.report(errors.InvalidFields([some, every]))
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  /day: write MON, SAT-SUN [one of MON, TUE, SUN]",
        "  /gap: must be one of skip, fire_after",
    ]


def child_environment() -> dict[str, str]:
    source = os.path.join(os.path.dirname(__file__), "..", "..", "..", "src")
    return {**os.environ, "PYTHONPATH": os.path.abspath(source)}


def test_up_serves_every_queue_unless_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hourhand.cli.supervisor import Supervisor
    from hourhand.config import load_config

    monkeypatch.delenv("HOURHAND_EXECUTOR_QUEUES", raising=False)
    monkeypatch.setenv("HOURHAND_DATABASE_URL", "postgresql://nobody@127.0.0.1/none")
    monkeypatch.chdir(tmp_path)

    assert Supervisor(load_config(None), None, print)._environment()["HOURHAND_EXECUTOR_QUEUES"] == "*"
    monkeypatch.setenv("HOURHAND_EXECUTOR_QUEUES", "reports")
    assert Supervisor(load_config(None), None, print)._environment()["HOURHAND_EXECUTOR_QUEUES"] == "reports"
