"""Attempts that somebody outside ends: said once, in time, and only while the attempt has its run."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from callback_site import DONE, Site
from crew import the_run
from sample_jobs import rows

from hourhand.model.errors import BodyTooLarge, Conflict, InvalidFields, Unauthenticated
from hourhand.model.outcome import Failed, Interrupted
from hourhand.model.states import Reason, RunState
from hourhand.operations.callbacks import CallbackProgress, CallbackRequest
from hourhand.ports.event_bus import Topic
from hourhand.store.callbacks import Callbacks
from hourhand.wiring import Store


@pytest.fixture
async def site(store: Store) -> Site:
    return await Site(store).start()


async def test_a_run_goes_on_until_its_callback_says_how_it_ended(site: Site) -> None:
    assert site.pending is not None
    assert site.pending.url == f"https://jobs.example.com/api/v1/runs/{site.run_id}/callback"
    await site.waiting.run_once()
    await site.executor.turn()
    assert not (await the_run(site.store, site.run_id)).state.is_final
    assert await site.say(DONE) is True
    assert site.bus.said == [Topic.CALLBACKS]
    await site.drain()
    run = await the_run(site.store, site.run_id)
    assert (run.state, run.result) == (RunState.SUCCEEDED, {"rows": 42})


async def test_a_failure_is_told_with_its_error_and_whether_to_try_again(site: Site) -> None:
    await site.say(CallbackRequest("failed", error="out of paper", retry=False))
    await site.drain()
    run = await the_run(site.store, site.run_id)
    assert (run.state, run.reason, run.error) == (RunState.FAILED, "callback_failed", "out of paper")


async def test_the_same_end_said_twice_changes_nothing_and_another_is_refused(site: Site) -> None:
    assert await site.say(DONE) is True
    assert await site.say(DONE) is False
    with pytest.raises(Conflict) as caught:
        await site.say(CallbackRequest("failed"))
    assert caught.value.code == "callback-answered"
    await site.drain()
    assert await site.say(DONE) is False, "also when the run is over"
    assert (await the_run(site.store, site.run_id)).state is RunState.SUCCEEDED


async def test_a_callback_of_an_attempt_that_lost_its_run_is_stale(site: Site) -> None:
    assert site.pending is not None
    old, old_fence = site.pending.token, site.fence
    site.executor.attempts.stop(site.run_id, site.fence, Interrupted())
    await site.again()
    assert site.fence > old_fence
    for request in (DONE, CallbackRequest("running", progress=CallbackProgress(50, "half"))):
        with pytest.raises(Conflict) as caught:
            await site.say(request, token=old)
        assert caught.value.code == "stale-lease"
    assert await rows(site.store, "run_progress") == []
    await site.say(DONE)
    await site.drain()
    assert (await the_run(site.store, site.run_id)).attempt == 2


async def test_a_callback_after_a_cancel_is_stale(site: Site) -> None:
    await site.executor.recorder.run_once()
    cancelled = await site.store.runs.cancel_runs(1, [site.run_id], "cancelled", site.executor.clock.now())
    assert cancelled == {site.run_id: False}
    with pytest.raises(Conflict) as caught:
        await site.say(DONE)
    assert caught.value.code == "stale-lease"
    await site.executor.stop_cancelled()
    await site.drain()
    assert (await the_run(site.store, site.run_id)).state is RunState.CANCELLED


async def test_a_token_is_good_for_its_own_run_only(site: Site) -> None:
    for token, run_id in (("hhc_nonsense", None), (None, UUID(int=7)), ("\ud800", None)):
        with pytest.raises(Unauthenticated):
            await site.say(DONE, token, run_id)
    assert site.pending is not None
    stored = await rows(site.store, "run_callbacks")
    assert site.pending.token.encode() not in str(stored).encode()
    await site.say(DONE)
    await site.drain()


async def test_what_cannot_be_kept_is_refused(site: Site) -> None:
    with pytest.raises(InvalidFields):
        await site.say(CallbackRequest("done"))
    with pytest.raises(InvalidFields):
        await site.say(CallbackRequest("succeeded", "a\0b"))
    with pytest.raises(BodyTooLarge):
        await site.say(CallbackRequest("succeeded", "x" * 300_000))
    await site.say(DONE)
    await site.drain()


async def test_progress_can_be_told_by_callback(site: Site) -> None:
    await site.say(CallbackRequest("running", progress=CallbackProgress(50, "half")))
    shown = (await the_run(site.store, site.run_id)).progress
    assert shown is not None, "at once, where the executor has no key and so no secrets"
    assert (shown.percent, shown.message) == (50, "half")
    await site.say(DONE)
    await site.drain()


async def test_a_callback_that_does_not_come_times_the_attempt_out(store: Store) -> None:
    site = await Site(store, seconds=0.2).start()
    async with asyncio.timeout(30):
        while not await rows(store, "attempts"):
            await site.executor.turn()
    [attempt] = await store.runs.list_attempts(site.run_id)
    assert (attempt.state, attempt.reason) == ("timed_out", "timeout")
    assert attempt.error == "no callback came within its callback_timeout of 0.2 s"
    with pytest.raises(Conflict) as caught:
        await site.say(DONE)
    assert caught.value.code == "stale-lease"


async def test_what_was_said_before_the_call_was_answered_is_found(site: Site) -> None:
    assert site.pending is not None
    assert await site.pending.said_already() is None
    await site.say(CallbackRequest("failed", error="no"))
    assert await site.pending.said_already() == Failed(Reason.CALLBACK_FAILED, "no")


async def test_old_callbacks_are_swept_up(site: Site) -> None:
    callbacks = Callbacks(site.store.database)
    now = site.executor.clock.now()
    await callbacks.sweep(now)
    assert len(await rows(site.store, "run_callbacks")) == 1
    await callbacks.sweep(now.replace(year=now.year + 1))
    assert await rows(site.store, "run_callbacks") == []


# --- over HTTP ------------------------------------------------------------------------------------------------


async def test_calls_from_outside_get_their_exact_answer_and_one_that_is_replayed_does_nothing(site: Site) -> None:
    """Row 117: without the right to speak 401, whatever else is wrong; said again 200, and nothing is done."""
    assert site.pending is not None
    token = site.pending.token
    path, other = (f"/api/v1/runs/{each}/callback" for each in (site.run_id, UUID(int=7)))
    done, wrong = {"status": "succeeded", "result": {"rows": 42}}, {"status": "finished", "x": 1}
    told: list[tuple[int, Any]] = []
    async with site.http() as http:
        for address, authorization, body in (
            (path, None, done),
            (path, "Bearer", done),
            (path, f"Basic {token}", done),
            (path, "Bearer hh_an-api-token-is-none-of-these", done),
            (path, f"Bearer {token[:-1]}{'A' if token[-1] != 'A' else 'B'}", done),
            (path, f"Bearer {token}{token}", done),
            (path, None, wrong),
            (path, f"Bearer {token[:-1]}{'A' if token[-1] != 'A' else 'B'}", wrong),
            (other, f"Bearer {token}", done),
            (path, f"Bearer {token}", wrong),
            (path, f"Bearer {token}", done),
            (path, f"Bearer {token}", done),
            (path, f"Bearer {token}", {"status": "failed"}),
        ):
            headers = {} if authorization is None else {"Authorization": authorization}
            answer = await http.post(address, json=body, headers=headers)
            said = answer.json()
            assert token not in answer.text
            codes = sorted(fault["code"] for fault in said.get("errors", []))
            told.append((answer.status_code, said.get("changed", codes or said.get("type", "").rpartition(":")[2])))
        await site.drain()
        replayed = await http.post(path, json=done, headers={"Authorization": f"Bearer {token}"})
    assert told == [
        *[(401, "unauthenticated")] * 9,
        (422, ["unknown-field", "unknown-value"]),
        (200, True),
        (200, False),
        (409, "callback-answered"),
    ]
    assert (replayed.status_code, replayed.json()["changed"]) == (200, False), "also when the run is over"
    run = await the_run(site.store, site.run_id)
    assert (run.state, run.result) == (RunState.SUCCEEDED, {"rows": 42})
