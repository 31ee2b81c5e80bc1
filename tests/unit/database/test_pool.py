"""Connections in hand. What real ones do is tested with a real server; here it is who gets which, and when."""

import asyncio
from typing import Any

import asyncpg
import pytest

from hourhand.database import pool as pools
from hourhand.database.pool import Pool


class Connection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def terminate(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


class Server:
    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.fault: BaseException | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def connect(self) -> Any:
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        self.made.append(Connection(len(self.made)))
        return self.made[-1]

    @property
    def open(self) -> int:
        return sum(not connection.closed for connection in self.made)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def pool(server: Server) -> Pool:
    return Pool(server.connect, 2, 300.0)


async def begun(*tasks: "asyncio.Task[Any]") -> None:
    """Lets tasks go as far as they come by themselves."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def test_a_connection_that_came_back_is_given_out_again(server: Server, pool: Pool) -> None:
    for _ in range(3):
        pool.release(await pool.acquire(1))
    assert len(server.made) == 1


async def test_the_one_used_last_is_given_out_first(pool: Pool) -> None:
    first, second = await pool.acquire(1), await pool.acquire(1)
    pool.release(second)
    pool.release(first)
    assert await pool.acquire(1) is first


async def test_no_more_are_made_than_allowed_and_who_waits_gets_the_next_in_turn(server: Server, pool: Pool) -> None:
    held = [await pool.acquire(1) for _ in range(2)]
    waiting = [asyncio.create_task(pool.acquire(5)) for _ in range(2)]
    await begun(*waiting)
    pool.release(held[1])
    assert await waiting[0] is held[1]
    pool.release(held[0])
    assert await waiting[1] is held[0]
    assert len(server.made) == 2


async def test_nobody_comes_in_between_one_who_waited_and_his_connection(server: Server, pool: Pool) -> None:
    held = [await pool.acquire(1) for _ in range(2)]
    waiting = asyncio.create_task(pool.acquire(5))
    await begun(waiting)
    pool.release(held[0])
    late = asyncio.create_task(pool.acquire(5))
    assert await waiting is held[0]
    await begun(late)
    pool.release(held[1])
    assert await late is held[1]


async def test_one_that_was_cut_is_replaced_also_for_those_who_wait(server: Server, pool: Pool) -> None:
    held = [await pool.acquire(1) for _ in range(2)]
    waiting = asyncio.create_task(pool.acquire(5))
    await begun(waiting)
    held[0].terminate()
    pool.release(held[0])
    assert (await waiting).number == 2  # type: ignore[attr-defined]


async def test_one_that_the_server_closed_while_it_was_idle_is_not_given_out(server: Server, pool: Pool) -> None:
    first = await pool.acquire(1)
    pool.release(first)
    first.terminate()
    assert await pool.acquire(1) is not first


async def test_waiting_has_an_end_and_leaves_nothing_behind(server: Server, pool: Pool) -> None:
    held = [await pool.acquire(1) for _ in range(2)]
    with pytest.raises(TimeoutError):
        await pool.acquire(0.01)
    pool.release(held[0])
    assert await pool.acquire(1) is held[0]


async def test_a_connection_given_to_one_who_has_just_given_up_goes_to_the_next(server: Server, pool: Pool) -> None:
    held = [await pool.acquire(1) for _ in range(2)]
    waiting = [asyncio.create_task(pool.acquire(5)) for _ in range(2)]
    await begun(*waiting)
    pool.release(held[0])
    waiting[0].cancel()  # before it could take what it was given
    assert await waiting[1] is held[0]
    pool.release(held[0])
    assert await pool.acquire(1) is held[0]


async def test_when_making_one_fails_the_next_in_line_tries(server: Server, pool: Pool) -> None:
    server.answers.clear()
    making = [asyncio.create_task(pool.acquire(5)) for _ in range(2)]
    waiting = asyncio.create_task(pool.acquire(5))
    await begun(*making, waiting)
    server.fault = ConnectionRefusedError("gone")
    server.answers.set()
    results = await asyncio.gather(*making, waiting, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionRefusedError] * 3
    server.fault = None
    assert await pool.acquire(1)


async def test_after_a_fail_over_none_of_the_old_ones_is_given_out(server: Server, pool: Pool) -> None:
    used, idle = await pool.acquire(1), await pool.acquire(1)
    pool.release(idle)
    pool.expire()
    assert idle.is_closed()
    assert not used.is_closed(), "whoever has it may try to end what he does"
    pool.release(used)
    assert used.is_closed()
    assert (await pool.acquire(1)).number == 2  # type: ignore[attr-defined]


async def test_what_nobody_has_needed_for_long_is_closed(
    server: Server, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(pools.time, "monotonic", lambda: now)
    first, second = await pool.acquire(1), await pool.acquire(1)
    pool.release(first)
    now += 200
    pool.release(second)
    now += 150
    pool._prune()
    assert (first.is_closed(), second.is_closed()) == (True, False)
    now += 200
    pool._prune()
    assert server.open == 0


async def test_closing_waits_for_what_is_in_use_and_refuses_everybody_else(server: Server, pool: Pool) -> None:
    held = [await pool.acquire(1) for _ in range(2)]
    waiting = asyncio.create_task(pool.acquire(5))
    await begun(waiting)
    closing = asyncio.create_task(pool.close())
    await begun(closing)
    with pytest.raises(asyncpg.InterfaceError):
        await waiting
    with pytest.raises(asyncpg.InterfaceError):
        await pool.acquire(1)
    for connection in held:
        pool.release(connection)
    await closing
    assert server.open == 0
