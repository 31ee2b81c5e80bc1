"""Watching a run: `GET /api/v1/runs/{run_id}/events`."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx

from hourhand.model.progress import Progress
from hourhand.model.states import RunState
from hourhand.ports.progress_stores import Glance

AT = datetime(2030, 1, 1, tzinfo=UTC)


async def one_job(api: httpx.AsyncClient, jobs: Any) -> Any:
    await api.post("/api/v1/jobs", json={"name": "watched"})
    return next(iter(jobs.jobs.values()))


def events_in(text: str) -> list[tuple[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


async def test_a_run_is_watched_to_its_end(api: httpx.AsyncClient, jobs: Any, runs: Any, glances: Any) -> None:
    run = runs.add(await one_job(api, jobs), RunState.RUNNING)
    half, most = Progress(50.0, "half", AT), Progress(90.0, "most", AT)
    looks = [
        Glance(RunState.CLAIMED, 1, None, None),
        Glance(RunState.RUNNING, 1, AT, None),
        Glance(RunState.RUNNING, 1, AT, half),
        Glance(RunState.RUNNING, 1, AT, half),
        Glance(RunState.RUNNING, 1, AT, most),
    ]
    glances.looks = [*({run.run_id: look} for look in looks), {}]
    over = replace(run, state=RunState.SUCCEEDED, result=7)
    glances.at_the_last = lambda: runs.runs.update({run.run_id: over})
    answer = await api.get(f"/api/v1/runs/{run.run_id}/events")
    assert answer.headers["content-type"] == "text/event-stream"
    assert [(name, data.get("status") or data.get("percent")) for name, data in events_in(answer.text)] == [
        ("state", "claimed"),
        ("state", "running"),
        ("progress", 50.0),
        ("progress", 90.0),
        ("end", "succeeded"),
    ]


async def test_a_finished_run_is_told_at_once(api: httpx.AsyncClient, jobs: Any, runs: Any) -> None:
    run = runs.add(await one_job(api, jobs), RunState.FAILED)
    answer = await api.get(f"/api/v1/runs/{run.run_id}/events")
    [(name, data)] = events_in(answer.text)
    assert (name, data["run_id"], data["status"]) == ("end", str(run.run_id), "failed")


async def test_a_run_that_is_not_there_cannot_be_watched(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"/api/v1/runs/{uuid4()}/events")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
