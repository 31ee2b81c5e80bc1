"""The keeper of pauses: what it does at each look, how long it sleeps, and when a planner must ask it anew."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from hourhand.model.catchup import PauseSpan
from hourhand.ports.pause_stores import PauseLook, PauseStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.pause_keeper import BATCH_MAX, PauseKeeper

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)


class StillClock(DatabaseClock):
    def now(self) -> datetime:
        return NOW

    def seconds_until(self, instant: datetime) -> float:
        return (instant - NOW).total_seconds()


@dataclass
class FakePauses:
    seen: PauseLook = field(default_factory=PauseLook)
    resting: int = 0
    held: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def look(self, now: datetime) -> PauseLook:
        self.asked.append("look")
        return self.seen

    async def end_over(self, now: datetime) -> int:
        self.asked.append("end_over")
        return 0

    async def wake(self, now: datetime, limit: int) -> int:
        self.asked.append("wake")
        woken, self.resting = min(limit, self.resting), max(self.resting - limit, 0)
        return woken

    async def end_own_pauses(self, now: datetime, limit: int) -> int:
        self.asked.append("end_own_pauses")
        return 0

    async def settle(self, now: datetime) -> int:
        self.asked.append("settle")
        return 0

    async def hold(self, node_id: int, now: datetime, horizon: datetime, limit: int) -> int:
        self.asked.append("hold")
        return self.held.pop() if self.held else 0

    async def spans_of(self, job_ids: Sequence[UUID]) -> dict[UUID, list[PauseSpan]]:
        return {}


def keeper_of(pauses: FakePauses, **how: Any) -> tuple[PauseKeeper, list[str]]:
    keeper = PauseKeeper(cast("PauseStore", pauses), pauses, lambda: 1, StillClock(), **how)
    woken: list[str] = []
    keeper.wake_planner = lambda: woken.append("planner")
    return keeper, woken


async def test_without_a_pause_it_looks_and_sleeps_until_it_is_woken() -> None:
    pauses = FakePauses()
    keeper, woken = keeper_of(pauses)
    assert await keeper.run_once() is None
    assert (pauses.asked, woken) == (["look"], [])


async def test_a_pause_that_begins_or_is_forgotten_wakes_the_planner_once() -> None:
    pauses = FakePauses(PauseLook(in_force=True))
    keeper, woken = keeper_of(pauses)
    await keeper.run_once()
    await keeper.run_once()
    assert (pauses.asked[:4], woken) == (["look", "end_over", "wake", "settle"], ["planner"])
    pauses.seen = PauseLook()
    await keeper.run_once()
    assert woken == ["planner", "planner"]


async def test_cursors_that_come_back_wake_the_planner_and_many_are_brought_back_without_a_rest() -> None:
    pauses = FakePauses(PauseLook(over=True), resting=BATCH_MAX + 1)
    keeper, woken = keeper_of(pauses)
    assert await keeper.run_once() == 0.0
    assert await keeper.run_once() is None
    assert (pauses.asked, woken) == (["look", "wake", "end_own_pauses"] * 2, ["planner"] * 2)


@pytest.mark.parametrize(("left", "sleeps"), [(-1.0, 0.0), (0.25, 0.25), (4.9, 4.9), (86_400.0, None)])
async def test_it_sleeps_until_the_next_end_unless_that_is_far_away(left: float, sleeps: float | None) -> None:
    keeper, _ = keeper_of(FakePauses(PauseLook(in_force=True, next_end=NOW + timedelta(seconds=left))))
    assert await keeper.run_once() == sleeps


async def test_a_planner_hears_of_a_pause_from_the_last_look_or_asks_when_that_is_too_long_ago() -> None:
    pauses = FakePauses()
    keeper, _ = keeper_of(pauses)
    assert not await keeper.in_force()
    pauses.seen = PauseLook(in_force=True)
    assert not await keeper.in_force()
    assert pauses.asked == ["look"]
    forgetful, _ = keeper_of(pauses, heard_seconds_max=-1)
    assert await forgetful.in_force()


async def test_all_that_a_pause_holds_is_put_aside_before_anything_is_planned() -> None:
    pauses = FakePauses(held=[3, BATCH_MAX, BATCH_MAX])
    keeper, _ = keeper_of(pauses)
    await keeper.hold(NOW, NOW + timedelta(seconds=2))
    assert pauses.asked == ["wake", "hold", "hold", "hold"]
