"""The bad-input catalogue of HTTP and JSON: what comes in, and which problem document goes out."""

import asyncio
from typing import Any

import httpx
import pytest
from api_fakes import code_of, faults_of

from hourhand.model.errors import Conflict, DatabaseUnavailable, Overloaded

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"", "body-required", "JSON object"),
        (b" \n ", "body-required", "JSON object"),
        (b'{"name":', "malformed-json", "line 1 column 9"),
        (b'{"name": "a",\n "x": }', "malformed-json", "line 2 column 7"),
        (b"[]", "wrong-top-level-type", "a list"),
        (b'"job"', "wrong-top-level-type", "a string"),
        (b'{"name":"a","name":"b"}', "duplicate-key", "'name'"),
        (b'{"name":"a","payload":{"x":{"y":1,"y":2}}}', "duplicate-key", "'y'"),
        (b'{"name":"a","payload":{"x":NaN}}', "malformed-json", "NaN is not JSON at line 1 column 28"),
        (b'{"name":"a","payload":{"x":-Infinity}}', "malformed-json", "-Infinity"),
        (b'{"name":"a"} // why', "trailing-data", "line 1 column 14"),
        (b'{"name":"a" /* why */}', "malformed-json", "line 1 column 13"),
        (b'{"name":"a",}', "malformed-json", "line 1"),
        (b'{"name":"a"}{}', "trailing-data", "column 13"),
        (b'{"name":"\xff"}', "malformed-json", "UTF-8"),
        (b'\xef\xbb\xbf{"name":"a"}', "malformed-json", "byte order mark"),
        (b'{"name":"a\nb"}', "malformed-json", "line 1"),
        (b'{"name":"a","payload":{"x":01}}', "malformed-json", "line 1"),
    ],
)
async def test_bodies_that_cannot_be_read_are_400(api: httpx.AsyncClient, body: bytes, code: str, said: str) -> None:
    answer = await api.post("/api/v1/jobs", content=body, headers=JSON)

    assert (answer.status_code, code_of(answer)) == (400, code)
    assert said in answer.json()["detail"]


async def test_deep_nesting_is_refused_and_not_a_crash(api: httpx.AsyncClient) -> None:
    body = b'{"name":"a","payload":{"x":' + b"[" * 900 + b"]" * 900 + b"}}"

    answer = await api.post("/api/v1/jobs", content=body, headers=JSON)

    assert answer.status_code in {202, 400}
    if answer.status_code == 400:
        assert code_of(answer) == "malformed-json"


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        (b'{"name":"a","payload":{"x":1e400}}', {"/payload/x": "number-out-of-range"}),
        (b'{"name":"a","payload":{"x":[9223372036854775808]}}', {"/payload/x/0": "number-out-of-range"}),
        (b'{"name":"a","payload":{"x":-9223372036854775809}}', {"/payload/x": "number-out-of-range"}),
        (b'{"name":"a","payload":{"x":' + b"9" * 500 + b"}}", {"/payload/x": "number-out-of-range"}),
        (b'{"name":"a","max_retries":18446744073709551616}', {"/max_retries": "number-out-of-range"}),
        (b'{"name":"\\ud800"}', {"/name": "invalid-unicode"}),
        (b'{"name":"a","payload":{"\\udc00":1}}', {"/payload/\ufffd": "invalid-unicode"}),
        (b'{"name":"a\\u0000b"}', {"/name": "invalid-unicode"}),
        (b'{"name":"a","shedule":{}}', {"/shedule": "unknown-field"}),
        (b'{"name":"a","uid":0,"__proto__":{}}', {"/uid": "unknown-field", "/__proto__": "unknown-field"}),
        (b'{"name":"a","a/b~c":0}', {"/a~1b~0c": "unknown-field"}),
        (
            b'{"name":"a","created_at":"x","version":3}',
            {"/created_at": "read-only-field", "/version": "read-only-field"},
        ),
        (b"{}", {"/name": "required"}),
        (b'{"name":3}', {"/name": "wrong-type"}),
        (b'{"name":null}', {"/name": "wrong-type"}),
        (b'{"name":"a","max_retries":"3"}', {"/max_retries": "wrong-type"}),
        (b'{"name":"a","max_retries":true}', {"/max_retries": "wrong-type"}),
        (b'{"name":"a","max_retries":1.5}', {"/max_retries": "wrong-type"}),
        (b'{"name":"a","payload":[1]}', {"/payload": "wrong-type"}),
        (b'{"name":"a","labels":{"x":1,"y":"z","w":null}}', {"/labels/x": "wrong-type", "/labels/w": "wrong-type"}),
        (
            b'{"name":"a","retry":{"delays":["1s",2],"fctor":2}}',
            {"/retry/delays/1": "wrong-type", "/retry/fctor": "unknown-field"},
        ),
        (b'{"name":"a","start_at":1758700800000}', {"/start_at": "wrong-type"}),
    ],
)
async def test_fields_that_are_wrong_are_422_with_pointers(
    api: httpx.AsyncClient, body: bytes, faults: dict[str, str]
) -> None:
    answer = await api.post("/api/v1/jobs", content=body, headers=JSON)

    assert faults_of(answer) == faults


