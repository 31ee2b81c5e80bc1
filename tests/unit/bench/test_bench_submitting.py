"""Submitting ahead of time: ids come in the order of the jobs, and a first due time that has passed is refused."""

import asyncio
from typing import Any

import msgspec
import pytest

from hourhand.bench.report import Progress
from hourhand.bench.submitting import MICROS, batches_at, first_due, now_micros, refuse_late, submit_batches
from hourhand.bench.wire import Answered
from hourhand.bench.witness import low_half
from hourhand.model.errors import WorldError


class Slow:
    """A server that answers the first batch last."""

    def __init__(self) -> None:
        self.at_once = 0
        self.most = 0

    async def post(self, path: str, body: bytes) -> Answered:
        jobs: list[dict[str, Any]] = msgspec.json.decode(body)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for _ in range(50 if jobs[0]["name"] == "0" else 1):
            await asyncio.sleep(0)
        self.at_once -= 1
        ids = [f"00000000-0000-7000-8000-{int(job['name']):012x}" for job in jobs]
        return Answered(202, msgspec.json.encode({"job_ids": ids, "count": len(ids)}))


def batch(*names: int) -> tuple[bytes, int]:
    return msgspec.json.encode([{"name": str(name)} for name in names]), len(names)


async def test_ids_are_in_the_order_of_the_jobs_whichever_batch_is_answered_first() -> None:
    wire: Any = Slow()
    batches = [batch(0, 1), batch(2, 3), batch(4), batch(5, 6, 7)]

    submitted = await submit_batches(wire, batches, Progress.silent(), 8)

    expected = [low_half(f"00000000-0000-7000-8000-{number:012x}") for number in range(8)]
    assert list(submitted.acknowledged.lows()) == expected
    assert submitted.acknowledged.count == 8
    assert wire.most == 3


def test_due_times_are_cut_into_batches() -> None:
    dues = list(range(0, 25 * MICROS, MICROS))
    found = [(len(msgspec.json.decode(body)), count) for body, count in batches_at(dues, 10)]
    assert found == [(10, 10), (10, 10), (5, 5)]


def test_the_first_due_time_leaves_room_for_the_submission() -> None:
    begin = first_due(10_000, 5000)
    assert (begin - now_micros()) / MICROS > 2 * 1.2


def test_a_first_due_time_that_has_passed_is_refused() -> None:
    refuse_late(now_micros() + MICROS, "10 jobs")
    with pytest.raises(WorldError, match="10 jobs were submitted"):
        refuse_late(now_micros() - MICROS, "10 jobs")
