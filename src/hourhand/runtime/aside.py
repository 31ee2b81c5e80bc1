"""Work for the processor that may take long, beside the event loop, which goes on meanwhile.

One piece at a time: two would not be faster, since only one thread computes at once, and the loop would get less of the
time. Who comes meanwhile waits in line, and leaves it when cancelled. Each kind of work has a line of its own.
"""

import asyncio
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
