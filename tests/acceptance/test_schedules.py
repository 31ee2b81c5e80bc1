"""Schedules on a running Hourhand: delays after completion, budgets, spread starts, calendars."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from harness import Up, wait_for

from hourhand.client import RunView

SECOND = timedelta(seconds=1)
NOTHING = {"kind": "python", "payload": {"handler": "bench.noop"}}


def ended(up: Up, job_id: object) -> list[RunView]:
    """Finished runs of a job, oldest first."""
    with up.client() as client:
        return [run for run in client.job_runs(job_id, limit=500) if run.is_final][::-1]


def test_each_run_of_a_delay_is_due_so_long_after_the_end_of_the_one_before(running: Up) -> None:
    with running.client() as client:
        job = client.create_job(name="rest", schedule={"every": "1s", "after": "completion"}, **NOTHING)
        runs = wait_for(lambda: (found := ended(running, job.job_id)) and len(found) >= 4 and found, "four runs")
        client.cancel_job(job.job_id)
    for before, after in pairwise(runs):
        assert before.ended_at is not None
        assert after.scheduled_for == before.ended_at + SECOND
        assert after.started_at is not None
        assert after.scheduled_for is not None
        assert after.started_at >= after.scheduled_for


def test_a_job_is_completed_with_the_last_run_of_its_budget(running: Up) -> None:
    with running.client() as client:
        job = client.create_job(name="three", schedule={"every": "1s"}, max_runs=3, **NOTHING)
        wait_for(lambda: client.get_job(job.job_id).status == "completed", "the job is completed")
    runs = ended(running, job.job_id)
    assert [run.status for run in runs] == ["succeeded"] * 3
    assert [after.scheduled_for - before.scheduled_for for before, after in pairwise(runs)] == [SECOND] * 2  # type: ignore[operator]


def test_spread_starts_come_after_the_due_time_and_before_the_next(running: Up) -> None:
    with running.client() as client:
        job = client.create_job(name="spread", schedule={"every": "2s"}, jitter="1s900ms", max_runs=3, **NOTHING)
        wait_for(lambda: client.get_job(job.job_id).status == "completed", "the job is completed")
    runs = ended(running, job.job_id)
    delays = [run.ready_at - run.scheduled_for for run in runs]  # type: ignore[operator]
    assert len(delays) == 3
    assert max(delays) > 5 * SECOND / 1000
    assert all(delay <= 1.9 * SECOND for delay in delays)
    assert all(run.ready_at <= run.started_at for run in runs)  # type: ignore[operator]


def test_a_calendar_keeps_a_job_from_running_until_it_is_changed(running: Up) -> None:
    now = datetime.now(UTC)
    spans = [{"from": (now - SECOND).isoformat(), "to": (now + timedelta(hours=1)).isoformat(), "reason": "freeze"}]
    with running.client() as client:
        client.put_calendar("freeze", blackouts=spans)
        job = client.create_job(name="frozen", schedule={"cron": "* * * * * *"}, calendars=["freeze"], **NOTHING)
        free = client.create_job(name="free", schedule={"cron": "* * * * * *"}, **NOTHING)
        wait_for(lambda: len(ended(running, free.job_id)) >= 3, "three runs of the other")
        assert ended(running, job.job_id) == []
        assert client.get_calendar("freeze").jobs == 1
        client.put_calendar("freeze", dates=["1999-12-31"])
        wait_for(lambda: ended(running, job.job_id), "a run once the calendar allows it", 10)
        for each in (job, free):
            client.cancel_job(each.job_id)


def test_a_preview_is_served(running: Up) -> None:
    with running.client() as client:
        found = client.preview(cron="30 2 * * *", zone="Europe/Berlin", count=3, **{"from": "2027-03-27T00:00:00Z"})
    assert [time.isoformat() for time in found.times] == [
        "2027-03-27T01:30:00+00:00", "2027-03-28T01:00:00+00:00", "2027-03-29T00:30:00+00:00",
    ]  # fmt: skip
    assert found.dst_days == ["2027-03-28"]
