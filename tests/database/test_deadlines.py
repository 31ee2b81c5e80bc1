"""A database that does not answer: every call ends in time, and what it leaves behind does no harm."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from hourhand.database import connections
from hourhand.database.connections import CUT_SECONDS, Database, DatabaseSettings, Listener
from hourhand.database.embedded import EmbeddedServer
from hourhand.database.queries import Query
from hourhand.model.errors import DatabaseUnavailable

LIMIT = 0.6
SLACK = 1.0
"""For a machine that has something else to do."""
ONE = Query("one", "SELECT 1 AS one", ())


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """One that may be stopped without stopping other tests."""
    server = EmbeddedServer(tmp_path_factory.mktemp("deadlines") / "home")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def database(server: EmbeddedServer) -> AsyncIterator[Database]:
    settings = DatabaseSettings(url=server.url, pool_max=2, connect_seconds_max=LIMIT, statement_seconds_max=LIMIT)
    database = Database(settings, "deadlines")
    await database.open()
    yield database
    await database.close()


@contextlib.contextmanager
def stopped(server: EmbeddedServer) -> Iterator[None]:
    """The whole server stands still, as after SIGSTOP or in a frozen container; its sockets stay open."""
    assert server.pid is not None
    postmaster = psutil.Process(server.pid)
    family = [postmaster, *postmaster.children(recursive=True)]
    try:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that looks for tables to vacuum ends by itself
                process.suspend()
        yield
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


async def copy(db: Any, count: int = 20_000) -> None:
    """Twenty megabytes: far more than the socket takes."""
    rows = [(number, "x" * 1000) for number in range(count)]
    await db.copy_records_to_table("copied", columns=["number", "text"], records=rows)


CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "a statement": lambda db: db.fetch("SELECT 1"),
    "a statement with values": lambda db: db.fetch("SELECT $1::int", 1),
    "many statements": lambda db: db.executemany("SELECT $1::int", [(number,) for number in range(100)]),
    "a script": lambda db: db.execute("SELECT 1; SELECT 2"),
    "a COPY": copy,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_every_call_ends_within_its_deadline_when_the_server_stands_still(
    server: EmbeddedServer, database: Database, call: Callable[[Any], Awaitable[Any]]
) -> None:
    await prepare(database)
    with stopped(server):
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable):
            async with database.connection() as db:
                await call(db)
        assert time.monotonic() - began < LIMIT + CUT_SECONDS + SLACK
    await answers(database)


async def test_a_copy_whose_server_session_is_ended_does_not_wait_for_its_deadline(server: EmbeddedServer) -> None:
    settings = DatabaseSettings(url=server.url, connect_seconds_max=30, statement_seconds_max=30)
    database = Database(settings, "copying")
    await database.open()
    await prepare(database)
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        await copy_to_a_dying_session(database)
    assert time.monotonic() - began < 0.1 + CUT_SECONDS + SLACK
    await answers(database)
    await database.close()


async def copy_to_a_dying_session(database: Database) -> None:
    async with database.connection() as db:
        backend = psutil.Process(db.get_server_pid())
        backend.suspend()
        asyncio.get_running_loop().call_later(0.1, end, backend)  # by then the copy has stopped writing
        await copy(db)


def end(process: psutil.Process) -> None:
    process.send_signal(signal.SIGTERM)
    process.resume()


@pytest.mark.parametrize("stage", ["begin", "statement", "commit", "rollback"])
async def test_every_stage_of_a_transaction_ends_within_the_same_deadline(
    server: EmbeddedServer, database: Database, stage: str
) -> None:
    await prepare(database)
    began = time.monotonic()
    with contextlib.ExitStack() as stack, pytest.raises(DatabaseUnavailable):
        await write_until(stage, server, database, stack)
    assert time.monotonic() - began < LIMIT + CUT_SECONDS + SLACK
    await answers(database)


async def write_until(stage: str, server: EmbeddedServer, database: Database, stack: contextlib.ExitStack) -> None:
    """A transaction in the middle of which the server stops."""
    if stage == "begin":
        stack.enter_context(stopped(server))
    async with database.transaction() as db:
        await db.execute("INSERT INTO copied VALUES (1, 'x')")
        stack.enter_context(stopped(server))
        if stage == "statement":
            await db.execute("INSERT INTO copied VALUES (2, 'x')")
        if stage == "rollback":
            raise LookupError("somebody else's trouble")


async def test_waiting_for_a_free_connection_ends_too(server: EmbeddedServer, database: Database) -> None:
    async def hang() -> None:
        with pytest.raises(DatabaseUnavailable):
            await database.fetch(ONE)

    with stopped(server):
        began = time.monotonic()
        await asyncio.gather(*(hang() for _ in range(6)))  # thrice as many as there are connections
        assert time.monotonic() - began < LIMIT + CUT_SECONDS + SLACK
    await answers(database)


async def test_closing_ends_although_nobody_answers(server: EmbeddedServer, database: Database) -> None:
    await prepare(database)
    with stopped(server):
        began = time.monotonic()
        await database.close()
        assert time.monotonic() - began < 6
    await database.open()
    await answers(database)


async def test_a_server_that_accepts_and_says_nothing_is_given_up(tmp_path: Path) -> None:
    """As a host does whose processes hang, or a proxy whose server is gone: a line, and nobody at its end."""
    held = []
    silent = await asyncio.start_unix_server(lambda _, writer: held.append(writer), tmp_path / ".s.PGSQL.5432")
    settings = DatabaseSettings(url=f"postgresql://u@/d?host={tmp_path}", connect_seconds_max=LIMIT)
    database = Database(settings, "deadlines")
    await database.open()
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        await database.fetch(ONE)
    with pytest.raises(TimeoutError):
        await Listener(settings, "deadlines", ["x"]).listen(lambda *_: None, lambda: None)
    assert time.monotonic() - began < 2 * LIMIT + SLACK
    await database.close()
    silent.close()
    for writer in held:
        writer.close()


async def test_a_call_that_was_cancelled_leaves_no_connection_in_the_middle_of_something(database: Database) -> None:
    await prepare(database)
    for _ in range(4):
        sleeping = asyncio.create_task(sleep_on_the_server(database))
        await running_on_the_server(database, "pg_sleep")
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        await answers(database)


async def test_what_a_given_up_statement_held_on_the_server_is_let_go(server: EmbeddedServer) -> None:
    """The client is gone, the server still waits for a lock: it must not take it and keep it."""
    settings = DatabaseSettings(url=server.url, connect_seconds_max=5, statement_seconds_max=5)
    patient, hasty = Database(settings, "patient"), Database(replace(settings, statement_seconds_max=LIMIT), "hasty")
    await patient.open()
    await hasty.open()
    await prepare(patient)
    async with patient.transaction() as holder:
        await holder.execute("LOCK TABLE copied")
        with pytest.raises(DatabaseUnavailable):
            async with hasty.transaction() as db:
                await db.execute("LOCK TABLE copied")
    await nobody_waits_for(patient, "hasty")
    await patient.close()
    await hasty.close()


async def test_a_server_that_cannot_look_after_its_clients_will_do(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one on Windows, which refuses that setting."""
    monkeypatch.setattr(connections, "NOTICE_MILLISECONDS", -5)
    async with database.connection() as db:
        assert await db.fetchval("SHOW client_connection_check_interval") == "0"
        assert await db.fetchval("SHOW statement_timeout") == f"{LIMIT * 1000:.0f}ms"


