"""A job's own pause, as it stands in the job's row: since when, by whom, until when, and from where on it is counted.

Due times of it come into the ledger when the pause ends or the job changes; until then they follow from the row.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from hourhand.database.connections import Record
from hourhand.model.catchup import CatchUp, PauseSpan
from hourhand.model.pauses import Pause, PauseScope
from hourhand.model.schedule import Timing
from hourhand.model.states import JobState
from hourhand.store.jsons import from_json
from hourhand.store.pauses import pause_of

_PAUSED: Final = 1
_TICK: Final = timedelta(microseconds=1)
BY_NOBODY: Final = "somebody"
"""Whose name was not kept yet."""


def is_paused(row: Record, now: datetime) -> bool:
    """Whether its own pause is in force."""
    return row["status"] == _PAUSED and (row["pause_until"] is None or row["pause_until"] > now)


def own_pause(row: Any) -> Pause | None:
    """Its own pause, also one whose end has passed; None when there is none."""
    if row["status"] != _PAUSED:
        return None
    since = row["paused_at"] or row["updated_at"]
    by = row["paused_by"] or BY_NOBODY
    return Pause(PauseScope.JOB, "", since, by, row["pause_reason"], row["pause_until"])


def pauses_of(row: Any, namespace: str) -> list[Pause]:
    """All that hold a job, from a row of `jobs_in_full`."""
    own = own_pause(row) if row["paused"] else None
    others = [pause_of(one, namespace) for one in from_json(row["held_by"]) or ()]
    return others if own is None else [own, *others]


def own_span(row: Record, now: datetime, timing: Timing, catch_up: CatchUp = CatchUp.NONE) -> PauseSpan | None:
    """What of its own pause is not in the ledger yet, as if it ended now. Instants that were asked for are held by the
    pause only while it lasts; then they run."""
    pause = own_pause(row)
    if pause is None or row["pause_from"] is None or not (timing.recurring or is_paused(row, now)):
        return None
    end = now + _TICK if row["pause_until"] is None else min(row["pause_until"], now + _TICK)
    return PauseSpan(row["pause_from"], end, catch_up, pause.words)


def ended_by(span: PauseSpan | None, last_due: datetime | None) -> PauseSpan | None:
    """The pause as it bears on a job that was due for the last time then; None: it will be due again."""
    if span is None or last_due is None:
        return span
    if last_due <= span.start:
        return None
    return replace(span, end=last_due if span.end is None else min(span.end, last_due))


def pause_columns(
    old: Record,
    state: JobState,
    now: datetime,
    latest: datetime | None,
    by: str,
    reason: str | None,
    until: datetime | None,
) -> dict[str, Any]:
    """What the row says afterwards. Pausing what is paused keeps its beginning. Runs that stay, though they are due in
    the pause, are not counted as paused: `latest` is the last of them."""
    if state is not JobState.PAUSED:
        names = ("pause_reason", "paused_at", "paused_by", "pause_until", "pause_from")
        return dict.fromkeys(names) | {"cancelled_at": now if state is JobState.CANCELLED else None}
    goes_on = is_paused(old, now)
    return {
        "cancelled_at": None,
        "pause_reason": reason,
        "paused_at": (goes_on and old["paused_at"]) or now,
        "paused_by": by or None,
        "pause_until": until,
        "pause_from": (goes_on and old["pause_from"]) or max(now, latest or now),
    }
