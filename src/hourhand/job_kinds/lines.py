"""Cuts output into log lines that can be stored: whole, decoded, never longer than a bound.

What a job prints is data from a stranger: it may be endless, without line ends, not text at all. Here it
becomes lines of bounded length without NUL; how many of them are kept is the log's own business. All lines of one read
are handed on together, and whoever takes them may ask for a pause: then the pipe fills up, and the program waits.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from hourhand.model.log import CUT
from hourhand.ports.job_kind import LogSink

LINE_BYTES_MAX: Final = 16 * 1024
READ_BYTES: Final = 64 * 1024
"""Read per turn of the event loop, so that a command that floods its output delays nobody for long."""
PIPE_BYTES_WIDE: Final = 256 * 1024
"""Of a pipe that was full when it was read: who writes that much need not wait for every turn of the event loop."""
DRAIN_BYTES_MAX: Final = 1024 * 1024
_CONTINUATION_BITS: Final = 0b1000_0000

Lines: TypeAlias = Callable[[str, list[str]], "asyncio.Future[None] | None"]
"""Takes the lines of a stream. Answers None, or what to wait for before more is read."""


def many_of(log: LogSink) -> Lines:
    """The form of a sink that takes many lines at once; one that has none gets them one by one."""
    many: Lines | None = getattr(log, "many", None)
    if many is not None:
        return many

    def one_by_one(stream: str, lines: list[str]) -> None:
        for line in lines:
            log(stream, line)

    return one_by_one


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text that a job hands over as one piece."""
    for line in text.split("\n"):
        clean = line.rstrip("\r").replace("\x00", "")
        if len(clean) <= LINE_BYTES_MAX:
            yield clean
        else:
            pieces = [clean[at : at + LINE_BYTES_MAX] for at in range(0, len(clean), LINE_BYTES_MAX)]
            yield from _marked(pieces)


class LineSplitter:
    """Takes bytes as they come and gives lines. Holds at most one unfinished line in memory."""

    __slots__ = ("_bytes_max", "_is_cut", "_rest")

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        """`bytes_max`: longer lines are given in pieces."""
        self._bytes_max = bytes_max
        self._rest = b""
        self._is_cut = False
        """Whether the unfinished line goes on where a piece of it was given already."""

    def feed(self, data: bytes) -> list[str]:
        if self._rest:
            data = self._rest + data
        end = data.rfind(b"\n")
        lines: list[str] = []
        if end >= 0:
            lines = self._quickly(data[:end]) or self._carefully(data[:end])
            data = data[end + 1 :]
        if len(data) > self._bytes_max:
            pieces, data = _cut(data, self._bytes_max)
            lines += self._as_pieces(pieces, is_whole=False)
        self._rest = data
        return lines

    @property
    def has_rest(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def finish(self) -> list[str]:
        """The last line when it had no line end."""
        rest, self._rest = self._rest, b""
        return self._as_pieces([_decoded(rest)], is_whole=True) if rest else []

    def _quickly(self, whole: bytes) -> list[str] | None:
        """The lines, if all of them are text of a usual length: a thousand of them in a few steps. Else None."""
        try:
            text = whole.decode()
        except UnicodeDecodeError:
            return None
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        if "\x00" in text:
            text = text.replace("\x00", "")
        lines = text.split("\n")
        if self._is_cut or (len(whole) > self._bytes_max and max(map(len, lines)) > self._bytes_max // 4):
            return None
        return lines

    def _carefully(self, whole: bytes) -> list[str]:
        lines: list[str] = []
        for line in whole.split(b"\n"):
            pieces, last = _cut(line, self._bytes_max)
            lines += self._as_pieces([*pieces, _decoded(last)], is_whole=True)
        return lines

    def _as_pieces(self, pieces: list[str], *, is_whole: bool) -> list[str]:
        """Marks where a line was cut. `is_whole`: the last piece ends it."""
        was_cut, self._is_cut = self._is_cut, not is_whole
        return _marked(pieces, was_cut, not is_whole)


def _marked(pieces: list[str], was_cut: bool = False, goes_on: bool = False) -> list[str]:
    last = len(pieces) - 1
    return [
        (CUT if at or was_cut else "") + piece + (CUT if at < last or goes_on else "")
        for at, piece in enumerate(pieces)
    ]  # fmt: skip


def _cut(line: bytes, bytes_max: int) -> tuple[list[str], bytes]:
    pieces: list[str] = []
    while len(line) > bytes_max:
        at = bytes_max
        while at > bytes_max - 4 and line[at] & 0b1100_0000 == _CONTINUATION_BITS:
            at -= 1  # never in the middle of a character: both halves would be unreadable
        pieces.append(_decoded(line[:at]))
        line = line[at:]
    return pieces, line


def _decoded(line: bytes) -> str:
    return line.removesuffix(b"\r").replace(b"\x00", b"").decode("utf-8", "replace")


class LineReader:
    """Follows one pipe from the event loop and hands on its lines."""

    def __init__(self, fd: int, stream: str, lines: Lines, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._fd = fd
        self._stream = stream
        self._lines = lines
        self._splitter = LineSplitter(line_bytes_max)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_paused = False
        self._is_patient = True
        """Whether it may be asked to pause; no longer when nobody writes any more."""
        self._is_wide = False
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read_once)

    @property
    def has_rest(self) -> bool:
        return self._splitter.has_rest

    def read_waiting(self) -> None:
        """Takes what is in the pipe right now, and the unfinished line too: the run that wrote it is over."""
        for _ in range(DRAIN_BYTES_MAX // READ_BYTES):
            if not self._read_once():
                break
        self._emit(self._splitter.finish())

    def drained(self) -> bool:
        """Reads what is in the pipe, up to a bound; whether that was its end."""
        self._is_patient = False
        self._go_on()
        for _ in range(DRAIN_BYTES_MAX // READ_BYTES):
            if not self._read_once():
                break
        return self._ended.is_set()

    async def drain(self, seconds_max: float) -> None:
        """Reads to the end of the pipe, or as long as allowed when somebody keeps it open."""
        self._is_patient = False
        self._go_on()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._ended.wait()

    def close(self) -> None:
        """Stops following. The pipe itself belongs to the caller."""
        self._is_patient = False
        if not self._ended.is_set():
            self._end()
        self._emit(self._splitter.finish())

    def _read_once(self) -> bool:
        """Says whether there may be more."""
        if self._ended.is_set():
            return False
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        if len(data) == READ_BYTES and not self._is_wide:
            self._widen()
        self._emit(self._splitter.feed(data))
        return True

    def _widen(self) -> None:
        self._is_wide = True
        with contextlib.suppress(OSError):  # no pipe, or more than its user may have
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES_WIDE)

    def _end(self) -> None:
        if not self._is_paused:
            self._loop.remove_reader(self._fd)
        self._ended.set()

    def _emit(self, lines: list[str]) -> None:
        if not lines:
            return
        room = self._lines(self._stream, lines)
        if room is not None and self._is_patient and not self._is_paused and not self._ended.is_set():
            self._is_paused = True
            self._loop.remove_reader(self._fd)
            room.add_done_callback(lambda _: self._go_on())

    def _go_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._ended.is_set():
                self._loop.add_reader(self._fd, self._read_once)