async def test_all_faults_are_told_at_once(api: httpx.AsyncClient) -> None:
    body = {
        "shedule": {"cron": "* * * * *"},
        "max_retries": "3",
        "labels": {"a": 1},
        "retry": {"factor": "x"},
        "zone": 5,
    }

    answer = await api.post("/api/v1/jobs", json=body)

    assert faults_of(answer) == {
        "/shedule": "unknown-field",
        "/max_retries": "wrong-type",
        "/labels/a": "wrong-type",
        "/retry/factor": "wrong-type",
        "/zone": "wrong-type",
        "/name": "required",
    }
    by_pointer = {fault["pointer"]: fault for fault in answer.json()["errors"]}
    assert by_pointer["/shedule"]["hint"] == "did you mean schedule?"
    assert by_pointer["/max_retries"]["message"] == "expected an integer, not a string"


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        (
            {"name": "", "schedule": {"cron": "61 * * * *"}, "priority": 17, "colour": "red", "max_retries": "3"},
            {"/name", "/schedule/cron", "/priority", "/colour", "/max_retries"},
        ),
        ({"priority": 17, "kind": ""}, {"/name", "/priority", "/kind"}),
        ({"name": "a", "kind": "command", "payload": {"argv": ["\0"]}, "queue": "?"}, {"/payload/argv/0", "/queue"}),
        ({"name": "a", "kind": "command", "payload": {"argv": ["true"], "x": 2**70}}, {"/payload/x"}),
        (
            {
                "name": "a",
                "kind": "command",
                "payload": {"argv": ["echo", 1, None, 2**70], "stdin": "a\0b", "cwd": "/"},
            },
            {"/payload/argv/1", "/payload/argv/2", "/payload/argv/3", "/payload/stdin", "/payload/cwd"},
        ),
        (
            {"name": "a", "kind": "command", "payload": {"argv": [], "env": {"A\0": 1, "PATH": "x", "B": 2**70}}},
            {"/payload/argv", "/payload/env/A\0", "/payload/env/PATH", "/payload/env/B"},
        ),
        ({"name": "a", "kind": 5, "payload": {"argv": []}, "queue": "?"}, {"/kind", "/queue"}),
        ({"name": "a", "kind": "command", "payload": {"argv": []}, "a/b": 1}, {"/payload/argv", "/a~1b"}),
        ({"name": "a", "payload": {"x": "\0"}, "concurrency_key": "{x}"}, {"/payload/x"}),
        ({"name": "a", "concurrency_key": 5, "concurrency_limit": 3}, {"/concurrency_key"}),
    ],
)
async def test_faults_of_form_and_of_meaning_are_told_together_and_once(
    api: httpx.AsyncClient, jobs: Any, body: dict[str, Any], faults: set[str]
) -> None:
    single = await api.post("/api/v1/jobs", json=body)
    batch = await api.post("/api/v1/jobs/batch", json=[{"name": "a"}, 3, body, {"name": "a", "queue": "?"}])

    assert sorted(fault["pointer"] for fault in single.json()["errors"]) == sorted(faults)
    in_batch = ["/1", *(f"/2{pointer}" for pointer in faults), "/3/queue"]
    assert sorted(fault["pointer"] for fault in batch.json()["errors"]) == sorted(in_batch)
    assert jobs.jobs == {}