async def test_a_statement_that_the_server_itself_gave_up_is_told_as_unavailable(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with database.connection() as db:
            await db.execute("SET statement_timeout = 50; SELECT pg_sleep(5)")
    await answers(database)


async def test_a_fault_of_the_caller_is_not_taken_for_one_of_the_connection(database: Database) -> None:
    async with database.connection() as db:
        before = db.get_server_pid()
    with pytest.raises(asyncpg.UniqueViolationError):
        async with database.transaction() as db:
            await db.execute("CREATE TEMP TABLE once (n int PRIMARY KEY); INSERT INTO once VALUES (1), (1)")
    with pytest.raises(asyncpg.DataError):
        async with database.connection() as db:
            await db.fetch("SELECT $1::int", "three")
    async with database.connection() as db:
        assert db.get_server_pid() == before, "the same connection serves on"


async def test_connections_to_a_server_that_became_read_only_are_dropped(database: Database) -> None:
    await prepare(database)
    async with database.connection() as db, database.connection() as other:
        pids = {db.get_server_pid(), other.get_server_pid()}
        for each in (db, other):
            await each.execute("SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable):
        async with database.connection() as db:
            await db.execute("INSERT INTO copied VALUES (1, 'x')")
    async with database.connection() as db, database.connection() as other:
        assert not pids & {db.get_server_pid(), other.get_server_pid()}, "also those that nobody had written through"
        await db.execute("INSERT INTO copied VALUES (1, 'x')")


async def test_the_listener_hears_again_after_its_session_was_ended(server: EmbeddedServer, database: Database) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = Listener(database.settings, "listening", ["bell"])
    for _ in range(2):
        listening = asyncio.create_task(listener.listen(lambda _, said: heard.put_nowait(said), lambda: None))
        assert await asyncio.wait_for(heard.get(), 5) == "", "told to look, since it may have missed something"
        async with database.connection() as db:
            await db.execute("SELECT pg_notify('bell', 'ring')")
            assert await asyncio.wait_for(heard.get(), 5) == "ring"
            await db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%listener'"
            )
        await asyncio.wait_for(asyncio.gather(listening, return_exceptions=True), 5)


async def prepare(database: Database) -> None:
    """A table to write to, and a connection that is open before the trouble begins."""
    async with database.connection() as db:
        await db.execute("CREATE TABLE IF NOT EXISTS copied (number int, text text)")
        await copy(db, 1)  # what a COPY asks first is known then, so that it is stopped while it sends


async def answers(database: Database) -> None:
    """All connections of the pool can be used; soon, since a server that was stopped has to catch its breath."""
    deadline = time.monotonic() + 10
    while True:
        try:
            for rows in await asyncio.gather(*(database.fetch(ONE) for _ in range(4))):
                assert [row["one"] for row in rows] == [1]
            return
        except DatabaseUnavailable:
            assert time.monotonic() < deadline


async def sleep_on_the_server(database: Database) -> None:
    async with database.transaction() as db:
        await db.execute("SELECT pg_sleep(0.4)")


async def running_on_the_server(database: Database, word: str) -> None:
    async with database.connection() as db:
        while not await db.fetchval(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE $1",
            f"%{word}%",
        ):
            pass


async def nobody_waits_for(database: Database, application: str) -> None:
    deadline = time.monotonic() + 10
    async with database.connection() as db:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE $1 AND wait_event_type = 'Lock'"
        while await db.fetchval(query, f"%{application}"):
            assert time.monotonic() < deadline


async def go_on_without_protocol(database: Database, *, terminated: bool) -> None:
    async with database.connection() as db:
        if terminated:
            db.terminate()
        raise AttributeError("'NoneType' object has no attribute 'bind_execute'")


async def test_a_connection_that_is_lost_between_two_steps_of_the_driver_is_the_database_being_away(
    database: Database,
) -> None:
    """The driver forgets its parts at once, and tells of it a turn later."""
    with pytest.raises(DatabaseUnavailable):
        await go_on_without_protocol(database, terminated=True)
    assert await database.fetch(ONE)


async def test_a_mistake_of_ours_is_not_taken_for_a_database_that_is_away(database: Database) -> None:
    with pytest.raises(AttributeError):
        await go_on_without_protocol(database, terminated=False)
