"""Questions that arrive together are asked together."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from hourhand.model.errors import DatabaseUnavailable
from hourhand.operations.group_read import BATCH_MAX, UNDER_WAY_MAX, GroupRead


class Store:
    """Answers when it is told to; knows the squares of even numbers."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.fault: Exception | None = None
        self.bad: int | None = None

    async def read(self, keys: Sequence[int]) -> Mapping[int, int]:
        self.asked.append(list(keys))
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        if self.bad in keys:
            raise ValueError(f"{self.bad} cannot be read")
        return {key: key * key for key in keys if key % 2 == 0}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def reads(store: Store) -> GroupRead[int, int]:
    return GroupRead(store.read)


async def begun() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def all_under_way(store: Store, reads: GroupRead[int, int]) -> list["asyncio.Task[int | None]"]:
    """As many questions as may be asked at a time: of 0, 2 and so on, none of them answered yet."""
    store.answers.clear()
    tasks = []
    for key in range(0, 2 * UNDER_WAY_MAX, 2):
        tasks.append(asyncio.create_task(reads.get(key)))
        await begun()
    return tasks


async def test_alone_a_question_waits_for_nobody(store: Store, reads: GroupRead[int, int]) -> None:
    assert (await reads.get(4), await reads.get(5)) == (16, None)
    assert store.asked == [[4], [5]]


async def test_what_comes_while_others_are_under_way_is_asked_next_and_together(
    store: Store, reads: GroupRead[int, int]
) -> None:
    tasks = await all_under_way(store, reads)
    tasks += [asyncio.create_task(reads.get(key)) for key in (14, 16, 14)]
    await begun()
    assert store.asked == [[0], [2]], "the rest gathers"
    store.answers.set()
    assert await asyncio.gather(*tasks) == [0, 4, 196, 256, 196]
    assert store.asked[2:] == [[14, 16]]


async def test_who_asks_while_the_same_is_under_way_is_answered_by_a_later_look(
    store: Store, reads: GroupRead[int, int]
) -> None:
    store.answers.clear()
    first = asyncio.create_task(reads.get(2))
    await begun()
    second = asyncio.create_task(reads.get(2))
    await begun()
    store.answers.set()
    await asyncio.gather(first, second)
    assert store.asked == [[2], [2]], "what was committed in between is seen"


async def test_who_asks_in_the_very_turn_in_which_others_are_answered_is_answered_too(
    store: Store, reads: GroupRead[int, int]
) -> None:
    tasks = await all_under_way(store, reads)
    store.answers.set()  # all that are under way end in the next turn, and nobody looks again
    tasks.append(asyncio.create_task(reads.get(14)))
    async with asyncio.timeout(5):
        assert await asyncio.gather(*tasks) == [0, 4, 196]


async def test_a_fault_is_told_to_all_who_asked_and_to_nobody_else(store: Store, reads: GroupRead[int, int]) -> None:
    store.fault = RuntimeError("no")
    told = await asyncio.gather(*(reads.get(key) for key in range(3)), return_exceptions=True)
    assert [str(fault) for fault in told] == ["no"] * 3
    store.fault = None
    assert await reads.get(2) == 4


async def test_one_that_cannot_be_read_does_not_fail_its_neighbours(store: Store, reads: GroupRead[int, int]) -> None:
    store.bad = 3
    told = await asyncio.gather(*(reads.get(key) for key in (2, 3, 4)), return_exceptions=True)
    assert [told[0], str(told[1]), told[2]] == [4, "3 cannot be read", 16]


async def test_when_the_database_is_away_it_is_not_asked_again_for_each_of_them(
    store: Store, reads: GroupRead[int, int]
) -> None:
    store.fault = DatabaseUnavailable("gone")
    told = await asyncio.gather(*(reads.get(key) for key in range(3)), return_exceptions=True)
    assert [type(fault) for fault in told] == [DatabaseUnavailable] * 3
    assert store.asked == [[0, 1, 2]]


async def test_whoever_waits_is_told_when_the_asking_ends(store: Store, reads: GroupRead[int, int]) -> None:
    store.answers.clear()
    waiting = [asyncio.create_task(reads.get(2))]
    await begun()
    [asking] = [task for task in asyncio.all_tasks() if task.get_name() == "group read"]
    reads._waiting[4] = asyncio.get_running_loop().create_future()
    waiting.append(asyncio.create_task(reads.get(4)))
    asking.cancel()
    assert [type(told) for told in await asyncio.gather(*waiting, return_exceptions=True)] == [
        asyncio.CancelledError,
        asyncio.CancelledError,
    ]


async def test_one_who_gives_up_does_not_take_the_answer_from_others(store: Store, reads: GroupRead[int, int]) -> None:
    store.answers.clear()
    impatient, patient = asyncio.create_task(reads.get(2)), asyncio.create_task(reads.get(2))
    await begun()
    impatient.cancel()
    store.answers.set()
    assert await patient == 4
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_crowd_is_asked_for_in_bounded_parts(store: Store, reads: GroupRead[int, int]) -> None:
    await asyncio.gather(*(reads.get(key) for key in range(2 * BATCH_MAX + 1)))
    assert [len(keys) for keys in store.asked] == [BATCH_MAX, BATCH_MAX, 1]
