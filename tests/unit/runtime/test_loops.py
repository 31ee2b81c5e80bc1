"""The loop that all background services share: it survives, it backs off, and it cannot be missing without a word."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hourhand.runtime import loops
from hourhand.runtime.loops import Loop
from hourhand.telemetry.events import Event


class Away(Exception):
    pass


class Service:
    """Does in each call what the test has put on its list; then it waits for more."""

    def __init__(self, **more: Any) -> None:
        self.calls = 0
        self.todo: asyncio.Queue[Callable[[], float | None]] = asyncio.Queue()
        self.deaths: list[tuple[str, BaseException | None]] = []
        self.loop = Loop("service", self.run_once, more.pop("interval_seconds", 0.0), (Away,), **more)
        self.loop.on_death = lambda name, cause: self.deaths.append((name, cause))

    async def run_once(self) -> float | None:
        step = await self.todo.get()
        self.calls += 1
        return step()

    def then(self, *steps: Any) -> None:
        for step in steps:
            self.todo.put_nowait(step)

    async def called(self, times: int) -> None:
        async with asyncio.timeout(5):
            while self.calls < times:
                await asyncio.sleep(0)


def well(wanted: float | None = None) -> Callable[[], float | None]:
    return lambda: wanted


def badly(fault: BaseException) -> Callable[[], float | None]:
    def step() -> float | None:
        raise fault

    return step


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    service.loop.start()
    yield service
    await service.loop.cancel()


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "BACKOFF_SECONDS_MIN", 0.001)


async def test_it_goes_on_after_every_error(service: Service) -> None:
    service.then(badly(Away()), badly(ValueError("a bug")), badly(AssertionError()), well())
    await service.called(4)
    assert service.deaths == []


async def test_a_cancellation_that_was_not_meant_for_it_is_survived(service: Service) -> None:
    """As when something that a call waited for was cancelled by somebody else."""
    service.then(badly(asyncio.CancelledError()), well())
    await service.called(2)
    assert service.deaths == []


async def test_one_that_ends_although_nobody_stopped_it_is_told(service: Service) -> None:
    assert service.loop._task is not None
    service.loop._task.cancel()
    await asyncio.gather(service.loop._task, return_exceptions=True)
    await asyncio.sleep(0)
    assert service.deaths == [("service", None)]


async def test_one_that_was_stopped_or_cancelled_by_its_owner_is_not_told() -> None:
    for end in (Loop.stop, Loop.cancel):
        service = Service(interval_seconds=60)
        service.then(well())
        service.loop.start()
        await service.called(1)
        await end(service.loop)
        await asyncio.sleep(0)
        assert service.deaths == []


async def test_wakes_are_not_heard_while_it_backs_off_but_urging_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or every job that ends would knock at the door of a database that is away."""
    monkeypatch.setattr(loops, "BACKOFF_SECONDS_MIN", 60)
    service = Service(backoff_seconds_max=60)
    service.then(badly(Away()), well(60), well(60), well(60))
    service.loop.start()
    await service.called(1)
    for _ in range(10):
        service.loop.wake()
        await asyncio.sleep(0)
    assert service.calls == 1
    service.loop.urge()
    await service.called(2)
    service.loop.wake()
    await service.called(3)
    await service.loop.cancel()


async def test_its_first_success_after_failures_is_told_to_its_owner(service: Service) -> None:
    backs: list[int] = []
    service.loop.on_back = lambda: backs.append(service.calls)
    service.then(well(), badly(Away()), badly(Away()), well(), well())
    await service.called(5)
    await asyncio.sleep(0)
    assert backs == [4]


async def test_the_database_is_said_to_be_back_only_if_it_was_away(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    monkeypatch.setattr(loops, "emit", lambda event, **_: told.append(event))
    service.then(badly(ValueError("a bug")), well(), badly(ValueError("a bug")), badly(Away()), badly(Away()), well())
    await service.called(6)
    await asyncio.sleep(0)
    assert told == [
        Event.LOOP_FAILED, Event.LOOP_WELL,
        Event.LOOP_FAILED, Event.DATABASE_AWAY, Event.DATABASE_BACK,
    ]  # fmt: skip


async def test_it_is_late_when_it_has_not_come_through_for_three_intervals_and_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0  # a beat of both: the rest until the next one counts, too
    monkeypatch.setattr(loops, "time", SimpleNamespace(monotonic=lambda: now))
    for interval, allowed in ((0.5, 5.0), (4.0, 12.0)):
        service = Service(interval_seconds=interval)
        assert not service.loop.is_late(), "it was not started"
        service.loop.start()
        now += allowed
        assert not service.loop.is_late()
        now += 0.1
        assert service.loop.is_late(), "it has never come through"
        service.then(well())
        await service.called(1)
        await asyncio.sleep(0)
        assert not service.loop.is_late()
        now += allowed + 0.1
        assert service.loop.is_late()
        await service.loop.cancel()
        assert not service.loop.is_late(), "it was stopped"


async def test_one_that_asked_for_a_long_rest_is_not_late_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(loops, "time", SimpleNamespace(monotonic=lambda: now))
    service = Service(interval_seconds=0.5)
    service.then(well(60.0))
    service.loop.start()
    await service.called(1)
    await asyncio.sleep(0)
    now += 100
    assert not service.loop.is_late()
    now += 100
    assert service.loop.is_late()
    await service.loop.cancel()


async def test_one_that_was_woken_and_does_not_come_through_is_late_whatever_its_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(loops, "time", SimpleNamespace(monotonic=lambda: now))
    service = Service(interval_seconds=60.0)
    service.then(well())
    service.loop.start()
    await service.called(1)
    await asyncio.sleep(0)
    service.loop.wake()
    now += 3
    service.loop.wake()
    now += 2.1
    assert service.loop.is_late(), "it was asked more than five seconds ago"
    service.then(well())
    await service.called(2)
    await asyncio.sleep(0)
    assert not service.loop.is_late()
    await service.loop.cancel()


async def test_those_with_one_interval_are_called_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.3
    monkeypatch.setattr(loops, "time", SimpleNamespace(monotonic=lambda: now))
    assert Service(interval_seconds=1.0).loop._until_next_beat() == pytest.approx(0.7)
    assert Service(interval_seconds=5.0).loop._until_next_beat() == pytest.approx(4.7)
    now = 1000.95
    assert Service(interval_seconds=1.0).loop._until_next_beat() == pytest.approx(1.05), "that would be too soon"
    assert Service(interval_seconds=0.0).loop._until_next_beat() == 0


async def test_failures_make_the_pauses_longer_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "BACKOFF_SECONDS_MIN", 0.1)
    monkeypatch.setattr(loops.random, "uniform", lambda _low, high: high)
    loop = Loop("pauses", lambda: asyncio.sleep(0), 1.0, (Away,), 2.0)  # type: ignore[arg-type]
    assert [loop._failed(Away()) for _ in range(7)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
