"""Idempotency-Key and unique keys, as they come over HTTP."""

from typing import Any
from uuid import UUID

import httpx
import pytest
from api_fakes import FakeJobs, code_of, faults_of

from hourhand.model.errors import DuplicateJob

HELLO = {"name": "hello", "kind": "command", "payload": {"argv": ["true"]}}
ROUTES: list[tuple[str, Any, Any]] = [
    ("/api/v1/jobs", HELLO, {**HELLO, "name": "other"}),
    ("/api/v1/jobs/batch", [HELLO, HELLO], [HELLO]),
    ("/jobs", {"name": "a", "schedule_type": "IMMEDIATE"}, {"name": "b", "schedule_type": "IMMEDIATE"}),
    ("/api/jobs", {"jobName": "a", "jobType": "one-time"}, {"jobName": "b", "jobType": "one-time"}),
]
each_route = pytest.mark.parametrize(("path", "body", "other"), ROUTES, ids=[path for path, _, _ in ROUTES])


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


@each_route
async def test_the_same_request_with_its_key_is_answered_the_same_and_marked(
    api: httpx.AsyncClient, jobs: FakeJobs, path: str, body: Any, other: Any
) -> None:
    first = await api.post(path, json=body, headers=keyed("k"))
    made = len(jobs.jobs)
    again = await api.post(path, json=body, headers=keyed("k"))
    assert (first.status_code, again.status_code) == (202, 202)
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert again.json() == first.json()
    assert again.headers.get("location") == first.headers.get("location")
    assert len(jobs.jobs) == made


@each_route
async def test_the_key_with_another_body_is_refused(
    api: httpx.AsyncClient, jobs: FakeJobs, path: str, body: Any, other: Any
) -> None:
    await api.post(path, json=body, headers=keyed("k"))
    made = len(jobs.jobs)
    refused = await api.post(path, json=other, headers=keyed("k"))
    assert (refused.status_code, code_of(refused)) == (422, "idempotency-key-reused")
    assert refused.json()["title"] == "The key belongs to another request"
    assert len(jobs.jobs) == made


@each_route
@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "schlüssel".encode("latin-1"), "a\tb"])
async def test_a_key_that_is_none_is_refused(
    api: httpx.AsyncClient, jobs: FakeJobs, path: str, body: Any, other: Any, key: str
) -> None:
    refused = await api.post(path, json=body, headers={"Idempotency-Key": key})
    assert (refused.status_code, code_of(refused)) == (400, "invalid-header")
    assert "1 to 255 visible ASCII characters" in refused.json()["detail"]
    assert jobs.jobs == {}


@pytest.mark.parametrize("key", ["k", "!", "~" * 255, '"8e03978e-40d5-43dd-bc93-6894a57f9324"'])
async def test_every_visible_ascii_character_may_be_in_a_key(api: httpx.AsyncClient, key: str) -> None:
    assert (await api.post("/api/v1/jobs", json=HELLO, headers=keyed(key))).status_code == 202


async def test_a_key_given_twice_is_refused(api: httpx.AsyncClient) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    refused = await api.post("/api/v1/jobs", json=HELLO, headers=headers)
    assert (refused.status_code, code_of(refused)) == (400, "repeated-header")


async def test_a_key_belongs_to_its_namespace_whether_address_or_body_names_it(api: httpx.AsyncClient) -> None:
    first = await api.post("/api/v1/jobs", json=HELLO, headers=keyed("k"))
    second = await api.post("/api/v1/jobs?namespace=team-a", json=HELLO, headers=keyed("k"))
    assert first.json()["job_id"] != second.json()["job_id"]
    named = await api.post("/api/v1/jobs", json={**HELLO, "namespace": "team-a"}, headers=keyed("k"))
    assert code_of(named) == "idempotency-key-reused"


async def test_a_key_of_one_route_is_refused_on_another(api: httpx.AsyncClient) -> None:
    body = {"name": "a", "schedule_type": "IMMEDIATE"}
    await api.post("/jobs", json=body, headers=keyed("k"))
    assert code_of(await api.post("/api/v1/jobs", json=HELLO, headers=keyed("k"))) == "idempotency-key-reused"


