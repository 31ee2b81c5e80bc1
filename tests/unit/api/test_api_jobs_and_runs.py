"""/api/v1: what good requests get."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from api_fakes import NOW, code_of, faults_of

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.run import LogLine
from hourhand.model.states import RunState
from hourhand.operations.requests import JobFilter

CRON = {"name": "Daily", "schedule": {"cron": "0 0 * * *"}, "payload": {"a": 1}}
NDJSON = {"Content-Type": "application/x-ndjson"}


async def create(api: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await api.post("/api/v1/jobs", json={**CRON, **fields})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def test_a_submitted_job_is_given_back_whole(api: httpx.AsyncClient) -> None:
    answer = await api.post("/api/v1/jobs", json={**CRON, "timeout": "90s", "retry": {"delays": ["30s", "2m"]}})

    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/jobs/{job['job_id']}"
    assert job == {
        "job_id": job["job_id"],
        "namespace": "default",
        "name": "Daily",
        "kind": "python",
        "payload": {"a": 1},
        "schedule": [{"cron": "0 0 * * *"}],
        "zone": "UTC",
        "start_at": None,
        "end_at": None,
        "dst_gap": "fire_after",
        "dst_overlap": "auto",
        "max_runs": None,
        "jitter": None,
        "calendars": None,
        "on_excluded": None,
        "queue": "default",
        "priority": 5,
        "max_retries": 3,
        "retry": {"delays": ["30s", "2m"]},
        "catchup": {"mode": "last", "window": "1h", "max_runs": 100},
        "timeout": "1m30s",
        "queue_timeout": None,
        "deadline": None,
        "overlap": "skip",
        "overlap_max": None,
        "on_next_due": None,
        "max_concurrency": None,
        "concurrency_key": None,
        "concurrency_limit": None,
        "rate_limit": None,
        "at_most_once": False,
        "on_disconnect": "continue",
        "pause_after_failures": None,
        "placement": None,
        "resources": None,
        "labels": {},
        "description": "",
        "owner": "tester",
        "unique_key": None,
        "status": "scheduled",
        "pause_reason": None,
        "pauses": [],
        "next_due": "2025-09-25T00:00:00Z",
        "version": 1,
        "created_at": "2025-09-24T08:00:00Z",
        "created_by": "tester",
        "updated_at": "2025-09-24T08:00:00Z",
    }


async def test_an_answer_can_be_sent_back_as_a_change(api: httpx.AsyncClient) -> None:
    limits = {
        "overlap": "queue_one",
        "concurrency_key": "k",
        "concurrency_limit": 2,
        "rate_limit": "5/s",
        "deadline": "1h",
    }
    retry = {"base": "10s", "factor": 3, "max": "5m", "jitter": 0}
    job = await create(api, retry=retry, catchup={"window": "0s"}, **limits)
    fields = ("schedule", "zone", "retry", "catchup", "timeout", "labels", "priority", "start_at", *limits)

    answer = await api.put(f"/api/v1/jobs/{job['job_id']}", json={name: job[name] for name in fields})

    assert answer.status_code == 200, answer.text
    assert {name: answer.json()["job"][name] for name in fields} == {name: job[name] for name in fields}
    assert job["retry"] == {"base": "10s", "factor": 3, "max": "5m", "jitter": 0}


async def test_faults_of_the_definition_come_with_their_pointers(api: httpx.AsyncClient) -> None:
    answer = await api.post(
        "/api/v1/jobs", json={"name": "", "schedule": {"cron": "61 * * * *"}, "zone": "Europe/Berln"}
    )

    assert faults_of(answer).keys() == {"/name", "/schedule/cron", "/zone"}


async def test_a_batch_is_taken_as_an_array_or_line_by_line(api: httpx.AsyncClient, jobs: Any) -> None:
    array = await api.post("/api/v1/jobs/batch", json=[{"name": "a"}, {"name": "b"}])
    lines = await api.post("/api/v1/jobs/batch", content=b'{"name":"c"}\n\n{"name":"d"}\r\n', headers=NDJSON)

    for answer in (array, lines):
        assert answer.status_code == 202, answer.text
        assert answer.json()["count"] == len(answer.json()["job_ids"]) == 2
    assert [job.definition.name for job in jobs.jobs.values()] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("body", "headers", "faults"),
    [
        (b'[{"name":"a"},{"nme":"b"}]', {}, {"/1/nme": "unknown-field", "/1/name": "required"}),
        (b'[{"name":"a"},3]', {}, {"/1": "wrong-type"}),
        (
            b'{"name":"a"}\n{"name":2}\n{"x":1}',
            NDJSON,
            {"/1/name": "wrong-type", "/2/x": "unknown-field", "/2/name": "required"},
        ),
        (b'[{"name":"a","namespace":"team-a"},{"name":"b"}]', {}, {"/1/namespace": "conflicting-namespace"}),
        (b"[" + b",".join([b'{"name":"a"}'] * 51) + b"]", {}, {"": "batch-too-large"}),
        (b'{"name":"a"}\n' * 51, NDJSON, {"": "batch-too-large"}),
    ],
)
async def test_faults_in_a_batch_point_at_the_item(
    api: httpx.AsyncClient, jobs: Any, body: bytes, headers: dict[str, str], faults: dict[str, str]
) -> None:
    answer = await api.post("/api/v1/jobs/batch", content=body, headers={"Content-Type": "application/json", **headers})

    assert faults_of(answer) == faults
    assert jobs.jobs == {}


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"[]", {}, "body-required"),
        (b"", {}, "body-required"),
        (b"\n\n", NDJSON, "body-required"),
        (b'{"name":"a"}', {}, "wrong-top-level-type"),
        (b'[{"name":"a","name":"b"}]', {}, "duplicate-key"),
        (b'{"name":"a"}\n{"name":"a","name":"b"}', NDJSON, "duplicate-key"),
        (b'{"name":"a"} {"name":"b"}', NDJSON, "trailing-data"),
        (b'{"name":"a"}\n{"name":', NDJSON, "malformed-json"),
    ],
)
async def test_batches_that_cannot_be_read_are_400(
    api: httpx.AsyncClient, body: bytes, headers: dict[str, str], code: str
) -> None:
    answer = await api.post("/api/v1/jobs/batch", content=body, headers={"Content-Type": "application/json", **headers})

    assert (answer.status_code, code_of(answer)) == (400, code)


async def test_a_batch_may_be_larger_than_a_single_job(api: httpx.AsyncClient) -> None:
    body = [{"name": "a", "payload": {"x": "y" * 900}}] * 40

    assert (await api.post("/api/v1/jobs/batch", json=body)).status_code == 202


async def test_pages_follow_the_cursor_and_refuse_a_foreign_one(api: httpx.AsyncClient) -> None:
    for number in range(5):
        await create(api, name=f"job {number}")

    first = (await api.get("/api/v1/jobs?limit=2&status=scheduled")).json()
    second = (
        await api.get("/api/v1/jobs", params={"limit": 3, "status": "scheduled", "cursor": first["next_cursor"]})
    ).json()
    other_filter = await api.get("/api/v1/jobs", params={"limit": 2, "cursor": first["next_cursor"]})
    edited = await api.get("/api/v1/jobs", params={"status": "scheduled", "cursor": "B" + first["next_cursor"][1:]})

    assert [job["name"] for job in first["jobs"] + second["jobs"]] == [f"job {number}" for number in (4, 3, 2, 1, 0)]
    assert second["next_cursor"] is None
    assert code_of(other_filter) == "invalid-cursor"
    assert edited.status_code == 400


async def test_filters_reach_the_operation(api: httpx.AsyncClient, jobs: Any) -> None:
    query = "status=paused&name=n&kind=k&queue=q&owner=o&label=team:a&label=x:y:z&priority=low,7"
    await api.get(f"/api/v1/jobs?{query}")

    assert jobs.calls[-1][1].labels == {"team": "a", "x": "y:z"}
    assert jobs.calls[-1][1] == JobFilter(
        state="paused", name="n", kind="k", queue="q", owner="o", labels={"team": "a", "x": "y:z"}, priorities=[2, 7]
    )  # type: ignore[arg-type]


async def test_versions_guard_changes(api: httpx.AsyncClient) -> None:
    job = await create(api)
    path = f"/api/v1/jobs/{job['job_id']}"

    read = await api.get(path)
    changed = await api.patch(path, json={"name": "New"}, headers={"If-Match": read.headers["etag"]})
    late = await api.patch(path, json={"name": "Newer"}, headers={"If-Match": '"1"'})
    odd = await api.patch(path, json={"name": "Newer"}, headers={"If-Match": "x"})

    assert (read.headers["etag"], changed.headers["etag"]) == ('"1"', '"2"')
    assert changed.json()["job"]["name"] == "New"
    assert changed.json()["too_late"] == []
    assert (late.status_code, code_of(late)) == (412, "version-mismatch")
    assert (odd.status_code, code_of(odd)) == (400, "invalid-header")


async def test_every_verb_that_changes_a_job_honours_the_version_it_is_meant_for(api: httpx.AsyncClient) -> None:
    path = f"/api/v1/jobs/{(await create(api))['job_id']}"
    other = {"If-Match": '"2"'}

    late = [await api.post(f"{path}/{verb}", headers=other) for verb in ("pause", "resume", "run")]
    late += [await api.delete(path, headers=other), await api.put(path, json={"name": "x"}, headers=other)]
    assert {(answer.status_code, code_of(answer)) for answer in late} == {(412, "version-mismatch")}
    assert (await api.get(path)).json()["status"] == "scheduled"

    for headers in ({"If-Match": '"1"'}, {"If-Match": "*"}, {}):
        assert (await api.post(f"{path}/pause", headers=headers)).status_code == 200
    assert (await api.delete(path, headers={"If-Match": '"1"'})).json()["job"]["status"] == "cancelled"


async def test_null_and_absent_differ_in_a_change(api: httpx.AsyncClient, jobs: Any) -> None:
    job = await create(api, timeout="5s")
    path = f"/api/v1/jobs/{job['job_id']}"

    kept = await api.patch(path, json={"priority": "high"})
    gone = await api.patch(path, json={"timeout": None})
    wrong = await api.patch(path, json={"name": None, "status": "paused", "nam": 1})
    unscheduled = await api.patch(path, json={"schedule": None})

    assert (kept.json()["job"]["timeout"], kept.json()["job"]["priority"]) == ("5s", 8)
    assert gone.json()["job"]["timeout"] is None
    assert faults_of(wrong) == {"/name": "wrong-type", "/status": "read-only-field", "/nam": "unknown-field"}
    assert (unscheduled.status_code, faults_of(unscheduled)) == (422, {"/schedule": "schedule-required"})


async def test_verbs(api: httpx.AsyncClient, jobs: Any) -> None:
    path = f"/api/v1/jobs/{(await create(api))['job_id']}"

    paused = (await api.post(path + "/pause", json={"reason": "holiday"})).json()["job"]
    resumed = (await api.post(path + "/resume")).json()["job"]
    run = await api.post(path + "/run", json={"payload": {"b": 2}, "note": "by hand"})
    plain_run = await api.post(path + "/run")
    refused = await api.post(path + "/resume", json={"x": 1})
    cancelled = (await api.delete(path)).json()["job"]
    after = [await api.post(path + "/run"), await api.post(path + "/resume")]

    assert (paused["status"], paused["pause_reason"], resumed["status"]) == ("paused", "holiday", "scheduled")
    assert (run.status_code, plain_run.status_code, set(run.json())) == (202, 202, {"run_id"})
    assert [call[1].note for call in jobs.calls if call[0] == "run_now"] == ["by hand", None]
    assert faults_of(refused) == {"/x": "unknown-field"}
    assert cancelled["status"] == "cancelled"
    assert [(answer.status_code, code_of(answer)) for answer in after] == [(409, "job-cancelled"), (409, "job-final")]


async def test_questions_about_a_job(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    job = await create(api)
    path = f"/api/v1/jobs/{job['job_id']}"

    before = (await api.get(path + "/status")).json()
    run = runs.add(next(iter(jobs.jobs.values())), RunState.RUNNING)
    after = (await api.get(path + "/status")).json()
    times = (await api.get(path + "/next?count=2")).json()

    assert before == {
        "job_id": job["job_id"],
        "status": "scheduled",
        "next_due": "2025-09-25T00:00:00Z",
        "latest_run": None,
    }
    assert after["latest_run"]["run_id"] == str(run.run_id)
    assert times == {"times": ["2025-09-25T00:00:00Z", "2025-09-26T00:00:00Z"]}
    assert (await api.get(path + "/next?count=501")).status_code == 400


async def test_runs(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    await create(api)
    [job] = jobs.jobs.values()
    done = runs.add(job, RunState.SUCCEEDED, started_at=NOW + timedelta(microseconds=1500), result={"rows": 3})
    running = runs.add(job, RunState.RUNNING, 5)

    listed = (await api.get("/api/v1/runs")).json()
    only = (await api.get("/api/v1/runs?status=running,queued")).json()
    of_job = (await api.get(f"/api/v1/jobs/{job.job_id}/runs?status=succeeded&status=failed&limit=1")).json()
    one = (await api.get(f"/api/v1/runs/{done.run_id}")).json()
    cancelled = await api.post(f"/api/v1/runs/{running.run_id}/cancel")
    final = await api.post(f"/api/v1/runs/{done.run_id}/cancel")

    assert [run["run_id"] for run in listed["runs"]] == [str(running.run_id), str(done.run_id)]
    assert [run["status"] for run in only["runs"]] == ["running"]
    assert [run["run_id"] for run in of_job["runs"]] == [str(done.run_id)]
    assert (one["lateness_ms"], one["duration_ms"], one["cause"]) == (1.5, 89998.5, "schedule")
    assert one["started_at"] == "2025-09-24T08:00:00.001500Z"
    assert one["result"] == {"rows": 3}
    [attempt] = one["attempts"]
    assert (attempt["attempt"], attempt["status"], attempt["reason"]) == (1, "failed", "exit_code")
    assert set(attempt) == {
        "attempt", "status", "reason", "error", "executor", "started_at", "ended_at", "late", "fingerprint", "usage",
    }  # fmt: skip
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelling")
    assert (final.status_code, code_of(final)) == (409, "run-already-final")


async def test_runs_are_narrowed_to_reasons_and_times(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    await create(api)
    [job] = jobs.jobs.values()
    poisoned = runs.add(job, RunState.FAILED, reason="poison")
    runs.add(job, RunState.FAILED, 5, reason="timeout")

    listed = await api.get("/api/v1/runs?status=failed&reason=poison,exit_code&since=2025-09-24T07:00:00Z")
    refused = [await api.get(f"/api/v1/runs?{bad}") for bad in ("reason=poisn", "since=yesterday", "until=now")]

    assert [run["run_id"] for run in listed.json()["runs"]] == [str(poisoned.run_id)]
    [(_, wanted)] = [call for call in runs.calls if call[0] == "list"]
    assert (wanted.reasons, wanted.since, wanted.until) == (["poison", "exit_code"], NOW - timedelta(hours=1), None)
    assert {(answer.status_code, code_of(answer)) for answer in refused} == {(400, "invalid-parameter")}


async def test_like_failures_share_a_fingerprint(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    await create(api)
    [job] = jobs.jobs.values()
    for customer in ("ada", "lin"):
        runs.add(job, RunState.FAILED, reason="exception", error=f"KeyError: '{customer}'")
    runs.add(job, RunState.SUCCEEDED)
    runs.add(job, RunState.CANCELLED, reason="cancelled")

    marks = [run["fingerprint"] for run in (await api.get("/api/v1/runs")).json()["runs"]]

    assert sorted(mark is None for mark in marks) == [False, False, True, True]
    assert len(set(marks)) == 2


async def test_a_finished_run_is_run_again(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    await create(api)
    [job] = jobs.jobs.values()
    old, live = runs.add(job, RunState.FAILED), runs.add(job, RunState.RUNNING)

    made = await api.post(f"/api/v1/runs/{old.run_id}/retry", json={"note": "the disk has room again"})
    refused = await api.post(f"/api/v1/runs/{live.run_id}/retry")
    wrong = await api.post(f"/api/v1/runs/{old.run_id}/retry", json={"nite": "x"})

    new = made.json()["run_id"]
    assert (made.status_code, made.headers["location"]) == (202, f"/api/v1/runs/{new}")
    assert (await api.get(f"/api/v1/runs/{new}")).json()["retry_of"] == str(old.run_id)
    assert (await api.get(f"/api/v1/runs/{old.run_id}")).json()["retried_by"] == [new]
    assert (refused.status_code, code_of(refused)) == (409, "run-not-final")
    assert faults_of(wrong) == {"/nite": "unknown-field"}


async def test_many_runs_are_run_again_or_cancelled_by_a_filter(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    body = {"status": ["failed"], "reason": ["poison"], "since": "2025-09-24T08:00:00Z", "limit": 5, "again": True}
    retried = await api.post("/api/v1/runs/retry", json=body)
    cancelled = await api.post("/api/v1/runs/cancel", json={"status": ["running"]})

    assert (retried.status_code, cancelled.status_code) == (202, 202)
    assert {key: retried.json()[key] for key in ("retried", "more")} == {"retried": 2, "more": False}
    assert len(retried.json()["run_ids"]) == 2
    assert [cancelled.json()[key] for key in ("cancelled", "cancelling", "more")] == [1, 1, True]
    wanted = runs.calls[0][1]
    assert (wanted.states, wanted.reasons, wanted.since, wanted.limit) == ([RunState.FAILED], ["poison"], NOW, 5)


async def test_a_filter_for_many_runs_is_refused_with_all_its_faults(api: httpx.AsyncClient) -> None:
    everything = await api.post("/api/v1/runs/cancel", json={})
    wrong = await api.post("/api/v1/runs/retry", json={"status": ["running"], "since": "x", "limit": 10_001})
    form = await api.post("/api/v1/runs/retry", json={"status": "failed", "stattus": []})
    nothing = await api.post("/api/v1/runs/retry")

    assert faults_of(everything) == {"": "selection-required"}
    assert everything.json()["errors"][0]["message"].endswith("by run_ids, status, job_id, since or until")
    assert faults_of(wrong) == {
        "/status/0": "unknown-value",
        "/since": "invalid-date-time",
        "/limit": "out-of-range",
    }
    assert faults_of(form) == {"/status": "wrong-type", "/stattus": "unknown-field"}
    mixed = await api.post(
        "/api/v1/runs/retry", json={"stattus": [], "run_ids": ["x"], "limit": 0, "until": "y", "reason": ["z"]}
    )
    assert faults_of(mixed) == {
        "/stattus": "unknown-field",
        "/run_ids": "conflicting-fields",
        "/run_ids/0": "invalid-value",
        "/limit": "out-of-range",
        "/until": "invalid-date-time",
        "/reason/0": "unknown-value",
    }
    assert (nothing.status_code, code_of(nothing)) == (400, "body-required")


async def test_logs_as_json_and_as_text(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    await create(api)
    run = runs.add(next(iter(jobs.jobs.values())), RunState.SUCCEEDED)
    runs.lines = [LogLine(number, NOW, "stdout", f"line {number} <b>", 1) for number in (1, 2, 3)]
    path = f"/api/v1/runs/{run.run_id}/logs"

    page = (await api.get(path + "?limit=2")).json()
    rest = (await api.get(path, params={"after": page["next"]})).json()
    text = await api.get(path, headers={"Accept": "text/plain"})

    assert page["lines"][0] == {
        "attempt": 1,
        "number": 1,
        "at": "2025-09-24T08:00:00Z",
        "stream": "stdout",
        "text": "line 1 <b>",
    }
    assert (page["next"], page["ended"], rest["next"], rest["ended"]) == ("1:2", False, "1:3", True)
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text == "line 1 <b>\nline 2 <b>\nline 3 <b>\n"


async def test_cluster_and_who_am_i(api: httpx.AsyncClient) -> None:
    cluster = (await api.get("/api/v1/cluster")).json()

    assert set(cluster) == {"now", "leader", "nodes", "shards_owned", "live", "last_hour", "next_due", "database"}
    assert cluster["nodes"][0]["facts"] == {"slots": 4}
    assert (await api.get("/api/v1/whoami")).json() == {"name": "tester", "namespace": "default"}


async def test_health_needs_no_token(anonymous: httpx.AsyncClient, cluster: Any) -> None:
    alive = await anonymous.get("/livez", headers={"Accept": "application/xml"})
    ready = await anonymous.get("/readyz")
    head = await anonymous.head("/readyz")
    cluster.checks = {"database": "ok", "executor": "no live executor"}
    not_ready = await anonymous.get("/readyz")

    assert (alive.status_code, alive.text) == (200, "ok")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "checks": {"database": "ok"}})
    assert (head.status_code, head.content) == (200, b"")
    assert (not_ready.status_code, not_ready.headers["content-type"]) == (503, "application/problem+json")
    assert not_ready.headers["retry-after"] == "1"
    assert not_ready.json()["type"] == "urn:hourhand:problem:not-ready"
    assert not_ready.json()["detail"] == "executor: no live executor"
    assert not_ready.json()["checks"]["executor"] == "no live executor"


async def test_readiness_survives_a_database_that_is_away(anonymous: httpx.AsyncClient, cluster: Any) -> None:
    async def away() -> dict[str, str]:
        raise DatabaseUnavailable("host db-7 does not answer")

    cluster.readiness = away
    answer = await anonymous.get("/readyz")

    assert (answer.status_code, answer.json()["checks"]) == (503, {"database": "database-unavailable"})
