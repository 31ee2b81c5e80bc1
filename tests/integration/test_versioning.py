"""Versions on a real database: every one is kept, told in the caller's words, and can be returned to."""

import asyncio
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from crew import FunctionKind, NotedBus, SetClock
from sample_jobs import NAMESPACE, START, at, execute, rows

from hourhand.model.calendar_form import read_calendar
from hourhand.model.errors import Conflict, NotFound
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.schedule import Every
from hourhand.model.states import JobState
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.requests import Caller, JobPatch, JobRequest, RetryRequest
from hourhand.operations.versions import VersionOperations
from hourhand.ports.event_bus import EventBus
from hourhand.ports.job_kind import Task
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store

ADA, BOB = Caller("ada", NAMESPACE, "default"), Caller("bob", NAMESPACE, "default")


async def succeed(task: Task) -> Outcome:
    return Succeeded()


class Site:
    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, SetClock()
        self.kinds: dict[str, Any] = {"number": FunctionKind(succeed)}
        bus = cast("EventBus", NotedBus())
        self.jobs = JobOperations(
            store.jobs,
            store.submissions,
            store.runs,
            self.kinds,
            self.clock,
            IdSource(),
            bus,
            SubmitSettings(),
            store.calendars,
        )
        self.versions = VersionOperations(store.versions, store.jobs, store.calendars, self.kinds, self.clock, bus)

    async def job(self, **fields: Any) -> UUID:
        fields = {"name": "report", "kind": "number", "payload": {"n": 1}, "schedule": {"every": "1h"}} | fields
        return (await self.jobs.create(ADA, JobRequest(**fields))).job.job_id

    async def change(self, job_id: UUID, **fields: Any) -> None:
        self.clock.time += timedelta(minutes=1)
        await self.jobs.update(BOB, job_id, JobPatch(**fields))


@pytest.fixture
async def site(store: Store) -> Site:
    return Site(store)


async def test_every_version_is_told_with_who_when_and_what(site: Site) -> None:
    job_id = await site.job(labels={"team": "a"})
    await site.change(job_id, payload={"n": 2, "m": [1]}, labels={"team": "b", "x": "y"})
    await site.change(job_id, queue="slow", timeout="5m", retry=RetryRequest(delays=["30s"]))

    third, second, first = await site.versions.list(ADA, job_id, None, 10)

    assert [(each.version.version, each.version.changed_by) for each in (third, second, first)] == [
        (3, "bob"),
        (2, "bob"),
        (1, "ada"),
    ]
    assert second.version.changed_at == at(60)
    assert first.changes is None
    assert second.changes is not None
    assert third.changes is not None
    assert {change.field: (change.before, change.after) for change in second.changes} == {
        "/payload/n": (1, 2),
        "/payload/m": (None, [1]),
        "/labels/team": ("a", "b"),
        "/labels/x": (None, "y"),
    }
    changed = {change.field: change.after for change in third.changes}
    assert changed["/queue"] == "slow"
    assert changed["/timeout"] == "5m"
    assert changed["/retry/delays"] == ["30s"]
    assert third.words["schedule"] == [{"every": "1h"}]


async def test_versions_come_in_pages_each_with_what_its_oldest_has_changed(site: Site) -> None:
    job_id = await site.job()
    for number in range(2, 6):
        await site.change(job_id, name=f"name {number}")

    page = await site.versions.list(ADA, job_id, None, 2)
    following = await site.versions.list(ADA, job_id, page[-1].version.version, 2)

    assert [each.version.version for each in page + following] == [5, 4, 3, 2]
    assert all(each.changes for each in page + following)
    assert (await site.versions.get(ADA, job_id, 1)).changes is None
    with pytest.raises(NotFound, match="version 6"):
        await site.versions.get(ADA, job_id, 6)


async def test_a_diff_names_two_versions_or_means_the_last_change(site: Site) -> None:
    job_id = await site.job()
    await site.change(job_id, name="b")
    await site.change(job_id, queue="slow")

    last = await site.versions.diff(ADA, job_id, None, None)
    both = await site.versions.diff(ADA, job_id, 1, 3)
    back = await site.versions.diff(ADA, job_id, 3, 1)

    assert (last.start, last.end, [change.field for change in last.changes]) == (2, 3, ["/queue"])
    assert [change.field for change in both.changes] == ["/name", "/queue"]
    assert [(change.before, change.after) for change in back.changes] == [("b", "report"), ("slow", "default")]
    with pytest.raises(NotFound):
        await site.versions.diff(ADA, job_id, 1, 4)


async def test_a_roll_back_is_a_new_version_with_the_old_definition(site: Site) -> None:
    job_id = await site.job(priority=8, labels={"a": "b"}, overlap="queue_all", catchup=None)
    before = await site.jobs.get(ADA, job_id)
    await site.change(job_id, priority=1, labels={}, overlap="allow", payload={"n": 9}, schedule={"cron": "0 3 * * *"})
    site.clock.time = at(600)

    changed = await site.versions.roll_back(BOB, job_id, 1)

    assert changed.job.version == 3
    assert changed.job.definition == before.definition
    history = await site.versions.list(ADA, job_id, None, 10)
    assert [(each.version.version, each.version.changed_by) for each in history] == [(3, "bob"), (2, "bob"), (1, "ada")]
    assert not (await site.versions.diff(ADA, job_id, 1, 3)).changes
    [cursor] = await rows(site.store, "timetable")
    assert (cursor["next_fire"], cursor["version"]) == (at(3600), 3)
    assert isinstance(changed.job.definition.timing.schedules[0], Every)
    assert changed.job.definition.timing.schedules[0].anchor == at(3600), "the interval keeps its beat"


