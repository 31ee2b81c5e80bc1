"""Those who watch a run are told of it, or that nobody looks any more."""

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


@pytest.mark.parametrize(("fault", "looks"), [(DatabaseUnavailable("away"), 3), (RuntimeError("our mistake"), 2)])
async def test_who_watches_is_not_left_waiting_whatever_a_look_meets(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, looks: int
) -> None:
    monkeypatch.setattr("hourhand.operations.run_watch._AWAY_SECONDS", 0.001)
    store = Store(fault)
    watch = RunWatch(store, look_seconds=0.001)
    async with asyncio.timeout(5):
        assert [seen async for seen in watch.follow(RUN)] == [RUNNING]
    assert store.looks == looks
    assert watch._looking is not None
    await asyncio.gather(watch._looking, return_exceptions=True)
