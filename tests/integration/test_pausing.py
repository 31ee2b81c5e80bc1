"""Pauses of a job, a label, a queue, a namespace and the cluster: what is due meanwhile makes no run, and is told."""

from datetime import datetime, timedelta

import pytest
from pause_stage import BEAT, CALLER, LABEL, SCOPES, PauseStage
from sample_jobs import NAMESPACE, at, claim, every, once, rows, succeeded

from hourhand.model.catchup import CatchUp
from hourhand.model.pauses import PauseScope
from hourhand.model.policy import Overlap, Policy
from hourhand.model.schedule import At, Timing
from hourhand.operations.requests import JobPatch, PauseRequest, ResumeRequest, RunNowRequest
from hourhand.scheduler.pause_keeper import PauseKeeper
from hourhand.wiring import Store

MS = 0.001
WIDE = [scope for scope in SCOPES if scope is not PauseScope.JOB]


@pytest.fixture
async def stage(store: Store) -> PauseStage:
    return await PauseStage(store).open()


@pytest.mark.parametrize("scope", WIDE)
async def test_a_plan_that_takes_long_goes_no_further_than_what_a_pause_holds(
    stage: PauseStage, scope: PauseScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await stage.job(first=70)
    await stage.pause(scope, job_id, 0)
    await stage.go(57.9)
    await stage.job(labels={"team": "other"}, queue="other", first=59)  # so that there is something to plan
    hold = stage.scheduler.keeper.hold

    async def slowly(*instants: datetime) -> None:
        await hold(*instants)
        stage.clock.time = at(68.1)  # from here on 70 is within the horizon

    monkeypatch.setattr(stage.scheduler.keeper, "hold", slowly)
    await stage.scheduler.planner.run_once()
    assert job_id not in {row["job_id"] for row in await rows(stage.store, "live_runs")}


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_falls_due_in_a_pause_makes_no_run_and_the_ledger_says_who_paused_it(
    stage: PauseStage, scope: PauseScope
) -> None:
    job_id = await stage.job()
    other = await stage.job(labels={"team": "other"}, queue="other")
    await stage.go(*range(25))
    await stage.pause(scope, job_id, 25)
    await stage.go(*range(26, 66))
    meanwhile = await stage.told(job_id, 65)
    await stage.resume(scope, job_id, 65)
    await stage.go(*range(66, 100))

    expected = {due: "paused" if 25 < due <= 65 else "run" for due in range(0, 100, BEAT)}
    assert meanwhile == {due: became for due, became in expected.items() if due <= 65}
    assert await stage.told(job_id, 99) == expected
    paused = [entry for entry in await stage.entries(job_id, 0, 99, compact=True) if entry.status == "paused"]
    assert [(entry.due_at, entry.last_due, entry.count) for entry in paused] == [(at(30), at(60), 4)]
    assert paused[0].why is not None
    assert "paused by ada since 2030-01-07T12:00:25Z: moving" in paused[0].why
    all_are_held = scope in (PauseScope.NAMESPACE, PauseScope.CLUSTER)
    assert set((await stage.told(other, 99)).values()) == ({"run", "paused"} if all_are_held else {"run"})
    assert len(await rows(stage.store, "ledger_ranges")) == 2 if all_are_held else 1
    assert await stage.resting() == 0


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("off", "became"), [(-MS, "paused"), (0, "run"), (MS, "run")])
async def test_a_pause_a_millisecond_before_a_due_time_holds_it_and_one_at_its_instant_does_not(
    stage: PauseStage, scope: PauseScope, off: float, became: str
) -> None:
    job_id = await stage.job()
    await stage.go(*range(30))  # the run of second 30 is made already
    await stage.pause(scope, job_id, 30 + off)
    await stage.go(31, 35, 41)
    assert await stage.told(job_id, 41) == {0: "run", 10: "run", 20: "run", 30: became, 40: "paused"}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("off", "became"), [(-MS, "run"), (0, "paused"), (MS, "paused")])
async def test_a_due_time_a_millisecond_after_the_pause_was_ended_runs_and_one_at_that_instant_does_not(
    stage: PauseStage, scope: PauseScope, off: float, became: str
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(8, 18, 28)
    await stage.resume(scope, job_id, 30 + off)
    await stage.go(30 + off, 30 + off + MS, 31, 40, 41)
    assert await stage.told(job_id, 41) == {0: "run", 10: "paused", 20: "paused", 30: became, 40: "run"}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("off", "became"), [(-MS, "run"), (0, "run"), (MS, "paused")])
