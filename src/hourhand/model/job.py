"""The job: a definition that outlives its runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.model.catchup import CatchUpPolicy
from hourhand.model.pauses import Pause
from hourhand.model.policy import ORDINARY, Policy
from hourhand.model.retry import DEFAULT_RETRY, RetryPolicy
from hourhand.model.schedule import Timing
from hourhand.model.states import JobState

PRIORITIES: Final = range(10)
"""The highest is the most urgent."""
PRIORITY_WORDS: Final[Mapping[str, int]] = {"low": 2, "medium": 5, "high": 8}
PRIORITY_DEFAULT: Final = 5
NAME_CHARS_MAX: Final = 200
PAYLOAD_BYTES_MAX: Final = 256 * 1024
LABELS_MAX: Final = 64
QUEUE_DEFAULT: Final = "default"
KIND_DEFAULT: Final = "python"
CATCHUP_DEFAULT: Final = CatchUpPolicy()


# A struct where a dataclass would do: one is made per submission, and a frozen dataclass takes ten times as long.
class JobDefinition(msgspec.Struct, frozen=True):
    """What a person says about a job. Changing any of it makes a new version."""

    name: str
    kind: str
    payload: Mapping[str, Any]
    timing: Timing
    needs: str
    """What an executor must offer; together with the queue it decides the lane."""
    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    retry: RetryPolicy = DEFAULT_RETRY
    catchup: CatchUpPolicy = CATCHUP_DEFAULT
    timeout_seconds: float | None = None
    policy: Policy = ORDINARY
    labels: Mapping[str, str] = {}
    description: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job."""

    job_id: UUID
    namespace: str
    definition: JobDefinition
    version: int
    state: JobState
    next_due: datetime | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    pause_reason: str | None = None
    unique_key: str | None = None
    """What it was submitted with."""
    pauses: Sequence[Pause] = ()
    """Those that hold it now: its own, and those of its label, queue, namespace, cluster."""
    warnings: Sequence[str] = ()
    """What stands in the way of its runs as the cluster is now."""


_SLUG_BREAK = re.compile(r"[^a-z0-9.]+")


def slug(name: str) -> str:
    """A job's name as a handler's name: "Daily Data Cleanup" becomes "daily-data-cleanup"."""
    return _SLUG_BREAK.sub("-", name.lower()).strip("-")
