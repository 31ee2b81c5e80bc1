"""What can be run: the need that every job kind fills, and what an attempt hands to it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from hourhand.model.errors import Fault
from hourhand.model.outcome import Outcome
from hourhand.model.resources import Resources
from hourhand.model.usage import Usage
from hourhand.ports.blobs import Blobs

KIND_API_VERSION: Final = 1
"""Of this port. A kind of a package may say for which one it is made (`api_version`); another is not loaded."""

NO_MORE_GRACE: Final = "no more grace"
"""What the cancellation of an attempt says that was told to end before."""


class SlotClass(StrEnum):
    """Which of an executor's rooms an attempt takes a place in."""

    INLINE = "inline"
    """Runs inside the executor's event loop: cheap, thousands at a time."""
    PROCESS = "process"
    """Runs as an operating-system process of its own: tens at a time."""


class LogSink(Protocol):
    def __call__(self, stream: str, text: str) -> None:
        """Takes one line (without its line end) of `stdout`, `stderr` or `log`. Never blocks, never raises."""


class PendingCallback(Protocol):
    """A promise of somebody outside to say how an attempt ended."""

    url: str
    """Where that is said."""
    token: str
    """What proves the right to say it, for this attempt only."""
    secret: str | None
    """A key to sign it by instead of sending the token, for this attempt only. None where there is no key file."""

    async def outcome(self) -> Outcome:
        """Returns when it was said, or when nobody may say it any more."""

    async def said_already(self) -> Outcome | None:
        """None while nothing was said."""


class Task(msgspec.Struct):
    """One attempt, as a kind sees it. Everything that a job may want to know of itself is here."""

    run_id: UUID
    job_id: UUID
    namespace: str
    job_name: str
    kind: str
    payload: Mapping[str, Any]
    attempt: int
    fence: int
    scheduled_for: datetime
    """The time the run stands for. It does not change with retries."""
    log: LogSink
    timeout_seconds: float | None = None
    """For kinds that pass it on. The attempt enforces it: `run` is cancelled when it is over."""
    stopping: Callable[[], bool] = lambda: False
    """Says True once the run was cancelled or its executor is leaving."""
    transaction: Callable[[Callable[[], Any]], AbstractAsyncContextManager[Any]] | None = None
    """Opens a transaction that completes the run at its end, with what the callable says as the result. None where
    there is no way to the database."""
    resources: Resources | None = None
    """What the job has declared; for kinds that can hold their processes to it. None: nothing."""
    secrets: Mapping[str, str] = {}
    """The values that the payload refers to, by the name of the secret. Never written anywhere by a kind."""
    progress: Callable[[float | None, str], None] = lambda percent, message: None
    """Says how far the attempt has come: 0 to 100, or None where nobody knows, and a few words. Never blocks."""
    blobs: Blobs | None = None
    """Where uploaded code is, for kinds that run it. None where an executor has no way to it."""
    keep_outputs: Callable[[Path], Awaitable[None]] | None = None
    """Keeps the files in a folder as what the run has left; called once, before the folder goes."""
    index: int | None = None
    """Of a run that goes to several executors: which of its parts this is, from 0 on. None: it is no part."""
    total: int | None = None
    """How many parts there are."""
    usage: Usage | None = None
    """What the attempt took; set by kinds that know it, at the latest when `run` returns or raises."""
    callback: Callable[[float], AbstractAsyncContextManager[PendingCallback]] | None = None
    """Lets somebody outside say within so many seconds how the attempt ended. None where nobody could reach us."""


class JobKind(Protocol):
    """How jobs of one kind are checked at submission and run on an executor.

    `check` and `needs` run in the API and must be pure and quick; the others run on executors only.
    """

    name: str
    slot_class_of: Callable[[str], SlotClass]
    """The room that runs with the given need take. A need that is not offered counts as INLINE."""

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        """Every fault of a payload, with pointers below the payload ("/argv/0"). Empty when it is right."""

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        """What an executor must offer to run this: the kind's name, or more ("python:reports.build")."""

    def offers(self) -> Sequence[str]:
        """The needs this executor can fill."""

    async def open(self) -> None:
        """Makes ready to run: worker processes, connection pools."""

    async def run(self, task: Task) -> Outcome:
        """Runs one attempt to its end and says what came out. Must not raise for anything the job does.

        When cancelled it ends everything it started (ask, wait the grace period, kill) and only then raises
        CancelledError: after that nothing of the attempt is left.
        """

    async def close(self) -> None:
        """Ends what `open` began. No run is active any more."""
