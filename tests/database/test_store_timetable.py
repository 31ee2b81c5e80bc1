"""Cursors: each due time is fired once, by the one who owns its shard, from where the cursor is expected to stand."""

import asyncio
import functools
import random
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sample_jobs import START, at, every, execute, insert, new_job, once, own_all_shards, planning, rows

from hourhand.model.catchup import CatchUpPolicy, MissedRange
from hourhand.model.ids import scheduled_run_id, shard_of
from hourhand.model.states import Reason
from hourhand.ports.stores import Move
from hourhand.wiring import Store


async def cursors(store: Store) -> dict[UUID, object]:
    return {row["job_id"]: row["next_fire"] for row in await rows(store, "timetable")}


async def run_ids(store: Store) -> list[UUID]:
    return [row["run_id"] for row in await rows(store, "live_runs")]


# --- jobs that run once -----------------------------------------------------------------------------------


async def test_due_cursors_of_jobs_that_run_once_become_runs(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    due = [new_job(once(at(second)), next_due=at(second)) for second in range(3)]
    later, recurring = new_job(once(at(9)), next_due=at(9)), new_job(every(1), next_due=at(1))
    await insert(store, *due, later, recurring)
    assert sorted(await store.timetable.fire_once(node_id, epoch, at(2), 100)) == [at(0), at(1), at(2)]
    assert await run_ids(store) == [scheduled_run_id(at(second), job.job_id) for second, job in enumerate(due)]
    assert await cursors(store) == {later.job_id: at(9), recurring.job_id: at(1)}


async def test_no_more_than_the_limit_is_fired_and_the_earliest_first(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    await insert(store, *(new_job(once(at(second)), next_due=at(second)) for second in range(9, -1, -1)))
    assert sorted(await store.timetable.fire_once(node_id, epoch, at(100), 4)) == [at(0), at(1), at(2), at(3)]


async def test_two_planners_at_once_fire_every_job_exactly_once(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    await insert(store, *(new_job(once(START), next_due=START) for _ in range(300)))
    fired = await asyncio.gather(*(store.timetable.fire_once(node_id, epoch, START, 100) for _ in range(6)))
    while more := await store.timetable.fire_once(node_id, epoch, START, 100):
        fired.append(more)
    assert sum(map(len, fired)) == 300
    assert len(await run_ids(store)) == 300
    assert await cursors(store) == {}


async def test_a_run_that_is_there_already_is_not_made_twice_and_does_not_hold_up_the_others(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    singles = [new_job(once(START), next_due=START) for _ in range(3)]
    beats = [new_job(every(10), next_due=START) for _ in range(3)]
    await insert(store, *singles, *beats)
    for job in (singles[1], beats[1]):
        await execute(
            store,
            """INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version,
                                               state, priority, cause)
               SELECT $1, job_id, next_fire, next_fire, namespace_id, lane_id, version, 1, priority, 1
                 FROM hourhand.timetable WHERE job_id = $2""",
            scheduled_run_id(START, job.job_id),
            job.job_id,
        )
    assert await store.timetable.fire_once(node_id, epoch, START, 10) == [START, START]
    moves = [Move(job.job_id, START, 1, [START], [], at(10)) for job in beats]
    assert await store.timetable.advance_cursors(node_id, epoch, moves, START) == [START, START]
    assert await cursors(store) == {job.job_id: at(10) for job in beats}
    assert set(await run_ids(store)) == {scheduled_run_id(START, job.job_id) for job in (*singles, *beats)}
    assert sorted(row["state"] for row in await rows(store, "live_runs")) == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("who", ["an old owner", "an older epoch"])
async def test_whoever_lost_a_shard_moves_none_of_its_cursors(store: Store, who: str) -> None:
    node_id, epoch = await own_all_shards(store)
    single, beat = new_job(once(START), next_due=START), new_job(every(10), next_due=START)
    await insert(store, single, beat)
    other = await store.nodes.register_node("scheduler", "other", 60, {})
    lease = await store.nodes.take_lease("leader", node_id, 60)
    assert lease is not None
    await store.nodes.assign_shards(node_id, lease, dict.fromkeys(range(1024), other))
    if who == "an older epoch":  # the shards have come back, but what it planned before it did not know that they left
        await store.nodes.assign_shards(node_id, lease, dict.fromkeys(range(1024), node_id))

    move = Move(beat.job_id, START, 1, [START], [], at(10))
    assert await store.timetable.fire_once(node_id, epoch, START, 10) == []
    assert await store.timetable.due_cursors(node_id, epoch, START, 10) == ([], False)
    assert await store.timetable.advance_cursors(node_id, epoch, [move], at(0)) == []
    assert await cursors(store) == {single.job_id: START, beat.job_id: START}
    assert await run_ids(store) == []


# --- recurring jobs ---------------------------------------------------------------------------------------


async def test_due_cursors_come_with_what_is_needed_to_plan_them_earliest_first(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    policy = CatchUpPolicy(window=timedelta(minutes=3))
    second, first = new_job(every(60), next_due=at(5), catchup=policy), new_job(every(10), next_due=at(1))
    await insert(store, second, first, new_job(every(10), next_due=at(50)), new_job(once(at(1)), next_due=at(1)))
    found, more = await store.timetable.due_cursors(node_id, epoch, at(10), 10)
    assert not more
    assert [(cursor.job_id, cursor.next_fire, cursor.version) for cursor in found] == [
        (first.job_id, at(1), 1),
        (second.job_id, at(5), 1),
    ]
    assert [cursor.timing for cursor in found] == [every(10), every(60)]
    assert [cursor.catchup for cursor in found] == [CatchUpPolicy(), policy]


async def test_whoever_reads_as_many_due_cursors_as_he_asked_for_is_told_that_there_may_be_more(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    await insert(store, *(new_job(every(10), next_due=at(1)) for _ in range(3)))
    few, more = await store.timetable.due_cursors(node_id, epoch, at(10), 2)
    assert (len(few), more) == (2, True)


async def test_whoever_reads_on_at_an_instant_begins_with_the_shard_at_which_he_stopped(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    jobs = await insert(store, *(new_job(every(10), next_due=at(1)) for _ in range(20)))
    [later] = await insert(store, new_job(every(10), next_due=at(2)))
    few, _ = await store.timetable.due_cursors(node_id, epoch, at(10), 8)
    stopped = shard_of(few[-1].job_id)
    rest, _ = await store.timetable.due_cursors(node_id, epoch, at(10), 100, at(1), stopped)
    assert {cursor.job_id for cursor in few} | {cursor.job_id for cursor in rest} == {*jobs, later}
    assert all(shard_of(cursor.job_id) >= stopped for cursor in rest[:-1])
    assert rest[-1].job_id == later, "in a lower shard or not: it is due later"


async def test_a_job_that_is_changed_between_the_two_looks_is_left_for_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_id, epoch = await own_all_shards(store)
    changed, other = new_job(every(10), next_due=at(1)), new_job(every(10), next_due=at(2))
    await insert(store, changed, other)
    learn = store.timetable._learn

    async def change_first(unknown: Any) -> None:
        await execute(store, "UPDATE hourhand.jobs SET version = 2 WHERE job_id = $1", changed.job_id)
        await learn(unknown)

    monkeypatch.setattr(store.timetable, "_learn", change_first)
    found, more = await store.timetable.due_cursors(node_id, epoch, at(10), 10)
    assert ([cursor.job_id for cursor in found], more) == ([other.job_id], False)


async def test_a_cursor_moves_and_its_runs_appear_together(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(0), priority=7))
    move = Move(job_id, at(0), 1, [at(0), at(10)], [], at(20))
    assert sorted(await store.timetable.advance_cursors(node_id, epoch, [move], at(0))) == [at(0), at(10)]
    made = await rows(store, "live_runs")
    assert [(row["run_id"], row["priority"], row["cause"]) for row in made] == [
        (scheduled_run_id(at(0), job_id), 7, 1),
        (scheduled_run_id(at(10), job_id), 7, 1),
    ]
    assert await cursors(store) == {job_id: at(20)}


async def test_a_cursor_that_has_moved_already_does_not_move_again(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(10)))
    late = Move(job_id, at(0), 1, [at(0)], [MissedRange(at(-10), at(-10), 1, Reason.CATCHUP_WINDOW)], at(10))
    assert await store.timetable.advance_cursors(node_id, epoch, [late], at(0)) == []
    assert await run_ids(store) == await rows(store, "ledger_ranges") == []
    assert await cursors(store) == {job_id: at(10)}


async def test_a_cursor_of_another_version_does_not_move(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(0)))
    assert (
        await store.timetable.advance_cursors(node_id, epoch, [Move(job_id, at(0), 2, [at(0)], [], at(10))], at(0))
        == []
    )
    assert await run_ids(store) == []
    assert await cursors(store) == {job_id: at(0)}


async def test_one_cursor_that_cannot_move_does_not_hold_up_the_others(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    good, bad = await insert(store, new_job(every(10), next_due=at(0)), new_job(every(10), next_due=at(0)))
    moves = [Move(good, at(0), 1, [at(0)], [], at(10)), Move(bad, at(5), 1, [at(5)], [], at(15))]
    assert await store.timetable.advance_cursors(node_id, epoch, moves, at(0)) == [at(0)]
    assert await cursors(store) == {good: at(10), bad: at(0)}


async def test_the_same_move_by_several_planners_at_once_is_made_once(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    jobs = await insert(store, *(new_job(every(10), next_due=at(0)) for _ in range(50)))
    moves = [Move(job_id, at(0), 1, [at(0)], [], at(10)) for job_id in jobs]
    made = await asyncio.gather(
        *(
            store.timetable.advance_cursors(node_id, epoch, order, at(0))
            for order in (moves, moves[::-1], moves, moves[::-1])
        )
    )
    assert sum(map(len, made)) == 50
    assert len(await run_ids(store)) == 50
    assert set((await cursors(store)).values()) == {at(10)}


async def test_planners_that_move_the_same_cursors_in_other_orders_never_wait_for_each_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_id, epoch = await own_all_shards(store)
    jobs = await insert(store, *(new_job(every(10), next_due=at(0)) for _ in range(1000)))
    database = store.timetable._database
    fetch_once = functools.partial(type(database).fetch.__wrapped__, database)  # type: ignore[attr-defined]
    monkeypatch.setattr(database, "fetch", fetch_once)  # a deadlock is told, not tried again
    chance = random.Random(1)
    for turn in range(3):
        moves = [Move(job_id, at(10 * turn), 1, [at(10 * turn)], [], at(10 * turn + 10)) for job_id in jobs]
        orders = [chance.sample(moves, len(moves)) for _ in range(3)]
        made = await asyncio.gather(
            *(store.timetable.advance_cursors(node_id, epoch, order, at(0)) for order in orders)
        )
        assert sum(map(len, made)) == 1000


@pytest.mark.parametrize("following", [at(10), None], ids=["moves", "ends"])
@pytest.mark.parametrize("count", [1, 300])
async def test_a_cursor_that_is_changed_while_its_planner_waits_for_it_stays_as_it_was_changed(
    store: Store, following: datetime | None, count: int
) -> None:
    node_id, epoch = await own_all_shards(store)
    jobs = await insert(store, *(new_job(every(10), next_due=at(0)) for _ in range(count)))
    moves = [Move(job_id, at(0), 1, [at(0)], [], following) for job_id in jobs]
    change = "UPDATE hourhand.timetable SET next_fire = $2, version = 2 WHERE job_id = $1"
    async with planning(store) as changing:
        await changing.execute(change.replace("hourhand.", f"{store.database.schema}."), jobs[0], at(7))
        await changing.then(store.timetable.advance_cursors(node_id, epoch, moves, at(0)))
    assert len(await run_ids(store)) == count - 1
    assert (await cursors(store))[jobs[0]] == at(7)
    assert scheduled_run_id(at(0), jobs[0]) not in await run_ids(store)


async def test_a_schedule_that_is_over_loses_its_cursor(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(0)))
    assert await store.timetable.advance_cursors(
        node_id, epoch, [Move(job_id, at(0), 1, [at(0)], [], None)], at(0)
    ) == [at(0)]
    assert await cursors(store) == {}


async def test_what_was_missed_is_written_into_the_ledger_as_ranges(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(0)))
    missed = [
        MissedRange(at(0), at(90), 10, Reason.CATCHUP_WINDOW),
        MissedRange(at(100), at(120), 3, Reason.CATCHUP_LAST),
    ]
    assert (
        await store.timetable.advance_cursors(node_id, epoch, [Move(job_id, at(0), 1, [], missed, at(130))], at(0))
        == []
    )
    found = await rows(store, "ledger_ranges", "first_due")
    assert [(row["first_due"], row["last_due"], row["count"], row["state"], row["reason"]) for row in found] == [
        (at(0), at(90), 10, 16, "catchup_window"),
        (at(100), at(120), 3, 16, "catchup_last"),
    ]


async def test_the_next_cursor_is_the_earliest_of_all(store: Store) -> None:
    assert await store.timetable.next_cursor() is None
    await insert(store, new_job(every(10), next_due=at(30)))
    assert await store.timetable.next_cursor() == at(30)
    await insert(store, new_job(once(at(20)), next_due=at(20)))
    assert await store.timetable.next_cursor() == at(20)
