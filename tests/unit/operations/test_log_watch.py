"""Many who follow logs, and the one question that is asked for all of them."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from hourhand.model.errors import DatabaseUnavailable
from hourhand.operations.log_watch import LogWatch
from hourhand.ports.log_stores import LogTip
from hourhand.runtime.bell import Bell

FIRST, SECOND = LogTip(1, 1, "running", 1), LogTip(1, 7, "running", 1)


class Tips:
    def __init__(self) -> None:
        self.tips: dict[UUID, LogTip] = {}
        self.questions: list[set[UUID]] = []
        self.fault: Exception | None = None

    async def log_tips(self, run_ids: Sequence[UUID]) -> dict[UUID, LogTip]:
        self.questions.append(set(run_ids))
        if self.fault is not None:
            raise self.fault
        return {run_id: self.tips.get(run_id, FIRST) for run_id in run_ids}


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_however_many_follow_one_question_is_asked_and_only_those_are_told_whose_log_has_grown() -> None:
    tips, bell = Tips(), Bell()
    watch = LogWatch(tips, bell, poll_seconds=60, look_seconds_min=0)
    runs = [uuid4() for _ in range(200)]
    followers = [asyncio.create_task(watch.changed(run_id, FIRST)) for run_id in runs]
    await turns()
    assert tips.questions == [set(runs)]
    assert not any(follower.done() for follower in followers)

    tips.tips[runs[7]] = SECOND
    bell.ring()
    await turns()

    assert tips.questions == [set(runs)] * 2
    assert [at for at, follower in enumerate(followers) if follower.done()] == [7]
    assert await followers[7] == SECOND
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)


async def test_lines_are_found_without_a_wake_up_and_nobody_is_asked_when_nobody_follows() -> None:
    tips = Tips()
    watch = LogWatch(tips, Bell(), poll_seconds=0.001, look_seconds_min=0)
    run_id = uuid4()
    assert await watch.changed(run_id, None) == FIRST
    waiting = asyncio.create_task(watch.changed(run_id, FIRST))
    await turns()
    tips.tips[run_id] = SECOND
    async with asyncio.timeout(10):
        assert await waiting == SECOND
        while watch._looking is not None and not watch._looking.done():
            await asyncio.sleep(0.001)
    asked = len(tips.questions)
    await asyncio.sleep(0.02)
    assert len(tips.questions) == asked


async def test_one_who_follows_after_a_look_has_begun_is_not_told_by_what_it_found() -> None:
    tips, bell = Tips(), Bell()
    go_on = asyncio.Event()

    class Slow(Tips):
        async def log_tips(self, run_ids: Sequence[UUID]) -> dict[UUID, LogTip]:
            found = await tips.log_tips(run_ids)
            await go_on.wait()
            return found

    watch = LogWatch(Slow(), bell, poll_seconds=60, look_seconds_min=0)
    one, other = uuid4(), uuid4()
    first = asyncio.create_task(watch.changed(one, FIRST))
    await turns()
    second = asyncio.create_task(watch.changed(other, FIRST))
    await turns()
    tips.tips[other] = SECOND
    go_on.set()
    await turns()
    assert not second.done()
    bell.ring()
    assert await second == SECOND
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("fault", [DatabaseUnavailable("away"), ValueError("nobody thought of it")])
@pytest.mark.parametrize("followers", [1, 5])
async def test_who_follows_is_sent_to_see_for_itself_when_nothing_can_be_asked(
    followers: int, fault: Exception
) -> None:
    tips = Tips()
    tips.fault = fault
    watch = LogWatch(tips, Bell(), poll_seconds=60, look_seconds_min=0)
    run_id = uuid4()
    assert await asyncio.gather(*(watch.changed(run_id, FIRST) for _ in range(followers))) == [None] * followers
