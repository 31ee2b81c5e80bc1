"""The database's clock, as a node sees it. It is the only clock that decides anything.

Every answer that carries the database's time is a sample: the time lay somewhere between sending and receiving, so the
middle is off by at most half the round trip. The best sample of the recent past counts, on a monotonic base: a
step of the node's own clock changes nothing. A step of the database's clock is followed at once, and remembered: for
a while leases that were written before it mean nothing.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLES_MAX = 16
DRIFT_PER_SECOND = 50e-6
"""How fast two healthy clocks may part; what an old sample is worth sinks by it."""
APART_SECONDS = 2.0
"""How far the clock of a machine may be from the database's before that is told."""
JUMP_SECONDS = 1.0
"""A sample that is off by more than this, and by more than both can err, says that the database's clock was set."""


class DatabaseClock:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=_SAMPLES_MAX)
        # Until the first sample the node's own clock has to do; nothing is decided before that.
        self._offset = time.time() - monotonic()
        self._error = 1.0
        self._jumped = -math.inf
        self._lock = threading.Lock()  # samples come from the heartbeat's thread and from the leader

    def observe(self, database_now: datetime, sent: float, received: float) -> None:
        """Takes a sample: the database's time in an answer, and the monotonic times round it."""
        middle, error = (sent + received) / 2, (received - sent) / 2
        offset = (database_now - _EPOCH).total_seconds() - middle
        with self._lock:
            if self._samples and abs(offset - self._offset) > JUMP_SECONDS + error + self._error:
                self._jumped = received
            self._samples.append((received, offset, error))
            self._choose(received)

    def notice(self, database_now: datetime, sent: float, received: float) -> None:
        """Takes a sample that came along with something else, if it is worth more than what is known: heartbeats wait
        for the disk, looks do not. And if it tells that the database's clock was set: that must not wait for the next
        heartbeat, or runs would start early."""
        offset, error = (database_now - _EPOCH).total_seconds() - (sent + received) / 2, (received - sent) / 2
        if error < self._error or abs(offset - self._offset) > JUMP_SECONDS + error + self._error:
            self.observe(database_now, sent, received)

    def seconds_since_jump(self) -> float:
        """How long ago the database's clock was seen to have been set; infinite if never."""
        return self._monotonic() - self._jumped

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._monotonic() + self._offset, UTC)

    def seconds_until(self, instant: datetime) -> float:
        """Negative when it has passed."""
        return (instant - _EPOCH).total_seconds() - self._offset - self._monotonic()

    def tell_if_apart(self, wall_time: float) -> None:
        """Tells of a machine whose clock shows another time (seconds since 1970) than the database. Nothing depends on
        it, but whoever compares the log lines of two machines should know."""
        ahead = wall_time - self._monotonic() - self._offset
        if abs(ahead) > APART_SECONDS + self._error:
            emit(Event.CLOCK_APART, seconds_ahead=round(ahead, 1), remedy="set both by NTP")

    @property
    def error_seconds(self) -> float:
        """By how much `now` may be off."""
        return self._error

    def _choose(self, now: float) -> None:
        newest_offset = self._samples[-1][1]
        newest_error = self._samples[-1][2]
        best = self._samples[-1]
        for sample in self._samples:
            worth = sample[2] + (now - sample[0]) * DRIFT_PER_SECOND
            # A sample that cannot be true beside the newest one is from before the database's clock was set.
            agrees = abs(sample[1] - newest_offset) <= worth + newest_error
            if agrees and worth < best[2] + (now - best[0]) * DRIFT_PER_SECOND:
                best = sample
        self._offset = best[1]
        self._error = best[2] + (now - best[0]) * DRIFT_PER_SECOND
