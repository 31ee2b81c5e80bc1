"""What every storage of blobs promises, whichever it is. A new one joins by adding one case."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server, serving

from hourhand.blobs.choice import blobs_for
from hourhand.blobs.settings import BlobSettings
from hourhand.model.errors import BlobsUnavailable, BlobsUnsuitable
from hourhand.ports.blobs import BlobMissing, Blobs, is_key

MIB = 1024 * 1024
LARGE = os.urandom(MIB) * 19 + b"the end"
"""More than two parts of object storage, and no whole number of anything."""


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


def s3_settings(server: S3Server, bucket: str, **more: Any) -> BlobSettings:
    if not more.get("missing"):
        (server.root / bucket).mkdir()
    more.pop("missing", None)
    given = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "timeout_seconds": 20.0, **more}
    return BlobSettings(url=f"s3://{bucket}/some/prefix", endpoint=server.endpoint, region="us-east-1", **given)


@pytest.fixture
def bucket() -> str:
    return f"bucket-{uuid4().hex}"


@pytest.fixture(params=["folder", "s3"])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> AsyncIterator[Blobs]:
    if request.param == "s3":
        settings = s3_settings(request.getfixturevalue("s3"), bucket)
    else:
        settings = BlobSettings(url=(tmp_path / "kept").as_uri())
    made = blobs_for(settings, tmp_path)
    await made.check()
    yield made
    await made.close()


async def pieces(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def whole(blobs: Blobs, key: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in blobs.get(key, start, end)])


async def listed(blobs: Blobs, prefix: str) -> dict[str, int]:
    return {found.key: found.size async for batch in blobs.list(prefix) for found in batch}


@pytest.mark.parametrize("content", [b"", b"x", LARGE], ids=["nothing", "one byte", "many parts"])
async def test_content_comes_back_as_it_was_with_its_size_and_digest(blobs: Blobs, content: bytes) -> None:
    stored = await blobs.put("a/b/c.bin", pieces(content))

    assert stored == (len(content), hashlib.sha256(content).hexdigest())
    assert await whole(blobs, "a/b/c.bin") == content


async def test_pieces_of_no_bytes_change_nothing(blobs: Blobs) -> None:
    async def content() -> AsyncIterator[bytes]:
        for piece in (b"", b"ab", b"", b"c", b""):
            yield piece

    assert (await blobs.put("a", content())).size == 3
    assert await whole(blobs, "a") == b"abc"


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (5, 5), (5, None), (len(LARGE) - 3, None), (4 * MIB - 1, 4 * MIB + 1), (7, 9 * MIB + 7), (0, 10**12)],
)
async def test_a_range_has_exactly_the_bytes_that_were_asked_for(blobs: Blobs, start: int, end: int | None) -> None:
    await blobs.put("large", pieces(LARGE, MIB))

    assert await whole(blobs, "large", start, end) == LARGE[start:end]


async def test_a_range_behind_the_end_is_empty(blobs: Blobs) -> None:
    await blobs.put("small", pieces(b"abc"))

    assert await whole(blobs, "small", 3) == b""
    assert await whole(blobs, "small", 100, 200) == b""


async def test_a_key_without_content_is_told_before_the_first_piece(blobs: Blobs) -> None:
    await blobs.put("a/b", pieces(b"x"))

    for key in ("nothing", "a", "a/b/c", "a/x"):
        with pytest.raises(BlobMissing):
            await whole(blobs, key)


@pytest.mark.parametrize("before", [b"", b"abc", LARGE], ids=["at once", "soon", "after two parts"])
async def test_content_that_breaks_off_leaves_nothing(blobs: Blobs, before: bytes) -> None:
    async def content() -> AsyncIterator[bytes]:
        async for piece in pieces(before):
            yield piece
        raise LookupError("the source is gone")

    with pytest.raises(LookupError, match="the source is gone"):
        await blobs.put("a/broken", content())

    with pytest.raises(BlobMissing):
        await whole(blobs, "a/broken")
    assert await listed(blobs, "a") == {}


async def test_one_who_is_cancelled_in_the_middle_leaves_nothing(blobs: Blobs) -> None:
    under_way = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        yield LARGE
        under_way.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(blobs.put("a/cancelled", content()))
    await under_way.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting

    assert await listed(blobs, "a") == {}


async def test_a_reader_may_leave_at_any_moment(blobs: Blobs) -> None:
    await blobs.put("large", pieces(LARGE, MIB))

    reading = blobs.get("large")
    assert await anext(reading)
    await reading.aclose()  # type: ignore[attr-defined]

    assert await whole(blobs, "large", 0, 3) == LARGE[:3]


async def test_the_same_content_may_be_put_again(blobs: Blobs) -> None:
    first = await blobs.put("same", pieces(b"abc"))
    assert await blobs.put("same", pieces(b"abc")) == first
    assert await whole(blobs, "same") == b"abc"


async def test_deleting_takes_what_is_there_and_minds_nothing_else(blobs: Blobs) -> None:
    await asyncio.gather(*(blobs.put(f"many/{number}", pieces(b"x")) for number in range(30)))
    await blobs.put("other", pieces(b"stays"))

    await blobs.delete([*(f"many/{number}" for number in range(1, 30)), "many/absent", "nowhere/at/all"])
    await blobs.delete([])

    assert await listed(blobs, "many") == {"many/0": 1}
    assert await whole(blobs, "other") == b"stays"


async def test_a_listing_shows_what_is_below_its_prefix_and_not_beside_it(blobs: Blobs) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    for key in ("runs/1/a", "runs/1/b/c", "runs/10/a", "runs/1x"):
        await blobs.put(key, pieces(key.encode()))

    assert await listed(blobs, "runs/1") == {"runs/1/a": 8, "runs/1/b/c": 10}
    assert await listed(blobs, "absent") == {}
    assert sorted(await blobs.words("runs")) == ["1", "10"]
    assert await blobs.words("absent") == []
    [times] = [[found.changed_at for found in batch] async for batch in blobs.list("runs/10")]
    assert before <= times[0] <= datetime.now(UTC) + timedelta(seconds=2)


async def test_keys_that_share_a_folder_come_and_go_without_harm(tmp_path: Path) -> None:
    blobs = blobs_for(BlobSettings(url=(tmp_path / "kept").as_uri()), tmp_path)
    await blobs.check()

    async def come_and_go(number: int) -> None:
        for _ in range(15):
            await blobs.put(f"shared/deep/{number}", pieces(b"x"))
            await blobs.delete([f"shared/deep/{number}"])
        await blobs.put(f"shared/deep/{number}", pieces(b"x"))

    await asyncio.gather(*(come_and_go(number) for number in range(4)))

    assert len(await listed(blobs, "shared")) == 4


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "..", "a/../b", ".hidden", "a/.b", "ä", "a b", "a\n", "x" * 401]
)
def test_a_key_means_the_same_everywhere_or_is_none(key: str) -> None:
    assert not is_key(key)


def files_below(folder: Path, choose: Callable[[Path], bool]) -> list[Path]:
    return [path for path in folder.rglob("*") if choose(path)]


async def test_a_folder_belongs_to_its_user_alone_and_keeps_no_remains(tmp_path: Path) -> None:
    root = tmp_path / "kept"
    blobs = blobs_for(BlobSettings(url=root.as_uri()), tmp_path)
    await blobs.check()
    old, young = root / ".incoming" / "old", root / ".incoming" / "young"
    old.touch()
    young.touch()
    os.utime(old, (0, 0))

    await blobs.put("a/b", pieces(b"secret"))
    await blobs.check()

    assert (root.stat().st_mode & 0o777, (root / "a").stat().st_mode & 0o777) == (0o700, 0o700)
    assert (root / "a" / "b").stat().st_mode & 0o777 == 0o600
    assert files_below(root / ".incoming", Path.is_file) == [young]
    await blobs.delete(["a/b"])
    assert not (root / "a").exists()
    await blobs.close()


async def test_without_a_url_blobs_are_in_the_home(tmp_path: Path) -> None:
    blobs = blobs_for(BlobSettings(), tmp_path)
    await blobs.check()
    await blobs.put("a", pieces(b"x"))
    assert (tmp_path / "blobs" / "a").read_bytes() == b"x"
    await blobs.close()


# --- storage that is not as it should be --------------------------------------------------------------------


async def faults_of(settings: BlobSettings, tmp_path: Path) -> list[BlobsUnavailable]:
    """What every question comes to."""
    blobs = blobs_for(settings, tmp_path)
    faults = []
    for question in (
        blobs.check(),
        blobs.put("small", pieces(b"x")),
        blobs.put("large", pieces(LARGE, MIB)),
        whole(blobs, "any"),
        listed(blobs, "any"),
        blobs.words("any"),
    ):
        with pytest.raises(BlobsUnavailable) as caught:
            await question
        assert SECRET_KEY not in str(caught.value)
        faults.append(caught.value)
    return faults


async def test_a_bucket_that_is_not_there_is_told_as_such(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    faults = await faults_of(s3_settings(s3, bucket, missing=True), tmp_path)
    assert isinstance(faults[0], BlobsUnsuitable)
    assert f"the blobs in s3://{bucket}/some/prefix at {s3.endpoint} cannot be used: the bucket does not exist" == str(
        faults[0]
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"access_key_id": "nobody"}, "the access key is not known there"),
        ({"secret_access_key": "wrong"}, "the secret access key does not belong to the access key"),
    ],
)
async def test_wrong_credentials_are_told_and_not_shown(
    s3: S3Server, bucket: str, tmp_path: Path, wrong: dict[str, str], why: str
) -> None:
    faults = await faults_of(s3_settings(s3, bucket, **wrong), tmp_path)
    assert {type(fault) for fault in faults} == {BlobsUnsuitable}
    assert all(str(fault).endswith(why) for fault in faults[:2])


async def test_a_server_that_is_not_there_is_told_within_its_time(bucket: str, tmp_path: Path) -> None:
    nobody = S3Server("http://127.0.0.1:9", tmp_path, None)  # type: ignore[arg-type]
    began = time.monotonic()
    faults = await faults_of(s3_settings(nobody, bucket, timeout_seconds=1.0), tmp_path)
    assert not any(isinstance(fault, BlobsUnsuitable) for fault in faults)
    assert time.monotonic() - began < 30


async def test_a_server_that_never_answers_is_given_up(bucket: str, tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    stuck = S3Server(f"http://127.0.0.1:{port}", tmp_path, None)  # type: ignore[arg-type]
    began = time.monotonic()
    faults = await faults_of(s3_settings(stuck, bucket, timeout_seconds=0.5), tmp_path)
    server.close()
    assert all("did not answer" in str(fault) for fault in faults)
    assert time.monotonic() - began < 30


class Wire:
    """Between client and server; it breaks in the middle of what is sent, as often as asked to."""

    def __init__(self, endpoint: str) -> None:
        self._port = int(endpoint.rpartition(":")[2])
        self.breaks_after: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ends = [self._pass(reader, server_writer), self._pass(server_reader, writer)]
        with contextlib.suppress(OSError):
            await asyncio.gather(*ends)
        for each in (writer, server_writer):
            each.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self.breaks_after is not None:
                self.breaks_after -= len(data)
                if self.breaks_after < 0:
                    raise ConnectionResetError
            sink.write(data)
            await sink.drain()
        sink.close()

    def close(self) -> None:
        self._server.close()


@pytest.mark.parametrize("after", [100_000, 10_000_000, 19_000_000])
async def test_a_connection_that_breaks_for_good_leaves_no_half_blob(
    s3: S3Server, bucket: str, tmp_path: Path, after: int
) -> None:
    wire = Wire(s3.endpoint)
    settings = s3_settings(s3, bucket, timeout_seconds=3.0)
    through = blobs_for(replace(settings, endpoint=await wire.open()), tmp_path)
    direct = blobs_for(settings, tmp_path)
    await through.check()
    wire.breaks_after = after

    with pytest.raises(BlobsUnavailable):
        await through.put("a/large", pieces(LARGE, MIB))

    assert await listed(direct, "a") == {}
    wire.breaks_after = None
    assert (await through.put("a/large", pieces(LARGE, MIB))).size == len(LARGE)
    wire.breaks_after = 5_000_000
    with pytest.raises(BlobsUnavailable):
        await whole(through, "a/large")
    wire.breaks_after = None
    assert await whole(through, "a/large") == LARGE
    wire.close()
