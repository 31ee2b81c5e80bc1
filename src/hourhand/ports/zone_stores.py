"""The rules of zones as they were when jobs were last planned by them, and the cursors of jobs in zones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from hourhand.model.schedule import Timing

EDITION: Final = ""
"""In the place of a zone's name: the edition of all tz data."""


@dataclass(frozen=True, slots=True)
class ZonedCursor:
    job_id: UUID
    next_fire: datetime
    version: int
    timing: Timing
    dealt_with: datetime | None
    """The latest due time of which is known what became of it; None when there was none lately."""


@dataclass(frozen=True, slots=True)
class CursorPage:
    cursors: list[ZonedCursor]
    last: UUID | None
    """Where the next page begins; None when this is the last."""


class ZoneStore(Protocol):
    async def zone_rules(self) -> dict[str, str]:
        """Digests by zone, and the edition. Empty when nobody has written any."""

    async def put_zone_rules(self, node_id: int, epoch: int, rules: Mapping[str, str], now: datetime) -> bool:
        """Under the leader's lease; False, and nothing is written, when it has passed."""

    async def cursors_in_zones(
        self, zones: Sequence[str], after: UUID | None, since: datetime, limit: int
    ) -> CursorPage:
        """The recurring ones among the next `limit` cursors in the order of their jobs, if their zone is one of these.
        What became of due times is looked for from `since` on."""

    async def move_cursors(self, node_id: int, epoch: int, moves: Sequence[tuple[ZonedCursor, datetime]]) -> int:
        """Sets cursors that still stand where they are expected to, under the leader's lease; how many."""
