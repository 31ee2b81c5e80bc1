"""The end of an attempt, as it is handed to the store and kept in the journal meanwhile."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hourhand.model.run_blobs import RunFile
from hourhand.model.states import RunState
from hourhand.model.usage import Usage


class Finish(msgspec.Struct, frozen=True):
    """The end of a run, as its attempt reports it."""

    run_id: UUID
    fence: int
    state: RunState
    started_at: datetime | None
    ended_at: datetime
    reason: str | None = None
    error: str | None = None
    result: Any = None
    usage: Usage | None = None
    files: tuple[RunFile, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to say but that it has succeeded, and when."""
        is_silent = self.result is self.reason is self.error is None
        return is_silent and self.usage is None and self.state is RunState.SUCCEEDED and not self.files


class Requeue(msgspec.Struct, frozen=True):
    """An attempt that did not finish its run: the run is ready again at `ready_at`."""

    run_id: UUID
    fence: int
    state: RunState
    """What the attempt itself came to: failed, timed_out or lost."""
    started_at: datetime | None
    ended_at: datetime
    ready_at: datetime
    reason: str | None
    error: str | None
    failed: bool
    """Counts against the retries."""
    lost: bool
    """Counts against the losses."""
    usage: Usage | None = None
    files: tuple[RunFile, ...] = ()
