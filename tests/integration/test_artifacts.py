"""Uploaded code on a real database and in a real folder: what is kept, refused, found again and run."""

import asyncio
import hashlib
import io
import os
import tarfile
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from crew import SetClock
from sample_jobs import START, at, every, insert, new_job, rows

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.blobs.folder import FolderBlobs
from hourhand.job_kinds.artifact_cache import ArtifactCache, ArtifactUnavailable
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.script import ScriptKind
from hourhand.model.artifacts import Reference
from hourhand.model.errors import Unauthenticated
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason
from hourhand.operations.artifacts import ArtifactOperations
from hourhand.operations.requests import Caller
from hourhand.ports.job_kind import Task
from hourhand.runtime.archives import ArchiveLimits
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store

BASE = "/api/v1/artifacts"
LIMIT = 300_000
ARCHIVES = ArchiveLimits(entries_max=100, bytes_max=5_000_000)


class OneCaller:
    async def authenticate(self, token: str, namespace: str | None) -> Caller:
        if token != "hh_ada":
            raise Unauthenticated
        return Caller("ada", 1, "default")


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[FolderBlobs]:
    made = FolderBlobs(tmp_path / "blobs")
    await made.check()
    yield made
    await made.close()


@pytest.fixture
def app(store: Store, blobs: FolderBlobs) -> Any:
    used: dict[str, Any] = {
        "access": OneCaller(),
        "artifacts": ArtifactOperations(store.artifacts, blobs, Ticking(), IdSource(), limits=ARCHIVES),
    }
    operations = ApiOperations(**{each.name: used.get(each.name) for each in fields(ApiOperations)})
    return build_app(operations, ApiSettings(artifact_bytes_max=LIMIT, body_seconds_max=0.2))


class Ticking(SetClock):
    """Each look is a second later, so that ids are in the order of the uploads."""

    def now(self) -> Any:
        self.seconds = getattr(self, "seconds", 0) + 1
        return at(self.seconds)


@pytest.fixture
async def api(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": "Bearer hh_ada"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8420", headers=headers) as client:
        yield client


Run = Callable[..., Any]


@pytest.fixture
async def cache(store: Store, blobs: FolderBlobs, tmp_path: Path) -> ArtifactCache:
    made = ArtifactCache(tmp_path / "cache", 1_000_000, store.artifacts, blobs)
    await made.open()
    return made


