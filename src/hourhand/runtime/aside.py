"""Work for the processor that may take long, beside the event loop, which goes on meanwhile.

One piece at a time: two would not be faster, since only one thread computes at once, and the loop would get less of the
time. Who comes meanwhile waits in line, and leaves it when cancelled. Each kind of work has a line of its own.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")


class Aside:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "aside")  # which is started when there is something to do

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """What the work returns or raises. It must not touch what belongs to the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class Breath:
    """For work that goes on for long in the loop: tells when it is time to let all others have their turn."""

    def __init__(self, seconds: float = 0.01) -> None:
        self._seconds = seconds
        self._over = time.monotonic() + seconds

    def is_out(self) -> bool:
        return time.monotonic() > self._over

    async def take(self) -> None:
        await asyncio.sleep(0)
        self._over = time.monotonic() + self._seconds
