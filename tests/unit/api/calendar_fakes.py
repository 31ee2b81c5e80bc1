"""A store of calendars in a dictionary."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from hourhand.model.calendar import CalendarRule
from hourhand.ports.calendar_stores import CalendarRow

Rows = Sequence[CalendarRow]


@dataclass
class FakeCalendarStore:
    rows: dict[tuple[int, str], CalendarRow] = field(default_factory=dict)

    async def find(self, namespace_id: int, names: Sequence[str]) -> dict[str, CalendarRule]:
        return {name: self.rows[namespace_id, name].rule for name in names if (namespace_id, name) in self.rows}

    async def list(self, namespace_id: int, after: str | None, limit: int) -> Rows:
        mine = sorted(name for owner, name in self.rows if owner == namespace_id and name > (after or ""))
        return [self.rows[namespace_id, name] for name in mine[:limit]]

    async def get(self, namespace_id: int, name: str) -> CalendarRow | None:
        return self.rows.get((namespace_id, name))

    async def put(
        self, namespace_id: int, name: str, rule: CalendarRule, now: datetime, changed_by: str, expected: int | None
    ) -> int | None:
        old = self.rows.get((namespace_id, name))
        version = 0 if old is None else old.version
        if expected not in (None, version):
            return None
        created = now if old is None else old.created_at
        self.rows[namespace_id, name] = CalendarRow(name, rule, version + 1, created, now, changed_by, 0)
        return version + 1

    async def delete(self, namespace_id: int, name: str) -> bool | None:
        row = self.rows.get((namespace_id, name))
        if row is None:
            return None
        if row.jobs:
            return False
        del self.rows[namespace_id, name]
        return True

    def used_by(self, namespace_id: int, name: str, jobs: int) -> None:
        self.rows[namespace_id, name] = replace(self.rows[namespace_id, name], jobs=jobs)
