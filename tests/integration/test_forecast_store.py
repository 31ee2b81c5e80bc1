"""What a forecast is made of, from a real database: counts of all cursors, a fair sample, what runs took."""

from datetime import timedelta
from typing import Any

import pytest
from sample_jobs import NAMESPACE, START, at, execute, insert, new_job, once

from hourhand.database.queries import load_queries
from hourhand.model.ids import scheduled_run_id
from hourhand.model.schedule import CronSchedule, Timing
from hourhand.store.forecasts import Forecasts
from hourhand.wiring import Store

HOURLY = Timing((CronSchedule("0 * * * *"),))
DAILY = Timing((CronSchedule("0 0 * * *"),))


@pytest.fixture
async def forecasts(store: Store) -> Forecasts:
    return Forecasts(store.database)


async def test_cursors_are_counted_by_minute_overdue_ones_in_the_first(store: Store, forecasts: Forecasts) -> None:
    await insert(store, *(new_job(HOURLY, next_due=at(3600)) for _ in range(3)))
    await insert(store, new_job(HOURLY, next_due=at(-3600)), new_job(DAILY, next_due=at(43_200)))
    await insert(store, new_job(once(at(90)), next_due=at(90)), new_job(once(at(100_000)), next_due=at(100_000)))

    end = START + timedelta(hours=24)
    assert await forecasts.count_next_fires(True, START, end, 1024) == {START: 1, at(3600): 3, at(43_200): 1}
    assert await forecasts.count_next_fires(False, START, end, 1024) == {at(60): 1}
    assert await forecasts.count_recurring(1000) == 5
    assert await forecasts.count_recurring(2) == 2


async def test_jobs_come_with_their_schedule_and_only_own_ones_by_name(store: Store, forecasts: Forecasts) -> None:
    await insert(store, new_job(HOURLY, next_due=at(3600), name="hourly"))
    await insert(store, new_job(once(at(90)), next_due=at(90)))
    [own] = await forecasts.forecast_jobs(NAMESPACE, START, at(7200), 1024, 10)
    [foreign] = await forecasts.forecast_jobs(NAMESPACE + 1, START, at(7200), 1024, 10)
    assert (own.name, own.next_fire, own.needs) == ("hourly", at(3600), "number")
    assert '"0 * * * *"' in own.timing
    assert foreign.name is None


async def test_a_job_with_a_budget_comes_with_what_is_left_of_it(store: Store, forecasts: Forecasts) -> None:
    counted = Timing(HOURLY.schedules, max_runs=3)
    await insert(store, new_job(counted, next_due=at(3600)), new_job(HOURLY, next_due=at(3600)))
    found = await forecasts.forecast_jobs(NAMESPACE, START, at(7200), 1024, 10)
    assert {job.runs_left for job in found} == {3, None}


async def test_the_first_shards_are_a_fair_part_of_all_jobs(store: Store, forecasts: Forecasts) -> None:
    await insert(store, *(new_job(HOURLY, next_due=at(3600)) for _ in range(2000)))
    part = await forecasts.forecast_jobs(NAMESPACE, START, at(7200), 256, 10_000)
    assert 400 < len(part) < 600
    assert len(await forecasts.forecast_jobs(NAMESPACE, START, at(7200), 1024, 50)) == 50
    assert await forecasts.forecast_jobs(NAMESPACE, START, at(3600), 1024, 50) == []


async def test_durations_are_those_of_the_newest_successes(store: Store, forecasts: Forecasts) -> None:
    [quick, slow] = await insert(store, new_job(HOURLY, next_due=at(3600)), new_job(HOURLY, next_due=at(3600)))
    ends: list[tuple[Any, int, float, int]] = [
        (quick, 1, 2, 10),
        (quick, 2, 4, 10),
        (quick, 3, 50, 11),
        (slow, 1, 60, 10),
    ]
    for job_id, hour, seconds, state in ends:
        due = START + hour * timedelta(hours=1)
        await execute(
            store,
            "INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, version, "
            "state, cause, attempt) VALUES ($1, $2, $3, $3, $4, 1, 1, $5, 1, 1)",
            scheduled_run_id(due, job_id), job_id, due, due + timedelta(seconds=seconds), state,
        )  # fmt: skip
    assert await forecasts.learned_seconds(100, 10) == {quick: (3, 2), slow: (60, 1)}
    assert await forecasts.learned_seconds(1, 10) == {quick: (4, 1)}


async def test_counting_the_next_due_times_reads_the_index_and_no_cursor(store: Store) -> None:
    """So that a million of them are counted in a moment."""
    await insert(store, *(new_job(HOURLY, next_due=at(3600 + n)) for n in range(3000)))
    await execute(store, "VACUUM ANALYZE hourhand.timetable")
    queries = load_queries("hourhand.store.sql", "forecasts.sql", store.database.schema)
    query = queries["count_next_fires"]
    values = {"since": START, "until": at(86_400), "shards": 1024}
    async with store.database.connection() as db:
        await db.execute("SET enable_seqscan = off")
        rows = await db.fetch(f"EXPLAIN {query.text}", *query.arguments(values))
        await db.execute("RESET enable_seqscan")
    plan = "\n".join(row[0] for row in rows)
    assert "Index Only Scan using timetable_recurring" in plan
