"""Deletes blobs of runs when nobody can need them any more. Run by the leader.

Two sorts: those of days whose rows retention has dropped, and those that no row names and none ever will, because their
attempt's right to be recorded has passed. Rows go first, blobs after them: a row never names what is not there.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Final

from hourhand.model.run_blobs import SPACE, BlobOwner, owner_of, parse_day
from hourhand.ports.blobs import Blobs, Found
from hourhand.ports.run_file_stores import BlobNames
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.leadership import Leadership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

QUIET: Final = timedelta(days=1)
"""Blobs that are younger stay: a run that goes on for longer than history is kept may just be leaving some."""
SETTLED: Final = timedelta(days=2)
"""After so long the runs of a day have mostly ended; it is looked through for rubbish once."""


class BlobPruner:
    def __init__(
        self, blobs: Blobs, names: BlobNames, leadership: Leadership, clock: DatabaseClock, keep_days: int
    ) -> None:
        self._blobs = blobs
        self._names = names
        self._leadership = leadership
        self._clock = clock
        self._keep = timedelta(days=keep_days)
        self._looked_through: set[str] = set()

    async def run_once(self) -> float | None:
        if self._leadership.epoch is None:
            return 5.0
        now = self._clock.now()
        deleted = 0
        for word in await self._blobs.words(SPACE):
            day = parse_day(word)
            if day is None:
                continue
            ends_at = datetime.combine(day, time(), UTC) + timedelta(days=1)
            # Asked for anew each time: only days whose rows are gone, whatever was to happen to them.
            if ends_at + self._keep <= now and word not in await self._names.days_with_rows():
                deleted += await self._delete_old(word, now)
            elif ends_at + SETTLED <= now and word not in self._looked_through:
                deleted += await self._delete_unneeded(word)
                self._looked_through.add(word)
        if deleted:
            emit(Event.BLOBS_DELETED, count=deleted)
        return None

    async def _delete_old(self, day: str, now: datetime) -> int:
        deleted = 0
        async for batch in self._blobs.list(f"{SPACE}/{day}"):
            deleted += await self._delete([found for found in batch if found.changed_at + QUIET <= now])
        return deleted

    async def _delete_unneeded(self, day: str) -> int:
        deleted = 0
        async for batch in self._blobs.list(f"{SPACE}/{day}"):
            owned: list[tuple[Found, BlobOwner]] = [
                (found, owner) for found in batch if (owner := owner_of(found.key)) is not None
            ]
            unneeded = await self._names.unneeded_blobs([owner for _, owner in owned]) if owned else []
            deleted += await self._delete([owned[position][0] for position in unneeded])
        return deleted

    async def _delete(self, found: Sequence[Found]) -> int:
        if found:
            await self._blobs.delete([each.key for each in found])
        return len(found)
