"""Bodies are what the API takes, and ids are what it gave."""

import msgspec
import pytest

from hourhand.bench.bodies import (
    Acknowledged,
    at_batch,
    at_body_maker,
    batch_of_one_kind,
    instant_text,
    job_body,
)
from hourhand.bench.witness import low_half
from hourhand.model.local_time import parse_instant
from hourhand.operations.requests import JobRequest

IDS = [f"0193{number:04x}-1111-7222-8333-{number:012x}" for number in range(1, 6)]


def batch_answer(ids: list[str]) -> bytes:
    return msgspec.json.encode({"job_ids": ids, "count": len(ids)})


def test_a_due_time_goes_into_the_body_to_the_microsecond() -> None:
    make = at_body_maker()
    dues = [1_763_280_000_000_000, 1_763_280_000_000_001, 1_763_280_001_999_999, 1_763_280_000_500_000]

    jobs = msgspec.json.decode(at_batch(make, dues), type=list[JobRequest])

    found = [parse_instant(job.schedule["at"]) for job in jobs]
    assert [round(instant.timestamp() * 1_000_000) for instant in found] == dues
    assert all(job.payload is not None and job.payload["handler"] == "bench.noop" for job in jobs)


def test_a_batch_holds_as_many_jobs_as_asked() -> None:
    jobs = msgspec.json.decode(batch_of_one_kind(job_body(priority=7), 3), type=list[JobRequest])
    assert [job.priority for job in jobs] == [7, 7, 7]


def test_instants_are_told_in_utc() -> None:
    assert instant_text(1_763_280_000_000_000) == "2025-11-16T08:00:00Z"
    assert instant_text(1_763_280_000_250_000) == "2025-11-16T08:00:00.250000Z"


@pytest.mark.parametrize("at_once", [False, True])
def test_acknowledged_ids_are_read_from_the_answers(at_once: bool) -> None:
    acknowledged = Acknowledged(read_at_once=at_once)
    acknowledged.add_batch(batch_answer(IDS[:2]), 2)
    acknowledged.add_batch(batch_answer(IDS[2:4]), 2)
    assert acknowledged.latest() == IDS[2:4]
    acknowledged.add_one(msgspec.json.encode({"job_id": IDS[4], "name": "x"}))

    assert acknowledged.count == 5
    assert sorted(acknowledged.lows()) == sorted(low_half(each) for each in IDS)


def test_a_single_answer_can_be_read_later() -> None:
    acknowledged = Acknowledged()
    for each in IDS:
        acknowledged.add_one_unread(msgspec.json.encode({"job_id": each, "name": "x", "payload": {"a": [1]}}))
    assert acknowledged.ids(5) == IDS
    assert list(acknowledged.lows()) == [low_half(each) for each in IDS]


def test_fewer_ids_than_jobs_are_noticed() -> None:
    acknowledged = Acknowledged()
    acknowledged.add_batch(batch_answer(IDS[:2]), 3)
    with pytest.raises(AssertionError, match="3 jobs were sent and 2 ids came back"):
        acknowledged.lows()
