"""Due times that made no run, as the rows they become: one for each stretch.

What a catch-up leaves out has two reasons, one before the window and one inside it. Both are one stretch and one row,
which says from where on the second counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from hourhand.model.catchup import MissedRange
from hourhand.model.states import Reason


@dataclass(frozen=True, slots=True)
class LedgerRow:
    missed: MissedRange
    recent_from: datetime | None = None
    recent_count: int | None = None


def ledger_rows(missed: Sequence[MissedRange]) -> list[LedgerRow]:
    rows: list[LedgerRow] = []
    for one in missed:
        before = rows[-1] if rows else None
        if before is None or before.missed.next_due != one.first or before.missed.detail != one.detail:
            rows.append(LedgerRow(one))
            continue
        whole = replace(before.missed, last=one.last, count=before.missed.count + one.count, next_due=one.next_due)
        if before.recent_from is None and one.reason is before.missed.reason:
            rows[-1] = LedgerRow(whole)
        elif before.recent_from is None and (before.missed.reason, one.reason) == _WINDOW_THEN_LAST:
            rows[-1] = LedgerRow(whole, one.first, one.count)
        else:
            rows.append(LedgerRow(one))
    return rows


_WINDOW_THEN_LAST: Final = (Reason.CATCHUP_WINDOW, Reason.CATCHUP_LAST)


def split_row(row: Any) -> list[MissedRange]:
    """A stored row as the ranges it was made of. The end of the first one is the beginning of the second, which its
    reader does not count."""
    first, reason = row["first_due"], Reason(row["reason"])
    whole = MissedRange(first, row["last_due"], row["count"], reason, row["next_due"], row["detail"])
    if row["recent_from"] is None:
        return [whole]
    older = replace(
        whole, last=row["recent_from"], count=whole.count - row["recent_count"], next_due=row["recent_from"]
    )
    newer = replace(whole, first=row["recent_from"], count=row["recent_count"], reason=Reason.CATCHUP_LAST)
    return [older, newer]


def columns_of(rows: Sequence[LedgerRow], prefix: str = "") -> dict[str, list[Any]]:
    """The same, column by column, as statements take them."""
    columns: dict[str, list[Any]] = {
        "first": [row.missed.first for row in rows],
        "last": [row.missed.last for row in rows],
        "counts": [row.missed.count for row in rows],
        "reasons": [row.missed.reason.value for row in rows],
        "details": [row.missed.detail for row in rows],
        "next": [row.missed.next_due for row in rows],
        "recent": [row.recent_from for row in rows],
        "recent_counts": [row.recent_count for row in rows],
    }
    return {prefix + name: values for name, values in columns.items()}
