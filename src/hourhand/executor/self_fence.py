"""Ends what must not go on when this executor can no longer be sure of its lease.

Some time before others may take its runs, an executor that could not have its lease confirmed ends those that hold a
place in a gate, may run at most once, or were asked to end on a disconnect. Everything else goes on: its outcome is
delivered, under its fence, when the database is back.

This runs on the node's own loop, unlike the heartbeats: only there can attempts be ended one by one. When a handler
blocks the loop at the very time when the database is away, `last_resort` ends all of them.
"""

import time
from collections.abc import Callable
from typing import Final

from hourhand.executor.attempts import Attempts
from hourhand.executor.duty import FORCE_SECONDS
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

LOOK_SECONDS: Final = 0.5


class SelfFence:
    def __init__(
        self,
        attempts: Attempts,
        confirmed_at: Callable[[], float],
        on_change: Callable[[bool], None],
        fence_seconds: float,
        kill_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is told when the lease becomes unsure (False) and sure again (True)."""
        self._attempts = attempts
        self._confirmed_at = confirmed_at
        self._on_change = on_change
        self._fence_seconds = fence_seconds
        self._kill_seconds = kill_seconds
        self._monotonic = monotonic
        self._unsure_since: float | None = None
        self._has_told = False

    def lease_is_sure(self) -> bool:
        return self._seconds_left() > 0

    async def run_once(self) -> float | None:
        """Ends careful attempts when the lease is unsure; says when to look again."""
        left = self._seconds_left()
        if left > 0:
            if self._unsure_since is not None:
                self._unsure_since = None
                self._on_change(True)
            return left
        if self._unsure_since is None:
            self._unsure_since = self._monotonic()
            self._has_told = False
            self._on_change(False)
            ended = self._attempts.end_careful()
            if ended:
                emit(Event.SELF_FENCED, attempts=ended, seconds=self._fence_seconds)
        else:
            ended = self._attempts.end_careful()
        if ended and not self._has_told and self._monotonic() - self._unsure_since > self._kill_seconds:
            self._has_told = True
            emit(Event.ATTEMPTS_STUCK, attempts=ended, seconds=self._kill_seconds)
        return FORCE_SECONDS if ended else LOOK_SECONDS

    def _seconds_left(self) -> float:
        return self._confirmed_at() + self._fence_seconds - self._monotonic()
