"""Who makes the first runs of a new job: the submission itself, or, while there is a pause, a scheduler."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from fake_kinds import KINDS

from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.requests import Caller, JobRequest
from hourhand.ports.pause_stores import PauseLook
from hourhand.ports.stores import NewJob
from hourhand.runtime.ids import IdSource

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
CALLER = Caller("ada", 1, "default")


class Desk:
    """A store that notes what it is given, a clock, a bus, and pauses that note who looks."""

    def __init__(self, in_force: bool) -> None:
        self.in_force = in_force
        self.looks = 0
        self.stored: list[NewJob] = []
        nobody = cast("Any", self)
        self.operations = JobOperations(
            nobody, nobody, nobody, KINDS, self, IdSource(1), nobody, SubmitSettings(horizon_seconds=2.0), pauses=self
        )

    def now(self) -> datetime:
        return NOW

    def publish(self, *_: Any) -> None: ...

    async def get_jobs(self, _: Any) -> dict[Any, Any]:
        return {}

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> None:
        self.stored += jobs

    async def look(self, now: datetime) -> PauseLook:
        self.looks += 1
        return PauseLook(in_force=self.in_force)


def request(schedule: Any) -> JobRequest:
    return JobRequest(name="beat", kind="number", payload={"n": 1}, schedule=schedule)


BEAT = {"every": "1s"}
FIRST = NOW + timedelta(seconds=1)


@pytest.mark.parametrize("in_force", [False, True])
async def test_a_recurring_job_made_in_a_pause_leaves_its_first_due_times_to_a_scheduler(in_force: bool) -> None:
    for many in (False, True):
        desk = Desk(in_force)
        if many:
            await desk.operations.create_many(CALLER, [request(BEAT), request("now")])
        else:
            await desk.operations.create(CALLER, request(BEAT))
        first, *others = desk.stored
        assert [list(other.fires) for other in others] == [[NOW]] * many
        assert list(first.fires) == ([] if in_force else [FIRST, FIRST + timedelta(seconds=1)])
        assert first.next_due == (FIRST if in_force else NOW + timedelta(seconds=3))
        assert desk.looks == 1


@pytest.mark.parametrize("schedule", ["now", {"at": "2030-01-07T12:00:01Z"}, {"cron": "0 3 * * *"}])
async def test_nobody_looks_for_pauses_when_a_job_runs_once_or_falls_due_later(schedule: Any) -> None:
    desk = Desk(in_force=True)
    await desk.operations.create(CALLER, request(schedule))
    await desk.operations.create_many(CALLER, [request(schedule)])
    assert desk.looks == 0
    assert len(desk.stored) == 2
