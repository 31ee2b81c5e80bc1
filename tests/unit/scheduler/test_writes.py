"""Moves on their way: a few parts at a time, none forgotten, and none goes on after one has failed."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from hourhand.ports.stores import Move
from hourhand.scheduler.writes import WRITES_MAX, Writes

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)


def part(number: int) -> list[Move]:
    return [Move(UUID(int=number), NOW, 1, [NOW], [], None)]


class Database:
    """Writes a part when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.given_up: list[int] = []
        self.may_end: dict[int, asyncio.Future[None]] = {}

    async def write(self, moves: Sequence[Move], now: datetime) -> None:
        number = moves[0].job_id.int
        self.begun.append(number)
        self.may_end[number] = asyncio.get_running_loop().create_future()
        try:
            await self.may_end[number]
        except asyncio.CancelledError:
            self.given_up.append(number)
            raise
        self.ended.append(number)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_parts_are_written_at_a_time_than_may_be_and_the_oldest_is_waited_for() -> None:
    database = Database()
    async with Writes(database.write) as writes:
        for number in range(WRITES_MAX):
            await writes.begin(part(number), NOW)
        assert database.begun == list(range(WRITES_MAX))
        assert writes.places() == {(UUID(int=number), NOW, 1) for number in range(WRITES_MAX)}
        another = asyncio.create_task(writes.begin(part(9), NOW))
        database.may_end[1].set_result(None)
        await turns()
        assert not another.done()
        database.may_end[0].set_result(None)
        await another
        assert database.begun[-1] == 9
        assert writes.places() == {(UUID(int=9), NOW, 1)}
        database.may_end[9].set_result(None)


async def test_whoever_leaves_it_waits_until_all_is_written() -> None:
    database = Database()

    async def plan() -> None:
        async with Writes(database.write) as writes:
            await writes.begin(part(1), NOW)
            await writes.begin(part(2), NOW)

    planning = asyncio.create_task(plan())
    await turns()
    database.may_end[2].set_result(None)
    await turns()
    assert not planning.done()
    database.may_end[1].set_result(None)
    await planning
    assert database.ended == [2, 1]


async def test_a_part_that_fails_is_told_and_the_others_are_given_up() -> None:
    database = Database()

    async def plan() -> None:
        async with Writes(database.write) as writes:
            await writes.begin(part(1), NOW)
            await writes.begin(part(2), NOW)
            database.may_end[1].set_exception(ConnectionError("away"))
            await writes.begin(part(3), NOW)

    with pytest.raises(ConnectionError, match="away"):
        await plan()
    assert (database.begun, database.given_up, database.ended) == ([1, 2], [2], [])


async def test_whoever_stops_planning_leaves_nothing_under_way() -> None:
    database = Database()

    async def plan() -> None:
        async with Writes(database.write) as writes:
            await writes.begin(part(1), NOW)
            await asyncio.Event().wait()

    planning = asyncio.create_task(plan())
    await turns()
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    assert database.given_up == [1]