async def test_a_pause_until_a_time_is_over_at_that_very_instant_without_anybody_ending_it(
    stage: PauseStage, scope: PauseScope, off: float, became: str
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5, until=30 + off)
    await stage.go(8, 18, 28, 29, 30 + off, 30 + off + MS, 31, 40, 41)
    assert await stage.told(job_id, 41) == {0: "run", 10: "paused", 20: "paused", 30: became, 40: "run"}
    assert await stage.resting() == 0


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("catch_up", "run"), [(CatchUp.NONE, []), (CatchUp.LAST, [60]), (CatchUp.ALL, [30, 40, 50, 60])]
)
async def test_whoever_ends_a_pause_says_what_of_it_is_run(
    stage: PauseStage, scope: PauseScope, catch_up: CatchUp, run: list[int]
) -> None:
    job_id = await stage.job()
    await stage.go(*range(25))
    await stage.pause(scope, job_id, 25)
    await stage.go(*range(26, 66, 5))
    await stage.resume(scope, job_id, 65, catch_up)
    await stage.go(66, 70, 71)
    expected = {due: "run" if not 25 < due <= 65 or due in run else "paused" for due in range(0, 72, BEAT)}
    assert await stage.told(job_id, 71) == expected


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_is_run_of_a_pause_waits_from_when_the_pause_was_ended(stage: PauseStage, scope: PauseScope) -> None:
    """Else `queue_timeout` would end it at once, and it would be judged as if it had been there at its due time."""
    job_id = await stage.job(policy=Policy(queue_timeout_seconds=15))
    await stage.go(*range(25))
    await stage.pause(scope, job_id, 25)
    await stage.resume(scope, job_id, 65, CatchUp.ALL)
    await stage.go(66)
    made = await rows(stage.store, "live_runs", "run_id")
    late = [row for row in made if at(25) < row["scheduled_for"] <= at(60)]
    assert [row["scheduled_for"] for row in late] == [at(30), at(40), at(50), at(60)]
    assert {row["ready_at"] >= at(65) for row in late} == {True}
    assert {row["expires_at"] - row["ready_at"] for row in late} == {timedelta(seconds=15)}


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_run_that_was_claimed_ahead_is_named_and_is_not_counted_as_paused(
    stage: PauseStage, scope: PauseScope
) -> None:
    job_id = await stage.job(policy=Policy(overlap=Overlap.ALLOW))
    await stage.go(*range(30))
    ahead = [run_id for run_id in await stage.claim(30) if run_id in await _ids_of(stage, 30)]
    too_late = await stage.pause(scope, job_id, 29.96)
    assert len(ahead) == 1
    assert set(ahead) <= set(too_late)
    await stage.go(41)
    await stage.resume(scope, job_id, 45)
    await stage.go(46)
    told = await stage.told(job_id, 46)
    assert (told[30], told[40]) == ("run", "paused")


async def _ids_of(stage: PauseStage, second: float) -> set[object]:
    return {row["run_id"] for row in await rows(stage.store, "live_runs") if row["scheduled_for"] == at(second)}


