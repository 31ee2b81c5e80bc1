"""Log lines: in order, after a cursor, each once."""

from uuid import UUID

import pytest
from sample_jobs import START, at, ids

from hourhand.model.run import LogLine
from hourhand.ports.log_stores import LogChunk
from hourhand.wiring import Store


def chunk(run_id: UUID, attempt: int, first: int, *lines: str, stream: int = 0) -> LogChunk:
    return LogChunk(run_id, attempt, first, [at(first)] * len(lines), [stream] * len(lines), list(lines))


async def read_all(store: Store, run_id: UUID, limit: int) -> list[str]:
    """Page by page, each from where the last one ended, until a page is not full: as a reader of an ended run does."""
    found: list[LogLine] = []
    place = (0, 0)
    while True:
        page = await store.logs.read_logs(run_id, *place, limit)
        found += page
        if len(page) < limit:
            return [line.text for line in found]
        place = (page[-1].attempt, page[-1].number)


async def test_lines_come_in_order_with_their_number_time_and_stream(store: Store) -> None:
    run_id, other = ids.new_id(START), ids.new_id(START)
    await store.logs.append_logs(
        [
            chunk(run_id, 2, 1, "again"),
            chunk(run_id, 1, 3, "c", stream=1),
            chunk(other, 1, 1, "not mine"),
            chunk(run_id, 1, 1, "a", "b"),
        ]
    )
    assert await store.logs.read_logs(run_id, 0, 0, 100) == [
        LogLine(1, at(1), "stdout", "a", 1),
        LogLine(2, at(1), "stdout", "b", 1),
        LogLine(3, at(3), "stderr", "c", 1),
        LogLine(1, at(1), "stdout", "again", 2),
    ]


async def test_reading_goes_on_after_a_line_even_within_a_chunk(store: Store) -> None:
    run_id = ids.new_id(START)
    await store.logs.append_logs([chunk(run_id, 1, 1, "a", "b", "c"), chunk(run_id, 2, 1, "d", "e")])
    for after, expected in (((1, 1), "bcde"), ((1, 3), "de"), ((2, 1), "e"), ((2, 2), "")):
        assert "".join(line.text for line in await store.logs.read_logs(run_id, *after, 10)) == expected


async def test_a_chunk_that_is_delivered_twice_is_kept_once(store: Store) -> None:
    run_id = ids.new_id(START)
    for _ in range(2):
        await store.logs.append_logs([chunk(run_id, 1, 1, "a"), chunk(run_id, 1, 2, "b")])
    assert await read_all(store, run_id, 10) == ["a", "b"]


@pytest.mark.parametrize("size", [1, 3], ids=["lines alone", "lines in threes"])
@pytest.mark.parametrize("limit", [1, 2, 4, 100])
async def test_pages_bring_every_line_and_only_the_last_one_is_not_full(store: Store, size: int, limit: int) -> None:
    run_id = ids.new_id(START)
    texts = [f"line {number}" for number in range(1, 13)]
    chunks = [chunk(run_id, 1, first + 1, *texts[first : first + size]) for first in range(0, 12, size)]
    await store.logs.append_logs(chunks)
    assert await read_all(store, run_id, limit) == texts
