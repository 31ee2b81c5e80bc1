"""Questions about the past and the future of schedules: backfills, the forecast, versions. Values only."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.client import views
from hourhand.client.calls import BASE, Call, Identity, change_reader, job_path, params, reader, segment, sending

# --- views ------------------------------------------------------------------------------------------------


class BackfillView(msgspec.Struct, kw_only=True, rename={"start": "from", "end": "to"}):
    backfill_id: UUID | None = None
    """None for a dry run."""
    job_id: UUID
    job_name: str = ""
    status: str = ""
    status_reason: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    existing: str = "skip"
    parallelism: int = 1
    rate: str | None = None
    overlap: str | None = None
    reason: str | None = None
    note: str | None = None
    first_due: datetime | None = None
    last_due: datetime | None = None
    next_due: datetime | None = None
    total: int = 0
    left_out: int = 0
    remaining: int = 0
    live: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    percent: float = 0.0
    estimate_seconds: float | None = None
    notes: list[str] = []
    created_at: datetime | None = None
    created_by: str | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """True when nothing more is released and nothing of it runs."""
        return self.ended_at is not None


class BackfillPage(msgspec.Struct, kw_only=True):
    backfills: list[BackfillView] = []
    next_cursor: str | None = None


class MinuteView(msgspec.Struct, kw_only=True):
    at: datetime
    due: float = 0.0
    load: float = 0.0
    wait_seconds: float = 0.0


class CrowdScheduleView(msgspec.Struct, kw_only=True):
    cron: str
    zone: str = "UTC"
    jobs: int = 0
    spread: str | None = None
    examples: list[str] = []


class CrowdView(msgspec.Struct, kw_only=True):
    at: datetime
    due: float = 0.0
    load: float = 0.0
    clear_seconds: float | None = None
    words: str = ""
    schedules: list[CrowdScheduleView] = []


class ForecastView(msgspec.Struct, kw_only=True, rename={"start": "from", "end": "to"}):
    start: datetime
    end: datetime
    slots: dict[str, int] = {}
    executors: int = 0
    due: float = 0.0
    jobs: int = 0
    looked_at: int = 0
    exact: bool = True
    words: str = ""
    run_seconds: float | None = None
    minutes: list[MinuteView] = []
    crowds: list[CrowdView] = []
    notes: list[str] = []


class DiffView(msgspec.Struct, kw_only=True, rename={"start": "from", "end": "to"}):
    job_id: UUID
    start: int
    end: int
    changes: list[views.FieldChangeView] = []


# --- calls ------------------------------------------------------------------------------------------------

_backfill: Final = reader(BackfillView)
_backfill_page: Final = reader(BackfillPage)
_forecast: Final = reader(ForecastView)
_diff: Final = reader(DiffView)
_change: Final[Callable[[bytes], views.ChangeView]] = change_reader


def start_backfill(job_id: Identity, fields: Mapping[str, Any]) -> Call[BackfillView]:
    words = {"start": "from", "end": "to"}
    given = {words.get(name, name): value for name, value in fields.items() if value is not None}
    return sending("POST", job_path(job_id, "/backfill"), _backfill, given)


def get_backfill(backfill_id: Identity) -> Call[BackfillView]:
    return Call("GET", _backfill_path(backfill_id), _backfill)


def list_backfills(filters: Mapping[str, Any], cursor: str | None = None) -> Call[BackfillPage]:
    return Call("GET", f"{BASE}/backfills", _backfill_page, params({**filters, "cursor": cursor}))


def steer_backfill(backfill_id: Identity, verb: str, reason: str | None = None) -> Call[BackfillView]:
    fields = {} if reason is None else {"reason": reason}
    return sending("POST", f"{_backfill_path(backfill_id)}/{verb}", _backfill, fields)


def forecast(hours: int | None) -> Call[ForecastView]:
    return Call("GET", f"{BASE}/forecast", _forecast, params({"hours": hours}))


def diff(job_id: Identity, start: int | None, end: int | None) -> Call[DiffView]:
    return Call("GET", job_path(job_id, "/diff"), _diff, params({"from": start, "to": end}))


def roll_back(job_id: Identity, version: int | None, if_version: int | None) -> Call[views.ChangeView]:
    headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
    fields = {} if version is None else {"version": version}
    return sending("POST", job_path(job_id, "/rollback"), _change, fields, headers)


def _backfill_path(backfill_id: Identity) -> str:
    return f"{BASE}/backfills/{segment(backfill_id)}"