@pytest.mark.parametrize("scope", SCOPES)
async def test_pausing_twice_keeps_the_beginning_and_resuming_twice_changes_nothing(
    stage: PauseStage, scope: PauseScope
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(12)
    await stage.pause(scope, job_id, 15)
    await stage.go(22)
    [pause] = (await stage.jobs.get(CALLER, job_id)).pauses
    assert (pause.paused_at, pause.reason) == (at(5), "moving")
    await stage.resume(scope, job_id, 25)
    await stage.resume(scope, job_id, 35)
    await stage.go(36, 41)
    assert await stage.told(job_id, 41) == {0: "run", 10: "paused", 20: "paused", 30: "run", 40: "run"}


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_manual_run_is_still_allowed(stage: PauseStage, scope: PauseScope) -> None:
    job_id = await stage.job()
    await stage.pause(scope, job_id, -5)
    stage.clock.time = at(3)
    run_id = await stage.jobs.run_now(CALLER, job_id, RunNowRequest())
    claimed = await stage.claim(4)
    assert claimed == ([] if scope is PauseScope.QUEUE else [run_id]), "of a paused queue nothing is started"


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope is not PauseScope.QUEUE])
@pytest.mark.parametrize("ends_by", ["until", "resume"])
async def test_what_was_asked_for_by_its_instant_runs_after_the_pause_however_late(
    stage: PauseStage, scope: PauseScope, ends_by: str
) -> None:
    single = await stage.job(once(at(30)), first=30)
    listed = await stage.job(Timing((At(at(30)), At(at(40)), At(at(90)))), first=30)
    await stage.go(5, 29)  # the runs of second 30 are made already
    for job_id in (single, listed) if scope is PauseScope.JOB else (single,):
        await stage.pause(scope, job_id, 29.5, until=65 if ends_by == "until" else None)
    await stage.go(31, 45, 60)
    assert await rows(stage.store, "live_runs") == []
    if ends_by == "resume":
        for job_id in (single, listed) if scope is PauseScope.JOB else (single,):
            await stage.resume(scope, job_id, 65)
    await stage.go(65, 66, 90)
    made = [(row["job_id"], row["scheduled_for"]) for row in await rows(stage.store, "live_runs", "scheduled_for, 2")]
    assert sorted(made) == sorted([(single, at(30)), (listed, at(30)), (listed, at(40)), (listed, at(90))])
    assert await stage.told(listed, 90) == {30: "run", 40: "run", 90: "run"}
    assert await stage.resting() == 0


