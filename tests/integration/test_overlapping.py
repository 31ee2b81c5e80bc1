"""Planner, judge and executor together: what becomes of a run that falls due while an earlier one is not finished.

Everybody looks at one clock, which the tests set.
"""

import asyncio
import contextlib
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from overlap_stage import BEAT, CALLER, FAILED, QUEUE_ALL, QUEUE_ONE, Stage
from sample_jobs import NAMESPACE, at, insert, new_job, rows

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.errors import Conflict
from hourhand.model.ids import scheduled_run_id
from hourhand.model.outcome import Succeeded
from hourhand.model.policy import OnNextDue, Overlap, Policy
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import RunState
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.requests import RunNowRequest
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.runtime.ids import IdSource
from hourhand.scheduler import judge as judge_module
from hourhand.scheduler.judge import SOON_SECONDS, Judge
from hourhand.wiring import Store


@pytest.fixture
async def stage(store: Store) -> Stage:
    return await Stage(store).open()


# --- the policies -----------------------------------------------------------------------------------------


async def test_skip_leaves_out_what_falls_due_meanwhile_and_goes_on_afterwards(stage: Stage) -> None:
    job_id = await stage.job()
    await stage.go(0, 10, 20)
    assert stage.started == [0]
    await stage.end(0)
    await stage.go(30)
    assert stage.started == [0, 30]
    fates = await stage.fates()
    assert fates[10] == fates[20] == ("skipped", "overlap")

    job = await stage.store.jobs.get_job(NAMESPACE, job_id)
    found = await stage.store.runs.list_runs(NAMESPACE, job, [RunState.SKIPPED], None, 10)
    assert [(run.scheduled_for, run.reason, run.attempt) for run in found] == [
        (at(20), "overlap", 0),
        (at(10), "overlap", 0),
    ]


async def test_what_is_caught_up_runs_one_after_the_other_where_runs_do_not_overlap(stage: Stage) -> None:
    """Nobody could judge them at their due instants, and none was in another's way then."""
    await stage.job(catchup=CatchUpPolicy(CatchUp.ALL))
    await stage.go(100)
    assert stage.started == [0]
    await stage.end(0, FAILED)
    for due in range(10, 100, 10):
        await stage.go(100 + due / 100)
        assert stage.started[-1] == due
        await stage.end(due)
    fates = await stage.fates()
    assert fates.pop(0) == ("failed", "exit_code")
    assert fates.pop(100) == ("skipped", "overlap")  # that one was on time, and met them
    assert set(fates.values()) == {("succeeded", None)}
    assert set(stage.most_running.values()) == {1}


async def test_what_fell_due_the_moment_before_it_is_caught_up_runs_after_the_others(stage: Stage) -> None:
    """It is hardly late, but those before it were made after it fell due and were not in its way then."""
    await stage.job(catchup=CatchUpPolicy(CatchUp.ALL))
    await stage.go(31)
    for place, due in enumerate((0, 10, 20, 30)):
        assert stage.started[-1] == due
        await stage.end(due)
        await stage.go(32 + place)
    fates = await stage.fates()
    assert {fates[due] for due in (0, 10, 20, 30)} == {("succeeded", None)}
    assert set(stage.most_running.values()) == {1}


async def test_a_run_between_two_tries_is_in_the_way_of_one_that_falls_due_before_the_next_try(stage: Stage) -> None:
    await stage.job(retry=RetryPolicy(1))
    await stage.go(0)
    await stage.end(0, FAILED)
    await stage.go(10, 11)
    assert (await stage.fates())[10] == ("skipped", "overlap")


async def test_what_is_caught_up_runs_one_after_the_other_where_one_waits_and_one_on_time_waits_behind_them(
    stage: Stage,
) -> None:
    await stage.job(Policy(overlap=QUEUE_ONE), catchup=CatchUpPolicy(CatchUp.ALL, runs_max=4))
    await stage.go(95)
    dues = [40, 50, 60, 70, 80, 90]  # four that are late, and two within the grace
    for place, due in enumerate(dues):
        await stage.go(100 + 10 * place)
        assert stage.started == dues[: place + 1]
        await stage.end(due)
    await stage.go(151)
    assert stage.started == [*dues, 100]
    fates = await stage.fates()
    assert {fates[due] for due in dues} == {("succeeded", None)}
    assert {fates[due] for due in (110, 120, 130, 140)} == {("skipped", "overlap")}
    assert set(stage.most_running.values()) == {1}


