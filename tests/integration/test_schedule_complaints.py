"""What users of other schedulers complain about most when it comes to time, one test each: it does not happen here.

The numbers are those of the list of complaints that `tests/acceptance/test_complaints.py` follows too.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from pause_stage import CALLER, PauseStage
from sample_jobs import at, every, rows

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.pauses import PauseScope
from hourhand.model.schedule import CronSchedule, Timing
from hourhand.model.schedule_form import parse_timing
from hourhand.model.states import JobState
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store

DAY = timedelta(days=1)


@pytest.fixture
async def stage(store: Store) -> PauseStage:
    return await PauseStage(store).open()


# --- 3: clock changes flood, freeze, skip, drift ----------------------------------------------------------


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *"])
def test_in_no_zone_does_a_daily_job_flood_freeze_skip_or_drift_when_clocks_are_set(cron: str) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    hour = int(cron.split()[1])
    for name in sorted(available_timezones()):
        if name.startswith(("posix/", "right/")) or name in ("localtime", "posixrules", "Factory"):
            continue
        timing, zone = Timing((CronSchedule(cron),), name), ZoneInfo(name)
        due = timing.next_after(begin)
        for _ in range(366):
            assert due is not None, f"{name} freezes"
            following = timing.next_after(due)
            assert following is not None, f"{name} freezes"
            assert timedelta(hours=22) <= following - due <= timedelta(hours=26), f"{name} at {following}"
            shown = following.astimezone(zone)
            assert shown.hour in (hour, hour + 1), f"{name} drifts to {shown}"
            due = following


@pytest.mark.parametrize("back", [2, 60, 600])
async def test_a_clock_that_is_set_back_fires_nothing_twice_and_stops_nothing(stage: PauseStage, back: float) -> None:
    job_id = await stage.job()
    await stage.go(*range(0, 701, 5))
    made = len(await rows(stage.store, "live_runs"))
    await stage.go(*(700 - back + step for step in range(0, int(back), 5)))
    assert len(await rows(stage.store, "live_runs")) == made
    await stage.go(*range(705, 760, 5))
    assert await stage.told(job_id, 755) == dict.fromkeys(range(0, 756, 10), "run")


# --- 4: missed runs: all at once, none, or the wrong one --------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "late"),
    [
        (CatchUpPolicy(), []),  # the last one is due at this very moment
        (CatchUpPolicy(CatchUp.NONE), []),
        (CatchUpPolicy(CatchUp.ALL, timedelta(minutes=5)), [8 * 86_400 - 60 * step for step in (5, 4, 3, 2, 1)]),
        (CatchUpPolicy(CatchUp.ALL, 30 * DAY, 3), [8 * 86_400 - 60 * step for step in (3, 2, 1)]),
        (CatchUpPolicy(CatchUp.LAST, timedelta(0)), []),
    ],
)
async def test_after_eight_days_of_silence_just_what_the_job_asked_for_runs_and_it_goes_on(
    stage: PauseStage, policy: CatchUpPolicy, late: list[int]
) -> None:
    away = 8 * 86_400
    job_id = await stage.job(every(60), catchup=policy)
    await stage.go(0, away, away + 59, away + 119)
    runs = sorted((row["scheduled_for"] - at(0)).total_seconds() for row in await rows(stage.store, "live_runs"))
    assert runs == [0, *late, away, away + 60, away + 120]
    [row] = await rows(stage.store, "ledger_ranges")
    assert row["count"] == away // 60 - 1 - len(late), "11,519 missed due times stop no job for good"
    told = await stage.entries(job_id, 0, away, compact=True)
    assert sum(entry.count for entry in told) == away // 60 + 1


# --- 13: a recurring job cannot be paused -----------------------------------------------------------------


async def test_a_recurring_job_can_be_paused_until_a_time_by_verbs_that_mean_the_same_however_often_they_are_said(
    stage: PauseStage,
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    for _ in range(3):
        await stage.pause(PauseScope.JOB, job_id, 6, until=45)
    job = await stage.jobs.get(CALLER, job_id)
    assert (job.state, job.pause_reason) == (JobState.PAUSED, "moving")
    assert [(pause.paused_by, pause.until) for pause in job.pauses] == [("ada", at(45))]
    await stage.go(12, 22)
    for _ in range(3):
        await stage.resume(PauseScope.JOB, job_id, 25)
    assert (await stage.jobs.get(CALLER, job_id)).state is JobState.SCHEDULED
    await stage.go(26, 31)
    assert await stage.told(job_id, 31) == {0: "run", 10: "paused", 20: "paused", 30: "run"}


# --- 22: cron is too weak ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "dates"),
    [
        ({"cron": "0 9 L * *"}, ["01-31", "02-28", "03-31"]),
        ({"cron": "0 9 L-1 * *"}, ["01-30", "02-27", "03-30"]),
        ({"cron": "0 9 LW * *"}, ["01-30", "02-27", "03-31"]),
        ({"cron": "0 9 15W * *"}, ["01-15", "02-16", "03-16"]),
        ({"cron": "0 9 * * TUE#2"}, ["01-13", "02-10", "03-10"]),
        ({"cron": "0 9 * * FRIL"}, ["01-30", "02-27", "03-27"]),
        ([{"cron": "0 9 1 * *"}, {"cron": "30 17 L * *"}], ["01-31", "02-01", "02-28"]),
        ([{"cron": "0 9 * * MON"}, {"at": "2026-01-07T12:00:00Z"}], ["01-05", "01-07", "01-12"]),
    ],
)
def test_last_days_nearest_weekdays_nth_weekdays_and_several_schedules_are_one_field(
    schedule: object, dates: list[str]
) -> None:
    begin = datetime(2026, 1, 1, 10, tzinfo=UTC)
    timing = parse_timing(schedule, "UTC", now=begin, seed=0)
    assert [f"{due:%m-%d}" for due in timing.due_between(begin, begin + 366 * DAY, 3)] == dates


# --- 23: everything fires at :00 --------------------------------------------------------------------------


def test_h_spreads_jobs_over_the_hour_and_gives_each_the_same_minute_for_ever() -> None:
    begin, ids = datetime(2026, 1, 1, tzinfo=UTC), IdSource(3)
    minutes: Counter[int] = Counter()
    for _ in range(1200):
        seed = ids.new_id(begin).int & 0xFFFF_FFFF_FFFF
        timing = parse_timing({"cron": "H * * * *"}, "UTC", now=begin, seed=seed)
        dues = timing.due_between(begin, begin + DAY, 30)
        assert len({due.minute for due in dues}) == 1
        assert len(dues) == 24
        minutes[dues[0].minute] += 1
    assert len(minutes) == 60
    assert max(minutes.values()) < 3 * 1200 / 60
