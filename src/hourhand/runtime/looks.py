"""When to look at everything, and when at what is new.

Whoever takes work from the front of an index walks over the entries of what was taken before. Normally PostgreSQL
clears them away at once; while somebody keeps an old transaction open it must not, and the walk grows by everything
that happens meanwhile. Then most looks begin where the last one ended, and only now and then one at the very front,
which had better not keep anybody waiting.
"""

import time
from collections.abc import Callable
from typing import Final

SLOW_SECONDS: Final = 0.02
"""A look that takes less may be taken at any time."""
REST: Final = 10
"""After two slow looks in a row the next of their sort waits so many times as long as the last one took: one alone may
have waited for something else than its walk."""
REST_SECONDS_MAX: Final = 2.0
"""But not longer than this: what only a thorough look finds must not wait for ever."""


class ThoroughLooks:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._next = 0.0
        self._was_slow = False

    def begin(self) -> "ThoroughLook | None":
        """A look at everything, whose end is to be told; None while such a look must wait."""
        now = self._monotonic()
        return ThoroughLook(self, now, is_slow=self._next > 0) if now >= self._next else None

    def ended(self, begun: float) -> None:
        now = self._monotonic()
        took, was_slow = now - begun, self._was_slow
        self._was_slow = took > SLOW_SECONDS
        self._next = now + min(REST * took, REST_SECONDS_MAX) if self._was_slow and was_slow else 0.0

    def seconds_left(self) -> float:
        """Until the next one may begin."""
        return max(self._next - self._monotonic(), 0.0)


class ThoroughLook:
    __slots__ = ("_begun", "_looks", "is_slow")

    def __init__(self, looks: ThoroughLooks, begun: float, *, is_slow: bool) -> None:
        self._looks = looks
        self._begun = begun
        self.is_slow = is_slow
        """Whether it will take long, by what the last ones took."""

    def end(self) -> None:
        self._looks.ended(self._begun)
