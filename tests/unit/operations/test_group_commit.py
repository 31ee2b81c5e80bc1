"""Submissions that arrive together are committed together and answered after the commit."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from hourhand.model.errors import DatabaseUnavailable, Overloaded
from hourhand.operations import group_commit
from hourhand.operations.group_commit import GroupCommit
from hourhand.ports.stores import NewJob


class Table:
    """Takes rows when the gate is open. A row named "bad" is refused, as by a constraint; "away" as by a lost line."""

    def __init__(self) -> None:
        self.stored: list[Any] = []
        self.batches: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def insert(self, rows: Sequence[NewJob]) -> None:
        self.batches.append(list(rows))
        await self.gate.wait()
        if "away" in cast("list[Any]", rows):
            raise DatabaseUnavailable("gone")
        if "bad" in cast("list[Any]", rows):
            raise ValueError("the row is refused")
        self.stored += rows


@pytest.fixture
async def table() -> Table:
    return Table()


@pytest.fixture
async def group(table: Table) -> GroupCommit:
    return GroupCommit(table.insert)


def submit(group: GroupCommit, *rows: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(group.store(cast("NewJob", row))) for row in rows]


async def turns(count: int = 10) -> None:
    """Lets everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_submission_is_answered_only_after_the_insert_returned(table: Table, group: GroupCommit) -> None:
    table.gate.clear()
    [answer] = submit(group, "a")
    await turns()
    assert table.batches == [["a"]]
    assert not answer.done()
    table.gate.set()
    await answer
    assert table.stored == ["a"]


async def test_what_arrives_during_a_commit_is_committed_together_next(table: Table, group: GroupCommit) -> None:
    table.gate.clear()
    answers = submit(group, "a")
    await turns()
    answers += submit(group, "b", "c", "d")
    await turns()
    assert table.batches == [["a"]]
    table.gate.set()
    await asyncio.gather(*answers)
    assert table.batches == [["a"], ["b", "c", "d"]]


async def test_alone_a_submission_waits_for_nobody(table: Table, group: GroupCommit) -> None:
    for row in "ab":
        await asyncio.gather(*submit(group, row))
    assert table.batches == [["a"], ["b"]]


async def test_one_bad_row_does_not_fail_its_neighbours(table: Table, group: GroupCommit) -> None:
    answers = submit(group, "a", "bad", "c")
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), ValueError, type(None)]
    assert table.stored == ["a", "c"]


async def test_while_the_database_is_away_all_are_told_and_none_is_tried_one_by_one(
    table: Table, group: GroupCommit
) -> None:
    results = await asyncio.gather(*submit(group, "a", "away", "c"), return_exceptions=True)
    assert [type(result) for result in results] == [DatabaseUnavailable] * 3
    assert len(table.batches) == 1
    assert table.stored == []


async def test_after_a_failure_the_next_submission_is_stored(table: Table, group: GroupCommit) -> None:
    await asyncio.gather(*submit(group, "away"), return_exceptions=True)
    await asyncio.gather(*submit(group, "b"))
    assert table.stored == ["b"]


async def test_a_caller_that_went_away_does_not_fail_the_others(table: Table, group: GroupCommit) -> None:
    table.gate.clear()
    gone, *others = submit(group, "a", "b", "c")
    await turns()
    gone.cancel()
    await turns()
    table.gate.set()
    await asyncio.gather(*others)
    assert table.stored == ["a", "b", "c"]


async def test_no_batch_is_larger_than_the_limit(
    table: Table, group: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "BATCH_MAX", 4)
    await asyncio.gather(*submit(group, *"abcdefghij"))
    assert [len(batch) for batch in table.batches] == [4, 4, 2]
    assert table.stored == list("abcdefghij")


async def test_more_than_may_wait_is_refused_at_the_door_and_the_waiting_ones_are_stored(
    table: Table, group: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAITING_MAX", 3)
    table.gate.clear()
    answers = submit(group, "in commit")
    await turns()
    answers += submit(group, "a", "b", "c")
    await turns()
    with pytest.raises(Overloaded) as refused:
        await group.store(cast("NewJob", "d"))
    assert refused.value.retry_after_seconds >= 1
    table.gate.set()
    await asyncio.gather(*answers)
    assert table.stored == ["in commit", "a", "b", "c"]


async def test_when_the_writing_is_cancelled_everybody_who_waits_is_told(table: Table, group: GroupCommit) -> None:
    table.gate.clear()
    answers = submit(group, "in commit")
    await turns()
    answers += submit(group, "a", "b")
    await turns()
    group._writer.cancel()
    told = await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), 5)
    assert [type(fault) for fault in told] == [DatabaseUnavailable] * 3
    table.gate.set()
    await asyncio.gather(*submit(group, "c"))
    assert table.stored == ["c"]
