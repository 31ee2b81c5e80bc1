"""Migrations against a real PostgreSQL: applied once, never altered, in any schema, by an ordinary user."""

import asyncio
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

import hourhand
from hourhand.cli.db import Found, expected_tables, find_differences
from hourhand.database import migrate as migrate_module
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.embedded import EmbeddedServer
from hourhand.database.migrate import Applied, Migration, applied, migrate, migrations
from hourhand.model.errors import DatabaseUnsuitable

SOURCE = Path(hourhand.__file__).parents[1]
PUBLISHED = 20
"""The newest migration that somebody may have applied. Whoever adds one moves this on when it is out."""
PUBLISHED_DIGEST = "0c4b588cd02a724ccc6fb849938a5a35ca67680c5d70000acb20d1add9568f8a"

MIGRATE = """
import asyncio, sys
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.migrate import migrate
async def main():
    database = Database(DatabaseSettings(url=sys.argv[1]), "test")
    await database.open()
    print(len(await migrate(database)))
    await database.close()
asyncio.run(main())
"""


@pytest.fixture(scope="session")
def server_home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hh-mig-", dir="/tmp"))
    yield folder / ".hourhand"
    pid_file = folder / ".hourhand" / "postgres" / "postmaster.pid"
    with suppress(OSError, ValueError, IndexError):
        os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGQUIT)  # only there if stopping failed
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
async def server_url(server_home: Path) -> AsyncIterator[str]:
    server = EmbeddedServer(server_home)
    yield await server.start()
    await server.stop()


