"""Submissions are sent again when their answer is lost, with the same key, and only then."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from stub_api import TOKEN, Refused, Seen, Stub

from hourhand.client import AnswerLost, ApiProblem, AsyncClient, Client, calls, scripts
from hourhand.client.calls import NDJSON_FROM, Call
from hourhand.client.scripts import RESUBMIT_SECONDS, Playing, Wait
from hourhand.model.errors import InvalidParameter, ServerUnreachable

LOST = AnswerLost("the connection was closed")
GONE = ServerUnreachable("connection refused")
BUSY = ApiProblem(503, "overloaded", "busy", retry_after_seconds=60)


# --- what is sent -----------------------------------------------------------------------------------------


def test_every_submission_has_a_key_of_its_own(client: Client, stub: Stub) -> None:
    client.create_job(name="a")
    client.create_job(name="a")
    client.create_jobs([{"name": "a"}])
    client.create_jobs([{"name": "a"}] * NDJSON_FROM)
    keys = [seen.headers["idempotency-key"] for seen in stub.seen]
    assert len(set(keys)) == 4
    assert {len(key) for key in keys} == {32}


def test_a_key_of_the_callers_own_is_sent_and_none_where_none_is_wanted(client: Client, stub: Stub) -> None:
    client.create_job(name="a", idempotency_key="mine")
    client.create_jobs([{"name": "a"}], idempotency_key="mine-too")
    client.create_job(name="a", idempotency_key=None)
    client.create_jobs([{"name": "a"}], idempotency_key=None)
    assert [seen.headers.get("idempotency-key") for seen in stub.seen] == ["mine", "mine-too", None, None]


@pytest.mark.parametrize("key", ["", "a b", "schlüssel", "a\nX: y"])
def test_a_key_that_cannot_stand_in_a_header_is_refused_before_anything_is_sent(
    client: Client, stub: Stub, key: str
) -> None:
    with pytest.raises(InvalidParameter, match="idempotency_key"):
        client.create_job(name="a", idempotency_key=key)
    assert stub.seen == []


def test_a_duplicate_names_the_job_that_is_there(client: Client, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"type": "urn:hourhand:problem:duplicate-job", "detail": "there", "job_id": "0192"}'
    stub.raw = (409, "application/problem+json", body)
    with pytest.raises(ApiProblem) as refused:
        client.create_job(name="a", unique_key="u")
    assert (refused.value.code, refused.value.job_id) == ("duplicate-job", "0192")
    assert len(stub.seen) == 1


# --- over a real socket -----------------------------------------------------------------------------------


def busy_at_first(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses the first two requests; carries out what it hears once per key."""
    answer, asked = stub.answer, itertools.count(1)
    made: dict[str, Any] = {}

    def answered(seen: Seen) -> tuple[int, Any]:
        if next(asked) <= 2:
            raise Refused(503, "database-unavailable", "the database cannot be reached")
        return made.setdefault(seen.headers["idempotency-key"], answer(seen))

    monkeypatch.setattr(stub, "answer", answered)


def test_a_submission_is_sent_again_with_the_same_key_while_the_server_is_busy(
    client: Client, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_at_first(stub, monkeypatch)
    job = client.create_job(name="a")
    assert [*stub.jobs] == [str(job.job_id)]
    assert len(stub.seen) == 3
    assert len({(seen.headers["idempotency-key"], seen.body) for seen in stub.seen}) == 1


async def test_the_asynchronous_client_does_the_same(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_at_first(stub, monkeypatch)
    async with AsyncClient(stub.url, TOKEN) as client:
        job_ids = await client.create_jobs([{"name": "a"}, {"name": "b"}])
    assert [*stub.jobs] == [str(job_id) for job_id in job_ids]
    assert len({seen.headers["idempotency-key"] for seen in stub.seen}) == 1


# --- played without a server ------------------------------------------------------------------------------


def play(call: Call[Any], *answers: Any, tick: float = 0.0) -> tuple[Any, list[float]]:
    """Answers each try in turn, `tick` seconds later; gives the result and the waits in between."""
    clock = itertools.count(0.0, tick or 1e-9)
    playing = Playing[Any, Any](scripts.submit(call, lambda: next(clock)))
    pending, waits = list(answers), []
    while (step := playing.step) is not None:
        if isinstance(step, Wait):
            waits.append(step.seconds)
            playing.answer()
            continue
        assert step is call
        answer = pending.pop(0)
        said: Callable[[Any], None] = playing.refuse if isinstance(answer, Exception) else playing.answer
        said(answer)
    assert not pending
    return playing.result, waits


KEYED, PLAIN = calls.create_job({"name": "a"}, "k"), calls.create_job({"name": "a"}, None)


def test_a_lost_answer_is_asked_for_again_also_when_the_server_is_gone_for_a_while() -> None:
    assert play(KEYED, LOST, GONE, GONE, BUSY, "made")[0] == "made"


def test_a_server_that_was_not_there_in_the_first_place_is_told_at_once() -> None:
    with pytest.raises(ServerUnreachable, match="refused"):
        play(KEYED, GONE)


@pytest.mark.parametrize("fault", [LOST, BUSY, GONE])
def test_without_a_key_there_is_one_try(fault: Exception) -> None:
    with pytest.raises(type(fault)):
        play(PLAIN, fault)


def test_a_refusal_ends_it() -> None:
    with pytest.raises(ApiProblem, match="reused"):
        play(KEYED, LOST, ApiProblem(422, "idempotency-key-reused", "reused"))


def test_patience_ends() -> None:
    with pytest.raises(AnswerLost):
        play(KEYED, *[LOST] * 4, tick=RESUBMIT_SECONDS / 2.5)


def test_waits_grow_and_the_servers_wish_is_heard_as_far_as_it_is_bearable() -> None:
    _, waits = play(KEYED, *[LOST] * 8, "made")
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] <= 1.0
    assert play(KEYED, BUSY, "made")[1] == [1.0]
