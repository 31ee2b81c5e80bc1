"""Who gets in, and how."""

from typing import Any

import httpx
import pytest
from api_fakes import SESSION, TOKEN, code_of

from hourhand.api.app import ApiOperations, ApiSettings, build_app, list_endpoints
from hourhand.api.auth import Authenticator, Credentials, LoginThrottle
from hourhand.api.refusals import TooManyTries
from hourhand.model.errors import Unauthenticated

PUBLIC = {"/", "/docs", "/login", "/livez", "/readyz", "/static/{name}"}
COOKIE = {"Cookie": f"hourhand_session={SESSION}"}
ID = "0198c0de-7a5c-7000-8000-000000000000"


async def test_every_route_but_the_public_ones_needs_a_token(
    api: httpx.AsyncClient, anonymous: httpx.AsyncClient, operations: ApiOperations, settings: ApiSettings
) -> None:
    document = (await api.get("/openapi.json")).json()
    routes = [(method, path) for path, item in document["paths"].items() for method in item]
    assert len(routes) == len(list_endpoints(operations, settings)) >= 57

    for method, path in routes:
        if path in PUBLIC:
            assert document["paths"][path][method]["security"] == []
            continue
        url = path.replace("{job_id}", ID).replace("{run_id}", ID).replace("{jobId}", ID)
        answer = await anonymous.request(method.upper(), url)
        assert (answer.status_code, code_of(answer)) == (401, "unauthenticated"), (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value", ["Bearer hh_wrong", "Bearer ", "Basic aGg6aGg=", "hh_test-token", "Bearer " + "x" * 600]
)
async def test_wrong_tokens_look_alike(anonymous: httpx.AsyncClient, value: str) -> None:
    answer = await anonymous.get("/api/v1/whoami", headers={"Authorization": value})

    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert answer.json()["detail"] == "a valid token is needed: send 'Authorization: Bearer <token>'"


@pytest.mark.parametrize("query", [f"token={TOKEN}", "access_token=x", f"name={TOKEN}", "API_KEY=1"])
async def test_a_token_in_the_address_is_refused_even_when_it_is_right(api: httpx.AsyncClient, query: str) -> None:
    answer = await api.get(f"/api/v1/jobs?{query}")

    assert (answer.status_code, code_of(answer)) == (400, "token-in-url")
    assert TOKEN not in answer.text


