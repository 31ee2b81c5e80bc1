"""`hourhand up` on any free port: every address that is shown is the real one, and commands find it."""

import re
import subprocess
from pathlib import Path

from harness import HOURHAND, Cage, Process, clean_environment, wait_for

from hourhand.cli.exits import ExitCode


def hourhand(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(HOURHAND_HOME=str(folder / "home"))
    return subprocess.run([*HOURHAND, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_on_any_port_what_is_shown_and_what_commands_find_is_the_real_one(tmp_path: Path, cage: Cage) -> None:
    process = Process(cage, [*HOURHAND, "up", "--port", "0"], tmp_path, {"HOURHAND_HOME": str(tmp_path / "home")})
    wait_for(lambda: "Ctrl-C stops everything" in process.said, 60)
    shown = set(re.findall(r"http://[0-9.:]+", process.said))
    assert len(shown) == 1
    [address] = shown
    assert int(address.rpartition(":")[2]) > 0
    assert (tmp_path / "home" / "address").read_text() == f"{address}\n"
    status = hourhand(tmp_path, "status")
    assert status.returncode == 0, status.stderr
    assert address in status.stdout
    assert hourhand(tmp_path, "login-link").stdout.startswith(f"{address}/login?code=")
    second = Process(cage, [*HOURHAND, "up", "--port", "0"], tmp_path, {"HOURHAND_HOME": str(tmp_path / "home")})
    assert second.wait(60) != 0, "one home is one Hourhand's"
    assert (tmp_path / "home" / "address").exists(), "and another that is refused does not take its address away"
    assert process.end() == 0, process.said
    assert not (tmp_path / "home" / "address").exists()
    assert hourhand(tmp_path, "status").returncode == ExitCode.UNREACHABLE
