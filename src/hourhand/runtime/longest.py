"""How long something took at most, of the times that are not long ago.

What a disk or a neighbour has kept back once for a tenth of a second it keeps back again: a mean would have forgotten
it after a moment, and the very longest of all times would never.
"""

import time
from collections.abc import Callable
from typing import Final

REMEMBERED_SECONDS: Final = 300.0
"""At least so long, at most twice."""


class Longest:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._since = monotonic()
        self._before = self._now = 0.0
        """In seconds: of the stretch before this one, and of this one."""

    def note(self, began: float) -> None:
        """Something that began then, by `monotonic`, has ended."""
        self._turn()
        self._now = max(self._now, self.monotonic() - began)

    def seconds(self) -> float:
        self._turn()
        return max(self._before, self._now)

    def _turn(self) -> None:
        passed = self.monotonic() - self._since
        if passed < REMEMBERED_SECONDS:
            return
        self._before = self._now if passed < 2 * REMEMBERED_SECONDS else 0.0
        self._now = 0.0
        self._since += passed
