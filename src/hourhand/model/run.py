"""The run: one due occurrence of a job, or one that somebody asked for; and its attempts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hourhand.model.progress import Progress
from hourhand.model.resources import Resources
from hourhand.model.run_blobs import ResultReference
from hourhand.model.states import Cause, RunState
from hourhand.model.usage import Usage


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is read: live or finished, one shape."""

    run_id: UUID
    job_id: UUID
    job_name: str
    namespace: str
    state: RunState
    cause: Cause
    scheduled_for: datetime
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    executor: str | None
    version: int
    reason: str | None = None
    error: str | None = None
    result: Any = None
    requested_by: str | None = None
    note: str | None = None
    retry_of: UUID | None = None
    """The finished run that this one was asked for to repeat."""
    backfill_id: UUID | None = None
    """The backfill that released it."""
    usage: Usage | None = None
    """What its last attempt took; only where one run is read by itself."""
    progress: Progress | None = None
    """How far its attempt says it has come; None once it is finished."""
    result_reference: ResultReference | None = None
    """Where the result is that is too large for a row."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try that did not finish its run."""

    attempt: int
    state: str
    reason: str | None
    error: str | None
    executor: str | None
    started_at: datetime | None
    ended_at: datetime
    late_state: str | None = None
    """What it came to after its run had been given to another; None when it never said."""
    late_at: datetime | None = None
    usage: Usage | None = None


# A struct, because one is made per claim: see JobDefinition.
class Claim(msgspec.Struct, frozen=True, gc=False):
    """A run in an executor's hand: everything needed to run it and to settle it."""

    run_id: UUID
    job_id: UUID
    namespace: str
    job_name: str
    kind: str
    needs: str
    payload: Mapping[str, Any]
    scheduled_for: datetime
    ready_at: datetime
    fence: int
    attempt: int
    failures: int
    losses: int
    max_retries: int
    retry: Mapping[str, Any] | None
    timeout_seconds: float | None
    careful: bool = False
    """Its executor ends it when it cannot renew its lease: it holds a place in a gate, or must not run twice."""
    at_most_once: bool = False
    deadline: datetime | None = None
    resources: Resources | None = None
    """What it may take of its executor; None where its job says nothing."""
    secrets: tuple[str, ...] = ()
    """Those that its job refers to."""
    index: int | None = None
    """Of a part: which one, from 0 on."""
    total: int | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int
    at: datetime
    stream: str
    text: str
    attempt: int
    left_out: int = 0
    """Not 0 for a mark: it stands for so many lines that are not kept, of which it has the first one's number."""