async def test_of_what_is_caught_up_one_waits_where_an_earlier_run_was_in_its_way_at_the_due_instant(
    stage: Stage,
) -> None:
    await stage.job(Policy(overlap=QUEUE_ONE), catchup=CatchUpPolicy(CatchUp.ALL))
    await stage.go(0)
    await stage.go(65)
    fates = await stage.fates()
    assert (fates[0], fates[10]) == (("running", None), ("waiting", None))
    assert {fates[due] for due in (20, 30, 40, 50, 60)} == {("skipped", "overlap")}
    await stage.end(0)
    await stage.go(66)
    assert stage.started == [0, 10]


async def test_one_that_fails_keeps_its_place_before_others_that_are_caught_up(stage: Stage) -> None:
    await stage.job(catchup=CatchUpPolicy(CatchUp.ALL), retry=RetryPolicy(1))
    await stage.go(50)
    await stage.end(0, FAILED)
    await stage.go(51, 52, 100)
    assert stage.started[:2] == [0, 0]
    await stage.end(0)
    await stage.go(101)
    assert stage.started[:3] == [0, 0, 10]


async def test_what_is_caught_up_is_left_out_where_an_earlier_run_was_in_its_way_at_the_due_instant(
    stage: Stage,
) -> None:
    await stage.job(catchup=CatchUpPolicy(CatchUp.ALL))
    await stage.go(0)
    await stage.go(60)
    assert stage.started == [0]
    fates = await stage.fates()
    assert fates[10] == fates[50] == ("skipped", "overlap")


async def test_a_run_that_ends_in_time_has_nothing_skipped(stage: Stage) -> None:
    await stage.job()
    await stage.go(0, 9)
    await stage.end(0)
    await stage.go(10)
    assert stage.started == [0, 10]


async def test_a_run_is_judged_at_its_due_instant_and_not_before(stage: Stage) -> None:
    """It is made two seconds ahead, and put behind the one that runs; that one ends in between."""
    await stage.job()
    await stage.go(0, 8, 9.99)
    assert (await stage.fates())[10] == ("waiting", None)
    await stage.end(0)
    await stage.go(10)
    assert stage.started == [0, 10]


async def test_queue_one_has_one_wait_and_leaves_out_the_others(stage: Stage) -> None:
    await stage.job(Policy(overlap=QUEUE_ONE))
    await stage.go(0, 10, 20, 30)
    fates = await stage.fates()
    assert fates[10] == ("waiting", None)
    assert fates[20] == fates[30] == ("skipped", "overlap")
    await stage.end(0)
    await stage.go(31)
    assert stage.started == [0, 10]
    await stage.go(40)
    assert (await stage.fates())[40] == ("waiting", None)


async def test_queue_all_has_them_wait_up_to_its_bound_and_runs_them_in_order_one_at_a_time(stage: Stage) -> None:
    job_id = await stage.job(Policy(overlap=QUEUE_ALL, overlap_max=2))
    await stage.go(0, 10, 20, 30)
    assert [state for state, _ in (await stage.fates()).values()][1:] == ["waiting", "waiting", "skipped"]
    for due in (0, 10, 20):
        await stage.end(due)
        await stage.go(31 + due / 10)
    assert stage.started == [0, 10, 20]
    assert stage.most_running[job_id] == 1


async def test_cancel_running_ends_the_earlier_one_and_starts_when_it_is_gone(stage: Stage) -> None:
    await stage.job(Policy(overlap=Overlap.CANCEL_RUNNING))
    await stage.go(0, 10)
    fates = await stage.fates()
    assert (fates[0], fates[10]) == (("cancelling", None), ("waiting", None))
    assert Topic.CANCEL in stage.bus.said
    await stage.go(11)
    assert stage.started == [0], "it is not gone yet"
    await stage.stop_cancelled()
    await stage.go(12)
    assert stage.started == [0, 10]
    assert (await stage.fates())[0] == ("cancelled", "cancelled")


