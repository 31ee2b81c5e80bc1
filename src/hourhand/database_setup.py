"""Makes a database ready for nodes, and refuses one that is not."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from hourhand.config import Config
from hourhand.database.connections import Database
from hourhand.database.deadlines import long_running
from hourhand.database.migrate import applied, migrate, migrations, refuse_mismatch
from hourhand.model.errors import DatabaseUnsuitable
from hourhand.operations.secret_keys import refuse_without_keys
from hourhand.runtime.keyring import keyring_of
from hourhand.store.partitions import Cut
from hourhand.store.whole import Store, store_on
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event


@contextlib.asynccontextmanager
async def open_store(config: Config, application: str) -> AsyncIterator[Store]:
    database = Database(config.database, application, any_plan=True)
    await database.open()
    try:
        yield store_on(database)
    finally:
        await database.close()


async def prepare_database(config: Config) -> None:
    """Checks the database, brings its tables up to date and makes today's partitions."""
    async with open_store(replace(config, database=long_running(config.database)), "migrate") as store:
        await store.database.check()
        done = await migrate(store.database)
        if done:
            emit(Event.MIGRATED, versions=[migration.version for migration in done])
        await make_partitions(config, store)


async def make_partitions(config: Config, store: Store) -> None:
    """Makes the partitions of the coming days; afterwards the leader keeps them."""
    async with store.database.transaction() as db:
        now = await db.fetchval("SELECT now()")
    await store.partitions.maintain(partition_cuts(config), now)


async def require_migrated(config: Config, role: str = "") -> None:
    """A role that does not migrate by itself refuses a database that is not ready for it, and one with secrets that it
    would have to open and cannot."""
    async with open_store(config, "check") as store:
        await store.database.check()
        known, done = migrations(config.database.schema), await applied(store.database)
        refuse_mismatch(known, done)
        if len(done) < len(known):
            raise DatabaseUnsuitable(
                f"the database has {len(done)} of {len(known)} migrations: run `hourhand db migrate` first"
            )
        if role:
            await _refuse_too_few_connections(config, role, store)
        if role in ("api", "executor"):
            await refuse_without_keys(store.secrets, keyring_of(config))


def connections_needed(config: Config, role: str) -> int:
    """How many connections a node of the role may have at once: its pool, its lease, what it hears by, and its own."""
    own = {"scheduler": 1, "executor": 2 + config.executor.transaction_connections}
    return config.database.pool_max + 2 + own.get(role, 0)


async def _refuse_too_few_connections(config: Config, role: str, store: Store) -> None:
    """A server that cannot give one node what it may ask for would refuse it in the middle of its work. What others
    take of the server nobody can tell; a pooler has limits of its own."""
    if config.database.pooler:
        return
    async with store.database.transaction() as db:
        most = await db.fetchval(
            "SELECT sum(setting::int * CASE name WHEN 'max_connections' THEN 1 ELSE -1 END)::int FROM pg_settings"
            " WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')"
        )
    needed = connections_needed(config, role)
    if needed > most:
        what = f"this {role} may need {needed} connections, and the server has {most} for everybody"
        remedy = "lower database.pool_max or executor.transaction_connections, or raise max_connections of the server"
        raise DatabaseUnsuitable(f"{what}: {remedy}")


def partition_cuts(config: Config) -> list[Cut]:
    keep = config.scheduler.keep_runs_days
    return [
        Cut("jobs", 7, 2, None),
        *(Cut(table, 1, 7, keep) for table in ("runs", "attempts", "run_files")),
        Cut("log_chunks", 1, 7, config.logs.keep_days),
    ]
