"""Plans of so many jobs that time goes by while they are made."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from crew import Scheduler, SetClock
from sample_jobs import at, every, insert, new_job, once, rows

from hourhand.ports.stores import Cursor
from hourhand.runtime.looks import ThoroughLooks
from hourhand.wiring import Store

A_BATCH = 50
"""Jobs that a scheduler of these tests plans in one go."""


class Short(ThoroughLooks):
    """Never thorough."""

    def begin(self) -> None:
        return None


@pytest.fixture
async def scheduler(store: Store) -> Scheduler:
    scheduler = await Scheduler(store, SetClock()).join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    return scheduler


@pytest.fixture
def slow(store: Store, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """The scheduler takes a second for each batch."""
    read = store.timetable.due_cursors

    async def slowly(*asked: Any) -> tuple[list[Cursor], bool]:
        found = await read(*asked)
        scheduler.clock.time += timedelta(seconds=1)
        return found

    monkeypatch.setattr(store.timetable, "due_cursors", slowly)
    return scheduler


async def test_a_job_that_runs_once_is_made_while_a_crowd_is_planned(store: Store, slow: Scheduler) -> None:
    await insert(store, *(new_job(every(60), next_due=at(0)) for _ in range(3 * A_BATCH)))
    [alone] = await insert(store, new_job(once(at(3)), next_due=at(3)))  # beyond the horizon of two seconds, at first
    await slow.planner.run_once()
    assert slow.clock.time == at(4), "four batches, the last of them empty"
    assert alone in {row["job_id"] for row in await rows(store, "live_runs")}


async def test_a_job_of_every_second_does_not_pause_while_a_crowd_is_planned(store: Store, slow: Scheduler) -> None:
    await insert(store, *(new_job(every(60), next_due=at(0)) for _ in range(3 * A_BATCH)))
    [often] = await insert(store, new_job(every(1), next_due=at(-1)))  # the first of all
    await slow.planner.run_once()
    made = {row["scheduled_for"] for row in await rows(store, "live_runs") if row["job_id"] == often}
    assert {at(1), at(2), at(3), at(4)} <= made


async def test_a_plan_of_more_than_four_seconds_begins_anew_and_leaves_nothing_out(
    store: Store, slow: Scheduler
) -> None:
    jobs = await insert(store, *(new_job(every(600), next_due=at(0)) for _ in range(7 * A_BATCH)))
    assert await slow.planner.run_once() == 0.0, "at once again"
    assert 0 < len(await rows(store, "live_runs")) < 6 * A_BATCH
    await slow.planner.run_once()
    assert [row["job_id"] for row in await rows(store, "live_runs", "job_id")] == sorted(jobs)


async def test_what_a_plan_left_out_after_a_slow_look_is_found_by_the_next(
    store: Store, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert(store, new_job(every(60), next_due=at(0)))
    [later] = await insert(store, new_job(every(600, at(6.5)), next_due=at(6.5)))
    scheduler.planner.thorough = Short()
    look = store.timetable.next_cursor

    async def slowly(*asked: Any) -> datetime | None:
        found = await look(*asked)
        scheduler.clock.time = at(6)  # the plan goes to 4 and the horizon of two seconds
        return found

    monkeypatch.setattr(store.timetable, "next_cursor", slowly)
    await scheduler.planner.run_once()
    assert later not in {row["job_id"] for row in await rows(store, "live_runs")}
    await scheduler.planner.run_once()
    assert later in {row["job_id"] for row in await rows(store, "live_runs")}
