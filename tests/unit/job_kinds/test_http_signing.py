"""Calls of HTTP jobs that are signed, as the server that gets them sees it."""

import time

import pytest
from aiohttp import web
from http_servers import Site

from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.model.outcome import Succeeded
from hourhand.model.states import Reason
from hourhand.model.webhooks import HEADERS, key_text, read_signed, signed_by

KEY, OLD_KEY = b"k" * 32, b"o" * 24
SECRET = key_text(KEY)


class Receiver:
    """Notes which key has signed each call; sends callers on where it is told to."""

    def __init__(self):
        self.signers = []
        self.ids = []
        self.to = None
        self.status = 307

    async def __call__(self, request):
        given = {name: request.headers.get(name) for name in HEADERS}
        if any(given.values()):
            call = read_signed(given, time.time())
            self.signers.append(signed_by(call, [KEY, OLD_KEY], await request.read()))
            self.ids.append(call.message_id)
        else:
            self.signers.append("nobody")
        if request.path == "/on":
            return web.Response(status=self.status, headers={"Location": self.to})
        return web.Response(text="fine")


@pytest.fixture
async def kind():
    kind = HttpKind(HttpSettings(allow_private=True))
    await kind.open()
    yield kind
    await kind.close()


@pytest.fixture
async def receiver():
    receiver = Receiver()
    async with Site(receiver) as receiver.site:
        yield receiver


@pytest.fixture
def call(kind, receiver, make_task):
    async def call_with(path="/", key=SECRET, **payload):
        payload = {"url": receiver.site.url + path, "sign_with": {"secret": "hook"}, **payload}
        task = make_task(payload, kind="http").task
        task.secrets = {"hook": key}
        return task, await kind.run(task)

    return call_with


@pytest.mark.parametrize(
    "payload",
    [{"method": "POST", "body": {"day": "2026-11-17", "ü": 1}}, {"method": "PUT", "body": "a text\r\nü"}, {}],
)
async def test_a_call_is_signed_over_exactly_what_arrives_and_its_id_is_the_run(call, receiver, payload):
    task, outcome = await call(**payload)
    assert isinstance(outcome, Succeeded)
    assert receiver.signers == [0]
    assert receiver.ids == [str(task.run_id)]


async def test_a_call_is_not_signed_unless_its_job_asks_for_it(kind, receiver, make_task):
    await kind.run(make_task({"url": receiver.site.url, "headers": {"A": "b"}}, kind="http").task)
    assert receiver.signers == ["nobody"]


async def test_while_a_key_is_replaced_whoever_knows_only_the_old_one_still_believes_the_call(call, receiver):
    await call(key=f"{key_text(b'n' * 32)} {key_text(OLD_KEY)}")
    assert receiver.signers == [1]


@pytest.mark.parametrize(("status", "then"), [(307, 0), (308, 0), (302, "nobody"), (303, "nobody")])
async def test_a_redirect_keeps_a_signature_only_with_the_body_that_it_is_of(call, receiver, status, then):
    receiver.status, receiver.to = status, "/other"
    await call("/on", method="POST", body="x", follow_redirects=True)
    assert receiver.signers == [0, then]


async def test_a_signature_is_for_one_server_and_is_not_carried_to_another(call, receiver):
    other = Receiver()
    async with Site(other) as other.site:
        receiver.to = other.site.url
        await call("/on", method="POST", body="x", follow_redirects=True)
    assert (receiver.signers, other.signers) == ([0], ["nobody"])


@pytest.mark.parametrize("value", ["a passphrase", "whsec_short", ""])
async def test_a_secret_that_holds_no_key_ends_the_attempt_and_is_not_told(call, receiver, value):
    _, outcome = await call(key=value)
    assert (outcome.reason, outcome.retryable) == (Reason.BAD_ARGUMENTS, False)
    assert "sign_with" in outcome.error
    assert not value or value not in outcome.error
    assert receiver.signers == []