async def test_pauses_within_pauses_hold_a_job_until_the_last_of_them_ends(stage: PauseStage) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(PauseScope.LABEL, job_id, 5)
    await stage.go(12)
    await stage.pause(PauseScope.CLUSTER, job_id, 15)
    await stage.go(22)
    await stage.resume(PauseScope.LABEL, job_id, 25, CatchUp.ALL)
    await stage.go(26, 32)
    assert {pause.scope for pause in (await stage.jobs.get(CALLER, job_id)).pauses} == {PauseScope.CLUSTER}
    await stage.resume(PauseScope.CLUSTER, job_id, 45)
    await stage.go(46, 51)
    told = await stage.told(job_id, 51)
    assert told == {0: "run", 10: "run", 20: "paused", 30: "paused", 40: "paused", 50: "run"}


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_job_that_is_changed_while_it_is_paused_stays_so_and_every_due_time_is_told_by_its_version(
    stage: PauseStage, scope: PauseScope
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(12, 22)
    stage.clock.time = at(25)
    schedule = {"every": "4s"}
    await stage.jobs.update(CALLER, job_id, JobPatch(schedule=schedule, kind="number"))
    await stage.go(26, 31, 38)
    await stage.resume(scope, job_id, 40)
    await stage.go(41, 46)
    told = await stage.told(job_id, 46)
    old = {0: "run", 10: "paused", 20: "paused"}
    assert told == {**old, 29: "paused", 33: "paused", 37: "paused", 41: "run", 45: "run"}


@pytest.mark.parametrize("off", [-MS, 0, MS])
async def test_a_change_a_millisecond_before_a_due_time_replaces_it_and_one_at_its_instant_does_not(
    stage: PauseStage, off: float
) -> None:
    job_id = await stage.job()
    await stage.go(*range(30))
    stage.clock.time = at(30 + off)
    changed = await stage.jobs.update(CALLER, job_id, JobPatch(schedule={"every": "100s"}))
    await stage.go(31, 45)
    assert changed.too_late == []
    expected = {0: "run", 10: "run", 20: "run"} | ({} if off < 0 else {30: "run"})
    assert await stage.told(job_id, 45) == expected


@pytest.mark.parametrize("off", [-MS, 0, MS])
async def test_a_job_cancelled_a_millisecond_before_a_due_time_leaves_no_trace_of_it_and_at_its_instant_a_cancelled_run(
    stage: PauseStage, off: float
) -> None:
    job_id = await stage.job()
    await stage.go(*range(30))
    stage.clock.time = at(30 + off)
    await stage.jobs.cancel(CALLER, job_id)
    await stage.go(31, 45)
    told = await stage.told(job_id, 45)
    assert told == {0: "cancelled", 10: "cancelled", 20: "cancelled"} | ({} if off < 0 else {30: "cancelled"})


async def test_a_change_names_the_run_it_came_too_late_for(stage: PauseStage) -> None:
    job_id = await stage.job(policy=Policy(overlap=Overlap.ALLOW))
    await stage.go(*range(30))
    held = await stage.claim(30)
    stage.clock.time = at(29.96)
    changed = await stage.jobs.update(CALLER, job_id, JobPatch(schedule={"every": "7s"}))
    assert set(held) == set(changed.too_late)
    await stage.go(31, 38)
    told = await stage.told(job_id, 38)
    assert {due: became for due, became in told.items() if due >= 30} == {30: "run", 36.96: "run"}


@pytest.mark.parametrize("scope", WIDE)
async def test_a_scheduler_that_has_not_heard_of_a_pause_cannot_plan_into_it(
    stage: PauseStage, scope: PauseScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5, 9)

    async def deaf(keeper: PauseKeeper) -> bool:
        return False

    monkeypatch.setattr(PauseKeeper, "in_force", deaf)
    await stage.pause(scope, job_id, 9.5)
    for second in (9.6, 10, 11, 12):  # for as long as it may take to hear of it
        stage.clock.time = at(second)
        await stage.scheduler.planner.run_once()
    monkeypatch.undo()
    await stage.go(13, 21)
    assert await stage.told(job_id, 21) == {0: "run", 10: "paused", 20: "paused"}


async def test_another_scheduler_takes_over_what_a_pause_holds(stage: PauseStage, store: Store) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(PauseScope.NAMESPACE, job_id, 5, until=25)
    await stage.go(12)
    await store.nodes.drop_lease("leader", stage.scheduler.node_id)
    second = await PauseStage(store).open()
    await second.go(22, 25, 26, 31)
    assert await second.told(job_id, 31) == {0: "run", 10: "paused", 20: "paused", 30: "run"}


async def test_a_pause_that_passed_while_no_scheduler_ran_is_told_as_one_and_the_rest_as_missed(
    stage: PauseStage,
) -> None:
    hour = 3600
    job_id = await stage.job(every(hour), first=0)
    await stage.go(0, 5)
    await stage.pause(PauseScope.LABEL, job_id, 2.5 * hour)
    await stage.resume(PauseScope.LABEL, job_id, 5.5 * hour)
    await stage.go(10 * hour + 60)
    told = await stage.told(job_id, 10 * hour)
    statuses = [told[hour * step] for step in range(11)]
    assert statuses == ["run", *["missed"] * 2, *["paused"] * 3, *["missed"] * 4, "run"]


async def test_pauses_are_forgotten_by_planners_when_all_cursors_are_behind_them(stage: PauseStage) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(PauseScope.LABEL, job_id, 5)
    await stage.go(12)
    assert await stage.scheduler.keeper.in_force()
    await stage.resume(PauseScope.LABEL, job_id, 15)
    await stage.go(16, 17, 18)
    assert [row["settled"] for row in await rows(stage.store, "pauses")] == [True]
    assert not await stage.scheduler.keeper.in_force()
    page = await stage.pauses.list(CALLER, also_over=True, before=None, limit=10)
    assert [(pause.scope, pause.name, pause.ended_by) for pause in page.pauses] == [("label", "team=billing", "ada")]


async def test_a_label_that_a_job_gets_later_holds_it_too(stage: PauseStage) -> None:
    job_id = await stage.job(labels={})
    await stage.go(0, 5)
    await stage.pause(PauseScope.LABEL, job_id, 5)
    await stage.go(12)
    stage.clock.time = at(15)
    await stage.jobs.update(CALLER, job_id, JobPatch(labels={"team": "billing", "more": "yes"}))
    await stage.go(16, 22)
    await stage.pauses.resume(CALLER, PauseScope.LABEL, LABEL, ResumeRequest())
    await stage.go(23, 31)
    assert await stage.told(job_id, 31) == {0: "run", 10: "run", 20: "paused", 30: "run"}


async def test_a_job_shows_everything_that_holds_it(stage: PauseStage) -> None:
    job_id = await stage.job()
    await stage.pauses.pause(CALLER, PauseScope.CLUSTER, "", PauseRequest(reason="upgrade"))
    await stage.jobs.pause(CALLER, job_id, "broken", at(0) + timedelta(days=3000))
    job = await stage.jobs.get(CALLER, job_id)
    told = [(pause.scope, pause.paused_by, pause.reason) for pause in job.pauses]
    assert told == [(PauseScope.JOB, "ada", "broken"), (PauseScope.CLUSTER, "ada", "upgrade")]


@pytest.mark.parametrize("verb", ["pause", "change", "cancel"])
async def test_a_job_that_runs_once_and_is_changed_while_its_time_passes_in_a_pause_is_not_run_in_it(
    stage: PauseStage, verb: str
) -> None:
    job_id = await stage.job(once(at(30)), first=30)
    await stage.go(5)
    await stage.pause(PauseScope.JOB, job_id, 10, until=65)
    await stage.go(31)
    stage.clock.time = at(45)
    match verb:
        case "pause":
            await stage.pause(PauseScope.JOB, job_id, 45, until=65)
        case "change":
            await stage.jobs.update(CALLER, job_id, JobPatch(priority=7))
        case _:
            await stage.jobs.cancel(CALLER, job_id)
    await stage.go(46, 60)
    assert await rows(stage.store, "live_runs") == []
    await stage.go(65, 66)
    told = await stage.told(job_id, 66)
    assert told == ({30: "missed"} if verb == "cancel" else {30: "run"})
    assert await stage.resting() == 0


async def test_a_run_of_a_job_that_a_pause_holds_says_so_when_it_is_explained(stage: PauseStage) -> None:
    job_id = await stage.job(queue="default")
    await stage.pause(PauseScope.CLUSTER, job_id, -5)
    run_id = await stage.jobs.run_now(CALLER, job_id, RunNowRequest())
    snapshot = await stage.store.explain.snapshot_of_run(NAMESPACE, run_id)
    assert snapshot is not None
    assert list(snapshot.held_by) == ["cluster paused by ada since 2030-01-07T11:59:55Z: moving"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_job_that_is_cancelled_in_a_pause_was_paused_until_then(stage: PauseStage, scope: PauseScope) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(12, 22)
    stage.clock.time = at(25)
    await stage.jobs.cancel(CALLER, job_id)
    await stage.go(26, 41)
    assert await stage.told(job_id, 41) == {0: "cancelled", 10: "paused", 20: "paused"}
    assert await rows(stage.store, "timetable") == []
    assert await stage.resting() == 0


@pytest.mark.parametrize("verb", ["nothing", "pause", "change", "resume", "run"])
async def test_instants_that_were_asked_for_run_once_after_the_pause_whatever_is_said_meanwhile_and_afterwards(
    stage: PauseStage, verb: str
) -> None:
    listed = await stage.job(
        Timing((At(at(30)), At(at(40)), At(at(90)))), first=30, policy=Policy(overlap=Overlap.ALLOW)
    )
    single = await stage.job(once(at(35)), first=35)
    await stage.go(5)
    for job_id in (listed, single):
        await stage.pause(PauseScope.JOB, job_id, 10, until=65)
    await stage.go(31, 45)
    for job_id in (listed, single):
        stage.clock.time = at(50)
        match verb:
            case "pause":
                await stage.pause(PauseScope.JOB, job_id, 50, until=70)
            case "change":
                await stage.jobs.update(CALLER, job_id, JobPatch(priority=7))
            case "resume":
                await stage.resume(PauseScope.JOB, job_id, 50)
            case "run":
                await stage.jobs.run_now(CALLER, job_id, RunNowRequest())
    await stage.go(51, 60, 65, 66, 70, 71, 80)
    assert await stage.told(listed, 80) == {30: "run", 40: "run"}
    assert await stage.told(single, 80) == {35: "run"}
    for held in await claim(stage.store, 7, at(80)):
        await stage.store.live_runs.finish_runs([succeeded(held, at(81))])
    await stage.pause(PauseScope.JOB, listed, 82)
    await stage.resume(PauseScope.JOB, listed, 84)
    await stage.go(85, 90, 91)
    assert await stage.told(listed, 91) == {30: "run", 40: "run", 90: "run"}
    waiting = [row["scheduled_for"] for row in await rows(stage.store, "live_runs")]
    assert waiting == [at(90)], "nothing runs twice"
