"""Files and results over HTTP: real routes and a real folder of blobs; the rows are in memory."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from api_fakes import NOW, FakeRuns

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.api.streaming import Streams
from hourhand.blobs.folder import FolderBlobs
from hourhand.model.ids import time_ordered_id
from hourhand.model.run import Run
from hourhand.model.run_blobs import ResultReference, RunFile, file_key, result_key
from hourhand.model.states import Cause, RunState
from hourhand.operations.run_files import RunFileOperations

MIB = 1024 * 1024
LARGE = bytes(range(256)) * 4096 * 3 + b"end"


class Rows:
    def __init__(self) -> None:
        self.files: dict[UUID, list[RunFile]] = {}

    async def run_files(self, run_id: UUID, attempt: int, limit: int) -> list[RunFile]:
        return [file for file in self.files.get(run_id, []) if file.attempt == attempt][:limit]

    async def find_run_file(self, run_id: UUID, attempt: int, name: str) -> RunFile | None:
        return next((file for file in await self.run_files(run_id, attempt, 1000) if file.name == name), None)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[FolderBlobs]:
    made = FolderBlobs(tmp_path / "blobs")
    await made.check()
    yield made
    await made.close()


@pytest.fixture
def streams() -> Streams:
    return Streams(5)


@pytest.fixture
def app(operations: ApiOperations, settings: ApiSettings, runs: Any, rows: Rows, blobs: Any, streams: Streams) -> Any:
    return build_app(replace(operations, run_files=RunFileOperations(runs, rows, blobs)), settings, streams)


def run_in(runs: FakeRuns, **fields: Any) -> Run:
    given: dict[str, Any] = {"result": None, **fields}
    run = Run(
        time_ordered_id(NOW, len(runs.runs)), uuid4(), "nightly", "default", RunState.SUCCEEDED, Cause.SCHEDULE, NOW,
        NOW, NOW, NOW, 2, "executor-1", 1, **given,
    )  # fmt: skip
    runs.runs[run.run_id] = run
    return run


async def once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def leave(blobs: FolderBlobs, rows: Rows, run: Run, name: str, content: bytes, attempt: int = 2) -> None:
    files = rows.files.setdefault(run.run_id, [])
    number, digest = len(files), hashlib.sha256(content).hexdigest()
    await blobs.put(file_key(run.run_id, attempt, number), once(content))
    files.append(RunFile(number, name, len(content), digest, attempt, attempt))


async def test_files_of_the_last_attempt_are_listed_and_those_of_others_by_number(
    api: httpx.AsyncClient, runs: FakeRuns, rows: Rows, blobs: FolderBlobs
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, "a b/Übersicht.pdf", b"new")
    await leave(blobs, rows, run, "old.txt", b"old", attempt=1)

    last = (await api.get(f"/api/v1/runs/{run.run_id}/files")).json()
    first = (await api.get(f"/api/v1/runs/{run.run_id}/files", params={"attempt": 1})).json()

    href = f"/api/v1/runs/{run.run_id}/files/a%20b/%C3%9Cbersicht.pdf"
    digest = f"sha256:{hashlib.sha256(b'new').hexdigest()}"
    assert last == {
        "run_id": str(run.run_id),
        "attempt": 2,
        "files": [{"name": "a b/Übersicht.pdf", "size": 3, "digest": digest, "href": href}],
    }
    assert (await api.get(last["files"][0]["href"])).content == b"new"
    assert (await api.get(first["files"][0]["href"])).content == b"old"


async def test_content_is_an_attachment_that_no_browser_looks_into(
    api: httpx.AsyncClient, runs: FakeRuns, rows: Rows, blobs: FolderBlobs, streams: Streams
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, 'evil/"x".html', b"<script>alert(1)</script>")

    answer = await api.get(f"/api/v1/runs/{run.run_id}/files/evil/%22x%22.html")

    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment; filename=\"_x_.html\"; filename*=UTF-8''%22x%22.html"
    assert answer.headers["etag"] == f'"sha256:{hashlib.sha256(answer.content).hexdigest()}"'
    assert answer.headers["content-length"] == str(len(answer.content))
    assert len(streams) == 0


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=5-", 206, 5, len(LARGE)),
        ("bytes=-3", 206, len(LARGE) - 3, len(LARGE)),
        (f"bytes=1000000-{2 * MIB}", 206, 1_000_000, 2 * MIB + 1),
        ("bytes=7-99999999999", 206, 7, len(LARGE)),
        ("bytes=5-2", 200, 0, len(LARGE)),
        ("bytes=0-1,5-6", 200, 0, len(LARGE)),
        ("pages=1-2", 200, 0, len(LARGE)),
        ("bytes=-", 200, 0, len(LARGE)),
    ],
)
async def test_a_range_is_answered_with_exactly_its_bytes(
    api: httpx.AsyncClient,
    runs: FakeRuns,
    rows: Rows,
    blobs: FolderBlobs,
    asked: str,
    status: int,
    start: int,
    end: int,
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, "large", LARGE)

    answer = await api.get(f"/api/v1/runs/{run.run_id}/files/large", headers={"Range": asked})

    assert answer.status_code == status
    assert answer.content == LARGE[start:end]
    if status == 206:
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(LARGE)}"


async def test_what_the_caller_has_is_not_sent_again(
    api: httpx.AsyncClient, runs: FakeRuns, rows: Rows, blobs: FolderBlobs, streams: Streams
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, "x", b"content")
    path = f"/api/v1/runs/{run.run_id}/files/x"
    etag = (await api.get(path)).headers["etag"]

    assert (await api.get(path, headers={"If-None-Match": etag})).status_code == 304
    assert (await api.get(path, headers={"If-None-Match": '"other"'})).content == b"content"
    stale = await api.get(path, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (stale.status_code, stale.content) == (200, b"content")
    beyond = await api.get(path, headers={"Range": "bytes=7-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */7")
    head = await api.head(path)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "7")
    assert len(streams) == 0


async def test_a_large_result_is_a_reference_and_can_be_had_whole(
    api: httpx.AsyncClient, runs: FakeRuns, blobs: FolderBlobs
) -> None:
    content = b'"' + b"x" * 300_000 + b'"'
    digest = hashlib.sha256(content).hexdigest()
    run = run_in(runs, result_reference=ResultReference(len(content), digest, 7))
    await blobs.put(result_key(run.run_id, 7), once(content))

    shown = (await api.get(f"/api/v1/runs/{run.run_id}")).json()
    whole = await api.get(shown["result_reference"]["href"])

    assert shown["result"] is None
    assert (shown["result_reference"]["size"], shown["result_reference"]["digest"]) == (300_002, f"sha256:{digest}")
    assert (whole.headers["content-type"], whole.content) == ("application/json", content)


async def test_a_small_result_can_be_had_by_the_same_route(api: httpx.AsyncClient, runs: FakeRuns) -> None:
    run = run_in(runs, result={"rows": 42})
    answer = await api.get(f"/api/v1/runs/{run.run_id}/result")
    assert (answer.json(), "etag" in answer.headers) == ({"rows": 42}, True)


async def test_what_is_not_there_is_told(
    api: httpx.AsyncClient, runs: FakeRuns, rows: Rows, blobs: FolderBlobs, streams: Streams
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, "lost", b"content")
    await blobs.delete([file_key(run.run_id, 2, 0)])
    base = f"/api/v1/runs/{run.run_id}"

    for path, status in [
        (f"{base}/files/none", 404),
        (f"{base}/files/../../secret", 400),
        (f"{base}/result", 404),
        (f"/api/v1/runs/{uuid4()}/files", 404),
        (f"{base}/files?attempt=0", 400),
        (f"{base}/files/lost", 503),
    ]:
        answer = await api.get(path)
        assert answer.status_code == status, path
        assert answer.headers["content-type"] == "application/problem+json"
    assert len(streams) == 0


async def test_only_so_many_downloads_are_carried_at_once(
    api: httpx.AsyncClient, runs: FakeRuns, rows: Rows, blobs: FolderBlobs, streams: Streams
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, "x", b"content")
    for _ in range(5):
        streams.enter()

    answer = await api.get(f"/api/v1/runs/{run.run_id}/files/x")
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)

    streams.leave()
    assert (await api.get(f"/api/v1/runs/{run.run_id}/files/x")).content == b"content"


@pytest.mark.parametrize("path", ["files", "files/x", "result"])
async def test_nobody_sees_files_without_a_token(anonymous: httpx.AsyncClient, path: str) -> None:
    assert (await anonymous.get(f"/api/v1/runs/{uuid4()}/{path}")).status_code == 401


@pytest.mark.parametrize(("content", "kept"), [(b"all of it", 4), (b"", 0)], ids=["cut short", "empty"])
async def test_content_that_was_cut_short_in_the_storage_is_not_handed_out_as_the_whole(
    api: httpx.AsyncClient, blobs: FolderBlobs, rows: Rows, runs: Any, tmp_path: Path, content: bytes, kept: int
) -> None:
    run = run_in(runs)
    await leave(blobs, rows, run, "report", content)
    with open(tmp_path / "blobs" / file_key(run.run_id, 2, 0), "r+b") as file:
        file.truncate(kept)

    answer = await api.get(f"/api/v1/runs/{run.run_id}/files/report")

    if kept == len(content):
        assert (answer.status_code, answer.content) == (200, content)
    else:
        assert answer.status_code == 503
        assert answer.json()["detail"] == "the content in the storage of blobs was cut short: 5 bytes are missing"
