"""Who is held for dead, and when nobody is: after the database was away, was just started, or had its clock set."""

import math
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from crew import NotedBus
from sample_jobs import execute, rows

from hourhand.model.errors import DatabaseUnavailable
from hourhand.ports.event_bus import EventBus
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.leadership import Leadership
from hourhand.scheduler.reaper import Reaper
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.store.nodes import Nodes
from hourhand.wiring import Store

GRACE = 30.0
OVER = -1.0


class Told(Nodes):
    """The store's own nodes; what the database says about its time can be changed."""

    ahead = timedelta()
    uptime: timedelta | None = timedelta(days=1)
    away = False

    async def database_times(self) -> tuple[datetime, datetime]:
        now, started_at = await super().database_times()
        return now + self.ahead, started_at if self.uptime is None else now - self.uptime

    async def sweep_nodes(self) -> list[Any]:
        if self.away:
            raise DatabaseUnavailable("gone")
        return await super().sweep_nodes()


class Watch:
    """A leader, and an executor whose lease has run out."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes = Told(store.database)
        self.later = 0.0
        monkeypatch.setattr("hourhand.scheduler.leadership.monotonic", self.monotonic)
        monkeypatch.setattr("hourhand.scheduler.leadership._monotonic", self.monotonic)
        self.clock = DatabaseClock(self.monotonic)
        self.node_id = 0
        bus = cast("EventBus", NotedBus())
        reaper = Reaper(store.live_runs, self.nodes, self.clock, bus)
        settings = SchedulerSettings()
        self.leadership = Leadership(self.nodes, reaper, lambda: self.node_id, bus, settings, GRACE, self.clock)

    def monotonic(self) -> float:
        return 1000.0 + self.later

    def passes(self, seconds: float) -> None:
        """Time passes for the leader, and for the database too."""
        self.later += seconds
        self.nodes.ahead += timedelta(seconds=seconds)

    async def join(self) -> "Watch":
        self.node_id = await self.nodes.register_node("scheduler", "leader", 3600, {})
        self.dead = await self.nodes.register_node("executor", "dead", 3600, {})
        await self.leadership.run_once()
        await self.sample()
        await self.nodes.renew_node(self.dead, OVER, {})
        return self

    async def sample(self) -> None:
        now, _ = await self.nodes.database_times()
        self.clock.observe(now, self.monotonic(), self.monotonic())

    async def buries(self) -> bool:
        await self.leadership.run_once()
        return self.dead not in {row.node_id for row in await self.nodes.present_nodes()}


@pytest.fixture
async def watch(store: Store, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return await Watch(store, monkeypatch).join()


async def test_an_executor_whose_lease_has_run_out_is_held_for_dead(watch: Watch) -> None:
    assert await watch.buries()
    assert watch.clock.seconds_since_jump() == math.inf


@pytest.mark.parametrize("jump", [20.0, 3600.0, -3600.0])
async def test_nobody_is_held_for_dead_until_a_lease_after_the_databases_clock_was_set(
    watch: Watch, jump: float
) -> None:
    watch.nodes.ahead += timedelta(seconds=jump)
    assert not await watch.buries()
    watch.passes(GRACE - 1)
    assert not await watch.buries()
    watch.passes(2)
    assert await watch.buries()


async def test_a_jump_that_the_heartbeat_has_seen_before_counts_as_well(watch: Watch) -> None:
    watch.nodes.ahead += timedelta(hours=1)
    await watch.sample()
    assert not await watch.buries()


async def test_nobody_is_held_for_dead_until_a_lease_after_the_database_was_started(watch: Watch) -> None:
    """Also by a leader that was not there when the database was away."""
    watch.nodes.uptime = timedelta(seconds=GRACE - 1)
    assert not await watch.buries()
    watch.nodes.uptime = timedelta(seconds=GRACE + 1)
    assert await watch.buries()


async def test_a_start_that_seems_to_lie_ahead_says_only_that_the_clock_was_set_back(watch: Watch) -> None:
    watch.nodes.uptime = timedelta(hours=-1)
    assert await watch.buries()


async def test_nobody_is_held_for_dead_until_a_lease_after_the_database_was_away(watch: Watch) -> None:
    watch.nodes.away = True
    with pytest.raises(DatabaseUnavailable):
        await watch.leadership.run_once()
    watch.nodes.away = False
    assert not await watch.buries()
    watch.passes(GRACE + 1)
    assert await watch.buries()


async def test_shards_are_shared_out_again_when_the_lead_had_run_out_before_they_were_written(
    store: Store, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await watch.nodes.register_node("scheduler", "other", 3600, {})
    await watch.leadership.run_once()
    assert await owners(store) == {watch.node_id, other}
    await watch.nodes.end_node(other)

    async def stand_still() -> list[Any]:
        nodes = await Told.sweep_nodes(watch.nodes)
        watch.passes(SchedulerSettings().lease_seconds)
        await execute(store, "UPDATE hourhand.leases SET lease_until = clock_timestamp() - interval '1 s'")
        return nodes

    with monkeypatch.context() as patch:
        patch.setattr(watch.nodes, "sweep_nodes", stand_still)
        await watch.leadership.run_once()
    assert await owners(store) == {watch.node_id, other}, "one that has lost the lead assigns nothing"
    await watch.leadership.run_once()
    assert await owners(store) == {watch.node_id}


async def owners(store: Store) -> set[int]:
    return {row["owner_id"] for row in await rows(store, "shards")}


async def test_without_anything_to_bury_the_database_is_not_asked_for_its_time(watch: Watch) -> None:
    await watch.nodes.renew_node(watch.dead, 3600, {})

    async def asked() -> tuple[datetime, datetime]:
        raise AssertionError("it was asked")

    watch.nodes.database_times = asked  # type: ignore[method-assign]
    await watch.leadership.run_once()
