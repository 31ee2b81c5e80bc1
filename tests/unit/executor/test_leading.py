"""Who leads a run in parts, and waits for them, can be stopped at any moment."""

import asyncio
from typing import Any, cast

import pytest

from hourhand.executor import fan_out
from hourhand.executor.fan_out import FanOut
from hourhand.model.errors import DatabaseUnavailable
from hourhand.ports.job_kind import Task
from hourhand.ports.part_stores import PartStore


class Away:
    """No answer to anything."""

    def __getattr__(self, name: str) -> Any:
        async def ask(*_: Any) -> None:
            raise DatabaseUnavailable("away")

        return ask


async def test_a_leader_that_is_stopped_just_as_it_hears_of_a_part_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "LOOK_SECONDS_MIN", 0.0)
    leader = FanOut(cast("PartStore", Away()), cast("Any", None))
    leading = asyncio.create_task(leader.run(cast("Task", type("Led", (), {"run_id": None, "fence": 1}))))
    for _ in range(5):
        await asyncio.sleep(0)  # it waits for news
    leader.hear()
    await asyncio.sleep(0)
    leading.cancel()
    async with asyncio.timeout(5):
        assert isinstance((await asyncio.gather(leading, return_exceptions=True))[0], asyncio.CancelledError)
