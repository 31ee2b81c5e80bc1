"""Jobs that are changed while a pause holds them, that recur and were asked for by an instant too, or have a budget."""

import pytest
from pause_stage import CALLER, SCOPES, PauseStage
from sample_jobs import NAMESPACE, at, every, rows

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.errors import Conflict
from hourhand.model.pauses import PauseScope
from hourhand.model.policy import Overlap, Policy
from hourhand.model.schedule import At, Every, Timing
from hourhand.model.states import JobState
from hourhand.operations.requests import JobPatch, RunNowRequest
from hourhand.store.job_accounts import Patience
from hourhand.wiring import Store

ALLOW = Policy(overlap=Overlap.ALLOW)


@pytest.fixture
async def stage(store: Store) -> PauseStage:
    return await PauseStage(store).open()


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("catch_up", "run"), [(CatchUp.ALL, {10, 20, 30, 40}), (CatchUp.LAST, {40}), (CatchUp.NONE, set())]
)
async def test_whoever_ends_a_pause_decides_about_all_of_it_also_when_the_job_was_changed_meanwhile(
    stage: PauseStage, scope: PauseScope, catch_up: CatchUp, run: set[int]
) -> None:
    job_id = await stage.job(policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(12, 22)
    stage.clock.time = at(25)
    await stage.jobs.update(CALLER, job_id, JobPatch(description="mended"))
    await stage.go(26, 31)
    stage.clock.time = at(35)
    await stage.jobs.update(CALLER, job_id, JobPatch(payload={"n": 2}))
    told = await stage.told(job_id, 35)
    assert told == {0: "run", 10: "paused", 20: "paused", 30: "paused"}
    await stage.go(41)
    await stage.resume(scope, job_id, 45, catch_up)
    await stage.go(46, 51)
    told = await stage.told(job_id, 51)
    assert told == {0: "run", 50: "run"} | {due: "run" if due in run else "paused" for due in (10, 20, 30, 40)}
    assert await stage.resting() == 0


@pytest.mark.parametrize("scope", SCOPES)
async def test_what_fell_into_a_pause_before_the_schedule_was_changed_is_not_caught_up(
    stage: PauseStage, scope: PauseScope
) -> None:
    job_id = await stage.job(policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(12, 22)
    stage.clock.time = at(25)
    await stage.jobs.update(CALLER, job_id, JobPatch(schedule={"every": "7s", "anchor": "2030-01-07T12:00:00Z"}))
    await stage.go(26, 41)
    await stage.resume(scope, job_id, 41, CatchUp.ALL)
    await stage.go(42, 43)
    told = await stage.told(job_id, 41)
    assert told == {0: "run", 10: "paused", 20: "paused", 28: "run", 35: "run"}


@pytest.mark.parametrize("verb", ["nothing", "pause", "change", "resume", "run"])
async def test_an_instant_asked_for_beside_a_recurring_schedule_runs_once_when_the_pause_is_over(
    stage: PauseStage, verb: str
) -> None:
    timing = Timing((*every(10).schedules, At(at(33))))
    job_id = await stage.job(timing, policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(PauseScope.JOB, job_id, 5, until=65)
    await stage.go(31, 45)
    stage.clock.time = at(45)
    match verb:
        case "pause":
            await stage.pause(PauseScope.JOB, job_id, 45, until=68)
        case "change":
            await stage.jobs.update(CALLER, job_id, JobPatch(description="mended"))
        case "resume":
            await stage.resume(PauseScope.JOB, job_id, 45)
        case "run":
            await stage.jobs.run_now(CALLER, job_id, RunNowRequest())
    await stage.go(46, 51)
    if verb != "resume":
        assert (await stage.jobs.get(CALLER, job_id)).state is JobState.PAUSED
    await stage.go(65, 66, 69, 71)
    told = await stage.told(job_id, 71)
    rest = "run" if verb == "resume" else "paused"
    paused = dict.fromkeys((10, 20, 30, 40), "paused")
    assert told == paused | {0: "run", 33: "run", 50: rest, 60: rest, 70: "run"}
    assert (await stage.jobs.get(CALLER, job_id)).state is JobState.SCHEDULED
    made = [row["scheduled_for"] for row in await rows(stage.store, "live_runs") if row["cause"] == 1]
    assert len(made) == len(set(made))
    assert await stage.resting() == 0


async def test_a_pause_that_is_said_again_as_it_ends_holds_on(stage: PauseStage) -> None:
    job_id = await stage.job(Timing((*every(10).schedules, At(at(33)))), policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(PauseScope.JOB, job_id, 5, until=45)
    await stage.go(31)
    await stage.pause(PauseScope.JOB, job_id, 44, until=65)
    held = await stage.store.jobs.set_status(
        NAMESPACE, job_id, JobState.SCHEDULED, at(50), None, at(46), only_when_over=True
    )
    assert held is None
    await stage.go(46, 51)
    assert await rows(stage.store, "live_runs") != []
    assert await stage.told(job_id, 51) == {0: "run"} | dict.fromkeys((10, 20, 30, 33, 40, 50), "paused")


async def test_an_instant_that_a_pause_of_its_job_holds_is_told_once(stage: PauseStage) -> None:
    for timing in (Timing((At(at(30)),)), Timing((At(at(30)), At(at(40))))):
        job_id = await stage.job(timing, first=30)
        await stage.go(5)
        await stage.pause(PauseScope.JOB, job_id, 10, until=65)
        await stage.go(31)
        assert await stage.told(job_id, 31) == {30: "paused"}
        await stage.jobs.cancel(CALLER, job_id)


async def test_the_next_times_of_a_job_with_a_budget_are_those_that_are_left_of_it(stage: PauseStage) -> None:
    job_id = await stage.job(Timing(every(10).schedules, max_runs=4), policy=ALLOW)
    for second, left in (-5, [0, 10, 20, 30]), (9, [10, 20, 30]), (11, [20, 30]), (29.5, [30]), (31, []):
        await stage.go(second)
        assert await stage.jobs.next_times(CALLER, job_id, 100) == [at(due) for due in left]


async def test_an_instant_of_a_pause_runs_also_where_the_recurring_schedule_ends_with_it(stage: PauseStage) -> None:
    beat = Every(every(10).schedules[0].interval, at(0))  # type: ignore[union-attr]
    job_id = await stage.job(Timing((beat, At(at(33))), end_at=at(55)), policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(PauseScope.JOB, job_id, 5, until=65)
    await stage.go(31, 65, 66)
    assert await stage.told(job_id, 80) == {0: "run", 33: "run"} | dict.fromkeys((10, 20, 30, 40, 50), "paused")
    assert await rows(stage.store, "timetable") == []


async def test_no_more_runs_are_made_than_a_budget_has_when_a_pause_ended_while_nobody_planned(
    stage: PauseStage,
) -> None:
    beat = Every(every(10).schedules[0].interval, at(0))  # type: ignore[union-attr]
    catchup = CatchUpPolicy(CatchUp.ALL)
    job_id = await stage.job(Timing((beat, At(at(33))), max_runs=3), policy=ALLOW, catchup=catchup)
    await stage.go(0, 5)
    await stage.pause(PauseScope.JOB, job_id, 5, until=45)
    await stage.pause(PauseScope.JOB, job_id, 80)
    told = await stage.told(job_id, 80)
    assert [due for due, status in told.items() if status == "run"] == [0, 33, 50]


@pytest.mark.parametrize("verb", ["cancel", "schedule", "pause"])
@pytest.mark.parametrize("scope", [PauseScope.NAMESPACE, PauseScope.JOB])
async def test_a_job_can_be_changed_however_long_a_pause_has_held_due_times_that_must_be_walked_over(
    stage: PauseStage, monkeypatch: pytest.MonkeyPatch, scope: PauseScope, verb: str
) -> None:
    monkeypatch.setattr("hourhand.model.counting.WALK_MAX", 10)
    monkeypatch.setattr("hourhand.model.planning.OVERDUE_PLANS_MAX", 3)
    both = Timing((*every(10).schedules, *every(15).schedules))
    job_id = await stage.job(both, policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(scope, job_id, 5)
    await stage.go(12, 1000)
    stage.clock.time = at(1001)
    match verb:
        case "cancel":
            await stage.jobs.cancel(CALLER, job_id)
        case "schedule":
            await stage.jobs.update(CALLER, job_id, JobPatch(schedule={"cron": "0 0 1 1 *"}))
        case _:
            await stage.jobs.pause(CALLER, job_id, "broken")
    due = [second for second in range(10, 1001) if second % 10 == 0 or second % 15 == 0]
    assert len(due) > 60
    first = "cancelled" if verb == "cancel" else "run"
    assert await stage.told(job_id, 1001) == {0: first} | dict.fromkeys(due, "paused")
    compact = await stage.entries(job_id, 0, 1001, compact=True)
    assert sum(entry.count for entry in compact if entry.status == "paused") == len(due)


async def test_counting_that_takes_too_long_is_refused_and_goes_on_where_it_ended(
    stage: PauseStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourhand.model.counting.WALK_MAX", 10)
    job_id = await stage.job(Timing((*every(10).schedules, *every(15).schedules)), policy=ALLOW)
    await stage.go(0, 5)
    await stage.pause(PauseScope.CLUSTER, job_id, 5)
    await stage.go(12, 400)
    stage.clock.time = at(401)
    told: list[int] = []
    check = Patience.check

    def once_only(patience: Patience) -> None:
        told.append(1)
        if len(told) == 2:
            monkeypatch.setattr(patience, "_until", 0.0)
        check(patience)

    monkeypatch.setattr(Patience, "check", once_only)
    with pytest.raises(Conflict) as refused:
        await stage.jobs.cancel(CALLER, job_id)
    assert refused.value.code == "busy"
    [row] = await rows(stage.store, "ledger_ranges")
    assert row["count"] == 10
    await stage.jobs.cancel(CALLER, job_id)
    assert set((await stage.told(job_id, 401)).values()) == {"cancelled", "paused"}


@pytest.mark.parametrize("scope", [PauseScope.NAMESPACE, PauseScope.JOB])
@pytest.mark.parametrize("compact", [True, False])
async def test_the_ledger_of_a_pause_tells_all_due_times_of_the_time_asked_for_however_long_it_has_lasted(
    stage: PauseStage, monkeypatch: pytest.MonkeyPatch, scope: PauseScope, compact: bool
) -> None:
    monkeypatch.setattr("hourhand.model.counting.WALK_MAX", 10)
    job_id = await stage.job(Timing((*every(1).schedules, *every(7).schedules)), policy=ALLOW)
    await stage.go(0, 2)
    await stage.pause(scope, job_id, 2)
    await stage.go(10, 50_000)
    entries = await stage.entries(job_id, 49_000, 50_000, compact, limit=100)
    assert {entry.status for entry in entries} == {"paused"}
    assert sum(entry.count for entry in entries) == 1001
    assert len({entry.due_at for entry in entries}) == len(entries)
