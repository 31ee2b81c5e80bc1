"""Submissions with keys, judged without a database: who is answered what, and who takes turns with whom."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from fake_kinds import KINDS

from hourhand.model.errors import DuplicateJob, Fault, IdempotencyKeyReused, InvalidFields, Overloaded
from hourhand.model.job import Job
from hourhand.model.keys import IDEMPOTENCY_KEY_KEPT, IdempotencyKey
from hourhand.model.states import JobState
from hourhand.operations import submissions
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.requests import Caller, JobRequest
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import JobStore, NewJob, RunStore
from hourhand.ports.submission_stores import Duplicates, Earlier, Submission
from hourhand.runtime.ids import IdSource

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
CALLER = Caller("ada", 1, "default")
KEY, OTHER = IdempotencyKey("k", b"a"), IdempotencyKey("k", b"b")


class Desk:
    """A store that knows who has which key. It answers when the gate is open."""

    def __init__(self) -> None:
        self.time = NOW
        self.jobs: dict[UUID, NewJob] = {}
        self.plain: list[NewJob] = []
        self.calls: list[Sequence[Submission]] = []
        self.keys: dict[tuple[int, str], tuple[Earlier, datetime]] = {}
        self.holders: dict[tuple[int, str], UUID] = {}
        self.said: list[Topic] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.operations = JobOperations(
            cast("JobStore", self),
            self,
            cast("RunStore", self),
            KINDS,
            self,
            IdSource(1),
            cast("EventBus", self),
            SubmitSettings(),
        )

    def now(self) -> datetime:
        return self.time

    def publish(self, topic: Topic) -> None:
        self.said.append(topic)

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> None:
        self.plain += jobs
        self.jobs |= {new.job_id: new for new in jobs}

    async def get_jobs(self, wanted: Sequence[tuple[int, UUID]]) -> dict[tuple[int, UUID], Job]:
        return {each: await self.get_job(*each) for each in wanted}

    async def get_job(self, namespace_id: int, job_id: UUID) -> Job:
        new = self.jobs[job_id]
        return Job(
            job_id, "default", new.definition, 7, JobState.COMPLETED, None, new.created_at, "ada", new.created_at
        )

    async def find_earlier(self, namespace_id: int, key: str, since: datetime) -> Earlier | None:
        earlier, at = self.keys.get((namespace_id, key), (None, NOW))
        return earlier if at > since else None

    async def insert_submissions(self, submissions: Sequence[Submission]) -> list[Any]:
        self.calls.append(submissions)
        await self.gate.wait()
        if any(each.key is not None and each.key.key == "busy" for each in submissions):
            raise Overloaded("still under way")
        return [self._insert(each) for each in submissions]

    def _insert(self, submission: Submission) -> Earlier | Duplicates | None:
        key = submission.key and (submission.namespace_id, submission.key.key)
        if key in self.keys:
            return self.keys[key][0]
        wanted = {(new.namespace_id, new.unique.key): new.job_id for new in submission.jobs if new.unique}
        taken = {place: self.holders[each] for place, each in enumerate(wanted) if each in self.holders}
        if taken:
            return Duplicates(taken)
        self.holders |= wanted
        self.jobs |= {new.job_id: new for new in submission.jobs}
        if submission.key and key:
            self.keys[key] = (Earlier(submission.key.digest, [new.job_id for new in submission.jobs]), self.time)
        return None


def request(**fields: Any) -> JobRequest:
    return JobRequest(**{"name": "job", "kind": "number", "payload": {"n": 1}} | fields)


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def turns(count: int = 10) -> None:
    """Lets everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_without_keys_nothing_of_this_is_asked(desk: Desk) -> None:
    await desk.operations.create(CALLER, request())
    await desk.operations.create_many(CALLER, [request(), request()])
    assert (len(desk.plain), desk.calls) == (3, [])


async def test_the_same_request_again_is_answered_with_its_job_as_it_is_now(desk: Desk) -> None:
    first = await desk.operations.create(CALLER, request(), KEY)
    again = await desk.operations.create(CALLER, request(), KEY)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.job.job_id == first.job.job_id
    assert again.job.version == 7
    assert len(desk.jobs) == 1
    assert desk.said == [Topic.READY], "nothing new is to be done"


