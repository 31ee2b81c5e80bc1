"""Three days in which nobody plans: what they leave behind, and how soon planners are through with it."""

from datetime import timedelta

from crew import Scheduler, SetClock
from sample_jobs import START, at, every, insert, new_job, own_all_shards

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.schedule import CronSchedule, Timing
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.wiring import Store

JOBS = 20_000
DAYS = timedelta(days=3)
MINUTE = timedelta(minutes=1)
TIMINGS = [
    Timing((CronSchedule("* * * * *"),), "Europe/Berlin"),
    Timing((CronSchedule("*/1 * * * *"),), "America/New_York"),
    Timing((CronSchedule("0-59 * * * *"),)),
    every(60),
]
POLICIES = [CatchUpPolicy(), CatchUpPolicy(CatchUp.NONE), CatchUpPolicy(CatchUp.LAST, timedelta(0))]
OF_MINUTES = int(DAYS / MINUTE) + 1


async def test_three_days_without_a_planner_leave_at_most_one_row_for_each_of_twenty_thousand_minute_jobs(
    store: Store,
) -> None:
    clock = SetClock(START)
    scheduler = Scheduler(store, clock, SchedulerSettings())
    scheduler.node_id, _ = await own_all_shards(store)
    await scheduler.lookout.run_once()
    for begin in range(0, JOBS, 2000):
        await insert(
            store,
            *(
                new_job(TIMINGS[place % 4], next_due=at(0), catchup=POLICIES[place % 3])
                for place in range(begin, begin + 2000)
            ),
        )
    clock.time = START + DAYS
    for _ in range(100):  # each turn is bounded: late jobs do not keep a planner from the others
        await scheduler.planner.run_once()
        if (await store.timetable.next_cursor() or clock.time) > clock.time:
            break
    db = store.timetable._database
    async with db.connection() as connection:
        ranges = await connection.fetch(f"SELECT job_id, count, first_due, reason FROM {db.schema}.ledger_ranges")
        runs = await connection.fetch(f"SELECT job_id, scheduled_for FROM {db.schema}.live_runs")
    assert len(ranges) == JOBS, "one row for each"
    assert {row["first_due"] for row in ranges} == {at(0)}
    ran = {row["job_id"]: 0 for row in ranges}
    for run in runs:
        ran[run["job_id"]] += 1
    assert {row["count"] + ran[row["job_id"]] for row in ranges} == {OF_MINUTES}, "every due time is accounted for"
    assert set(ran.values()) <= {1, 2}, "the newest, and what is due just now"
