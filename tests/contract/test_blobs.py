"""What every storage of blobs promises, whichever it is. A new one joins by adding one case."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hourhand.blobs.choice import blobs_for
from hourhand.blobs.settings import BlobSettings
from hourhand.ports.blobs import BlobMissing, Blobs, is_key

MIB = 1024 * 1024
LARGE = os.urandom(MIB) * 19 + b"the end"
"""More than two parts of object storage, and no whole number of anything."""


@pytest.fixture(params=["folder"])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Blobs]:
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
    [times] = [[found.changed_at for found in batch] async for batch in blobs.list("runs/10")]
    assert before <= times[0] <= datetime.now(UTC) + timedelta(seconds=2)


async def test_keys_that_share_a_folder_come_and_go_without_harm(blobs: Blobs) -> None:
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