@pytest.fixture
async def url(server_url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A new, empty database."""
    name = "d_" + re.sub(r"\W", "_", request.node.name)[:55].lower()
    admin = await asyncpg.connect(server_url)
    await admin.execute(f"CREATE DATABASE {name}")
    yield server_url.replace("@/hourhand?", f"@/{name}?")
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@asynccontextmanager
async def opened(url: str, schema: str = "hourhand") -> AsyncIterator[Database]:
    database = Database(DatabaseSettings(url=url, schema=schema), "test")
    await database.open()
    yield database
    await database.close()


async def tables_of(database: Database) -> frozenset[str]:
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", database.schema)
    return frozenset(row["tablename"] for row in rows)


# --- migrate ----------------------------------------------------------------------------------------------


def test_what_somebody_may_have_applied_is_as_it_was_to_the_letter() -> None:
    known = "".join(each.checksum for each in migrations("hourhand") if each.version <= PUBLISHED)
    told = "a database that has the old file is refused: put it back and write a new migration"
    assert hashlib.sha256(known.encode()).hexdigest() == PUBLISHED_DIGEST, told


async def test_migrating_again_changes_nothing(url: str) -> None:
    async with opened(url) as database:
        assert await applied(database) == []
        first = await migrate(database)
        before = await tables_of(database)
        second = await migrate(database)

        assert first == migrations("hourhand")
        assert second == []
        assert [record.checksum for record in await applied(database)] == [each.checksum for each in first]
        assert await tables_of(database) == before
        assert find_differences("hourhand", Found(await applied(database), before)) == []


async def test_a_migration_that_was_altered_afterwards_is_refused(url: str) -> None:
    async with opened(url) as database:
        await migrate(database)
        async with database.connection() as connection:
            await connection.execute("UPDATE hourhand.migrations SET checksum = 'other' WHERE version = 1")

        with pytest.raises(DatabaseUnsuitable, match=r"migration 1 .* is not the one this program has"):
            await migrate(database)


async def test_a_database_of_a_newer_program_is_refused(url: str) -> None:
    async with opened(url) as database:
        await migrate(database)
        async with database.connection() as connection:
            await connection.execute("INSERT INTO hourhand.migrations VALUES (9999, 'future', 'x')")

        with pytest.raises(DatabaseUnsuitable, match=r"version 9999 .future. by a newer Hourhand"):
            await migrate(database)


async def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = migrations("hourhand")
    bad = Migration(len(good) + 1, "bad", "CREATE TABLE hourhand.half (x int); SELECT 1/0", "x")
    monkeypatch.setattr(migrate_module, "migrations", lambda schema: [*good, bad])
    async with opened(url) as database:
        with pytest.raises(asyncpg.DivisionByZeroError):
            await migrate(database)

        assert await applied(database) == []
        assert await tables_of(database) == frozenset()


async def test_a_migration_that_stands_in_the_way_of_others_is_tried_once_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as database:
        old = await migrate(database)
        async with database.connection() as connection:
            await connection.execute("CREATE SEQUENCE public.tries")  # which is not taken back with a transaction
        sql = "DO $$ BEGIN IF nextval('public.tries') = 1 THEN RAISE deadlock_detected; END IF; END $$"
        new = Migration(len(old) + 1, "contested", sql, "x")
        monkeypatch.setattr(migrate_module, "migrations", lambda schema: [*old, new])

        assert await migrate(database) == [new]
        assert len(await applied(database)) == len(old) + 1


async def test_only_what_is_missing_is_applied(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as database:
        old = await migrate(database)
        new = Migration(len(old) + 1, "more", "CREATE TABLE hourhand.more (x int)", "x")
        monkeypatch.setattr(migrate_module, "migrations", lambda schema: [*old, new])

        assert await migrate(database) == [new]
        assert "more" in await tables_of(database)


async def test_schemas_live_side_by_side_in_one_database(url: str) -> None:
    async with opened(url, "night_shift") as other, opened(url) as usual:
        assert await migrate(other)
        assert await tables_of(usual) == frozenset()
        assert await migrate(usual)
        assert await tables_of(other) == await tables_of(usual) != frozenset()


def test_sql_for_another_schema_does_not_mention_ours() -> None:
    for ours, theirs in zip(migrations("hourhand"), migrations("elsewhere"), strict=True):
        assert not re.search(r"\bhourhand\.", theirs.sql)
        assert ours.checksum == theirs.checksum


def test_migrations_are_numbered_without_gaps() -> None:
    assert [each.version for each in migrations("hourhand")] == list(range(1, len(migrations("hourhand")) + 1))


async def test_tasks_that_migrate_at_once_apply_once(url: str) -> None:
    async with opened(url) as one, opened(url) as two, opened(url) as three:
        counts = [len(done) for done in await asyncio.gather(migrate(one), migrate(two), migrate(three))]
    assert sorted(counts) == [0, 0, len(migrations("hourhand"))]


async def test_processes_that_migrate_at_once_apply_once(url: str) -> None:
    async def other_process() -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MIGRATE, url), env={"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE
        )
        said, _ = await process.communicate()
        return int(said)

    counts = await asyncio.gather(other_process(), other_process())
    assert sorted(counts) == [0, len(migrations("hourhand"))]


# --- from an older version --------------------------------------------------------------------------------

TWO_NAMESPACES = """
INSERT INTO hourhand.namespaces (name) VALUES ('team');
INSERT INTO hourhand.lanes (queue, needs) VALUES ('default', 'command'), ('slow', 'command'), ('left', 'command');
CREATE TEMPORARY TABLE of_both AS
SELECT n AS namespace_id, k AS lane_id, gen_random_uuid() AS job_id, k = 1 AS recurring
  FROM generate_series(1, 2) n, generate_series(1, 2) k WHERE n = 2 OR k = 1;
INSERT INTO hourhand.jobs (job_id, namespace_id, lane_id, name, kind, payload, due_at, timing, priority, max_retries,
                           owner, status, version, created_at, created_by, updated_at)
SELECT job_id, namespace_id, lane_id, 'job', 'command', '{}', CASE WHEN NOT recurring THEN now() END,
       CASE WHEN recurring THEN '{"schedules": []}'::jsonb END, 5, 3, 'ada', 0, 1, now(), 'ada', now()
  FROM of_both;
INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring)
SELECT job_id, now(), namespace_id, lane_id, 1, 0, 5, recurring FROM of_both;
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state,
                                priority, cause)
