"""Plain submissions take a shorter road; nobody can tell but by the clock."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from api_fakes import BOUND_TOKEN, TOKEN, FakeAccess
from operator_fakes import FakeBus

from hourhand.api.answers import encode
from hourhand.api.app import ApiSettings, Application, Service
from hourhand.api.auth import Authenticator
from hourhand.api.bodies import BodyRoom, Patience
from hourhand.api.gate import Gate
from hourhand.api.router import Router
from hourhand.api.routes.jobs import JobRoutes
from hourhand.api.short_road import PATH, ShortRoad
from hourhand.job_kinds.registry import kinds_for_checking
from hourhand.model.errors import DatabaseUnavailable
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.offers import Offers
from hourhand.ports.stores import NewJob
from hourhand.runtime.ids import IdSource

NOW = datetime(2025, 9, 24, 8, 0, 0, 123456, tzinfo=UTC)
not_asked: Any = None

PLAIN = [
    b'{"name":"a"}',
    b'{"name":"a","payload":{}}',
    b'{"name":"a","payload":null}',
    b'{"payload":{"handler":"x.y","n":[1,2.5,-3,true,null,{"k":"v"}]},"name":"a"}',
    b'{"name":"a","schedule":{"at":"2025-09-24T08:00:01Z"}}',
    b'{"name":"a","schedule":{"at":"2025-09-24T10:00:00.5Z"}}',
    b'{"name":"a","schedule":{"at":"2026-09-24T10:00:00.000007Z"},"queue":"q-1","priority":0}',
    b'{"name":"a","schedule":{"at":"2025-09-24T12:00:00+02:00"},"priority":9}',
    b'{"name":"a","schedule":null}',
    b'{"name": "a \\u00e9 \\"quoted\\" \xc3\xa9", "payload": {"a": 1e3, "b": "\\\\u0000"}}',
    b'{"name":"a","kind":"command","payload":{"argv":["/bin/true"]}}',
    b'{"name":"a","payload":{"n":9223372036854775807}}',
]
UNUSUAL = [
    b"",
    b"{",
    b"[]",
    b'"a"',
    b'{"name":"a","name":"a"}',
    b'{"name":"a","payload":{"x":1,"x":1}}',
    b'{"name":"a","payload":{"x":10,"x":1e2}}',
    b'{"name":"a","payload":{"x":"\\u0000"}}',
    b'{"name":"a","payload":{"x":9223372036854775808}}',
    b'{"name":"a","payload":{"x":99999999999999999999999}}',
    b'{"name":"a","payload":{"x":"\xff"}}',
    b'{"name":"a","payload":[]}',
    b'{"name":1}',
    b'{"name":""}',
    b'{"name":"a\\u202eb"}',
    b'{"payload":{}}',
    b'{"name":"a","nmae":"b"}',
    b'{"name":"a","labels":{"a":"b"}}',
    b'{"name":"a","namespace":"default"}',
    b'{"name":"a","namespace":"team-a"}',
    b'{"name":"a","kind":"nope"}',
    b'{"name":"a","kind":null}',
    b'{"name":"a","kind":"command","payload":{}}',
    b'{"name":"a","payload":{"handler":5}}',
    b'{"name":"a","payload":{"x":"{{ scheduled_for }}"}}',
    b'{"name":"a","queue":"no queue"}',
    b'{"name":"a","priority":10}',
    b'{"name":"a","priority":true}',
    b'{"name":"a","priority":"high"}',
    b'{"name":"a","priority":1.0}',
    b'{"name":"a","schedule":"now"}',
    b'{"name":"a","schedule":{"cron":"* * * * *"}}',
    b'{"name":"a","schedule":{"at":"2025-09-24T07:00:00Z"}}',
    b'{"name":"a","schedule":{"at":"2025-02-30T07:00:00Z"}}',
    b'{"name":"a","schedule":{"at":"2099-09-24T07:00:00Z"}}',
    b'{"name":"a","schedule":{"at":"2025-09-24T10:00:00Z","if_past":"run"}}',
    b'{"name":"a","schedule":{"at":7}}',
]


class FixedClock:
    def now(self) -> datetime:
        return NOW


class MemoryStore:
    """Where jobs go when they are inserted."""

    def __init__(self) -> None:
        self.stored: list[NewJob] = []
        self.fail_with: Exception | None = None

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> None:
        if self.fail_with is not None:
            raise self.fail_with
        self.stored += jobs

    def __getattr__(self, name: str) -> Any:
        return not_asked


class Site:
    """Both roads around real operations, which store into memory."""

    def __init__(self, *, body_seconds_max: float = 5.0, bodies_bytes_max: int = 1 << 20) -> None:
        settings = ApiSettings(body_seconds_max=body_seconds_max, bodies_bytes_max=bodies_bytes_max)
        self.store, self.bus, self.access = MemoryStore(), FakeBus(), FakeAccess()
        self.seconds = 100.0
        stored: Any = self.store
        self.offers = Offers()
        jobs = JobOperations(
            stored, not_asked, not_asked, kinds_for_checking(), FixedClock(), IdSource(7), self.bus, SubmitSettings(),
            offers=self.offers,
        )  # fmt: skip
        who: Any = self.access
        authenticator = Authenticator(who, settings, lambda: self.seconds)
        service = Service(authenticator, settings)
        endpoints = JobRoutes(jobs, not_asked, settings).endpoints()
        gate = Gate(Application(service, Router(endpoints)), settings)
        self.long_taken = 0

        async def long_road(scope: Any, receive: Any, send: Any) -> None:
            self.long_taken += 1
            await gate(scope, receive, send)

        self.room: BodyRoom = service.room
        patience: Patience = service.patience
        self.short = ShortRoad(long_road, jobs, authenticator, settings, self.room, patience, lambda: self.seconds)
        self.long = gate
        self.jobs = jobs

    async def submit(
        self,
        body: bytes | None,
        *,
        app: Any = None,
        headers: Sequence[Any] = (),
        token: str = TOKEN,
        pieces: Sequence[bytes] | None = None,
        **more: Any,
    ) -> Any:
        """Status, headers and content of the answer. No body: it is announced and never comes."""
        announced = len(body) if body is not None else 10
        sent: list[dict[str, Any]] = []
        left = [body] if pieces is None else list(pieces)

        async def receive() -> dict[str, Any]:
            if body is None:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": PATH, "query_string": b"", "scheme": "http",
            "client": ("127.0.0.1", "1"),
            "headers": [
                (b"host", b"localhost:8780"), (b"authorization", f"Bearer {token}".encode()),
                (b"content-type", b"application/json"), (b"content-length", str(announced).encode()),
                (b"x-request-id", b"the-same"), *headers,
            ],
            **more,
        }  # fmt: skip
        await (app or self.short)(scope, receive, send)
        return sent[0]["status"], sent[0]["headers"], sent[1]["body"]

    async def warm(self) -> "Site":
        """The long road asks who it is; from then on that is known."""
        await self.submit(b"{}")
        self.long_taken = 0
        return self


@pytest.mark.parametrize("body", PLAIN)
async def test_a_plain_job_is_stored_and_answered_as_on_the_long_road_byte_for_byte(body: bytes) -> None:
    short, long = await Site().warm(), await Site().warm()
    answers = await short.submit(body), await long.submit(body, app=long.long)

    assert short.long_taken == 0
    assert answers[0] == answers[1]
    assert answers[0][0] == 202
    assert encode(stored(short)) == encode(stored(long))
    assert [new.job_id for new in short.store.stored] == [new.job_id for new in long.store.stored]
    assert short.bus.told == long.bus.told
    assert short.room._taken == 0


async def test_who_submits_what_no_live_executor_offers_is_warned_and_whoever_submits_something_else_is_not() -> None:
    site = await Site().warm()
    site.offers.learn([{"queues": ["default"], "offers": {"inline": ["python:known"]}}])

    status, _, content = await site.submit(b'{"name":"a","payload":{"handler":"unknown"}}')
    assert (status, site.long_taken) == (202, 1)
    assert msgspec.json.decode(content)["warnings"] == [
        "no-matching-executor: no live executor of queue default offers python:unknown; its runs wait for one"
    ]
    status, _, content = await site.submit(b'{"name":"a","payload":{"handler":"known"}}')
    assert (status, site.long_taken) == (202, 1), "the short road"
    assert "warnings" not in msgspec.json.decode(content)


async def _nothing_is_plain(*_: Any) -> None:
    return None


async def both_ways(batch: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Site, Any, Any]:
    """A batch along its short way, where it is plain, and along the long one."""
    short, long = await Site().warm(), await Site().warm()
    monkeypatch.setattr(long.jobs.plain, "read_many", _nothing_is_plain)
    path = {"path": f"{PATH}/batch"}
    return short, long, await short.submit(batch, **path), await long.submit(batch, **path)


def stored(site: Site) -> list[Any]:
    """What the jobs come to: but for their ids, and for the payload that the short road has encoded already."""
    for new in site.store.stored:
        assert new.plain_payload in (None, encode(new.definition.payload))
    return [msgspec.structs.replace(new, job_id=None, plain_payload=None) for new in site.store.stored]


@pytest.mark.parametrize("times", [1, 700])
async def test_a_batch_of_plain_jobs_is_stored_and_answered_as_on_the_long_road(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = b"[" + b",".join(PLAIN * times) + b"]"
    short, long, taken, wanted = await both_ways(batch, monkeypatch)
    assert (taken[0], len(taken[2])) == (wanted[0], len(wanted[2])) == (202, len(wanted[2]))
    assert encode(stored(short)) == encode(stored(long))
    assert len(short.store.stored) == times * len(PLAIN)
    assert len({new.job_id for new in short.store.stored}) == times * len(PLAIN)
    assert short.bus.told == long.bus.told
    monkeypatch.setattr(short.jobs, "create_many", None)  # which is the long way
    assert (await short.submit(batch, path=f"{PATH}/batch"))[0] == 202


async def test_a_batch_whose_jobs_take_long_to_judge_lets_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = await Site().warm()
    judge, turns = site.jobs._new_job, 0

    def judge_slowly(*given: Any) -> NewJob:
        begun = time.perf_counter()
        while time.perf_counter() < begun + 0.011:
            pass
        return judge(*given)

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    monkeypatch.setattr(site.jobs, "_new_job", judge_slowly)
    at_it = asyncio.create_task(others())
    body = b"[" + b",".join([b'{"name":"a","labels":{"a":"b"}}'] * 6) + b"]"
    assert (await site.submit(body, path=f"{PATH}/batch"))[0] == 202
    at_it.cancel()
    assert turns >= 3


@pytest.mark.parametrize("body", UNUSUAL)
async def test_a_batch_with_anything_unusual_or_wrong_is_answered_as_on_the_long_road(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = b'{"name":"a","priority":1},'  # the same, for Python, as true and 1.0
    for batch in (b'[{"name":"a"},' + body + b"]", b"[" + body + b"]", b"[" + alike + body + b"]"):
        short, long, taken, wanted = await both_ways(batch, monkeypatch)
        assert taken[0] == wanted[0]
        if taken[0] != 202:  # what is stored has an id, and which one is chance
            assert taken == wanted
        assert encode(stored(short)) == encode(stored(long))


@pytest.mark.parametrize("body", UNUSUAL)
async def test_what_is_unusual_or_wrong_is_answered_by_the_long_road(body: bytes) -> None:
    short, long = await Site().warm(), await Site().warm()
    taken, wanted = await short.submit(body), await long.submit(body, app=long.long)

    assert short.long_taken == 1
    assert taken[0] == wanted[0]
    if taken[0] != 202:  # what is stored has an id, and which one is chance
        assert taken == wanted
    assert short.room._taken == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"host", b"localhost:8780")], 400),
        ([(b"content-length", b"12")], 400),
        ([(b"content-encoding", b"gzip")], 415),
        ([(b"accept", b"text/html")], 406),
        ([(b"x-long", b"x" * 40_000)], 431),
        ([(b"cookie", b"a=b")], 202),
    ],
)
async def test_headers_with_anything_special_take_the_long_road(headers: list[Any], status: int) -> None:
    site = await Site().warm()
    assert (await site.submit(b'{"name":"a"}', headers=headers))[0] == status
    assert site.long_taken == 1


async def test_another_query_or_method_or_path_takes_the_long_road() -> None:
    site = await Site().warm()
    assert (await site.submit(b'{"name":"a"}', query_string=b"namespace=default"))[0] == 202
    assert (await site.submit(b'{"name":"a"}', query_string=b"token=hh_x"))[0] == 400
    assert (await site.submit(b'{"name":"a"}', method="TRACE"))[0] == 405
    assert (await site.submit(b'{"name":"a"}', path="/api/v1/nothing"))[0] == 404
    assert site.long_taken == 4


async def test_a_token_is_trusted_no_longer_than_the_authenticator_would() -> None:
    site = await Site().warm()
    assert (await site.submit(b'{"name":"a"}'))[0] == 202
    asked = site.long_taken
    site.access.revoked = True
    site.seconds += 3600
    assert (await site.submit(b'{"name":"a"}'))[0] == 401
    assert site.long_taken == asked + 1


async def test_an_unknown_token_is_refused_each_time() -> None:
    site = await Site().warm()
    for _ in range(3):
        assert (await site.submit(b'{"name":"a"}', token="hh_wrong"))[0] == 401
        assert (await site.submit(b'{"name":"a"}'))[0] == 202
    assert site.long_taken == 3


async def test_callers_with_the_same_headers_but_their_tokens_are_told_apart() -> None:
    site = await Site().warm()
    for _ in range(2):
        assert b'"namespace":"team-a"' in (await site.submit(b'{"name":"a"}', token=BOUND_TOKEN))[2]
        assert b'"namespace":"default"' in (await site.submit(b'{"name":"a"}'))[2]
    assert site.long_taken == 1


async def test_a_body_that_does_not_come_is_given_up() -> None:
    site = await Site(body_seconds_max=0.05).warm()
    status, _, content = await site.submit(None)
    assert (status, site.long_taken) == (408, 0)
    assert b"request-timeout" in content


async def test_a_body_without_room_is_refused_and_told_to_come_back() -> None:
    site = await Site(bodies_bytes_max=20).warm()
    site.room.take(15)
    assert (await site.submit(b'{"name":"a"}'))[0] == 503
    site.room.give_back(15)
    assert (await site.submit(b'{"name":"a"}'))[0] == 202
    assert site.long_taken == 0


async def test_what_the_database_says_against_it_is_told_as_on_the_long_road() -> None:
    short, long = await Site().warm(), await Site().warm()
    for site in (short, long):
        site.store.fail_with = DatabaseUnavailable("gone")
    taken, wanted = await short.submit(b'{"name":"a"}'), await long.submit(b'{"name":"a"}', app=long.long)
    assert short.long_taken == 0
    assert taken == wanted
    assert taken[0] == 503


async def test_a_body_that_comes_in_pieces_is_read_whole_on_the_long_road() -> None:
    site = await Site().warm()
    answer = await site.submit(b'{"name":"abc"}', pieces=[b'{"name"', b':"abc"}'])
    assert (answer[0], site.long_taken) == (202, 1)
    assert [new.definition.name for new in site.store.stored] == ["abc"]


async def test_a_body_with_all_announced_bytes_is_whole_though_the_server_has_not_said_so() -> None:
    site = await Site().warm()
    answer = await site.submit(b'{"name":"abc"}', pieces=[b'{"name":"abc"}', b""])
    assert (answer[0], site.long_taken) == (202, 0)
    unusual = await site.submit(
        b'{"name":"abc","labels":{"a":"b"}}', pieces=[b'{"name":"abc","labels":{"a":"b"}}', b""]
    )
    assert (unusual[0], site.long_taken) == (202, 1)
