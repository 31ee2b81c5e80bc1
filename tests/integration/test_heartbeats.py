"""Leases renewed by a thread of its own: nothing that blocks a node's loop ends them, and the news come back to it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from sample_jobs import execute

from hourhand.database.connections import Database
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.node import Orders
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.heartbeat import Heartbeat
from hourhand.runtime.membership import NOBODY, Membership
from hourhand.store.nodes import Nodes
from hourhand.wiring import Store

LEASE_SECONDS = 1.2
HEARTBEAT_SECONDS = 0.1


class Beating:
    """A node that does nothing but live."""

    def __init__(self, store: Store, lease_seconds: float = LEASE_SECONDS) -> None:
        self.door = Database(replace(store.database.settings, pool_max=1), "test heartbeat")
        self.clock = DatabaseClock()
        self.facts: dict[str, Any] = {"turn": 0}
        self.membership = Membership(
            Nodes(self.door), "executor", "beating", lease_seconds, self.clock, lambda: self.facts
        )
        self.heartbeat = Heartbeat(self.membership, self.door, HEARTBEAT_SECONDS, (DatabaseUnavailable,))


@asynccontextmanager
async def beating(store: Store) -> AsyncIterator[Beating]:
    node = Beating(store)
    await node.heartbeat.start()
    yield node
    await node.heartbeat.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def lease_of(store: Store, node_id: int) -> float:
    """How long it still holds."""
    [node] = [node for node in await store.nodes.present_nodes() if node.node_id == node_id]
    return (node.lease_until - node.now).total_seconds()


async def test_a_blocked_loop_keeps_its_lease(store: Store) -> None:
    async with beating(store) as node:
        time.sleep(2 * LEASE_SECONDS)  # as a handler may that should not
        assert await lease_of(store, node.membership.node_id) > 0
        assert await store.nodes.bury_nodes([node.membership.node_id]) == []
        assert time.monotonic() - node.membership.confirmed_at < LEASE_SECONDS


async def test_a_handler_that_only_computes_does_not_end_the_lease(store: Store) -> None:
    async with beating(store) as node:
        end = time.monotonic() + 2 * LEASE_SECONDS
        while time.monotonic() < end:
            sum(range(1000))
        assert await lease_of(store, node.membership.node_id) > 0


async def test_the_clock_is_known_when_the_node_has_joined_and_learns_on(store: Store) -> None:
    async with beating(store) as node:
        assert node.clock.error_seconds < 1.0, "which is taken for granted while nothing is known"
        before = node.membership.confirmed_at
        await until(lambda: node.membership.confirmed_at > before)
        off = node.clock.error_seconds + 0.01  # clocks of a machine are slewed
        earliest, shown, latest = time.time() - off, node.clock.now().timestamp(), time.time() + off
        assert earliest <= shown <= latest


async def test_facts_are_told_with_every_renewal(store: Store) -> None:
    async with beating(store) as node:
        node.facts = {"turn": 1}
        async with asyncio.timeout(10):
            while (await store.nodes.present_nodes())[0].facts != {"turn": 1}:
                await asyncio.sleep(0.01)


async def test_a_buried_node_lets_go_on_its_own_loop_before_it_starts_anew(store: Store) -> None:
    async with beating(store) as node:
        own, first = asyncio.get_running_loop(), node.membership.node_id
        told: list[tuple[bool, int]] = []

        async def let_go() -> None:
            await asyncio.sleep(0.05)
            told.append((asyncio.get_running_loop() is own, node.membership.node_id))

        node.heartbeat.on_buried = let_go
        await store.nodes.end_node(first)  # as mark-lost does
        await until(lambda: node.membership.node_id not in (first, NOBODY))
        assert told == [(True, NOBODY)], "nothing is done under the old number any more, nor under a new one yet"
        assert await lease_of(store, node.membership.node_id) > 0


async def test_new_orders_are_told_on_the_nodes_own_loop(store: Store) -> None:
    async with beating(store) as node:
        heard: list[Orders] = []
        node.heartbeat.on_orders = heard.append
        for orders in (Orders.CORDON, Orders.DRAIN, Orders.WORK):
            await execute(store, "UPDATE hourhand.nodes SET orders = $1", orders.value)
            node.heartbeat.urge()
            await until(lambda orders=orders: orders in heard)
        assert heard == [Orders.CORDON, Orders.DRAIN, Orders.WORK], "told when they change, not each time"


async def test_a_cordoned_node_that_was_held_for_dead_comes_back_cordoned(store: Store) -> None:
    async with beating(store) as node:
        first = node.membership.node_id
        await execute(store, "UPDATE hourhand.nodes SET orders = 'cordon'")
        await until(lambda: node.membership.orders is Orders.CORDON)
        await store.nodes.end_node(first)
        await until(lambda: node.membership.node_id != first)
        before = node.membership.confirmed_at
        await until(lambda: node.membership.confirmed_at > before)
        assert node.membership.orders is Orders.CORDON


async def test_a_lost_connection_is_replaced_within_the_lease(store: Store) -> None:
    async with beating(store) as node:
        async with store.database.connection() as db:
            for _ in range(3):
                await db.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1",
                    "%heartbeat",
                )
                before = node.membership.confirmed_at
                await until(lambda before=before: node.membership.confirmed_at > before)
        assert await lease_of(store, node.membership.node_id) > 0


async def test_a_node_that_stops_is_gone_at_once_and_its_thread_with_it(store: Store) -> None:
    async with beating(store) as node:
        pass
    assert [one for one in await store.nodes.present_nodes() if one.node_id == node.membership.node_id] == []
    assert node.heartbeat._thread is not None
    assert not node.heartbeat._thread.is_alive()


async def test_what_keeps_a_node_from_joining_is_told_to_whoever_starts_it(store: Store) -> None:
    node = Beating(store)
    node.door = Database(replace(store.database.settings, url="postgresql://127.0.0.1:1/x"), "test heartbeat")
    node.heartbeat._door = node.door
    node.membership._registry = Nodes(node.door)
    with pytest.raises(DatabaseUnavailable):
        await node.heartbeat.start()
