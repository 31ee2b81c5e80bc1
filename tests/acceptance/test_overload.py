"""More than the API has room for is refused at the door and told when to come back; what was accepted runs once."""

import asyncio
import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cages import wait_for
from harness import Up, run_async

from hourhand.bench.bodies import Acknowledged, batch_of_one_kind, job_body
from hourhand.bench.wire import Answered, Wire
from hourhand.bench.witness import compare, read_witness

BATCH = 200
BODY = batch_of_one_kind(job_body(), BATCH)
CALLERS = 24
SECONDS = 1.5


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """An Hourhand whose API has room for three of our bodies at once."""
    room = {"HOURHAND_API_BODIES_BYTES_MAX": str(3 * len(BODY))}
    with Up(tmp_path_factory.mktemp("narrow"), environment=room) as up:
        yield up


class Flood:
    """Callers that all want more than there is room for; some obey, some come back at once."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self.statuses: Counter[int] = Counter()
        self.refusals: list[Answered] = []
        self.acknowledged = Acknowledged(read_at_once=True)

    async def run(self) -> None:
        until = time.monotonic() + SECONDS
        async with Wire(self._up.url, self._up.token) as wire, asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(self._call(wire, until, obeys=number % 2 == 0))

    async def _call(self, wire: Wire, until: float, *, obeys: bool) -> None:
        request = wire.request("POST", "/api/v1/jobs/batch", BODY)
        while time.monotonic() < until:
            async with wire.connection() as connection, asyncio.timeout(30):
                answered = await connection.ask(request)
                if answered.status != 202:
                    connection.close()  # the rest of the body need not have been read
            self.statuses[answered.status] += 1
            if answered.status == 202:
                self.acknowledged.add_batch(answered.body, BATCH)
            else:
                self.refusals.append(answered)
                await asyncio.sleep(float(answered.retry_after or 0) if obeys else 0)


@pytest.fixture(scope="module")
def flood(narrow: Up) -> Flood:
    flood = Flood(narrow)
    run_async(flood.run())
    return flood


def lines(witness: Path) -> int:
    return witness.read_bytes().count(b"\n") if witness.exists() else 0


def test_callers_beyond_the_room_are_refused_and_nobody_is_hung_up_on(flood: Flood) -> None:
    assert flood.statuses.keys() == {202, 503}


def test_a_refusal_says_why_and_when_to_come_back(flood: Flood) -> None:
    for refusal in flood.refusals:
        problem = json.loads(refusal.body)
        assert problem["type"] == "urn:hourhand:problem:overloaded"
        assert refusal.retry_after is not None
        assert refusal.retry_after >= 1


def test_what_was_accepted_runs_once_and_what_was_refused_never(narrow: Up, flood: Flood) -> None:
    accepted = flood.acknowledged.count
    wait_for(lambda: lines(narrow.witness) >= accepted, f"{accepted} jobs have run", 60)
    witnessed = read_witness(narrow.witness)
    assert compare(flood.acknowledged.lows(), witnessed.lows) == {"lost": 0, "doubled": 0}
    assert len(witnessed) == accepted  # nothing that was refused


def test_afterwards_it_takes_jobs_as_before(narrow: Up, flood: Flood) -> None:
    with narrow.http() as http:
        answers = [http.post("/api/v1/jobs/batch", content=BODY, headers={"Content-Type": "application/json"})]
        answers += [http.post("/api/v1/jobs", json=json.loads(job_body())) for _ in range(5)]
        assert http.get("/readyz").status_code == 200
    assert [answer.status_code for answer in answers] == [202] * 6


SILENT = 2500


def test_thousands_who_connect_and_say_nothing_keep_nobody_out(narrow: Up) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SILENT + 500:
        pytest.skip("this machine does not allow so many open files")

    async def call_beside_them() -> Answered:
        silent: list[asyncio.StreamWriter] = []
        try:
            for _ in range(SILENT):
                _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", narrow.port), 10)
                silent.append(writer)
            async with Wire(narrow.url, narrow.token) as wire, asyncio.timeout(10):
                return await wire.post("/api/v1/jobs", job_body())
        finally:
            for writer in silent:
                writer.close()

    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, SILENT + 500)), hard))
    try:
        assert run_async(call_beside_them()).status == 202
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
