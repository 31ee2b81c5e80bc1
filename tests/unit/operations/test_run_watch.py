"""Those who watch a run are told of it, or why nobody looks any more."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.states import RunState
from hourhand.operations.run_watch import RunWatch
from hourhand.ports.progress_stores import Glance

RUN = UUID(int=7)
RUNNING = Glance(RunState.RUNNING, 1, None, None)


class Store:
    """Answers once, then fails in this way."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault
        self.looks = 0

    async def glance_at_runs(self, run_ids: Sequence[UUID]) -> dict[UUID, Glance]:
        self.looks += 1
        if self.looks == 2:
            raise self.fault
        return {} if self.looks > 2 else dict.fromkeys(run_ids, RUNNING)


async def test_while_the_database_is_away_whoever_watches_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourhand.operations.run_watch._AWAY_SECONDS", 0.001)
    store = Store(DatabaseUnavailable("away"))
    async with asyncio.timeout(5):
        assert [seen async for seen in RunWatch(store, look_seconds=0.001).follow(RUN)] == [RUNNING]
    assert store.looks == 3


async def test_what_else_a_look_meets_is_told_to_whoever_watches() -> None:
    watch = RunWatch(Store(RuntimeError("our mistake")), look_seconds=0.001)
    async with asyncio.timeout(5):
        following = watch.follow(RUN)
        assert await anext(following) == RUNNING
        with pytest.raises(RuntimeError, match="our mistake"):
            await anext(following)
        assert [glance async for glance in watch.follow(RUN)] == [], "who comes after that is looked for anew"
