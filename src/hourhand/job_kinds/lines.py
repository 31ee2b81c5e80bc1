"""Cuts output into log lines that can be stored: whole, decoded, never longer than a bound.

What a job prints is data from a stranger: it may be endless, without line ends, not text at all. Here it
becomes lines of bounded length without NUL; how many of them are kept is the log's own business.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

LINE_BYTES_MAX: Final = 16 * 1024
READ_BYTES: Final = 16 * 1024
"""Read per turn of the event loop, so that a command that floods its output delays nobody for long."""
DRAIN_BYTES_MAX: Final = 1024 * 1024
_CONTINUATION_BITS: Final = 0b1000_0000


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text that a job hands over as one piece."""
    for line in text.split("\n"):
        clean = line.rstrip("\r").replace("\x00", "")
        if len(clean) <= LINE_BYTES_MAX:
            yield clean
        else:
            yield from (clean[at : at + LINE_BYTES_MAX] for at in range(0, len(clean), LINE_BYTES_MAX))


class LineSplitter:
    """Takes bytes as they come and gives lines. Holds at most one unfinished line in memory."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, rest = (self._rest + data).split(b"\n")
        lines: list[str] = []
        for line in whole:
            if len(line) <= LINE_BYTES_MAX:
                lines.append(_decoded(line))
            else:
                pieces, last = _cut(line)
                lines += [*pieces, _decoded(last)]
        if len(rest) > LINE_BYTES_MAX:
            pieces, rest = _cut(rest)
            lines += pieces
        self._rest = rest
        return lines

    def finish(self) -> list[str]:
        """The last line when it had no line end."""
        rest, self._rest = self._rest, b""
        return [_decoded(rest)] if rest else []


def _cut(line: bytes) -> tuple[list[str], bytes]:
    pieces: list[str] = []
    while len(line) > LINE_BYTES_MAX:
        at = LINE_BYTES_MAX
        while at > LINE_BYTES_MAX - 4 and line[at] & 0b1100_0000 == _CONTINUATION_BITS:
            at -= 1  # never in the middle of a character: both halves would be unreadable
        pieces.append(_decoded(line[:at]))
        line = line[at:]
    return pieces, line


def _decoded(line: bytes) -> str:
    return line.removesuffix(b"\r").replace(b"\x00", b"").decode("utf-8", "replace")


class LineReader:
    """Follows one pipe from the event loop and hands each line to a sink."""

    def __init__(self, fd: int, stream: str, sink: Callable[[str, str], None]) -> None:
        self._fd = fd
        self._stream = stream
        self._sink = sink
        self._splitter = LineSplitter()
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read_once)

    def read_waiting(self) -> None:
        """Takes what is in the pipe right now, and the unfinished line too: the run that wrote it is over."""
        for _ in range(DRAIN_BYTES_MAX // READ_BYTES):
            if not self._read_once():
                break
        self._emit(self._splitter.finish())

    async def drain(self, seconds_max: float) -> None:
        """Reads to the end of the pipe, or as long as allowed when somebody keeps it open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._ended.wait()

    def close(self) -> None:
        """Stops following. The pipe itself belongs to the caller."""
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
        self._emit(self._splitter.feed(data))
        return True

    def _end(self) -> None:
        self._loop.remove_reader(self._fd)
        self._ended.set()

    def _emit(self, lines: list[str]) -> None:
        for line in lines:
            self._sink(self._stream, line)
