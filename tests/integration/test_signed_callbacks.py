"""Row 117: callbacks that are signed instead of carrying a token, through the API."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from callback_site import DONE as DONE_BY_TOKEN
from callback_site import Site
from crew import the_run
from sample_jobs import rows

from hourhand.model.errors import SecretsUnavailable
from hourhand.model.outcome import Interrupted
from hourhand.model.states import RunState
from hourhand.model.webhooks import TOLERANCE_SECONDS, keys_in, signature, signed_headers
from hourhand.runtime.keyring import Keyring, add_key, drop_old_keys, make_key_file
from hourhand.wiring import Store

DONE: dict[str, Any] = {"status": "succeeded", "result": {"rows": 42}}
NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
SECOND = int(NOW.timestamp())


class Outside:
    """Whoever was called, and has the secret that came with the call."""

    def __init__(self, site: Site, http: httpx.AsyncClient) -> None:
        self.site = site
        self.http = http
        assert site.pending is not None
        assert site.pending.secret is not None
        [self.key] = keys_in(site.pending.secret)

    async def say(
        self,
        body: dict[str, Any] = DONE,
        message_id: str = "msg_1",
        second: int = SECOND,
        key: bytes | None = None,
        run_id: UUID | None = None,
        **changed: str | None,
    ) -> tuple[int, Any]:
        """Signs and sends it; `changed` replaces headers afterwards, or takes them away. Status and answer."""
        content = msgspec.json.encode(body)
        headers: dict[str, str | None] = {**signed_headers([key or self.key], message_id, second, content)}
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        sent = {name: value for name, value in headers.items() if value is not None}
        return await self.send(content, sent, run_id)

    async def send(self, content: bytes, headers: dict[str, str], run_id: UUID | None = None) -> tuple[int, Any]:
        path = f"/api/v1/runs/{run_id or self.site.run_id}/callback"
        answer = await self.http.post(path, content=content, headers={"Content-Type": "application/json", **headers})
        said = answer.json()
        assert self.site.pending is not None
        assert str(self.site.pending.secret) not in answer.text
        return answer.status_code, said.get("changed", said.get("type", "").rpartition(":")[2])


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    make_key_file(tmp_path / "secret.key")
    return Keyring(tmp_path / "secret.key")


@pytest.fixture
async def site(store: Store, keyring: Keyring) -> Site:
    site = await Site(store, keys=keyring).start()
    site.now = lambda: NOW
    return site


async def the_end(site: Site) -> tuple[RunState, Any]:
    await site.drain()
    run = await the_run(site.store, site.run_id)
    return run.state, run.result


async def test_whoever_has_the_secret_ends_the_run_without_sending_it(site: Site) -> None:
    async with site.http() as http:
        assert await Outside(site, http).say() == (200, True)
    assert await the_end(site) == (RunState.SUCCEEDED, {"rows": 42})


async def test_a_signature_that_is_wrong_or_half_there_is_refused_and_nothing_is_done(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        right = signature(outside.key, "msg_1", SECOND, msgspec.json.encode(DONE))
        assert [
            await outside.say(key=b"x" * 32),
            await outside.say(webhook_id="msg_2"),
            await outside.say(webhook_timestamp=str(SECOND + 1)),
            await outside.say(webhook_signature=signature(outside.key, "msg_1", SECOND, b"{}")),
            await outside.say(webhook_signature=right.removeprefix("v1,")),
            await outside.say(webhook_signature=right.replace("v1,", "v2,")),
            await outside.say(webhook_signature=right.lower()),
            await outside.say(webhook_id=None),
            await outside.say(webhook_timestamp=None),
            await outside.say(webhook_signature=None),
            await outside.say(webhook_id="a.b"),
            await outside.say(webhook_timestamp="now"),
            await outside.say(webhook_signature="v1,"),
            await outside.say({"status": "finished", "x": 1}, key=b"x" * 32),
            await outside.say(run_id=UUID(int=7)),
        ] == [(401, "bad-signature")] * 15
        assert [row["said_at"] for row in await rows(site.store, "run_callbacks")] == [None]
        assert await outside.say() == (200, True)
    await site.drain()


async def test_a_token_does_not_help_a_call_whose_signature_is_wrong(site: Site) -> None:
    assert site.pending is not None
    async with site.http() as http:
        token = f"Bearer {site.pending.token}"
        assert await Outside(site, http).say(key=b"x" * 32, authorization=token) == (401, "bad-signature")
        assert await Outside(site, http).say(authorization="Basic of-a-proxy") == (200, True)
    await site.drain()


async def test_a_call_that_was_signed_more_than_five_minutes_away_is_stale(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        for away in (-TOLERANCE_SECONDS - 1, TOLERANCE_SECONDS + 1, -10 * 86_400):
            assert await outside.say(second=SECOND + away) == (401, "stale-signature")
        assert await outside.say(second=SECOND - TOLERANCE_SECONDS) == (200, True)
        site.now = lambda: NOW + timedelta(seconds=1)
        assert await outside.say(second=SECOND - TOLERANCE_SECONDS) == (401, "stale-signature"), "also when replayed"
    assert (await the_end(site))[0] is RunState.SUCCEEDED


async def test_a_call_that_is_replayed_is_answered_and_does_nothing(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        half = {"status": "running", "progress": {"percent": 50, "message": "half"}}
        more = {"status": "running", "progress": {"percent": 60, "message": "more"}}

        async def shown() -> float | None:
            progress = await site.shown()
            return None if progress is None else progress.percent

        assert await outside.say(half, "half") == (200, True)
        assert await outside.say(more, "more") == (200, True)
        assert await outside.say(half, "half") == (200, False)
        assert await shown() == 60, "of the same second"
        assert await outside.say(half, "older", SECOND - 1) == (200, False)
        assert await shown() == 60, "of a second before"
        assert await outside.say(half, "newer", SECOND + 1) == (200, True)
        assert await outside.say(more, "more") == (200, False)
        assert await shown() == 50

        assert await outside.say() == (200, True)
        for _ in range(2):
            assert await outside.say() == (200, False)
        assert await outside.say({"status": "failed"}) == (409, "callback-answered")
        assert await the_end(site) == (RunState.SUCCEEDED, {"rows": 42})
        assert await outside.say() == (200, False), "also when the run is over"
        assert await outside.say(more, "more") == (200, False)
        assert await outside.say(half, "new", SECOND + 2) == (409, "callback-answered")


async def test_more_words_in_one_second_than_anybody_needs_are_passed_over_and_not_kept(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        told = {"status": "running"}
        answers = [await outside.say(told, f"word-{number}") for number in range(105)]
        assert answers == [(200, True)] * 100 + [(200, False)] * 5
        [row] = await rows(site.store, "run_callbacks")
        assert len(row["told_ids"]) == 100
        assert await outside.say(told, "next", SECOND + 1) == (200, True)
        [row] = await rows(site.store, "run_callbacks")
        assert len(row["told_ids"]) == 1
        assert await outside.say() == (200, True)
    await site.drain()


async def test_a_secret_is_good_for_its_own_attempt_only(site: Site) -> None:
    async with site.http() as http:
        old = Outside(site, http)
        site.executor.attempts.stop(site.run_id, site.fence, Interrupted())
        await site.again()
        new = Outside(site, http)
        assert old.key != new.key
        assert await old.say() == (409, "stale-lease")
        assert await old.say({"status": "running"}) == (409, "stale-lease")
        assert await new.say() == (200, True)
    assert (await the_end(site))[0] is RunState.SUCCEEDED


async def test_faults_of_what_is_said_are_told_to_those_who_may_say_it(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        assert await outside.say({"status": "finished", "x": 1}) == (422, "invalid-fields")
        signed = signed_headers([outside.key], "msg_1", SECOND, b"{")
        assert await outside.send(b"{", signed) == (400, "malformed-json")
        assert await outside.say() == (200, True)
    await site.drain()


async def test_several_signatures_may_come_and_two_headers_may_not(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        content = msgspec.json.encode(DONE)
        right = signed_headers([outside.key], "msg_1", SECOND, content)
        path = f"/api/v1/runs/{site.run_id}/callback"
        for name in right:
            twice = [*right.items(), (name, right[name]), ("content-type", "application/json")]
            answer = await http.post(path, content=content, headers=twice)
            assert (answer.status_code, answer.json()["type"]) == (400, "urn:hourhand:problem:repeated-header")
        several = {**right, "webhook-signature": f"v1a,AAAA v1,BBBB {right['webhook-signature']}"}
        assert await outside.send(content, several) == (200, True)
    await site.drain()


async def test_a_new_master_key_does_not_silence_those_who_were_called_before(site: Site, keyring: Keyring) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        add_key(keyring.path)
        assert await outside.say() == (200, True)
    await site.drain()


async def test_nothing_that_is_stored_can_sign(site: Site) -> None:
    async with site.http() as http:
        outside = Outside(site, http)
        [row] = await rows(site.store, "run_callbacks")
        kept = [value for value in row.values() if isinstance(value, bytes)]
        assert kept, "the digest of the token"
        for value in kept:
            assert await outside.say(key=value) == (401, "bad-signature")
        assert await outside.say() == (200, True)
    await site.drain()


async def test_without_a_key_file_there_is_no_secret_and_the_token_still_works(store: Store) -> None:
    site = await Site(store).start()
    assert site.pending is not None
    assert site.pending.secret is None
    async with site.http() as http:
        path = f"/api/v1/runs/{site.run_id}/callback"
        second = int(site.now().timestamp())
        signed = signed_headers([b"x" * 32], "msg_1", second, b'{"status":"succeeded"}')
        headers = {"Content-Type": "application/json"}
        refused = await http.post(path, content=b'{"status":"succeeded"}', headers={**headers, **signed})
        assert (refused.status_code, refused.json()["type"]) == (401, "urn:hourhand:problem:bad-signature")
        assert "send the token instead" in refused.json()["detail"]
        token = {"Authorization": f"Bearer {site.pending.token}"}
        answer = await http.post(path, content=b'{"status":"succeeded"}', headers={**headers, **token})
        assert (answer.status_code, answer.json()["changed"]) == (200, True)
    await site.drain()


async def test_a_key_file_that_cannot_be_used_is_waited_for_and_tells_nothing_of_itself(
    site: Site, keyring: Keyring
) -> None:
    async with site.http() as http:
        keyring.path.chmod(0o644)
        assert await Outside(site, http).say() == (401, "bad-signature")
        with pytest.raises(SecretsUnavailable) as caught:
            await site.say(DONE_BY_TOKEN)
        assert str(keyring.path) not in str(caught.value)
        keyring.path.chmod(0o600)
        assert await Outside(site, http).say() == (200, True)
    await site.drain()


async def test_an_executor_whose_key_file_cannot_be_used_gives_a_token_alone(store: Store, keyring: Keyring) -> None:
    keyring.path.chmod(0o644)
    site = await Site(store, keys=keyring).start()
    assert site.pending is not None
    assert site.pending.secret is None
    assert await site.say(DONE_BY_TOKEN) is True
    await site.drain()


# --- what is kept of it ---------------------------------------------------------------------------------------


async def test_what_a_callback_said_cannot_be_read_in_the_database(site: Site) -> None:
    """Whoever was called knows the job's secrets and may repeat them; masking is the executor's, and comes later."""
    said = {"status": "failed", "error": "no right: Bearer t0k3n-canary", "result": {"t0k3n-canary": 1}, "retry": False}
    async with site.http() as http:
        assert await Outside(site, http).say(said) == (200, True)
    [row] = await rows(site.store, "run_callbacks")
    assert "t0k3n-canary" not in str(dict(row))
    assert await the_end(site) == (RunState.FAILED, {"t0k3n-canary": 1}), "of an attempt without secrets"


async def test_an_executor_that_has_lost_its_key_meanwhile_says_so(site: Site, keyring: Keyring) -> None:
    async with site.http() as http:
        assert await Outside(site, http).say() == (200, True)
    add_key(keyring.path)
    drop_old_keys(keyring.path)
    async with asyncio.timeout(30):
        while not await rows(site.store, "attempts"):
            await site.waiting.run_once()
            await site.executor.turn()
    [attempt] = await site.store.runs.list_attempts(site.run_id)
    assert (attempt.state, attempt.reason) == ("failed", "callback_failed")
    assert "cannot be opened" in (attempt.error or "")


async def test_where_executor_and_api_have_different_keys_the_token_works_and_a_signature_is_told_why_not(
    store: Store, keyring: Keyring, tmp_path: Path
) -> None:
    make_key_file(tmp_path / "another.key")
    site = await Site(store, keys=keyring, api_keys=Keyring(tmp_path / "another.key")).start()
    site.now = lambda: NOW
    async with site.http() as http:
        assert await Outside(site, http).say() == (401, "bad-signature")
    assert await site.say(DONE_BY_TOKEN) is True
    assert await the_end(site) == (RunState.SUCCEEDED, {"rows": 42})