async def test_cancel_running_has_only_the_newest_wait(stage: Stage) -> None:
    await stage.job(Policy(overlap=Overlap.CANCEL_RUNNING))
    await stage.go(0, 10, 20)
    fates = await stage.fates()
    assert (fates[10], fates[20]) == (("skipped", "superseded"), ("waiting", None))
    await stage.stop_cancelled()
    await stage.go(21)
    assert stage.started == [0, 20]


async def test_cancel_running_takes_the_place_of_one_that_waits_for_a_retry(stage: Stage) -> None:
    await stage.job(Policy(overlap=Overlap.CANCEL_RUNNING), retry=RetryPolicy(3, delays_seconds=(100,)))
    await stage.go(0)
    await stage.end(0, FAILED)
    await stage.go(10)
    assert (await stage.fates())[0] == ("skipped", "superseded")
    assert stage.started == [0, 10]


async def test_allow_runs_them_side_by_side(stage: Stage) -> None:
    job_id = await stage.job(Policy(overlap=Overlap.ALLOW))
    await stage.go(0, 10, 20)
    assert stage.started == [0, 10, 20]
    assert stage.most_running[job_id] == 3


async def test_allow_runs_them_side_by_side_up_to_the_limit_of_the_job(stage: Stage) -> None:
    job_id = await stage.job(Policy(overlap=Overlap.ALLOW, max_concurrency=2))
    await stage.go(0, 10, 20, 30)
    assert stage.started == [0, 10]
    await stage.end(0)
    await stage.go(31)
    assert stage.started == [0, 10, 20]
    assert stage.most_running[job_id] == 2


# --- retries ----------------------------------------------------------------------------------------------


async def test_a_run_that_waits_for_a_retry_counts_as_unfinished(stage: Stage) -> None:
    await stage.job(retry=RetryPolicy(3, delays_seconds=(12,)))
    await stage.go(0)
    await stage.end(0, FAILED)
    await stage.go(10)
    assert (await stage.fates())[10] == ("skipped", "overlap")
    await stage.go(12)
    assert stage.started == [0, 0]


async def test_a_run_that_waits_for_a_retry_gives_its_place_to_the_next_where_the_job_says_so(stage: Stage) -> None:
    await stage.job(Policy(on_next_due=OnNextDue.SUPERSEDE), retry=RetryPolicy(3, delays_seconds=(15,)))
    await stage.go(0)
    await stage.end(0, FAILED)
    await stage.go(10)
    assert stage.started == [0, 10]
    assert (await stage.fates())[0] == ("skipped", "superseded")
    attempts = await stage.store.runs.list_attempts((await rows(stage.store, "runs"))[0]["run_id"])
    assert [attempt.state for attempt in attempts] == ["failed"]
    await stage.go(20)
    assert stage.started == [0, 10], "the retry is off"
    assert (await stage.fates())[20] == ("skipped", "overlap"), "a running one is not superseded"


# --- asked for --------------------------------------------------------------------------------------------


def operations(stage: Stage) -> JobOperations:
    return JobOperations(
        jobs=stage.store.jobs,
        submissions=stage.store.submissions,
        runs=stage.store.runs,
        kinds={"number": cast("Any", stage.executor.kind)},
        clock=stage.clock,
        ids=IdSource(3),
        bus=cast("EventBus", stage.bus),
        settings=SubmitSettings(),
    )


async def test_a_run_that_somebody_asks_for_is_refused_when_its_job_would_skip_it(stage: Stage) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    with pytest.raises(Conflict) as refused:
        await operations(stage).run_now(CALLER, job_id, RunNowRequest())
    assert refused.value.code == "overlap"
    assert refused.value.details["run_id"] == str(scheduled_run_id(at(0), job_id))


