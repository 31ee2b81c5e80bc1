"""Two schedulers on one database: every due time fires once, whoever owns it, and the dead give back what they held."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import pytest
from crew import Scheduler, SetClock
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    due_job,
    every,
    execute,
    insert,
    new_job,
    once,
    own_all_shards,
    rows,
    succeeded,
)

from hourhand.executor.recorder import Recorder
from hourhand.model.local_time import ZoneFault
from hourhand.model.outcome import Succeeded
from hourhand.model.policy import Policy
from hourhand.model.states import RunState
from hourhand.ports.event_bus import Topic
from hourhand.ports.stores import Cursor, Move, TimetableStore
from hourhand.scheduler import planner
from hourhand.scheduler.leadership import AFTER_SECONDS
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.scheduler.unplannable import REST_MAX
from hourhand.wiring import Store

OVER = -1.0


@pytest.fixture
async def clock() -> SetClock:
    return SetClock()


async def pair(store: Store, clock: SetClock) -> tuple[Scheduler, Scheduler]:
    """Two schedulers that have shared out the shards."""
    first, second = await Scheduler(store, clock).join("a"), await Scheduler(store, clock).join("b")
    for scheduler in (first, second):
        await scheduler.leadership.run_once()
    for scheduler in (first, second):
        await scheduler.lookout.run_once()
    return first, second


async def test_two_schedulers_share_the_shards_and_one_of_them_leads(store: Store, clock: SetClock) -> None:
    first, second = await pair(store, clock)
    assert (first.leadership.epoch, second.leadership.epoch) == (1, None)
    owned = [(await store.nodes.owned_shards(one.node_id))[0] for one in (first, second)]
    assert sum(owned) == 1024
    assert min(owned) > 380
    assert first.bus.said == [Topic.SHARDS]


async def test_two_schedulers_fire_every_due_time_exactly_once(store: Store, clock: SetClock) -> None:
    first, second = await pair(store, clock)
    single = [new_job(once(at(n / 4)), next_due=at(n / 4)) for n in range(120)]
    beats = [new_job(every(n % 5 + 1), next_due=at(n % 5 + 1)) for n in range(60)]
    await insert(store, *single, *beats)
    for second_passed in range(31):
        clock.time = at(second_passed)
        await asyncio.gather(first.planner.run_once(), second.planner.run_once())

    made = Counter((row["job_id"], row["scheduled_for"]) for row in await rows(store, "live_runs"))
    expected = {(job.job_id, at(n / 4)) for n, job in enumerate(single)}
    for job in beats:
        expected |= {(job.job_id, due) for due in job.definition.timing.due_between(START, at(32), 100)}
    assert set(made) == expected
    assert set(made.values()) == {1}
    assert {row["next_fire"] for row in await rows(store, "timetable")} <= {at(n) for n in range(33, 38)}


async def test_shards_of_a_scheduler_that_died_are_fired_by_the_other(store: Store, clock: SetClock) -> None:
    first, second = await pair(store, clock)
    await insert(store, *(new_job(once(at(1)), next_due=at(1)) for _ in range(50)))
    await store.nodes.renew_node(second.node_id, OVER, {})
    await first.leadership.run_once()
    await first.lookout.run_once()
    assert await store.nodes.owned_shards(first.node_id) == (1024, 2)
    await first.planner.run_once()
    assert len(await rows(store, "live_runs")) == 50
    await second.planner.run_once()
    assert len(await rows(store, "live_runs")) == 50


async def test_a_scheduler_that_was_away_goes_on_from_the_cursor_not_from_now(store: Store, clock: SetClock) -> None:
    first, second = await pair(store, clock)
    [job_id] = await insert(store, new_job(every(60), next_due=at(60)))
    clock.time = at(3 * 3600 - 20)
    await asyncio.gather(first.planner.run_once(), second.planner.run_once())
    runs, ledger = await rows(store, "live_runs"), await rows(store, "ledger_ranges", "first_due")
    assert [row["scheduled_for"] for row in runs] == [at(3 * 3600 - 60)]
    [row] = ledger
    assert (row["job_id"], row["first_due"], row["last_due"]) == (job_id, at(60), at(3 * 3600 - 120))
    assert (row["count"], row["reason"]) == (178, "catchup_window")
    assert (row["recent_count"], row["recent_from"]) == (59, at(3 * 3600 - 3600))
    assert row["count"] + len(runs) == 179


async def test_a_planner_without_shards_does_nothing(store: Store, clock: SetClock) -> None:
    lone = await Scheduler(store, clock).join("a")
    await insert(store, new_job(once(START), next_due=START))
    await lone.lookout.run_once()
    assert await lone.planner.run_once() is None
    assert await rows(store, "live_runs") == []


async def test_a_planner_sleeps_no_longer_than_until_the_next_job_enters_the_horizon(
    store: Store, clock: SetClock
) -> None:
    first, _ = await pair(store, clock)
    assert await first.planner.run_once() is None
    await insert(store, new_job(once(at(2.2)), next_due=at(2.2)))
    assert await first.planner.run_once() == pytest.approx(0.2)
    clock.time = at(-50)
    assert await first.planner.run_once() is None, "it is woken"


async def test_the_lookout_wakes_the_planner_before_a_job_enters_the_horizon(store: Store, clock: SetClock) -> None:
    first, _ = await pair(store, clock)
    woken: list[str] = []
    first.lookout.wake_planner = lambda: woken.append("planner")
    first.lookout.wake_judge = lambda: woken.append("judge")
    await insert(store, new_job(once(at(3.5)), next_due=at(3.5)))
    await first.lookout.run_once()
    assert woken == []
    clock.time = at(0.5)  # the next look is a second away, and then it would be in the horizon already
    await first.lookout.run_once()
    assert woken == ["planner"]


@pytest.mark.parametrize("policy", [Policy(queue_timeout_seconds=5), Policy(max_concurrency=1)])
async def test_the_lookout_wakes_the_judge_when_anything_waits(store: Store, clock: SetClock, policy: Policy) -> None:
    first, _ = await pair(store, clock)
    woken: list[str] = []
    first.lookout.wake_judge = lambda: woken.append("judge")
    await insert(store, due_job(policy=policy))
    await execute(store, "UPDATE hourhand.live_runs SET waits_on = gate_ids[1], state = 1 WHERE gate_ids IS NOT NULL")
    clock.time = at(6)
    await first.lookout.run_once()
    assert woken == ["judge"]


async def test_a_leader_looks_again_when_the_first_lease_can_be_over(store: Store, clock: SetClock) -> None:
    first, _ = await pair(store, clock)
    assert await first.leadership.run_once() is None, "at the next beat"
    await store.nodes.register_node("executor", "short", 1.0, {})
    pause = await first.leadership.run_once()
    assert pause is not None
    assert 0 < pause <= 1 + AFTER_SECONDS


async def test_of_two_that_die_one_after_the_other_the_second_does_not_wait_for_a_beat(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await pair(store, clock)
    dead = [await store.nodes.register_node("executor", name, OVER, {}) for name in ("a", "b")]
    await execute(
        store, "UPDATE hourhand.nodes SET lease_until = clock_timestamp() + interval '1 day' WHERE name = 'b'"
    )
    bury = store.nodes.bury_nodes

    async def bury_while_another_dies(node_ids: Sequence[int]) -> list[int]:
        buried = await bury(node_ids)
        await execute(store, "UPDATE hourhand.nodes SET lease_until = clock_timestamp() WHERE name = 'b'")
        return buried

    monkeypatch.setattr(store.nodes, "bury_nodes", bury_while_another_dies)
    assert await first.leadership.run_once() == AFTER_SECONDS
    monkeypatch.setattr(store.nodes, "bury_nodes", bury)
    await first.leadership.run_once()
    assert not {node.node_id for node in await store.nodes.present_nodes()} & set(dead)


async def test_a_leader_that_resigns_while_it_renews_is_leader_no_more(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await pair(store, clock)
    take = store.nodes.take_lease

    async def take_late(*how: Any) -> int | None:
        await first.leadership.resign()
        return await take(*how)

    monkeypatch.setattr(store.nodes, "take_lease", take_late)
    first.leadership._renew_at = 0.0
    await first.leadership.run_once()
    monkeypatch.setattr(store.nodes, "take_lease", take)
    assert first.leadership.epoch is None
    await second.leadership.run_once()
    assert second.leadership.epoch == 2


async def test_who_was_held_for_dead_does_not_ask_for_the_lead_all_the_time(store: Store, clock: SetClock) -> None:
    alone = await Scheduler(store, clock).join("a")
    await alone.leadership.run_once()
    await store.nodes.end_node(alone.node_id)
    await execute(store, "UPDATE hourhand.leases SET lease_until = clock_timestamp()")
    alone.leadership._renew_at = 0.0
    assert await alone.leadership.run_once() == SchedulerSettings().sweep_seconds + AFTER_SECONDS


async def test_a_follower_tries_again_when_the_lease_of_the_leader_can_be_over(store: Store, clock: SetClock) -> None:
    _, second = await pair(store, clock)
    await execute(store, "UPDATE hourhand.leases SET lease_until = clock_timestamp() + interval '1 second'")
    pause = await second.leadership.run_once()
    assert pause is not None
    assert 0 < pause <= 1 + AFTER_SECONDS
    await execute(store, "UPDATE hourhand.leases SET lease_until = clock_timestamp()")
    await second.leadership.run_once()
    assert second.leadership.epoch == 2


async def test_a_crowd_of_one_instant_is_planned_while_earlier_parts_are_still_written_and_nothing_of_it_twice(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "PART", 7)
    scheduler = await Scheduler(store, clock).join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    jobs = await insert(store, *(new_job(every(60), next_due=at(0)) for _ in range(230)))  # batches of fifty
    advance, under_way = store.timetable.advance_cursors, 0
    together, moved = set[int](), Counter[UUID]()

    async def noted(node_id: int, epoch: int, moves: Sequence[Move], now: datetime) -> list[datetime]:
        nonlocal under_way
        moved.update(move.job_id for move in moves)
        under_way += 1
        together.add(under_way)
        made = await advance(node_id, epoch, moves, now)
        under_way -= 1
        return made

    monkeypatch.setattr(store.timetable, "advance_cursors", noted)
    await scheduler.planner.run_once()
    assert under_way == 0, "it returns when all is written"
    assert together == {1, 2}
    assert moved == Counter(jobs)
    assert {row["job_id"] for row in await rows(store, "live_runs")} == set(jobs)


@pytest.mark.parametrize("batch_max", [1, 3, 10])
async def test_a_crowd_is_planned_in_batches_that_are_smaller_than_what_is_under_way(
    store: Store, clock: SetClock, batch_max: int
) -> None:
    scheduler = Scheduler(store, clock, SchedulerSettings(batch_max=batch_max, horizon_seconds=2.0))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    jobs = await insert(store, *(new_job(every(60), next_due=at(0)) for _ in range(40)))
    async with asyncio.timeout(60):
        await scheduler.planner.run_once()
    assert {row["job_id"] for row in await rows(store, "live_runs")} == set(jobs)


async def test_a_cursor_that_somebody_puts_elsewhere_while_others_are_still_written_is_planned_from_there(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = await Scheduler(store, clock).join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    jobs = await insert(store, *(new_job(every(60), next_due=at(0)) for _ in range(50)))  # one batch, one part
    read, reads = store.timetable.due_cursors, 0

    async def put_elsewhere(*asked: Any) -> tuple[list[Cursor], bool]:
        nonlocal reads
        reads += 1
        if reads == 2:  # nobody has waited yet for what was begun after the first
            async with asyncio.timeout(60):
                while at(0) in {row["next_fire"] for row in await rows(store, "timetable")}:
                    await asyncio.sleep(0)
            await execute(store, "UPDATE hourhand.timetable SET next_fire = $2 WHERE job_id = $1", jobs[0], at(1))
        return await read(*asked)

    monkeypatch.setattr(store.timetable, "due_cursors", put_elsewhere)
    await scheduler.planner.run_once()
    assert {row["next_fire"] for row in await rows(store, "timetable")} == {at(60)}


class Answers:
    """A timetable that fires the given times, in the given order."""

    def __init__(self, fired: Sequence[datetime]) -> None:
        self.fired = fired

    async def fire_once(self, *_: Any) -> Sequence[datetime]:
        return self.fired

    async def due_cursors(self, *_: Any) -> tuple[list[Any], bool]:
        return [], False

    async def next_cursor(self, *_: Any) -> datetime | None:
        return min(self.fired, default=None)


@pytest.mark.parametrize(("fired", "heard"), [([1.9, 0.1], [Topic.READY]), ([1.9, 1.5], []), ([], [])])
async def test_runs_that_are_ready_soon_are_announced_wherever_they_stand_in_the_answer(
    store: Store, clock: SetClock, fired: list[float], heard: list[Topic]
) -> None:
    await own_all_shards(store)
    scheduler = Scheduler(store, clock)
    scheduler.node_id = 1
    await scheduler.lookout.run_once()
    scheduler.planner._timetable = cast("TimetableStore", Answers([at(second) for second in fired]))
    await scheduler.planner.run_once()
    assert scheduler.bus.said == heard


async def test_a_cursor_that_does_not_fit_its_job_does_not_keep_the_planner_busy(store: Store, clock: SetClock) -> None:
    first, second = await pair(store, clock)
    stray, other = new_job(every(60), next_due=at(0)), new_job(every(60), next_due=at(0))
    await insert(store, stray, other)
    await execute(store, "UPDATE hourhand.jobs SET version = 2 WHERE job_id = $1", stray.job_id)
    async with asyncio.timeout(10):
        await asyncio.gather(first.planner.run_once(), second.planner.run_once())
    assert {row["job_id"] for row in await rows(store, "live_runs")} == {other.job_id}


async def test_a_job_whose_zone_was_unknown_for_a_while_fires_at_its_own_times_only(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await pair(store, clock)
    await insert(store, new_job(every(3600), next_due=at(0)), new_job(every(60), next_due=at(0)))

    def unknown(*_: Any) -> None:
        raise ZoneFault("no such zone")

    clock.time = at(7)
    with monkeypatch.context() as patched:
        patched.setattr(planner, "plan", unknown)
        await asyncio.gather(first.planner.run_once(), second.planner.run_once())
    clock.time = at(8) + REST_MAX
    await asyncio.gather(first.planner.run_once(), second.planner.run_once())
    clock.time = at(3600)
    await asyncio.gather(first.planner.run_once(), second.planner.run_once())
    fired = {row["scheduled_for"] for row in await rows(store, "live_runs")}
    assert {(due - START).total_seconds() % 60 for due in fired} == {0}


# --- the dead ---------------------------------------------------------------------------------------------


async def test_the_runs_of_a_dead_executor_are_returned_and_its_late_outcome_is_refused(
    store: Store, clock: SetClock
) -> None:
    leader, _ = await pair(store, clock)
    dead = await store.nodes.register_node("executor", "dead", 60, {})
    await insert(store, due_job())
    [first] = await claim(store, dead)
    clock.time = at(16)
    await leader.leadership.run_once()
    assert await claim(store, 2, at(16)) == [], "its lease still holds"

    await store.nodes.renew_node(dead, OVER, {})
    await leader.leadership.run_once()
    assert Topic.READY in leader.bus.said
    [second] = await claim(store, 2, at(16))
    assert (second.run_id, second.attempt, second.losses, second.failures) == (first.run_id, 2, 1, 0)
    [kept] = await store.runs.list_attempts(first.run_id)
    assert (kept.attempt, kept.state, kept.reason, kept.executor) == (1, "lost", "executor_lost", "dead")

    late = Recorder(store.live_runs, store.logs, clock, lambda: 0.5)
    late.ended(first, at(0), at(17), Succeeded({"late": True}))
    await late.run_once()
    run = await store.runs.get_run(NAMESPACE, first.run_id)
    assert run is not None
    assert (run.state, run.attempt) == (RunState.CLAIMED, 2)
    assert await store.live_runs.finish_runs([succeeded(second)]) == {second.run_id}


async def test_a_run_that_is_lost_three_times_is_not_tried_again(store: Store, clock: SetClock) -> None:
    leader, _ = await pair(store, clock)
    await insert(store, due_job())
    for number in range(3):
        executor = await store.nodes.register_node("executor", f"dead {number}", OVER, {})
        [held] = await claim(store, executor, at(60))
        await leader.leadership.run_once()
    run = await store.runs.get_run(NAMESPACE, held.run_id)
    assert run is not None
    assert (run.state, run.reason, run.attempt) == (RunState.FAILED, "poison", 3)
    assert len(await store.runs.list_attempts(held.run_id)) == 2


async def test_a_run_that_was_being_cancelled_when_its_executor_died_ends_as_cancelled(
    store: Store, clock: SetClock
) -> None:
    leader, _ = await pair(store, clock)
    executor = await store.nodes.register_node("executor", "dead", OVER, {})
    await insert(store, due_job())
    [held] = await claim(store, executor)
    await store.runs.cancel_runs(NAMESPACE, [held.run_id], "cancelled", at(0))
    await leader.leadership.run_once()
    run = await store.runs.get_run(NAMESPACE, held.run_id)
    assert run is not None
    assert run.state is RunState.CANCELLED


async def test_runs_claimed_just_after_their_executor_was_buried_are_returned_too(
    store: Store, clock: SetClock
) -> None:
    executor = await store.nodes.register_node("executor", "dead", OVER, {})
    await insert(store, due_job())
    assert len(await claim(store, executor)) == 1
    # As if the claim had begun before the burial and been committed after the runs were returned.
    await execute(store, "UPDATE hourhand.nodes SET ended_at = now(), returned = true WHERE node_id = $1", executor)
    assert [node for node in await store.nodes.sweep_nodes() if node.node_id == executor] == []
    healer = Scheduler(store, clock).reaper
    assert await healer.run_once([]) == 1
    assert len(await claim(store, 2)) == 1


async def test_more_runs_than_one_batch_are_all_returned(store: Store, clock: SetClock) -> None:
    leader, _ = await pair(store, clock)
    executor = await store.nodes.register_node("executor", "dead", OVER, {})
    await insert(store, *(due_job() for _ in range(1200)))
    assert len(await claim(store, executor, limit=2000)) == 1200
    await leader.leadership.run_once()
    assert {row["state"] for row in await rows(store, "live_runs")} == {RunState.QUEUED}
