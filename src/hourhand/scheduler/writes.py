"""Moves of cursors on their way into the database: a few parts at a time, while the planner computes the next.

What is under way has not moved yet for whoever looks: the planner passes over those cursors. Moving one twice would do
no harm, the second does not find it where it is expected; but it would be computed twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from hourhand.ports.stores import Cursor, Move

WRITES_MAX = 2
"""Parts that are written at a time. Writing takes PostgreSQL longer than computing takes the planner, and each of its
sessions works on one core."""


Place = tuple[UUID, datetime, int]
"""Which cursor, and where it stands. One that somebody has put elsewhere meanwhile is not under way from there."""


def place_of(cursor: Cursor) -> Place:
    return cursor.job_id, cursor.next_fire, cursor.version


class Writes:
    """Of one plan of everything up to the horizon. Left in good order, it waits until all is written; otherwise what is
    under way is given up."""

    def __init__(self, write: Callable[[Sequence[Move], datetime], Coroutine[Any, Any, None]]) -> None:
        self._write = write
        self._under_way: deque[tuple[asyncio.Task[None], Sequence[Move]]] = deque()
        """The oldest first."""

    async def begin(self, moves: Sequence[Move], now: datetime) -> None:
        """Returns when it is on its way. Raises what an earlier one has raised."""
        while len(self._under_way) >= WRITES_MAX:
            await self._end_oldest()
        self._under_way.append((asyncio.create_task(self._write(moves, now)), moves))
        await asyncio.sleep(0)  # else it would be sent when the next part is computed

    async def end(self) -> None:
        while self._under_way:
            await self._end_oldest()

    def places(self) -> set[Place]:
        """Where cursors stand that are being moved."""
        parts = [moves for task, moves in self._under_way if not task.done()]
        return {(move.job_id, move.expected, move.version) for moves in parts for move in moves}

    async def _end_oldest(self) -> None:
        await self._under_way[0][0]
        self._under_way.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.end()
        finally:
            given_up = [task for task, _ in self._under_way]
            for task in given_up:
                task.cancel()
            await asyncio.gather(*given_up, return_exceptions=True)  # of several that fail one is told
