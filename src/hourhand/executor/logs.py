"""Lines an attempt writes: numbered from 1, gathered into chunks, the middle left out when there are too many.

The first half of the allowance is passed on as it comes. After that the newest lines are kept in a ring; when the
attempt ends they follow a mark that says how many are missing. While the database takes no lines the same is done with
a much smaller ring: all attempts together must not fill the memory.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

from hourhand.ports.stores import LogChunk

STREAMS: Final = {"stdout": 0, "stderr": 1, "log": 2}
LINE_CHARS_MAX: Final = 16 * 1024
HALF_CHARS_MAX: Final = 4 * 1024 * 1024
"""How much text of the beginning, and how much of the end, is kept at most."""
CROWDED_LINES_MAX: Final = 100
CROWDED_CHARS_MAX: Final = 32 * 1024
"""How much each attempt keeps of what it says while nobody takes it."""


class LogBuffer:
    __slots__ = (
        "_attempt",
        "_clock",
        "_head_chars",
        "_head_left",
        "_is_crowded",
        "_next_line",
        "_put",
        "_run_id",
        "_skipped",
        "_tail",
        "_tail_chars",
        "_tail_max",
    )

    def __init__(
        self,
        run_id: UUID,
        attempt: int,
        clock: Callable[[], datetime],
        put: Callable[[LogChunk], None],
        lines_max: int,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_crowded` says whether more lines wait to be stored than should."""
        self._is_crowded = is_crowded
        self._run_id = run_id
        self._attempt = attempt
        self._clock = clock
        self._put = put
        self._next_line = 1
        self._head_left = lines_max // 2
        self._head_chars = HALF_CHARS_MAX
        self._tail_chars = 0
        self._tail_max = lines_max - lines_max // 2
        self._tail: deque[tuple[datetime, int, str]] | None = None  # most attempts say little or nothing
        self._skipped = 0

    def __call__(self, stream: str, text: str) -> None:
        """Takes one line. Never blocks, never raises."""
        line = (
            self._clock(),
            STREAMS.get(stream, 2),
            text[:LINE_CHARS_MAX].replace("\x00", "").encode(errors="replace").decode(),
        )
        if self._head_left <= 0 or self._head_chars <= 0:
            self._keep(line, self._tail_max, HALF_CHARS_MAX)
        elif self._is_crowded():
            self._keep(line, min(self._tail_max, CROWDED_LINES_MAX), CROWDED_CHARS_MAX)
        else:
            self.close()  # what was kept while it was crowded comes first
            self._head_left -= 1
            self._head_chars -= len(line[2])
            self._pass_on(line)

    def _keep(self, line: tuple[datetime, int, str], lines_max: int, chars_max: int) -> None:
        if self._tail is None:
            self._tail = deque()
        self._tail.append(line)
        self._tail_chars += len(line[2])
        while len(self._tail) > lines_max or self._tail_chars > chars_max:
            self._tail_chars -= len(self._tail.popleft()[2])
            self._skipped += 1

    def close(self) -> None:
        """Passes on what is left; the attempt has ended."""
        if not self._tail:
            return
        if self._skipped:
            self._pass_on((self._tail[0][0], STREAMS["log"], f"… {self._skipped} lines left out here …"))
        for line in self._tail:
            self._pass_on(line)
        self._tail.clear()
        self._tail_chars = self._skipped = 0

    def _pass_on(self, line: tuple[datetime, int, str]) -> None:
        self._put(LogChunk(self._run_id, self._attempt, self._next_line, [line[0]], [line[1]], [line[2]]))
        self._next_line += 1
