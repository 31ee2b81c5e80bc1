"""Logs leave the database: whole, once, readable as before; whoever dies on the way leaves nothing behind."""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from sample_jobs import START, at, claim, due_job, ids, insert

from hourhand.blobs.folder import FolderBlobs
from hourhand.model import log_pack
from hourhand.model.log import LOST_TEXT, Place, lines_in
from hourhand.model.log import START as BEGINNING
from hourhand.operations.log_source import LogSource
from hourhand.operations.moved_logs import PackReader
from hourhand.ports.blobs import Blobs, Stored
from hourhand.ports.log_stores import LogChunk
from hourhand.scheduler import log_mover
from hourhand.scheduler.log_mover import LogMover
from hourhand.scheduler.settings import KeptLogSettings
from hourhand.store.log_packs import LogPacks
from hourhand.store.logs import Logs
from hourhand.wiring import Store

LATER = START + timedelta(days=10)


class Site:
    """A leader, a storage, and the time that the test sets."""

    def __init__(self, store: Store, blobs: Any, folder: Path) -> None:
        self.store = store
        self.packs = LogPacks(store.database)
        self.blobs = blobs
        self.folder = folder
        self.now = LATER
        self.shared = True
        self.source = LogSource(store.logs, PackReader(self.packs, cast("Blobs", blobs)))

    async def lead(self, settings: KeptLogSettings | None = None, blobs: Any = None) -> LogMover:
        node_id = await self.store.nodes.register_node("scheduler", "s", 60.0, {})
        epoch = await self.store.nodes.take_lease("leader", node_id, 60.0)
        if epoch is None:
            await self.execute("UPDATE {}.leases SET lease_until = now() - interval '1 second'")
            epoch = await self.store.nodes.take_lease("leader", node_id, 60.0)
        assert epoch is not None

        async def may_move() -> bool:
            return self.shared

        return LogMover(
            self.packs,
            cast("Blobs", blobs or self.blobs),
            SimpleNamespace(epoch=epoch),
            lambda: node_id,
            cast("Any", SimpleNamespace(now=lambda: self.now)),
            lambda: ids.new_id(START),
            settings or KeptLogSettings(),
            may_move,
        )

    async def execute(self, statement: str) -> None:
        async with self.store.database.connection() as db:
            await db.execute(statement.format(self.store.database.schema))

    async def count(self, table: str) -> int:
        async with self.store.database.connection() as db:
            return int(await db.fetchval(f"SELECT count(*) FROM {self.store.database.schema}.{table}"))

    async def read(self, run_id: UUID, after: Place = BEGINNING) -> list[tuple[int, int, str]]:
        found = []
        async with aclosing(self.source.rows(run_id, after, is_final=True)) as rows:
            async for row in rows:
                found += [(line.attempt, line.number, line.text) for line in lines_in(row, after)]
        return found

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*.gz") if ".incoming" not in path.parts]


@pytest.fixture
async def site(store: Store, tmp_path: Path) -> AsyncIterator[Site]:
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.check()
    yield Site(store, blobs, tmp_path / "blobs")
    await blobs.close()


async def write(store: Store, run_id: UUID, lines: int, rows: int = 1, *, whole: bool = True, attempt: int = 1) -> None:
    chunks = []
    for row in range(rows):
        first, texts = row * lines + 1, [f"line {row * lines + number}" for number in range(1, lines + 1)]
        chunks.append(
            LogChunk(run_id, attempt, first, [START], [0], texts, is_last=whole and row == rows - 1)
        )  # fmt: skip
    await store.logs.append_logs(chunks)


def expected(lines: int, attempt: int = 1) -> list[tuple[int, int, str]]:
    return [(attempt, number, f"line {number}") for number in range(1, lines + 1)]


def run_at(seconds: float) -> UUID:
    return ids.new_id(START + timedelta(seconds=seconds))


async def test_old_logs_of_many_runs_move_into_one_pack_and_read_as_before(store: Store, site: Site) -> None:
    runs = [run_at(number) for number in range(30)]
    for number, run_id in enumerate(runs):
        await write(store, run_id, number + 1)
    young = ids.new_id(LATER - timedelta(days=1))
    await write(store, young, 3)
    assert await (await site.lead()).run_once() is None
    assert len(site.files()) == 1
    assert await site.count("log_chunks") == 1, "only the young one is left"
    for number, run_id in enumerate(runs):
        assert await site.read(run_id) == expected(number + 1)
    assert await site.read(young) == expected(3)
    assert await site.read(run_at(5.5)) == []


async def test_a_large_log_moves_when_its_run_is_final_and_a_page_reads_only_what_it_needs(
    store: Store, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pack, "SEGMENT_BYTES", 2000)
    run_id = ids.new_id(LATER)
    await write(store, run_id, 50, rows=200)
    last = LogChunk(run_id, 1, 10_001, is_last=True, total_bytes=5_000_000)
    await Logs(store.database, 4_000_000).append_logs([last])
    assert await site.count("large_logs") == 1
    assert await (await site.lead()).run_once() is None
    assert await site.count("log_chunks") == 0
    assert await site.count("large_logs") == 0
    assert await site.read(run_id) == expected(10_000)
    [pack] = await site.packs.packs_of_run(run_id)
    assert len(pack.segments) > 20
    asked: list[int] = []
    get = site.blobs.get

    def counted(key: str, start: int = 0, end: int | None = None) -> Any:
        asked.append((end or 0) - start)
        return get(key, start, end)

    monkeypatch.setattr(site.blobs, "get", counted)
    site.source = LogSource(store.logs, PackReader(site.packs, cast("Blobs", site.blobs)))
    async with aclosing(site.source.rows(run_id, Place(1, 7_777), is_final=True)) as rows:
        first = await anext(rows)
    assert next(lines_in(first, Place(1, 7_777))).number == 7_778
    assert len(asked) == 1
    assert asked[0] < pack.size_bytes / 10


