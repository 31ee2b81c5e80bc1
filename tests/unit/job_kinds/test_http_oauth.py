"""OAuth client credentials of HTTP jobs, against a real token server."""

import asyncio
import base64
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from http_servers import Site

from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.model.outcome import Succeeded
from hourhand.model.states import Reason


class Login:
    """Gives out tokens, and takes the newest one only."""

    def __init__(self):
        self.given = 0
        self.forms = []
        self.held = []
        self.answer = {}
        self.status = 200
        self.good = set()

    async def __call__(self, request):
        if request.path == "/token":
            self.forms.append((request.headers.get("Authorization"), parse_qs((await request.read()).decode())))
            self.given += 1
            await asyncio.sleep(0)
            token = f"token-{self.given}"
            self.good = {token}
            body = {"access_token": token, "token_type": "Bearer", "expires_in": 3600, **self.answer}
            return web.json_response(body, status=self.status)
        held = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.held.append(held)
        return web.Response(status=200 if held in self.good else 401, text=held)


@pytest.fixture
async def kind():
    kind = HttpKind(HttpSettings(allow_private=True))
    await kind.open()
    yield kind
    await kind.close()


@pytest.fixture
async def login():
    login = Login()
    async with Site(login) as login.site:
        yield login


@pytest.fixture
def call(kind, login, make_task):
    async def call_with(namespace="default", **oauth):
        given = {"token_url": f"{login.site.url}/token", "client_id": "me", "client_secret": {"secret": "s"}, **oauth}
        task = make_task({"url": f"{login.site.url}/api", "oauth": given}).task
        task.secrets = {"s": "p&ss wörd"}
        task.namespace = namespace
        return await kind.run(task)

    return call_with


async def test_a_call_carries_a_token_and_later_calls_share_it(call, login):
    for _ in range(2):
        assert isinstance(await call(scope="a b"), Succeeded)
    assert login.held == ["token-1", "token-1"]
    [(authorization, form)] = login.forms
    assert form == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    assert base64.b64decode(authorization.removeprefix("Basic ")).decode() == "me:p%26ss+w%C3%B6rd"


async def test_the_client_can_prove_itself_in_the_body(call, login):
    assert isinstance(await call(client_auth="body"), Succeeded)
    [(authorization, form)] = login.forms
    assert authorization is None
    assert (form["client_id"], form["client_secret"]) == (["me"], ["p&ss wörd"])


async def test_calls_at_the_same_time_ask_for_one_token(call, login):
    outcomes = await asyncio.gather(*(call() for _ in range(20)))
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    assert login.given == 1


async def test_tokens_are_not_shared_between_namespaces_or_scopes(call, login):
    await call()
    await call(namespace="other")
    await call(scope="more")
    assert login.given == 3


async def test_a_token_at_its_end_is_renewed(call, login):
    login.answer = {"expires_in": 0.0001}
    await call()
    await asyncio.sleep(0.001)
    await call()
    assert login.held == ["token-1", "token-2"]


async def test_a_refused_token_is_renewed_once(call, login):
    await call()
    login.good = set()
    assert isinstance(await call(), Succeeded)
    assert login.held == ["token-1", "token-1", "token-2"]
    login.answer = {"access_token": "never-good"}
    login.good = set()
    outcome = await call()
    assert (outcome.reason, outcome.error) == (Reason.HTTP_STATUS, "expected 2xx, got 401")
    assert login.given == 3


@pytest.mark.parametrize(("status", "retryable"), [(401, False), (400, False), (503, True), (302, False)])
async def test_a_token_that_is_not_given_fails_the_attempt(call, login, status, retryable):
    login.status, login.answer = status, {"error": "invalid_client", "access_token": None}
    outcome = await call()
    assert (outcome.reason, outcome.retryable) == (Reason.HTTP_STATUS, retryable)
    assert outcome.error == f"no access token: its server answered {status} (invalid_client)"


@pytest.mark.parametrize("token", [None, "", 3, "a\r\nX-Evil: 1"])
async def test_a_token_that_is_none_is_not_sent(call, login, token):
    login.answer = {"access_token": token}
    outcome = await call()
    assert outcome.error == "no access token: the answer of its server has none"
    assert [request.path for request in login.site.requests] == ["/token"]


async def test_the_token_server_passes_the_same_checks(login, make_task):
    kind = HttpKind(HttpSettings(allow_private=False))
    await kind.open()
    oauth = {"token_url": f"http://localhost.:{login.site.port}/", "client_id": "a", "client_secret": "b"}
    outcome = await kind.run(make_task({"url": "http://192.0.2.1/", "oauth": oauth}).task)
    assert outcome.reason is Reason.TARGET_BLOCKED
    await kind.close()
    assert login.given == 0


async def test_a_token_server_that_is_down_is_not_asked_once_for_each_who_waits(call, login):
    login.status, login.answer = 503, {"access_token": None}
    outcomes = await asyncio.gather(*(call() for _ in range(50)))
    assert {outcome.error for outcome in outcomes} == {"no access token: its server answered 503"}
    assert login.given == 1


async def test_a_token_server_that_is_not_there_is_a_connection_failure(call, login):
    outcome = await call(token_url="http://127.0.0.1:1/token")
    assert (outcome.reason, outcome.retryable) == (Reason.CONNECTION, True)
    assert outcome.error.startswith("no access token: its server cannot be reached")


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("length", [0, 65_521])
async def test_a_token_that_the_server_repeats_is_not_kept(kind, make_task, status, length):
    async def repeats(request):
        if request.path == "/token":
            return web.json_response({"access_token": "t0k3n+4ccess/c4n4ry", "token_type": "Bearer"})
        held = request.headers["Authorization"]
        told = f"{'x' * length}{held}{base64.b64encode(held.encode()).decode()}"
        return web.Response(status=status, text=told)

    async with Site(repeats) as site:
        oauth = {"token_url": f"{site.url}/token", "client_id": "me", "client_secret": "hush"}
        outcome = await kind.run(make_task({"url": site.url, "oauth": oauth}, kind="http").task)
    told = str(outcome.result)
    assert outcome.result["status"] == status
    assert outcome.result["truncated"] is bool(length), "in the second case in the midst of the token"
    assert "Bearer [secret access token]" in told
    for form in ("t0k3n", "c4n4ry", "dDBrM24rNGNjZXNzL2M0bjRyeQ"):
        assert form not in told
