"""What pauses of many jobs need of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.catchup import CatchUp, PauseSpan
from hourhand.model.pauses import Pause


@dataclass(frozen=True, slots=True)
class PauseTarget:
    """Which jobs are meant: all of the cluster, or of a namespace, or of a queue or a label in it."""

    namespace_id: int | None = None
    queue: str | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """What became of a wish to pause."""

    jobs: int
    """How many are still to fall due and are held; counted up to a limit."""
    too_late: Sequence[UUID]
    """Runs that an executor already had."""


@dataclass(frozen=True, slots=True)
class PauseLook:
    """What schedulers must know of pauses."""

    in_force: bool = False
    """There is one of many jobs, or was one that bears on somebody."""
    over: bool = False
    """One of a single job is over that held a cursor."""
    next_end: datetime | None = None
    """When the next one is over by itself."""


class PauseStore(Protocol):
    async def pause(
        self, target: PauseTarget, paused_by: str, reason: str | None, until: datetime | None, now: datetime
    ) -> Paused:
        """From now on the jobs' due times make no runs; runs of due times to come that nobody has claimed are taken
        back. What is paused already keeps its beginning."""

    async def resume(self, target: PauseTarget, ended_by: str, catch_up: CatchUp, now: datetime) -> bool:
        """Ends the pause; False when there was none."""

    async def list_pauses(
        self, namespace_id: int, now: datetime, also_over: bool, before: int | None, limit: int
    ) -> list[tuple[int, Pause]]:
        """Those of the namespace and of the cluster, newest first, each with its number."""

    async def look(self, now: datetime) -> PauseLook: ...

    async def hold(self, node_id: int, now: datetime, horizon: datetime, limit: int) -> int:
        """Takes cursors of own shards that stand at due times of pauses out of the planners' way; how many."""

    async def end_over(self, now: datetime) -> int:
        """Ends those whose time is over."""

    async def wake(self, now: datetime, limit: int) -> int:
        """Puts cursors back that no pause holds any more; how many."""

    async def settle(self, now: datetime) -> int:
        """Forgets pauses that are over and behind all cursors; how many."""

    async def spans_of(self, job_ids: Sequence[UUID]) -> dict[UUID, list[PauseSpan]]:
        """The pauses that bear on jobs; those on whom none does are left out."""