SELECT gen_random_uuid(), job_id, now(), now(), namespace_id, lane_id, 1, 0, 5, recurring::int FROM of_both;
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state,
                                priority, cause)
SELECT gen_random_uuid(), job_id, now(), now(), 2, 3, 1, 3, 5, 1 FROM of_both WHERE namespace_id = 2 LIMIT 1;
"""
"""Both namespaces use the first lane, `team` alone the second. A run of `team` is in a lane that its job has left."""


async def lanes_in_use(database: Database, table: str) -> list[tuple[str, str]]:
    async with database.connection() as connection:
        found = await connection.fetch(
            f"""SELECT n.name, l.queue, l.namespace_id = t.namespace_id AS own
                  FROM hourhand.{table} t
                  JOIN hourhand.lanes l USING (lane_id)
                  JOIN hourhand.namespaces n ON n.namespace_id = t.namespace_id
                 ORDER BY 1, 2"""
        )
    assert all(row["own"] for row in found), f"{table} has a row in a lane of another namespace"
    return [(row["name"], row["queue"]) for row in found]


async def test_lanes_of_an_older_database_are_divided_between_its_namespaces(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as database:
        with monkeypatch.context() as older:
            older.setattr(migrate_module, "migrations", lambda schema: migrations(schema)[:1])
            await migrate(database)
        async with database.connection() as connection:
            await connection.execute(TWO_NAMESPACES)
        await migrate(database)

        both = [("default", "default"), ("team", "default"), ("team", "slow")]
        assert await lanes_in_use(database, "jobs") == both
        assert await lanes_in_use(database, "timetable") == both
        assert await lanes_in_use(database, "live_runs") == [both[0], both[1], ("team", "left"), both[2]]
        async with database.connection() as connection:
            lanes = await connection.fetch("SELECT namespace_id, queue, gated, held, gate_ids FROM hourhand.lanes")
            exclusive = await connection.fetch("SELECT recurring, exclusive FROM hourhand.timetable")
            policies = await connection.fetchval("SELECT count(*) FROM hourhand.jobs WHERE policy IS NOT NULL")
        assert len(lanes) == len({(row["namespace_id"], row["queue"]) for row in lanes}) == 6
        assert not any(row["gated"] or row["held"] or row["gate_ids"] for row in lanes)
        assert all(row["recurring"] == row["exclusive"] for row in exclusive)
        assert policies == 0


PAUSED = """
INSERT INTO hourhand.lanes (namespace_id, queue, needs) VALUES (1, 'slow', 'command');
INSERT INTO hourhand.queues (namespace_id, queue, paused_at, paused_by, pause_reason)
VALUES (1, 'slow', now(), 'ada', 'moving'), (1, 'quick', NULL, NULL, NULL);
INSERT INTO hourhand.jobs (job_id, namespace_id, lane_id, name, kind, payload, timing, priority, max_retries, owner,
                           status, pause_reason, version, created_at, created_by, updated_at)
SELECT gen_random_uuid(), 1, 1, 'job', 'command', '{}', '{"schedules": []}', 5, 3, 'ada', 1, 'holiday', 1, now(), 'ada',
       now();
"""


async def test_what_was_paused_in_an_older_database_is_still_paused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as database:
        with monkeypatch.context() as older:
            older.setattr(migrate_module, "migrations", lambda schema: migrations(schema)[:3])
            await migrate(database)
        async with database.connection() as connection:
            await connection.execute(PAUSED)
        await migrate(database)
        async with database.connection() as connection:
            jobs = await connection.fetch("SELECT paused, pause_reason, held_by FROM hourhand.jobs_in_full")
            pauses = await connection.fetch("SELECT queue, paused_by, reason, settled FROM hourhand.pauses")
        assert [(row["paused"], row["pause_reason"]) for row in jobs] == [(True, "holiday")]
        assert "moving" in jobs[0]["held_by"]
        assert [tuple(row) for row in pauses] == [("slow", "ada", "moving", False)]


CANCELLED = """
INSERT INTO hourhand.lanes (namespace_id, queue, needs) VALUES (1, 'slow', 'command');
INSERT INTO hourhand.jobs (job_id, namespace_id, lane_id, name, kind, payload, timing, priority, max_retries, owner,
                           status, paused_at, version, created_at, created_by, updated_at)
