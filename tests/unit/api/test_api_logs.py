"""Logs over HTTP: pages, the stream, the search, the whole; numbers that follow each other or are declared."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from api_fakes import NOW

from hourhand.model.run import LogLine
from hourhand.model.states import RunState
from hourhand.operations import logs as log_operations

CREATE = {"name": "report", "kind": "command", "payload": {"argv": ["true"]}, "schedule": {"cron": "0 9 * * *"}}


def line(number: int, text: str = "", attempt: int = 1, left_out: int = 0) -> LogLine:
    return LogLine(number, NOW, "stdout", text or f"line {number}", attempt, left_out)


@pytest.fixture
async def run(api: httpx.AsyncClient, jobs: Any, runs: Any) -> Any:
    assert (await api.post("/api/v1/jobs", json=CREATE)).status_code in (201, 202)
    return runs.add(next(iter(jobs.jobs.values())), RunState.SUCCEEDED)


async def test_a_mark_has_the_number_of_the_first_line_that_it_stands_for(
    api: httpx.AsyncClient, runs: Any, run: Any
) -> None:
    runs.lines = [line(1), line(2, "… 90 lines left out here …", left_out=90), line(92)]
    path = f"/api/v1/runs/{run.run_id}/logs"
    page = (await api.get(path)).json()
    assert [(each["number"], each.get("left_out")) for each in page["lines"]] == [(1, None), (2, 90), (92, None)]
    behind_mark = (await api.get(path, params={"limit": 2})).json()
    assert (behind_mark["next"], behind_mark["more"]) == ("1:91", True)
    assert [each["number"] for each in (await api.get(path, params={"after": "1:91"})).json()["lines"]] == [92]


async def test_pages_are_bounded_in_bytes_and_say_that_there_is_more(
    api: httpx.AsyncClient, runs: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_operations, "PAGE_BYTES_MAX", 100)
    runs.lines = [line(number, "x" * 60) for number in range(1, 6)]
    path, numbers, after = f"/api/v1/runs/{run.run_id}/logs", [], "0:0"
    for _ in range(10):
        page = (await api.get(path, params={"after": after})).json()
        assert len(page["lines"]) <= 2
        numbers += [each["number"] for each in page["lines"]]
        after = page["next"]
        assert page["more"] is not page["ended"]
        if not page["more"]:
            break
    assert numbers == [1, 2, 3, 4, 5]


async def test_an_attempt_that_never_said_its_log_is_whole_ends_with_a_mark(
    api: httpx.AsyncClient, runs: Any, logs: Any, run: Any
) -> None:
    runs.runs[run.run_id] = replace(run, attempt=2)
    runs.lines = [line(1), line(2), line(1, "again", attempt=2)]
    logs.is_whole = False
    path = f"/api/v1/runs/{run.run_id}/logs"
    for limit in (1, 2, 3, 100):
        found, after = [], "0:0"
        while True:
            page = (await api.get(path, params={"limit": limit, "after": after})).json()
            found += [(each["attempt"], each["number"], each["text"][:18]) for each in page["lines"]]
            after = page["next"]
            if page["ended"]:
                break
        mark = "… the log ends here"[:18]
        assert found == [(1, 1, "line 1"), (1, 2, "line 2"), (1, 3, mark), (2, 1, "again"), (2, 2, mark)], limit
    whole = (await api.get(path + "/download")).text.splitlines()
    assert [text[:18] for text in whole] == ["line 1", "line 2", mark, "again", mark]


async def test_search_gives_the_lines_that_hold_the_text(
    api: httpx.AsyncClient, runs: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.lines = [line(number, "Error: disk" if number % 3 == 0 else "all is well") for number in range(1, 31)]
    path = f"/api/v1/runs/{run.run_id}/logs"
    found = (await api.get(path, params={"contains": "error", "ignore_case": "true"})).json()
    assert [each["number"] for each in found["lines"]] == list(range(3, 31, 3))
    assert (await api.get(path, params={"contains": "error"})).json()["lines"] == []
    monkeypatch.setattr(log_operations, "SCAN_ROWS_MAX", 2)
    numbers, after, pages = [], "0:0", 0
    while True:
        page = (await api.get(path, params={"contains": "disk", "limit": 1, "after": after})).json()
        numbers += [each["number"] for each in page["lines"]]
        after, pages = page["next"], pages + 1
        if not page["more"]:
            break
    assert numbers == list(range(3, 31, 3))
    assert pages > 8, "each looks at two rows only"


async def test_a_job_is_searched_newest_run_first_with_a_cursor(
    api: httpx.AsyncClient, jobs: Any, runs: Any, run: Any
) -> None:
    newer = runs.add(next(iter(jobs.jobs.values())), RunState.FAILED, 60)
    runs.lines = [line(1, "a needle"), line(2), line(3, "needle again")]
    path = f"/api/v1/jobs/{run.job_id}/logs"
    found, cursor = [], None
    for _ in range(20):
        params = {"contains": "needle", "limit": 1} | ({"cursor": cursor} if cursor else {})
        page = (await api.get(path, params=params)).json()
        found += [(each["run_id"], each["number"]) for each in page["matches"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    ids = [str(newer.run_id), str(run.run_id)]
    assert found == [(ids[0], 1), (ids[0], 3), (ids[1], 1), (ids[1], 3)]
    first = (await api.get(path, params={"contains": "needle", "limit": 1})).json()["next_cursor"]
    forged = first.partition("~")[0] + "~1:99"
    assert (await api.get(path, params={"contains": "needle", "limit": 1, "cursor": forged})).status_code == 400
    assert (await api.get(path)).status_code == 400


async def test_the_whole_log_is_a_download_that_no_browser_shows_as_a_page(
    api: httpx.AsyncClient, runs: Any, run: Any
) -> None:
    runs.lines = [line(1, "\x1b[31mred\x1b[0m <script>"), line(2)]
    path = f"/api/v1/runs/{run.run_id}/logs/download"
    text = await api.get(path, headers={"Accept": "text/plain"})
    assert text.text == "\x1b[31mred\x1b[0m <script>\nline 2\n"
    assert text.headers["content-type"].startswith("text/plain")
    assert text.headers["x-content-type-options"] == "nosniff"
    assert text.headers["content-disposition"] == f'attachment; filename="{run.run_id}.log"'
    lines = await api.get(path, params={"ansi": "strip"}, headers={"Accept": "application/x-ndjson"})
    assert [json.loads(each)["text"] for each in lines.text.splitlines()] == ["red <script>", "line 2"]


async def test_a_stream_goes_on_behind_the_last_event_and_ends_with_the_run(
    api: httpx.AsyncClient, runs: Any, run: Any
) -> None:
    runs.lines = [line(1), line(2), line(3)]
    path, accept = f"/api/v1/runs/{run.run_id}/logs/stream", {"Accept": "text/event-stream"}
    whole = await api.get(path, headers=accept)
    assert whole.headers["content-type"] == "text/event-stream"
    events = [part for part in whole.text.split("\n\n") if part.startswith("event")]
    assert events[0].startswith("event: lines\nid: 1:3\ndata: ")
    assert events[1] == 'event: end\ndata: {"status":"succeeded","reason":null}'
    rest = await api.get(path, headers={**accept, "Last-Event-ID": "1:2"})
    assert "line 3" in rest.text
    assert "line 2" not in rest.text


async def test_lines_of_a_running_attempt_are_streamed_when_they_are_stored(
    api: httpx.AsyncClient, runs: Any, run: Any
) -> None:
    runs.runs[run.run_id] = replace(run, state=RunState.RUNNING)
    runs.lines = [line(1)]
    path = f"/api/v1/runs/{run.run_id}/logs/stream"
    streaming = asyncio.create_task(api.get(path, headers={"Accept": "text/event-stream"}))
    await asyncio.sleep(0.05)
    runs.lines = [line(1), line(2)]
    await asyncio.sleep(0.05)
    runs.runs[run.run_id] = run
    text = (await streaming).text
    assert text.index("line 1") < text.index("id: 1:1") + 1000
    assert [part.splitlines()[1] for part in text.split("\n\n") if part.startswith("event: lines")] == [
        "id: 1:1",
        "id: 1:2",
    ]


async def test_an_event_of_a_stream_has_little_text_however_long_the_lines_are(
    api: httpx.AsyncClient, runs: Any, run: Any
) -> None:
    runs.lines = [line(number, "x" * 16_000) for number in range(1, 101)]
    answer = await api.get(f"/api/v1/runs/{run.run_id}/logs/stream", headers={"Accept": "text/event-stream"})
    events = [part for part in answer.text.split("\n\n") if part.startswith("event: lines")]
    assert max(map(len, events)) < 300 * 1024
    assert sum(event.count('"number"') for event in events) == 100


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("after=x", "invalid-cursor"),
        ("after=1:99999999999", "invalid-cursor"),
        ("after=99999:1", "invalid-cursor"),
        ("contains=", "invalid-parameter"),
        ("contains=" + "x" * 201, "invalid-parameter"),
        ("contains=a%0Ab", "invalid-parameter"),
        ("contains=a%00b", "invalid-parameter"),
        ("ansi=no", "invalid-parameter"),
        ("ignore_case=yes", "invalid-parameter"),
        ("limit=0", "invalid-parameter"),
    ],
)
async def test_wrong_parameters_are_refused(api: httpx.AsyncClient, run: Any, query: str, code: str) -> None:
    answer = await api.get(f"/api/v1/runs/{run.run_id}/logs?{query}")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (400, code)


@pytest.mark.parametrize("rest", ["", "/stream", "/download"])
async def test_the_log_of_a_run_that_is_not_ours_is_not_there(api: httpx.AsyncClient, rest: str) -> None:
    answer = await api.get(f"/api/v1/runs/0198c0de-7a5c-7000-8000-000000000000/logs{rest}", headers={"Accept": "*/*"})
    assert answer.status_code == 404
    bad = await api.get(
        "/api/v1/runs/0198c0de-7a5c-7000-8000-000000000000/logs/stream",
        headers={"Accept": "text/event-stream", "Last-Event-ID": "<script>"},
    )
    assert bad.status_code == 400