@pytest.mark.parametrize("path", ["/api/v1/jobs/{}/run", "/jobs/{}/runNow"])
@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"payload": {"argv": []}, "note": 5}, {"/payload/argv": "argv-must-be-list", "/note": "wrong-type"}),
        ({"payload": {"argv": ["\0"]}, "x": 1}, {"/payload/argv/0": "invalid-unicode", "/x": "unknown-field"}),
        ({"payload": {"argv": ["true"]}, "note": 5}, {"/note": "wrong-type"}),
    ],
)
async def test_every_fault_of_a_run_asked_for_is_told_and_nothing_runs(
    api: httpx.AsyncClient, jobs: Any, path: str, body: dict[str, Any], faults: dict[str, str]
) -> None:
    job = {"name": "a", "kind": "command", "payload": {"argv": ["true"]}}
    job_id = (await api.post("/api/v1/jobs", json=job)).json()["job_id"]

    assert faults_of(await api.post(path.format(job_id), json=body)) == faults
    assert [call for call in jobs.calls if call[0] == "run_now"] == []


async def test_the_payload_of_a_change_is_judged_by_the_kind_of_the_job(api: httpx.AsyncClient) -> None:
    job = {"name": "a", "kind": "command", "payload": {"argv": ["true"]}}
    path = f"/api/v1/jobs/{(await api.post('/api/v1/jobs', json=job)).json()['job_id']}"

    told = await api.patch(path, json={"payload": {"argv": []}, "colour": "red"})
    kind_unknown = await api.patch(path, json={"payload": {"argv": []}, "kind": 5})

    assert faults_of(told).keys() == {"/payload/argv", "/colour"}
    assert faults_of(kind_unknown).keys() == {"/kind"}


@pytest.mark.parametrize(
    "payload",
    [
        b'{"x":9223372036854775807}',
        b'{"x":"9999999999999999999999"}',
        b'{"x":"\\\\u0000"}',
        b'{"x":{"name":1},"y":{"name":1}}',
    ],
)
async def test_look_alikes_of_faults_are_accepted(api: httpx.AsyncClient, payload: bytes) -> None:
    answer = await api.post("/api/v1/jobs", content=b'{"name":"a","payload":' + payload + b"}", headers=JSON)

    assert answer.status_code == 202, answer.text


async def test_body_one_byte_over_the_limit_is_413(api: httpx.AsyncClient) -> None:
    body = b'{"name":"a"}'

    fits = await api.post("/api/v1/jobs", content=body + b" " * (2000 - len(body)), headers=JSON)
    over = await api.post("/api/v1/jobs", content=body + b" " * (2001 - len(body)), headers=JSON)

    assert fits.status_code == 202
    assert (over.status_code, code_of(over)) == (413, "body-too-large")
    assert "2000" in over.json()["detail"]


async def test_endless_chunks_are_cut_at_the_limit(app: Any) -> None:
    received = 0

    async def receive() -> dict[str, Any]:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"x" * 500, "more_body": True}

    status = await send_raw(app, receive)

    assert status == 413
    assert received == 5


async def test_a_body_that_never_ends_arriving_is_408(app: Any) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    assert await send_raw(app, receive) == 408


