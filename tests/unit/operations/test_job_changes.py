"""What becomes of a job that somebody changes, judged without a database."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from fake_kinds import KINDS

from hourhand.model.errors import Conflict, InvalidFields
from hourhand.model.ids import time_ordered_id
from hourhand.model.job import Job, JobDefinition
from hourhand.model.schedule import At, CronSchedule, Every, Now, Schedule, Timing
from hourhand.model.schedule_form import parse_timing
from hourhand.model.states import JobState
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.requests import Caller, JobPatch, JobRequest, RunNowRequest
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import JobStore, RunStore
from hourhand.ports.submission_stores import SubmissionStore
from hourhand.runtime.ids import IdSource

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
CALLER = Caller("ada", 1, "default")


class Desk:
    """A store of one job, a clock that is set by hand and a bus that nobody hears."""

    def __init__(self, timing: Timing, state: JobState = JobState.SCHEDULED) -> None:
        definition = JobDefinition("job", "number", {"n": 1}, timing, "number")
        self.job = Job(time_ordered_id(NOW, 5), "default", definition, 1, state, None, NOW, "ada", NOW)
        self.time = NOW
        self.change: tuple[JobDefinition, datetime | None] | None = None
        self.manual: list[Any] = []
        self.overtaken = 0
        """How often somebody else changes the job first."""

    def now(self) -> datetime:
        return self.time

    async def get_jobs(self, wanted: Sequence[tuple[int, UUID]]) -> dict[tuple[int, UUID], Job]:
        return {each: await self.get_job(*each) for each in wanted}

    async def get_job(self, namespace_id: int, job_id: UUID) -> Job:
        return self.job

    async def change_job(
        self, namespace_id: int, job_id: UUID, definition: JobDefinition, version: int, cursor: datetime | None, *_: Any
    ) -> list[UUID] | None:
        if self.overtaken:
            self.overtaken -= 1
            self.job = replace(self.job, version=self.job.version + 1)
            return None
        self.change = definition, cursor
        return []

    async def insert_jobs(self, jobs: Any) -> None: ...

    async def insert_manual_run(self, *fields: Any) -> None:
        self.manual.append(fields)

    def publish(self, topic: Topic) -> None: ...

    @property
    def operations(self) -> JobOperations:
        return JobOperations(
            cast("JobStore", self),
            cast("SubmissionStore", self),
            cast("RunStore", self),
            KINDS,
            self,
            IdSource(1),
            cast("EventBus", self),
            SubmitSettings(),
        )


async def test_the_description_of_a_job_whose_time_has_passed_can_be_changed() -> None:
    desk = Desk(Timing((At(NOW + timedelta(minutes=1)),)), JobState.COMPLETED)
    desk.time = NOW + timedelta(days=1)
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(description="what it did"))
    assert desk.change is not None
    definition, cursor = desk.change
    assert definition.description == "what it did"
    assert definition.timing == desk.job.definition.timing
    assert cursor is None


async def test_a_job_with_one_passed_and_one_coming_time_can_be_changed() -> None:
    desk = Desk(Timing((At(NOW + timedelta(minutes=1)), At(NOW + timedelta(days=9)))))
    desk.time = NOW + timedelta(days=1)
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(priority="high"))
    assert desk.change is not None
    assert desk.change[1] == NOW + timedelta(days=9)


_OF_ANY: list[dict[str, Any]] = [
    {"zone": "Europe/Berlin"},
    {"end_at": "2031-01-01T00:00:00Z"},
    {"start_at": "2029-01-01T00:00:00Z"},
    {"dst_gap": "skip"},
]
_OF_RECURRING: list[dict[str, Any]] = [*_OF_ANY, {"jitter": "1m"}, {"max_runs": 10}]


@pytest.mark.parametrize(
    ("schedules", "patch"),
    [
        *(((once,), patch) for once in (At(NOW), Now(NOW)) for patch in _OF_ANY),
        *(((CronSchedule("0 * * * *"), At(NOW)), patch) for patch in _OF_RECURRING),
    ],
    ids=repr,
)
async def test_no_change_of_its_timing_brings_back_an_instant_that_has_passed(
    schedules: tuple[Schedule, ...], patch: dict[str, Any]
) -> None:
    desk = Desk(Timing(schedules))
    desk.time = NOW + timedelta(days=1, minutes=30)
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(**patch))
    assert desk.change is not None
    definition, cursor = desk.change
    assert definition.timing.schedules[-1] == schedules[-1]
    assert cursor == (NOW + timedelta(days=1, hours=1) if len(schedules) > 1 else None)


async def test_a_schedule_sent_again_does_not_bring_back_an_instant_that_has_passed() -> None:
    coming = NOW + timedelta(minutes=1)
    desk = Desk(Timing((CronSchedule("0 * * * *"), At(coming))))
    await desk.operations.update(
        CALLER, desk.job.job_id, JobPatch(schedule=[{"cron": "0 * * * *"}, {"at": "2030-01-07T12:01:00Z"}])
    )
    assert desk.change is not None
    assert desk.change[1] == coming
    desk.time = coming + timedelta(seconds=2)  # as late as an `at` may be
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(zone="Asia/Tokyo"))
    assert desk.change[1] == NOW + timedelta(hours=1)


async def test_a_start_that_is_moved_moves_what_is_to_begin_with_it() -> None:
    desk = Desk(Timing((Now(NOW + timedelta(hours=1)),), start_at=NOW + timedelta(hours=1)))
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(start_at="2030-01-07T15:00:00Z"))
    assert desk.change is not None
    assert desk.change[1] == NOW + timedelta(hours=3)


async def test_a_change_of_anything_but_the_time_keeps_the_beat_of_an_interval() -> None:
    timing = Timing((Every(timedelta(hours=1), NOW + timedelta(minutes=10)),))
    desk = Desk(timing)
    desk.time = NOW + timedelta(minutes=30)
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(queue="slow"))
    assert desk.change is not None
    assert desk.change[0].timing == timing
    assert desk.change[1] == NOW + timedelta(minutes=70)


async def test_a_new_schedule_starts_from_now() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)))
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(schedule={"cron": "30 12 * * *"}))
    assert desk.change is not None
    assert desk.change[1] == NOW + timedelta(minutes=30)


@pytest.mark.parametrize("schedule", [CronSchedule("0 * * * *"), At(NOW + timedelta(hours=1))], ids=repr)
async def test_a_schedule_cannot_be_taken_away_and_all_faults_are_told(schedule: Schedule) -> None:
    desk = Desk(Timing((schedule,)))
    with pytest.raises(InvalidFields) as refused:
        await desk.operations.update(CALLER, desk.job.job_id, JobPatch(schedule=None, priority=77))
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [
        ("/schedule", "schedule-required"),
        ("/priority", "invalid-priority"),
    ]
    assert '{"now": true}' in str(refused.value.faults[0].hint)
    assert desk.change is None


async def test_a_change_of_another_version_than_the_one_read_is_refused() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)))
    with pytest.raises(Conflict) as refused:
        await desk.operations.update(CALLER, desk.job.job_id, JobPatch(name="x"), if_version=7)
    assert refused.value.code == "version-mismatch"


async def test_a_cancelled_job_can_neither_be_changed_nor_run() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)), JobState.CANCELLED)
    with pytest.raises(Conflict):
        await desk.operations.update(CALLER, desk.job.job_id, JobPatch(name="x"))
    with pytest.raises(Conflict):
        await desk.operations.run_now(CALLER, desk.job.job_id, RunNowRequest())


async def test_a_run_asked_for_with_a_bad_payload_is_refused() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)))
    with pytest.raises(InvalidFields) as refused:
        await desk.operations.run_now(CALLER, desk.job.job_id, RunNowRequest(payload={"n": "x"}))
    assert [fault.pointer for fault in refused.value.faults] == ["/payload/n"]
    assert desk.manual == []


async def test_faults_can_be_asked_for_without_doing_anything() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)))
    job_id = desk.job.job_id
    change = await desk.operations.faults_of_change(CALLER, job_id, JobPatch(payload={}, priority=17))
    run = await desk.operations.faults_of_run(CALLER, job_id, RunNowRequest(payload={}, overlap="often"))
    job = desk.operations.faults_of(CALLER, JobRequest(name="", kind="number", payload={"n": 1}))
    told = [[fault.pointer for fault in faults] for faults in (change, run, job)]
    assert told == [["/payload/n", "/priority"], ["/payload/n", "/overlap"], ["/name"]]
    assert await desk.operations.faults_of_change(CALLER, job_id, JobPatch(priority=7)) == []
    assert await desk.operations.faults_of_run(CALLER, job_id, RunNowRequest()) == []
    assert (desk.change, desk.manual) == (None, [])


async def test_without_a_version_a_writer_that_is_overtaken_by_many_others_comes_through() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)))
    desk.overtaken = 16
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(description="last"))
    assert desk.change is not None
    assert (desk.change[0].description, desk.overtaken, desk.job.version) == ("last", 0, 17)


async def test_one_who_names_a_version_and_is_overtaken_is_told_so() -> None:
    desk = Desk(Timing((CronSchedule("0 9 * * *"),)))
    desk.overtaken = 1
    with pytest.raises(Conflict) as refused:
        await desk.operations.update(CALLER, desk.job.job_id, JobPatch(description="last"), if_version=1)
    assert refused.value.code == "version-mismatch"


async def test_where_a_rule_ends_is_found_anew_when_zone_or_choices_change() -> None:
    rule = {"rrule": "FREQ=MINUTELY;INTERVAL=15;COUNT=6", "first": "2030-10-27T02:00"}
    timing = parse_timing(rule, "Europe/Berlin", overlap="first", now=NOW, seed=1)
    desk = Desk(timing)
    await desk.operations.update(CALLER, desk.job.job_id, JobPatch(dst_overlap="both"))
    assert desk.change is not None
    found = desk.change[0].timing.due_between(datetime(2030, 10, 26, tzinfo=UTC), datetime(2030, 11, 1, tzinfo=UTC), 20)
    assert [f"{each:%H:%M}" for each in found] == ["00:00", "00:15", "00:30", "00:45", "01:00", "01:15"]
