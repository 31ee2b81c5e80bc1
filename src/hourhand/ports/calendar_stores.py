"""Calendars, as operations need them kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hourhand.model.calendar import CalendarRule


@dataclass(frozen=True, slots=True)
class CalendarRow:
    name: str
    rule: CalendarRule
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str
    jobs: int
    """How many jobs use it."""


class CalendarStore(Protocol):
    async def find(self, namespace_id: int, names: Sequence[str]) -> dict[str, CalendarRule]:
        """Those of the names that exist."""

    async def list(self, namespace_id: int, after: str | None, limit: int) -> Sequence[CalendarRow]:
        """By name, those behind `after`."""

    async def get(self, namespace_id: int, name: str) -> CalendarRow | None: ...

    async def put(
        self, namespace_id: int, name: str, rule: CalendarRule, now: datetime, changed_by: str, expected: int | None
    ) -> int | None:
        """Makes or replaces a calendar and plans the jobs that use it anew, in one transaction. Its version; None, and
        nothing is changed, when it has not the expected one (0: there must be none). Raises `InvalidFields` when it
        would leave nothing of a recurring job that uses it."""

    async def delete(self, namespace_id: int, name: str) -> bool | None:
        """True when it is gone, False when jobs use it, None when there is none."""
