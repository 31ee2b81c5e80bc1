"""Lists and searches beside 300,000 jobs that are over: what a page costs follows from what it looks at."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from plan_ground import Ground, assert_by_index, both_ways, explain, filled_ground
from sample_jobs import NAMESPACE, START, every

from hourhand.database.connections import Database, DatabaseSettings
from hourhand.model.schedule import timing_to_json
from hourhand.model.states import FINAL_STATES, LIVE_STATES, JobState, RunState
from hourhand.store import job_lists, runs
from hourhand.store.job_lists import JobLists
from hourhand.store.jsons import to_json
from hourhand.store.names import Names
from hourhand.store.runs import Runs

OLD, OVER = 500, 300_000
HIGHEST = UUID(int=(1 << 128) - 1)
SCHEMA = "test_long_lists"
TIMING = to_json(timing_to_json(every(60)))

# The oldest 500 are what people look for, by their numbers: 1 to 300 recur, 301 to 350 wait in the timetable, 351 to
# 400 are live, 401 to 450 are paused, 451 to 500 cancelled. All others, which are newer, ran once and are over; of
# their runs the oldest fifty failed. The first of all has 50,000 more, which succeeded.
FILL = f"""
INSERT INTO hourhand.lanes (namespace_id, queue, needs) VALUES (1, 'default', ''), (1, 'slow', '');
CREATE TEMPORARY TABLE numbered AS
SELECT n,
       (lpad(to_hex({int(START.timestamp() * 1000)} + n), 12, '0') || '70008' || left(md5(n::text), 15))::uuid job_id,
       timestamptz '{START.isoformat()}' + n * interval '1 second' AS due_at
  FROM generate_series(1, {OLD + OVER}) n;
INSERT INTO hourhand.jobs (job_id, namespace_id, lane_id, name, kind, payload, due_at, timing, priority, max_retries,
                           owner, status, version, created_at, created_by, updated_at, labels)
SELECT job_id, {NAMESPACE}, CASE WHEN n <= {OLD} THEN 2 ELSE 1 END,
       CASE WHEN n <= 300 THEN 'nightly ' || n WHEN n <= {OLD} THEN 'one ' || n ELSE 'bench' END, 'number', '{{}}',
       CASE WHEN n > 300 THEN due_at END,
       CASE WHEN n <= 300 THEN '{TIMING}'::jsonb END, 5, 3, 'ada',
       CASE WHEN n <= 400 OR n > {OLD} THEN 0 WHEN n <= 450 THEN 1 ELSE 2 END, 1, now(), 'ada', now(),
       CASE WHEN n <= {OLD} THEN '{{"team": "data"}}'::jsonb END
  FROM numbered;
INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring)
SELECT job_id, due_at, {NAMESPACE}, 2, 1, n % 1024, 5, n <= 300 FROM numbered WHERE n <= 350;
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state,
                                priority, cause)
SELECT hourhand.scheduled_run_id(due_at, job_id), job_id, due_at, due_at, {NAMESPACE}, 2, 1, 0, 5, 0
  FROM numbered WHERE n BETWEEN 351 AND 400;
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version,
                           state, cause, attempt, reason)
SELECT hourhand.scheduled_run_id(due_at, job_id), job_id, due_at, due_at, due_at, {NAMESPACE}, 1, 1,
       CASE WHEN n <= {OLD + 50} THEN 11 ELSE 10 END, 0, 1, CASE WHEN n <= {OLD + 50} THEN 'exit_code' END
  FROM numbered WHERE n > {OLD};
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version,
                           state, cause, attempt)
SELECT hourhand.scheduled_run_id(due_at, b.job_id), b.job_id, due_at, due_at, due_at, {NAMESPACE}, 1, 1, 10, 1, 1
  FROM numbered, (SELECT job_id FROM numbered WHERE n = 1) b WHERE n BETWEEN 1000 AND 51000;
