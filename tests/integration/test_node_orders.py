"""What orders to nodes do to shards and runs, with a leader that takes a step when the test says so."""

from crew import Scheduler, SetClock
from sample_jobs import claim, due_job, insert, rows, succeeded

from hourhand.model.node import Orders
from hourhand.wiring import Store


async def shares(store: Store, *schedulers: Scheduler) -> list[int]:
    return [(await store.nodes.owned_shards(scheduler.node_id))[0] for scheduler in schedulers]


async def test_a_cordoned_or_drained_scheduler_owns_no_shards_until_it_is_resumed(store: Store) -> None:
    leader = await Scheduler(store, SetClock()).join("leader")
    other = await Scheduler(store, SetClock()).join("other")
    await leader.leadership.run_once()
    assert min(await shares(store, leader, other)) > 0

    for orders in (Orders.CORDON, Orders.DRAIN):
        await store.nodes.give_orders(other.node_id, orders)
        await leader.leadership.run_once()
        assert await shares(store, leader, other) == [1024, 0]

    await store.nodes.give_orders(other.node_id, Orders.WORK)
    await leader.leadership.run_once()
    assert min(await shares(store, leader, other)) > 0


async def test_when_every_scheduler_is_cordoned_somebody_plans_all_the_same(store: Store) -> None:
    leader = await Scheduler(store, SetClock()).join("leader")
    await store.nodes.give_orders(leader.node_id, Orders.CORDON)
    await leader.leadership.run_once()
    assert await shares(store, leader) == [1024]


async def test_the_shards_of_a_scheduler_that_is_declared_lost_move_at_the_next_step(store: Store) -> None:
    leader = await Scheduler(store, SetClock()).join("leader")
    other = await Scheduler(store, SetClock()).join("other")
    await leader.leadership.run_once()
    await store.nodes.mark_lost(other.node_id)
    await leader.leadership.run_once()
    assert await shares(store, leader, other) == [1024, 0]


async def test_when_the_leader_is_declared_lost_another_leads_at_its_next_step(store: Store) -> None:
    leader = await Scheduler(store, SetClock()).join("leader")
    other = await Scheduler(store, SetClock()).join("other")
    await leader.leadership.run_once()
    await store.nodes.mark_lost(leader.node_id)
    await other.leadership.run_once()
    assert await store.nodes.leader() == "other"
    assert await shares(store, leader, other) == [0, 1024]


async def test_runs_of_an_executor_that_is_declared_lost_are_returned_at_the_next_step_and_its_word_counts_no_more(
    store: Store,
) -> None:
    leader = await Scheduler(store, SetClock()).join("leader")
    await leader.leadership.run_once()
    executor = await store.nodes.register_node("executor", "e", 60, {})
    await insert(store, due_job())
    [held] = await claim(store, executor)

    await store.nodes.mark_lost(executor)
    await leader.leadership.run_once()

    [row] = await rows(store, "live_runs")
    assert (row["state"], row["executor_id"], row["losses"]) == (0, None, 1)
    assert not await store.live_runs.finish_runs([succeeded(held)])
    [again] = await claim(store, executor + 1)
    assert again.fence > held.fence
    assert not await store.live_runs.finish_runs([succeeded(held)])
    assert await store.live_runs.finish_runs([succeeded(again)])
