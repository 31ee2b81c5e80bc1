"""Bad input over the wire: one problem document that names every fault, and nothing stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness import NO_TLS, Up

FINE = {"name": "fine", "payload": {"handler": "bench.noop"}, "schedule": {"at": "2035-01-01T00:00:00Z"}}


@pytest.fixture
def api(running: Up) -> httpx.Client:
    return running.http()


@pytest.fixture(scope="module")
def kept(running: Up) -> str:
    """A job that some tests here try to change or to run, in vain."""
    body = FINE | {"kind": "command", "payload": {"argv": ["true"]}}
    response = running.http().post("/api/v1/jobs", json=body)
    assert response.status_code == 202, response.text
    return response.json()["job_id"]


@pytest.fixture(autouse=True)
def nothing_stored(running: Up) -> Iterator[None]:
    """Whatever a test here sends, there are as many jobs afterwards as before, and the server is well."""
    with running.client() as client:
        before = {job.job_id for job in client.list_jobs(limit=500)}
        yield
        assert {job.job_id for job in client.list_jobs(limit=500)} == before
    assert httpx.get(f"{running.url}/readyz", verify=NO_TLS).status_code == 200


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text[:2000]
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert {"type", "title", "status", "detail", "instance"} <= set(document)
    assert document["status"] == status
    assert document["type"].startswith("urn:hourhand:problem:")
    assert "Traceback" not in response.text
    return document


def pointers(document: dict[str, Any]) -> list[str]:
    return sorted(fault["pointer"] for fault in document["errors"])


def post(api: httpx.Client, body: bytes | str | Any, path: str = "/api/v1/jobs") -> httpx.Response:
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return api.post(path, content=content, headers={"Content-Type": "application/json"})


WRONG = {
    "name": "wrong",
    "kind": "comand",
    "payload": {"argv": ["true"]},
    "schedule": {"cron": "0 0 30 2 *"},
    "zone": "Mars/Olympus",
    "end_at": "2001-01-01T00:00:00Z",
    "max_retries": "three",
    "priority": 17,
    "timeout": "soon",
    "labels": {"team": 7},
    "colour": "red",
}


def test_every_fault_of_a_body_is_named_at_once(api: httpx.Client) -> None:
    found = problem(post(api, WRONG), 422)
    for fault in found["errors"]:
        assert fault["message"]
        assert fault["code"]
    assert set(pointers(found)) >= {"/max_retries", "/labels/team", "/colour"}, "wrong types and unknown fields"
    assert set(pointers(found)) >= {"/kind", "/schedule/cron", "/zone", "/end_at", "/priority", "/timeout"}, (
        "and what is wrong beyond types, in the same answer"
    )


@pytest.mark.parametrize(
    ("path", "body", "faults"),
    [
        (
            "/jobs",
            {"name": "", "schedule_type": "CRON", "cron_expression": "61 * * * *", "max_retries": -4, "x": 1},
            ["/cron_expression", "/max_retries", "/name", "/x"],
        ),
        ("/jobs", {"schedule_type": "CRON", "max_retries": -4}, ["/cron_expression", "/max_retries", "/name"]),
        (
            "/api/jobs",
            {
                "jobName": "",
                "jobType": "recurring",
                "frequency": "often",
                "priority": "urgent",
                "executionTime": "soon",
            },
            ["/executionTime", "/frequency", "/jobName", "/priority"],
        ),
        (
            "/api/jobs",
            {"jobType": "one-time", "priority": 5, "executionTime": "soon", "x": 1},
            ["/executionTime", "/jobName", "/priority", "/x"],
        ),
        (
            "/api/v1/jobs",
            {"kind": "command", "payload": {"argv": ["\x00"]}, "priority": 17},
            ["/name", "/payload/argv/0", "/priority"],
        ),
    ],
)
def test_every_way_to_submit_names_every_fault_once(
    api: httpx.Client, path: str, body: dict[str, Any], faults: list[str]
) -> None:
    assert pointers(problem(post(api, body, path), 422)) == faults


@pytest.mark.parametrize(
    ("request_line", "body", "faults"),
    [
        (
            "PATCH /api/v1/jobs/{}",
            {"payload": {"argv": []}, "zone": "Mars/Olympus", "priority": "urgent", "x": 1},
            ["/payload/argv", "/priority", "/x", "/zone"],
        ),
        (
            "PUT /jobs/{}",
            {"payload": {"argv": []}, "schedule_type": "FUTURE", "max_retries": -4, "x": 1},
            ["/max_retries", "/payload/argv", "/schedule_time", "/x"],
        ),
        (
            "PUT /api/jobs/{}",
            {"payload": {"argv": []}, "frequency": "often", "executionTime": "soon", "jobName": 5},
            ["/executionTime", "/frequency", "/jobName", "/payload/argv"],
        ),
        ("POST /api/v1/jobs/{}/run", {"payload": {"argv": []}, "note": 5}, ["/note", "/payload/argv"]),
        ("POST /jobs/{}/runNow", {"payload": {"argv": []}, "note": 5}, ["/note", "/payload/argv"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_way_to_change_or_run_a_job_names_every_fault_and_does_nothing(
    api: httpx.Client, kept: str, request_line: str, body: dict[str, Any], faults: list[str]
) -> None:
    method, path = request_line.split()
    before = api.get(f"/api/v1/jobs/{kept}").json()

    assert pointers(problem(api.request(method, path.format(kept), json=body), 422)) == faults

    assert api.get(f"/api/v1/jobs/{kept}").json() == before
    assert api.get(f"/api/v1/jobs/{kept}/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"colour": "red"}, "/colour"),
        ({"max_retries": "three"}, "/max_retries"),
        ({"schedule": {"cron": "61 * * * *"}}, "/schedule/cron"),
        ({"schedule": {"cron": "0 0 30 2 *"}}, "/schedule/cron"),
        ({"schedule": {"cron": "* * * *"}}, "/schedule/cron"),
        ({"schedule": {"cron": "0 9 * * *"}, "zone": "Mars/Olympus"}, "/zone"),
        ({"schedule": {"cron": "0 9 * * *"}, "end_at": "2001-01-01T00:00:00Z"}, "/end_at"),
        ({"schedule": {"every": "sometimes"}}, "/schedule/every"),
        ({"schedule": {"at": "2025-13-01T00:00:00Z"}}, "/schedule/at"),
        ({"schedule": {"cron": "0 9 * * *", "every": "1h"}}, "/schedule"),
        ({"name": ""}, "/name"),
        ({"name": "x" * 10_000}, "/name"),
        ({"name": None}, "/name"),
        ({"kind": "comand"}, "/kind"),
        ({"kind": ""}, "/kind"),
        ({"payload": ["a", "list"]}, "/payload"),
        ({"kind": "command", "payload": {}}, "/payload/argv"),
        ({"kind": "http", "payload": {"url": "ftp://example.com"}}, "/payload/url"),
        ({"max_retries": 10**30}, "/max_retries"),
        ({"max_retries": -1}, "/max_retries"),
        ({"priority": 10**30}, "/priority"),
        ({"payload": {"handler": "bench.noop", "number": 10**30}}, "/payload/number"),
        ({"name": "nul\x00"}, "/name"),
        ({"payload": {"handler": "bench.noop", "text": "nul\x00"}}, "/payload/text"),
        ({"labels": {"nul": "\x00"}}, "/labels/nul"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_fault_is_named_with_its_place(api: httpx.Client, changes: dict[str, Any], pointer: str) -> None:
    found = problem(post(api, FINE | changes), 422)
    assert pointers(found) == [pointer]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nothing",
        b'"text"',
        b"[]",
        b"null",
        b'{"name": "x", "name": "y"}',
        b'{"name": "x", "payload": {"a": 1, "a": 2}}',
        b'{"name": "\xff\xfe"}',
        b'{"name": "\\ud800"}',
        b'{"name": "x", "payload": {"x": NaN}}',
        b'{"name": "x", "payload": {"x": 1e999}}',
        b'{"name": "x"} {"name": "y"}',
        b"\xef\xbb\xbf{}",
        b"{" + b'"a":{' * 10_000 + b"}" * 10_001,
        b'{"name": "deep", "payload": {"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
        b'{"name": "deep", "payload": ' + b'{"x":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b'{"name": "deep", "schedule": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"name": "long", "max_retries": ' + b"9" * 100_000 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_cannot_be_read_is_the_callers_fault(api: httpx.Client, body: bytes) -> None:
    response = post(api, body)
    assert 400 <= response.status_code < 500, response.text[:2000]
    problem(response, response.status_code)


@pytest.mark.parametrize("path", ["/jobs", "/api/jobs", "/api/v1/jobs/batch"])
@pytest.mark.parametrize(
    "body",
    [b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b'{"name": "x", "colour": "red"}', b"{"],
    ids=["deep lists", "deep objects", "unknown field", "cut off"],
)
def test_every_way_to_submit_refuses_it_the_same(api: httpx.Client, path: str, body: bytes) -> None:
    response = post(api, body, path)
    assert 400 <= response.status_code < 500, response.text[:2000]
    problem(response, response.status_code)


def test_a_body_that_is_too_large_is_refused(api: httpx.Client) -> None:
    problem(post(api, FINE | {"description": "x" * (2 << 20)}), 413)


def test_a_body_of_unknown_length_that_is_too_large_is_refused(api: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(64):
            yield b"x" * (64 << 10)

    try:
        response = api.post("/api/v1/jobs", content=pieces(), headers={"Content-Type": "application/json"})
    except (httpx.WriteError, httpx.ReadError):  # it hung up while we were still talking
        return
    problem(response, 413)


def test_a_batch_with_one_bad_item_stores_nothing(api: httpx.Client) -> None:
    batch = [FINE] * 20
    batch[17] = FINE | {"schedule": {"cron": "0 0 30 2 *"}}
    batch[19] = FINE | {"colour": "red"}
    found = problem(post(api, batch, "/api/v1/jobs/batch"), 422)
    assert pointers(found) == ["/17/schedule/cron", "/19/colour"]


def test_the_same_batch_line_by_line_stores_nothing(api: httpx.Client) -> None:
    batch = [FINE] * 20
    batch[17] = FINE | {"zone": "Mars/Olympus"}
    content = "\n".join(map(json.dumps, batch))
    response = api.post("/api/v1/jobs/batch", content=content, headers={"Content-Type": "application/x-ndjson"})
    assert pointers(problem(response, 422)) == ["/17/zone"]


@pytest.mark.parametrize("body", [b"[]", b"{}", b"[null]", b"[1]", b"[[]]"])
def test_a_batch_that_is_none_is_refused(api: httpx.Client, body: bytes) -> None:
    response = post(api, body, "/api/v1/jobs/batch")
    assert response.status_code in (400, 422)
    problem(response, response.status_code)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /api/v1/jobs?limit=0", 400),
        ("GET /api/v1/jobs?limit=99999999999999999999", 400),
        ("GET /api/v1/jobs?colour=red", 400),
        ("GET /api/v1/jobs?cursor=nonsense", 400),
        ("GET /api/v1/jobs?name=%00", 400),
        ("GET /api/v1/jobs/no-uuid", 400),
        ("GET /api/v1/jobs/00000000-0000-0000-0000-000000000000", 404),
        ("GET /api/v1/runs/ffffffff-ffff-ffff-ffff-ffffffffffff", 404),
        ("GET /api/v1/runs/ffffffff-ffff-ffff-ffff-ffffffffffff/logs?after=-1:0", 400),
        ("GET /api/v1/nothing", 404),
        ("PATCH /api/v1/jobs", 405),
        ("GET /api/v1/jobs?namespace=elsewhere", 404),
        ("GET /" + "x" * 20_000, 414),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else None,
)
def test_a_wrong_address_is_a_problem_document(api: httpx.Client, request_line: str, status: int) -> None:
    method, path = request_line.split()
    response = api.request(method, path)
    if status in (400, 404) and response.status_code in (400, 404):
        status = response.status_code  # an id that cannot exist may be called wrong or not found
    problem(response, status)


def test_a_body_in_another_form_is_refused(api: httpx.Client) -> None:
    problem(api.post("/api/v1/jobs", data={"name": "form"}), 415)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer hh_wrong", "Basic YTpi", "Bearer hh_" + "x" * 5000])
def test_a_wrong_token_is_refused(running: Up, header: str) -> None:
    headers = {"Authorization": header} if header else {}
    problem(httpx.post(f"{running.url}/api/v1/jobs", json=FINE, headers=headers), 401)