async def test_a_run_that_somebody_asks_for_waits_its_turn_when_its_job_lets_it(stage: Stage) -> None:
    job_id = await stage.job(Policy(overlap=QUEUE_ALL))
    await stage.go(0, 5)
    await operations(stage).run_now(CALLER, job_id, RunNowRequest())
    await stage.go(6, 10)
    assert stage.started == [0]
    await stage.end(0)
    await stage.go(11)
    assert stage.started == [0, 5], "it came before the run of second 10"


async def test_a_run_that_somebody_asks_for_runs_beside_the_other_when_he_says_so(stage: Stage) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await operations(stage).run_now(CALLER, job_id, RunNowRequest(overlap="allow"))
    await stage.go(6)
    assert stage.started == [0, 5]
    await stage.end(0)
    await stage.go(10)
    assert (await stage.fates())[10] == ("skipped", "overlap"), "the one that was asked for is not finished"


async def test_a_run_that_somebody_asks_for_can_end_the_other(stage: Stage) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await operations(stage).run_now(CALLER, job_id, RunNowRequest(overlap="cancel_running"))
    await stage.go(6)
    await stage.stop_cancelled()
    await stage.go(7)
    assert stage.started == [0, 5]
    assert (await stage.fates())[0] == ("cancelled", "cancelled")


async def test_a_run_of_a_job_that_runs_once_waits_for_the_other_when_it_is_told_to(stage: Stage) -> None:
    job = new_job(fires=[at(0)])
    await insert(stage.store, job)
    await stage.go(0, 5)
    await operations(stage).run_now(CALLER, job.job_id, RunNowRequest(overlap="queue_one"))
    await stage.go(6)
    assert stage.started == [0]
    await stage.end(0)
    await stage.go(7)
    assert stage.started == [0, 5]


# --- the judge --------------------------------------------------------------------------------------------


async def test_the_judge_sleeps_until_the_next_turn_is_due_and_looks_often_while_there_are_any(stage: Stage) -> None:
    await stage.job(Policy(overlap=QUEUE_ONE))
    assert await stage.judge.run_once() is None, "it is woken"
    await stage.go(0, 8.5)
    stage.clock.time = at(9.75)
    assert await stage.judge.run_once() == pytest.approx(0.25)
    stage.clock.time = at(10)
    assert await stage.judge.run_once() == SOON_SECONDS


async def test_the_judge_looks_less_often_where_more_wait_than_one_look_shows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await stage.job(Policy(overlap=QUEUE_ONE))
    await stage.go(0, 8.5)
    monkeypatch.setattr(judge_module, "BATCH_MAX", 1)
    stage.clock.time = at(10)
    assert await stage.judge.run_once() == pytest.approx(3 * SOON_SECONDS)


async def test_executors_are_told_when_a_turn_has_come(stage: Stage) -> None:
    await stage.job(Policy(overlap=QUEUE_ONE))
    await stage.go(0, 10)
    stage.bus.said.clear()
    await stage.judge.run_once()
    assert stage.bus.said == []
    await stage.end(0)
    await stage.judge.run_once()
    assert stage.bus.said == [Topic.READY]


async def test_those_that_wait_long_do_not_keep_others_from_their_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "BATCH_MAX", 3)
    await stage.job(Policy(overlap=QUEUE_ALL))
    await stage.go(0, 10, 20, 30, 40, 45)
    other = await stage.job(Policy(overlap=QUEUE_ALL), first=50)
    await stage.go(50, 60)
    [run_id] = [run_id for run_id in stage.running if stage.job_of[run_id] == other]
    stage.running[run_id].set_result(Succeeded())
    await stage.recorded()
    await stage.go(61)
    assert stage.started == [0, 50, 60]


async def test_two_judges_at_once_do_no_harm(stage: Stage) -> None:
    second = Judge(stage.store.turns, lambda: stage.scheduler.node_id, stage.clock, cast("EventBus", stage.bus))
    for overlap in Overlap:
        await stage.job(Policy(overlap=overlap, overlap_max=2))
    for second_passed in (0, 10, 20, 30):
        stage.clock.time = at(second_passed)
        await stage.scheduler.planner.run_once()
        await stage.executor.turn()
        await asyncio.gather(stage.judge.run_once(), second.run_once())
    found = [*await rows(stage.store, "live_runs"), *await rows(stage.store, "runs")]
    accounted = Counter((row["job_id"], row["scheduled_for"]) for row in found if row["scheduled_for"] <= at(30))
    assert len(accounted) == 4 * len(Overlap)
    assert set(accounted.values()) == {1}


