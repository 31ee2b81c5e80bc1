"""Awaits a coroutine that may keep its cancellation to itself, for a grace period and no longer.

A coroutine takes a step only when it is resumed. So one that does not end when it is told to can be ended all the same:
it is never resumed again. It stays where it is, and what it holds with it, until the process ends; tasks that it has
started go on. So there is a bound to how many a process may have: whoever runs it hears when that is reached.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Final

from hourhand.ports.job_kind import NO_MORE_GRACE
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

LEFT_MAX: Final = 1000
_TOLD_FIRST, _TOLD_EVERY = 10, 100
_kept: Final[list[Coroutine[Any, Any, Any]]] = []
"""Whoever is left behind, because to forget a coroutine is to resume it once more, for its end."""


class LeftBehind:
    """How many handlers of a kind were left behind since the start."""

    def __init__(self) -> None:
        self.count = 0
        self.on_full: Callable[[], None] = lambda: None
        """Called once, when there are so many that only a new process helps. Until there is one, more are kept."""

    def add(self, work: Coroutine[Any, Any, Any]) -> None:
        _kept.append(work)
        self.count += 1
        if self.count <= _TOLD_FIRST or self.count % _TOLD_EVERY == 0:  # each is told in its own run anyway
            name = getattr(work, "__qualname__", repr(work))
            emit(Event.HANDLER_ABANDONED, handler=name, abandoned=self.count)
        if self.count == LEFT_MAX:
            self.on_full()


@coroutine
def rest_of(
    work: Coroutine[Any, Any, Any], waited: Any, grace_seconds: float, left: LeftBehind
) -> Generator[Any, Any, Any]:
    """What a coroutine answers that has taken its first step and waits for something. Cancellations are handed to it.

    When it has not ended so long after one that it did not take back, as its own timeouts do, or when it is told that
    there is no more grace, it is left behind, and CancelledError raised."""
    task = asyncio.current_task()
    assert task is not None
    timer: asyncio.TimerHandle | None = None
    is_over = False

    def end_grace() -> None:
        nonlocal timer, is_over
        timer = None
        if task.cancelling():
            is_over = True
            task.cancel(NO_MORE_GRACE)

    try:
        while True:
            try:
                value = yield waited
            except asyncio.CancelledError as told:
                if told.args == (NO_MORE_GRACE,):
                    if is_over:
                        task.uncancel()  # that one was ours: whoever cancelled first counts his own
                    left.add(work)
                    raise
                if timer is None or task.cancelling() == 1:  # else it is a timeout of its own, after one from outside
                    if timer is not None:
                        timer.cancel()
                    timer = asyncio.get_running_loop().call_later(grace_seconds, end_grace)
                waited = work.throw(told)
            except BaseException as fault:
                waited = work.throw(fault)
            else:
                waited = work.send(value)
    except StopIteration as end:
        return end.value
    finally:
        if timer is not None:
            timer.cancel()