async def test_a_batch_again_is_answered_with_its_ids_in_order(desk: Desk) -> None:
    first = await desk.operations.create_many(CALLER, [request()] * 5, KEY)
    again = await desk.operations.create_many(CALLER, [request()] * 5, KEY)
    assert (first.replayed, again.replayed) == (False, True)
    assert list(again.job_ids) == list(first.job_ids)
    assert len(desk.jobs) == 5


async def test_another_request_with_the_same_key_is_refused(desk: Desk) -> None:
    await desk.operations.create(CALLER, request(), KEY)
    with pytest.raises(IdempotencyKeyReused):
        await desk.operations.create(CALLER, request(name="other"), OTHER)
    with pytest.raises(IdempotencyKeyReused):
        await desk.operations.create_many(CALLER, [request()] * 2, OTHER)
    assert len(desk.jobs) == 1


async def test_a_request_that_names_a_time_is_answered_the_same_after_that_time(desk: Desk) -> None:
    at = {"at": "2030-01-07T12:05:00Z"}
    first = await desk.operations.create(CALLER, request(schedule=at), KEY)
    batch = await desk.operations.create_many(CALLER, [request(schedule=at)], IdempotencyKey("batch", b"a"))
    desk.time = NOW + timedelta(hours=5)
    assert (await desk.operations.create(CALLER, request(schedule=at), KEY)).job.job_id == first.job.job_id
    again = await desk.operations.create_many(CALLER, [request(schedule=at)], IdempotencyKey("batch", b"a"))
    assert (again.job_ids, again.replayed) == (batch.job_ids, True)
    for key in (None, OTHER, IdempotencyKey("new", b"a")):
        with pytest.raises(InvalidFields):
            await desk.operations.create(CALLER, request(schedule=at), key)
    desk.time = NOW + IDEMPOTENCY_KEY_KEPT
    with pytest.raises(InvalidFields):
        await desk.operations.create(CALLER, request(schedule=at), KEY)


async def test_requests_with_one_key_at_one_node_go_one_after_another(desk: Desk) -> None:
    desk.gate.clear()
    asked = [asyncio.create_task(desk.operations.create(CALLER, request(), KEY)) for _ in range(20)]
    await turns()
    assert [len(call) for call in desk.calls] == [1], "no connection is held by those who wait"
    desk.gate.set()
    made = await asyncio.gather(*asked)
    assert len({each.job.job_id for each in made}) == 1
    assert sorted(each.replayed for each in made) == [False] + [True] * 19


async def test_submissions_with_different_keys_share_a_commit(desk: Desk) -> None:
    desk.gate.clear()
    asked = [asyncio.create_task(desk.operations.create(CALLER, request(), IdempotencyKey("a", b"a")))]
    await turns()
    asked += [
        asyncio.create_task(desk.operations.create(CALLER, request(unique_key=f"u{n}"), IdempotencyKey(f"{n}", b"a")))
        for n in range(10)
    ]
    await turns()
    desk.gate.set()
    await asyncio.gather(*asked)
    assert [len(call) for call in desk.calls] == [1, 10]


async def test_no_two_of_a_commit_have_a_unique_key_in_common(desk: Desk) -> None:
    desk.gate.clear()
    keys = [IdempotencyKey(f"{n}", b"a") for n in range(10)]
    asked = [asyncio.create_task(desk.operations.create(CALLER, request(unique_key="u"), key)) for key in keys]
    await turns()
    desk.gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [len(call) for call in desk.calls] == [1] * 10
    assert sum(isinstance(answer, DuplicateJob) for answer in answers) == 9


async def test_a_key_that_somebody_else_is_taking_holds_up_nobody_but_itself(desk: Desk) -> None:
    desk.gate.clear()
    asked = [asyncio.create_task(desk.operations.create(CALLER, request(), IdempotencyKey("first", b"a")))]
    await turns()
    for key in ("a", "busy", "c"):
        asked.append(asyncio.create_task(desk.operations.create(CALLER, request(), IdempotencyKey(key, b"a"))))
    await turns()
    desk.gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, Overloaded) for answer in answers] == [False, False, True, False]


