"""The note seeds/003, body by body."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from api_fakes import NOW, code_of, faults_of

from hourhand.model.states import JobState, RunState

CREATE = {
    "name": "Daily Data Cleanup",
    "schedule_type": "CRON",
    "cron_expression": "0 0 * * *",
    "payload": {"cleanup_target": "old_logs", "retention_days": 30},
    "max_retries": 2,
}
UPDATE = {"name": "Updated Data Cleanup", "schedule_time": "2025-09-25T10:00:00Z"}


async def create(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/jobs", json={**CREATE, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


async def test_create_answers_with_the_id_alone(api: httpx.AsyncClient, jobs: Any) -> None:
    answer = await api.post("/jobs", json=CREATE)

    [job] = jobs.jobs.values()
    assert (answer.status_code, answer.json()) == (202, {"job_id": str(job.job_id)})
    assert answer.headers["location"] == f"/jobs/{job.job_id}"


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        ({"every": "15m"}, "INTERVAL"),
        ({"every": "15m", "after": "completion"}, "INTERVAL"),
        ({"rrule": "FREQ=DAILY"}, "RRULE"),
        ({"daily": "09:00"}, "DAILY"),
    ],
)
async def test_a_job_with_a_schedule_that_the_note_does_not_know_is_shown_by_its_word(
    api: httpx.AsyncClient, schedule: Any, kind: str
) -> None:
    made = await api.post("/api/v1/jobs", json={"name": "a", "schedule": schedule})
    assert made.status_code in (201, 202), made.text
    answer = await api.get(f"/jobs/{made.json()['job_id']}")
    assert (answer.status_code, answer.json()["schedule_type"]) == (200, kind)


async def test_details_are_shown_as_in_the_note(api: httpx.AsyncClient) -> None:
    job_id = await create(api)

    answer = await api.get(f"/jobs/{job_id}")

    assert answer.status_code == 200
    assert answer.json() == {
        "job_id": job_id,
        "name": "Daily Data Cleanup",
        "schedule_type": "CRON",
        "cron_expression": "0 0 * * *",
        "status": "SCHEDULED",
        "payload": {"cleanup_target": "old_logs", "retention_days": 30},
        "max_retries": 2,
        "created_at": "2025-09-24T08:00:00Z",
        "updated_at": "2025-09-24T08:00:00Z",
    }


async def test_an_update_changes_only_what_is_given(api: httpx.AsyncClient) -> None:
    job_id = await create(api)

    answer = await api.put(f"/jobs/{job_id}", json=UPDATE)
    job = (await api.get(f"/jobs/{job_id}")).json()

    assert answer.status_code == 200
    assert (job["name"], job["schedule_type"], job["schedule_time"]) == (
        "Updated Data Cleanup",
        "FUTURE",
        "2025-09-25T10:00:00Z",
    )
    assert "cron_expression" not in job
    assert job["max_retries"] == 2


async def test_immediate_and_future_jobs(api: httpx.AsyncClient) -> None:
    immediate = await api.post("/jobs", json={"name": "a", "schedule_type": "IMMEDIATE"})
    future = await api.post(
        "/jobs", json={"name": "a", "schedule_type": "FUTURE", "schedule_time": "2025-09-25T10:00:00Z"}
    )

    shown = (await api.get(f"/jobs/{immediate.json()['job_id']}")).json()
    assert (immediate.status_code, future.status_code) == (202, 202)
    assert shown["schedule_type"] == "IMMEDIATE"
    assert not {"schedule_time", "cron_expression"} & set(shown)


async def test_cancel_and_run_now(api: httpx.AsyncClient) -> None:
    job_id = await create(api)

    run = await api.post(f"/jobs/{job_id}/runNow")
    cancelled = await api.delete(f"/jobs/{job_id}")
    again = await api.post(f"/jobs/{job_id}/runNow")

    assert run.status_code == 202
    assert (cancelled.status_code, (await api.get(f"/jobs/{job_id}")).json()["status"]) == (200, "CANCELLED")
    assert (again.status_code, code_of(again)) == (409, "job-cancelled")


@pytest.mark.parametrize(
    ("state", "word"),
    [(JobState.PAUSED, "PAUSED"), (JobState.COMPLETED, "COMPLETED"), (JobState.CANCELLED, "CANCELLED")],
)
async def test_status_words_of_jobs(api: httpx.AsyncClient, jobs: Any, state: JobState, word: str) -> None:
    job_id = await create(api)
    [job] = jobs.jobs.values()
    jobs.jobs[job.job_id] = replace(job, state=state)

    assert (await api.get(f"/jobs/{job_id}")).json()["status"] == word


async def test_status_shows_the_latest_run(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    job_id = await create(api)
    before = await api.get(f"/jobs/{job_id}/status")
    run = runs.add(next(iter(jobs.jobs.values())), RunState.RUNNING)

    answer = await api.get(f"/jobs/{job_id}/status")

    assert before.json() == {"job_id": job_id}
    assert answer.json() == {
        "job_id": job_id,
        "latest_run": {
            "run_id": str(run.run_id),
            "status": "RUNNING",
            "start_time": "2025-09-24T08:00:00Z",
            "modified_time": "2025-09-24T08:00:00Z",
            "attempt_number": 1,
            "executor_id": "executor-007",
        },
    }


async def test_runs_are_a_plain_list(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    job_id = await create(api)
    [job] = jobs.jobs.values()
    good = runs.add(job, RunState.SUCCEEDED, executor=None)
    bad = runs.add(job, RunState.FAILED, 60, error="Database connection failed", executor=None)

    answer = await api.get(f"/jobs/{job_id}/runs")

    assert answer.json() == [
        {
            "run_id": str(bad.run_id),
            "status": "FAILED",
            "start_time": "2025-09-24T09:00:00Z",
            "end_time": "2025-09-24T09:01:30Z",
            "modified_time": "2025-09-24T09:01:30Z",
            "attempt_number": 1,
            "error_message": "Database connection failed",
            "log_url": f"http://localhost:8780/api/v1/runs/{bad.run_id}/logs",
        },
        {
            "run_id": str(good.run_id),
            "status": "SUCCESS",
            "start_time": "2025-09-24T08:00:00Z",
            "end_time": "2025-09-24T08:01:30Z",
            "modified_time": "2025-09-24T08:01:30Z",
            "attempt_number": 1,
            "log_url": f"http://localhost:8780/api/v1/runs/{good.run_id}/logs",
        },
    ]


async def test_the_log_url_leads_to_the_log(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    job_id = await create(api)
    runs.add(next(iter(jobs.jobs.values())), RunState.SUCCEEDED)

    [run] = (await api.get(f"/jobs/{job_id}/runs")).json()

    assert run["executor_id"] == "executor-007"
    assert (await api.get(run["log_url"])).json()["ended"] is True


async def test_more_runs_are_behind_the_link(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    job_id = await create(api)
    for minute in range(3):
        runs.add(next(iter(jobs.jobs.values())), RunState.SUCCEEDED, minute)

    first = await api.get(f"/jobs/{job_id}/runs?limit=2")
    rest = await api.get(first.links["next"]["url"])

    assert (len(first.json()), len(rest.json()), rest.links) == (2, 1, {})


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (RunState.QUEUED, "QUEUED"),
        (RunState.WAITING, "QUEUED"),
        (RunState.CLAIMED, "QUEUED"),
        (RunState.RUNNING, "RUNNING"),
        (RunState.CANCELLING, "RUNNING"),
        (RunState.SUCCEEDED, "SUCCESS"),
        (RunState.FAILED, "FAILED"),
        (RunState.TIMED_OUT, "TIMED_OUT"),
        (RunState.LOST, "LOST"),
        (RunState.CANCELLED, "CANCELLED"),
        (RunState.SKIPPED, "SKIPPED"),
        (RunState.MISSED, "MISSED"),
    ],
)
async def test_status_words_of_runs(api: httpx.AsyncClient, jobs: Any, runs: Any, state: RunState, word: str) -> None:
    job_id = await create(api)
    runs.add(next(iter(jobs.jobs.values())), state)

    latest = (await api.get(f"/jobs/{job_id}/status")).json()["latest_run"]

    assert latest["status"] == word
    assert latest["modified_time"] >= NOW.isoformat()[:10]


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"name": "a"}, {"/schedule_type": "required"}),
        ({"name": "a", "schedule_type": "OFTEN"}, {"/schedule_type": "invalid-value"}),
        ({"name": "a", "schedule_type": "CRON"}, {"/cron_expression": "required"}),
        ({"name": "a", "schedule_type": "FUTURE"}, {"/schedule_time": "required"}),
        (
            {"name": "a", "schedule_type": "FUTURE", "cron_expression": "* * * * *"},
            {"/schedule_time": "required", "/cron_expression": "conflicting-schedule"},
        ),
        (
            {"name": "a", "schedule_type": "IMMEDIATE", "schedule_time": "2030-01-01T00:00:00Z"},
            {"/schedule_time": "conflicting-schedule"},
        ),
        (
            {**CREATE, "cron_expression": "61 * * * *", "max_retries": -1},
            {"/max_retries": None, "/cron_expression": None},
        ),
        (
            {"name": "a", "schedule_type": "FUTURE", "schedule_time": "2030-01-01T00:00:00"},
            {"/schedule_time": "offset-required"},
        ),
        (
            {**CREATE, "cron_expresion": "x", "job_id": "y"},
            {"/cron_expresion": "unknown-field", "/job_id": "read-only-field"},
        ),
        (
            {**CREATE, "cron_expression": "61 * * * *", "max_retries": -4, "x": 1},
            {"/x": "unknown-field", "/cron_expression": None, "/max_retries": None},
        ),
        (
            {"name": "", "schedule_type": "CRON", "max_retries": -4},
            {"/cron_expression": "required", "/name": "invalid-name", "/max_retries": None},
        ),
        (
            {"schedule_type": 5, "cron_expression": "61 * * * *", "schedule": {}},
            {
                "/schedule_type": "wrong-type",
                "/schedule": "unknown-field",
                "/name": "required",
                "/cron_expression": None,
            },
        ),
        (
            {**CREATE, "schedule_type": "OFTEN", "cron_expression": "61 * * * *", "payload": 3},
            {"/schedule_type": "invalid-value", "/cron_expression": None, "/payload": "wrong-type"},
        ),
        ({**CREATE, "cron_expression": 5}, {"/cron_expression": "wrong-type"}),
    ],
)
async def test_every_fault_is_told_at_the_field_of_the_note(
    api: httpx.AsyncClient, jobs: Any, body: dict[str, Any], faults: dict[str, str | None]
) -> None:
    found = faults_of(await api.post("/jobs", json=body))

    assert found.keys() == faults.keys()
    assert all(code is None or found[pointer] == code for pointer, code in faults.items())
    assert jobs.jobs == {}


@pytest.mark.parametrize(
    ("change", "pointers"),
    [
        ({"cron_expression": "61 * * * *", "max_retries": -4, "x": 1}, {"/cron_expression", "/max_retries", "/x"}),
        ({"schedule_type": "FUTURE", "max_retries": -4}, {"/schedule_time", "/max_retries"}),
        ({"schedule_type": "", "name": "", "payload": 3}, {"/schedule_type", "/name", "/payload"}),
        ({"schedule_type": "CRON", "cron_expression": 5, "name": ""}, {"/cron_expression", "/name"}),
    ],
)
async def test_every_fault_of_an_update_is_told_and_nothing_changes(
    api: httpx.AsyncClient, change: dict[str, Any], pointers: set[str]
) -> None:
    job_id = await create(api)
    before = (await api.get(f"/jobs/{job_id}")).json()

    assert faults_of(await api.put(f"/jobs/{job_id}", json=change)).keys() == pointers
    assert (await api.get(f"/jobs/{job_id}")).json() == before
