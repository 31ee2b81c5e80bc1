"""What the tests of job kinds share: tasks whose log can be read, and patience without fixed sleeps."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from hourhand.ports.job_kind import Task

SCHEDULED_FOR = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
_fences = itertools.count(1000)


class Logged(NamedTuple):
    task: Task
    lines: list[tuple[str, str]]

    def of(self, stream: str) -> list[str]:
        return [text for name, text in self.lines if name == stream]


MakeTask = Callable[..., Logged]
Until = Callable[..., Awaitable[None]]


def logged_task(
    payload: Mapping[str, Any], *, kind: str = "python", job_name: str = "nightly", attempt: int = 1
) -> Logged:
    lines: list[tuple[str, str]] = []
    task = Task(
        run_id=uuid4(),
        job_id=UUID(int=7),
        namespace="default",
        job_name=job_name,
        kind=kind,
        payload=payload,
        attempt=attempt,
        fence=next(_fences),
        scheduled_for=SCHEDULED_FOR,
        log=lambda stream, text: lines.append((stream, text)),
    )
    return Logged(task, lines)


@pytest.fixture
def make_task() -> MakeTask:
    return logged_task


async def wait_until(condition: Callable[[], Any], seconds_max: float = 20.0) -> None:
    """Returns as soon as the condition holds."""
    end = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.005)


@pytest.fixture
def until() -> Until:
    return wait_until


def process_is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead but not yet reaped does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return process_is_alive
