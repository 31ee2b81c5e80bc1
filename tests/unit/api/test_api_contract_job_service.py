"""The note seeds/004, body by body."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from api_fakes import NOW, faults_of

from hourhand.api.frequencies import SHORT_FORMS, recurring_schedule, short_form_of
from hourhand.model.local_time import parse_instant
from hourhand.model.run import LogLine
from hourhand.model.states import JobState, RunState

ONE_TIME = {
    "jobName": "Send report",
    "jobType": "one-time",
    "executionTime": "2025-09-25T09:30:00Z",
    "priority": "high",
    "payload": {"to": "a@example.com"},
}
RECURRING = {
    "jobName": "Send report",
    "jobType": "recurring",
    "executionTime": "2025-09-25T09:30:00Z",
    "frequency": "daily",
    "priority": "low",
    "payload": {},
}


async def submit(api: httpx.AsyncClient, body: dict[str, Any], **fields: Any) -> str:
    answer = await api.post("/api/jobs", json={**body, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


def only(jobs: Any) -> Any:
    [job] = jobs.jobs.values()
    return job


async def test_submit(api: httpx.AsyncClient, jobs: Any) -> None:
    answer = await api.post("/api/jobs", json=ONE_TIME)

    job = only(jobs)
    assert (answer.status_code, answer.json()) == (202, {"jobId": str(job.job_id), "status": "submitted"})
    assert (job.definition.name, job.definition.priority, job.next_due) == (
        "Send report",
        8,
        parse_instant("2025-09-25T09:30:00Z"),
    )


@pytest.mark.parametrize(
    ("execution_time", "frequency", "schedule"),
    [
        ("2025-09-25T09:30:00Z", "hourly", {"cron": "30 * * * *"}),
        ("2025-09-25T09:30:00Z", "daily", {"cron": "30 9 * * *"}),
        ("2025-09-25T09:30:00Z", "weekly", {"cron": "30 9 * * 4"}),
        ("2025-09-28T09:30:00Z", "weekly", {"cron": "30 9 * * 0"}),
        ("2025-09-25T09:30:00Z", "monthly", {"cron": "30 9 25 * *"}),
        ("2025-10-31T09:30:00Z", "monthly", {"cron": "30 9 31 * *"}),
        ("2025-09-25T09:30:00Z", "yearly", {"cron": "30 9 25 9 *"}),
        ("2025-09-25T01:30:15.25+02:00", "daily", {"cron": "15 30 23 * * *"}),
        (None, "hourly", {"cron": "0 * * * *"}),
        (None, "daily", {"cron": "0 0 * * *"}),
        (None, "weekly", {"cron": "0 0 * * 0"}),
        (None, "monthly", {"cron": "0 0 1 * *"}),
        (None, "yearly", {"cron": "0 0 1 1 *"}),
        (None, "*/5 * * * *", {"cron": "*/5 * * * *"}),
        (None, "@daily", {"cron": "@daily"}),
        ("2025-09-25T09:30:00Z", "15m", {"every": "15m"}),
    ],
)
async def test_frequencies(
    api: httpx.AsyncClient, jobs: Any, execution_time: str | None, frequency: str, schedule: dict[str, str]
) -> None:
    body = {**RECURRING, "frequency": frequency}
    body.pop("executionTime")
    await submit(api, body if execution_time is None else {**body, "executionTime": execution_time})

    request = jobs.calls[-1][2]
    assert request.schedule == schedule
    first = only(jobs).next_due
    if execution_time is not None:
        assert first == parse_instant(execution_time).replace(microsecond=0)


@pytest.mark.parametrize("frequency", SHORT_FORMS)
def test_short_forms_are_recognised_again(frequency: str) -> None:
    for time in (None, parse_instant("2025-09-25T09:30:00Z"), parse_instant("2025-12-31T23:59:59Z")):
        assert short_form_of(recurring_schedule(frequency, time)["cron"]) == frequency


async def test_update(api: httpx.AsyncClient, jobs: Any) -> None:
    job_id = await submit(api, ONE_TIME)
    body = {
        "jobName": "Send other report",
        "executionTime": "2025-09-26T10:00:00Z",
        "frequency": "weekly",
        "priority": "medium",
        "payload": {"to": "b@example.com"},
    }

    answer = await api.put(f"/api/jobs/{job_id}", json=body)

    job = only(jobs)
    assert (answer.status_code, answer.json()) == (200, {"jobId": job_id, "status": "updated"})
    assert (job.definition.name, job.definition.priority) == ("Send other report", 5)
    assert job.definition.timing.schedules[0].text == "0 10 * * 5"
    assert job.next_due == parse_instant("2025-09-26T10:00:00Z")


@pytest.mark.parametrize(
    ("submitted", "change", "schedule", "next_due"),
    [
        (ONE_TIME, {"executionTime": "2025-09-27T08:00:00Z"}, {"at": "2025-09-27T08:00:00Z"}, "2025-09-27T08:00:00Z"),
        (ONE_TIME, {"frequency": "daily"}, {"cron": "30 9 * * *"}, "2025-09-25T09:30:00Z"),
        (RECURRING, {"executionTime": "2025-09-27T08:00:00Z"}, {"cron": "0 8 * * *"}, "2025-09-27T08:00:00Z"),
        (RECURRING, {"frequency": "weekly"}, {"cron": "30 9 * * 4"}, "2025-09-25T09:30:00Z"),
        (RECURRING, {"jobName": "x"}, {"cron": "30 9 * * *"}, "2025-09-25T09:30:00Z"),
        (
            {**RECURRING, "frequency": "*/7 * * * *"},
            {"executionTime": "2025-09-27T08:00:00Z"},
            {"cron": "*/7 * * * *"},
            "2025-09-27T08:00:00Z",
        ),
        (
            {**RECURRING, "frequency": "15m"},
            {"executionTime": "2025-09-27T08:01:00Z"},
            {"every": "15m"},
            "2025-09-27T08:01:00Z",
        ),
    ],
)
async def test_an_update_of_one_half_of_the_time_keeps_the_other(
    api: httpx.AsyncClient,
    jobs: Any,
    submitted: dict[str, Any],
    change: dict[str, Any],
    schedule: dict[str, str],
    next_due: str,
) -> None:
    job_id = await submit(api, submitted)

    answer = await api.put(f"/api/jobs/{job_id}", json=change)

    assert answer.status_code == 200, answer.text
    assert only(jobs).definition.timing.schedules[0].describe() == schedule
    assert only(jobs).next_due == parse_instant(next_due)


async def test_cancel_pause_and_resume(api: httpx.AsyncClient) -> None:
    job_id = await submit(api, RECURRING)

    answers = [
        await api.post(f"/api/jobs/{job_id}/pause"),
        await api.post(f"/api/jobs/{job_id}/resume"),
        await api.delete(f"/api/jobs/{job_id}"),
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert [answer.json() for answer in answers] == [
        {"jobId": job_id, "status": "paused"},
        {"jobId": job_id, "status": "resumed"},
        {"jobId": job_id, "status": "cancelled"},
    ]


@pytest.mark.parametrize(
    ("job_state", "run_state", "word"),
    [
        (JobState.SCHEDULED, None, "pending"),
        (JobState.SCHEDULED, RunState.QUEUED, "pending"),
        (JobState.SCHEDULED, RunState.FAILED, "pending"),
        (JobState.SCHEDULED, RunState.RUNNING, "running"),
        (JobState.SCHEDULED, RunState.CANCELLING, "running"),
        (JobState.COMPLETED, RunState.SUCCEEDED, "completed"),
        (JobState.COMPLETED, RunState.FAILED, "failed"),
        (JobState.COMPLETED, RunState.TIMED_OUT, "failed"),
        (JobState.COMPLETED, RunState.LOST, "failed"),
        (JobState.COMPLETED, RunState.CANCELLED, "cancelled"),
        (JobState.PAUSED, RunState.SUCCEEDED, "paused"),
        (JobState.CANCELLED, RunState.SUCCEEDED, "cancelled"),
    ],
)
async def test_status(
    api: httpx.AsyncClient, jobs: Any, runs: Any, job_state: JobState, run_state: RunState | None, word: str
) -> None:
    job_id = await submit(api, ONE_TIME)
    job = only(jobs)
    jobs.jobs[job.job_id] = replace(job, state=job_state)
    if run_state is not None:
        runs.add(job, run_state, 10)

    answer = await api.get(f"/api/jobs/{job_id}/status")
    listed = await api.get(f"/api/jobs?status={word}")

    assert set(answer.json()) == {"jobId", "status", "lastUpdated"}
    assert answer.json()["status"] == word
    assert answer.json()["lastUpdated"] >= "2025-09-24T08:00:00Z"
    if not (job_state is JobState.COMPLETED and word == "cancelled"):
        assert [job["jobId"] for job in listed.json()] == [job_id]


async def test_list(api: httpx.AsyncClient, jobs: Any) -> None:
    first = await submit(api, ONE_TIME)
    second = await submit(api, RECURRING)
    third = await submit(api, RECURRING, priority="high")

    everything = (await api.get("/api/jobs")).json()
    recurring = (await api.get("/api/jobs?type=recurring&priority=high&status=pending")).json()
    pages = [[job["jobId"] for job in (await api.get(f"/api/jobs?limit=2&page={page}")).json()] for page in (1, 2, 3)]

    assert everything[2] == {
        "jobId": first,
        "jobName": "Send report",
        "status": "pending",
        "executionTime": "2025-09-25T09:30:00Z",
    }
    assert [job["jobId"] for job in recurring] == [third]
    assert pages == [[third, second], [first], []]


async def test_logs(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    job_id = await submit(api, RECURRING)
    nothing = (await api.get(f"/api/jobs/{job_id}/logs")).json()
    runs.add(only(jobs), RunState.SUCCEEDED)
    runs.add(only(jobs), RunState.QUEUED, 60)
    runs.lines = [LogLine(1, NOW, "stdout", "hello", 1), LogLine(2, NOW, "stderr", "world", 1)]

    answer = (await api.get(f"/api/jobs/{job_id}/logs")).json()

    assert nothing == {"jobId": job_id, "logs": []}
    assert answer == {
        "jobId": job_id,
        "logs": [
            {"timestamp": "2025-09-24T08:00:00Z", "message": "hello"},
            {"timestamp": "2025-09-24T08:00:00Z", "message": "world"},
        ],
    }


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"jobName": "a", "jobType": "sometimes"}, {"/jobType": "invalid-value"}),
        ({"jobName": "a", "jobType": "recurring"}, {"/frequency": "required"}),
        ({**ONE_TIME, "frequency": "daily"}, {"/frequency": "conflicting-schedule"}),
        ({**RECURRING, "frequency": "fortnightly"}, {"/frequency": "invalid-value"}),
        ({**RECURRING, "executionTime": "2025-09-25T09:30:00"}, {"/executionTime": "offset-required"}),
        ({**ONE_TIME, "executionTime": "2025-09-25T09:30:00"}, {"/executionTime": "offset-required"}),
        (
            {**ONE_TIME, "jobName": "", "priority": "urgent"},
            {"/jobName": "invalid-name", "/priority": "invalid-priority"},
        ),
        ({**RECURRING, "frequency": "61 * * * *"}, {"/frequency": None}),
        ({**ONE_TIME, "payload": "object", "job_name": "x"}, {"/payload": "wrong-type", "/job_name": "unknown-field"}),
        (
            {**RECURRING, "frequency": "fortnightly", "priority": "urgent", "executionTime": "tomorrow"},
            {"/frequency": "invalid-value", "/priority": "invalid-priority", "/executionTime": None},
        ),
        (
            {**RECURRING, "frequency": "61 * * * *", "priority": "urgent", "executionTime": "tomorrow", "name": "x"},
            {"/frequency": None, "/priority": "invalid-priority", "/executionTime": None, "/name": "unknown-field"},
        ),
        (
            {**ONE_TIME, "jobName": "", "executionTime": "tomorrow", "frequency": "daily"},
            {"/jobName": "invalid-name", "/executionTime": None, "/frequency": "conflicting-schedule"},
        ),
        (
            {"jobType": "sometimes", "frequency": "fortnightly", "executionTime": "tomorrow"},
            {
                "/jobName": "required",
                "/jobType": "invalid-value",
                "/frequency": "invalid-value",
                "/executionTime": None,
            },
        ),
        (
            {"jobType": "recurring", "jobName": 5, "frequency": 5},
            {"/jobName": "wrong-type", "/frequency": "wrong-type"},
        ),
    ],
)
async def test_every_fault_is_told_at_the_field_of_the_note(
    api: httpx.AsyncClient, jobs: Any, body: dict[str, Any], faults: dict[str, str | None]
) -> None:
    found = faults_of(await api.post("/api/jobs", json=body))

    assert found.keys() == faults.keys()
    assert all(code is None or found[pointer] == code for pointer, code in faults.items())
    assert jobs.jobs == {}


@pytest.mark.parametrize("submitted", [ONE_TIME, RECURRING], ids=["one-time", "recurring"])
@pytest.mark.parametrize(
    ("change", "pointers"),
    [
        (
            {"frequency": "fortnightly", "priority": "urgent", "executionTime": "tomorrow"},
            {"/frequency", "/priority", "/executionTime"},
        ),
        ({"frequency": "61 * * * *", "jobName": "", "x": 1}, {"/frequency", "/jobName", "/x"}),
        ({"executionTime": "tomorrow", "priority": 5, "name": "x"}, {"/executionTime", "/priority", "/name"}),
        ({"executionTime": 5, "jobName": ""}, {"/executionTime", "/jobName"}),
    ],
)
async def test_every_fault_of_an_update_is_told_and_nothing_changes(
    api: httpx.AsyncClient, jobs: Any, submitted: dict[str, Any], change: dict[str, Any], pointers: set[str]
) -> None:
    job_id = await submit(api, submitted)
    before = only(jobs)

    assert faults_of(await api.put(f"/api/jobs/{job_id}", json=change)).keys() == pointers
    assert only(jobs) == before


async def test_what_would_help_is_said_in_the_words_of_the_note(api: httpx.AsyncClient) -> None:
    late = await api.post("/api/jobs", json={**ONE_TIME, "executionTime": "2001-01-01T00:00:00Z", "priority": "urgent"})

    told = {fault["pointer"]: fault for fault in late.json()["errors"]}
    assert told["/executionTime"]["hint"] == "to run it at once, leave executionTime out"
    assert told["/priority"]["message"] == "a priority is low, medium or high"
    assert told["/priority"]["allowed"] == ["low", "medium", "high"]
