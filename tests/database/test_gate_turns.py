"""Whose turn it is before a gate: the highest priority's, and now and then that of whoever has waited too long."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

from sample_jobs import START, at, claim, due_job, execute, insert, rows, succeeded

from hourhand.database.connections import Record
from hourhand.model.policy import Policy
from hourhand.model.run import Claim
from hourhand.model.states import RunState
from hourhand.ports.stores import NewJob, Wish
from hourhand.store.live_runs import LiveRuns
from hourhand.wiring import Store

LONG_AGO = datetime.now(UTC) - timedelta(minutes=5)


def keyed(ready_at: datetime = START, limit: int = 1, **fields: Any) -> NewJob:
    """A job that runs once; all share a limit."""
    policy = Policy(concurrency_key="customer", concurrency_limit=limit)
    return due_job(ready_at, policy=policy, **fields)


async def lane_of(store: Store, needs: str) -> int:
    return next(lane_id for lane_id, lane in (await store.names.lanes()).items() if lane.needs == needs)


async def live(store: Store) -> dict[UUID, Record]:
    return {row["run_id"]: row for row in await rows(store, "live_runs")}


async def forget_promises(store: Store) -> None:
    """As if a while had passed since they were given."""
    await execute(store, "UPDATE hourhand.gate_promises SET promised_at = promised_at - interval '3 seconds'")


async def finish(store: Store, *claims: Claim) -> None:
    await store.live_runs.finish_runs([succeeded(one) for one in claims])


async def test_runs_that_end_let_as_many_go_on_those_of_the_highest_priority_first(store: Store) -> None:
    await insert(store, *(keyed(limit=3) for _ in range(3)))
    running = await claim(store, 1)
    await insert(store, *(keyed(ready_at=at(number), limit=3, priority=number) for number in (1, 9, 5, 7)))
    assert await claim(store, 1, at(10)) == []
    told: list[str] = []
    store.live_runs.on_let_go = lambda: told.append("look")

    await store.live_runs.finish_runs([succeeded(one) for one in running[:2]])

    ready = [row["priority"] for row in (await live(store)).values() if row["state"] == RunState.QUEUED]
    assert sorted(ready) == [7, 9]
    assert told == ["look"]
    assert sorted(one.ready_at for one in await claim(store, 1, at(10))) == [at(7), at(9)]


async def test_one_place_in_four_goes_to_the_oldest_of_those_that_waited_too_long(store: Store) -> None:
    await insert(store, *(keyed(limit=4) for _ in range(4)))
    running = await claim(store, 1)
    now = datetime.now(UTC)
    oldest = keyed(ready_at=now - timedelta(minutes=5), limit=4, priority=1)
    await insert(store, *(keyed(ready_at=now - timedelta(minutes=4), limit=4, priority=low) for low in (2, 0)), oldest)
    await insert(store, *(keyed(ready_at=now, limit=4, priority=9) for _ in range(8)))
    assert await claim(store, 1, at(1)) == []

    await store.live_runs.finish_runs([succeeded(one) for one in running])

    ready = [row for row in (await live(store)).values() if row["state"] == RunState.QUEUED]
    assert sorted(row["priority"] for row in ready) == [1, 9, 9, 9]
    assert oldest.job_id in {row["job_id"] for row in ready}


async def test_every_fourth_place_is_for_who_waited_too_long_however_many_urgent_ones_arrive(store: Store) -> None:
    """One place. Whenever it becomes free, more urgent runs have just arrived and are looked for before all others."""
    low = [keyed(LONG_AGO + timedelta(seconds=number), priority=0, needs="slow") for number in range(3)]
    await insert(store, keyed(), *low)
    slow = await lane_of(store, "slow")
    [running] = await claim_but(store, slow)
    assert await claim(store, 1) == []

    went_on = []
    for _ in range(16):
        await insert(store, *(keyed(priority=9) for _ in range(3)))
        assert await claim_but(store, slow) == [], "the place is taken"
        await finish(store, running)
        await insert(store, keyed(priority=9))
        urgent = await claim_but(store, slow)
        [running] = urgent or await claim(store, 1)
        went_on.append(running.job_id)

    turns = [went_on.index(job.job_id) for job in low]
    assert turns == sorted(turns), "the oldest first"
    assert {after - before for before, after in pairwise(turns)} == {4}
    assert turns[0] < 4


async def test_turns_are_counted_whatever_the_rhythm_of_ends_and_claims(store: Store) -> None:
    """Two places that become free one by one and are claimed together."""
    low = keyed(LONG_AGO, limit=2, priority=0)
    await insert(store, keyed(limit=2), keyed(limit=2), low)
    running = [one for one in await claim(store, 1) if one.job_id != low.job_id]
    ended = 0
    while low.job_id not in {one.job_id for one in running}:
        await insert(store, *(keyed(limit=2, priority=9) for _ in range(4)))
        assert await claim(store, 1) == []
        for one in running:
            await finish(store, one)
            ended += 1
        running = await claim(store, 1)
        assert len(running) == 2
        assert ended <= 4


async def turn_is_next(store: Store) -> None:
    await execute(store, "UPDATE hourhand.gates SET turn = 3")


async def test_a_place_is_kept_for_the_run_whose_turn_it_is_and_not_for_long(store: Store) -> None:
    await insert(store, keyed(), keyed(LONG_AGO, priority=0, needs="slow"))
    slow = await lane_of(store, "slow")
    [running] = await claim_but(store, slow)
    assert await claim(store, 1) == []
    await turn_is_next(store)
    await finish(store, running)
    await insert(store, keyed(priority=9), keyed(priority=9))

    assert await claim_but(store, slow) == [], "somebody else has waited for it"
    await forget_promises(store)
    await store.turns.let_go_on(1000)
    [urgent] = await claim_but(store, slow)
    assert await claim(store, 1) == [], "the place is taken, whatever was promised"
    await finish(store, urgent)
    assert len(await claim(store, 1)) == 1


async def test_no_places_are_kept_for_a_lane_that_nobody_came_for(store: Store) -> None:
    await insert(store, keyed(), *(keyed(LONG_AGO, priority=0, needs="slow") for _ in range(3)))
    slow = await lane_of(store, "slow")
    [running] = await claim_but(store, slow)
    assert await claim(store, 1) == []
    await turn_is_next(store)
    await finish(store, running)
    await forget_promises(store)
    for _ in range(8):
        await insert(store, keyed(priority=9))
        await store.turns.let_go_on(1000)
        [running] = await claim_but(store, slow)
        await finish(store, running)
    assert len(await rows(store, "gate_promises")) == 1


async def test_a_promise_is_gone_when_its_run_has_started(store: Store) -> None:
    await insert(store, keyed(), keyed(LONG_AGO, priority=0))
    running = await claim(store, 1)
    await turn_is_next(store)
    await finish(store, *running)
    assert len(await rows(store, "gate_promises")) == 1
    assert len(await claim(store, 1)) == 1
    assert await rows(store, "gate_promises") == []


async def test_promises_that_nobody_came_for_are_cleared_away(store: Store) -> None:
    await insert(store, keyed(), keyed(LONG_AGO, priority=0))
    running = await claim(store, 1)
    await turn_is_next(store)
    await finish(store, *running)
    await store.turns.free_stray_slots()
    assert len(await rows(store, "gate_promises")) == 1
    await execute(store, "UPDATE hourhand.gate_promises SET promised_at = promised_at - interval '6 minutes'")
    await store.turns.free_stray_slots()
    assert await rows(store, "gate_promises") == []


async def test_without_anybody_who_waited_too_long_no_turns_are_counted(store: Store) -> None:
    soon = datetime.now(UTC) - timedelta(seconds=5)
    await insert(store, keyed(soon), keyed(soon), keyed(soon, priority=9))
    [running] = await claim(store, 1, soon)
    await finish(store, running)
    assert [row["turn"] for row in await rows(store, "gates")] == [0]


async def test_how_long_is_too_long_is_a_setting(store: Store) -> None:
    await insert(store, *(keyed(limit=4) for _ in range(4)))
    running = await claim(store, 1)
    now = datetime.now(UTC)
    await insert(store, keyed(now - timedelta(seconds=5), limit=4, priority=0))
    await insert(store, *(keyed(now, limit=4, priority=9) for _ in range(4)))
    assert await claim(store, 1, at(1)) == []
    impatient = LiveRuns(store.database, store.names, timedelta(seconds=1))
    await impatient.finish_runs([succeeded(one) for one in running])
    ready = [row["priority"] for row in (await live(store)).values() if row["state"] == RunState.QUEUED]
    assert sorted(ready) == [0, 9, 9, 9]


async def test_a_run_that_was_let_go_on_and_that_nobody_takes_does_not_keep_others_from_its_place(store: Store) -> None:
    """Executors for one sort of runs are away; the place is shared with another sort."""
    await insert(store, keyed(), keyed(priority=9, needs="away"), keyed(priority=8, needs="away"), keyed(), keyed())
    away = await lane_of(store, "away")
    [first] = await claim_but(store, away)
    assert await claim(store, 1) == []
    await store.live_runs.finish_runs([succeeded(first)])
    assert await claim_but(store, away) == []
    assert await store.turns.let_go_on(1000) == 1
    [second] = await claim_but(store, away)
    assert [await store.turns.let_go_on(1000) for _ in range(3)] == [0, 0, 0]
    assert second.needs == "number"


async def claim_but(store: Store, lane_id: int) -> list[Claim]:
    """A claim by somebody who does not serve a lane."""
    heads = await store.live_runs.peek_ready([number for number in await store.names.lanes() if number != lane_id])
    wishes = [Wish(head, 1, 100) for head in heads]
    return (await store.live_runs.claim_carefully(1, wishes, START)).claims if wishes else []
