"""When to look at everything, and when at what is new.

Whoever takes work from the front of an index walks over the entries of what was taken before. Normally PostgreSQL
clears them away at once; while somebody keeps an old transaction open it must not, and the walk grows by everything
that happens meanwhile. Then most looks begin where the last one ended, and only now and then one at the very front.
"""

import time
from collections.abc import Callable
from typing import Final

SLOW_SECONDS: Final = 0.02
"""A look that takes less may be taken at any time."""
REST: Final = 10
"""After a slow look the next of its sort waits so many times as long as it took."""


class ThoroughLook:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._begun = 0.0
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether to look at everything; if so, `ended` must follow."""
        self._begun = self._monotonic()
        return self._begun >= self._next

    def ended(self) -> None:
        now = self._monotonic()
        took = now - self._begun
        self._next = now + REST * took if took > SLOW_SECONDS else 0.0
