"""What callers send and get about backfills. As in `requests.py`, types only say the form."""

from datetime import datetime
from uuid import UUID

import msgspec

from hourhand.model.backfill import Backfill


class StartBackfillRequest(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}
):
    """A past range of a job's due times to run."""

    start: str | None = None
    end: str | None = None
    """Not included."""
    existing: str | None = None
    parallelism: int | None = None
    rate: str | None = None
    overlap: str | None = None
    reason: str | None = None
    note: str | None = None
    dry_run: bool = False


class BackfillReasonRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str | None = None


class BackfillPlan(msgspec.Struct, frozen=True):
    """What a backfill would do."""

    job_id: UUID
    job_name: str
    start: datetime
    end: datetime
    total: int
    left_out: int
    first_due: datetime
    last_due: datetime
    estimate_seconds: float | None
    """None when the job has not succeeded yet, so that nobody knows how long it takes."""
    run_seconds: float | None
    notes: list[str]


class BackfillProgress(msgspec.Struct, frozen=True):
    backfill: Backfill
    estimate_seconds: float | None
    """How long the rest takes, going by what the job's runs took; None when that is not known, or it is over."""


class BackfillPage(msgspec.Struct, frozen=True):
    backfills: list[Backfill]
    next_before: UUID | None
