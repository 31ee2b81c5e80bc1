"""Plans of so many jobs that time goes by while they are made."""

from datetime import timedelta
from typing import Any

import pytest
from crew import Scheduler, SetClock
from sample_jobs import at, every, insert, new_job, once, rows

from hourhand.ports.stores import Cursor
from hourhand.wiring import Store

A_BATCH = 50
"""Jobs that a scheduler of these tests plans in one go."""


@pytest.fixture
async def slow(store: Store, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """A scheduler that takes a second for each batch."""
    scheduler = await Scheduler(store, SetClock()).join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
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
