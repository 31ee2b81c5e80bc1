"""Who leads a run in parts, and waits for them, can be stopped at any moment."""

import asyncio
from typing import Any, cast

import pytest

from hourhand.executor import fan_out
from hourhand.executor.fan_out import FanOut
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.states import RunState
from hourhand.ports.job_kind import Task
from hourhand.ports.part_stores import PartStore
from hourhand.runtime.clock import DatabaseClock

LED = cast("Task", type("Led", (), {"run_id": None, "fence": 1}))


class Away:
    """No answer to anything."""

    def __getattr__(self, name: str) -> Any:
        async def ask(*_: Any) -> None:
            raise DatabaseUnavailable("away")

        return ask


class Slow:
    """Parts of a run that is cancelled, which take a while to end."""

    def __init__(self) -> None:
        self.asked = 0

    async def fan_out_facts(self, *_: Any) -> None:
        return None

    async def run_state(self, *_: Any) -> RunState:
        return RunState.CANCELLING

    async def cancel_parts(self, *_: Any) -> int:
        self.asked += 1
        return 3 - self.asked


async def test_a_leader_that_is_cancelled_waits_until_the_last_part_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "LOOK_SECONDS", 0.001)
    parts = Slow()
    leader = FanOut(cast("PartStore", parts), cast("Any", DatabaseClock()))
    leading = asyncio.create_task(leader.run(LED))
    await asyncio.sleep(0)
    leading.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(leading, return_exceptions=True)
    assert parts.asked == 3


async def test_a_leader_that_is_stopped_just_as_it_hears_of_a_part_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "LOOK_SECONDS_MIN", 0.0)
    leader = FanOut(cast("PartStore", Away()), cast("Any", None))
    leading = asyncio.create_task(leader.run(LED))
    for _ in range(5):
        await asyncio.sleep(0)  # it waits for news
    leader.hear()
    await asyncio.sleep(0)
    leading.cancel()
    async with asyncio.timeout(5):
        assert isinstance((await asyncio.gather(leading, return_exceptions=True))[0], asyncio.CancelledError)
