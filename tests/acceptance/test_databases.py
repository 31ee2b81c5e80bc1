"""Every PostgreSQL that is promised to do: another schema, an ordinary role, PgBouncer in between, version 15."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest
from harness import HOURHAND, Cage, Process, Roles, Up, sql, wait_for
from other_users import IS_ROOT, unprivileged

from held_ports import held_port

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


def assert_a_job_runs_end_to_end(up: Up) -> None:
    """A command at once, a handler a moment later by the timetable, and what both left behind."""
    with up.client() as client:
        now = client.create_job(name="greet", kind="command", payload={"argv": ["echo", "hello"]})
        soon = client.create_job(name="soon", payload={"handler": "demo.hello"}, schedule={"every": "1s"})
        run = client.wait_for_job(now.job_id, 30)
        assert run.status == "succeeded"
        assert [line.text for line in client.log_lines(run.run_id)] == ["hello"]
        wait_for(lambda: client.list_runs_page(job_id=soon.job_id, status="succeeded").runs, "the handler has run")
        assert client.cancel_job(soon.job_id).job.status == "cancelled"
        assert client.cluster().shards_owned == 1024


def test_any_schema_name_will_do(tmp_path: Path, database_url: str, schema: str) -> None:
    settings = {"HOURHAND_DATABASE_SCHEMA": schema}
    with Up(tmp_path / "up", arguments=["--database", database_url], environment=settings) as up:
        assert_a_job_runs_end_to_end(up)
        assert not (up.home / "postgres").exists(), "no database of our own is made"
    assert tables_of(database_url, schema) >= {"jobs", "runs", "live_runs", "timetable"}
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def tables_of(url: str, schema: str) -> set[str]:
    return {row["tablename"] for row in sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)}


@pytest.fixture
def ordinary_role(database_url: str, schema: str) -> Iterator[str]:
    """A role that may log in and nothing more."""
    role = f"{schema}_role"
    sql(database_url, f"CREATE ROLE {role} LOGIN PASSWORD 'ordinary' NOSUPERUSER NOCREATEDB NOCREATEROLE")
    yield role
    sql(database_url, f"DROP OWNED BY {role} CASCADE")
    sql(database_url, f"DROP ROLE {role}")


def as_role(url: str, role: str, database: str | None = None) -> str:
    url = re.sub(r"://[^@]+@", f"://{role}:ordinary@", url)
    return url if database is None else re.sub(r"@([^/]*)/[^?]+", rf"@\1/{database}", url)


def test_a_role_that_owns_only_its_schema_will_do(
    tmp_path: Path, database_url: str, schema: str, ordinary_role: str
) -> None:
    sql(database_url, f"CREATE SCHEMA {schema} AUTHORIZATION {ordinary_role}")
    url = as_role(database_url, ordinary_role)
    with Up(tmp_path / "up", arguments=["--database", url], environment={"HOURHAND_DATABASE_SCHEMA": schema}) as up:
        assert_a_job_runs_end_to_end(up)


def test_a_role_that_owns_only_its_database_will_do(tmp_path: Path, database_url: str, ordinary_role: str) -> None:
    sql(database_url, f"CREATE DATABASE {ordinary_role} OWNER {ordinary_role} TEMPLATE template0 ENCODING 'UTF8'")
    try:
        with Up(tmp_path / "up", arguments=["--database", as_role(database_url, ordinary_role, ordinary_role)]) as up:
            assert_a_job_runs_end_to_end(up)
    finally:
        sql(database_url, f"DROP DATABASE {ordinary_role} WITH (FORCE)")


def test_a_role_that_may_create_nothing_is_told_so(
    tmp_path: Path, cage: Cage, database_url: str, schema: str, ordinary_role: str
) -> None:
    arguments = ["db", "migrate", "--database", as_role(database_url, ordinary_role), "--schema", schema]
    process = Process(cage, [*HOURHAND, *arguments], tmp_path)
    assert process.wait() == 78, process.said
    assert "Traceback" not in process.said
    assert len(process.said.splitlines()) <= 2
    assert f"create schema {schema}" in process.said


# --- PgBouncer --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pgbouncer() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None and IS_ROOT and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", "pgbouncer"]
        for command in (install, ["apt-get", "update"], install):  # a fresh machine may not know any packages yet
            subprocess.run(command, capture_output=True, timeout=120, check=False)
            found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
            if found is not None:
                break
    if found is None:
        pytest.skip("PgBouncer is not installed and cannot be installed here")
    return found


@pytest.fixture
def pooled_url(tmp_path: Path, cage: Cage, pgbouncer: str, database_url: str) -> str:
    """The same database, through PgBouncer in transaction mode with few connections of its own."""
    user, password, database, sockets, port = re.fullmatch(  # type: ignore[union-attr]
        r"postgresql://([^:]+):([^@]+)@/([^?]+)\?host=([^&]+)&port=(\d+)", database_url
    ).groups()
    listen = held_port()
    (tmp_path / "users.txt").write_text(f'"{user}" "{password}"\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n{database} = host={sockets} port={port} dbname={database} user={user} password={password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\n"
        f"auth_type = plain\nauth_file = {tmp_path}/users.txt\npool_mode = transaction\n"
        "default_pool_size = 3\nmax_client_conn = 200\nserver_reset_query_always = 0\n"
    )
    command = [*unprivileged(), pgbouncer, str(tmp_path / "pgbouncer.ini")]
    process = Process(cage, command, tmp_path)
    url = f"postgresql://{user}:{password}@127.0.0.1:{listen}/{database}"

    def answers() -> bool:
        assert process.exit_code is None, process.said
        try:
            return bool(sql(url, "SELECT 1"))
        except OSError:
            return False

    wait_for(answers, f"PgBouncer answers; it said {process.said}")
    return url


def test_it_works_through_pgbouncer_in_transaction_mode(
    tmp_path: Path, database_url: str, pooled_url: str, schema: str
) -> None:
    settings = {
        "HOURHAND_DATABASE_SCHEMA": schema,
        "HOURHAND_DATABASE_POOLER": "true",
        "HOURHAND_DATABASE_LISTEN_URL": database_url,
    }
    with Up(tmp_path / "up", arguments=["--database", pooled_url], environment=settings) as up:
        assert_a_job_runs_end_to_end(up)
        with up.client() as client, ThreadPoolExecutor(8) as crowd:
            # Many at once, so that statements of many clients share few sessions.
            looks = [crowd.submit(client.cluster) for _ in range(200)]
            ids = client.create_jobs([{"name": "noop", "payload": {"handler": "bench.noop"}}] * 2000)
            assert len(ids) == 2000
            assert all(look.result().shards_owned == 1024 for look in looks)
            wait_for(lambda: client.cluster().last_hour.get("succeeded", 0) >= 2001, "all have run")
        assert "rror" not in up.said, up.said
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def test_single_roles_work_through_pgbouncer(
    tmp_path: Path, cage: Cage, database_url: str, pooled_url: str, schema: str
) -> None:
    settings = {"HOURHAND_DATABASE_POOLER": "true", "HOURHAND_DATABASE_LISTEN_URL": database_url}
    where = ["--database", pooled_url, "--schema", schema]
    migrated = Process(cage, [*HOURHAND, "db", "migrate", *where], tmp_path, settings)
    assert migrated.wait() == 0, migrated.said
    with Roles(tmp_path / "cluster", pooled_url, schema, settings) as roles:
        for role in ("scheduler", "executor", "api"):
            roles.start(role, f"{role}-pooled")
        roles.wait_until_ready()
        with roles.client() as client:
            job = client.create_job(name="greet", kind="command", payload={"argv": ["echo", "hello"]})
            assert client.wait_for_job(job.job_id, 30).status == "succeeded"
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def test_a_pooler_that_was_not_told_of_is_recognised(tmp_path: Path, cage: Cage, pooled_url: str) -> None:
    process = Process(cage, [*HOURHAND, "scheduler", "--database", pooled_url], tmp_path)
    assert process.wait() == 78, process.said
    assert "Traceback" not in process.said
    assert "set database.pooler" in process.said


# --- PostgreSQL 15 ----------------------------------------------------------------------------------------


@pytest.fixture
def postgresql_15(tmp_path: Path, cage: Cage) -> str:
    if not (DEBIAN_15 / "postgres").exists():
        pytest.skip("there is no PostgreSQL 15 here (Debian: apt-get install postgresql-15)")
    data, port = tmp_path / "data", held_port()
    (tmp_path / "password").write_text("secret\n")
    made = Process(
        cage,
        [
            *unprivileged(),
            str(DEBIAN_15 / "initdb"),
            *("-D", str(data), "-U", "owner", "-E", "UTF8", "--locale=C", "--no-sync"),
            *("--auth=scram-sha-256", f"--pwfile={tmp_path}/password"),
        ],
        tmp_path,
    )
    assert made.wait() == 0, made.said
    server = Process(
        cage,
        [
            *unprivileged(),
            str(DEBIAN_15 / "postgres"),
            *("-D", str(data), "-p", str(port), "-k", "", "-c", "listen_addresses=127.0.0.1"),
        ],
        tmp_path,
    )
    url = f"postgresql://owner:secret@127.0.0.1:{port}/postgres"

    def answers() -> bool:
        assert server.exit_code is None, server.said
        try:
            return bool(sql(url, "SELECT 1"))
        except (OSError, asyncpg.CannotConnectNowError):
            return False

    wait_for(answers, f"PostgreSQL 15 answers; it said {server.said}")
    return url


def test_postgresql_15_will_do(tmp_path: Path, postgresql_15: str) -> None:
    [row] = sql(postgresql_15, "SHOW server_version_num")
    assert row[0].startswith("15")
    with Up(tmp_path / "up", arguments=["--database", postgresql_15]) as up:
        assert_a_job_runs_end_to_end(up)
