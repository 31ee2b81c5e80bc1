"""Lines an attempt writes: each has the number of its printing, from 1; the middle is left out when there are too many.

The beginning of the allowance is passed on as it comes. After that the newest lines are kept in a ring; when the
attempt ends they follow a mark, which stands for the lines that are missing: it has the number of the first of them and
says how many they are, so that numbers have no gap that is not declared. While the database takes no lines the same is
done with a much smaller ring: all attempts together must not fill the memory.

Lines come in batches, all of one read together, and are treated as such: a million of them cost seconds, not minutes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from hourhand.ports.log_stores import LogChunk

STREAMS: Final = {"stdout": 0, "stderr": 1, "log": 2}
LINE_CHARS_MAX: Final = 16 * 1024 + 2
TAIL_LINES_MAX: Final = 10_000
TAIL_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of the end is kept in memory until the attempt has ended, however large the allowance is."""
CROWDED_LINES_MAX: Final = 100
CROWDED_BYTES_MAX: Final = 32 * 1024
"""How much each attempt keeps of what it says while nobody takes it."""
NUMBER_MAX: Final = 2_000_000_000
"""Lines beyond are not kept: their numbers could not be stored."""
_LEFT_OUT_MAX: Final = 2**31 - 1 - NUMBER_MAX
CHUNK_LINES_MAX: Final = 2000
CHUNK_BYTES_MAX: Final = 128 * 1024
"""How much is stored as one row: whoever reads a page reads whole rows."""

Room = Callable[[], "asyncio.Future[None] | None"]


class _Batch(NamedTuple):
    number: int
    """Of its first line."""
    at: datetime
    stream: int
    texts: list[str]
    size: int


