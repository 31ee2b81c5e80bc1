"""A backfill on a cluster of separate processes, whose leading scheduler is killed in the middle of it."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from harness import Roles, sql, wait_for

from hourhand.client import Client
from hourhand.model.local_time import format_instant

HANDLER = '''
"""Writes down the time that its run stands for, as it was put into its parameters."""
import os
from hourhand import Context, job


@job("note")
async def note(ctx: Context, time: str, day: str) -> None:
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{time} {day}\\n")
'''
HOURS = 150


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def cluster(tmp_path: Path, notes: Path, database_url: str, schema: str) -> Iterator[Roles]:
    (tmp_path / "noting_handler.py").write_text(HANDLER)
    notes.touch()
    settings = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "HOURHAND_KINDS_HANDLER_MODULES": "noting_handler",
        "NOTES": str(notes),
    }
    with Roles(tmp_path, database_url, schema, settings) as roles:
        for name in ("scheduler-one", "scheduler-two", "executor-one", "api-one"):
            roles.start(name.partition("-")[0], name)
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def leader(client: Client) -> str:
    """The name under which the leading scheduler was started."""
    found = wait_for(lambda: client.cluster().leader, "somebody leads")
    return found.rpartition("-scheduler-")[0]


def test_every_due_time_runs_once_although_the_leading_scheduler_is_killed(cluster: Roles, notes: Path) -> None:
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    begin = end - timedelta(hours=HOURS)
    wanted = [begin + timedelta(hours=number) for number in range(HOURS)]
    payload = {"handler": "note", "time": "{{scheduled_time}}", "day": "{{scheduled_date}}"}
    with cluster.client() as client:
        job = client.create_job(
            name="hourly", payload=payload, schedule={"cron": "0 * * * *"}, zone="Asia/Tokyo", overlap="allow"
        )
        plan = client.start_backfill(job.job_id, start=begin, end=end, dry_run=True)
        assert (plan.total, plan.first_due, plan.last_due) == (HOURS, wanted[0], wanted[-1])

        started = client.start_backfill(job.job_id, start=begin, end=end, parallelism=3, note="for the audit")
        assert started.backfill_id is not None
        wait_for(lambda: len(notes.read_text().splitlines()) >= HOURS // 5, "a part of it has run")
        killed = leader(client)
        cluster.processes[killed].kill()

        done = wait_for(
            lambda: (found := client.get_backfill(started.backfill_id or "")).is_over and found, "it is over", 90
        )

        assert leader(client) != killed
        assert (done.status, done.succeeded, done.failed, done.percent) == ("completed", HOURS, 0, 100.0)
        runs = [run for run in client.job_runs(job.job_id) if run.backfill_id == started.backfill_id]
        assert {run.scheduled_for for run in runs} == set(wanted)
        assert {run.note for run in runs} == {"for the audit"}
    tokyo = timedelta(hours=9)
    expected = Counter(f"{format_instant(due)} {due + tokyo:%Y-%m-%d}" for due in wanted)
    assert Counter(notes.read_text().splitlines()) == expected
