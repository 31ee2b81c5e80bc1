"""The promises of the embedded PostgreSQL, kept by real processes in real folders."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from folder_modes import modes_above
from hourhand.database import embedded
from hourhand.database.embedded import EmbeddedServer, EmbeddedSettings
from hourhand.database.embedded_isolation import _wheel_binaries
from hourhand.database.embedded_process import _is_postmaster_by_ps, is_postmaster
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable, HomeUnusable

SOURCE = Path(embedded.__file__).parents[2]
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

SUPERVISOR = """
import asyncio, json, os, sys, concurrent.futures.thread
from pathlib import Path
from hourhand.database.embedded import EmbeddedServer
home, uid, action = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if uid != os.geteuid():  # after the imports: the interpreter itself may lie where this user cannot look
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
async def main():
    server = EmbeddedServer(home)
    url = await server.start()
    print(json.dumps({"url": url, "pid": server.pid}), flush=True)
    if action == "stop":
        await server.stop()
    else:
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A short path below which everything of a test lives, and no process outlives the test."""
    folder = Path(tempfile.mkdtemp(prefix="hh-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    left = working_below(folder)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)
    assert left == [], "a server outlived its test"


@pytest.fixture
def home(base: Path) -> Path:
    return base / ".hourhand"


@pytest.fixture
def system(base: Path) -> Iterator[EmbeddedSettings]:
    """Isolation by a system user of the test's own, gone afterwards."""
    name = "hourhand-test"
    yield EmbeddedSettings(isolation="system_user", system_user=name, system_folder=base / "system")
    subprocess.run(["userdel", name], capture_output=True, check=False)


