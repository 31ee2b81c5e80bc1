"""Has outcomes that wait for the database put into the journal, each once, and the journal cleared afterwards.

Outcomes are numbered in the order in which they ended. The disk is waited for in a thread; what gathers meanwhile goes
next.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from hourhand.executor.journal import Entry, Journal, JournalFull
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BATCH_MAX: Final = 200
Waiting = Callable[[int, int], tuple[int, Sequence[Entry]]]
"""Outcomes that wait, from a number on or later, at most so many; and the number of the first."""


class Keeper:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept_until = 0
        """Outcomes with a smaller number are in the journal, or delivered."""
        self._delivered = 0
        self._is_in_use = False
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    def keep(self, waiting: Waiting) -> None:
        """Sees to it that everything that waits is in the journal soon."""
        if self._task is None and not self._has_failed:
            self._task = asyncio.create_task(self._keep(waiting), name="journal")

    async def kept(self) -> None:
        """Returns when the keeping that is under way is done."""
        while self._task is not None:
            await asyncio.wait({self._task})

    def delivered(self, until: int) -> None:
        """The database has taken all outcomes with a smaller number."""
        self._delivered = until
        self._has_failed = False
        self._clear_if_delivered()

    def _clear_if_delivered(self) -> None:
        if self._is_in_use and self._task is None and self._delivered >= self._kept_until:
            self._task = asyncio.create_task(self._clear(), name="journal")

    async def _keep(self, waiting: Waiting) -> None:
        try:
            while True:
                first, entries = waiting(max(self._kept_until, self._delivered), BATCH_MAX)
                if not entries:
                    break
                self._tell_first()
                await asyncio.to_thread(self._journal.append, entries)
                self._kept_until = first + len(entries)
        except JournalFull as fault:
            self._has_failed = True
            emit(Event.JOURNAL_FULL, error=str(fault))
        except OSError as fault:
            self._has_failed = True
            emit(Event.JOURNAL_UNUSABLE, error=str(fault))
        finally:
            self._task = None
        self._clear_if_delivered()  # the database may have taken them while they were written

    async def _clear(self) -> None:
        try:
            await asyncio.to_thread(self._journal.clear)
            self._is_in_use = False
            emit(Event.OUTCOMES_DELIVERED)
        except OSError as fault:
            emit(Event.JOURNAL_UNUSABLE, error=str(fault))
        finally:
            self._task = None

    def _tell_first(self) -> None:
        if not self._is_in_use:
            self._is_in_use = True
            emit(Event.OUTCOMES_KEPT)
