"""Complaints 22 and 23 of the list that `test_complaints.py` follows, on a running Hourhand.

Cron is too weak for business days and for windows in which nothing may run; and everything fires at the full hour."""

import calendar
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from harness import HOURHAND, Up, clean_environment, wait_for

from hourhand.client import Client, RunView

NOTHING = {"kind": "python", "payload": {"handler": "bench.noop"}}
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
HOLIDAYS = [date(2027, 1, 1), date(2027, 2, 26), date(2027, 3, 1), date(2027, 5, 31), date(2027, 12, 31)]


@pytest.fixture
def client(running: Up) -> Iterator[Client]:
    with running.client() as client:
        yield client


# --- 22: cron is too weak ---------------------------------------------------------------------------------


def ics(days: list[date]) -> str:
    events = [
        f"BEGIN:VEVENT\r\nUID:{day}\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:{day:%Y%m%d}\r\n"
        f"SUMMARY:holiday\r\nEND:VEVENT\r\n"
        for day in days
    ]
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\n{''.join(events)}END:VCALENDAR\r\n"


def is_working_day(day: date) -> bool:
    return day.weekday() < 5 and day not in HOLIDAYS


def ends_of_months() -> list[date]:
    return [date(2027, month, calendar.monthrange(2027, month)[1]) for month in range(1, 12)]


def next_working_day(day: date) -> date:
    return next(later for step in range(30) if is_working_day(later := day + step * DAY))


def moments(days: list[date], hours: list[int]) -> list[datetime]:
    at = [datetime.combine(day, time(hour), BERLIN) for day, hour in zip(days, hours, strict=True)]
    return [each.astimezone(UTC) for each in at]


def test_ends_of_months_keep_to_business_days_by_calendars_of_weekends_and_imported_holidays(client: Client) -> None:
    client.import_calendar("holidays-22", ics(HOLIDAYS), zone="Europe/Berlin")
    client.put_calendar("weekends-22", weekly=[{"day": "SAT-SUN"}])
    asked = {
        "cron": "0 9 L * *", "zone": "Europe/Berlin", "calendar": ["weekends-22", "holidays-22"], "count": 50,
        "from": "2027-01-01T00:00:00Z", "to": "2027-12-15T00:00:00Z",
    }  # fmt: skip
    kept = [day for day in ends_of_months() if is_working_day(day)]
    assert 0 < len(kept) < 11
    assert client.preview(**asked).times == moments(kept, [9] * len(kept))
    moved = [next_working_day(day) for day in ends_of_months()]
    hours = [9 if day == moved_to else 0 for day, moved_to in zip(ends_of_months(), moved, strict=True)]
    assert client.preview(**asked, on_excluded="next_allowed").times == moments(moved, hours)


def test_in_a_window_in_which_nothing_may_run_nothing_runs_and_afterwards_what_was_left_out_runs_once(
    client: Client,
) -> None:
    begin = datetime.now(UTC).replace(microsecond=0)
    opens = begin + 6 * SECOND
    spans = [{"from": begin.isoformat(), "to": opens.isoformat(), "reason": "stock-taking"}]
    client.put_calendar("stock-taking", blackouts=spans)
    schedule = [{"cron": "*/2 * * * * *"}, {"cron": "1-59/2 * * * * *"}]
    jobs = {
        choice: client.create_job(
            name=f"taking-{choice}", schedule=schedule, calendars=["stock-taking"], on_excluded=choice, **NOTHING
        ).job_id
        for choice in ("skip", "next_allowed")
    }
    for job_id in jobs.values():
        wait_for(lambda job_id=job_id: len(succeeded(client, job_id)) >= 3, "three runs when it is over")  # type: ignore[misc]
        client.cancel_job(job_id)
        runs = succeeded(client, job_id)
        assert runs[0].scheduled_for == opens
        assert all(run.started_at is not None and run.started_at >= opens for run in runs)
        dues = [run.scheduled_for for run in runs]
        assert dues == [opens + step * SECOND for step in range(len(dues))], "what was left out comes in no flood"
        told = [entry for entry in client.job_history(job_id, since=begin.isoformat()) if entry.due_at < opens]
        assert told
        assert {entry.status for entry in told} == {"excluded"}
        assert all("stock-taking" in (entry.why or "") for entry in told)


def succeeded(client: Client, job_id: UUID) -> list[RunView]:
    """Oldest first."""
    return [run for run in client.job_runs(job_id, limit=100) if run.succeeded][::-1]


# --- 23: everything fires at :00 --------------------------------------------------------------------------


def test_jobs_of_one_full_minute_start_spread_by_their_jitter_and_each_run_keeps_its_due_time_and_its_start(
    client: Client,
) -> None:
    jobs = client.create_jobs(
        [{"name": f"crowd-{n}", "schedule": {"cron": "*/10 * * * * *"}, "jitter": "8s", "max_runs": 1, **NOTHING}
         for n in range(120)]
    )  # fmt: skip
    wait_for(lambda: all(succeeded(client, job_id) for job_id in jobs), "all have run", 40)
    delays = []
    for [run] in (succeeded(client, job_id) for job_id in jobs):
        assert run.scheduled_for is not None
        assert run.ready_at is not None
        assert run.started_at is not None
        assert run.scheduled_for.second % 10 == 0, "the due time stays what it was"
        assert run.scheduled_for.microsecond == 0
        assert run.ready_at <= run.started_at
        delays.append((run.ready_at - run.scheduled_for).total_seconds())
    assert all(0 <= delay < 8 for delay in delays)
    by_second = Counter(int(delay) for delay in delays)
    assert len(by_second) == 8, "every second of the spread has its share"
    assert max(by_second.values()) < len(delays) / 3


def test_h_gives_each_job_a_minute_of_its_own_that_no_change_moves_and_that_can_be_asked_for_without_a_server(
    running: Up, client: Client
) -> None:
    jobs = client.create_jobs([{"name": f"h-{n}", "schedule": {"cron": "H * * * *"}, **NOTHING} for n in range(240)])
    times = {job_id: client.next_times(job_id, 3) for job_id in jobs}
    assert all(len({time.minute for time in found}) == 1 for found in times.values())
    minutes = Counter(found[0].minute for found in times.values())
    assert len(minutes) > 50
    assert max(minutes.values()) < 240 / 10
    one = jobs[0]
    client.update_job(one, description="the same minute as before")
    assert client.next_times(one, 3) == times[one]
    done = subprocess.run(
        [*HOURHAND, "cron", "explain", "H * * * *", "--job-id", str(one), "-n", "1", "-o", "json"],
        cwd=running.folder, env=clean_environment(), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    [explained] = json.loads(done.stdout)["times"]
    assert datetime.fromisoformat(explained).minute == times[one][0].minute
    for job_id in jobs:
        client.cancel_job(job_id)