class LogBuffer:
    __slots__ = (
        "_attempt",
        "_beyond",
        "_clock",
        "_head_bytes",
        "_head_left",
        "_is_closed",
        "_is_crowded",
        "_next",
        "_passed_on",
        "_put",
        "_room",
        "_run_id",
        "_tail",
        "_tail_bytes",
        "_tail_bytes_max",
        "_tail_lines",
        "_tail_max",
        "_unstored",
        "mask",
    )

    def __init__(
        self,
        run_id: UUID,
        attempt: int,
        clock: Callable[[], datetime],
        put: Callable[[LogChunk], None],
        lines_max: int,
        is_crowded: Callable[[], bool] = lambda: False,
        bytes_max: int = 2 * TAIL_BYTES_MAX,
        room: Room = lambda: None,
    ) -> None:
        """`is_crowded` says whether more lines wait to be stored than should; `room`, what to wait for before more are
        read where that is possible."""
        self._is_crowded = is_crowded
        self._room = room
        self._run_id = run_id
        self._attempt = attempt
        self._clock = clock
        self._put = put
        self.mask: Callable[[list[str]], list[str]] | None = None
        """Every line passes here before it goes anywhere, many at a time; as many come back."""
        self._next = 1
        """The number of the next line."""
        self._unstored = 1
        """The number of the first line that was neither passed on nor declared left out."""
        self._tail_max = min(lines_max - lines_max // 2, TAIL_LINES_MAX)
        self._head_left = lines_max - self._tail_max
        self._tail_bytes_max = min(bytes_max // 2, TAIL_BYTES_MAX)
        self._head_bytes = bytes_max - self._tail_bytes_max
        self._tail: deque[_Batch] | None = None  # most attempts say little or nothing
        self._tail_lines = self._tail_bytes = 0
        self._beyond = self._passed_on = 0
        self._is_closed = False

    def __call__(self, stream: str, text: str) -> None:
        """Takes one line. Never blocks, never raises."""
        self.many(stream, [text])

    def many(self, stream: str, texts: list[str]) -> "asyncio.Future[None] | None":
        """Takes lines that were written at the same moment, as good as. Never blocks, never raises. What it answers is
        to be waited for before more is read, where the writer can wait."""
        if self._is_closed:
            return None
        texts, size = _storable(texts)
        if self.mask is not None:
            texts = self.mask(texts)
            size = sum(map(_size, texts))
        if self._next + len(texts) > NUMBER_MAX:
            self._beyond += len(texts)
            return None
        batch = _Batch(self._next, self._clock(), STREAMS.get(stream, 2), texts, size)
        self._next += len(texts)
        return self._take(batch)

    def _take(self, batch: _Batch) -> "asyncio.Future[None] | None":
        if self._head_left <= 0 or self._head_bytes <= 0:
            self._keep(batch, self._tail_max, self._tail_bytes_max)
            return None
        if self._is_crowded():
            self._keep(batch, min(self._tail_max, CROWDED_LINES_MAX), CROWDED_BYTES_MAX)
            return self._room()
        self._pass_on_tail(batch.number)  # what was kept while it was crowded comes first
        head, rest = self._parted(batch)
        self._head_left -= len(head.texts)
        self._head_bytes -= head.size
        self._pass_on(head)
        if rest is not None:
            self._keep(rest, self._tail_max, self._tail_bytes_max)
        return self._room()

    def _parted(self, batch: _Batch) -> tuple[_Batch, _Batch | None]:
        """What still belongs to the head, at least one line, and the rest."""
        if len(batch.texts) <= self._head_left and batch.size <= self._head_bytes:
            return batch, None
        count = size = 0
        for text in batch.texts[: self._head_left]:
            count += 1
            size += _size(text)
            if size >= self._head_bytes:
                break
        head = batch._replace(texts=batch.texts[:count], size=size)
        if count == len(batch.texts):
            return head, None
        return head, batch._replace(
            number=batch.number + count, texts=batch.texts[count:], size=batch.size - size
        )  # fmt: skip

    def _keep(self, batch: _Batch, lines_max: int, bytes_max: int) -> None:
        """Adds to the ring. Whole batches go when the rest is enough; the first one is trimmed at the end."""
        tail = self._tail
        if tail is None:
            tail = self._tail = deque()
        tail.append(batch)
        self._tail_lines += len(batch.texts)
        self._tail_bytes += batch.size
        while len(tail) > 1 and (
            self._tail_lines - len(tail[0].texts) >= lines_max or self._tail_bytes - tail[0].size >= bytes_max
        ):
            gone = tail.popleft()
            self._tail_lines -= len(gone.texts)
            self._tail_bytes -= gone.size
        if self._tail_lines > 2 * lines_max or self._tail_bytes > 2 * bytes_max:
            self._trim(lines_max, bytes_max)

    def _trim(self, lines_max: int, bytes_max: int) -> None:
        """Lets the oldest lines go until there are no more than allowed."""
        assert self._tail
        while self._tail and (self._tail_lines > lines_max or self._tail_bytes > bytes_max):
            first = self._tail.popleft()
            drop, dropped = 0, 0
            while drop < len(first.texts) and (
                self._tail_lines - drop > lines_max or self._tail_bytes - dropped > bytes_max
            ):
                dropped += _size(first.texts[drop])
                drop += 1
            self._tail_lines -= drop
            self._tail_bytes -= dropped
            if drop < len(first.texts):
                rest = first._replace(number=first.number + drop, texts=first.texts[drop:], size=first.size - dropped)
                self._tail.appendleft(rest)

    def close(self) -> None:
        """Passes on what is left, and that nothing follows; the attempt has ended."""
        if self._head_left <= 0 or self._head_bytes <= 0:
            self._pass_on_tail(self._next, self._tail_max, self._tail_bytes_max)
        else:
            self._pass_on_tail(self._next)
        if self._beyond:
            self._pass_on_mark(self._next, min(self._beyond, _LEFT_OUT_MAX))
            self._next = self._unstored
        self._is_closed = True  # a handler may have left something behind that still talks
        self._put(LogChunk(self._run_id, self._attempt, self._next, is_last=True, total_bytes=self._passed_on))

    def _pass_on_tail(self, until: int, lines_max: int = CROWDED_LINES_MAX, bytes_max: int = CROWDED_BYTES_MAX) -> None:
        """Passes on what is kept of the lines before the one with the number `until`."""
        if self._tail:
            self._trim(lines_max, bytes_max)
        first = self._tail[0].number if self._tail else until
        if first > self._unstored:
            self._pass_on_mark(self._unstored, first - self._unstored)
        if self._tail:
            for batch in self._tail:
                self._pass_on(batch)
            self._tail.clear()
            self._tail_lines = self._tail_bytes = 0

    def _pass_on_mark(self, number: int, left_out: int) -> None:
        text = f"… {left_out} lines left out here …" if left_out > 1 else "… 1 line left out here …"
        stream = [STREAMS["log"]]
        self._put(LogChunk(self._run_id, self._attempt, number, [self._clock()], stream, [text], left_out))
        self._unstored = number + left_out

    def _pass_on(self, batch: _Batch) -> None:
        self._unstored = batch.number + len(batch.texts)
        self._passed_on += batch.size
        if len(batch.texts) <= CHUNK_LINES_MAX and batch.size <= CHUNK_BYTES_MAX:
            self._put(
                LogChunk(self._run_id, self._attempt, batch.number, [batch.at], [batch.stream], list(batch.texts))
            )
            return
        for begin, end in _pieces(batch.texts):
            lines, number = batch.texts[begin:end], batch.number + begin
            self._put(LogChunk(self._run_id, self._attempt, number, [batch.at], [batch.stream], lines))


def _pieces(texts: list[str]) -> list[tuple[int, int]]:
    """Where to cut many lines into rows of a bounded size."""
    pieces, begin, size = [], 0, 0
    for at, text in enumerate(texts):
        if at > begin and (at - begin >= CHUNK_LINES_MAX or size + _size(text) > CHUNK_BYTES_MAX):
            pieces.append((begin, at))
            begin, size = at, 0
        size += _size(text)
    pieces.append((begin, len(texts)))
    return pieces


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _storable(texts: list[str]) -> tuple[list[str], int]:
    """The lines as the database takes them, and their size: without NUL, halves of pairs of surrogates, line ends, and
    of bounded length. Nearly always they are so already."""
    whole = "".join(texts)
    try:
        size = len(whole) if whole.isascii() else len(whole.encode())
    except UnicodeEncodeError:
        texts = [text.encode(errors="replace").decode() for text in texts]
        size = sum(map(_size, texts))
    if "\x00" in whole or "\n" in whole or (len(whole) > LINE_CHARS_MAX and max(map(len, texts)) > LINE_CHARS_MAX):
        texts = [text.replace("\x00", "").replace("\n", " ") for text in texts]
        texts = [text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…" for text in texts]
        return texts, sum(map(_size, texts))
    return texts, size
