"""The tries of a run as the API tells them. Read as tolerantly as the rest of its answers, see `views.py`."""

from datetime import datetime

import msgspec


class LateView(msgspec.Struct, kw_only=True):
    """What a try came to after its run had been given to another. It was refused."""

    state: str = ""
    at: datetime | None = None


class UsageView(msgspec.Struct, kw_only=True):
    """What an attempt took of its executor."""

    level: str = ""
    cpu_seconds: float = 0
    memory_bytes_peak: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    disk_level: str = ""
    disk_bytes_peak: int | None = None
    memory_bytes_cached: int | None = None


class AttemptView(msgspec.Struct, kw_only=True):
    """One try of a run."""

    attempt: int
    status: str = ""
    reason: str | None = None
    error: str | None = None
    executor: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    late: LateView | None = None
    usage: UsageView | None = None
