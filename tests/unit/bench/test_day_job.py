"""The job of a day: its log is as long as asked, and can be stored in less room, but not in none."""

import random
import re
import zlib
from datetime import UTC, datetime

import msgspec
import pytest

from hourhand.bench.day import Day, _Users, plan_of
from hourhand.bench.day_job import log_lines, note_of
from hourhand.bench.wire import Answered, Wire
from hourhand.model.errors import WorldError

NOON = datetime(2030, 1, 7, 12, tzinfo=UTC)
LINE = re.compile(r"2030-01-07T12:\d\d:\d\d\.\d{3}Z (INFO |DEBUG|WARN ) \[[a-z.0-9]+\] \S.*")


def test_a_log_has_as_many_bytes_as_asked_in_lines_as_programs_write_them() -> None:
    lines = list(log_lines(random.Random(7), 5120, NOON))
    assert sum(len(line) + 1 for line in lines) == 5120
    assert 30 < len(lines) < 80
    assert all(LINE.fullmatch(line) for line in lines[:-1])


def test_logs_can_be_compressed_as_logs_can_and_differ_from_each_other() -> None:
    logs = ["\n".join(log_lines(random.Random(number), 5120, NOON)).encode() for number in range(20)]
    shares = [len(zlib.compress(log)) / len(log) for log in logs]
    assert 0.25 < min(shares) < max(shares) < 0.4
    assert len({line for log in logs for line in log.splitlines()}) > 900  # hardly any line twice


@pytest.mark.parametrize("number", [0, 1, 3, 55])
def test_a_job_of_the_day_is_a_kilobyte_as_it_is_submitted(number: int) -> None:
    job = _Users(Wire("http://x", "t"), Day())._job(plan_of(number), 10.0)
    assert len(msgspec.json.encode(job)) == 1024
    assert note_of(number, 300) != note_of(number + 1, 300)


class Refusing(Wire):
    """Answers so many times that the job came too late."""

    def __init__(self, refusals: int) -> None:
        super().__init__("http://x", "t")
        self.left = refusals

    async def ask(self, request: bytes) -> Answered:
        self.left -= 1
        return Answered(422, b"{}") if self.left >= 0 else Answered(202, b'{"job_id":"0"}')


async def test_who_came_too_late_chooses_a_later_time() -> None:
    users = _Users(Refusing(2), Day(faster=480))
    _, ahead = await users._submitted(plan_of(0))
    assert ahead >= 20  # twice 5 s, twice
    assert users.facts()["came_late"] == 2


async def test_what_is_refused_for_another_reason_is_told() -> None:
    with pytest.raises(WorldError, match="422"):
        await _Users(Refusing(99), Day())._submitted(plan_of(0))
