"""What is wrong with the machine is told in one clear line with an exit code of its own, and never as a traceback."""

import os
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import HOURHAND, Cage, Process, Up, sql, wait_for
from other_users import IS_ROOT, program_for_user

from held_ports import held_port
from hourhand.cli.exits import ExitCode


def said_by(
    cage: Cage, folder: Path, arguments: Sequence[str], code: ExitCode, environment: dict[str, str] | None = None
) -> str:
    """Runs a command that must fail; gives the few lines it said."""
    command = arguments if arguments[0].startswith("/") else [*HOURHAND, *arguments]
    process = Process(cage, command, folder, environment)
    assert (process.wait(60), process.said) == (code, process.said)
    return checked(process.said)


def checked(said: str) -> str:
    lines = said.splitlines()
    assert "Traceback" not in said
    assert 1 <= len(lines) <= 3, said
    assert lines[0].startswith("hourhand: "), said
    assert not any(line.startswith("  File ") for line in lines)
    return said


def up_settings(folder: Path, **more: str) -> dict[str, str]:
    return {"HOURHAND_HOME": str(folder / "home"), "HOURHAND_PORT": str(held_port()), **more}


def test_a_port_that_is_taken_is_told_before_anything_is_started(tmp_path: Path, cage: Cage) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        settings = up_settings(tmp_path, HOURHAND_PORT=str(port))
        said = said_by(cage, tmp_path, ["up"], ExitCode.CONFIGURATION, settings)
    assert f"127.0.0.1:{port}" in said
    assert "HOURHAND_PORT" in said
    assert not (tmp_path / "home").exists()


def test_an_api_whose_port_is_taken_says_so(tmp_path: Path, cage: Cage, database_url: str, schema: str) -> None:
    migrate(cage, tmp_path, database_url, schema)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        arguments = ["api", "--database", database_url, "--schema", schema, "--port", port]
        assert port in said_by(cage, tmp_path, arguments, ExitCode.CONFIGURATION)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path, cage: Cage) -> None:
    (tmp_path / "home").write_text("somebody's")
    said = said_by(cage, tmp_path, ["up"], ExitCode.CONFIGURATION, up_settings(tmp_path))
    assert f"{tmp_path}/home" in said
    assert (tmp_path / "home").read_text() == "somebody's"


@pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")
def test_a_home_that_cannot_be_written_is_refused(short_path: Path) -> None:
    program = program_for_user(short_path, "nobody")
    if program is None:
        pytest.skip("there is no interpreter that the user nobody can run")
    cage = Cage(short_path)
    try:
        foreign = Process(cage, [*program, "up"], short_path, up_settings(short_path), user="nobody")
        assert foreign.wait() == ExitCode.CONFIGURATION, foreign.said
        assert f"{short_path}/home" in checked(foreign.said)
        assert not (short_path / "home").exists()

        (short_path / "home").mkdir(mode=0o500)
        os.chown(short_path / "home", 65534, 65534)
        closed = Process(cage, [*program, "up"], short_path, up_settings(short_path), user="nobody")
        assert closed.wait() == ExitCode.CONFIGURATION, closed.said
        assert "not writable" in checked(closed.said)
    finally:
        cage.close()


def test_a_home_in_use_is_refused_and_its_user_undisturbed(tmp_path: Path, cage: Cage, running: Up) -> None:
    settings = up_settings(tmp_path, HOURHAND_HOME=str(running.home))
    said = said_by(cage, tmp_path, ["up"], ExitCode.CONFIGURATION, settings)
    assert "in use by process" in said
    assert running.process is not None
    assert str(running.process.pid) in said
    with running.client() as client:
        assert client.whoami().name == "admin"


@pytest.mark.parametrize("role", ["api", "scheduler", "executor", "up"])
def test_a_database_that_cannot_be_reached_is_told(tmp_path: Path, cage: Cage, role: str) -> None:
    arguments = [role, "--database", "postgresql://127.0.0.1:1/x"]
    said = said_by(cage, tmp_path, arguments, ExitCode.UNREACHABLE, up_settings(tmp_path))
    assert "the database cannot be reached" in said


def test_a_password_of_the_database_is_never_shown(tmp_path: Path, cage: Cage) -> None:
    url = "postgresql://somebody:topsecret@127.0.0.1:1/x"
    assert "topsecret" not in said_by(cage, tmp_path, ["scheduler", "--database", url], ExitCode.UNREACHABLE)


@pytest.mark.parametrize("url", ["mysql://127.0.0.1/x", "nonsense", "postgresql://127.0.0.1:port/x"])
def test_an_address_that_is_no_database_is_a_fault_of_the_configuration(tmp_path: Path, cage: Cage, url: str) -> None:
    said_by(cage, tmp_path, ["scheduler", "--database", url], ExitCode.CONFIGURATION)