async def test_who_waits_too_long_for_a_turn_is_told_to_come_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "TURN_SECONDS_MAX", 0.01)
    desk.gate.clear()
    first = asyncio.create_task(desk.operations.create(CALLER, request(), KEY))
    await turns()
    with pytest.raises(Overloaded, match="still under way"):
        await desk.operations.create(CALLER, request(), KEY)
    desk.gate.set()
    assert not (await first).replayed
    assert (await desk.operations.create(CALLER, request(), KEY)).replayed


async def test_turns_are_forgotten_when_nobody_waits(desk: Desk) -> None:
    for number in range(10):
        await desk.operations.create(CALLER, request(), IdempotencyKey(f"{number}", b"a"))
    assert len(desk.operations._keyed._turns) == 0


async def test_a_second_job_with_a_unique_key_is_refused_and_the_first_one_named(desk: Desk) -> None:
    first = await desk.operations.create(CALLER, request(unique_key="u"))
    assert first.job.unique_key == "u"
    with pytest.raises(DuplicateJob) as refused:
        await desk.operations.create(CALLER, request(unique_key="u"))
    assert refused.value.job_id == first.job.job_id
    assert refused.value.faults == [
        Fault("/unique_key", "duplicate-job", f"job {first.job.job_id} has this unique key")
    ]


async def test_in_a_batch_each_job_that_is_there_already_is_pointed_to(desk: Desk) -> None:
    first = await desk.operations.create(CALLER, request(unique_key="u1"))
    with pytest.raises(DuplicateJob) as refused:
        await desk.operations.create_many(CALLER, [request(unique_key=f"u{n}") for n in range(3)])
    assert (refused.value.job_id, [fault.pointer for fault in refused.value.faults]) == (
        first.job.job_id,
        ["/1/unique_key"],
    )
    with pytest.raises(DuplicateJob) as refused:
        await desk.operations.create_many(CALLER, [request(unique_key="u1")])
    assert [fault.pointer for fault in refused.value.faults] == ["/0/unique_key"]


async def test_a_unique_key_twice_in_one_batch_is_a_fault_of_the_batch(desk: Desk) -> None:
    with pytest.raises(InvalidFields) as refused:
        await desk.operations.create_many(CALLER, [request(name=""), *(request(unique_key="u") for _ in range(3))])
    assert {fault.pointer: fault.code for fault in refused.value.faults} == {
        "/0/name": "invalid-name",
        "/2/unique_key": "repeated-key",
        "/3/unique_key": "repeated-key",
    }


async def test_the_period_of_a_unique_key_ends_by_the_clock(desk: Desk) -> None:
    desk.time = NOW + timedelta(minutes=20)
    await desk.operations.create(CALLER, request(unique_key="u", unique_period="1h"))
    await desk.operations.create(CALLER, request(unique_key="v"))
    untils = {new.unique.key: new.unique.until for new in desk.jobs.values() if new.unique}
    assert untils == {"u": NOW + timedelta(hours=1), "v": None}


@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        ({"unique_key": ""}, {"/unique_key": "invalid-key"}),
        ({"unique_key": "x" * 256}, {"/unique_key": "invalid-key"}),
        ({"unique_key": " x"}, {"/unique_key": "invalid-key"}),
        ({"unique_key": "a\u200bb"}, {"/unique_key": "invalid-key"}),
        ({"unique_key": "a\nb"}, {"/unique_key": "invalid-key"}),
        ({"unique_key": "x" * 255, "unique_period": "366d"}, {}),
        ({"unique_key": "Rechnung 7 für März"}, {}),
        ({"unique_key": "u", "unique_period": "soon"}, {"/unique_period": "invalid-duration"}),
        ({"unique_key": "u", "unique_period": "500ms"}, {"/unique_period": "out-of-range"}),
        ({"unique_key": "u", "unique_period": "367d"}, {"/unique_period": "out-of-range"}),
        ({"unique_period": "1h"}, {"/unique_period": "conflicting-fields"}),
        ({"unique_key": "", "name": ""}, {"/name": "invalid-name", "/unique_key": "invalid-key"}),
    ],
)
async def test_every_fault_of_a_unique_key_is_told(desk: Desk, fields: Any, faults: dict[str, str]) -> None:
    found = desk.operations.faults_of(CALLER, request(**fields))
    assert {fault.pointer: fault.code for fault in found} == faults
