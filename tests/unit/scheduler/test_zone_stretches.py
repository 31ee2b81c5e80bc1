"""Looking at the rules of all zones leaves the processor to others, and does not spend it on waking up."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hourhand.scheduler import zone_keeper


async def test_rules_of_many_zones_are_looked_at_in_one_go_with_pauses_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(zone_keeper.asyncio, "sleep", noted)
    rules = await zone_keeper._all_rules()
    assert len(rules) > 300
    assert set(pauses) == {zone_keeper.PAUSE_SECONDS}
    assert len(pauses) < len(rules) / 2
