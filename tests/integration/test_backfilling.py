"""Backfills on a real database: every due time of the range once, a few at a time, whoever leads and whoever dies."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from backfill_site import ADA, ALLOW, HOUR, LONG_AGO, Site, ended, hours, succeed, wanted, work_off
from crew import Executor, Scheduler, SetClock, the_run
from sample_jobs import NAMESPACE, START, at, every, execute, insert, new_job, rows

from hourhand.model.backfill import BackfillState
from hourhand.model.calendar_form import read_calendar
from hourhand.model.errors import Conflict
from hourhand.model.ids import scheduled_run_id
from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.policy import Policy
from hourhand.model.schedule import CronSchedule, Timing, timing_to_json
from hourhand.model.states import JobState, Reason, RunState
from hourhand.operations.definition import define_job
from hourhand.operations.history import HistoryOperations
from hourhand.operations.requests import JobRequest
from hourhand.ports.event_bus import Topic
from hourhand.ports.job_kind import JobKind, Task
from hourhand.ports.stores import NewJob
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def site(store: Store, clock: SetClock) -> Site:
    return await Site(store, clock).lead()


async def test_a_backfill_runs_every_due_time_of_its_range_once(site: Site, store: Store, clock: SetClock) -> None:
    seen: list[datetime] = []

    async def note(task: Task) -> Outcome:
        seen.append(task.scheduled_for)
        return Succeeded()

    job_id = await site.job()
    executor = await Executor(store, note, clock=clock).join()
    started = await site.start(job_id, parallelism=4)
    assert site.bus.said == [Topic.BACKFILLS]

    done = await work_off(site, executor, started.backfill.backfill_id)

    assert sorted(seen) == hours(range(-10, 0))
    assert (done.state, done.total, done.succeeded, done.remaining, done.live) == (
        BackfillState.COMPLETED,
        10,
        10,
        0,
        0,
    )
    assert done.share_done == 1
    assert done.ended_at == clock.now()


async def test_never_more_are_unfinished_than_parallelism_says(site: Site, store: Store, clock: SetClock) -> None:
    job_id = await site.job()
    executor = await Executor(store, succeed, clock=clock).join()
    started = await site.start(job_id, parallelism=3)
    await site.backfiller.run_once()
    await site.backfiller.run_once()
    assert await site.released() == hours([-10, -9, -8])

    most = 0
    async with asyncio.timeout(60):
        while not (await site.get(started.backfill.backfill_id)).state.is_final:
            await site.backfiller.run_once()
            most = max(most, len(await rows(store, "live_runs")))
            await executor.turn()
    assert most == 3


async def test_a_rate_is_not_exceeded_in_any_stretch_of_its_length(site: Site, store: Store, clock: SetClock) -> None:
    job_id = await site.job()
    executor = await Executor(store, succeed, clock=clock).join()
    await site.start(job_id, parallelism=10, rate="3/m")
    times: list[datetime] = []
    for second in range(0, 200, 10):
        clock.time = at(second)
        before = len(await rows(store, "backfill_runs"))
        await site.backfiller.run_once()
        times += [clock.now()] * (len(await rows(store, "backfill_runs")) - before)
        await executor.turn()

    assert len(times) == 10
    for begin in times:
        assert len([time for time in times if begin <= time < begin + timedelta(minutes=1)]) <= 3


async def test_a_scheduler_killed_half_way_is_followed_by_one_that_doubles_nothing(
    site: Site, store: Store, clock: SetClock
) -> None:
    seen: Counter[datetime] = Counter()

    async def note(task: Task) -> Outcome:
        seen[task.scheduled_for] += 1
        return Succeeded()

    job_id = await site.job()
    executor = await Executor(store, note, clock=clock).join()
    started = await site.start(job_id, first=-40, parallelism=5)
    for _ in range(3):
        await site.backfiller.run_once()
        await executor.turn()
    await execute(store, "UPDATE hourhand.leases SET lease_until = now() - interval '1 second'")  # it was killed
    successor = await Scheduler(store, clock).join("b")
    await successor.leadership.run_once()
    assert successor.leadership.epoch == 2
    stale, site.backfiller = site.backfiller, site.backfiller_of(successor)

    async with asyncio.timeout(60):
        while not (await site.get(started.backfill.backfill_id)).state.is_final:
            await asyncio.gather(stale.run_once(), site.backfiller.run_once())
            await executor.turn()

    assert seen == Counter(hours(range(-40, 0)))
    assert (await site.get(started.backfill.backfill_id)).succeeded == 40


async def test_a_scheduler_that_lost_the_lead_releases_nothing(site: Site, store: Store) -> None:
    await site.start(await site.job(), parallelism=5)
    await execute(store, "UPDATE hourhand.leases SET epoch = epoch + 1")

    await site.backfiller.run_once()

    assert await site.released() == []
    assert await rows(store, "backfill_runs") == []


async def test_a_statement_that_is_repeated_changes_nothing(site: Site, store: Store, clock: SetClock) -> None:
    """The answer to the first was lost on its way."""
    await site.start(await site.job(), parallelism=5)
    [opened] = await store.backfills.open_backfills(clock.now(), 10)
    release = await site.backfiller._next(opened, 5, clock.now())
    node_id, epoch = site.scheduler.node_id, site.scheduler.leadership.epoch
    assert epoch is not None

    first = await store.backfills.release_runs(node_id, epoch, release, clock.now())
    second = await store.backfills.release_runs(node_id, epoch, release, clock.now())

    assert first is not None
    assert len(first) == 5
    assert second is None
    assert await site.released() == hours(range(-10, -5))


async def test_a_failed_run_whose_retry_succeeded_is_not_run_again(site: Site, store: Store, clock: SetClock) -> None:
    job_id = await site.job()
    await ended(site, job_id, START - 2 * HOUR, RunState.FAILED)
    failed = scheduled_run_id(START - 2 * HOUR, job_id)
    again = IdSource(3).new_id(clock.now())
    made = await store.runs.retry_runs(NAMESPACE, {failed: again}, [failed], "ada", None, False, clock.now())
    assert made == [again]
    executor = await Executor(store, succeed, clock=clock).join()
    await executor.drain()

    plan = await site.asking.plan(ADA, job_id, wanted(-2, 0, existing="retry_failed"))

    assert (plan.total, plan.left_out) == (2, 1)


async def test_a_second_backfill_leaves_out_what_the_first_has_run(site: Site, store: Store, clock: SetClock) -> None:
    job_id = await site.job()
    executor = await Executor(store, succeed, clock=clock).join()
    first = await site.start(job_id, -6, -2, parallelism=9)
    await work_off(site, executor, first.backfill.backfill_id)

    second = await site.start(job_id, -8, 0, parallelism=9)
    done = await work_off(site, executor, second.backfill.backfill_id)

    assert (done.total, done.left_out, done.succeeded) == (8, 4, 4)


async def test_a_paused_backfill_releases_nothing_until_it_is_resumed(
    site: Site, store: Store, clock: SetClock
) -> None:
    executor = await Executor(store, succeed, clock=clock).join()
    started = await site.start(await site.job(), parallelism=2)
    await site.backfiller.run_once()
    identity = started.backfill.backfill_id
    paused = await site.asking.pause(ADA, identity, "too much at once")
    assert (paused.backfill.state, paused.backfill.state_reason) == (BackfillState.PAUSED, "too much at once")
    again = await site.asking.pause(ADA, identity, None)
    assert again.backfill.state_reason == "too much at once"
    assert (await site.asking.pause(ADA, identity, "still too much")).backfill.state_reason == "still too much"
    await executor.drain()
    for _ in range(3):
        await site.backfiller.run_once()
    assert await site.released() == []
    assert (await site.get(identity)).succeeded == 2  # what was released goes on, and is counted

    await site.asking.resume(ADA, identity)
    done = await work_off(site, executor, identity)
    assert (done.state, done.succeeded) == (BackfillState.COMPLETED, 10)


async def test_a_cancelled_backfill_ends_its_unfinished_runs_and_releases_no_more(site: Site, store: Store) -> None:
    started = await site.start(await site.job(), parallelism=4)
    await site.backfiller.run_once()
    identity = started.backfill.backfill_id

    cancelled = await site.asking.cancel(ADA, identity, "not needed")
    await site.asking.cancel(ADA, identity, None)
    for _ in range(2):
        await site.backfiller.run_once()

    found = await site.get(identity)
    assert cancelled.backfill.state is BackfillState.CANCELLED
    assert (found.state, found.state_reason) == (BackfillState.CANCELLED, "not needed")
    assert (found.cancelled, found.live, found.next_due) == (4, 0, START - 6 * HOUR)
    assert await site.released() == []
    assert [row["open"] for row in await rows(store, "backfills")] == [False]
    for verb in (site.asking.pause(ADA, identity, None), site.asking.resume(ADA, identity)):
        with pytest.raises(Conflict, match="is cancelled and cannot be"):
            await verb


async def test_a_backfill_ends_with_its_job(site: Site, store: Store, clock: SetClock) -> None:
    job_id = await site.job()
    started = await site.start(job_id, parallelism=4)
    await site.backfiller.run_once()
    await store.jobs.set_status(NAMESPACE, job_id, JobState.CANCELLED, None, None, clock.now())
    for _ in range(3):
        await site.backfiller.run_once()

    found = await site.get(started.backfill.backfill_id)
    assert (found.state, found.state_reason, found.cancelled) == (BackfillState.CANCELLED, "job_cancelled", 4)
    with pytest.raises(Conflict, match="cancelled"):
        await site.start(job_id)


async def test_a_paused_job_can_be_backfilled(site: Site, store: Store, clock: SetClock) -> None:
    job_id = await site.job()
    await store.jobs.set_status(NAMESPACE, job_id, JobState.PAUSED, None, "rest", clock.now())
    await site.start(job_id, parallelism=2)
    await site.backfiller.run_once()
    assert len(await site.released()) == 2


async def test_a_change_of_the_job_changes_what_is_run_and_not_which_times(
    site: Site, store: Store, clock: SetClock
) -> None:
    payloads: dict[datetime, Any] = {}

    async def note(task: Task) -> Outcome:
        payloads[task.scheduled_for] = task.payload["n"]
        return Succeeded()

    job_id = await site.job()
    executor = await Executor(store, note, clock=clock).join()
    started = await site.start(job_id, -4, 0, parallelism=2)
    await site.backfiller.run_once()
    await executor.drain()
    other = new_job(every(60, LONG_AGO), policy=ALLOW, payload={"n": 2}).definition
    assert await store.jobs.change_job(NAMESPACE, job_id, other, 1, at(86_400), clock.now(), "bob") == []

    done = await work_off(site, executor, started.backfill.backfill_id)

    assert payloads == dict(zip(hours(range(-4, 0)), [1, 1, 2, 2], strict=True))
    assert done.succeeded == 4


async def test_runs_of_a_job_that_does_not_overlap_go_one_after_the_other_and_none_is_skipped(
    site: Site, store: Store, clock: SetClock
) -> None:
    executor = await Executor(store, succeed, clock=clock).join()
    started = await site.start(await site.job(policy=Policy()), -6, 0)
    done = await work_off(site, executor, started.backfill.backfill_id)
    assert executor.kind.most_active == 1
    assert (done.succeeded, done.skipped) == (6, 0)


async def test_a_run_of_a_backfill_says_so_and_is_late_since_it_was_released(site: Site, store: Store) -> None:
    started = await site.start(await site.job(), note="for the audit")
    await site.backfiller.run_once()
    [row] = await rows(store, "live_runs")
    run = await the_run(store, row["run_id"])
    assert run.backfill_id == started.backfill.backfill_id
    assert (run.requested_by, run.note, run.scheduled_for) == ("ada", "for the audit", START - 10 * HOUR)


async def test_runs_that_fail_are_counted_as_failed_and_the_others_go_on(
    site: Site, store: Store, clock: SetClock
) -> None:
    async def fail_once(task: Task) -> Outcome:
        if task.scheduled_for == START - 2 * HOUR:
            return Failed(Reason.EXIT_CODE, "exit 1", retryable=False)
        return Succeeded()

    executor = await Executor(store, fail_once, clock=clock).join()
    started = await site.start(await site.job(), -4, 0, parallelism=2)
    done = await work_off(site, executor, started.backfill.backfill_id)
    assert (done.succeeded, done.failed, done.state) == (3, 1, BackfillState.COMPLETED)


async def test_what_backfills_released_is_forgotten_with_the_runs(site: Site, store: Store, clock: SetClock) -> None:
    executor = await Executor(store, succeed, clock=clock).join()
    started = await site.start(await site.job(), parallelism=10)
    await work_off(site, executor, started.backfill.backfill_id)
    assert len(await rows(store, "backfill_runs")) == 10

    assert await store.backfills.forget_runs(clock.now() - timedelta(days=1), 100) == 0
    assert await store.backfills.forget_runs(clock.now() + timedelta(days=1), 6) == 6
    assert await store.backfills.forget_runs(clock.now() + timedelta(days=1), 6) == 4
    assert (await site.get(started.backfill.backfill_id)).succeeded == 10


async def test_an_idle_backfiller_sleeps_and_a_follower_does_nothing(site: Site, store: Store, clock: SetClock) -> None:
    assert await site.backfiller.run_once() is None
    follower = await Scheduler(store, clock).join("b")
    await follower.leadership.run_once()
    await site.start(await site.job())
    assert await site.backfiller_of(follower).run_once() is None
    assert await site.released() == []


async def test_the_time_that_a_run_stands_for_is_put_into_its_payload(
    site: Site, store: Store, clock: SetClock
) -> None:
    """Of runs of a backfill, and of those that fall due by themselves."""
    seen: list[Any] = []

    async def note(task: Task) -> Outcome:
        seen.append(task.payload)
        return Succeeded()

    request = JobRequest(
        name="daily",
        kind="number",
        payload={"time": "{{scheduled_time}}", "argv": ["load", "--day={{scheduled_date}}"], "n": 1},
        schedule={"cron": "30 0 * * *"},
        zone="Europe/Berlin",
        overlap="allow",
    )
    job_id = IdSource().new_id(START)
    executor = await Executor(store, note, clock=clock).join()
    kinds = cast("Mapping[str, JobKind]", {"number": executor.kind})
    definition = define_job(request, job_id, START - timedelta(days=9), "ada", kinds)
    due = datetime(2030, 1, 6, 23, 30, tzinfo=UTC)
    await store.jobs.insert_jobs([NewJob(job_id, NAMESPACE, definition, START, "ada", [due], None)])
    await executor.drain()
    started = await site.start(job_id, -60, -20)
    await work_off(site, executor, started.backfill.backfill_id)

    def rendered(time: str, day: str) -> dict[str, Any]:
        return {"time": time, "argv": ["load", f"--day={day}"], "n": 1}

    assert seen == [rendered("2030-01-06T23:30:00Z", "2030-01-07"), rendered("2030-01-05T23:30:00Z", "2030-01-06")]


async def test_a_backfill_has_the_due_times_that_calendars_left_when_it_was_started(
    site: Site, store: Store, clock: SetClock
) -> None:
    lunch = read_calendar(blackouts=[{"from": (START - 5 * HOUR).isoformat(), "to": (START - 2 * HOUR).isoformat()}])
    await store.calendars.put(NAMESPACE, "lunch", lunch, clock.now(), "ada", None)
    timing = Timing(every(3600, LONG_AGO).schedules, calendars=("lunch",), max_runs=3)
    job = new_job(timing, next_due=at(86_400), created_at=START - timedelta(days=90), policy=ALLOW)
    [job_id] = await insert(store, job)
    planned = await site.asking.plan(ADA, job_id, wanted(-8, 0))
    assert (planned.total, planned.first_due, planned.last_due) == (5, START - 8 * HOUR, START - HOUR)
    assert "calendars" in " ".join(planned.notes)

    started = await site.start(job_id, -8, 0, parallelism=2)
    await site.backfiller.run_once()
    await store.calendars.put(NAMESPACE, "lunch", read_calendar(dates=["2001-01-01"]), clock.now(), "ada", None)
    executor = await Executor(store, succeed, clock=clock).join()
    done = await work_off(site, executor, started.backfill.backfill_id)

    assert (done.succeeded, done.total) == (5, 5)
    found = [row["scheduled_for"] for row in await rows(store, "runs", "scheduled_for")]
    assert found == hours([-8, -7, -6, -2, -1])
    assert [row["runs_left"] for row in await rows(store, "run_budgets")] == [3]


async def test_a_backfill_that_cannot_go_on_does_not_hold_up_the_others(site: Site, store: Store) -> None:
    stuck = await site.start(await site.job())
    lost = Timing((CronSchedule("0 * * * *"),), zone="Europe/Atlantis")
    stored = json.dumps(timing_to_json(lost))
    await execute(store, "UPDATE hourhand.backfills SET timing = $1", stored)
    other = await site.start(await site.job())
    await site.backfiller.run_once()
    await site.backfiller.run_once()

    assert (await site.get(stuck.backfill.backfill_id)).live == 0
    assert (await site.get(stuck.backfill.backfill_id)).state is BackfillState.RUNNING
    assert (await site.get(other.backfill.backfill_id)).live == 1


async def test_the_ledger_names_the_run_of_a_backfill_that_made_up_for_a_missed_due_time(
    site: Site, store: Store, clock: SetClock
) -> None:
    job_id = await site.job()
    first, last = hours([-5, -2])
    await execute(
        store,
        "INSERT INTO hourhand.ledger_ranges (job_id, first_due, last_due, count, state, reason, version) "
        "VALUES ($1, $2, $3, 4, 16, 'catchup_window', 1)",
        job_id,
        first,
        last,
    )
    executor = await Executor(store, succeed, clock=clock).join()
    started = await site.start(job_id, first=-4, last=-2)
    await work_off(site, executor, started.backfill.backfill_id)
    made = {row["due"]: row["run_id"] for row in await rows(store, "backfill_runs", "due")}
    history = HistoryOperations(store.ledger, clock)

    page = await history.page(ADA, job_id, first, last, None, 10, compact=False)

    assert [entry.status for entry in page.entries] == ["missed"] * 4
    told = [(entry.why or "").partition("; ")[2] for entry in page.entries]
    assert told == ["", *(f"run {made[due]} of a backfill made up for it" for due in hours([-4, -3])), ""]
    [whole] = (await history.page(ADA, job_id, first, last, None, 10, compact=True)).entries
    assert (whole.why or "").endswith("; runs of a backfill made up for some of them")