async def test_a_roll_back_without_a_version_takes_back_the_last_change(site: Site) -> None:
    job_id = await site.job()
    with pytest.raises(Conflict, match="never been changed"):
        await site.versions.roll_back(ADA, job_id, None)
    await site.change(job_id, name="b")
    await site.change(job_id, name="c")

    assert (await site.versions.roll_back(ADA, job_id, None)).job.definition.name == "b"
    assert (await site.versions.roll_back(ADA, job_id, None)).job.definition.name == "c"  # that was a change too


async def test_a_roll_back_to_the_current_version_changes_nothing(site: Site) -> None:
    job_id = await site.job()
    assert (await site.versions.roll_back(ADA, job_id, 1)).job.version == 1
    with pytest.raises(NotFound):
        await site.versions.roll_back(ADA, job_id, 2)


async def test_a_roll_back_that_names_another_version_than_the_job_has_is_refused(site: Site) -> None:
    job_id = await site.job()
    await site.change(job_id, name="b")
    with pytest.raises(Conflict) as refused:
        await site.versions.roll_back(ADA, job_id, 1, if_version=1)
    assert refused.value.code == "version-mismatch"
    assert (await site.versions.roll_back(ADA, job_id, 1, if_version=2)).job.version == 3


async def test_of_two_roll_backs_for_one_version_at_the_same_moment_one_is_refused(site: Site) -> None:
    job_id = await site.job()
    await site.change(job_id, name="b")
    answers = await asyncio.gather(
        *(site.versions.roll_back(ADA, job_id, 1, if_version=2) for _ in range(2)), return_exceptions=True
    )
    assert len([answer for answer in answers if isinstance(answer, Conflict)]) == 1
    assert (await site.jobs.get(ADA, job_id)).version == 3


async def test_a_time_that_has_passed_is_not_run_again_by_a_roll_back(site: Site) -> None:
    job_id = await site.job(schedule={"at": "2030-01-07T12:10:00Z"})
    await site.change(job_id, schedule={"at": "2030-01-07T18:00:00Z"})
    site.clock.time = at(3600)
    changed = await site.versions.roll_back(ADA, job_id, 1)
    assert changed.job.next_due is None
    assert await rows(site.store, "live_runs") == []
    assert await rows(site.store, "timetable") == []


async def test_a_version_that_cannot_be_run_any_more_is_not_returned_to(site: Site) -> None:
    job_id = await site.job(schedule={"cron": "0 3 * * *"}, zone="Europe/Berlin")
    await site.change(job_id, zone="UTC")
    await execute(
        site.store,
        "UPDATE hourhand.job_versions SET definition = jsonb_set(definition, '{timing,zone}', to_jsonb($1::text))",
        "Europe/Atlantis",
    )
    with pytest.raises(Conflict, match="Europe/Atlantis") as refused:
        await site.versions.roll_back(ADA, job_id, 1)
    assert refused.value.code == "version-unusable"
    site.kinds.clear()
    with pytest.raises(Conflict, match="no kind 'number'"):
        await site.versions.roll_back(ADA, job_id, 1)


async def test_verbs_for_another_version_change_nothing(site: Site) -> None:
    job_id = await site.job()
    await site.change(job_id, name="b")
    for verb in (
        site.jobs.pause(ADA, job_id, None, if_version=1),
        site.jobs.resume(ADA, job_id, if_version=1),
        site.jobs.cancel(ADA, job_id, if_version=1),
        site.jobs.run_now(ADA, job_id, cast("Any", None), if_version=1),
    ):
        with pytest.raises(Conflict, match="has version 2, not 1"):
            await verb
    job = await site.jobs.get(ADA, job_id)
    assert (job.state, job.version) == (JobState.SCHEDULED, 2)
    assert (await site.jobs.pause(ADA, job_id, "rest", if_version=2)).job.state is JobState.PAUSED
    assert site.clock.time > START


async def test_versions_of_another_namespace_are_not_found(site: Site) -> None:
    job_id = await site.job()
    stranger = Caller("eve", 2, "team-a")
    for ask in (
        site.versions.list(stranger, job_id, None, 5),
        site.versions.get(stranger, job_id, 1),
        site.versions.diff(stranger, job_id, None, None),
        site.versions.roll_back(stranger, job_id, 1),
    ):
        with pytest.raises(NotFound):
            await ask


async def test_a_version_whose_calendar_is_gone_is_refused_and_one_whose_calendar_is_there_is_used(site: Site) -> None:
    weekend = read_calendar(weekly=[{"day": "SAT-SUN"}])
    await site.store.calendars.put(NAMESPACE, "weekend", weekend, START, "ada", None)
    job_id = await site.job(schedule={"cron": "0 9 * * *"}, calendars=["weekend"], max_runs=5, jitter="1m")
    await site.change(job_id, calendars=None)
    assert await site.store.calendars.delete(NAMESPACE, "weekend")

    with pytest.raises(Conflict, match=r"cannot be used any more.*weekend"):
        await site.versions.roll_back(ADA, job_id, 1)

    await site.store.calendars.put(NAMESPACE, "weekend", weekend, START, "ada", None)
    back = (await site.versions.roll_back(ADA, job_id, 1)).job
    assert (back.version, back.definition.timing.calendars, back.definition.timing.max_runs) == (3, ("weekend",), 5)
    assert await site.store.calendars.delete(NAMESPACE, "weekend") is False, "the job uses it again"
    changes = (await site.versions.diff(ADA, job_id, 2, 3)).changes
    assert [(change.field, change.after) for change in changes] == [
        ("/calendars", ["weekend"]), ("/on_excluded", "skip"),
    ]  # fmt: skip