def working_below(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


@asynccontextmanager
async def running(home: Path, settings: EmbeddedSettings | None = None) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(home, settings or EmbeddedSettings())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(url: str, question: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def until(condition: Callable[[], bool], seconds_max: float = 10.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def supervisor(home: Path, action: str = "wait", uid: int | None = None) -> subprocess.Popen[str]:
    """Another process that owns a server, in a session of its own like a terminal's."""
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(home), str(os.geteuid() if uid is None else uid), action],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


async def orphaned(home: Path) -> int:
    """A server whose supervisor was killed; returns its process id."""
    with supervisor(home) as process:
        assert process.stdout
        said = json.loads(await asyncio.to_thread(process.stdout.readline))
        process.kill()
    return int(said["pid"])


# --- first start, next start ------------------------------------------------------------------------------


async def test_first_start_makes_a_private_home_with_a_database_behind_a_password(home: Path) -> None:
    async with running(home) as server:
        assert server.url.startswith("postgresql://hourhand:")
        assert server.url.endswith(f"@/hourhand?host={home}/socket&port=5432")
        assert await ask(server.url, "SELECT current_database()") == "hourhand"
        assert await ask(server.url, "SELECT current_setting('server_version_num')::int / 10000") == 18
        assert await ask(server.url, "SHOW server_encoding") == "UTF8"
        assert await ask(server.url, "SELECT datlocprovider::text || datlocale FROM pg_database LIMIT 1") == "bC.UTF-8"
        assert await ask(server.url, "SHOW listen_addresses") == ""
        assert await ask(server.url, "SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules") == [
            "scram-sha-256"
        ]
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(server.url, password="guess")
    for name, mode in ((".", 0o700), ("postgres", 0o700), ("socket", 0o700), ("postgres.password", 0o600)):
        assert stat.S_IMODE((home / name).stat().st_mode) == mode
    assert working_below(home) == []


async def test_durability_stays_at_its_defaults(home: Path) -> None:
    async with running(home) as server:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await ask(server.url, f"SHOW {name}") == "on"
        assert await ask(server.url, "SELECT count(*) FROM pg_file_settings WHERE error IS NOT NULL") == 0


async def test_no_parent_folder_changes_its_mode_or_owner(base: Path) -> None:
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    before = modes_above(closed / "home")
    async with running(closed / "deep" / ".hourhand"):
        assert modes_above(closed / "home") == before
    assert modes_above(closed / "home") == before


async def test_data_outlives_a_stop_and_the_next_start_is_quick(home: Path) -> None:
    began = time.monotonic()
    async with running(home) as server:
        first_seconds = time.monotonic() - began
        await ask(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        url = server.url
    began = time.monotonic()
    async with running(home) as server:
        assert time.monotonic() - began < first_seconds
        assert server.url == url
        assert await ask(server.url, "SELECT answer FROM kept") == 42


async def test_changed_settings_are_in_force_after_the_next_start(home: Path) -> None:
    async with running(home):
        pass
    async with running(home, EmbeddedSettings(connections_max=33)) as server:
        assert await ask(server.url, "SHOW max_connections") == "33"


async def test_start_brings_a_dead_server_back(home: Path) -> None:
    async with running(home) as server:
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: server.pid is None)
        assert await ask(await server.start(), "SELECT 1") == 1


async def test_stopping_what_never_started_does_nothing(home: Path) -> None:
    await EmbeddedServer(home).stop()
    assert not home.exists()


async def test_a_large_log_is_set_aside_at_a_start(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "postgres.log").write_text("old\n" * 100)
    async with running(home, EmbeddedSettings(log_bytes_max=100)):
        assert (home / "postgres.log.1").read_text().startswith("old")
        assert "ready to accept connections" in (home / "postgres.log").read_text()


# --- one owner at a time ----------------------------------------------------------------------------------


async def test_a_home_in_use_is_refused_by_naming_the_process(home: Path) -> None:
    async with running(home) as server:
        second = EmbeddedServer(home)
        with pytest.raises(HomeUnusable, match=f"is in use by process {os.getpid()}"):
            await second.start()
        await second.stop()
        assert await ask(server.url, "SELECT 1") == 1


async def test_an_orphan_is_adopted_after_its_supervisor_was_killed(home: Path) -> None:
    pid = await orphaned(home)
    assert alive(pid)
    async with running(home) as server:
        assert server.pid == pid
        assert await ask(server.url, "SELECT 1") == 1
    assert not alive(pid)


async def test_ctrl_c_at_the_terminal_does_not_reach_the_server(home: Path) -> None:
    with supervisor(home) as process:
        assert process.stdout
        pid = json.loads(await asyncio.to_thread(process.stdout.readline))["pid"]
        os.killpg(process.pid, signal.SIGINT)
        await until(lambda: process.poll() is not None)
    async with running(home) as server:
        assert server.pid == pid


async def test_an_orphan_with_old_settings_is_replaced(home: Path) -> None:
    pid = await orphaned(home)
    async with running(home, EmbeddedSettings(connections_max=33)) as server:
        assert server.pid != pid
        assert not alive(pid)
        assert await ask(server.url, "SHOW max_connections") == "33"


async def test_an_orphan_that_does_not_answer_is_replaced(home: Path) -> None:
    pid = await orphaned(home)
    os.kill(pid, signal.SIGSTOP)
    async with running(home, EmbeddedSettings(answer_seconds_max=0.3, stop_seconds_max=0.3)) as server:
        assert server.pid != pid
        assert not alive(pid)
        assert await ask(server.url, "SELECT 1") == 1


async def test_stop_ends_a_server_that_hangs(home: Path) -> None:
    server = EmbeddedServer(home, EmbeddedSettings(stop_seconds_max=0.3))
    await server.start()
    family = working_below(home)
    assert server.pid in family
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    await server.stop()
    await until(lambda: not any(alive(pid) for pid in family))


# --- after a crash ----------------------------------------------------------------------------------------


async def test_start_waits_for_the_last_processes_of_a_killed_server(home: Path) -> None:
    async with running(home) as server:
        await ask(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        connection = await asyncpg.connect(server.url)
        # Busy in one step, so that it cannot notice at once that its leader has died.
        busy = asyncio.create_task(connection.execute("SELECT count(*) FROM generate_series(1, 6000000)"))
        backend = connection.get_server_pid()
        await until(lambda: cpu_ticks(backend) > 2)
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        await server.start()
        assert "pre-existing shared memory block" in (home / "postgres.log").read_text()
        assert await ask(server.url, "SELECT answer FROM kept") == 42
        await asyncio.gather(busy, return_exceptions=True)
        connection.terminate()


def cpu_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])


async def test_a_process_id_reused_by_a_stranger_neither_hinders_the_start_nor_hurts_the_stranger(home: Path) -> None:
    async with running(home):
        pass
    with subprocess.Popen(["sleep", "60"]) as stranger:
        leftover = f"{stranger.pid}\n{home}/postgres\n1\n5432\n{home}/socket\n\n 1 1\nready\n"
        (home / "postgres" / "postmaster.pid").write_text(leftover)
        (home / "socket" / ".s.PGSQL.5432.lock").write_text(leftover)
        async with running(home) as server:
            assert await ask(server.url, "SELECT 1") == 1
        assert stranger.poll() is None
        stranger.kill()


async def test_a_first_start_killed_half_way_leaves_nothing_that_hinders(home: Path) -> None:
    process = supervisor(home)
    await until(lambda: any(path.is_dir() for path in home.glob("postgres.new-*")))
    process.kill()
    process.communicate()
    assert not (home / "postgres").exists()
    async with running(home) as server:
        assert await ask(server.url, "SELECT 1") == 1
    await until(lambda: working_below(home) == [])  # the orphaned initdb gives up by itself


async def test_the_process_is_recognised_without_proc_too(home: Path) -> None:
    async with running(home) as server:
        assert server.pid
        for recognised in (is_postmaster, _is_postmaster_by_ps):
            assert recognised(server.pid, home / "postgres", os.geteuid())
            assert not recognised(server.pid, home / "other", os.geteuid())
            assert not recognised(server.pid, home / "postgres", os.geteuid() + 1)
            assert not recognised(os.getpid(), home / "postgres", os.geteuid())


# --- refusals ---------------------------------------------------------------------------------------------


async def test_data_of_another_major_version_is_refused(home: Path) -> None:
    async with running(home):
        pass
    (home / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(DatabaseUnsuitable, match="was made by PostgreSQL 17, this is PostgreSQL 18"):
        await EmbeddedServer(home).start()


async def test_a_failed_start_tells_what_the_log_says_and_frees_the_home(home: Path) -> None:
    async with running(home):
        pass
    rules = home / "postgres" / "pg_hba.conf"
    good = rules.read_text()
    rules.write_text("nonsense\n")
    server = EmbeddedServer(home)
    with pytest.raises(DatabaseUnavailable, match=r"could not load .*pg_hba\.conf"):
        await server.start()
    rules.write_text(good)
    async with running(home) as other:
        assert await ask(other.url, "SELECT 1") == 1


async def test_a_lost_password_is_named(home: Path) -> None:
    async with running(home):
        pass
    (home / "postgres.password").unlink()
    with pytest.raises(HomeUnusable, match=r"postgres\.password is missing"):
        await EmbeddedServer(home).start()


async def test_a_home_that_is_a_file_or_below_one_is_refused(base: Path) -> None:
    (base / "file").write_text("")
    for path in (base / "file", base / "file" / "below"):
        with pytest.raises(HomeUnusable, match="choose another folder with HOURHAND_HOME"):
            await EmbeddedServer(path).start()


@as_root
async def test_a_home_of_somebody_else_is_refused_untouched(home: Path) -> None:
    home.mkdir(mode=0o755)
    os.chown(home, NOBODY, NOBODY)
    before = modes_above(home / "postgres")
    with pytest.raises(HomeUnusable, match=f"belongs to user {NOBODY}, not to user 0"):
        await EmbeddedServer(home).start()
    assert modes_above(home / "postgres") == before
    assert list(home.iterdir()) == []


# --- where the socket goes --------------------------------------------------------------------------------


async def test_a_long_home_gets_its_socket_in_a_short_private_folder(base: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    home = base / ("long" * 25) / "with, comma and 'quote'"
    async with running(home) as server:
        assert await ask(server.url, "SELECT 1") == 1
        [folder] = base.glob(f"hourhand-{os.geteuid()}-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert await ask(server.url, "SHOW unix_socket_directories") == str(folder)


@as_root
async def test_a_socket_folder_that_somebody_else_made_first_is_refused(base: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    home = base / ("long" * 25)
    async with running(home):
        pass
    [folder] = base.glob("hourhand-0-*")
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(HomeUnusable, match="is not a private folder"):
        await EmbeddedServer(home).start()


# --- as whom ----------------------------------------------------------------------------------------------


@as_root
async def test_an_ordinary_user_needs_no_isolation(base: Path) -> None:
    folder = base / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, NOBODY, NOBODY)
    for _ in range(2):
        said, complaint = await asyncio.to_thread(supervisor(folder / ".hourhand", "stop", NOBODY).communicate)
        assert json.loads(said or "null"), complaint
    assert (folder / ".hourhand" / "postgres" / "PG_VERSION").stat().st_uid == NOBODY


@as_root
async def test_root_runs_the_server_in_a_user_namespace_below_closed_folders(base: Path) -> None:
    base.chmod(0o700)
    async with running(base / ".hourhand", EmbeddedSettings(isolation="userns")) as server:
        assert os.readlink(f"/proc/{server.pid}/ns/user") != os.readlink("/proc/self/ns/user")
        assert (base / ".hourhand" / "postgres").stat().st_uid == 0


@as_root
async def test_a_system_user_runs_the_server_in_a_folder_of_its_own(home: Path, system: EmbeddedSettings) -> None:
    async with running(home, system) as server:
        owner = pwd.getpwnam(system.system_user).pw_uid
        assert Path(f"/proc/{server.pid}").stat().st_uid == owner
        assert (home / "postgres").is_symlink()
        data = (home / "postgres").resolve()
        assert data.parent.parent == system.system_folder
        assert (data.stat().st_uid, stat.S_IMODE(data.parent.stat().st_mode)) == (owner, 0o700)
        await ask(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
    moved = home.rename(home.with_name("moved"))
    async with running(moved, EmbeddedSettings(**{**as_dict(system), "isolation": "auto"})) as server:
        assert await ask(server.url, "SELECT answer FROM kept") == 42
    with pytest.raises(HomeUnusable, match="was made with isolation 'system_user'"):
        await EmbeddedServer(moved, EmbeddedSettings(isolation="userns")).start()
    async with running(home, system) as server:  # the name of its folder is taken by the home that moved away
        assert await ask(server.url, "SELECT to_regclass('kept')") is None


def as_dict(settings: EmbeddedSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in EmbeddedSettings.__dataclass_fields__}


@as_root
async def test_a_home_out_of_reach_of_the_namespace_goes_to_the_system_user(
    base: Path, system: EmbeddedSettings
) -> None:
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, NOBODY, NOBODY)
    settings = EmbeddedSettings(**{**as_dict(system), "isolation": "auto"})
    before = modes_above(closed / "home")
    async with running(closed / ".hourhand", settings) as server:
        assert (closed / ".hourhand" / "postgres").is_symlink()
        assert await ask(server.url, "SELECT 1") == 1
    assert modes_above(closed / "home") == before


@as_root
async def test_programs_that_the_system_user_cannot_reach_are_copied(
    base: Path, home: Path, system: EmbeddedSettings
) -> None:
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    package = _wheel_binaries().parents[1]
    shutil.copytree(_wheel_binaries().parent, closed / package.name / "postgresql")
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs")
    settings = EmbeddedSettings(**{**as_dict(system), "binaries": closed / package.name / "postgresql" / "bin"})
    for _ in range(2):
        async with running(home, settings) as server:
            assert await ask(server.url, "SELECT 1") == 1
            assert Path(os.readlink(f"/proc/{server.pid}/exe")).is_relative_to(system.system_folder)
    assert len(list(system.system_folder.glob("postgresql-18-*"))) == 1