@pytest.fixture
async def run(cache: ArtifactCache) -> AsyncIterator[Run]:
    kind = ScriptKind(ProgramRunner(ProgramSettings(grace_seconds=0.2)), None, cache)
    await kind.open()

    async def run(**payload: Any) -> tuple[Any, list[str]]:
        lines: list[str] = []
        task = Task(
            uuid4(), uuid4(), payload.pop("namespace", "default"), "a job", "script", payload, 1, 5, START,
            lambda stream, text: lines.append(text),
        )  # fmt: skip
        return await kind.run(task), lines

    yield run
    await kind.close()


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(**files: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    return file.getvalue()


def blob_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


async def test_an_upload_is_told_listed_and_downloaded_as_it_was(api: httpx.AsyncClient) -> None:
    content = os.urandom(200_000)
    put = await api.put(f"{BASE}/tool", content=content, params={"digest": digest_of(content)})

    assert put.status_code == 201
    told = put.json()
    assert (told["name"], told["digest"], told["size"], told["form"]) == ("tool", digest_of(content), 200_000, "file")
    assert told["uploaded_by"] == "ada"
    for reference in ("tool", told["digest"], f"tool@{told['digest']}"):
        assert (await api.get(f"{BASE}/{reference}")).json() == told
        got = await api.get(f"{BASE}/{reference}/content")
        assert got.content == content
        assert got.headers["content-length"] == "200000"
        assert got.headers["etag"] == f'"{told["digest"]}"'
    assert (await api.get(BASE)).json() == {"artifacts": [told], "next_cursor": None}


async def test_a_body_may_come_in_many_pieces_of_any_size(api: httpx.AsyncClient) -> None:
    content = os.urandom(100_000)

    async def drops() -> AsyncIterator[bytes]:
        for place in range(0, len(content), 777):
            yield content[place : place + 777]

    put = await api.put(f"{BASE}/tool", content=drops())
    assert put.json()["digest"] == digest_of(content)


async def test_the_name_alone_means_what_was_uploaded_last(api: httpx.AsyncClient, tmp_path: Path) -> None:
    first, second = b"first", b"second"
    for content in (first, second):
        await api.put(f"{BASE}/tool", content=content)
    assert (await api.get(f"{BASE}/tool/content")).content == second
    assert (await api.get(f"{BASE}/tool@{digest_of(first)}/content")).content == first

    await api.put(f"{BASE}/tool", content=first)  # the same again: it is the newest again, and is kept once
    assert (await api.get(f"{BASE}/tool/content")).content == first
    assert [each["digest"] for each in (await api.get(BASE)).json()["artifacts"]] == [*map(digest_of, (first, second))]
    assert len(blob_files(tmp_path)) == 2


async def test_pages_go_on_where_the_one_before_ended(api: httpx.AsyncClient) -> None:
    for number in range(5):
        await api.put(f"{BASE}/tool{number}", content=b"x%d" % number)
    seen, cursor = [], None
    while True:
        page = (await api.get(BASE, params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        seen += [each["name"] for each in page["artifacts"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == ["tool4", "tool3", "tool2", "tool1", "tool0"]
    assert (await api.get(BASE, params={"name": "tool3"})).json()["artifacts"][0]["name"] == "tool3"
    assert (await api.get(BASE, params={"cursor": "edited"})).status_code == 400


async def refused(answer: httpx.Response, status: int, code: str) -> None:
    told = answer.json()
    assert answer.status_code == status, told
    assert code in {told["type"].rpartition(":")[2], *(each["code"] for each in told["errors"])}, told


async def test_content_that_is_not_what_its_digest_says_is_refused(api: httpx.AsyncClient, tmp_path: Path) -> None:
    wrong = await api.put(f"{BASE}/tool", content=b"damaged", params={"digest": digest_of(b"whole")})
    await refused(wrong, 422, "digest-mismatch")
    await refused(await api.get(f"{BASE}/tool"), 404, "not-found")
    assert blob_files(tmp_path) == []


@pytest.mark.parametrize("name", ["a%0d%0ab", "a%00b", "x" * 300, "%2e%2e", "a%2Fb", "a b", ".hidden", "a@b", "%F0%9F"])
async def test_a_name_that_is_none_is_refused(api: httpx.AsyncClient, name: str) -> None:
    answer = await api.put(f"{BASE}/{name}", content=b"x")
    if name not in ("a%2Fb", "%2e%2e"):  # which are other addresses
        await refused(answer, 422, "invalid-name")
    else:
        assert answer.status_code in (404, 405, 422)


async def test_all_faults_of_an_upload_are_told_at_once_and_before_it_is_read(api: httpx.AsyncClient) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("nobody should read this")
        yield b""

    answer = await api.put(f"{BASE}/a%20b", content=never(), params={"digest": "md5:12"})
    await refused(answer, 422, "invalid-name")
    await refused(answer, 422, "invalid-digest")


async def test_an_empty_upload_is_refused(api: httpx.AsyncClient) -> None:
    await refused(await api.put(f"{BASE}/tool", content=b""), 422, "content-required")


async def test_a_body_that_is_too_large_is_refused_by_what_it_says_and_by_what_comes(api: httpx.AsyncClient) -> None:
    await refused(await api.put(f"{BASE}/tool", content=bytes(LIMIT + 1)), 413, "body-too-large")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(LIMIT)

    told = await api.put(f"{BASE}/tool", content=endless())
    await refused(told, 413, "body-too-large")
    assert told.json()["detail"].endswith(f"of {LIMIT} bytes; an operator can raise it by api.artifact_bytes_max")


async def test_a_disk_without_room_is_told_and_nothing_is_kept(
    api: httpx.AsyncClient, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b"))  # noqa: SIM115 - as it does
    for content in (b"x", bytes(LIMIT)):
        answer = await api.put(f"{BASE}/tool", content=content)
        await refused(answer, 503, "blobs-unavailable")
        assert "no space left on device" in answer.json()["detail"]
    assert await rows(store, "artifacts") == []
    assert blob_files(tmp_path) == []


async def test_a_range_of_an_upload_can_be_fetched_and_what_somebody_has_is_not_sent_again(
    api: httpx.AsyncClient,
) -> None:
    content = os.urandom(100_000)
    await api.put(f"{BASE}/tool", content=content)
    part = await api.get(f"{BASE}/tool/content", headers={"Range": "bytes=70000-70009"})
    assert (part.status_code, part.content) == (206, content[70_000:70_010])
    assert part.headers["content-range"] == "bytes 70000-70009/100000"
    again = await api.get(f"{BASE}/tool/content", headers={"If-None-Match": part.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_content_that_the_storage_has_lost_is_told_with_what_to_do(
    api: httpx.AsyncClient, tmp_path: Path
) -> None:
    await api.put(f"{BASE}/tool", content=b"x")
    [blob] = blob_files(tmp_path)
    blob.unlink()
    answer = await api.get(f"{BASE}/tool/content")
    await refused(answer, 503, "blobs-unavailable")
    assert "upload it again" in answer.json()["detail"]


async def test_a_body_that_stops_coming_is_given_up(app: Any) -> None:
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": b"x", "more_body": True}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost:8420"), (b"authorization", b"Bearer hh_ada")]
    scope = {"type": "http", "method": "PUT", "path": f"{BASE}/tool", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("media", ["text/plain", "application/json", "multipart/mixed; boundary=x"])
async def test_another_form_of_body_is_refused(api: httpx.AsyncClient, media: str) -> None:
    answer = await api.put(f"{BASE}/tool", content=b"x", headers={"content-type": media})
    await refused(answer, 415, "unsupported-media-type")


async def test_a_packed_body_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.put(f"{BASE}/tool", content=b"x", headers={"content-encoding": "gzip"})
    await refused(answer, 415, "unsupported-media-type")


async def test_a_stranger_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.put(f"{BASE}/tool", content=b"x", headers={"Authorization": "Bearer hh_eve"})
    await refused(answer, 401, "unauthenticated")


def zip_of(name: str, content: bytes, count: int = 1) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(count):
            packed.writestr(name.format(number), content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (zip_of("../evil", b"x"), 422, "archive-unsafe-path"),
        (zip_of("/etc/evil", b"x"), 422, "archive-unsafe-path"),
        (b"no archive", 422, "archive-unreadable"),
    ],
    ids=["out of it", "absolute", "none"],
)
async def test_an_archive_that_does_harm_is_refused_at_once(
    api: httpx.AsyncClient, tmp_path: Path, content: bytes, status: int, code: str
) -> None:
    await refused(await api.put(f"{BASE}/tool.zip", content=content), status, code)
    assert blob_files(tmp_path) == []


async def test_a_bomb_is_refused_with_the_settings_that_say_how_large_it_may_be(api: httpx.AsyncClient) -> None:
    large = await api.put(f"{BASE}/b.zip", content=zip_of("z", bytes(ARCHIVES.bytes_max + 1)))
    await refused(large, 413, "archive-too-large")
    why = "it would become more than 5 MB (kinds.artifact_unpacked_bytes_max)"
    assert large.json()["detail"] == f"artifact b.zip is too large: {why}"
    many = await api.put(f"{BASE}/b.zip", content=zip_of("f{}", b"", ARCHIVES.entries_max + 1))
    await refused(many, 413, "archive-too-large")
    assert many.json()["detail"].endswith("it has more than 100 entries (kinds.artifact_entries_max)")


async def test_an_executor_with_a_lower_limit_does_not_unpack_what_the_api_has_kept(
    api: httpx.AsyncClient, store: Store, blobs: FolderBlobs, tmp_path: Path
) -> None:
    await api.put(f"{BASE}/b.zip", content=zip_of("z", bytes(200_000)))
    cache = ArtifactCache(tmp_path / "less", 1_000_000, store.artifacts, blobs, limits=ArchiveLimits(100, 100_000))
    await cache.open()
    row = await cache.find("default", Reference("b.zip", None))
    why = r"it would become more than 100 kB \(kinds.artifact_unpacked_bytes_max\)"
    with pytest.raises(ArtifactUnavailable, match=why) as told:
        async with cache.held(row):
            raise AssertionError("not reached")
    assert not told.value.may_pass
    assert [each.name for each in (tmp_path / "less").iterdir()] == [".incoming"], "nothing of it is left"


async def test_what_jobs_use_is_not_deleted(api: httpx.AsyncClient, store: Store, tmp_path: Path) -> None:
    old, new = b"echo old", b"echo new"
    for content in (old, new):
        await api.put(f"{BASE}/tool", content=content)

    def job(reference: str) -> Any:
        payload = {"artifact": reference, "entry": "tool"}
        return new_job(
            every(3600), next_due=at(3600), kind="script", payload=payload, needs="script", name=reference[:9]
        )

    [by_name, by_digest] = await insert(store, job("tool"), job(digest_of(old)))
    await refused(await api.delete(f"{BASE}/tool"), 409, "artifact-in-use")
    answer = await api.delete(f"{BASE}/tool@{digest_of(old)}")
    await refused(answer, 409, "artifact-in-use")
    assert str(by_digest) in answer.json()["detail"]
    assert str(by_name) not in answer.json()["detail"]

    async with store.database.connection() as db:
        await db.execute(f"UPDATE {store.database.schema}.jobs SET status = 2 WHERE job_id = $1", by_digest)
    assert (await api.delete(f"{BASE}/tool@{digest_of(old)}")).status_code == 200
    assert len(blob_files(tmp_path)) == 1
    await refused(await api.get(f"{BASE}/{digest_of(old)}"), 404, "not-found")


async def test_another_namespace_sees_nothing_of_it(api: httpx.AsyncClient, run: Run) -> None:
    await api.put(f"{BASE}/tool", content=b"#!/bin/sh\necho hi\n")
    outcome, _ = await run(artifact="tool", namespace="other")
    assert isinstance(outcome, Failed)
    assert "there is no artifact tool" in outcome.error


# --- running it -------------------------------------------------------------------------------------------


async def test_an_uploaded_file_is_run_by_its_suffix_or_as_a_program(api: httpx.AsyncClient, run: Run) -> None:
    await api.put(f"{BASE}/report.py", content=b"import sys\nprint('python', sys.argv[1:])\n")
    await api.put(f"{BASE}/tool", content=b'#!/bin/sh\necho "program $*"; pwd\n')

    outcome, lines = await run(artifact="report.py", entry="report.py", args=["a b"])
    assert outcome == Succeeded({"exit_code": 0})
    assert lines[1:] == ["python ['a b']"]
    outcome, lines = await run(artifact="tool", args=["x"])
    assert outcome == Succeeded({"exit_code": 0})
    assert lines[0].startswith("artifact tool sha256:")
    assert lines[1] == "program x"
    assert lines[2].endswith("/artifact")


async def test_an_archive_is_unpacked_and_its_files_find_each_other(api: httpx.AsyncClient, run: Run) -> None:
    content = archive(**{"app__run.py": "import helper\nprint(helper.word)", "app__helper.py": "word = 'found'"})
    await api.put(f"{BASE}/app.tar.gz", content=content)

    outcome, lines = await run(artifact="app.tar.gz", entry="app/run.py")
    assert (outcome, lines[1:]) == (Succeeded({"exit_code": 0}), ["found"])
    outcome, lines = await run(artifact="app.tar.gz", entry="app/run.py", cwd="app")
    assert (outcome, lines[1:]) == (Succeeded({"exit_code": 0}), ["found"])
    outcome, lines = await run(artifact="app.tar.gz", argv=["python3", "run.py"], cwd="app")
    assert (outcome, lines[1:]) == (Succeeded({"exit_code": 0}), ["found"])


async def test_a_job_cannot_change_what_others_run(api: httpx.AsyncClient, run: Run) -> None:
    await api.put(f"{BASE}/evil.sh", content=b"chmod u+w $0 2>/dev/null; echo 'echo evil' >> $0; rm -f $0; echo done")
    for _ in range(2):
        outcome, lines = await run(artifact="evil.sh", entry="evil.sh")
        assert outcome == Succeeded({"exit_code": 0})
        assert "done" in lines
        assert "evil" not in lines


async def test_an_entry_that_is_not_in_the_archive_is_told(api: httpx.AsyncClient, run: Run) -> None:
    await api.put(f"{BASE}/app.tar.gz", content=archive(run="x"))
    outcome, _ = await run(artifact="app.tar.gz", entry="missing")
    assert isinstance(outcome, Failed)
    assert not outcome.retryable


async def test_content_that_was_damaged_where_it_is_kept_is_never_run(
    api: httpx.AsyncClient, run: Run, tmp_path: Path
) -> None:
    await api.put(f"{BASE}/tool.sh", content=b"echo good")
    [kept] = blob_files(tmp_path)
    kept.write_bytes(b"echo evil")
    outcome, lines = await run(artifact="tool.sh", entry="tool.sh")
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == (Reason.NOT_STARTED, True)
    assert "digest" in outcome.error
    assert "evil" not in lines
    kept.write_bytes(b"echo good")
    outcome, lines = await run(artifact="tool.sh", entry="tool.sh")
    assert outcome == Succeeded({"exit_code": 0})


async def test_it_is_fetched_once_for_all_who_want_it_at_once(
    api: httpx.AsyncClient, run: Run, blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.put(f"{BASE}/tool.sh", content=b"echo hi")
    fetched: list[str] = []
    get = blobs.get

    def counted(key: str, *rest: Any) -> Any:
        fetched.append(key)
        return get(key, *rest)

    monkeypatch.setattr(blobs, "get", counted)
    outcomes = await asyncio.gather(*(run(artifact="tool.sh", entry="tool.sh") for _ in range(5)))
    assert all(outcome == Succeeded({"exit_code": 0}) for outcome, _ in outcomes)
    await run(artifact="tool.sh", entry="tool.sh")
    assert len(fetched) == 1


async def test_the_cache_keeps_to_its_size_and_forgets_the_oldest(
    api: httpx.AsyncClient, store: Store, blobs: FolderBlobs, tmp_path: Path
) -> None:
    cache = ArtifactCache(tmp_path / "small", 250_000, store.artifacts, blobs)
    await cache.open()
    from hourhand.model.artifacts import Reference

    async def use(name: str) -> None:
        async with cache.held(await cache.find("default", Reference(name, None))):
            pass

    def kept() -> set[str]:
        return {next(each.iterdir()).name for each in (tmp_path / "small").iterdir() if not each.name.startswith(".")}

    for name in ("a", "b", "c"):
        await api.put(f"{BASE}/{name}", content=os.urandom(100_000))
    for name in ("a", "b", "a", "c"):
        await use(name)
    assert kept() == {"a", "c"}
    again = ArtifactCache(tmp_path / "small", 150_000, store.artifacts, blobs)
    await again.open()
    async with again.held(await again.find("default", Reference("c", None))):
        assert kept() == {"c"}


async def test_an_attempt_that_is_cancelled_does_not_take_the_fetch_from_others(
    api: httpx.AsyncClient, run: Run, blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.put(f"{BASE}/tool.sh", content=b"echo hi")
    asked, go_on = asyncio.Event(), asyncio.Event()
    get = blobs.get

    async def slow(key: str, *rest: Any) -> Any:
        asked.set()
        await go_on.wait()
        async for piece in get(key, *rest):
            yield piece

    monkeypatch.setattr(blobs, "get", slow)
    first = asyncio.create_task(run(artifact="tool.sh", entry="tool.sh"))
    await asked.wait()
    second = asyncio.create_task(run(artifact="tool.sh", entry="tool.sh"))
    await asyncio.sleep(0)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    go_on.set()
    outcome, _ = await second
    assert outcome == Succeeded({"exit_code": 0})
