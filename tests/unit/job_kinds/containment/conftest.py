"""What the tests of containment share: an executor's home that must not be seen, and a kind that contains."""

import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings


@pytest.fixture
def shared():
    """A folder that everybody can write to."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture
def home(shared):
    """An executor's home, in which programs would find much of interest if only they saw it."""
    home = shared / "home"
    (home / "socket").mkdir(parents=True)
    for name in ("token", "postgres.password", "hourhand.toml"):
        (home / name).write_text("hush")
        (home / name).chmod(0o644)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(home / "socket" / "s"))
    (home / "socket" / "s").chmod(0o777)
    server.listen()
    for folder in (home / "socket", home):
        folder.chmod(0o755)  # modes must not be what protects it here
    yield home
    server.close()


@pytest.fixture
async def open_kind(home, shared):
    kinds = []

    async def open_with(**settings):
        kind = CommandKind(ProgramRunner(ProgramSettings(hidden=(home,), shared=(str(shared),), **settings)))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


@pytest.fixture
async def kind(open_kind):
    return await open_kind(grace_seconds=0.3)
