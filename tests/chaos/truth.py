"""The one true clock of a chaos run, and the files that everything which happened is written to.

All of a run happens on one machine, whose monotonic clock nobody can set. True time is that clock plus an offset that
is read once, so that it can be compared with times of the database. Each line of a log is a JSON object.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

_encode = msgspec.json.Encoder().encode


class TrueClock:
    def __init__(self, offset: float | None = None) -> None:
        self.offset = time.time() - time.monotonic() if offset is None else offset

    def now(self) -> float:
        """Seconds since 1970."""
        return time.monotonic() + self.offset


class LogFile:
    """Appends lines; each is handed to the kernel before `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, line: Any) -> None:
        self._file.write(_encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()
