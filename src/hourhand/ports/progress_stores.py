"""What is needed of the store to show how far runs have come."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from hourhand.model.progress import Progress
from hourhand.model.states import RunState


class Told(NamedTuple):
    """What an attempt has said."""

    run_id: UUID
    fence: int
    progress: Progress


class Glance(NamedTuple):
    """A live run, as far as somebody who watches it wants to know."""

    state: RunState
    attempt: int
    started_at: datetime | None
    progress: Progress | None


class ProgressStore(Protocol):
    async def write_progress(self, told: Sequence[Told]) -> None:
        """Keeps the newest word of each attempt. One of an attempt that is not the run's newest changes nothing."""

    async def forget_progress(self, attempts: Sequence[tuple[UUID, int]]) -> None:
        """The attempts, by run and fence, have ended."""


class GlanceStore(Protocol):
    async def glance_at_runs(self, run_ids: Sequence[UUID]) -> dict[UUID, Glance]:
        """Those of the runs that are live. Whoever asks has made sure that they may be seen."""
