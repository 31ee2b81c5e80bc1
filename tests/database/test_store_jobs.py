"""Jobs in the database: stored, read in pages, changed under their version, paused, resumed, cancelled."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from sample_jobs import (
    NAMESPACE,
    START,
    at,
    claim,
    definition,
    due_job,
    every,
    execute,
    ids,
    insert,
    new_job,
    once,
    own_all_shards,
    planning,
    rows,
    succeeded,
)

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.ids import scheduled_run_id, shard_of
from hourhand.model.job import Job, JobDefinition
from hourhand.model.retry import RetryPolicy
from hourhand.model.schedule import At, CronSchedule, Now, Timing
from hourhand.model.states import Cause, JobState, RunState
from hourhand.ports.stores import Move
from hourhand.store.job_rows import FEW_MAX
from hourhand.store.packed_rows import CURSOR_COLUMNS, JOB_COLUMNS, RUN_COLUMNS
from hourhand.wiring import Store


async def get(store: Store, job_id: UUID) -> Job:
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    return job


async def change(
    store: Store, job_id: UUID, changed: JobDefinition, cursor: object = None, version: int = 1, now=START
):  # type: ignore[no-untyped-def]
    return await store.jobs.change_job(NAMESPACE, job_id, changed, version, cursor, now, "grace")  # type: ignore[arg-type]


async def set_status(store: Store, job_id: UUID, state: JobState, cursor=None, now=START) -> list[UUID]:  # type: ignore[no-untyped-def]
    return await store.jobs.set_status(NAMESPACE, job_id, state, cursor, "because", now)


# --- storing ----------------------------------------------------------------------------------------------


async def test_jobs_of_every_sort_are_stored_in_one_go(store: Store) -> None:
    due = due_job(START)
    future = new_job(once(at(3600)), next_due=at(3600), queue="slow")
    recurring = new_job(every(10), fires=[at(0), at(10)], next_due=at(20), priority=8)
    await insert(store, due, future, recurring)

    live = {row["run_id"]: row for row in await rows(store, "live_runs")}
    assert set(live) == {
        scheduled_run_id(START, due.job_id),
        *(scheduled_run_id(at(second), recurring.job_id) for second in (0, 10)),
    }
    assert {row["cause"] for row in live.values() if row["job_id"] == due.job_id} == {Cause.ONCE}
    assert {row["cause"] for row in live.values() if row["job_id"] == recurring.job_id} == {Cause.SCHEDULE}
    assert all(row["ready_at"] == row["scheduled_for"] and row["state"] == RunState.QUEUED for row in live.values())
    cursors = {row["job_id"]: row for row in await rows(store, "timetable")}
    assert {job_id: (row["next_fire"], row["recurring"], row["shard"]) for job_id, row in cursors.items()} == {
        future.job_id: (at(3600), False, shard_of(future.job_id)),
        recurring.job_id: (at(20), True, shard_of(recurring.job_id)),
    }


async def test_jobs_of_a_large_batch_are_stored_as_few_are_however_like_their_neighbours(store: Store) -> None:
    others = [
        {}, {"name": "b"}, {"kind": "command"}, {"needs": "command"}, {"queue": "slow"}, {"priority": 8},
        {"owner": "eve"}, {"payload": {"more": 1}}, {"created_at": START}, {"timing": once(at(5))},
        {"timing": once(at(7200)), "fires": [], "next_due": at(7200)},
    ]  # fmt: skip
    alike: dict[str, Any] = {"timing": once(START), "fires": [START]}
    await store.names.create_namespace("elsewhere")
    elsewhere = await store.names.find_namespace("elsewhere")
    said = [{**alike, **each} for other in others for each in (other, {}, {}, other)]
    for fields in said:
        if fields["fires"]:
            fields["fires"] = [fields["timing"].only_instant]
    many, few = ([new_job(**fields) for fields in said] for _ in range(2))
    for new in (many, few):  # those of several callers are stored together, too
        for change in ({"created_by": "eve"}, {"namespace_id": elsewhere}, {}):
            new.append(msgspec.structs.replace(new_job(**alike), **change))
    assert len(many) > FEW_MAX
    await insert(store, *many)
    for begin in range(0, len(few), FEW_MAX):
        await insert(store, *few[begin : begin + FEW_MAX])

    for table in ("jobs", "live_runs", "timetable"):
        stored = {row["job_id"]: dict(row) for row in await rows(store, table)}
        for each in stored.values():
            for identity in ("job_id", "run_id", "shard"):
                each.pop(identity, None)
        assert [stored.get(new.job_id) for new in many] == [stored.get(new.job_id) for new in few]
    runs = {row["job_id"]: row["run_id"] for row in await rows(store, "live_runs")}
    assert runs == {new.job_id: scheduled_run_id(due, new.job_id) for new in [*many, *few] for due in new.fires}
    shards = {row["job_id"]: row["shard"] for row in await rows(store, "timetable")}
    assert shards == {new.job_id: shard_of(new.job_id) for new in [*many, *few] if new.next_due}


@pytest.mark.parametrize(
    ("table", "columns"), [("jobs", JOB_COLUMNS), ("live_runs", RUN_COLUMNS), ("timetable", CURSOR_COLUMNS)]
)
async def test_a_column_with_an_unforeseeable_default_is_left_to_the_database_when_plain_jobs_are_copied(
    store: Store, table: str, columns: Sequence[str]
) -> None:
    async with store.database.connection() as db:
        unforeseeable = await db.fetchval(
            "SELECT array_agg(column_name::text) FROM information_schema.columns"
            " WHERE table_schema = $1 AND table_name = $2 AND column_default LIKE '%random()%'",
            store.database.schema, table,
        )  # fmt: skip
    assert unforeseeable
    assert not set(unforeseeable) & set(columns)


async def test_all_jobs_of_a_batch_are_stored_or_none(store: Store) -> None:
    job = due_job(START)
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert(store, job, job)
    assert await rows(store, "jobs") == await rows(store, "live_runs") == []


async def test_a_job_is_read_back_as_it_was_defined(store: Store) -> None:
    full = definition(
        Timing((CronSchedule("0 9 * * MON-FRI"), At(at(60))), "Europe/Berlin", at(0), at(1e7)),
        name="report",
        payload={"n": 1, "deep": [None, "ü", 1.5]},
        queue="reports",
        priority=9,
        retry=RetryPolicy(7, delays_seconds=(1.0, 2.5)),
        catchup=CatchUpPolicy(CatchUp.ALL, timedelta(minutes=7), 3),
        timeout_seconds=0.5,
        labels={"team": "data"},
        description="why",
        owner="lin",
    )
    job = new_job(full.timing, next_due=at(60))
    [job_id] = await insert(store, type(job)(job.job_id, NAMESPACE, full, START, "ada", (), at(60)))
    found = await get(store, job_id)
    assert found.definition == full
    assert (found.version, found.state, found.next_due, found.created_by) == (1, JobState.SCHEDULED, at(60), "ada")
    assert found.namespace == "default"


async def test_a_job_that_runs_at_once_is_told_from_one_that_was_given_its_time(store: Store) -> None:
    now, later = new_job(Timing((Now(START),)), fires=[START], created_at=START), due_job(at(5))
    await insert(store, now, later)
    assert (await get(store, now.job_id)).definition.timing == Timing((Now(START),))
    assert (await get(store, later.job_id)).definition.timing == Timing((At(at(5)),))


async def test_a_job_of_another_namespace_does_not_exist(store: Store) -> None:
    [job_id] = await insert(store, due_job())
    assert await store.jobs.get_job(NAMESPACE + 1, job_id) is None
    assert await store.jobs.get_job(NAMESPACE, ids.new_id(START)) is None


async def test_a_job_is_completed_once_nothing_is_due_and_nothing_runs(store: Store) -> None:
    [job_id] = await insert(store, due_job())
    assert ((await get(store, job_id)).state, (await get(store, job_id)).next_due) == (JobState.SCHEDULED, START)
    [held] = await claim(store, 1)
    assert (await get(store, job_id)).state is JobState.SCHEDULED
    await store.live_runs.finish_runs([succeeded(held)])
    assert ((await get(store, job_id)).state, (await get(store, job_id)).next_due) == (JobState.COMPLETED, None)


async def test_the_next_due_time_is_that_of_a_waiting_run_before_that_of_the_cursor(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(0), at(10)], next_due=at(20)))
    assert (await get(store, job_id)).next_due == at(0)
    await claim(store, 1, at(0))
    assert (await get(store, job_id)).next_due == at(10)


# --- lists ------------------------------------------------------------------------------------------------


async def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repetition(store: Store) -> None:
    made = [due_job(created_at=at(number)) for number in range(25)]
    await insert(store, *made)
    seen: list[UUID] = []
    before = None
    while page := await store.jobs.list_jobs(NAMESPACE, before, 10, 0, {}):
        seen += [job.job_id for job in page]
        before = seen[-1]
    assert seen == [job.job_id for job in reversed(made)]


async def test_pages_can_also_be_counted(store: Store) -> None:
    made = [due_job(created_at=at(number)) for number in range(5)]
    await insert(store, *made)
    page = await store.jobs.list_jobs(NAMESPACE, None, 2, 2, {})
    assert [job.job_id for job in page] == [made[2].job_id, made[1].job_id]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"name": "report"}, {"report"}),
        ({"kind": "special"}, {"special"}),
        ({"queue": "slow"}, {"slow"}),
        ({"owner": "lin"}, {"lin"}),
        ({"labels": {"team": "data"}}, {"labelled"}),
        ({"labels": {"team": "other"}}, set()),
        ({"priorities": [8, 9]}, {"urgent"}),
        ({"recurring": True}, {"beat"}),
        ({"state": "completed"}, {"done"}),
        ({"state": "paused"}, {"held"}),
        ({"state": "cancelled"}, {"gone"}),
        ({"state": "scheduled", "recurring": True}, {"beat"}),
        ({"name": "report", "queue": "slow"}, set()),
    ],
)
async def test_a_filter_finds_what_it_names(store: Store, filters: dict[str, object], expected: set[str]) -> None:
    done = due_job(name="done")
    await insert(store, done)
    [held] = await claim(store, 1)
    await store.live_runs.finish_runs([succeeded(held)])
    paused, cancelled = due_job(at(9), name="held"), due_job(at(9), name="gone")
    await insert(
        store,
        paused,
        cancelled,
        due_job(name="report"),
        due_job(name="special", kind="special"),
        due_job(name="slow", queue="slow"),
        due_job(name="lin", owner="lin"),
        due_job(name="labelled", labels={"team": "data", "a": "b"}),
        due_job(name="urgent", priority=8),
        new_job(every(10), next_due=at(10), name="beat"),
    )
    await set_status(store, paused.job_id, JobState.PAUSED)
    await set_status(store, cancelled.job_id, JobState.CANCELLED)
    found = await store.jobs.list_jobs(NAMESPACE, None, 100, 0, filters)
    assert {job.definition.name for job in found} == expected


# --- changes ----------------------------------------------------------------------------------------------


async def test_a_change_makes_a_new_version_and_keeps_the_old_one(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), next_due=at(10), name="first"))
    assert await change(store, job_id, definition(every(60), name="second"), at(60)) == []
    assert await change(store, job_id, definition(every(60), name="third"), at(60), version=2) == []
    found = await get(store, job_id)
    assert (found.version, found.definition.name, found.next_due, found.updated_at) == (3, "third", at(60), START)
    versions = await store.versions.list_versions(NAMESPACE, job_id, None, 10)
    assert [(old.version, old.definition.name) for old in versions] == [
        (3, "third"),
        (2, "second"),
        (1, "first"),
    ]


async def test_a_change_of_another_version_than_the_expected_one_changes_nothing(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(10)], next_due=at(20)))
    before = await get(store, job_id)
    assert await change(store, job_id, definition(every(60), name="late"), at(60), version=2) is None
    assert await get(store, job_id) == before
    assert len(await rows(store, "live_runs")) == 1
    assert len(await store.versions.list_versions(NAMESPACE, job_id, None, 10)) == 1


async def test_a_change_withdraws_unstarted_future_runs_and_sets_the_cursor_back(store: Store) -> None:
    job = new_job(every(10), fires=[at(0), at(10), at(20)], next_due=at(30))
    [job_id] = await insert(store, job)
    await change(store, job_id, definition(every(10), queue="slow", priority=9), at(10), now=at(5))
    [left] = await rows(store, "live_runs")
    assert left["scheduled_for"] == at(0), "a run that is due already stays"
    lanes = await store.names.lanes()
    assert (lanes[left["lane_id"]].queue, left["priority"], left["version"]) == ("slow", 9, 2)
    [cursor] = await rows(store, "timetable")
    assert (cursor["next_fire"], cursor["version"], cursor["priority"]) == (at(10), 2, 9)


async def test_a_change_names_the_runs_it_came_too_late_for(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(0), at(10)], next_due=at(20)))
    [held] = await claim(store, 1, at(0))
    assert await change(store, job_id, definition(every(60)), at(60), now=at(-0.02)) == [held.run_id]
    assert [row["run_id"] for row in await rows(store, "live_runs")] == [held.run_id]


async def test_a_new_time_for_a_job_that_runs_once_takes_back_the_run_of_the_old_one(store: Store) -> None:
    [job_id] = await insert(store, due_job(at(1)))
    await change(store, job_id, definition(once(at(500))), at(500))
    assert await rows(store, "live_runs") == []
    assert (await get(store, job_id)).next_due == at(500)


async def test_a_paused_job_that_is_changed_stays_paused(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), next_due=at(10)))
    await set_status(store, job_id, JobState.PAUSED)
    await change(store, job_id, definition(every(60)), at(60))
    assert (await get(store, job_id)).state is JobState.PAUSED
    assert await rows(store, "timetable") == []


async def test_a_running_run_whose_job_got_a_new_time_is_still_stopped_with_the_job(store: Store) -> None:
    [job_id] = await insert(store, due_job(at(0)))
    [held] = await claim(store, 1, at(0))
    assert await change(store, job_id, definition(once(at(500))), at(500), now=at(1)) == [held.run_id]
    assert await set_status(store, job_id, JobState.CANCELLED, now=at(2)) == [held.run_id]
    assert await store.live_runs.cancelling_runs(1) == [(held.run_id, held.fence)]


async def test_a_due_run_whose_job_got_a_new_time_is_still_listed_with_the_job(store: Store) -> None:
    [job_id] = await insert(store, due_job(at(0)))
    await change(store, job_id, definition(every(60)), at(60), now=at(1))
    listed = await store.runs.list_runs(NAMESPACE, await get(store, job_id), [*RunState], None, 10)
    assert [run.scheduled_for for run in listed] == [at(0)]


# --- pause, resume, cancel --------------------------------------------------------------------------------


async def test_a_pause_takes_back_future_runs_and_the_cursor_and_says_why(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(0), at(10)], next_due=at(20)))
    assert await set_status(store, job_id, JobState.PAUSED, now=at(1)) == []
    job = await get(store, job_id)
    assert (job.state, job.pause_reason) == (JobState.PAUSED, "because")
    assert [row["scheduled_for"] for row in await rows(store, "live_runs")] == [at(0)]
    assert await rows(store, "timetable") == []


async def test_a_pause_lets_running_runs_go_on_and_names_them(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(0)], next_due=at(10)))
    [held] = await claim(store, 1)
    assert await set_status(store, job_id, JobState.PAUSED, now=at(1)) == [held.run_id]
    assert await store.live_runs.cancelling_runs(1) == []
    assert await store.live_runs.finish_runs([succeeded(held)]) == {held.run_id}


async def test_a_resumed_job_goes_on_where_its_cursor_was_set(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), next_due=at(10)))
    await set_status(store, job_id, JobState.PAUSED)
    await set_status(store, job_id, JobState.SCHEDULED, at(50))
    job = await get(store, job_id)
    assert (job.state, job.next_due, job.pause_reason) == (JobState.SCHEDULED, at(50), None)


async def test_cancel_ends_waiting_runs_takes_back_future_ones_and_asks_running_ones_to_stop(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(0), at(10), at(20)], next_due=at(30)))
    [held] = await claim(store, 1, at(0))
    assert await set_status(store, job_id, JobState.CANCELLED, now=at(15)) == [held.run_id]
    assert (await get(store, job_id)).state is JobState.CANCELLED
    assert [(row["run_id"], row["state"]) for row in await rows(store, "live_runs")] == [(held.run_id, 4)]
    [ended] = await rows(store, "runs")
    assert (ended["scheduled_for"], ended["state"], ended["reason"]) == (at(10), RunState.CANCELLED, "job_cancelled")
    assert await rows(store, "timetable") == []


async def test_a_job_that_runs_once_and_is_cancelled_in_time_leaves_no_run(store: Store) -> None:
    [job_id] = await insert(store, due_job(at(1)))
    assert await set_status(store, job_id, JobState.CANCELLED, now=at(0)) == []
    assert await rows(store, "live_runs") == await rows(store, "runs") == []


async def test_manual_runs_survive_a_pause_and_end_with_a_cancel(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), next_due=at(10)))
    run_id = ids.new_id(START)
    await store.runs.insert_manual_run(run_id, await get(store, job_id), NAMESPACE, "ada", None, None, START)
    await set_status(store, job_id, JobState.PAUSED, now=at(-5))
    assert [row["run_id"] for row in await rows(store, "live_runs")] == [run_id]
    await set_status(store, job_id, JobState.CANCELLED, now=at(5))
    assert [row["run_id"] for row in await rows(store, "runs")] == [run_id]


# --- a change beside a planner ----------------------------------------------------------------------------


async def test_a_pause_also_takes_back_the_run_that_a_planner_is_just_making(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(10)))
    move = Move(job_id, at(10), 1, [at(10)], [], at(20))
    async with planning(store) as commit:
        await commit.advance(node_id, epoch, move)
        await commit.then(set_status(store, job_id, JobState.PAUSED, now=at(9)))
    assert await rows(store, "live_runs") == [], "the pause was acknowledged before the due time"


async def test_a_new_schedule_also_replaces_the_run_that_a_planner_is_just_making(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(10)))
    move = Move(job_id, at(10), 1, [at(10)], [], at(20))
    async with planning(store) as commit:
        await commit.advance(node_id, epoch, move)
        await commit.then(change(store, job_id, definition(every(100)), at(100), now=at(9)))
    assert await rows(store, "live_runs") == []
    assert [row["next_fire"] for row in await rows(store, "timetable")] == [at(100)]


async def test_a_new_time_beside_a_planner_does_not_make_a_job_run_twice(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(once(at(10)), next_due=at(10)))
    async with planning(store) as commit:
        await commit.fire_once(node_id, epoch, at(10))
        await commit.then(change(store, job_id, definition(once(at(100))), at(100), now=at(9)))
    assert await rows(store, "live_runs") == []
    assert [row["next_fire"] for row in await rows(store, "timetable")] == [at(100)]


# --- a due time is never run twice ------------------------------------------------------------------------


async def fire_again(store: Store, job_id: UUID, due: object) -> list[object]:
    """A planner that meets the cursor where the change has put it."""
    node_id, epoch = await own_all_shards(store)
    cursors, _ = await store.timetable.due_cursors(node_id, epoch, at(60), 10)
    moves = [
        Move(c.job_id, c.next_fire, c.version, [c.next_fire], [], c.next_fire + timedelta(hours=1)) for c in cursors
    ]
    await store.timetable.advance_cursors(node_id, epoch, moves, at(0))
    return [row["scheduled_for"] for row in await rows(store, "live_runs") if row["scheduled_for"] == due]


async def test_a_run_that_ended_is_not_made_again_by_a_change_that_came_too_late_for_it(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(10)], next_due=at(20)))
    [held] = await claim(store, 1, at(10))  # 50 ms before its time
    assert await change(store, job_id, definition(every(10), name="new"), at(10), now=at(9.97)) == [held.run_id]
    await store.live_runs.finish_runs([succeeded(held, at(10.001))])
    assert await fire_again(store, job_id, at(10)) == []


async def test_a_run_that_was_cancelled_before_its_time_does_not_come_back_with_a_change(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), fires=[at(10)], next_due=at(20)))
    run_id = scheduled_run_id(at(10), job_id)
    assert await store.runs.cancel_runs(NAMESPACE, [run_id], "cancelled", at(8)) == {run_id: True}
    await change(store, job_id, definition(every(10), name="new"), at(10), now=at(9))
    assert await fire_again(store, job_id, at(10)) == []


async def test_a_run_made_again_after_its_end_does_not_hold_up_the_outcomes_of_others(store: Store) -> None:
    [job_id, _] = await insert(store, due_job(at(0), priority=9), due_job(at(0), name="neighbour"))
    first, neighbour = sorted(await claim(store, 1), key=lambda one: one.job_id != job_id)
    await store.live_runs.finish_runs([succeeded(first)])
    await execute(
        store,
        "INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, "
        "state, priority, cause) "
        "SELECT run_id, job_id, scheduled_for, scheduled_for, namespace_id, 1, version, 0, 9, cause "
        "FROM hourhand.runs",
    )
    [again] = await claim(store, 1)
    assert again.run_id == first.run_id
    assert neighbour.run_id in await store.live_runs.finish_runs([succeeded(again), succeeded(neighbour)])


# --- due times that nobody planned ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["change", "pause"])
async def test_due_times_that_nobody_planned_run_although_the_job_is_then_changed(store: Store, verb: str) -> None:
    new = new_job(every(2), next_due=at(2))
    await insert(store, new)
    if verb == "change":
        changed = definition(every(60), name="changed")
        await store.jobs.change_job(NAMESPACE, new.job_id, changed, 1, at(60), at(7), "ada")
    else:
        await store.jobs.set_status(NAMESPACE, new.job_id, JobState.PAUSED, None, None, at(7))
    assert [row["scheduled_for"] for row in await rows(store, "live_runs")] == [at(2), at(4), at(6)]


async def test_due_times_that_nobody_planned_are_in_the_ledger_when_the_job_is_cancelled(store: Store) -> None:
    new = new_job(every(2), next_due=at(2))
    await insert(store, new)
    await store.jobs.set_status(NAMESPACE, new.job_id, JobState.CANCELLED, None, None, at(7))
    assert await rows(store, "live_runs") == []
    kept = await rows(store, "ledger_ranges")
    assert sum(row["count"] for row in kept) == 3
    assert {row["reason"] for row in kept} == {"job_cancelled"}