async def test_waits_that_took_too_long_are_ended_by_the_judge(stage: Stage) -> None:
    await stage.job(Policy(overlap=QUEUE_ALL, queue_timeout_seconds=25))
    await stage.go(0, 10, 20, 34.9)
    assert (await stage.fates())[10] == ("waiting", None)
    await stage.go(35)
    assert (await stage.fates())[10] == ("missed", "queue_timeout")
    await stage.end(0)
    await stage.go(36)
    assert stage.started == [0, 20]


async def test_a_place_that_nobody_was_told_of_is_found_by_the_judge(stage: Stage) -> None:
    job_id = await stage.job(Policy(overlap=Overlap.ALLOW, max_concurrency=1))
    await stage.go(0, 10)
    async with stage.store.database.connection() as db:
        await db.execute(f"DELETE FROM {stage.store.database.schema}.gate_slots")
    judge = Judge(stage.store.turns, lambda: stage.scheduler.node_id, stage.clock, cast("EventBus", stage.bus))
    stage.bus.said.clear()
    await judge.run_once()
    assert stage.bus.said == [Topic.READY]
    assert stage.job_of[scheduled_run_id(at(0), job_id)] == job_id


# --- accounted for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_every_due_time_is_accounted_for_once_and_nothing_overlaps(
    stage: Stage, seed: int
) -> None:
    """Runs last as long as chance has it, fail, are retried and superseded; the scheduler is away for a while; somebody
    runs jobs by hand."""
    chance = random.Random(seed)
    policies = {
        await stage.job(
            Policy(overlap=overlap, overlap_max=2, on_next_due=chance.choice(list(OnNextDue))),
            retry=RetryPolicy(2, delays_seconds=(7,)),
            catchup=CatchUpPolicy(chance.choice(list(CatchUp)), timedelta(minutes=1), 3),
        ): overlap
        for overlap in Overlap
        for _ in range(2)
    }
    by_hand = operations(stage)
    now = 0.0
    while now < 400:
        now += chance.choice([0.5, 1.0, 2.5, 9.0]) if chance.random() > 0.02 else 70.0
        await stage.go(now)
        for run_id in list(stage.running):
            if chance.random() < 0.3:
                stage.running[run_id].set_result(Succeeded() if chance.random() < 0.6 else FAILED)
        if chance.random() < 0.1:
            with_choice = RunNowRequest(overlap=chance.choice([None, None, "queue_all"]))
            with contextlib.suppress(Conflict):
                await by_hand.run_now(CALLER, chance.choice(list(policies)), with_choice)
        await stage.recorded()
        await stage.executor.stop_cancelled()

    accounted: dict[UUID, list[datetime]] = {job_id: [] for job_id in policies}
    for table in ("live_runs", "runs"):
        for row in await rows(stage.store, table):
            if row["cause"] != 2:
                accounted[row["job_id"]].append(row["scheduled_for"])
    missed: Counter[UUID] = Counter()
    for row in await rows(stage.store, "ledger_ranges"):
        missed[row["job_id"]] += row["count"]
        steps = range(int((row["last_due"] - row["first_due"]).total_seconds()) // BEAT + 1)
        accounted[row["job_id"]] += [row["first_due"] + timedelta(seconds=BEAT * step) for step in steps]
    cursors = {row["job_id"]: row["next_fire"] for row in await rows(stage.store, "timetable")}
    for job_id, dues in accounted.items():
        expected = [at(BEAT * step) for step in range(1000) if at(BEAT * step) < cursors[job_id]]
        assert sorted(dues) == expected, f"{policies[job_id]}"
        if policies[job_id] is not Overlap.ALLOW:
            assert stage.most_running[job_id] == 1
    reasons = {row["reason"] for row in await rows(stage.store, "runs") if row["state"] == RunState.SKIPPED}
    assert reasons == {"overlap", "superseded"}