async def send_raw(app: Any, receive: Any) -> int:
    headers = [
        (b"host", b"localhost"),
        (b"authorization", b"Bearer hh_test-token"),
        (b"content-type", b"application/json"),
    ]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/jobs",
        "raw_path": b"/api/v1/jobs",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported-media-type"),
        ({}, 415, "unsupported-media-type"),
        ({"Content-Type": "application/json; charset=latin-1"}, 415, "unsupported-media-type"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "unsupported-media-type"),
        ({"Content-Type": "application/json", "Accept": "application/xml"}, 406, "not-acceptable"),
        ({"Content-Type": "application/json", "Accept": "application/json;q=0, text/html"}, 406, "not-acceptable"),
        ({"Content-Type": "application/json", "X-Long": "y" * 100_000}, 431, "headers-too-large"),
        ({"Content-Type": "application/json", "Host": "evil.example"}, 421, "host-not-allowed"),
    ],
)
async def test_headers_that_do_not_fit_are_refused(
    api: httpx.AsyncClient, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await api.post("/api/v1/jobs", content=b'{"name":"a"}', headers=headers)

    assert (answer.status_code, code_of(answer)) == (status, code)


@pytest.mark.parametrize(
    "accept", ["*/*", "application/*", "text/html,*/*;q=0.8", "application/problem+json", "application/json;q=0.1"]
)
async def test_usual_accept_headers_are_fine(api: httpx.AsyncClient, accept: str) -> None:
    assert (await api.get("/api/v1/whoami", headers={"Accept": accept})).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:8780", "[::1]:8780", "LOCALHOST."])
async def test_loopback_hosts_are_always_answered(api: httpx.AsyncClient, host: str) -> None:
    assert (await api.get("/api/v1/whoami", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/api/v2/jobs", "/static/none.js", "/static/..%2fapp.py", "/jobs/a/b/c"]
)
async def test_unknown_routes_are_404_problem_documents(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)

    assert (answer.status_code, code_of(answer)) == (404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/api/v1/jobs", "GET, POST"),
        ("POST", "/api/v1/cluster", "GET"),
        ("GET", "/jobs", "POST"),
        ("PATCH", "/api/jobs/0198c0de-7a5c-7000-8000-000000000000", "DELETE, PUT"),
    ],
)
async def test_wrong_methods_are_405_with_allow(api: httpx.AsyncClient, method: str, path: str, allow: str) -> None:
    answer = await api.request(method, path, headers={"X-HTTP-Method-Override": "GET"})

    assert (answer.status_code, code_of(answer)) == (405, "method-not-allowed")
    assert answer.headers["allow"] == allow


async def test_options_name_what_can_be_done(anonymous: httpx.AsyncClient) -> None:
    answer = await anonymous.options("/api/v1/jobs")

    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, OPTIONS, POST")
    assert "access-control-allow-origin" not in answer.headers


async def test_a_long_address_is_414(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/jobs?name=" + "x" * 20_000)

    assert (answer.status_code, code_of(answer)) == (414, "url-too-long")


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("/api/v1/jobs?stats=paused", "unknown-parameter", "did you mean status?"),
        ("/api/v1/whoami?x=1", "unknown-parameter", "namespace"),
        ("/api/v1/jobs?limit=0", "invalid-parameter", "1 to 500"),
        ("/api/v1/jobs?limit=-1", "invalid-parameter", "1 to 500"),
        ("/api/v1/jobs?limit=100000", "invalid-parameter", "1 to 500"),
        ("/api/v1/jobs?limit=ten", "invalid-parameter", "1 to 500"),
        ("/api/v1/jobs?limit=%D9%A3", "invalid-parameter", "1 to 500"),
        ("/api/v1/jobs?limit=", "invalid-parameter", "1 to 500"),
        ("/api/v1/jobs?limit=1&limit=2", "repeated-parameter", "twice"),
        ("/api/v1/jobs?cursor=abc", "invalid-cursor", "next_cursor"),
        ("/api/v1/jobs?cursor=%FF", "invalid-parameter", "UTF-8"),
        ("/api/v1/jobs?status=%27%20OR%201=1", "unknown-status", "scheduled"),
        ("/api/v1/runs?status=running,gone", "unknown-status", "gone"),
        ("/api/v1/jobs?label=team", "invalid-parameter", "key:value"),
        ("/api/v1/jobs?priority=urgent", "invalid-parameter", "urgent"),
        ("/api/v1/jobs?name=a%00b", "invalid-parameter", "NUL"),
        ("/api/v1/jobs/17", "invalid-id", "not an id"),
        ("/api/v1/jobs/0198c0de7a5c70008000000000000000", "invalid-id", "not an id"),
        ("/api/v1/runs?job_id=x", "invalid-id", "not an id"),
        ("/api/v1/runs/0198c0de-7a5c-7000-8000-000000000000/logs?after=x", "invalid-cursor", "1:57"),
        ("/api/jobs?page=0", "invalid-parameter", "page"),
        ("/api/jobs?type=often", "invalid-parameter", "one-time"),
    ],
)
async def test_parameters_that_are_wrong_are_400(api: httpx.AsyncClient, path: str, code: str, said: str) -> None:
    answer = await api.get(path)

    assert (answer.status_code, code_of(answer)) == (400, code)
    assert said in answer.json()["detail"]


