"""Work beside the event loop: the loop goes on, and no two pieces of work run at once."""

import asyncio
import threading

from hourhand.runtime.aside import Aside


async def test_the_loop_goes_on_and_one_piece_of_work_follows_the_other() -> None:
    aside, may_end = Aside(), threading.Event()
    at_it: list[str] = []

    def work(name: str) -> str:
        at_it.append(name)
        assert may_end.wait(5)
        return name

    both = [asyncio.ensure_future(aside.run(lambda name=name: work(name))) for name in ("first", "second")]
    while not at_it:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert at_it == ["first"]
    may_end.set()
    assert await asyncio.gather(*both) == ["first", "second"]
