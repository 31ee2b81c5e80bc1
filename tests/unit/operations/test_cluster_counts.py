"""Counting the runs of the last hour, which may be many."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hourhand.model.states import RunState
from hourhand.operations import cluster
from hourhand.operations.cluster import ClusterOperations

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Runs:
    """Counting takes three seconds of the monkey's clock."""

    def __init__(self) -> None:
        self.monotonic = 100.0
        self.counts: list[int] = []

    async def count_finished(self, namespace_id: int, _: datetime) -> dict[RunState, int]:
        self.counts.append(namespace_id)
        self.monotonic += 3
        return {RunState.SUCCEEDED: len(self.counts)}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(cluster.time, "monotonic", lambda: runs.monotonic)
    return runs


async def test_whoever_asks_again_and_again_has_the_last_hour_counted_seldom(runs: Runs) -> None:
    nobody: Any = None
    asked: Any = ClusterOperations(nobody, runs, nobody, nobody, nobody)  # type: ignore[arg-type]
    for _ in range(10):
        assert await asked._last_hour(1, NOW) == {RunState.SUCCEEDED: 1}
        runs.monotonic += 5
    assert runs.counts == [1], "counting took 3 s: for a minute that will do"
    runs.monotonic += 20
    assert await asked._last_hour(1, NOW) == {RunState.SUCCEEDED: 2}
    await asked._last_hour(2, NOW)
    assert runs.counts == [1, 1, 2], "every namespace has its own"
