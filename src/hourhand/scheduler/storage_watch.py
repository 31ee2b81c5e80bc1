"""Lets work that needs the storage of blobs rest while that does not answer, and says so once instead of each time."""

from collections.abc import Awaitable, Callable
from typing import Final

from hourhand.model.errors import BlobsUnavailable
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

AWAY_SECONDS: Final = 30.0
"""How soon it is tried again. What is deleted or moved so much later was not in a hurry."""


class StorageWatch:
    def __init__(self, loop: str, work: Callable[[], Awaitable[float | None]]) -> None:
        """`loop`: its name in the log."""
        self._loop = loop
        self._work = work
        self._is_away = False

    async def run_once(self) -> float | None:
        try:
            wanted = await self._work()
        except BlobsUnavailable as fault:
            if not self._is_away:
                self._is_away = True
                emit(Event.BLOBS_AWAY, loop=self._loop, error=str(fault))
            return AWAY_SECONDS
        if self._is_away:
            self._is_away = False
            emit(Event.BLOBS_BACK, loop=self._loop)
        return wanted