async def test_foreign_and_unknown_things_are_404(api: httpx.AsyncClient) -> None:
    job = await api.get("/api/v1/jobs/0198c0de-7a5c-7000-8000-000000000000")
    namespace = await api.get("/api/v1/jobs?namespace=nowhere")

    assert code_of(job) == code_of(namespace) == "not-found"
    assert job.status_code == namespace.status_code == 404


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (DatabaseUnavailable("the database does not answer"), 503, "database-unavailable", "1"),
        (Overloaded("too much is waiting", 7), 503, "overloaded", "7"),
        (Conflict("name-taken", "the name is taken"), 409, "name-taken", None),
        (ValueError("secret detail"), 500, "internal-error", None),
        (AssertionError("secret detail"), 500, "internal-error", None),
    ],
)
async def test_errors_of_operations_get_their_status(
    api: httpx.AsyncClient, jobs: Any, error: Exception, status: int, code: str, retry_after: str | None
) -> None:
    jobs.fail_with = error

    answer = await api.post("/api/v1/jobs", json={"name": "a"}, headers={"X-Request-Id": "mine-1"})

    assert (answer.status_code, code_of(answer)) == (status, code)
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json()["instance"] == "mine-1"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


async def test_every_answer_carries_the_security_headers(api: httpx.AsyncClient, anonymous: httpx.AsyncClient) -> None:
    answers = [
        await api.get("/api/v1/whoami"),
        await anonymous.get("/api/v1/whoami"),
        await anonymous.get("/nothing"),
        await anonymous.get("/"),
        await anonymous.get("/api/v1/whoami", headers={"Host": "evil.example"}),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"]


async def test_a_request_id_is_echoed_only_when_it_is_harmless(api: httpx.AsyncClient) -> None:
    good = await api.get("/api/v1/whoami", headers={"X-Request-Id": "trace-1.2:3"})
    bad = await api.get("/api/v1/whoami", headers={"X-Request-Id": "<script>" * 20})

    assert good.headers["x-request-id"] == "trace-1.2:3"
    assert len(bad.headers["x-request-id"]) == 16


async def test_what_needs_no_payload_is_told_beside_a_payload_that_cannot_be_read(api: httpx.AsyncClient) -> None:
    body = {"name": "a", "payload": 5, "retry": {"on": [0]}}
    empty = await api.post("/api/v1/jobs", json={**body, "concurrency_key": ""})
    filled = await api.post("/api/v1/jobs", json={**body, "concurrency_key": "{id}"})
    assert faults_of(empty) == {"/payload": "wrong-type", "/concurrency_key": "invalid-key"}
    assert faults_of(filled) == {"/payload": "wrong-type"}