@pytest.mark.parametrize("role", ["api", "scheduler", "executor"])
def test_a_database_that_was_not_migrated_is_refused(
    tmp_path: Path, cage: Cage, database_url: str, schema: str, role: str
) -> None:
    arguments = [role, "--database", database_url, "--schema", schema]
    said = said_by(cage, tmp_path, arguments, ExitCode.CONFIGURATION, up_settings(tmp_path))
    assert "hourhand db migrate" in said


def test_a_database_that_does_not_exist_is_told(tmp_path: Path, cage: Cage, database_url: str) -> None:
    url = re.sub(r"@/[^?]+", "@/no_such_database", database_url)
    said = said_by(cage, tmp_path, ["executor", "--database", url], ExitCode.CONFIGURATION)
    assert "no_such_database" in said


def test_a_database_that_refuses_the_user_is_told(tmp_path: Path, cage: Cage, database_url: str) -> None:
    url = re.sub(r"://([^:]+):[^@]+@", r"://\1:wrong@", database_url)
    said_by(cage, tmp_path, ["executor", "--database", url], ExitCode.CONFIGURATION)


def test_a_database_that_is_too_old_is_refused(tmp_path: Path, cage: Cage, database_url: str, schema: str) -> None:
    """No PostgreSQL before 15 is at hand, so the bar is raised above the one that is."""
    program = (
        "import hourhand.database.connections as connections\n"
        "connections.VERSION_MIN = 990000\n"
        "from hourhand.cli.main import main\n"
        "main()\n"
    )
    command = [HOURHAND[0], "-c", program, "scheduler", "--database", database_url, "--schema", schema]
    assert "too old" in said_by(cage, tmp_path, command, ExitCode.CONFIGURATION)


def test_a_database_of_a_newer_hourhand_is_refused(tmp_path: Path, cage: Cage, database_url: str, schema: str) -> None:
    migrate(cage, tmp_path, database_url, schema)
    sql(database_url, f"INSERT INTO {schema}.migrations (version, name, checksum) VALUES (9999, 'later', 'x')")
    arguments = ["scheduler", "--database", database_url, "--schema", schema]
    assert "newer Hourhand" in said_by(cage, tmp_path, arguments, ExitCode.CONFIGURATION)


def test_faults_of_the_configuration_are_told_all_at_once(tmp_path: Path, cage: Cage) -> None:
    (tmp_path / "hourhand.toml").write_text("[scheduler]\ntik_seconds = 1\n")
    settings = up_settings(tmp_path, HOURHAND_PROT="8421", HOURHAND_CONFIG=str(tmp_path / "hourhand.toml"))
    said = said_by(cage, tmp_path, ["up"], ExitCode.CONFIGURATION, settings)
    assert "HOURHAND_PROT" in said
    assert "did you mean HOURHAND_PORT" in said.replace("'", "")
    assert "hourhand.toml:2" in said
    assert "tik_seconds" in said


def test_a_handler_module_that_cannot_be_imported_is_told(
    tmp_path: Path, cage: Cage, database_url: str, schema: str
) -> None:
    migrate(cage, tmp_path, database_url, schema)
    arguments = ["executor", "--database", database_url, "--schema", schema, "--import", "no_such_module"]
    assert "no_such_module" in said_by(cage, tmp_path, arguments, ExitCode.CONFIGURATION)


def test_up_tells_why_a_role_did_not_start_and_leaves_nothing(tmp_path: Path, cage: Cage) -> None:
    process = Process(cage, [*HOURHAND, "up", "--import", "no_such_module"], tmp_path, up_settings(tmp_path))
    assert process.wait() != 0
    assert "no_such_module" in process.said
    assert "Traceback" not in process.said
    assert cage.names() == []


def test_an_interrupt_during_the_start_leaves_nothing(tmp_path: Path, cage: Cage) -> None:
    process = Process(cage, [*HOURHAND, "up"], tmp_path, up_settings(tmp_path))
    wait_for((tmp_path / "home").exists, "the start is under way")
    assert process.end() in (0, ExitCode.INTERRUPTED)
    assert "Traceback" not in process.said
    assert cage.names() == []


def migrate(cage: Cage, folder: Path, url: str, schema: str) -> None:
    process = Process(cage, [*HOURHAND, "db", "migrate", "--database", url, "--schema", schema], folder)
    assert process.wait() == 0, process.said


def test_a_closed_output_is_no_fault(running: Up) -> None:
    """As in `hourhand job list | head -1`."""
    command = f"{' '.join(HOURHAND)} job list -o json --all | head -c 1"
    environment = os.environ | running.environment
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
