"""One running Hourhand for all tests that only talk to it, and an own cage for each that starts processes."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cage, Up

from seen_folders import seen_folder

_numbers = itertools.count(1)

HANDLERS = '''
"""What the jobs of the notes are named after, so that they run as they are written there."""
import asyncio
from hourhand import Context, job


@job("daily-data-cleanup")
async def clean(ctx: Context, cleanup_target: str = "", retention_days: int = 0) -> dict:
    ctx.log(f"cleaning {cleanup_target}, keeping {retention_days} days")
    return {"cleaned": cleanup_target}


@job("fails")
async def fails(ctx: Context) -> None:
    raise ConnectionError("Database connection failed")


@job("waits")
async def waits(ctx: Context) -> None:
    await asyncio.Event().wait()
'''


@pytest.fixture
def cage(tmp_path: Path) -> Iterator[Cage]:
    cage = Cage(tmp_path)
    yield cage
    cage.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder that everybody may pass, unlike pytest's own, and that programs see."""
    with seen_folder() as folder:
        yield folder


@pytest.fixture
def schema() -> str:
    """A schema of its own in the shared database."""
    return f"acceptance_{next(_numbers)}"


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`hourhand up`, shared. Tests leave what they made; each looks at its own jobs only."""
    folder = tmp_path_factory.mktemp("running")
    (folder / "handlers_of_the_notes.py").write_text(HANDLERS)
    settings = {
        "PYTHONPATH": str(folder),
        # A test that failed may leave something running; the end of the session need not wait for it.
        "HOURHAND_EXECUTOR_STOP_SECONDS": "1",
        "HOURHAND_KINDS_GRACE_SECONDS": "1",
    }
    with Up(folder, arguments=["--import", "handlers_of_the_notes"], environment=settings) as up:
        yield up