SELECT gen_random_uuid(), 1, 1, 'job', 'command', '{}', '{"schedules": []}', 5, 3, 'ada', status, '2026-01-31', 1,
       now(), 'ada', now() FROM unnest(ARRAY[1, 2]) AS status;
"""


async def test_the_time_of_a_cancel_gets_a_column_of_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as database:
        with monkeypatch.context() as older:
            older.setattr(migrate_module, "migrations", lambda schema: migrations(schema)[:14])
            await migrate(database)
        async with database.connection() as connection:
            await connection.execute(CANCELLED)
        await migrate(database)
        async with database.connection() as connection:
            jobs = await connection.fetch(
                "SELECT status, paused_at IS NULL, cancelled_at IS NULL FROM hourhand.jobs ORDER BY status"
            )
        assert [tuple(row) for row in jobs] == [(1, False, True), (2, True, False)]


# --- rights -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def ordinary_user(server_url: str, url: str, *, owner: bool) -> AsyncIterator[str]:
    """A role without any privilege; as the owner of the database or not."""
    database = url.partition("@/")[2].partition("?")[0]
    admin = await asyncpg.connect(server_url)
    await admin.execute("CREATE ROLE plain LOGIN PASSWORD 'plain' NOSUPERUSER NOCREATEDB NOCREATEROLE")
    try:
        if owner:
            await admin.execute(f"ALTER DATABASE {database} OWNER TO plain")
        yield re.sub(r"//[^@]*@", "//plain:plain@", url)
    finally:
        await admin.execute(f"ALTER DATABASE {database} OWNER TO hourhand")
        inside = await asyncpg.connect(url)
        await inside.execute("DROP OWNED BY plain")
        await inside.close()
        await admin.execute("DROP ROLE plain")
        await admin.close()


async def test_the_owner_of_the_database_needs_no_other_right(server_url: str, url: str) -> None:
    async with ordinary_user(server_url, url, owner=True) as theirs, opened(theirs) as database:
        await database.check()
        assert await migrate(database)
        assert await migrate(database) == []


async def test_a_user_without_rights_is_told_which_are_missing(server_url: str, url: str) -> None:
    async with ordinary_user(server_url, url, owner=False) as theirs, opened(theirs) as database:
        with pytest.raises(DatabaseUnsuitable, match="grant CREATE on the database, or create schema hourhand"):
            await migrate(database)


async def test_a_schema_made_by_an_administrator_is_enough(server_url: str, url: str) -> None:
    async with ordinary_user(server_url, url, owner=False) as theirs:
        admin = await asyncpg.connect(url)
        await admin.execute("CREATE SCHEMA hourhand AUTHORIZATION plain")
        await admin.close()
        async with opened(theirs) as database:
            assert await migrate(database)


# --- differences ------------------------------------------------------------------------------------------


def as_applied(known: list[Migration]) -> list[Applied]:
    return [Applied(each.version, each.name, each.checksum) for each in known]


def test_pending_altered_and_missing_are_each_told() -> None:
    known = migrations("hourhand")
    done, tables = as_applied(known), frozenset(expected_tables(known, "hourhand"))

    assert find_differences("hourhand", Found(done, tables)) == []
    assert "is pending" in find_differences("hourhand", Found())[0]
    assert find_differences("hourhand", Found(done, tables - {"jobs"})) == ["table hourhand.jobs is missing"]
    altered = [replace(done[0], checksum="x"), *done[1:]]
    assert "is not the one this program has" in find_differences("hourhand", Found(altered, tables))[0]
    newer = [*done, Applied(9999, "future", "x")]
    assert "by a newer Hourhand" in find_differences("hourhand", Found(newer, tables))[0]


def test_expected_tables_follow_the_migrations() -> None:
    known = [
        Migration(1, "a", "CREATE TABLE s.one (x int);\nCREATE UNLOGGED TABLE IF NOT EXISTS s.two (x int);", ""),
        Migration(2, "b", "DROP TABLE s.one;\n-- CREATE TABLE s.three\nCREATE INDEX i ON s.two (x);", ""),
    ]
    assert expected_tables(known, "s") == {"migrations", "two"}
    assert expected_tables([], "s") == set()


# --- commands ---------------------------------------------------------------------------------------------


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hourhand.cli", "db", *arguments],
        env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=False,
    )


async def test_commands_migrate_tell_the_status_and_verify(url: str) -> None:
    assert command("verify", "--database", url).returncode == 1
    assert "pending" in command("status", "--database", url).stdout
    assert command("migrate", "--database", url).stdout.startswith("applied 0001")
    assert "up to date" in command("migrate", "--database", url).stderr
    assert "pending" not in command("status", "--database", url).stdout
    assert command("verify", "--database", url).stdout == "database is right\n"


async def test_a_missing_table_and_a_mismatch_fail_to_verify(url: str) -> None:
    async with opened(url) as database:
        await migrate(database)
        async with database.connection() as connection:
            await connection.execute("DROP TABLE hourhand.tokens; UPDATE hourhand.migrations SET checksum = 'x'")

    verified = command("verify", HOURHAND_DATABASE_URL=url)

    assert verified.returncode == 1
    assert "table hourhand.tokens is missing" in verified.stderr
    assert "migration 1 (spine) in the database is not the one" in verified.stderr


async def test_shown_sql_needs_no_database_and_does_all_that_migrate_does(url: str, tmp_path: Path) -> None:
    script = command("migrate", "--show-sql", "--schema", "by_hand", "--home", str(tmp_path / "none"))
    assert script.returncode == 0
    assert not (tmp_path / "none").exists()

    connection = await asyncpg.connect(url)
    await connection.execute(script.stdout)
    await connection.close()
    async with opened(url, "by_hand") as database:
        assert await migrate(database) == []
    assert (
        command("migrate", "--show-sql", "--schema", "by_hand", "--database", url).stdout == "-- nothing is missing\n"
    )
    assert command("verify", "--schema", "by_hand", "--database", url).returncode == 0


async def test_a_home_in_use_is_shared_and_not_stopped(server_home: Path, server_url: str) -> None:
    assert command("migrate", "--home", str(server_home)).returncode == 0
    verified = command("verify", "--home", str(server_home), XDG_RUNTIME_DIR="/nonexistent")
    assert (verified.returncode, verified.stdout) == (0, "database is right\n")
    await (await asyncpg.connect(server_url)).close()


async def test_a_home_in_use_whose_server_is_not_up_yet_is_told(tmp_path: Path) -> None:
    from hourhand.database.embedded_home import HomeLock

    (tmp_path / "postgres").mkdir()
    lock = HomeLock(tmp_path)
    looked = command("status", "--home", str(tmp_path))
    lock.release()
    assert looked.returncode == 69
    assert "is in use, but its PostgreSQL does not run yet" in looked.stderr


def test_looking_makes_no_database(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert command("status", "--home", str(home)).returncode == 0
    assert command("verify", "--home", str(home)).returncode == 1
    assert not home.exists()


def test_an_embedded_database_is_started_for_the_moment() -> None:
    folder = Path(tempfile.mkdtemp(prefix="hh-mig-", dir="/tmp"))
    try:
        assert command("migrate", "--home", str(folder)).stdout.startswith("applied 0001")
        assert not (folder / "postgres" / "postmaster.pid").exists()
        assert command("verify", "--home", str(folder)).stdout == "database is right\n"
    finally:
        shutil.rmtree(folder)


def test_a_database_that_is_away_is_unreachable() -> None:
    looked = command("status", "--database", "postgresql://u:hush@127.0.0.1:1/d")
    assert looked.returncode == 69
    assert "hush" not in looked.stderr