async def test_two_authorization_headers_are_refused(anonymous: httpx.AsyncClient) -> None:
    twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]

    answer = await anonymous.get("/api/v1/whoami", headers=httpx.Headers(twice))

    assert (answer.status_code, code_of(answer)) == (400, "repeated-header")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:8780"}, 403),
        ({"Origin": "http://localhost:8780"}, 202),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8780"}, 202),
    ],
)
async def test_changes_with_the_cookie_must_come_from_our_own_page(
    anonymous: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    answer = await anonymous.post("/api/v1/jobs", json={"name": "a"}, headers={**COOKIE, **headers})

    assert answer.status_code == status
    if status == 403:
        assert code_of(answer) == "csrf-failed"


async def test_reading_with_the_cookie_needs_no_origin(anonymous: httpx.AsyncClient) -> None:
    assert (await anonymous.get("/api/v1/whoami", headers=COOKIE)).json() == {"name": "tester", "namespace": "default"}


async def test_a_token_wins_over_a_cookie_and_needs_no_origin(api: httpx.AsyncClient) -> None:
    assert (await api.post("/api/v1/jobs", json={"name": "a"}, headers=COOKIE)).status_code == 202


async def test_a_token_is_asked_for_once_in_a_while(access: Any) -> None:
    now = 0.0
    authenticator = Authenticator(access, ApiSettings(token_cache_seconds=3, token_cache_max=2), lambda: now)
    token = Credentials(TOKEN, from_cookie=False)

    callers = [await authenticator.authenticate(token, None) for _ in range(5)]
    assert access.questions == 1
    assert len(set(map(id, callers))) == 1
    await authenticator.authenticate(token, "team-a")
    assert access.questions == 2

    access.revoked = True
    now = 3.0
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(token, None)


async def test_a_revoked_token_is_dead_within_five_seconds_whatever_is_set(access: Any) -> None:
    now = 0.0
    authenticator = Authenticator(access, ApiSettings(token_cache_seconds=3600), lambda: now)
    await authenticator.authenticate(Credentials(TOKEN, from_cookie=False), None)
    access.revoked = True
    now = 5.0

    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(Credentials(TOKEN, from_cookie=False), None)


async def test_the_memory_for_tokens_is_bounded(access: Any) -> None:
    authenticator = Authenticator(access, ApiSettings(token_cache_max=1), lambda: 0.0)
    token = Credentials(TOKEN, from_cookie=False)

    for namespace in [None, "team-a", None, "team-a"]:
        await authenticator.authenticate(token, namespace)

    assert access.questions == 4


async def test_wrong_tokens_are_not_remembered(access: Any) -> None:
    authenticator = Authenticator(access, ApiSettings(), lambda: 0.0)
    access.revoked = True
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(Credentials(TOKEN, from_cookie=False), None)
    access.revoked = False

    assert (await authenticator.authenticate(Credentials(TOKEN, from_cookie=True), None)).session


async def test_namespaces_by_parameter_and_by_body(api: httpx.AsyncClient, jobs: Any) -> None:
    by_parameter = await api.post("/api/v1/jobs?namespace=team-a", json={"name": "a"})
    by_body = await api.post("/api/v1/jobs", json={"name": "a", "namespace": "team-a"})
    clash = await api.post("/api/v1/jobs?namespace=default", json={"name": "a", "namespace": "team-a"})
    forbidden = await api.get("/api/v1/jobs?namespace=forbidden")

    assert by_parameter.json()["namespace"] == by_body.json()["namespace"] == "team-a"
    assert clash.json()["errors"][0]["code"] == "conflicting-namespace"
    assert (forbidden.status_code, code_of(forbidden)) == (403, "forbidden")


async def test_a_login_link_gives_a_cookie_and_leads_home(anonymous: httpx.AsyncClient) -> None:
    answer = await anonymous.get("/login?code=hh_good")

    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie == f"hourhand_session={SESSION}; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"


async def test_the_cookie_is_secure_behind_https(operations: ApiOperations) -> None:
    app = build_app(operations, ApiSettings(public_url="https://jobs.example.com"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://jobs.example.com") as client:
        answer = await client.get("/login?code=hh_good")
        from_page = await client.post(
            "/api/v1/jobs", json={"name": "a"}, headers={**COOKIE, "Origin": "https://jobs.example.com"}
        )

    assert answer.headers["set-cookie"].endswith("; Secure")
    assert from_page.status_code == 202


async def test_a_used_link_says_how_to_get_a_new_one(anonymous: httpx.AsyncClient) -> None:
    answer = await anonymous.get("/login?code=used")

    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert "hourhand login-link" in answer.text
    assert "set-cookie" not in answer.headers


async def test_the_sixth_wrong_code_in_a_minute_has_to_wait(anonymous: httpx.AsyncClient) -> None:
    answers = [await anonymous.get("/login?code=wrong") for _ in range(6)]

    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert code_of(answers[-1]) == "too-many-tries"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


def test_a_minute_later_codes_can_be_tried_again() -> None:
    now = 0.0
    throttle = LoginThrottle(1, lambda: now)
    throttle.count_failure("a")
    with pytest.raises(TooManyTries):
        throttle.check("a")
    throttle.check("b")
    now = 61.0
    throttle.check("a")


async def test_addresses_are_answered_when_bound_to_all_of_them(operations: ApiOperations) -> None:
    app = build_app(operations, ApiSettings(host="0.0.0.0", allowed_hosts=("jobs.internal",)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
        statuses = [
            (await client.get("/livez", headers={"Host": host})).status_code
            for host in ("10.0.0.7:8780", "jobs.internal", "rebound.example", "")
        ]

    assert statuses == [200, 200, 421, 421]
