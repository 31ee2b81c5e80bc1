"""Log lines on their way into the database: gathered into rows, written in order, in transactions of a bounded size.

Rows of one attempt are stored in the order of their numbers and never a later one without the earlier: whatever ends
this process, or keeps the database away, what is stored is the beginning of what was printed. When more waits than
should, those who read from programs are asked to pause.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from hourhand.executor.faults import lies_in_the_data
from hourhand.model.errors import LogOutOfOrder
from hourhand.ports.log_stores import LogChunk, LogStore
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BATCH_MAX = 1000
LOG_FLUSH_SECONDS = 0.2
LINE_WEIGHT = 56
"""What a line weighs beside its characters: about what it takes in memory."""
LOG_FLUSH_WEIGHT = 1024 * 1024
"""So much is written at once; less waits for its time."""
LOG_TRANSACTION_WEIGHT = 4 * 1024 * 1024
"""In one transaction, if as much has gathered while the last one was written: commits do not hold up a flood of lines,
and nobody waits long for one."""
LOG_PAUSE_WEIGHT = 8 * 1024 * 1024
"""With so much waiting, no more is read from programs until half of it is written."""
LOG_PAUSE_SECONDS_MAX = 30.0
LOG_WEIGHT_MAX = 24 * 1024 * 1024
"""How much may wait here for the database; beyond it attempts leave out the middle of what they say."""
ROW_LINES_MAX = 500
ROW_WEIGHT_MAX = 64 * 1024
"""Lines of one attempt are joined into one row up to this size."""


class LogWriter:
    def __init__(self, logs: LogStore, wake: Callable[[], None]) -> None:
        """`wake` asks for a call of `write` soon."""
        self._logs = logs
        self._wake = wake
        self._chunks: list[LogChunk] = []
        self._open_chunks: dict[UUID, LogChunk] = {}
        """The newest row of each run that is not being written yet: what follows may join it."""
        self._rows: dict[UUID, tuple[int, int]] = {}
        """Of each run whose log goes on, the attempt and the first number of its newest row."""
        self._weight = 0
        self._room: asyncio.Future[None] | None = None
        self._room_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._is_writing = False

    @property
    def has_waiting(self) -> bool:
        return bool(self._chunks)

    def put(self, chunk: LogChunk) -> None:
        """Takes lines; those of one attempt that follow each other are joined into one row while they are few."""
        chunk.weight = sum(map(len, chunk.lines)) + LINE_WEIGHT * len(chunk.lines)
        self._weight += chunk.weight
        last = self._open_chunks.get(chunk.run_id)
        if last is None or not _joined(last, chunk):
            attempt, first_line = self._rows.get(chunk.run_id, (0, 0))
            chunk.after = first_line if attempt == chunk.attempt else 0
            self._rows[chunk.run_id] = chunk.attempt, chunk.first_line
            self._chunks.append(chunk)
            self._open_chunks[chunk.run_id] = chunk
        if chunk.is_last:
            self._rows.pop(chunk.run_id, None)
        if self._weight > LOG_FLUSH_WEIGHT:
            self._wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOG_FLUSH_SECONDS, self._due)

    def is_crowded(self) -> bool:
        """Whether more text waits here than should."""
        return self._weight > LOG_WEIGHT_MAX

    def room(self) -> "asyncio.Future[None] | None":
        """None while there is room for more lines; else what to wait for. It comes to an end also when the database
        takes no lines for long: nobody's program is stopped by its log for ever."""
        if self._weight <= LOG_PAUSE_WEIGHT:
            return None
        if self._room is None:
            loop = asyncio.get_running_loop()
            self._room = loop.create_future()
            self._room_timer = loop.call_later(LOG_PAUSE_SECONDS_MAX, self._end_pause)
        return None if self._room.done() else self._room

    def _end_pause(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _lighten(self, chunks: Sequence[LogChunk]) -> None:
        self._weight -= sum(chunk.weight for chunk in chunks)
        if self._room is not None and self._weight <= LOG_PAUSE_WEIGHT // 2:
            self._end_pause()
            self._room = None
            if self._room_timer is not None:
                self._room_timer.cancel()

    async def written(self) -> None:
        """Returns when every line taken so far is stored."""
        if self._chunks or self._is_writing:
            written = asyncio.get_running_loop().create_future()
            self._waiters.append(written)
            self._wake()
            await written

    async def write(self) -> bool:
        """Stores everything that waits by now; whether there was anything."""
        waiters, self._waiters = self._waiters, []
        self._is_writing = True
        had_any = bool(self._chunks)
        try:
            await self._write_chunks()
        except BaseException:
            self._waiters = waiters + self._waiters
            raise
        finally:
            self._is_writing = False
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return had_any

    async def _write_chunks(self) -> None:
        left = len(self._chunks)
        while left > 0:
            chunks = self._first_chunks(left)
            left -= len(chunks)
            del self._chunks[: len(chunks)]
            self._open_chunks.clear()  # what is being written must not grow any more
            try:
                await self._append(chunks)
            except BaseException:
                self._chunks[:0] = chunks
                raise
            self._lighten(chunks)

    def _first_chunks(self, most: int) -> list[LogChunk]:
        """As many of the first rows as one transaction should carry."""
        weight = 0
        for count, chunk in enumerate(self._chunks[: min(most, BATCH_MAX)], 1):
            weight += chunk.weight
            if weight >= LOG_TRANSACTION_WEIGHT:
                return self._chunks[:count]
        return self._chunks[: min(most, BATCH_MAX)]

    async def _append(self, chunks: Sequence[LogChunk]) -> None:
        """Stores rows. One that the database will never take is replaced by a mark: it must not hold up everything."""
        try:
            while True:
                try:
                    return await self._logs.append_logs(chunks)
                except LogOutOfOrder as fault:  # of one attempt; of the others that are concerned it is told in turn
                    chunks = _declared(chunks, fault)
        except Exception as fault:
            if not lies_in_the_data(fault):
                raise
            if len(chunks) == 1:
                await self._append_mark(chunks[0], fault)
                return None
            middle = len(chunks) // 2
            await self._append(chunks[:middle])
            await self._append(chunks[middle:])

    async def _append_mark(self, chunk: LogChunk, fault: Exception) -> None:
        emit(Event.LINES_UNSTORABLE, run_id=str(chunk.run_id), lines=len(chunk.lines), error=type(fault).__name__)
        try:
            await self._logs.append_logs([_unstorable_chunk(chunk)])
        except Exception as again:
            if not lies_in_the_data(again):
                raise  # else there is nothing left to say

    def _due(self) -> None:
        self._timer = None
        self._wake()


def _joined(last: LogChunk, chunk: LogChunk) -> bool:
    """Joins the second to the first, if it follows it and both are small."""
    if (
        last.attempt != chunk.attempt
        or last.is_last
        or last.first_line + max(last.left_out, len(last.lines)) != chunk.first_line
    ):
        return False
    if not chunk.lines:
        last.is_last, last.total_bytes = chunk.is_last, chunk.total_bytes
        return True
    count = len(last.lines)
    if last.left_out or chunk.left_out or count + len(chunk.lines) > ROW_LINES_MAX:
        return False
    if last.weight + chunk.weight > ROW_WEIGHT_MAX:
        return False
    if len(last.at) < count:  # one for all so far
        last.at, last.stream = last.at * count, last.stream * count
    more = len(chunk.lines) // len(chunk.at)
    last.at += chunk.at * more
    last.stream += chunk.stream * more
    last.lines += chunk.lines
    last.weight += chunk.weight
    last.is_last = chunk.is_last
    return True


def _declared(chunks: Sequence[LogChunk], fault: LogOutOfOrder) -> list[LogChunk]:
    """The same rows, and a mark in the place of those that the database has lost: after a fail-over to a standby that
    did not have them yet, for example. What it has already is left as it is there."""
    place = next(
        place for place, each in enumerate(chunks) if (each.run_id, each.attempt) == (fault.run_id, fault.attempt)
    )
    chunk, before, behind = chunks[place], chunks[:place], chunks[place + 1 :]
    if fault.expected is None:  # the run is over, and its earlier lines may have left the database
        chunk.after = 0
        return [*before, chunk, *behind]
    emit(Event.LINES_LOST, run_id=str(fault.run_id), first_line=chunk.first_line, expected=fault.expected)
    lost = chunk.first_line - fault.expected
    if lost <= 0:
        return [*before, *behind]
    text = f"… {lost} lines were lost by the database …" if lost > 1 else "… 1 line was lost by the database …"
    mark = LogChunk(chunk.run_id, chunk.attempt, fault.expected, [fault.at], [2], [text], left_out=lost)
    chunk.after = mark.first_line
    return [*before, mark, chunk, *behind]


def _unstorable_chunk(chunk: LogChunk) -> LogChunk:
    text = f"… {len(chunk.lines)} lines could not be stored …"
    left_out = max(chunk.left_out, len(chunk.lines))
    return LogChunk(
        chunk.run_id, chunk.attempt, chunk.first_line, chunk.at[:1], [2], [text], left_out, chunk.is_last,
        after=chunk.after,
    )  # fmt: skip
