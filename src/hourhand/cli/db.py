"""`hourhand db`: brings the database up to date, says how far it is, and checks that nothing was altered.

Works on the PostgreSQL that is named, or else on the embedded one of the home: started for the moment, or shared with
the `hourhand up` that is using it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hourhand.cli.printing import say
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable, HourhandError

if TYPE_CHECKING:
    from hourhand.config import Config
    from hourhand.database.connections import Database
    from hourhand.database.migrate import Applied, Migration

_Command = TypeVar("_Command", bound=Callable[..., Any])
_STATEMENT_SECONDS_MAX: Final = 3600.0
"""Migrations of large tables take longer than statements of a running node may."""


class DatabaseDiffers(HourhandError):
    """The database is not what this program would have made: something is pending, altered or missing."""

    code = "database-differs"


@click.group()
def db() -> None:
    """Prepare and check the database."""


def _database_options(command: _Command) -> _Command:
    for option in (
        click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML)."),
        click.option("--home", type=click.Path(file_okay=False), help="Data folder of the embedded PostgreSQL."),
        click.option("--schema", metavar="NAME", help="Schema that holds the tables."),
        click.option("--database", metavar="URL", help="PostgreSQL to use (HOURHAND_DATABASE_URL)."),
    ):
        command = option(command)
    return command


@db.command("migrate")
@click.option("--show-sql", is_flag=True, help="Print the SQL that is missing (all of it without a URL); run nothing.")
@_database_options
def migrate_(show_sql: bool, **given: str | None) -> None:
    """Bring the database up to this program's version. Safe to repeat, and to run twice at once."""
    config = _load(given)
    if show_sql:
        click.echo(sql_script(asyncio.run(_missing(config)), config.database.schema), nl=False)
        return
    done = asyncio.run(_migrate(config))
    for migration in done:
        click.echo(f"applied {migration.version:04d} {migration.name}")
    if not done:
        say("the database is up to date")


@db.command()
@_database_options
def status(**given: str | None) -> None:
    """Show the database's version, and each migration as applied or pending."""
    from hourhand.database.migrate import migrations

    config = _load(given)
    found = asyncio.run(_look(config))
    done = {record.version: record.name for record in found.done}
    known = {migration.version: migration.name for migration in migrations(config.database.schema)}
    click.echo(f"version {max(done, default=0)} of {max(known)}, schema {config.database.schema}")
    for version, name in sorted((known | done).items()):
        state = "pending" if version not in done else "applied" if version in known else "applied by a newer Hourhand"
        click.echo(f"{version:04d}  {name}  {state}")


@db.command()
@_database_options
def verify(**given: str | None) -> None:
    """Compare checksums and tables with what this program would make; exit with 1 on any difference."""
    config = _load(given)
    differences = find_differences(config.database.schema, asyncio.run(_look(config)))
    if differences:
        raise DatabaseDiffers("\n".join(["the database is not what this program needs:", *differences]))
    click.echo("database is right")


# --- what is looked at ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What a database has."""

    done: "Sequence[Applied]" = ()
    tables: frozenset[str] = frozenset()


def find_differences(schema: str, found: Found) -> list[str]:
    """A line for each thing that is altered, pending or missing."""
    from hourhand.database.migrate import migrations, refuse_mismatch

    known = migrations(schema)
    lines = []
    try:
        refuse_mismatch(known, list(found.done))
    except DatabaseUnsuitable as mismatch:
        lines.append(str(mismatch))
    versions = {record.version for record in found.done}
    present = [migration for migration in known if migration.version in versions]
    lines += [
        f"migration {each.version} ({each.name}) is pending: hourhand db migrate" for each in known[len(present) :]
    ]
    lines += [f"table {schema}.{name} is missing" for name in sorted(expected_tables(present, schema) - found.tables)]
    return lines


def expected_tables(done: "Sequence[Migration]", schema: str) -> set[str]:
    """The tables that these migrations leave behind, read from their own statements."""
    statement = re.compile(
        rf"^\s*(CREATE|DROP)\b[\w\s]*?\bTABLE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{schema}\.(\w+)", re.I | re.M
    )
    tables = {"migrations"} if done else set()
    for migration in done:
        for verb, name in statement.findall(migration.sql):
            (tables.add if verb.upper() == "CREATE" else tables.discard)(name)
    return tables


