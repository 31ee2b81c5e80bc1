"""Commands are run against the stub of the API that the client's tests use."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from stub_api import TOKEN, Stub, serving

SOURCE = Path(__file__).parents[3] / "src"
Hourhand = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def berlin() -> Iterator[None]:
    """A machine whose clock shows the time of Berlin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, berlin: None) -> Iterator[Stub]:
    """A server, and an environment that leads there and holds nothing else of Hourhand."""
    for name in [name for name in os.environ if name.startswith("HOURHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hourhand.client.scripts.FIRST_WAIT_SECONDS", 0.001)
    with serving() as stub:
        monkeypatch.setenv("HOURHAND_SERVER", stub.url)
        monkeypatch.setenv("HOURHAND_TOKEN", TOKEN)
        yield stub


@pytest.fixture
def hourhand(stub: Stub) -> Callable[..., Result]:
    """Runs a command within this process, its errors mapped as the real one maps them."""
    from hourhand.cli.exits import report
    from hourhand.cli.main import cli

    def run(*words: str, **options: object) -> Result:
        runner = CliRunner()

        def whole(*args: object, **kwargs: object) -> object:
            kwargs["standalone_mode"] = False
            try:
                ended = type(cli).main(cli, *args, **kwargs)  # type: ignore[call-overload]
            except (Exception, KeyboardInterrupt) as error:
                sys.exit(report(error))
            sys.exit(ended if isinstance(ended, int) else 0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "main", whole)
            return runner.invoke(cli, list(words), prog_name="hourhand", **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def process(stub: Stub) -> Hourhand:
    """Runs the command as a process of its own."""

    def run(*words: str, stdin: str | None = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hourhand.cli", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        )

    return run
