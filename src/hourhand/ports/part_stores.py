"""Parts of runs that go to several executors, as the executor that leads such a run needs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.demands import Demands
from hourhand.model.parts import Part
from hourhand.model.states import RunState


@dataclass(frozen=True, slots=True)
class FanOutFacts:
    namespace_id: int
    queue: str
    need: str
    demands: Demands
    """Of each part."""
    on: int | None
    """How many executors; None: all."""


@dataclass(frozen=True, slots=True)
class Able:
    """An executor that is there and may take parts."""

    node_id: int
    used: float
    """The part of its room that is taken."""


class PartStore(Protocol):
    """Every write carries the fence of the run whose parts they are, and changes nothing when that has passed or the
    run is being cancelled."""

    async def fan_out_facts(self, parent_id: UUID, fence: int) -> FanOutFacts | None:
        """None when the run is not in these hands any more, or is being cancelled."""

    async def able(self, facts: FanOutFacts) -> Sequence[Able]:
        """Executors that are working, serve the queue, and have all that a part needs and demands."""

    async def fan_out(
        self,
        parent_id: UUID,
        fence: int,
        facts: FanOutFacts,
        node_ids: Sequence[int | None],
        now: datetime,
        expires_at: datetime | None,
    ) -> int:
        """Makes a part for each, all or none; nothing if there are any already. How many were made."""

    async def parts_of(self, parent_id: UUID) -> Sequence[Part]: ...

    async def give_parts(self, parent_id: UUID, fence: int, give: Mapping[UUID, int]) -> int: ...

    async def lose_parts(self, parent_id: UUID, fence: int, run_ids: Sequence[UUID], now: datetime) -> int: ...

    async def close_parts(self, parent_id: UUID) -> None: ...

    async def run_state(self, run_id: UUID, fence: int) -> RunState | None: ...

    async def cancel_parts(self, parent_id: UUID, now: datetime) -> int:
        """Ends those that nobody holds, asks executors to end the others. How many there were."""


class OrphanStore(Protocol):
    async def cancel_orphans(self, now: datetime) -> tuple[int, int]:
        """Cancels parts whose run is over, and closes those that have ended. How many of each."""
