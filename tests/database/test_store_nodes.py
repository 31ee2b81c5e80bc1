"""Nodes, leases and shards, by the database's clock. A lease of less than nothing has run out at once."""

from dataclasses import replace

from sample_jobs import claim, due_job, insert, own_all_shards, rows

from hourhand.model.node import Orders
from hourhand.wiring import Store

OVER = -1.0
"""Seconds of a lease that ended before it began."""


async def present(store: Store) -> list[int]:
    return [node.node_id for node in await store.nodes.present_nodes()]


async def test_every_node_gets_a_number_of_its_own(store: Store) -> None:
    first = await store.nodes.register_node("executor", "same name", 60, {"slots": 3})
    second = await store.nodes.register_node("executor", "same name", 60, {})
    assert second > first
    [node, _] = await store.nodes.present_nodes()
    assert (node.node_id, node.role, node.name, node.facts) == (first, "executor", "same name", {"slots": 3})


async def test_a_lease_is_measured_by_the_clock_of_the_database(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", 10, {})
    async with store.database.connection() as db:
        before = await db.fetchval("SELECT clock_timestamp()")
        told = await store.nodes.renew_node(node_id, 30, {"new": True})
        after = await db.fetchval("SELECT clock_timestamp()")
    assert told is not None
    assert before <= told.now <= after
    [node] = await store.nodes.present_nodes()
    assert 29 < (node.lease_until - node.now).total_seconds() <= 30
    assert node.facts == {"new": True}


async def test_a_node_whose_lease_is_over_is_seen_and_buried(store: Store) -> None:
    dead = await store.nodes.register_node("executor", "dead", OVER, {})
    alive = await store.nodes.register_node("executor", "alive", 60, {})
    swept = {node.node_id: (node.ended, node.expired) for node in await store.nodes.sweep_nodes()}
    assert swept == {dead: (False, True), alive: (False, False)}
    assert await store.nodes.bury_nodes([dead, alive]) == [dead], "one whose lease still holds is not buried"
    assert await present(store) == [alive]
    assert await store.nodes.bury_nodes([dead]) == []


async def test_a_buried_node_cannot_renew(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", OVER, {})
    await store.nodes.bury_nodes([node_id])
    assert await store.nodes.renew_node(node_id, 60, {}) is None
    assert await present(store) == []


async def test_a_node_that_renews_before_it_is_buried_stays(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", OVER, {})
    assert await store.nodes.renew_node(node_id, 60, {}) is not None
    assert await store.nodes.bury_nodes([node_id]) == []


async def test_a_node_that_left_is_gone_at_once(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", 60, {})
    await store.nodes.end_node(node_id)
    assert await present(store) == []
    assert await store.nodes.renew_node(node_id, 60, {}) is None


async def test_an_ended_node_is_swept_until_its_runs_were_returned(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", 60, {})
    await store.nodes.mark_returned([node_id])
    await store.nodes.end_node(node_id)
    assert [(node.node_id, node.ended) for node in await store.nodes.sweep_nodes()] == [(node_id, True)]
    await store.nodes.mark_returned([node_id])
    assert await store.nodes.sweep_nodes() == []


async def test_runs_that_still_carry_the_number_of_an_ended_executor_betray_it(store: Store) -> None:
    ended = await store.nodes.register_node("executor", "ended", 60, {})
    alive = await store.nodes.register_node("executor", "alive", 60, {})
    await insert(store, due_job(), due_job())
    await claim(store, ended, limit=1)
    await claim(store, alive, limit=1)
    assert await store.nodes.stray_executors() == []
    await store.nodes.end_node(ended)
    assert await store.nodes.stray_executors() == [ended]


async def test_a_node_is_listed_with_its_orders_shards_and_lead_and_a_while_after_its_end(store: Store) -> None:
    leader, _ = await own_all_shards(store, "leader")
    executor = await store.nodes.register_node("executor", "e", 60, {"pid": 1}, Orders.CORDON)
    left = await store.nodes.register_node("executor", "left", 60, {})
    await store.nodes.end_node(left)

    found = {node.node_id: node for node in await store.nodes.list_nodes(3600)}

    assert [*found] == [leader, executor, left]
    assert (found[leader].leads, found[leader].shards) == (True, 1024)
    assert (found[executor].orders, found[executor].facts, found[executor].leads) == (Orders.CORDON, {"pid": 1}, False)
    assert found[left].ended_at == found[left].lease_until, "it left by itself"
    assert [node.node_id for node in await store.nodes.list_nodes(-3600)] == [leader, executor]
    one = await store.nodes.get_node(left)
    assert one is not None
    assert replace(one, now=found[left].now) == found[left]
    assert await store.nodes.get_node(10_000) is None


async def test_orders_are_told_with_the_next_renewal_and_not_to_the_dead(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", 60, {})
    assert await store.nodes.give_orders(node_id, Orders.DRAIN)
    renewal = await store.nodes.renew_node(node_id, 60, {})
    assert renewal is not None
    assert renewal.orders is Orders.DRAIN
    assert [node.orders for node in await store.nodes.sweep_nodes()] == [Orders.DRAIN]
    await store.nodes.end_node(node_id)
    assert not await store.nodes.give_orders(node_id, Orders.WORK)


async def test_a_node_that_is_declared_lost_is_dead_at_once_and_its_runs_are_returned(store: Store) -> None:
    node_id = await store.nodes.register_node("executor", "a", 60, {})
    assert await store.nodes.mark_lost(node_id)
    assert not await store.nodes.mark_lost(node_id), "once is enough"
    assert await store.nodes.renew_node(node_id, 60, {}) is None
    assert [(node.node_id, node.ended) for node in await store.nodes.sweep_nodes()] == [(node_id, True)]
    [found] = await store.nodes.list_nodes(3600)
    assert found.ended_at is not None
    assert found.lease_until > found.ended_at, "this is no leaving in order"


# --- the lead ---------------------------------------------------------------------------------------------


async def two(store: Store) -> tuple[int, int]:
    names = ("a", "b")
    first, second = [await store.nodes.register_node("scheduler", name, 60, {}) for name in names]
    return first, second


async def test_one_leads_and_the_other_waits_for_the_end_of_the_lease(store: Store) -> None:
    a, b = await two(store)
    assert await store.nodes.take_lease("leader", a, 60) == 1
    assert await store.nodes.take_lease("leader", b, 60) is None
    assert await store.nodes.take_lease("leader", a, 60) == 1, "renewed"
    assert await store.nodes.leader() == "a"


async def test_the_epoch_grows_whenever_the_holder_changes_and_only_then(store: Store) -> None:
    a, b = await two(store)
    epochs = [await store.nodes.take_lease("leader", holder, OVER) for holder in (a, a, b, b, a)]
    assert epochs == [1, 1, 2, 2, 3]
    assert await store.nodes.leader() is None


async def test_a_lease_that_was_given_back_is_free_at_once(store: Store) -> None:
    a, b = await two(store)
    await store.nodes.take_lease("leader", a, 60)
    await store.nodes.drop_lease("leader", b)
    assert await store.nodes.leader() == "a", "nobody gives back what another holds"
    await store.nodes.drop_lease("leader", a)
    assert await store.nodes.take_lease("leader", b, 60) == 2


async def test_a_leader_writes_the_owners_that_changed(store: Store) -> None:
    a, b = await two(store)
    epoch = await store.nodes.take_lease("leader", a, 60)
    assert epoch is not None
    assert await store.nodes.assign_shards(a, epoch, dict.fromkeys(range(1024), a)) == 1024
    assert await store.nodes.assign_shards(a, epoch, dict.fromkeys(range(1024), a)) == 0
    assert await store.nodes.owned_shards(a) == (1024, 1)
    assert await store.nodes.assign_shards(a, epoch, {0: b, 1: a, 2: b}) == 2
    assert await store.nodes.owned_shards(a) == (1022, 2)
    epochs = {row["shard"]: row["epoch"] for row in await rows(store, "shards")}
    assert (epochs[0], epochs[1], epochs[2]) == (2, 1, 2), "an unmoved shard keeps its epoch"


async def test_a_leader_without_its_lease_assigns_nothing(store: Store) -> None:
    a, b = await two(store)
    epoch = await store.nodes.take_lease("leader", a, OVER)
    assert epoch is not None
    owners = dict.fromkeys(range(1024), a)
    assert await store.nodes.assign_shards(a, epoch, owners) == 0, "its lease has run out"
    newer = await store.nodes.take_lease("leader", b, 60)
    assert await store.nodes.assign_shards(a, epoch, owners) == 0, "another leads"
    assert newer is not None
    assert await store.nodes.assign_shards(b, epoch, owners) == 0, "an epoch of the past"
    assert await store.nodes.assign_shards(b, newer, owners) == 1024


async def test_a_leader_that_is_declared_lost_leads_no_longer_and_cannot_come_back(store: Store) -> None:
    a, b = await two(store)
    assert await store.nodes.take_lease("leader", a, 60) == 1
    await store.nodes.mark_lost(a)
    assert await store.nodes.take_lease("leader", a, 60) is None, "not under its old number"
    assert await store.nodes.assign_shards(a, 1, dict.fromkeys(range(1024), a)) == 0
    assert await store.nodes.take_lease("leader", b, 60) == 2


async def test_shards_are_listed_with_their_owners_names(store: Store) -> None:
    a, _ = await two(store)
    assert {(row.owner_id, row.owner, row.epoch) for row in await store.nodes.list_shards()} == {(None, None, 0)}
    epoch = await store.nodes.take_lease("leader", a, 60)
    assert epoch is not None
    await store.nodes.assign_shards(a, epoch, {0: a})
    first, *rest = await store.nodes.list_shards()
    assert (first.shard, first.owner_id, first.owner, first.epoch) == (0, a, "a", 1)
    assert len(rest) == 1023
