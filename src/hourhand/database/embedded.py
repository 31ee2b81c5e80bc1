"""Owns the life of the PostgreSQL that Hourhand brings along: made, started, adopted, stopped.

Promises one server per home, reachable only through a socket in a private folder and only with the password that lies
in the home. The server survives the death of this process and is adopted by the next one. A server that is not ours is
never signalled. An interrupted first start leaves nothing that hinders the next. Leaves the schema to the migrations,
and connection pools to their users; `embedded_home` knows the folder, `embedded_isolation` as whom the server runs,
`embedded_process` which process is it.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import asyncpg

from hourhand.database.embedded_home import (
    HomeLock,
    prepare_home,
    read_or_create_password,
    sync_folder,
    write_safely,
)
from hourhand.database.embedded_isolation import Place, find_place
from hourhand.database.embedded_process import (
    POLL_SECONDS,
    find_postmaster,
    is_postmaster,
    kill_family,
    read_postmaster_file,
    remove_foreign_lock_files,
    signal_postmaster,
    wait_until,
)
from hourhand.database.embedded_settings import MAJOR, NAME, PORT, EmbeddedSettings, render_configuration
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable, HomeUnusable

__all__ = ["EmbeddedServer", "EmbeddedSettings"]

_HARD_STOP_SECONDS_MAX: Final = 5.0
_RETRY_SECONDS: Final = 0.1
_PASSING: Final = ("pre-existing shared memory block", '.pid" already exists', '.lock" already exists')
"""What a start says while the processes of a killed server are still on their way out."""


class EmbeddedServer:
    """One home's PostgreSQL. Calling `start` again brings the server back if it has died."""

    def __init__(self, home: Path, settings: EmbeddedSettings = EmbeddedSettings()) -> None:  # noqa: B008 - frozen
        self._home = home
        self._settings = settings
        self._lock: HomeLock | None = None
        self._place: Place | None = None
        self._password = ""
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For asyncpg. Valid from the first `start` on, and the same for the life of the home."""
        assert self._place, "the embedded server has not been started"
        host = quote(str(self._place.sockets), safe="/")
        return f"postgresql://{NAME}:{quote(self._password, safe='')}@/{NAME}?host={host}&port={PORT}"

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        found = self._place and find_postmaster(self._place.data, self._place.run_as.uid)
        return found.pid if found else None

    async def find_running(self) -> str | None:
        """The URL of the server that somebody else runs in this home; None when nobody does. Changes nothing."""
        if not (self._home / "postgres.password").is_file():
            return None
        home = prepare_home(self._home)
        self._place = await find_place(home, self._settings)
        self._password = read_or_create_password(home)
        return self.url if self.pid else None

    async def start(self) -> str:
        """Returns the URL once the database answers. A failed start leaves no server running and the home unlocked."""
        home = prepare_home(self._home)
        self._lock = self._lock or HomeLock(home)
        try:
            place = self._place = await find_place(home, self._settings)
            self._password = read_or_create_password(home)
            if not _check_data(place):
                await self._create_data(place)
            await self._bring_up(place)
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError):  # a full disk, a file made unreadable: the home's trouble, not a bug
                raise HomeUnusable(f"{home} cannot be used: {error}") from error
            raise
        return self.url

    async def stop(self) -> None:
        """Ends the server, adopted or started, as gently as the time allows; frees the home."""
        if not self._lock:
            return
        try:
            if self._place:
                await self._end_server(self._place)
        finally:
            self._lock.release()
            self._lock = None

    # --- making the data ----------------------------------------------------------------------------------

    async def _create_data(self, place: Place) -> None:
        """Runs initdb beside the final name and renames: half a data folder is never taken for a whole one."""
        for leftover in place.data.parent.glob("postgres.new-*"):
            await asyncio.to_thread(_remove, leftover)
        draft = place.data.parent / f"postgres.new-{secrets.token_hex(4)}"
        password_file = draft.with_name(f"{draft.name}.password")
        write_safely(password_file, self._password + "\n", place.run_as.uid, place.run_as.gid)
        try:
            # initdb syncs all it wrote before it ends, so the rename never shows files that a power cut could empty.
            status, said = await place.run_as.run("initdb", _initdb_arguments(draft, password_file))
        finally:
            password_file.unlink(missing_ok=True)
        if status:
            await asyncio.to_thread(_remove, draft)
            raise DatabaseUnavailable(f"PostgreSQL could not make its data in {place.data}:\n{_meaningful(said)}")
        draft.rename(place.data)
        sync_folder(place.data.parent)
        link = place.home / "postgres"
        if link != place.data:
            link.symlink_to(place.data)
            sync_folder(place.home)

    # --- bringing the server up ---------------------------------------------------------------------------

    async def _bring_up(self, place: Place) -> None:
        """Adopts the server that runs or starts one, again and again while only a dying predecessor is in the way."""
        deadline = _now() + self._settings.start_seconds_max
        configuration = render_configuration(self._settings, place.sockets, lz4=place.lz4)
        while True:
            if await self._adopt(place, configuration, deadline):
                return
            await self._end_server(place)
            failure = await self._launch(place, configuration, deadline)
            if failure is None:
                break
            if _now() > deadline or not any(word in failure for word in _PASSING):
                raise DatabaseUnavailable(
                    f"PostgreSQL did not start, its log {place.log} says:\n{_meaningful(failure)}"
                )
            await asyncio.sleep(_RETRY_SECONDS)
        try:
            await self._reach_database(max(1.0, deadline - _now()))
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise DatabaseUnavailable(f"PostgreSQL in {place.home} runs but refuses us: {error}") from error

    async def _adopt(self, place: Place, configuration: str, deadline: float) -> bool:
        """Whether a server is running that has today's settings and answers."""
        found = find_postmaster(place.data, place.run_as.uid)
        if not found or _read(place.data / "postgresql.conf") != configuration:
            return False
        while found and found.status in ("", "starting") and _now() < deadline:  # it may be busy with recovery
            await asyncio.sleep(POLL_SECONDS)
            found = find_postmaster(place.data, place.run_as.uid)
        if not found or found.status != "ready":
            return False
        try:
            await self._reach_database(self._settings.answer_seconds_max)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True

    async def _launch(self, place: Place, configuration: str, deadline: float) -> str | None:
        """Starts a server and waits until it is ready. Returns what it wrote to its log if it ended instead."""
        # Written only when no server runs: a running one is compared with this file, which must be what it has read.
        write_safely(place.data / "postgresql.conf", configuration, place.run_as.uid, place.run_as.gid)
        remove_foreign_lock_files(place.data, place.sockets, place.run_as.uid)
        if place.log.exists() and place.log.stat().st_size > self._settings.log_bytes_max:
            place.log.replace(place.log.with_name("postgres.log.1"))
        descriptor = os.open(place.log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "rb") as log:
            begin = log.seek(0, os.SEEK_END)
            self._child = child = place.run_as.spawn("postgres", ["-D", str(place.data)], log)
            while child.poll() is None:
                found = read_postmaster_file(place.data)
                if found and found.pid == child.pid and found.status == "ready":
                    return None
                if _now() > deadline:
                    raise DatabaseUnavailable(
                        f"PostgreSQL was not ready after {self._settings.start_seconds_max:g} seconds, "
                        f"its log {place.log} says:\n{_meaningful(_from(log, begin))}"
                    )
                await asyncio.sleep(POLL_SECONDS)
            return _from(log, begin)

    async def _reach_database(self, seconds_max: float) -> None:
        """Connects once, which proves that the server answers, and makes the database if this is the first time."""
        async with asyncio.timeout(seconds_max):
            try:
                connection = await asyncpg.connect(self.url)
            except asyncpg.InvalidCatalogNameError:
                connection = await asyncpg.connect(self.url, database="postgres")
                try:
                    await connection.execute(f"CREATE DATABASE {NAME}")
                finally:
                    await connection.close()
            else:
                await connection.close()

    # --- ending the server --------------------------------------------------------------------------------

    async def _end_server(self, place: Place) -> None:
        child, uid = self._child, place.run_as.uid
        if child and child.poll() is None:
            if await _escalate(child.send_signal, lambda: child.poll() is not None, self._settings.stop_seconds_max):
                return
        elif found := find_postmaster(place.data, uid):
            if await _escalate(
                lambda number: signal_postmaster(found.pid, place.data, uid, number),
                lambda: not is_postmaster(found.pid, place.data, uid),
                self._settings.stop_seconds_max,
            ):
                return
        else:
            return
        # The leader had to be killed; its children may hang where it hung, and would hinder the next start.
        await wait_until(lambda: not kill_family(place.data, uid), _HARD_STOP_SECONDS_MAX)


