"""What a caller may ask of the ledger: what became of every due time of a job, and why."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

import msgspec

from hourhand.model.durations import format_duration
from hourhand.model.errors import InvalidParameter, NotFound
from hourhand.model.ledger import Key, LedgerEntry, LedgerFacts, cut_page, ledger_entries
from hourhand.operations.requests import Caller
from hourhand.ports.ledger_stores import LedgerStore

SPAN_DEFAULT: Final = timedelta(days=1)
SPAN_MAX: Final = timedelta(days=366)
BUSY_SECONDS_MAX: Final = 0.01
"""After so long others have their turn."""


class Clock(Protocol):
    def now(self) -> datetime: ...


class HistoryPage(msgspec.Struct, frozen=True):
    begin: datetime
    until: datetime
    entries: Sequence[LedgerEntry]
    next_after: Key | None


class HistoryOperations:
    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def page(
        self,
        caller: Caller,
        job_id: UUID,
        begin: datetime | None,
        until: datetime | None,
        after: Key | None,
        limit: int,
        compact: bool,
    ) -> HistoryPage:
        """Every due time from `begin` to `until`, both included, in the order of time; of those that are still to come
        nothing is said. By default the last day. `compact`: a stretch of them that made no run is one entry."""
        now = self._clock.now()
        end = now if until is None else min(until, now)
        start = end - SPAN_DEFAULT if begin is None else begin
        if until is not None and start > until:
            raise InvalidParameter("from", "is later than `to`")
        if end - start > SPAN_MAX:
            most = format_duration(SPAN_MAX)
            raise InvalidParameter("from", f"is more than {most} before `to`; ask for less at a time")
        since = start if after is None else max(start, after[0])
        facts = await self._store.read_ledger(caller.namespace_id, job_id, since, end, now, limit)
        if facts is None:
            raise NotFound("job", job_id)
        entries, more = cut_page(await self._entries(replace(facts, begin=start), after, limit + 1, compact), limit)
        if more is None and facts.until < end:
            more = (facts.until, 1)
        return HistoryPage(start, end, entries, more)

    async def _entries(self, facts: LedgerFacts, after: Key | None, limit: int, compact: bool) -> Sequence[LedgerEntry]:
        """The due times of some schedules must be walked over: nobody else waits for all of them."""
        entries: list[LedgerEntry] = []
        paused = time.monotonic()
        for entry in ledger_entries(facts, after, compact):
            if entry is not None:
                entries.append(entry)
            if len(entries) == limit:
                break
            if time.monotonic() - paused > BUSY_SECONDS_MAX:
                await asyncio.sleep(0)
                paused = time.monotonic()
        return entries
