"""How much of bodies may be in hand at once: more is refused at the door, and asked to come back."""

import asyncio
from typing import Any

import httpx
import pytest
from api_fakes import TOKEN, FakeJobs

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.api.bodies import BodyRoom, Place
from hourhand.model.errors import Overloaded
from hourhand.operations.requests import SubmittedMany

BODY = b'[{"name": "' + b"x" * 100 + b'"}]'


@pytest.fixture
def settings() -> ApiSettings:
    return ApiSettings(bodies_bytes_max=2 * len(BODY) + 10)


@pytest.fixture
async def http(operations: ApiOperations, settings: ApiSettings) -> Any:
    transport = httpx.ASGITransport(build_app(operations, settings))
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


@pytest.fixture
def held(jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch) -> "Held":
    """Batches that are not answered before they are let go."""
    held = Held()
    monkeypatch.setattr(jobs, "create_many", held.create_many)
    return held


class Held:
    def __init__(self) -> None:
        self.inside = 0
        self.let_go = asyncio.Event()
        self.changed = asyncio.Condition()

    async def create_many(self, *_: Any) -> SubmittedMany:
        async with self.changed:
            self.inside += 1
            self.changed.notify_all()
        await self.let_go.wait()
        return SubmittedMany([])

    async def until_inside(self, count: int) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: self.inside == count)


async def test_more_bodies_than_there_is_room_for_are_asked_to_come_back(http: httpx.AsyncClient, held: Held) -> None:
    first = [asyncio.create_task(http.post("/api/v1/jobs/batch", content=BODY)) for _ in range(2)]
    await held.until_inside(2)
    refused = await http.post("/api/v1/jobs/batch", content=BODY)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["type"] == "urn:hourhand:problem:overloaded"
    assert (await http.get("/api/v1/whoami")).status_code == 200, "what brings no body is served"
    held.let_go.set()
    assert [answer.status_code for answer in await asyncio.gather(*first)] == [202, 202]
    assert (await http.post("/api/v1/jobs/batch", content=BODY)).status_code == 202, "there is room again"


async def test_room_is_free_again_after_requests_that_failed(http: httpx.AsyncClient, held: Held) -> None:
    held.let_go.set()
    for _ in range(5):
        assert (await http.post("/api/v1/jobs/batch", content=b"[" + BODY[1:-1] + b",]")).status_code == 400
    assert (await http.post("/api/v1/jobs/batch", content=BODY)).status_code == 202


async def test_a_body_without_a_length_is_counted_as_it_comes(http: httpx.AsyncClient, held: Held) -> None:
    first = [asyncio.create_task(http.post("/api/v1/jobs/batch", content=BODY)) for _ in range(2)]
    await held.until_inside(2)

    async def pieces() -> Any:
        for place in range(0, len(BODY), 20):
            yield BODY[place : place + 20]

    assert (await http.post("/api/v1/jobs/batch", content=pieces())).status_code == 503
    held.let_go.set()
    await asyncio.gather(*first)


def test_a_body_that_is_alone_finds_room_whatever_its_size() -> None:
    room = BodyRoom(10)
    with Place(room) as place:
        place.grow_to(50)
        with Place(room) as other, pytest.raises(Overloaded):
            other.grow_to(1)
    with Place(room) as place:
        place.grow_to(10)


def test_a_place_never_gives_back_more_than_it_took() -> None:
    room = BodyRoom(10)
    with Place(room) as place:
        place.grow_to(6)
        place.grow_to(4)  # a body that is shorter than it was announced to be
        assert place.taken == 6
    with Place(room) as place, Place(room) as other:
        place.grow_to(5)
        other.grow_to(5)