"""


@pytest.fixture(scope="module")
async def ground(database_url: str) -> AsyncIterator[Ground]:
    async with filled_ground(database_url, SCHEMA, FILL) as filled:
        yield replace(filled, plan_once=True)


@pytest.fixture
async def database(ground: Ground, database_url: str) -> AsyncIterator[Database]:
    database = Database(DatabaseSettings(url=database_url, schema=SCHEMA), "test")
    await database.open()
    yield database
    await database.close()


async def explain_list(ground: Ground, name: str, settled: bool, look: int, /, **asked: Any) -> Any:
    names = ("name", "kind", "owner", "queue", "labels", "priority", "recurring")
    filters = {each: asked.pop(each, None) for each in names}
    page = {"namespace_id": NAMESPACE, "before": HIGHEST, "limit": 51, "skip": 0, "look": look}
    return await explain(ground, "job_lists.sql", name, settled, **page, **filters, **asked)


# --- what a page costs ------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("more", [{}, {"name": "bench"}, {"queue": "default"}], ids=["all", "name", "queue"])
async def test_a_page_of_what_there_is_much_of_reads_hardly_more_than_itself(
    ground: Ground, more: dict[str, Any], settled: bool
) -> None:
    plan = await explain_list(ground, "walk_jobs", settled, job_lists.LOOK, state=None, **more)
    assert_by_index(plan, ground, 1500, rows=51)


@both_ways
@pytest.mark.parametrize(
    "more",
    [{"name": "one 350"}, {"kind": "x"}, {"owner": "x"}, {"queue": "slow"}, {"labels": '{"team": "data"}'}],
    ids=lambda more: next(iter(more)),
)
async def test_a_search_for_what_is_rare_looks_at_so_many_and_says_where_it_stopped(
    ground: Ground, more: dict[str, Any], settled: bool
) -> None:
    plan = await explain_list(ground, "walk_jobs", settled, job_lists.LOOK, state=None, **more)
    assert_by_index(plan, ground, 1500, rows=1)


@both_ways
@pytest.mark.parametrize(("state", "pages"), [("completed", 2000), ("scheduled", 25_000)])
async def test_a_walk_that_asks_of_each_whether_it_is_alive_is_bounded(
    ground: Ground, state: str, pages: int, settled: bool
) -> None:
    plan = await explain_list(ground, "walk_jobs", settled, job_lists.LOOK_ALIVE, state=state)
    assert_by_index(plan, ground, pages)


@both_ways
async def test_what_is_alive_is_found_from_its_own_rows(ground: Ground, settled: bool) -> None:
    plan = await explain_list(ground, "walk_living", settled, job_lists.LOOK_ALIVE)
    assert_by_index(plan, ground, 3000, rows=51)
    plan = await explain_list(ground, "walk_living", settled, job_lists.LOOK_ALIVE, name="one 350")
    assert_by_index(plan, ground, 3000, rows=1)


@both_ways
@pytest.mark.parametrize("status", [1, 2], ids=["paused", "cancelled"])
async def test_what_is_set_aside_has_an_index(ground: Ground, status: int, settled: bool) -> None:
    plan = await explain_list(ground, "walk_set_aside", settled, job_lists.LOOK, status=status)
    assert_by_index(plan, ground, 1500, rows=50)


@both_ways
async def test_what_recurs_has_an_index_by_age_and_one_by_name(ground: Ground, settled: bool) -> None:
    plan = await explain_list(ground, "walk_recurring", settled, job_lists.LOOK, state=None, recurring=True)
    assert_by_index(plan, ground, 1500, rows=51)
    plan = await explain_list(ground, "walk_recurring_named", settled, job_lists.LOOK, state=None, name="nightly 7")
    assert_by_index(plan, ground, 60, rows=1)


@both_ways
@pytest.mark.parametrize(
    ("states", "reasons", "pages"),
    [(FINAL_STATES, None, 1500), ([11], None, 1500), ([12], None, 200), ([10], ["poison"], 1500)],
    ids=["all", "failed", "none", "reason"],
)
async def test_finished_runs_are_looked_for_among_so_many(
    ground: Ground, states: list[int], reasons: list[str] | None, pages: int, settled: bool
) -> None:
    asked = {"namespace_id": NAMESPACE, "states": states, "before": HIGHEST, "since": UUID(int=0), "limit": 51}
    for name, more in (
        ("list_finished_runs", {}),
        ("list_finished_runs_of_job", {"job_id": ground.jobs[1]}),
        ("pick_retries", {"again": False}),
    ):
        plan = await explain(ground, "runs.sql", name, settled, **asked, reasons=reasons, look=runs.LOOK, **more)
        assert_by_index(plan, ground, 12_000 if name.endswith("_of_job") else pages)


@both_ways
@pytest.mark.parametrize("number", [1, 7, 350, 400, 5000], ids=["many runs", "recurs", "waits", "live", "over"])
async def test_the_status_of_one_job_goes_by_its_id(ground: Ground, number: int, settled: bool) -> None:
    job_id = ground.jobs[number]
    plan = await explain(ground, "jobs.sql", "get_jobs", settled, namespace_ids=[NAMESPACE], job_ids=[job_id])
    assert_by_index(plan, ground, 60, rows=1)
    asked = {"namespace_id": NAMESPACE, "job_id": job_id, "before": HIGHEST, "since": UUID(int=0), "limit": 2}
    plan = await explain(
        ground, "runs.sql", "list_live_runs_of_job", settled, **asked, states=LIVE_STATES, once_run_id=HIGHEST
    )
    assert_by_index(plan, ground, 60)
    plan = await explain(
        ground,
        "runs.sql",
        "list_finished_runs_of_job",
        settled,
        **asked,
        states=FINAL_STATES,
        reasons=None,
        look=10_000,
    )
    assert_by_index(plan, ground, 120)


# --- that nothing is left out -----------------------------------------------------------------------------


async def numbers(ground: Ground, lists: JobLists, **filters: Any) -> tuple[list[int], int]:
    """The numbers of all jobs that fit, page by page, in the order of the pages; and how many pages that took."""
    found: list[UUID] = []
    before, pages = None, 0
    while True:
        page = await lists.list_jobs(NAMESPACE, before, 50, None, filters)
        found += [job.job_id for job in page]
        pages += 1
        before = page[-1].job_id if len(page) == 50 else page.reached
        if before is None:
            break
    known = {job_id: number for number, job_id in ground.jobs.items()}
    return [known[job_id] for job_id in found], pages


@pytest.mark.parametrize(
    ("filters", "expected", "pages_max"),
    [
        ({"state": JobState.SCHEDULED}, range(400, 0, -1), 9),
        ({"state": JobState.SCHEDULED, "name": "one 350"}, [350], 1),
        ({"state": JobState.PAUSED}, range(450, 400, -1), 2),
        ({"state": JobState.CANCELLED}, range(500, 450, -1), 2),
        ({"recurring": True}, range(300, 0, -1), 7),
        ({"labels": {"team": "data"}}, range(500, 0, -1), 50),
        ({"queue": "slow"}, range(500, 0, -1), 50),
        ({"name": "one 350"}, [350], 40),
        ({"name": "nightly 7"}, [7], 40),
    ],
)
async def test_page_by_page_all_that_fits_is_found_once(
    ground: Ground, database: Database, filters: dict[str, Any], expected: Any, pages_max: int
) -> None:
    found, pages = await numbers(ground, JobLists(database, Names(database)), **filters)
    assert found == list(expected)
    assert pages <= pages_max


async def test_who_asks_by_name_gets_what_recurs_with_the_first_page(ground: Ground, database: Database) -> None:
    page = await JobLists(database, Names(database)).list_jobs(NAMESPACE, None, 50, None, {"name": "nightly 7"})
    assert [job.job_id for job in page] == [ground.jobs[7]]
    assert page.reached is not None


async def test_where_what_is_alive_is_too_much_to_read_the_page_is_short_and_leads_on(
    ground: Ground, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_slow(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(database, "fetch_within", too_slow)
    found, pages = await numbers(ground, JobLists(database, Names(database)), state=JobState.SCHEDULED)
    assert found == list(range(400, 0, -1))
    assert pages > 100


async def test_rare_runs_of_a_job_are_found_behind_short_pages(ground: Ground, database: Database) -> None:
    names = Names(database)
    job = (await JobLists(database, names).list_jobs(NAMESPACE, None, 1, None, {"name": "nightly 1"}))[0]
    listed, before, pages = 0, None, 0
    while True:
        page = await Runs(database, names).list_runs(NAMESPACE, job, [RunState.FAILED], before, 50)
        listed, before, pages = listed + len(page), page.reached, pages + 1
        if before is None:
            break
    assert (listed, pages) == (0, 6)


async def test_a_statement_that_may_be_left_ends_in_time_and_its_connection_is_of_use(database: Database) -> None:
    lists = JobLists(database, Names(database))
    slow = lists._queries["walk_jobs"].__class__("slow", "SELECT pg_sleep(30)", ())
    assert await database.fetch_within(0.02, slow) is None
    assert len(await lists.list_jobs(NAMESPACE, None, 5, None, {})) == 5
