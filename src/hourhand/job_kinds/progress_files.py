"""How a program says how far it has come: lines `PERCENT MESSAGE` in a file of its folder, of which the last counts.

A file of its own, and not its output: what a program prints is text and nothing else, whatever it looks like. All that
a line can do is to be shown. The files are looked at once a second, so programs that are over sooner cost nothing.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hourhand.model.work_folder import OWN_BEGINNING

PROGRESS_VARIABLE: Final = "HOURHAND_PROGRESS_FILE"
PROGRESS_FILE: Final = f"{OWN_BEGINNING}progress"
LOOK_SECONDS: Final = 1.0
_TAIL_BYTES: Final = 2048

Tell = Callable[[float | None, str], None]


class _Watched:
    __slots__ = ("seen", "tell")

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.seen: tuple[int, int] | None = None
        """Size and time of change of what was read last."""


class ProgressFiles:
    """Those of all programs of an executor."""

    def __init__(self, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._watched: dict[Path, _Watched] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, folder: Path, tell: Tell) -> None:
        """The program in this folder has been started."""
        self._watched[folder] = _Watched(tell)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._look_seconds, self._look)

    def forget(self, folder: Path) -> None:
        """It is over. May be called for a folder that nobody watches."""
        self._watched.pop(folder, None)

    def _look(self) -> None:
        self._timer = None
        for folder, watched in self._watched.items():
            said = _newest(folder / PROGRESS_FILE, watched)
            if said is not None:
                watched.tell(*said)
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(self._look_seconds, self._look)


def _newest(path: Path, watched: _Watched) -> tuple[float | None, str] | None:
    """The last line, if it is new. The folder is the program's: whatever is in the place of the file, only a plain file
    of its own is read, and of that only the end. One with a second name may be somebody else's."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        seen = (facts.st_size, facts.st_mtime_ns)
        if seen == watched.seen or not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_nlink != 1 or facts.st_uid != path.parent.stat().st_uid:
            return None
        watched.seen = seen
        tail = os.pread(file, _TAIL_BYTES, max(facts.st_size - _TAIL_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(file)
    lines = [line for line in tail.splitlines() if line.strip()]
    return said_in(lines[-1]) if lines else None


def said_in(line: bytes) -> tuple[float | None, str]:
    """`40 halfway` is 40 per cent; without a number in front all of it is the message."""
    text = line.decode("utf-8", "replace").strip()
    first, _, rest = text.partition(" ")
    try:
        return float(first.removesuffix("%")), rest.strip()
    except ValueError:
        return None, text