async def test_a_refused_request_does_not_use_up_its_key(api: httpx.AsyncClient) -> None:
    wrong = {**HELLO, "schedule": {"cron": "61 * * * *"}}
    assert faults_of(await api.post("/api/v1/jobs", json=wrong, headers=keyed("k"))) == {
        "/schedule/cron": "cron-out-of-range"
    }
    assert (await api.post("/api/v1/jobs", json=HELLO, headers=keyed("k"))).status_code == 202


async def test_the_openapi_document_names_the_header_where_it_counts(api: httpx.AsyncClient) -> None:
    paths = (await api.get("/openapi.json")).json()["paths"]
    named = {
        path
        for path, methods in paths.items()
        for method in methods.values()
        if any(each["in"] == "header" and each["name"] == "Idempotency-Key" for each in method["parameters"])
    }
    assert named == {path for path, _, _ in ROUTES}


async def test_a_duplicate_is_a_conflict_that_names_the_job_which_is_there(
    api: httpx.AsyncClient, jobs: FakeJobs
) -> None:
    there = UUID(int=7)
    jobs.fail_with = DuplicateJob({"/unique_key": there})
    refused = await api.post("/api/v1/jobs", json={**HELLO, "unique_key": "u"})
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "urn:hourhand:problem:duplicate-job")
    assert problem["job_id"] == str(there)
    assert [(each["pointer"], each["code"]) for each in problem["errors"]] == [("/unique_key", "duplicate-job")]


async def test_a_unique_key_is_passed_on_and_its_faults_are_told_with_all_others(
    api: httpx.AsyncClient, jobs: FakeJobs
) -> None:
    assert (await api.post("/api/v1/jobs", json={**HELLO, "unique_key": "u", "unique_period": "1h"})).status_code == 202
    assert (jobs.calls[-1][2].unique_key, jobs.calls[-1][2].unique_period) == ("u", "1h")
    wrong = {"name": "", "unique_period": "soon"}
    assert faults_of(await api.post("/api/v1/jobs", json=wrong)) == {
        "/name": "invalid-name",
        "/unique_period": "invalid-duration",
    }
    assert faults_of(await api.post("/api/v1/jobs", json={**HELLO, "unique_key": 7, "unique_period": "1h"})) == {
        "/unique_key": "wrong-type"
    }


async def test_a_change_cannot_touch_the_unique_key(api: httpx.AsyncClient) -> None:
    job_id = (await api.post("/api/v1/jobs", json={**HELLO, "unique_key": "u"})).json()["job_id"]
    for field in ("unique_key", "unique_period", "namespace"):
        refused = await api.patch(f"/api/v1/jobs/{job_id}", json={field: "v"})
        assert faults_of(refused) == {f"/{field}": "read-only-field"}
        assert refused.json()["errors"][0]["message"] == f"{field} can be given only when a job is created"


async def test_a_key_is_refused_where_it_would_be_passed_over(api: httpx.AsyncClient, jobs: FakeJobs) -> None:
    job_id = (await api.post("/api/v1/jobs", json=HELLO)).json()["job_id"]
    done = len(jobs.calls)
    for path in (f"/api/v1/jobs/{job_id}/run", f"/jobs/{job_id}/runNow", "/api/v1/runs/retry"):
        refused = await api.post(path, json={}, headers=keyed("k"))
        assert (refused.status_code, code_of(refused)) == (400, "idempotency-key-not-supported")
        assert "POST /api/v1/jobs" in refused.json()["detail"]
    assert len(jobs.calls) == done
    assert (await api.get(f"/api/v1/jobs/{job_id}", headers=keyed("k"))).status_code == 200


async def test_a_key_wanted_twice_in_a_batch_is_told_beside_other_faults(api: httpx.AsyncClient) -> None:
    twice = {**HELLO, "unique_key": "u"}
    refused = await api.post("/api/v1/jobs/batch", json=[twice, twice, {"nam": "x", "name": "x"}])
    assert faults_of(refused) == {"/1/unique_key": "repeated-key", "/2/nam": "unknown-field"}
