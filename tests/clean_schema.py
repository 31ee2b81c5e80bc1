"""One migrated schema for all tests of a session, which each of them finds as the migrations have left it.

To migrate for every test would take most of the time of the tests that use a database. Instead, everything that a test
has written is taken back before the next one: tables that were touched are emptied, what the migrations have put into
them is put there again, sequences begin anew, and tables that a test has made are dropped. What cannot be taken back
this way (a trigger, a column, a table that is gone) is noticed by comparing the catalog, and the schema is made anew.
The schema lies in a database of its own, so that every session in it is one that a test has left behind; such a
session is ended, because it might write into the next test.
"""

import asyncio
import time
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from hourhand.database.connections import Database, DatabaseSettings
from hourhand.database.migrate import migrate

NAME = "tests"
SCHEMA = "test"
_GONE_SECONDS_MAX = 20.0

_REMEMBER = f"""
CREATE SCHEMA memory;
CREATE TABLE memory.relations AS SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}');
CREATE TABLE memory.seeds (relation regclass, copy regclass, content text);
CREATE TABLE memory.sequences AS
    SELECT oid::regclass AS sequence, pg_sequence_last_value(oid) AS value
      FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}') AND relkind = 'S';

-- The rows and where they lie: a row that was changed and changed back lies elsewhere.
CREATE FUNCTION memory.content(of_table regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
    EXECUTE format('SELECT md5(string_agg(ctid::text || t::text, E''\\n'' ORDER BY ctid)) FROM %s t', of_table)
       INTO found;
    RETURN found;
END $$;

CREATE FUNCTION memory.written() RETURNS SETOF regclass LANGUAGE sql AS $$
    SELECT oid::regclass FROM pg_class
     WHERE relnamespace = to_regnamespace('{SCHEMA}') AND relkind = 'r' AND pg_relation_size(oid) > 0
$$;

-- Everything that DDL could have changed, but not what TRUNCATE, ANALYZE and VACUUM change.
CREATE FUNCTION memory.shape() RETURNS text LANGUAGE sql AS $$
    WITH ours AS MATERIALIZED (
        SELECT oid, relname, relkind, relpersistence, relowner, reloptions, relispartition
          FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}')
    ), said AS (
        SELECT ours::text AS fact FROM ours
        UNION ALL SELECT (attrelid, attnum, attname, atttypid, attnotnull, atthasdef, attisdropped)::text
                    FROM pg_attribute WHERE attrelid IN (SELECT oid FROM ours)
        UNION ALL SELECT (oid, adbin)::text FROM pg_attrdef WHERE adrelid IN (SELECT oid FROM ours)
        UNION ALL SELECT (indexrelid, indisvalid)::text FROM pg_index WHERE indrelid IN (SELECT oid FROM ours)
        UNION ALL SELECT (oid, convalidated)::text FROM pg_constraint
                   WHERE connamespace = to_regnamespace('{SCHEMA}')
        UNION ALL SELECT (oid, tgenabled)::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM ours)
        UNION ALL SELECT (inhrelid, inhparent)::text FROM pg_inherits WHERE inhparent IN (SELECT oid FROM ours)
        UNION ALL SELECT (oid, prosrc)::text FROM pg_proc WHERE pronamespace = to_regnamespace('{SCHEMA}')
    )
    SELECT md5(string_agg(fact, E'\\n' ORDER BY fact)) FROM said
$$;

CREATE FUNCTION memory.put_back() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    seed record;
    tables text;
BEGIN
    SELECT string_agg(written::text, ', ') INTO tables
      FROM memory.written() AS written
      LEFT JOIN memory.seeds ON seeds.relation = written
     WHERE seeds.content IS NULL OR seeds.content IS DISTINCT FROM memory.content(written);  -- NULL: all deleted
    IF tables IS NOT NULL THEN
        EXECUTE format('TRUNCATE %s CASCADE', tables);
    END IF;
    FOR seed IN SELECT * FROM memory.seeds WHERE pg_relation_size(relation) = 0 LOOP
        EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM %s', seed.relation, seed.copy);
    END LOOP;
    PERFORM setval(sequence, coalesce(value, seqstart), value IS NOT NULL)
       FROM memory.sequences JOIN pg_sequence ON seqrelid = sequence
      WHERE pg_sequence_last_value(sequence) IS DISTINCT FROM value;
END $$;

CREATE FUNCTION memory.added() RETURNS SETOF regclass LANGUAGE sql AS $$
    SELECT oid::regclass FROM pg_class
     WHERE relnamespace = to_regnamespace('{SCHEMA}') AND relkind IN ('r', 'p')
       AND oid NOT IN (SELECT oid FROM memory.relations)
$$;

-- Once through the copies, so that the rows lie as they will each time they are put back.
DO $$
DECLARE relation regclass;
BEGIN
    FOR relation IN SELECT * FROM memory.written() LOOP
        EXECUTE format('CREATE TABLE memory.copy_%s AS SELECT * FROM %s ORDER BY ctid', relation::oid, relation);
        INSERT INTO memory.seeds VALUES (relation, format('memory.copy_%s', relation::oid)::regclass, NULL);
    END LOOP;
    PERFORM memory.put_back();
    UPDATE memory.seeds SET content = memory.content(seeds.relation);
END $$;
CREATE TABLE memory.first AS SELECT memory.shape();
"""


class CleanSchema:
    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self.url = urlunsplit(urlsplit(server_url)._replace(path=f"/{NAME}"))
        self._db: asyncpg.Connection | None = None

    async def open(self) -> None:
        db = await asyncpg.connect(self._server_url)
        try:
            await db.execute(f"CREATE DATABASE {NAME}")
        finally:
            await db.close()
        self._db = await asyncpg.connect(self.url, statement_cache_size=0)  # what it calls may be made anew
        await self._make()

    async def close(self) -> None:
        if self._db is not None:
            await self._db.close()

    async def clean(self) -> None:
        """As the migrations have left it, whatever was done to it."""
        assert self._db is not None
        await self._end_other_sessions()
        for table in await self._db.fetch("SELECT added::text FROM memory.added()"):
            await self._db.execute(f"DROP TABLE IF EXISTS {table['added']} CASCADE")
        if await self._db.fetchval("SELECT memory.shape() = (SELECT shape FROM memory.first)"):
            await self._db.execute("SELECT memory.put_back()")
        else:
            await self._db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP SCHEMA IF EXISTS memory CASCADE")
            await self._make()

    async def _make(self) -> None:
        assert self._db is not None
        database = Database(DatabaseSettings(url=self.url, schema=SCHEMA), "test")
        await database.open()
        await migrate(database)
        await database.close()
        await self._db.execute(_REMEMBER)

    async def _end_other_sessions(self) -> None:
        assert self._db is not None
        deadline = time.monotonic() + _GONE_SECONDS_MAX
        others = (
            "FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        left = await self._db.fetchval(f"SELECT count(pg_terminate_backend(pid)) {others}")
        while left:
            assert time.monotonic() < deadline, f"{left} sessions of the test before do not end"
            await asyncio.sleep(0.005)
            left = await self._db.fetchval(f"SELECT count(*) {others}")
