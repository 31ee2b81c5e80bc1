"""A commit of a job's own work whose answer is lost: it is looked up, and never guessed."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import asyncpg
import pytest
from sample_jobs import claim, execute, rows
from transaction_ground import Ground

from hourhand import Context
from hourhand.database.connections import Database
from hourhand.model.errors import CommitUnknown, DatabaseUnavailable
from hourhand.model.states import RunState
from hourhand.store.completions import Completion, Completions
from hourhand.store.live_runs import LiveRuns
from hourhand.wiring import Store


class BreakingOff:
    def __init__(self, opened: Completion, *, commits: bool) -> None:
        self.opened = opened
        self.transaction = opened._transaction
        self.commits = commits

    async def commit(self) -> None:
        if self.commits:
            await self.transaction.commit()
        self.opened.connection.terminate()
        raise ConnectionResetError("connection lost")


class Broken(Completions):
    """A database whose connection breaks at the commit: before it, or after it; and that is away for a while then."""

    def __init__(self, database: Database, store: Store, *, commits: bool) -> None:
        super().__init__(database, LiveRuns(database, store.names))
        self.commits = commits
        self.away_for = 3

    async def begin(self) -> Completion:
        opened = await super().begin()
        opened._transaction = cast("Any", BreakingOff(opened, commits=self.commits))
        return opened

    async def is_recorded(self, finish: Any) -> bool:
        if self.away_for:
            self.away_for -= 1
            raise DatabaseUnavailable("away")
        return await super().is_recorded(finish)


@pytest.mark.parametrize("commits", [True, False], ids=["it was committed", "it was not"])
async def test_a_commit_whose_answer_is_lost_is_looked_up(store: Store, commits: bool) -> None:
    raised: list[BaseException] = []

    async def handler(ctx: Context) -> None:
        try:
            async with ctx.transaction() as db:
                await db.execute(*ground.effect(ctx))
        except BaseException as error:
            raised.append(error)
            raise

    ground = await Ground(store, handler).open()
    alone = Database(replace(store.database.settings, pool_max=1), "test")
    await alone.open()
    ground.transactions.completions = broken = Broken(alone, store, commits=commits)
    await ground.executor.drain()
    await ground.executor.attempts.all_ended()
    assert broken.away_for == 0
    assert await ground.effects() == (1 if commits else 0)
    [row] = await rows(store, "runs")
    assert row["state"] == (RunState.SUCCEEDED if commits else RunState.FAILED)
    assert [type(error) for error in raised] == ([] if commits else [DatabaseUnavailable])
    assert ground.executor.recorder.late_outcomes == 0
    await alone.close()


async def test_a_commit_that_is_still_under_way_is_waited_for_before_it_is_judged(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        return None

    ground = await Ground(store, handler).open()
    [one] = await claim(store, 1, ground.executor.clock.now())
    completions = Completions(store.database, store.live_runs)
    opened = await completions.begin()
    running = type(
        "Running",
        (),
        {"claim": one, "started_at": None, "recorded": False, "files": (), "output_fault": None, "masker": None},
    )()
    finish = await ground.transactions.finish_of(running, None)
    assert await opened._finish(finish)
    asking = asyncio.create_task(completions.is_recorded(finish))
    await asyncio.sleep(0.1)
    assert not asking.done()
    await opened._transaction.commit()
    opened._is_open = False
    assert await asking is True
    await opened.close()


async def test_a_broken_connection_before_the_commit_is_no_doubt(store: Store) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            db.terminate()

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    assert await ground.effects() == 0
    [row] = await rows(store, "runs")
    assert row["state"] == RunState.FAILED
    assert CommitUnknown.__name__ not in row["error"]


@pytest.mark.parametrize("then", ["ends", "writes", "raises"])
async def test_a_database_that_dies_inside_the_block_fails_the_attempt_for_its_connection(
    store: Store, then: str
) -> None:
    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            await db.execute(*ground.effect(ctx))
            pid = await db.fetchval("SELECT pg_backend_pid()")
            await execute(store, "SELECT pg_terminate_backend($1)", pid)
            while then != "writes" and not is_gone(db):
                await asyncio.sleep(0.01)
            if then == "writes":
                await db.execute(*ground.effect(ctx))
            if then == "raises":
                raise FileNotFoundError("report.csv")

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    assert await ground.effects() == 0
    [row] = await rows(store, "runs")
    if then == "raises":
        assert row["reason"] == "exception", "that was the handler's own"
        return
    lost = "the database connection was lost inside ctx.transaction(); nothing was committed"
    assert (row["state"], row["reason"]) == (RunState.FAILED, "connection")
    assert row["error"].startswith(lost)
    assert "in handler" in row["error"]
    assert "hourhand/executor" not in row["error"]
    assert "hourhand/store" not in row["error"]


def is_gone(db: Any) -> bool:
    try:
        return db.is_closed()
    except asyncpg.InterfaceError:
        return True


async def test_a_connection_that_is_kept_beyond_the_block_is_of_no_use(store: Store) -> None:
    kept: list[Any] = []

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as db:
            kept.append(db)
            kept.append(await db.prepare("SELECT 1"))
            await db.execute(*ground.effect(ctx))

    ground = await Ground(store, handler).open()
    await ground.executor.drain()
    assert await ground.effects() == 1
    with pytest.raises(asyncpg.InterfaceError, match="another's"):
        await kept[0].execute("SELECT 1")
    with pytest.raises(asyncpg.InterfaceError):
        await kept[1].fetchval()
