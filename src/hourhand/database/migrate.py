"""Plain-SQL migrations: numbered files, applied in order under an advisory lock, each with its checksum recorded.

A file that was applied never changes: `verify` compares checksums. A database that is newer than this program
is refused rather than guessed at.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from hourhand.database.connections import Connection, Database, tried_twice
from hourhand.database.queries import in_schema
from hourhand.model.errors import DatabaseUnsuitable

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_LOCK = 0x486F757248  # "HourH": one migration at a time per database


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str
    checksum: str


@dataclass(frozen=True, slots=True)
class Applied:
    version: int
    name: str
    checksum: str


def migrations(schema: str) -> list[Migration]:
    """Every migration this program knows, oldest first. The checksum is of the file, whatever the schema."""
    found = []
    for entry in files("hourhand.database").joinpath("migrations").iterdir():
        match = _FILE.match(entry.name)
        if match:
            source = entry.read_text(encoding="utf-8")
            digest = hashlib.sha256(source.encode()).hexdigest()
            found.append(Migration(int(match[1]), match[2], in_schema(source, schema), digest))
    return sorted(found, key=lambda migration: migration.version)


async def applied(database: Database) -> list[Applied]:
    """What the database has had, oldest first; empty when it has never been migrated."""
    async with database.connection() as db:
        return await _applied_on(db, database.schema)


@tried_twice  # nodes that run meanwhile lock the same tables, in an order of their own
async def migrate(database: Database) -> list[Migration]:
    """Brings the database up to this program's version; says what it applied."""
    known = migrations(database.schema)
    try:
        async with database.transaction() as db:
            await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await _make_schema(db, database.schema)
            done = await _applied_on(db, database.schema)
            refuse_mismatch(known, done)
            missing = known[len(done) :]
            for migration in missing:
                await db.execute(migration.sql)
                await db.execute(
                    f"INSERT INTO {database.schema}.migrations (version, name, checksum) VALUES ($1, $2, $3)",
                    migration.version,
                    migration.name,
                    migration.checksum,
                )
            return missing
    except asyncpg.InsufficientPrivilegeError as fault:
        remedy = f"grant CREATE on the database, or create schema {database.schema} owned by this user"
        raise DatabaseUnsuitable(f"the database user may not create the tables ({fault}): {remedy}") from None


def refuse_mismatch(known: list[Migration], done: list[Applied]) -> None:
    if len(done) > len(known):
        newest = done[-1]
        raise DatabaseUnsuitable(
            f"the database was migrated to version {newest.version} ({newest.name}) by a newer Hourhand; "
            f"this program knows {len(known)}: install the newer one"
        )
    for migration, record in zip(known, done, strict=False):
        if (migration.version, migration.checksum) != (record.version, record.checksum):
            raise DatabaseUnsuitable(
                f"migration {record.version} ({record.name}) in the database is not the one this program has: "
                "the program or the table `migrations` was altered"
            )


async def _make_schema(db: Connection, schema: str) -> None:
    # Asked for first: CREATE SCHEMA IF NOT EXISTS needs the right to create even when there is nothing to do.
    if not await db.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
        await db.execute(f"CREATE SCHEMA {schema}")
    await db.execute(
        f"CREATE TABLE IF NOT EXISTS {schema}.migrations (version int PRIMARY KEY, name text NOT NULL, "
        "checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )


async def _applied_on(db: Connection, schema: str) -> list[Applied]:
    if not await db.fetchval("SELECT to_regclass($1)", f"{schema}.migrations"):
        return []
    rows = await db.fetch(f"SELECT version, name, checksum FROM {schema}.migrations ORDER BY version")
    return [Applied(row["version"], row["name"], row["checksum"]) for row in rows]