def sql_script(missing: "Sequence[Migration]", schema: str) -> str:
    """What `migrate` would do with these, for somebody else to run: afterwards there is nothing left to migrate."""
    if not missing:
        return "-- nothing is missing\n"
    parts = [
        "BEGIN;",
        f"CREATE SCHEMA IF NOT EXISTS {schema};",
        f"CREATE TABLE IF NOT EXISTS {schema}.migrations (version int PRIMARY KEY, name text NOT NULL, "
        "checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());",
    ]
    for each in missing:
        record = f"({each.version}, '{each.name}', '{each.checksum}')"
        parts += [
            f"\n-- {each.version:04d} {each.name}",
            each.sql.rstrip(),
            f"INSERT INTO {schema}.migrations (version, name, checksum) VALUES {record};",
        ]
    return "\n".join([*parts, "COMMIT;\n"])


async def _migrate(config: "Config") -> "list[Migration]":
    from hourhand.database.migrate import migrate
    from hourhand.wiring import make_partitions, store_on

    async with _opened(config) as database:
        done = await migrate(database)
        await make_partitions(config, store_on(database))
        return done


async def _missing(config: "Config") -> "list[Migration]":
    """What `migrate` would run. Without a URL nothing is started, and a new database is assumed."""
    from hourhand.database.migrate import applied, migrations, refuse_mismatch

    known = migrations(config.database.schema)
    if not config.database.url:
        return known
    async with _opened(config) as database:
        done = await applied(database)
    refuse_mismatch(known, done)
    return known[len(done) :]


async def _look(config: "Config") -> Found:
    from hourhand.database.migrate import applied

    if not config.database.url and not (config.home / "postgres").exists():
        say(f"{config.home} holds no database yet")
        return Found()
    async with _opened(config) as database:
        done = await applied(database)
        async with database.connection() as connection:
            rows = await connection.fetch(
                "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE n.nspname = $1 AND relkind IN ('r', 'p')",
                database.schema,
            )
    return Found(done, frozenset(row["relname"] for row in rows))


# --- getting at the database ------------------------------------------------------------------------------


def _load(given: dict[str, str | None]) -> "Config":
    from hourhand.config import load_config

    flags = {"home": given["home"], "database.url": given["database"], "database.schema": given["schema"]}
    return load_config(Path(given["config_file"]) if given["config_file"] else None, flags=flags)


@asynccontextmanager
async def _opened(config: "Config") -> "AsyncIterator[Database]":
    """The database, known to be suitable. What its server refuses leaves as DatabaseUnsuitable."""
    from dataclasses import replace

    import asyncpg

    from hourhand.database.connections import Database

    async with _url(config) as url:
        settings = replace(config.database, url=url, pool_max=1, statement_seconds_max=_STATEMENT_SECONDS_MAX)
        database = Database(settings, "db", any_plan=True)
        await database.open()
        try:
            await database.check()
            yield database
        except asyncpg.InsufficientPrivilegeError as fault:
            raise DatabaseUnsuitable(f"the database user may not do this: {fault}") from None
        finally:
            await database.close()


@asynccontextmanager
async def _url(config: "Config") -> AsyncIterator[str]:
    from hourhand.database.embedded import EmbeddedServer

    if config.database.url:
        yield config.database.url
    elif _is_in_use(config.home):
        yield _url_of_running(config.home)
    else:
        server = EmbeddedServer(config.home, config.embedded)
        try:
            yield await server.start()
        finally:
            await server.stop()


def _is_in_use(home: Path) -> bool:
    """Whether a running `hourhand up` holds the home's lock. Asked with a shared lock, let go at once."""
    import fcntl

    try:
        with (home / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no home, no lock, not ours: starting the server tells it better
        return False
    return False


def _url_of_running(home: Path) -> str:
    """As EmbeddedServer.url makes it. The folder of the socket is asked from the server's own file, because where it
    lies depends on the environment that server was started in."""
    from urllib.parse import quote

    from hourhand.database.embedded_home import read_or_create_password
    from hourhand.database.embedded_settings import NAME, PORT

    try:
        sockets = (home / "postgres" / "postmaster.pid").read_text().splitlines()[4]
    except (OSError, IndexError):
        raise DatabaseUnavailable(f"{home} is in use, but its PostgreSQL does not run yet; try again") from None
    password = quote(read_or_create_password(home), safe="")
    return f"postgresql://{NAME}:{password}@/{NAME}?host={quote(sockets, safe='/')}&port={PORT}"
