"""A test that does not end fails, and tells where it stands: nobody else should have to wait for it.

What waits in an event loop shows in no thread's stack, so the stacks of all tasks are told. A test that lasts this long
on a slow machine would be the longest several times over; those that measure have limits of their own.
"""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

SECONDS_MAX = 600.0
AGAIN_SECONDS = 10.0
STEPS_MAX = 100
FRAMES = ("cr_frame", "gi_frame", "ag_frame")
AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


@contextmanager
def ended_when_stuck(seconds: float = SECONDS_MAX) -> Iterator[None]:
    """Fails whatever is under way in the main thread after so many seconds. Elsewhere nothing can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_: int, frame: FrameType | None) -> None:
        pytest.fail(f"stuck for {seconds:g} s\n{_tasks()}")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)  # a callback of the loop would swallow it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tasks() -> str:
    """Where each task of the loop that runs here stands."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return "no event loop runs here"
    return "\n".join(f"{task.get_name()}\n{''.join(_steps(task.get_coro()))}" for task in tasks)


def _steps(waiting: Any) -> Iterator[str]:
    """From the outermost coroutine to what the innermost waits for. The task itself tells only the outermost."""
    for _ in range(STEPS_MAX):
        frame = next((found for name in FRAMES if (found := getattr(waiting, name, None))), None)
        if frame is None:
            break
        yield f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}\n"
        waiting = next((found for name in AWAITED if (found := getattr(waiting, name, None))), None)
    yield f"  waits for {waiting!r}\n"
