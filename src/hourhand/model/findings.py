"""What an explanation is made of: gates, what was found at each, and the words for times and counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from hourhand.model.durations import format_duration
from hourhand.model.snapshot import Snapshot

_SECOND: Final = timedelta(seconds=1)


class GateName(StrEnum):
    """The order is the order in which a run passes them."""

    JOB = "job"
    DUE = "due"
    RETRY = "retry"
    OVERLAP = "overlap"
    QUEUE = "queue"
    EXECUTOR = "executor"
    LABEL = "label"
    PARTS = "parts"
    RESOURCE = "resource"
    SLOT = "slot"
    RATE = "rate"
    LIMIT = "limit"
    SHARE = "share"
    PRIORITY = "priority"
    CLAIMED = "claimed"
    RUNNING = "running"
    CANCELLING = "cancelling"
    ENDED = "ended"


# --- what is told -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    """One gate, and whether the run may pass it now."""

    gate: GateName
    passed: bool
    detail: str
    until: datetime | None = None
    """When it opens, where that is known."""


@dataclass(frozen=True, slots=True)
class Explanation:
    run_id: UUID
    job_id: UUID
    job_name: str
    status: str
    summary: str
    gates: Sequence[Passage]
    advice: str | None = None
    expires_at: datetime | None = None
    """When it is given up, if it has not started by then."""


@dataclass(frozen=True, slots=True)
class Finding:
    passage: Passage
    summary: str = ""
    """What to say when this is what holds the run."""
    advice: str | None = None
    gate_id: int | None = None


def opened(gate: GateName, detail: str) -> Finding:
    return Finding(Passage(gate, True, detail))


def held(
    gate: GateName,
    detail: str,
    summary: str,
    until: datetime | None = None,
    advice: str | None = None,
    gate_id: int | None = None,
) -> Finding:
    return Finding(Passage(gate, False, detail, until), summary, advice, gate_id)


def counted(found: Sequence[object], noun: str) -> str:
    return f"{len(found)} {noun}" if len(found) == 1 else f"{len(found)} {noun}s"


def tell_time(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def tell_wait(s: Snapshot, instant: datetime) -> str:
    return f"in {tell_span(instant - s.now)}"


def tell_ago(s: Snapshot, instant: datetime) -> str:
    return f"{tell_span(s.now - instant)} ago" if instant <= s.now else tell_wait(s, instant)


def tell_span(length: timedelta) -> str:
    return format_duration(timedelta(seconds=round(length.total_seconds()))) if length >= _SECOND else "less than 1s"
