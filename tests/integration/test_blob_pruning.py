"""Which blobs of runs are deleted, on a real database and a real folder."""

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from crew import SetClock
from sample_jobs import claim, due_job, insert

from hourhand.blobs.folder import FolderBlobs
from hourhand.model.ids import time_ordered_id
from hourhand.model.run_blobs import ResultReference, RunFile, day_of, file_key, result_key, stored_form
from hourhand.model.states import RunState
from hourhand.ports.stores import Finish
from hourhand.scheduler.blob_pruner import BlobPruner
from hourhand.wiring import Store

DAY = timedelta(days=1)
NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
KEEP_DAYS = 30


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    made = FolderBlobs(tmp_path / "blobs")
    await made.check()
    return made


def pruner_at(now: datetime, blobs: FolderBlobs, store: Store, epoch: int | None = 1) -> BlobPruner:
    leadership: Any = SimpleNamespace(epoch=epoch)
    return BlobPruner(blobs, store.run_files, leadership, SetClock(now), KEEP_DAYS)


async def once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def put(blobs: FolderBlobs, tmp_path: Path, key: str, at: datetime) -> str:
    await blobs.put(key, once(b"x"))
    os.utime(tmp_path / "blobs" / key, (at.timestamp(), at.timestamp()))
    return key


async def keys(blobs: FolderBlobs) -> set[str]:
    return {found.key async for batch in blobs.list("runs") for found in batch}


def run_at(at: datetime, chance: int = 1) -> UUID:
    return time_ordered_id(at, chance)


async def test_blobs_go_with_the_day_of_their_runs_once_its_rows_are_gone(
    store: Store, blobs: FolderBlobs, tmp_path: Path
) -> None:
    long_ago, just_over, kept = NOW - 400 * DAY, NOW - 31.6 * DAY, NOW - 30 * DAY
    gone = [await put(blobs, tmp_path, file_key(run_at(at), 1, 0), at) for at in (long_ago, just_over)]
    # Of a run that went on for longer than history is kept, and has ended just now.
    young = await put(blobs, tmp_path, file_key(run_at(just_over, 2), 1, 0), NOW)
    with_rows = await put(blobs, tmp_path, file_key(run_at(NOW - 35 * DAY), 1, 0), NOW - 35 * DAY)
    not_over = await put(blobs, tmp_path, file_key(run_at(kept), 1, 0), kept)
    async with store.database.connection() as db:  # its partition could not be dropped yet
        schema, day = store.database.schema, day_of(run_at(NOW - 35 * DAY))
        await db.execute(
            f"CREATE TABLE {schema}.run_files_{day} PARTITION OF {schema}.run_files FOR VALUES FROM "
            f"('{run_at(NOW - 35 * DAY, 0)}') TO ('{run_at(NOW - 34.9 * DAY)}')"
        )
    pruner = pruner_at(NOW, blobs, store)
    pruner._looked_through = {day_of(run_at(kept))}

    await pruner.run_once()

    assert gone[0] not in await keys(blobs)
    assert gone[1] not in await keys(blobs)
    assert young in await keys(blobs)
    assert not_over in await keys(blobs)
    assert with_rows not in await keys(blobs)  # rubbish all the same: no row names it


async def test_only_blobs_that_no_row_can_ever_name_are_rubbish(
    store: Store, blobs: FolderBlobs, tmp_path: Path
) -> None:
    node = await store.nodes.register_node("executor", "one", 60, {})
    start = datetime.now(UTC)
    await insert(store, due_job(start), due_job(start), due_job(start))
    first, second, live = await claim(store, node, start)
    files = (RunFile(0, "a", 1, "0" * 64, 1, first.fence),)
    result = stored_form(ResultReference(1, "0" * 64, second.fence))
    ends = [
        Finish(first.run_id, first.fence, RunState.SUCCEEDED, start, start, files=files),
        Finish(second.run_id, second.fence, RunState.SUCCEEDED, start, start, result=result),
    ]
    assert await store.live_runs.finish_runs(ends) == {first.run_id, second.run_id}
    needed = {
        file_key(first.run_id, first.fence, 0),
        result_key(second.run_id, second.fence),
        file_key(live.run_id, live.fence, 0),  # its outcome may come at any moment
        result_key(live.run_id, live.fence),
    }
    rubbish = {
        file_key(first.run_id, first.fence, 1),
        file_key(first.run_id, first.fence - 1, 0),
        result_key(first.run_id, first.fence),
        result_key(second.run_id, second.fence + 1),
        file_key(live.run_id, live.fence - 1, 0),
        file_key(run_at(start), 5, 0),
    }
    for key in needed | rubbish:
        await put(blobs, tmp_path, key, start)

    await pruner_at(start, blobs, store).run_once()
    assert await keys(blobs) == needed | rubbish  # the day is too young to be looked through
    await pruner_at(start + 4 * DAY, blobs, store, epoch=None).run_once()
    assert await keys(blobs) == needed | rubbish  # only the leader deletes
    await pruner_at(start + 4 * DAY, blobs, store).run_once()

    assert await keys(blobs) == needed
