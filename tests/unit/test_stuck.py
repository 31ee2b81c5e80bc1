"""What tests promise each other: nobody waits for one that does not end."""

import asyncio
import threading

import pytest

from stuck import ended_when_stuck


def test_a_test_that_waits_for_ever_fails_and_tells_where_its_tasks_stand():
    async def nothing_comes() -> None:
        await asyncio.Event().wait()

    async def waiting() -> None:
        await asyncio.gather(asyncio.create_task(nothing_comes(), name="of the test"))

    with pytest.raises(pytest.fail.Exception) as told, ended_when_stuck(0.05):
        asyncio.run(waiting())

    assert "stuck for 0.05 s" in str(told.value)
    assert "of the test" in str(told.value)
    assert "nothing_comes" in str(told.value)


def test_a_test_without_a_loop_that_does_not_end_fails_too():
    with pytest.raises(pytest.fail.Exception, match="no event loop"), ended_when_stuck(0.05):
        threading.Event().wait()
