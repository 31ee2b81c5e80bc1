"""How a job is shown: the short road for ordinary jobs shows the same as the long one."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from hourhand.api.views import full_view, job_view
from hourhand.model.job import Job, JobDefinition
from hourhand.model.policy import Policy
from hourhand.model.retry import RetryPolicy
from hourhand.model.schedule import At, CronSchedule, Now, Timing
from hourhand.model.states import JobState

NOON = datetime(2030, 1, 7, 12, tzinfo=UTC)
ORDINARY = JobDefinition("report", "python", {"handler": "reports.build"}, Timing((At(NOON),)), "python:reports.build")
JOB = Job(UUID(int=7), "default", ORDINARY, 3, JobState.SCHEDULED, NOON, NOON, "ada", NOON + timedelta(hours=1))


def changed(**fields: object) -> JobDefinition:
    return msgspec.structs.replace(ORDINARY, **fields)


@pytest.mark.parametrize(
    "definition",
    [
        ORDINARY,
        changed(timing=Timing((Now(NOON),))),
        changed(timing=Timing((At(NOON, NOON - timedelta(seconds=1)),))),
        changed(queue="reports", priority=9, description="of the month", owner="finance", payload={"deep": {"n": 1}}),
        changed(timing=Timing((At(NOON),), zone="Europe/Berlin")),
        changed(timing=Timing((At(NOON),), start_at=NOON, end_at=NOON)),
        changed(timing=Timing((At(NOON), At(NOON + timedelta(days=1))))),
        changed(timing=Timing((CronSchedule("0 2 * * *"),))),
        changed(timing=Timing((At(NOON),), jitter=timedelta(seconds=5))),
        changed(labels={"team": "ops"}),
        changed(timeout_seconds=5.0),
        changed(retry=RetryPolicy(max_retries=1)),
        changed(policy=Policy(at_most_once=True)),
    ],
)
def test_the_short_road_to_a_view_shows_what_the_long_one_does(definition: JobDefinition) -> None:
    job = Job(JOB.job_id, "other", definition, 3, JobState.PAUSED, None, NOON, "ada", NOON, "a reason", "key")
    assert job_view(job) == full_view(job)


def test_a_view_of_one_job_is_not_seen_in_that_of_the_next() -> None:
    first = job_view(JOB)
    first.payload["handler"] = "changed"
    first.labels["team"] = "ops"
    second = job_view(JOB)
    assert (second.payload, second.labels) == ({"handler": "reports.build"}, {})
