from typing import Any

import pytest

from hourhand.model.errors import BlobsUnavailable
from hourhand.scheduler import storage_watch
from hourhand.scheduler.storage_watch import AWAY_SECONDS, StorageWatch
from hourhand.telemetry.events import Event


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    events: list[Event] = []
    monkeypatch.setattr(storage_watch, "emit", lambda event, **_: events.append(event))
    return events


async def test_storage_that_is_away_is_told_once_and_its_return_once(said: list[Event]) -> None:
    answers: list[Any] = [BlobsUnavailable("a"), BlobsUnavailable("b"), 7.0, None, BlobsUnavailable("c")]

    async def work() -> float | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = StorageWatch("pruner", work)
    assert [await watch.run_once() for _ in range(5)] == [AWAY_SECONDS, AWAY_SECONDS, 7.0, None, AWAY_SECONDS]
    assert said == [Event.BLOBS_AWAY, Event.BLOBS_BACK, Event.BLOBS_AWAY]


async def test_a_fault_of_another_sort_is_the_loops_own(said: list[Event]) -> None:
    async def work() -> float | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await StorageWatch("pruner", work).run_once()
    assert said == []
