"""Log lines: in order, after a cursor, each once."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sample_jobs import START, at, claim, due_job, execute, ids, insert, rows

from hourhand.executor.log_writer import LogWriter
from hourhand.model.errors import LogOutOfOrder
from hourhand.model.log import Place, end_of
from hourhand.model.run import LogLine
from hourhand.ports.log_stores import LogChunk, LogTip
from hourhand.wiring import Store


def chunk(run_id: UUID, attempt: int, first: int, *lines: str, stream: int = 0) -> LogChunk:
    return LogChunk(run_id, attempt, first, [at(first)] * len(lines), [stream] * len(lines), list(lines))


def after(first_line: int, row: LogChunk) -> LogChunk:
    """The same, saying which row it follows."""
    return replace(row, after=first_line)


async def some_claimed(store: Store, count: int) -> list[Any]:
    executor_id = await store.nodes.register_node("executor", "e", 60, {})
    await insert(store, *(due_job(at(-5)) for _ in range(count)))
    return await claim(store, executor_id, at(0), count)


async def read_all(store: Store, run_id: UUID, limit: int) -> list[str]:
    """Page by page, each from where the last one ended, until a page is not full: as a reader of an ended run does."""
    found: list[LogLine] = []
    place = Place(0, 0)
    while True:
        page = await store.logs.read_logs(run_id, *place, limit)
        found += page
        if len(page) < limit:
            return [line.text for line in found]
        place = end_of(page[-1])


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


async def test_a_mark_is_read_until_the_place_behind_the_lines_that_it_stands_for(store: Store) -> None:
    run_id = ids.new_id(START)
    mark = LogChunk(run_id, 1, 2, [at(2)], [2], ["… 98 lines left out here …"], left_out=98)
    await store.logs.append_logs([chunk(run_id, 1, 1, "a"), mark, chunk(run_id, 1, 100, "z")])
    assert await read_all(store, run_id, 1) == ["a", "… 98 lines left out here …", "z"]
    for line, expected in ((1, 2), (50, 2), (98, 2), (99, 100)):
        first = (await store.logs.read_logs(run_id, 1, line, 1))[0]
        assert first.number == expected, line


async def test_lines_with_one_time_and_stream_for_all_are_read_as_others(store: Store) -> None:
    run_id = ids.new_id(START)
    await store.logs.append_logs([LogChunk(run_id, 1, 1, [at(0)], [1], ["a", "b"])])
    assert await store.logs.read_logs(run_id, 0, 0, 10) == [
        LogLine(1, at(0), "stderr", "a", 1),
        LogLine(2, at(0), "stderr", "b", 1),
    ]


async def test_rows_without_the_text_come_without_their_lines(store: Store) -> None:
    run_id = ids.new_id(START)
    stored = [
        chunk(run_id, 1, 1, "a", "100% Done_"),
        chunk(run_id, 1, 3, "nothing", "here"),
        chunk(run_id, 2, 1, "done_"),
    ]
    await store.logs.append_logs(stored)
    found = await store.logs.search_rows(run_id, Place(0, 0), "Done_", False, 10)
    assert [row if isinstance(row, Place) else row.lines for row in found] == [
        ["a", "100% Done_"],
        Place(1, 4),
        Place(2, 1),
    ]
    folded = await store.logs.search_rows(run_id, Place(1, 2), "DONE_", True, 10)
    assert [row if isinstance(row, Place) else row.lines for row in folded] == [Place(1, 4), ["done_"]]
    assert await store.logs.search_rows(run_id, Place(0, 0), "%", False, 1) != [Place(1, 2)]


async def test_where_each_attempt_ends_and_whether_it_said_so_is_known(store: Store) -> None:
    run_id = ids.new_id(START)
    mark = LogChunk(run_id, 2, 1, [at(0)], [2], ["…"], left_out=7)
    end = LogChunk(run_id, 3, 2, is_last=True)
    await store.logs.append_logs([chunk(run_id, 1, 1, "a", "b"), mark, chunk(run_id, 3, 1, "c"), end])
    ends = await store.logs.log_ends(run_id)
    assert {attempt: (each.next_line, each.is_whole) for attempt, each in ends.items()} == {
        1: (3, False),
        2: (8, False),
        3: (2, True),
    }
    assert await read_all(store, run_id, 2) == ["a", "b", "…", "c"]


async def test_the_tip_of_a_log_is_its_last_row_and_where_its_run_stands(store: Store) -> None:
    job = due_job(at(0))
    await insert(store, job)
    [live] = await rows(store, "live_runs")
    ended, silent = ids.new_id(START), ids.new_id(START)
    await store.logs.append_logs(
        [
            chunk(ended, 1, 1, "a"),
            chunk(ended, 2, 1, "b", "c"),
            chunk(ended, 2, 3, "d"),
            chunk(live["run_id"], 1, 1, "e"),
        ]
    )
    assert await store.logs.log_tips([ended, live["run_id"], silent]) == {
        ended: LogTip(2, 3, None, None),
        live["run_id"]: LogTip(1, 1, live["state"], live["attempt"]),
        silent: LogTip(None, None, None, None),
    }


async def test_the_log_of_a_crowd_of_rows_is_read_a_page_at_a_time_without_what_comes_before(store: Store) -> None:
    run_id = ids.new_id(START)
    await store.logs.append_logs([chunk(run_id, 1, number, f"line {number}") for number in range(1, 1001)])
    rows = await store.logs.read_rows(run_id, Place(1, 990), 4)
    assert [row.first_line for row in rows] == [991, 992, 993, 994]


async def test_rows_that_leave_a_gap_or_overlap_are_refused_with_the_number_that_is_expected(store: Store) -> None:
    """Row 154. Nothing of a batch with such a row is stored, and what follows properly is."""
    [claimed] = await some_claimed(store, 1)
    run_id = claimed.run_id
    await store.logs.append_logs([chunk(run_id, 1, 1, "a", "b"), after(1, chunk(run_id, 1, 3, "c"))])
    mark = LogChunk(run_id, 2, 1, [at(0)], [2], ["…"], left_out=7)
    await store.logs.append_logs([mark])
    cases = {
        "gap": (after(4, chunk(run_id, 1, 5, "e")), 4),
        "a row that is not there": (after(2, chunk(run_id, 1, 4, "d")), 4),
        "overlap": (after(1, chunk(run_id, 1, 4, "again")), 4),
        "behind a mark": (after(5, chunk(run_id, 2, 10, "x")), 8),
        "the first one is missing": (after(1, chunk(run_id, 3, 2, "x")), 1),
    }
    told = {}
    for what, (row, _) in cases.items():
        with pytest.raises(LogOutOfOrder) as raised:
            await store.logs.append_logs([chunk(run_id, 9, 1, "fine"), row])
        told[what] = (raised.value.attempt, raised.value.first_line, raised.value.expected)
        assert (raised.value.code, raised.value.details) == ("log-out-of-order", {"expected": told[what][2]})
    assert told == {what: (row.attempt, row.first_line, expected) for what, (row, expected) in cases.items()}
    assert await read_all(store, run_id, 10) == ["a", "b", "c", "…"]
    await store.logs.append_logs([after(3, chunk(run_id, 1, 4, "d")), after(4, chunk(run_id, 1, 5, "e"))])
    assert await read_all(store, run_id, 10) == ["a", "b", "c", "d", "e", "…"]


async def test_lines_of_a_run_that_is_over_are_not_judged_by_rows_that_may_have_left(store: Store) -> None:
    with pytest.raises(LogOutOfOrder) as raised:
        await store.logs.append_logs([after(1, chunk(ids.new_id(START), 1, 5, "late"))])
    assert raised.value.expected is None


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ([4], ["a", "b", "c", "… 1 line was lost by the database …", "e", "f"]),
        ([1, 4], ["… 4 lines were lost by the database …", "e", "f"]),
    ],
    ids=["the last row", "all rows"],
)
async def test_lines_that_the_database_has_lost_are_declared_in_their_place(
    store: Store, lost: list[int], expected: list[str]
) -> None:
    """As after a fail-over to a standby that did not have all of them yet. Of two runs one has lost nothing."""
    one, other = await some_claimed(store, 2)
    writer = LogWriter(store.logs, lambda: None)
    for claimed in (one, other):
        writer.put(chunk(claimed.run_id, 1, 1, "a", "b", "c"))
        await writer.write()
        writer.put(chunk(claimed.run_id, 1, 4, "d"))
        await writer.write()
    for first_line in lost:
        await execute(
            store, "DELETE FROM hourhand.log_chunks WHERE run_id = $1 AND first_line = $2", one.run_id, first_line
        )
    for claimed in (one, other):
        writer.put(chunk(claimed.run_id, 1, 5, "e", "f"))
        writer.put(LogChunk(claimed.run_id, 1, 7, is_last=True))
    await writer.write()

    assert await read_all(store, other.run_id, 10) == list("abcdef")
    lines = await store.logs.read_logs(one.run_id, 0, 0, 100)
    assert [line.text for line in lines] == expected
    assert (await store.logs.log_ends(one.run_id))[1] == (7, lines[-1].at, True)
