"""Ends the whole executor when what must not go on without a lease does, and nothing else could end it.

Careful attempts are ended on the node's loop (`self_fence`). A handler may block that loop, or not end when it is told
to. So a thread looks as well, and shortly before others may start the same runs it kills this process, and with it
everything that was started by it. Its other runs are rescued like those of any executor that died.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

LOOK_SECONDS_MAX: Final = 0.25
AWAKE_SECONDS: Final = 5.0
"""How long the loop has when this process was stopped until its lease was over: then there is nothing left to prevent,
only to end."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class LastResort:
    def __init__(
        self,
        has_careful: Callable[[], bool],
        confirmed_at: Callable[[], float],
        fence_seconds: float,
        kill_seconds: float,
        lease_seconds: float,
        kill: Callable[[], None] = _kill,
    ) -> None:
        """`has_careful` is asked from another thread."""
        self._has_careful = has_careful
        self._confirmed_at = confirmed_at
        self._fence_seconds = fence_seconds
        # Half-way between the time by which the loop should have ended them and the end of the lease.
        self._last_seconds = (fence_seconds + kill_seconds + lease_seconds) / 2
        self._lease_seconds = lease_seconds
        self._kill = kill
        self._kill_at: float | None = None
        self._closed = threading.Event()

    def open(self) -> None:
        threading.Thread(target=self._watch, name="last resort", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        pause = min(LOOK_SECONDS_MAX, (self._lease_seconds - self._last_seconds) / 4)
        while not self._closed.wait(pause):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        passed = now - self._confirmed_at()
        if passed <= self._fence_seconds or not self._has_careful():
            self._kill_at = None
        elif self._kill_at is None:
            in_time = passed < self._last_seconds
            self._kill_at = now + (self._last_seconds - passed if in_time else AWAKE_SECONDS)
        elif now >= self._kill_at:
            emit(Event.ENDED_BY_FORCE, seconds=round(passed, 1))
            self._kill()
