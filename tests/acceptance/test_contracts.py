"""The two contracts of the notes, word for word, against a running server.

The bodies below are those of the notes with comments stripped; where a note writes a placeholder ("string", "ISO 8601
timestamp") there is a value of that sort. Every answer has exactly the keys that the note shows.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from harness import NO_TLS, Up, wait_for

UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


@pytest.fixture
def api(running: Up) -> httpx.Client:
    return running.http()


def later(seconds: float = 3600) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def answered(response: httpx.Response, status: int, keys: set[str] | None = None) -> Any:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    if keys is not None:
        assert set(response.json()) == keys
    return response.json()


def is_uuid(text: str) -> bool:
    return UUID_TEXT.fullmatch(text) is not None and str(UUID(text)) == text


def is_timestamp(text: str) -> bool:
    return TIMESTAMP.fullmatch(text) is not None and datetime.fromisoformat(text) is not None


# --- note 003: /jobs, IMMEDIATE, FUTURE, CRON ------------------------------------------------------------------

DAILY = {
    "name": "Daily Data Cleanup",
    "schedule_type": "CRON",
    "cron_expression": "0 0 * * *",
    "payload": {"cleanup_target": "old_logs", "retention_days": 30},
    "max_retries": 2,
}
CLEANUP = {key: DAILY[key] for key in ("name", "payload", "max_retries")}
JOB_KEYS = {"job_id", "name", "schedule_type", "status", "payload", "max_retries", "created_at", "updated_at"}


def created(api: httpx.Client, body: dict[str, Any]) -> str:
    answer = answered(api.post("/jobs", json=body), 202, {"job_id"})
    assert is_uuid(answer["job_id"])
    return answer["job_id"]


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (DAILY, {"cron_expression"}),
        ({**CLEANUP, "schedule_type": "FUTURE", "schedule_time": "2035-09-25T10:00:00Z"}, {"schedule_time"}),
        ({**CLEANUP, "schedule_type": "IMMEDIATE"}, set()),
    ],
    ids=["cron", "future", "immediate"],
)
def test_a_job_of_note_003_is_shown_as_it_was_sent(api: httpx.Client, body: dict[str, Any], more: set[str]) -> None:
    job_id = created(api, body)
    job = answered(api.get(f"/jobs/{job_id}"), 200, JOB_KEYS | more)
    assert {key: job[key] for key in body} == body
    assert job["job_id"] == job_id
    assert job["status"] in ("SCHEDULED", "COMPLETED")
    assert is_timestamp(job["created_at"])
    assert is_timestamp(job["updated_at"])


def test_the_update_of_note_003_changes_only_what_it_names(api: httpx.Client) -> None:
    job_id = created(api, {**CLEANUP, "schedule_type": "FUTURE", "schedule_time": later()})
    response = api.put(
        f"/jobs/{job_id}", json={"name": "Updated Data Cleanup", "schedule_time": "2035-09-25T10:00:00Z"}
    )
    assert response.status_code in (200, 204), response.text
    job = answered(api.get(f"/jobs/{job_id}"), 200, JOB_KEYS | {"schedule_time"})
    assert job["name"] == "Updated Data Cleanup"
    assert job["schedule_type"] == "FUTURE"
    assert job["schedule_time"] == "2035-09-25T10:00:00Z"
    assert job["payload"] == DAILY["payload"]
    assert job["max_retries"] == 2


def test_the_update_of_note_003_turns_a_cron_job_into_a_future_one(api: httpx.Client) -> None:
    """The note's own example, sent to the note's own job."""
    job_id = created(api, DAILY)
    response = api.put(
        f"/jobs/{job_id}", json={"name": "Updated Data Cleanup", "schedule_time": "2035-09-25T10:00:00Z"}
    )
    assert response.status_code in (200, 204), response.text
    job = answered(api.get(f"/jobs/{job_id}"), 200, JOB_KEYS | {"schedule_time"})
    assert (job["schedule_type"], job["schedule_time"]) == ("FUTURE", "2035-09-25T10:00:00Z")


def test_the_update_of_note_003_word_for_word_makes_the_job_due_at_once(api: httpx.Client) -> None:
    """The time that the note gives has passed by now."""
    job_id = created(api, DAILY)
    response = api.put(
        f"/jobs/{job_id}", json={"name": "Updated Data Cleanup", "schedule_time": "2025-09-25T10:00:00Z"}
    )
    assert response.status_code == 200, response.text
    job = answered(api.get(f"/jobs/{job_id}"), 200, JOB_KEYS | {"schedule_time"})
    assert (job["name"], job["schedule_type"]) == ("Updated Data Cleanup", "FUTURE")
    assert job["schedule_time"] == "2025-09-25T10:00:00Z"
    # Nobody offers a handler of the job's new name, so its run waits.
    wait_for(lambda: latest_status(api, job_id) == "QUEUED", "the run is there")
    api.delete(f"/jobs/{job_id}")


def test_delete_of_note_003_cancels_the_job(api: httpx.Client) -> None:
    job_id = created(api, DAILY)
    assert api.delete(f"/jobs/{job_id}").status_code in (200, 204)
    assert answered(api.get(f"/jobs/{job_id}"), 200)["status"] == "CANCELLED"


def test_delete_of_note_003_stops_a_running_job(api: httpx.Client) -> None:
    job_id = created(api, {"name": "waits", "schedule_type": "IMMEDIATE"})
    wait_for(lambda: latest_status(api, job_id) == "RUNNING", "it runs")
    assert api.delete(f"/jobs/{job_id}").status_code in (200, 204)
    wait_for(lambda: latest_status(api, job_id) == "CANCELLED", "it is stopped")


def latest_status(api: httpx.Client, job_id: str) -> str | None:
    latest = api.get(f"/jobs/{job_id}/status").json().get("latest_run")
    return latest and latest["status"]


def test_run_now_of_note_003_is_accepted_and_runs(api: httpx.Client) -> None:
    job_id = created(api, DAILY)
    assert api.get(f"/jobs/{job_id}/status").json() == {"job_id": job_id}, "there is no run yet"
    assert api.post(f"/jobs/{job_id}/runNow").status_code == 202
    wait_for(lambda: latest_status(api, job_id) == "SUCCESS", "the run succeeds")
    assert answered(api.get(f"/jobs/{job_id}"), 200)["status"] == "SCHEDULED", "its schedule stays"


def test_the_status_of_note_003_tells_of_the_latest_run(api: httpx.Client) -> None:
    job_id = created(api, {"name": "waits", "schedule_type": "IMMEDIATE"})
    wait_for(lambda: latest_status(api, job_id) == "RUNNING", "it runs")
    status = answered(api.get(f"/jobs/{job_id}/status"), 200, {"job_id", "latest_run"})
    run = status["latest_run"]
    assert status["job_id"] == job_id
    assert set(run) == {"run_id", "status", "start_time", "modified_time", "attempt_number", "executor_id"}
    assert is_uuid(run["run_id"])
    assert run["status"] == "RUNNING"
    assert is_timestamp(run["start_time"])
    assert is_timestamp(run["modified_time"])
    assert run["attempt_number"] == 1
    assert isinstance(run["executor_id"], str)
    api.delete(f"/jobs/{job_id}")


# The note's sample leaves out executor_id, which its table of columns has.
LISTED_KEYS = {
    "run_id", "status", "start_time", "end_time", "modified_time", "attempt_number", "executor_id", "log_url",
}  # fmt: skip


def test_a_successful_run_of_note_003_is_listed_with_its_log(running: Up, api: httpx.Client) -> None:
    job_id = created(api, {**CLEANUP, "schedule_type": "IMMEDIATE"})
    wait_for(lambda: latest_status(api, job_id) == "SUCCESS", "the run succeeds")
    [run] = answered(api.get(f"/jobs/{job_id}/runs"), 200)
    assert set(run) == LISTED_KEYS
    assert is_uuid(run["run_id"])
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)
    assert all(is_timestamp(run[key]) for key in ("start_time", "end_time", "modified_time"))
    assert run["start_time"] <= run["end_time"] == run["modified_time"]
    assert run["log_url"].startswith(running.url)
    log = answered(api.get(run["log_url"]), 200)
    assert [line["text"] for line in log["lines"]] == ["cleaning old_logs, keeping 30 days"]


def test_a_failed_run_of_note_003_is_listed_with_its_reason(api: httpx.Client) -> None:
    job_id = created(api, {"name": "fails", "schedule_type": "IMMEDIATE", "max_retries": 0})
    wait_for(lambda: latest_status(api, job_id) == "FAILED", "the run fails")
    [run] = answered(api.get(f"/jobs/{job_id}/runs"), 200)
    assert set(run) == LISTED_KEYS | {"error_message"}
    assert "Database connection failed" in run["error_message"]


def test_runs_of_note_003_are_all_past_and_current_ones(api: httpx.Client) -> None:
    job_id = created(api, DAILY)
    for _ in range(3):
        assert api.post(f"/jobs/{job_id}/runNow").status_code == 202
    wait_for(lambda: run_words(api, job_id) == ["SUCCESS"] * 3, "three runs have succeeded")


def run_words(api: httpx.Client, job_id: str) -> list[str]:
    return [run["status"] for run in api.get(f"/jobs/{job_id}/runs").json()]


# --- note 004: /api/jobs, camelCase -----------------------------------------------------------------------------


def submission(**changes: Any) -> dict[str, Any]:
    body = {
        "jobName": "Daily Data Cleanup",
        "jobType": "one-time",
        "executionTime": later(),
        "priority": "medium",
        "payload": {"cleanup_target": "old_logs", "retention_days": 30},
    }
    return {key: value for key, value in (body | changes).items() if value is not None}


def submitted(api: httpx.Client, **changes: Any) -> str:
    answer = answered(api.post("/api/jobs", json=submission(**changes)), 202, {"jobId", "status"})
    assert answer["status"] == "submitted"
    assert is_uuid(answer["jobId"])
    return answer["jobId"]


@pytest.mark.parametrize("priority", ["low", "medium", "high"])
@pytest.mark.parametrize(
    "when",
    [
        {"jobType": "one-time"},
        {"jobType": "one-time", "executionTime": None},
        {"jobType": "recurring", "frequency": "daily"},
        {"jobType": "recurring", "frequency": "weekly"},
        {"jobType": "recurring", "frequency": "daily", "executionTime": None},
    ],
    ids=["one-time", "now", "daily", "weekly", "daily from midnight"],
)
def test_every_submission_of_note_004_is_taken(api: httpx.Client, when: dict[str, Any], priority: str) -> None:
    job_id = submitted(api, priority=priority, **when)
    status = answered(api.get(f"/api/jobs/{job_id}/status"), 200, {"jobId", "status", "lastUpdated"})
    assert status["jobId"] == job_id
    assert status["status"] in ("pending", "running", "completed")
    assert is_timestamp(status["lastUpdated"])


def test_the_whole_body_of_note_004_is_taken(api: httpx.Client) -> None:
    """All six keys at once, as the note writes them."""
    submitted(api, jobType="recurring", frequency="daily", executionTime=later(), priority="high")


def test_the_update_of_note_004_is_taken_whole(api: httpx.Client) -> None:
    job_id = submitted(api, jobType="recurring", frequency="daily")
    body = {
        "jobName": "Updated",
        "executionTime": "2035-03-01T09:30:00Z",
        "frequency": "weekly",
        "priority": "low",
        "payload": {"cleanup_target": "new_logs"},
    }
    answer = answered(api.put(f"/api/jobs/{job_id}", json=body), 200, {"jobId", "status"})
    assert answer == {"jobId": job_id, "status": "updated"}
    job = api.get(f"/api/v1/jobs/{job_id}").json()
    assert job["name"] == "Updated"
    assert job["payload"] == {"cleanup_target": "new_logs"}
    assert job["next_due"] == "2035-03-01T09:30:00Z"
    assert job["schedule"] == [{"cron": "30 9 * * 4"}]


@pytest.mark.parametrize("field", ["jobName", "executionTime", "frequency", "priority", "payload"])
def test_each_field_of_an_update_of_note_004_may_come_alone(api: httpx.Client, field: str) -> None:
    job_id = submitted(api, jobType="recurring", frequency="daily")
    before = api.get(f"/api/v1/jobs/{job_id}").json()
    values = {
        "jobName": "Renamed",
        "executionTime": later(7200),
        "frequency": "hourly",
        "priority": "high",
        "payload": {"cleanup_target": "new_logs"},
    }
    answer = answered(api.put(f"/api/jobs/{job_id}", json={field: values[field]}), 200)
    assert answer == {"jobId": job_id, "status": "updated"}
    assert api.get(f"/api/v1/jobs/{job_id}").json()["version"] == before["version"] + 1


def test_a_job_of_note_004_goes_from_pending_to_completed(api: httpx.Client) -> None:
    job_id = submitted(api, executionTime=later(2))
    assert answered(api.get(f"/api/jobs/{job_id}/status"), 200)["status"] in ("pending", "running")
    wait_for(lambda: status_of(api, job_id) == "completed", "it is completed")
    log = answered(api.get(f"/api/jobs/{job_id}/logs"), 200, {"jobId", "logs"})
    assert log["jobId"] == job_id
    [line] = log["logs"]
    assert set(line) == {"timestamp", "message"}
    assert is_timestamp(line["timestamp"])
    assert line["message"] == "cleaning old_logs, keeping 30 days"


def status_of(api: httpx.Client, job_id: str) -> str:
    return str(api.get(f"/api/jobs/{job_id}/status").json()["status"])


def test_a_job_of_note_004_is_seen_running_and_failed(api: httpx.Client) -> None:
    waiting = submitted(api, jobName="waits", executionTime=None, payload={})
    wait_for(lambda: status_of(api, waiting) == "running", "it runs")
    assert waiting in [job["jobId"] for job in api.get("/api/jobs?status=running").json()]
    assert answered(api.delete(f"/api/jobs/{waiting}"), 200) == {"jobId": waiting, "status": "cancelled"}

    failing = answered(
        api.post("/api/v1/jobs", json={"name": "fails", "max_retries": 0, "payload": {"handler": "fails"}}), 202
    )["job_id"]
    wait_for(lambda: status_of(api, failing) == "failed", "it fails")
    assert failing in [job["jobId"] for job in api.get("/api/jobs?status=failed").json()]


def test_a_job_of_note_004_is_paused_resumed_and_cancelled(api: httpx.Client) -> None:
    job_id = submitted(api, jobType="recurring", frequency="daily")
    for verb, word in (("pause", "paused"), ("resume", "resumed")):
        answer = answered(api.post(f"/api/jobs/{job_id}/{verb}"), 200, {"jobId", "status"})
        assert answer == {"jobId": job_id, "status": word}
        assert status_of(api, job_id) == ("paused" if word == "paused" else "pending")
    assert answered(api.delete(f"/api/jobs/{job_id}"), 200) == {"jobId": job_id, "status": "cancelled"}
    assert api.post(f"/api/jobs/{job_id}/resume").status_code == 409


def test_a_job_of_note_004_that_never_ran_has_no_logs(api: httpx.Client) -> None:
    job_id = submitted(api)
    assert answered(api.get(f"/api/jobs/{job_id}/logs"), 200) == {"jobId": job_id, "logs": []}


def test_the_list_of_note_004_has_the_keys_of_the_note(api: httpx.Client) -> None:
    time = later()
    job_id = submitted(api, executionTime=time)
    listed = answered(api.get("/api/jobs"), 200)
    assert isinstance(listed, list)
    assert len(listed) <= 20
    [job] = [job for job in listed if job["jobId"] == job_id]
    assert job == {"jobId": job_id, "jobName": "Daily Data Cleanup", "status": "pending", "executionTime": time}
    assert all(set(job) == {"jobId", "jobName", "status", "executionTime"} for job in listed)


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("status=pending", {"soon", "daily"}),
        ("status=paused", {"paused"}),
        ("status=cancelled", {"cancelled"}),
        ("type=recurring", {"daily", "paused"}),
        ("type=one-time", {"soon", "cancelled"}),
        ("priority=high", {"soon"}),
        ("priority=low&type=recurring", {"paused"}),
        ("status=pending&type=recurring&priority=medium&page=1&limit=50", {"daily"}),
    ],
)
def test_every_filter_of_note_004_finds_what_fits(api: httpx.Client, query: str, fits: set[str]) -> None:
    mine = {
        "soon": submitted(api, priority="high"),
        "daily": submitted(api, jobType="recurring", frequency="daily"),
        "paused": submitted(api, jobType="recurring", frequency="daily", priority="low"),
        "cancelled": submitted(api),
    }
    api.post(f"/api/jobs/{mine['paused']}/pause")
    api.delete(f"/api/jobs/{mine['cancelled']}")
    listed = {job["jobId"] for job in answered(api.get(f"/api/jobs?{query}"), 200)}
    assert {name for name, job_id in mine.items() if job_id in listed} == fits


def test_the_pages_of_note_004_have_every_job_once(api: httpx.Client) -> None:
    mine = [submitted(api, priority="high", jobType="recurring", frequency="yearly") for _ in range(7)]
    pages = [
        answered(api.get(f"/api/jobs?type=recurring&priority=high&limit=3&page={page}"), 200) for page in (1, 2, 3)
    ]
    assert [len(page) for page in pages[:2]] == [3, 3]
    found = [job["jobId"] for page in pages for job in page]
    assert found[:7] == mine[::-1], "newest first"
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("query", ["page=0", "limit=0", "limit=many", "status=gone", "priority=9", "sort=name"])
def test_a_wrong_filter_of_note_004_is_told(api: httpx.Client, query: str) -> None:
    response = api.get(f"/api/jobs?{query}")
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert query.partition("=")[0] in response.json()["detail"]


# --- both -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /jobs/{}",
        "PUT /jobs/{}",
        "DELETE /jobs/{}",
        "POST /jobs/{}/runNow",
        "GET /jobs/{}/status",
        "GET /jobs/{}/runs",
        "PUT /api/jobs/{}",
        "DELETE /api/jobs/{}",
        "GET /api/jobs/{}/status",
        "GET /api/jobs/{}/logs",
        "POST /api/jobs/{}/pause",
        "POST /api/jobs/{}/resume",
    ],
)
def test_a_job_that_does_not_exist_is_a_problem_of_both(running: Up, api: httpx.Client, request_line: str) -> None:
    method, path = request_line.split()
    body = {"json": {}} if method == "PUT" else {}
    response = api.request(method, path.format("a1b2c3d4-e5f6-7890-1234-567890abcdef"), **body)
    assert response.status_code == 404, response.text
    assert response.headers["content-type"] == "application/problem+json"
    stranger = httpx.request(
        method, running.url + path.format("a1b2c3d4-e5f6-7890-1234-567890abcdef"), verify=NO_TLS, **body
    )
    assert stranger.status_code == 401
