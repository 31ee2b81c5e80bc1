"""Connections in hand: made when they are needed, given out newest first, so many at most.

The driver's own pool wraps, resets and watches each connection at every use, which takes longer than most of our
statements. Ours leave nothing to reset, and whoever gets into trouble with a connection cuts it: a connection that
comes back open is good.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

import asyncpg

from hourhand.database.servers import Connection


class Pool:
    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], connections_max: int, idle_seconds_max: float
    ) -> None:
        self._connect = connect
        self._connections_max = connections_max
        self._idle_seconds_max = idle_seconds_max
        self._idle: deque[tuple[float, Connection]] = deque()
        """Since when, and which; the longest unused first."""
        self._used: set[Connection] = set()
        self._unwanted: set[Connection] = set()
        """In use, and not to be used again."""
        self._making = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False
        self._all_back = asyncio.Event()
        self._pruning: asyncio.TimerHandle | None = None

    async def acquire(self, seconds_max: float) -> Connection:
        """A connection that nobody else has. Raises TimeoutError, or what making one says."""
        if self._closed:
            raise asyncpg.InterfaceError("the pool is closed")
        db = self._pick()
        if db is None:
            async with asyncio.timeout(seconds_max):
                while (db := self._pick()) is None:
                    full = self._making + len(self._used) + len(self._idle) >= self._connections_max
                    db = await (self._wait() if full else self._make())
                    if db is not None:
                        break
        self._used.add(db)
        return db

    def release(self, db: Connection) -> None:
        """Takes back a connection, whatever its state. One in doubt must have been cut before."""
        self._used.discard(db)
        if db.is_closed() or self._closed or db in self._unwanted:
            self._drop(db)
        elif (waiting := self._next_waiting()) is not None:
            self._used.add(db)  # already the other's: nobody may come in between
            waiting.set_result(db)
        else:
            self._idle.append((time.monotonic(), db))
            if self._pruning is None:
                self._prune_later()
        if not self._used:
            self._all_back.set()

    def expire(self) -> None:
        """None of the connections that are there now is given out again."""
        self._unwanted |= self._used
        while self._idle:
            self._drop(self._idle.pop()[1])

    async def close(self) -> None:
        """Returns when all are back and closed."""
        self._closed = True
        if self._pruning is not None:
            self._pruning.cancel()
        while (waiting := self._next_waiting()) is not None:
            waiting.set_exception(asyncpg.InterfaceError("the pool is closed"))
        idle, self._idle = [db for _, db in self._idle], deque()
        await asyncio.gather(*(db.close() for db in idle))
        while self._used:
            self._all_back.clear()
            await self._all_back.wait()

    def terminate(self) -> None:
        """Cuts them all."""
        self._closed = True
        for db in [*self._used, *(db for _, db in self._idle)]:
            db.terminate()

    # --- steps -------------------------------------------------------------------------------------------

    def _pick(self) -> Connection | None:
        while self._idle:
            _, db = self._idle.pop()
            if not db.is_closed():  # by the server, while nobody looked
                return db
        return None

    async def _make(self) -> Connection:
        self._making += 1
        try:
            return await self._connect()
        except BaseException:
            self._wake_next()  # who may have better luck, or hear the same
            raise
        finally:
            self._making -= 1

    async def _wait(self) -> Connection | None:
        """One that came back; None when there may be room for a new one."""
        waiting: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            return await waiting
        except BaseException:
            # Given up in the very moment in which it got one.
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                db = waiting.result()
                if db is None:
                    self._wake_next()
                else:
                    self.release(db)
            raise

    def _next_waiting(self) -> "asyncio.Future[Connection | None] | None":
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def _wake_next(self) -> None:
        waiting = self._next_waiting()
        if waiting is not None:
            waiting.set_result(None)

    def _drop(self, db: Connection) -> None:
        self._unwanted.discard(db)
        if not db.is_closed():
            db.terminate()
        self._wake_next()

    def _prune_later(self) -> None:
        self._pruning = asyncio.get_running_loop().call_later(self._idle_seconds_max, self._prune)

    def _prune(self) -> None:
        """Ends connections that nobody has needed for long: each costs a process."""
        self._pruning = None
        oldest = time.monotonic() - self._idle_seconds_max
        while self._idle and self._idle[0][0] <= oldest:
            self._drop(self._idle.popleft()[1])
        if self._idle:
            self._prune_later()