async def _escalate(send: Callable[[signal.Signals], None], gone: Callable[[], bool], gentle_seconds: float) -> bool:
    """Asks for a fast shutdown, then an immediate one, then kills. Whether the server could still end by itself."""
    for number, seconds in (
        (signal.SIGINT, gentle_seconds),
        (signal.SIGQUIT, min(gentle_seconds, _HARD_STOP_SECONDS_MAX)),
        (signal.SIGKILL, _HARD_STOP_SECONDS_MAX),
    ):
        send(number)
        if await wait_until(gone, seconds):
            return number is not signal.SIGKILL
    return False


def _initdb_arguments(data: Path, password_file: Path) -> list[str]:
    return [
        *("-D", str(data), "-U", NAME, f"--pwfile={password_file}"),
        *("--auth-local=scram-sha-256", "--auth-host=scram-sha-256"),
        # Bytewise order with Unicode letters: no dependence on the machine's locales, and the fastest indexes.
        *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        *("--data-checksums", "--no-instructions"),
    ]


def _check_data(place: Place) -> bool:
    """Whether there is data already. Refuses data that this server could not open or would harm."""
    data, uid = place.data, place.run_as.uid
    if not data.exists():
        return False
    owner = data.stat().st_uid
    if owner != uid:
        raise HomeUnusable(f"{data} belongs to user {owner}, not to user {uid}; run as its owner")
    version = _read(data / "PG_VERSION")
    if version is None:
        raise HomeUnusable(f"{data} is not a PostgreSQL data folder; move it away")
    if version.strip() != str(MAJOR):
        raise DatabaseUnsuitable(
            f"{data} was made by PostgreSQL {version.strip()}, this is PostgreSQL {MAJOR}: move the data over with "
            f"pg_upgrade, or begin anew by moving the folder away"
        )
    return True


def _meaningful(log: str) -> str:
    """The last lines that say what went wrong, rather than what was going on."""
    lines = [line for line in log.splitlines() if line.strip()]
    telling = [
        line for line in lines if any(word in line for word in ("FATAL", "PANIC", "ERROR", "HINT", "DETAIL", "error:"))
    ]
    return "\n".join((telling or lines)[-5:]) or "nothing"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # a killed first start may still be writing there; the next one retries
    else:
        path.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _from(log: IO[bytes], begin: int) -> str:
    return os.pread(log.fileno(), 100_000, begin).decode(errors="replace")


def _now() -> float:
    return asyncio.get_running_loop().time()
