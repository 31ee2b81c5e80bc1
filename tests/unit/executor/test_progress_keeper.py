"""What attempts say of how far they have come is written at most once a second, the newest word only."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from hourhand.executor import progress
from hourhand.executor.progress import ProgressKeeper

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Board:
    def __init__(self):
        self.writes = []
        self.forgotten = []
        self.fault = None

    async def write_progress(self, told):
        if self.fault is not None:
            raise self.fault
        self.writes.append({each.run_id.int: (each.progress.percent, each.progress.message) for each in told})

    async def forget_progress(self, attempts):
        self.forgotten += [(run_id.int, fence) for run_id, fence in attempts]


def attempt(number, fence=1):
    return SimpleNamespace(run_id=UUID(int=number), fence=fence)


@pytest.fixture
def board():
    return Board()


@pytest.fixture
def keeper(board, monkeypatch):
    monkeypatch.setattr(progress, "WRITE_SECONDS", 0.02)
    keeper = ProgressKeeper(board, lambda: NOW + timedelta(seconds=1))
    keeper.woken = 0

    def wake():
        keeper.woken += 1

    keeper.wake = wake
    return keeper


async def test_only_the_newest_word_of_each_attempt_is_written(keeper, board):
    for percent in range(100):
        keeper.told(attempt(1), percent, f"step {percent}")
    keeper.told(attempt(2), None, "somewhere")
    assert await keeper.run_once() is None
    assert board.writes == [{1: (99, "step 99"), 2: (None, "somewhere")}]
    assert keeper.woken == 1


async def test_nothing_is_written_sooner_than_the_pause_allows(keeper, board):
    keeper.told(attempt(1), 1, "")
    await keeper.run_once()
    keeper.told(attempt(1), 2, "")
    rest = await keeper.run_once()
    assert 0 < rest <= 0.02
    assert len(board.writes) == 1
    await asyncio.sleep(rest)
    await keeper.run_once()
    assert board.writes[-1] == {1: (2, "")}


async def test_an_attempt_that_ends_is_cleared_away_if_anything_of_it_was_written(keeper, board):
    keeper.told(attempt(1), 1, "")
    await keeper.run_once()
    keeper.told(attempt(1), 2, "")
    keeper.told(attempt(2), 2, "")
    keeper.ended(attempt(1))
    keeper.ended(attempt(2))
    await asyncio.sleep(0.02)
    assert await keeper.run_once() is None
    assert len(board.writes) == 1
    assert board.forgotten == [(1, 1)]


async def test_an_attempt_that_ends_while_its_word_is_written_is_cleared_away(keeper, board):
    write = board.write_progress

    async def write_while_it_ends(told):
        keeper.ended(attempt(1))
        await write(told)

    board.write_progress = write_while_it_ends
    keeper.told(attempt(1), 1, "")
    assert await keeper.run_once() is None
    assert board.forgotten == [(1, 1)]


async def test_what_could_not_be_written_is_written_later(keeper, board):
    keeper.told(attempt(1), 1, "")
    board.fault = OSError()
    with pytest.raises(OSError):
        await keeper.run_once()
    board.fault = None
    await asyncio.sleep(0.02)
    await keeper.run_once()
    assert board.writes == [{1: (1, "")}]


async def test_attempts_that_say_nothing_cost_nothing(keeper, board):
    assert await keeper.run_once() is None
    assert board.writes == board.forgotten == []
    assert keeper.woken == 0