async def test_runs_that_are_not_final_stay_and_get_a_pack_of_their_own_later(store: Store, site: Site) -> None:
    await insert(store, due_job(at(0)))
    [claimed] = await claim(store, 1, START)
    others = [run_at(-10), run_at(10)]
    for run_id in (*others, claimed.run_id):
        await write(store, run_id, 2)
    mover = await site.lead()
    await mover.run_once()
    assert await site.count("log_chunks") == 1
    await site.execute("DELETE FROM {}.live_runs")
    await mover.run_once()
    assert await site.count("log_chunks") == 0
    for run_id in (*others, claimed.run_id):
        assert await site.read(run_id) == expected(2)
    assert len(site.files()) == 2


async def test_an_attempt_without_its_end_keeps_saying_so_when_it_has_moved(store: Store, site: Site) -> None:
    run_id = run_at(0)
    await write(store, run_id, 3, whole=False)
    await write(store, run_id, 2, attempt=2)
    await (await site.lead()).run_once()
    assert await site.read(run_id) == [*expected(3), (1, 4, LOST_TEXT), *expected(2, attempt=2)]


@pytest.mark.parametrize("rows_read", [0, 4, 20])
async def test_a_log_that_moves_while_it_is_read_is_read_to_its_end(store: Store, site: Site, rows_read: int) -> None:
    run_id = run_at(0)
    await write(store, run_id, 5, rows=30)
    mover = await site.lead()
    seen = 0
    read_rows = store.logs.read_rows

    async def moving_meanwhile(run: UUID, after: Place, limit: int) -> Any:
        nonlocal seen
        if seen >= rows_read:
            await mover.run_once()
        found = await read_rows(run, after, limit)
        seen += len(found)
        return found

    site.source = LogSource(
        cast("Any", SimpleNamespace(read_rows=moving_meanwhile)), PackReader(site.packs, cast("Blobs", site.blobs))
    )
    assert await site.read(run_id) == expected(150)
    assert await site.count("log_chunks") == 0


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 20, 64, 84])
async def test_no_row_is_read_twice_however_many_there_are(store: Store, site: Site, rows: int) -> None:
    run_id = run_at(0)
    await write(store, run_id, 3, rows=rows)
    assert await site.read(run_id) == expected(3 * rows)
    async with aclosing(site.source.search(run_id, BEGINNING, "line", False, True)) as found:
        assert [row.first_line async for row in found if not isinstance(row, Place)] == [*range(1, 3 * rows, 3)]


class Dying:
    """Storage whose writer dies when the blob is there."""

    def __init__(self, blobs: FolderBlobs) -> None:
        self._blobs = blobs

    async def put(self, key: str, content: AsyncIterable[bytes]) -> Stored:
        await self._blobs.put(key, content)
        raise SystemExit

    async def delete(self, keys: Any) -> None:
        await self._blobs.delete(keys)


async def test_a_leader_that_dies_on_the_way_leaves_the_log_where_it_was_and_its_rubbish_is_cleared(
    store: Store, site: Site
) -> None:
    run_id, other = run_at(0), run_at(1)
    await write(store, run_id, 5)
    await write(store, other, 5)
    with pytest.raises(SystemExit):
        await (await site.lead(blobs=Dying(site.blobs))).run_once()
    assert await site.read(run_id) == expected(5)
    assert len(site.files()) == 1
    await (await site.lead()).run_once()
    assert await site.read(run_id) == expected(5)
    assert await site.count("log_chunks") == 0
    assert len(site.files()) == await site.count("log_packs") == 1


async def test_one_who_leads_no_longer_moves_nothing(store: Store, site: Site) -> None:
    run_id, other = run_at(0), run_at(1)
    await write(store, run_id, 5)
    await write(store, other, 5)
    old = await site.lead()
    new = await site.lead()
    await old.run_once()
    assert await site.count("log_chunks") == 2
    assert site.files() == []
    await new.run_once()
    assert await site.count("log_chunks") == 0


async def test_logs_stay_where_not_every_node_could_read_them(store: Store, site: Site) -> None:
    run_id = run_at(0)
    await write(store, run_id, 5)
    site.shared = False
    await (await site.lead()).run_once()
    assert await site.count("log_chunks") == 1


async def test_packs_go_with_their_blobs_when_their_retention_is_over(store: Store, site: Site) -> None:
    first, second = run_at(0), run_at(1)
    await write(store, first, 5)
    await write(store, second, 5)
    mover = await site.lead()
    await mover.run_once()
    assert len(site.files()) == 1
    site.now = START + timedelta(days=29)
    await mover.run_once()
    assert len(site.files()) == 1
    site.now = START + timedelta(days=31)
    await mover.run_once()
    assert site.files() == []
    assert await site.count("log_packs") == 0
    assert await site.read(first) == []


async def test_more_logs_than_a_pack_holds_are_moved_pack_by_pack(
    store: Store, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_mover, "PACK_BYTES", 3000)
    monkeypatch.setattr(log_mover, "ROWS_AT_ONCE", 4)
    runs = [run_at(number) for number in range(12)]
    for run_id in runs:
        await write(store, run_id, 5, rows=3)
    mover = await site.lead()
    await mover.run_once()
    assert await site.count("log_chunks") == 0
    assert len(site.files()) > 3
    for run_id in runs:
        assert await site.read(run_id) == expected(15)
