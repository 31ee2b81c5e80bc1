"""Partitions: made ahead of time, filled from the rest, dropped when their retention is over."""

from datetime import timedelta

from sample_jobs import NAMESPACE, START, at, claim, due_job, insert, rows, succeeded

from hourhand.store.partitions import Cut
from hourhand.wiring import Store

DAY = timedelta(days=1)
HISTORY = [Cut("runs", 1, 2, 30), Cut("attempts", 1, 2, 30), Cut("log_chunks", 1, 2, 30)]
DEFINITIONS = Cut("jobs", 7, 1, None)


async def sizes(store: Store, table: str) -> dict[str, int]:
    """Rows by partition, empty ones left out."""
    async with store.database.connection() as db:
        found = await db.fetch(
            f"SELECT tableoid::regclass::text AS name, count(*) FROM {store.database.schema}.{table} GROUP BY 1"
        )
    return {row["name"].split(".")[1]: row["count"] for row in found}


async def finish_one(store: Store, due: object) -> None:
    await insert(store, due_job(due))  # type: ignore[arg-type]
    [held] = await claim(store, 1, due)  # type: ignore[arg-type]
    await store.live_runs.finish_runs([succeeded(held)])


async def test_partitions_are_made_for_now_and_ahead(store: Store) -> None:
    made, dropped = await store.partitions.maintain([HISTORY[0], DEFINITIONS], START)
    assert made == ["runs_20300107", "runs_20300108", "runs_20300109", "jobs_20300107", "jobs_20300114"]
    assert dropped == []


async def test_a_second_call_does_nothing(store: Store) -> None:
    cuts = [*HISTORY, DEFINITIONS]
    made, _ = await store.partitions.maintain(cuts, START)
    assert len(made) == 3 * 3 + 2
    assert await store.partitions.maintain(cuts, START + timedelta(hours=1)) == ([], [])


async def test_the_next_day_makes_one_more_of_each(store: Store) -> None:
    await store.partitions.maintain(HISTORY, START)
    made, _ = await store.partitions.maintain(HISTORY, START + DAY)
    assert made == ["runs_20300110", "attempts_20300110", "log_chunks_20300110"]


async def test_a_row_lies_in_the_partition_of_its_day(store: Store) -> None:
    await store.partitions.maintain([HISTORY[0]], START)
    for due in (START, START + DAY, START + 5 * DAY):
        await finish_one(store, due)
    assert await sizes(store, "runs") == {"runs_20300107": 1, "runs_20300108": 1, "runs_rest": 1}


async def test_making_a_partition_moves_the_rows_of_the_rest_into_it(store: Store) -> None:
    for due in (START, START, START + DAY, START + 9 * DAY):
        await finish_one(store, due)
    assert await sizes(store, "runs") == {"runs_rest": 4}
    assert await sizes(store, "jobs") == {"jobs_rest": 4}
    before = await rows(store, "runs")
    await store.partitions.maintain([HISTORY[0], DEFINITIONS], START)
    assert await sizes(store, "runs") == {"runs_20300107": 2, "runs_20300108": 1, "runs_rest": 1}
    assert await sizes(store, "jobs") == {"jobs_20300107": 4}
    assert await rows(store, "runs") == before


async def test_a_new_partition_has_the_indexes_and_refuses_what_the_table_refuses(store: Store) -> None:
    await store.partitions.maintain([HISTORY[0]], START)
    await finish_one(store, START)
    async with store.database.connection() as db:
        names = await db.fetch(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename = 'runs_20300107'",
            store.database.schema,
        )
        checks = await db.fetchval(
            "SELECT count(*) FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'",
            f"{store.database.schema}.runs_20300107",
        )
    columns = {row["indexdef"].partition("btree ")[2] for row in names}
    assert columns == {"(namespace_id, run_id)", "(job_id, run_id)", "(namespace_id, run_id) WHERE (state <> 10)"}
    assert checks == 1


async def test_a_partition_is_dropped_once_its_whole_day_is_past_the_retention(store: Store) -> None:
    await store.partitions.maintain([HISTORY[0], DEFINITIONS], START)
    await finish_one(store, START)
    await finish_one(store, START + DAY)
    midnight = START.replace(hour=0)
    over = midnight + 31 * DAY
    assert (await store.partitions.maintain([HISTORY[0]], over - timedelta(seconds=1)))[1] == []
    assert (await store.partitions.maintain([HISTORY[0]], over))[1] == ["runs_20300107"]
    assert await sizes(store, "runs") == {"runs_20300108": 1}
    assert (await store.partitions.maintain([DEFINITIONS], over + 1000 * DAY))[1] == [], "definitions are kept"
    assert len(await store.jobs.list_jobs(NAMESPACE, None, 10, 0, {})) == 2


async def test_a_run_whose_job_and_day_have_partitions_is_still_found(store: Store) -> None:
    await finish_one(store, START)
    await store.partitions.maintain([*HISTORY, DEFINITIONS], START)
    [row] = await rows(store, "runs")
    run = await store.runs.get_run(NAMESPACE, row["run_id"])
    assert run is not None
    assert (run.job_name, run.scheduled_for, run.ended_at) == ("job", START, at(1))


async def test_what_belongs_to_history_goes_with_it(store: Store) -> None:
    schema = store.database.schema
    async with store.database.connection() as db:
        await db.execute(
            f"INSERT INTO {schema}.nodes (role, name, started_at, lease_until, ended_at, returned, facts) "
            "VALUES ('executor', 'gone', $1, $1, $1, true, '{}'), ('executor', 'here', $1, $1, NULL, false, '{}')",
            START,
        )
        await db.execute(
            f"INSERT INTO {schema}.ledger_ranges VALUES (gen_random_uuid(), $1, $1, 1, 16, 'catchup_window')", START
        )
    await store.partitions.maintain(HISTORY, START + 29 * DAY)
    assert len(await rows(store, "nodes")) == 2
    await store.partitions.maintain(HISTORY, START + 31 * DAY)
    assert [row["name"] for row in await rows(store, "nodes")] == ["here"]
    assert await rows(store, "ledger_ranges") == []
