"""Plan guards: with a million finished and a hundred thousand live runs, every hot statement goes by an index and
touches a bounded number of pages: at its first execution, and when PostgreSQL has settled for a plan (after five)."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from plan_ground import (
    GATES,
    JOBS,
    LANES,
    SLOTS,
    Ground,
    assert_by_index,
    both_ways,
    explain,
    filled_ground,
    held_fences,
)
from sample_jobs import NAMESPACE, START, at

from hourhand.model.catchup import MissedRange
from hourhand.model.gates import PRIORITY_WAIT
from hourhand.model.ids import lowest_id_at, scheduled_run_id
from hourhand.model.states import FINAL_STATES, LIVE_STATES, Reason
from hourhand.ports.stores import EPOCH
from hourhand.store.ledger_rows import LedgerRow, columns_of


@pytest.fixture(scope="module")
async def ground(database_url: str) -> AsyncIterator[Ground]:
    async with filled_ground(database_url) as filled:
        yield replace(filled, plan_once=True)


@both_ways
async def test_looking_for_work_touches_one_entry_per_lane_and_priority(ground: Ground, settled: bool) -> None:
    lanes = list(range(1, LANES + 1))
    plan = await explain(ground, "live_runs.sql", "peek_ready", settled, lanes=lanes)
    assert_by_index(plan, ground, 1000)
    assert plan.rows >= LANES


@both_ways
async def test_a_look_at_what_is_known_touches_one_entry_each(ground: Ground, settled: bool) -> None:
    lanes = [lane for lane in range(1, LANES + 1) for _ in range(3)]
    since = [at(JOBS / 2)] * len(lanes)
    plan = await explain(
        ground, "live_runs.sql", "peek_known", settled, lanes=lanes, priorities=[2, 1, 0] * LANES, since=since
    )
    assert_by_index(plan, ground, 1000)


@both_ways
async def test_a_look_for_a_crowd_reads_no_more_entries_than_make_one(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "live_runs.sql", "is_crowd", settled,
        lane_id=1, priority=1, since=EPOCH, until=at(JOBS), count=100,
    )  # fmt: skip
    assert_by_index(plan, ground, 500, rows=1)


@both_ways
async def test_a_claim_of_a_hundred_reads_hardly_more_than_it_claims(ground: Ground, settled: bool) -> None:
    lanes = [lane for lane in range(1, LANES + 1) for _ in range(3)]
    plan = await explain(
        ground, "live_runs.sql", "claim_runs", settled,
        lanes=lanes, priorities=[2, 1, 0] * LANES, since=[EPOCH] * 3 * LANES, shares=[1] * 3 * LANES,
        limits=[100] * 3 * LANES, now=at(JOBS),
        until=at(JOBS), others_until=at(JOBS), executor_id=1,
    )  # fmt: skip
    # Two in three are followed by another run of their job that is due as well, and that is put aside.
    assert_by_index(plan, ground, 6500, rows=167)


@both_ways
async def test_a_claim_when_nothing_is_due_reads_next_to_nothing(ground: Ground, settled: bool) -> None:
    lanes = [lane for lane in range(1, LANES + 1) for _ in range(3)]
    plan = await explain(
        ground, "live_runs.sql", "claim_runs", settled,
        lanes=lanes, priorities=[2, 1, 0] * LANES, since=[EPOCH] * 3 * LANES, shares=[1] * 3 * LANES,
        limits=[100] * 3 * LANES, now=at(-1),
        until=at(-1), others_until=at(-1), executor_id=1,
    )  # fmt: skip
    assert_by_index(plan, ground, 1000, rows=0)


@both_ways
async def test_starting_a_hundred_runs_goes_by_their_ids(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    plan = await explain(
        ground, "live_runs.sql", "start_runs", settled,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        started=[START] * 100,
    )  # fmt: skip
    assert_by_index(plan, ground, 5000)


@both_ways
async def test_finishing_a_hundred_runs_goes_by_their_ids(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    plan = await explain(
        ground, "live_runs.sql", "finish_runs", settled,
        priority_wait=PRIORITY_WAIT,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        states=[10] * 100, started=[START] * 100, ended=[START] * 100, reasons=[None] * 100, errors=[None] * 100,
        results=[None] * 100, usages=[None] * 100, from_states=[2, 3, 4],
    )  # fmt: skip
    assert_by_index(plan, ground, 6000)


@both_ways
async def test_runs_whose_end_sets_the_next_due_time_find_their_delay_by_the_job(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    ids = ", ".join(f"'{ground.run_id(number)}'" for number in numbers)
    schema = ground.database.schema
    plan = await explain(
        ground, "live_runs.sql", "finish_runs", settled,
        priority_wait=PRIORITY_WAIT,
        after=f"UPDATE {schema}.live_runs SET gate_ids = '{{}}', cause = 1 WHERE run_id IN ({ids})",
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        states=[10] * 100, started=[START] * 100, ended=[START] * 100, reasons=[None] * 100, errors=[None] * 100,
        results=[None] * 100, usages=[None] * 100, from_states=[2, 3, 4],
    )  # fmt: skip
    assert_by_index(plan, ground, 9000)


@both_ways
async def test_bringing_back_a_hundred_runs_goes_by_their_ids(ground: Ground, settled: bool) -> None:
    numbers = [10 + 20 * place for place in range(100)]
    plan = await explain(
        ground, "live_runs.sql", "requeue_runs", settled,
        priority_wait=PRIORITY_WAIT,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        ready=[START] * 100, failed=[1] * 100, lost=[0] * 100, states=[11] * 100, started=[START] * 100,
        ended=[START] * 100, reasons=["exit_code"] * 100, errors=[None] * 100, usages=[None] * 100, from_states=[2, 3],
    )  # fmt: skip
    assert_by_index(plan, ground, 8000, rows=100)


@both_ways
async def test_cancelling_runs_are_found_by_their_executor(ground: Ground, settled: bool) -> None:
    plan = await explain(ground, "live_runs.sql", "cancelling_runs", settled, executor_id=1)
    assert_by_index(plan, ground, 200, rows=100)


@both_ways
@pytest.mark.parametrize("name", ["cancel_waiting", "request_cancel"])
async def test_a_run_is_cancelled_by_its_id(ground: Ground, name: str, settled: bool) -> None:
    more = {"now": START, "reason": "cancelled"} if name == "cancel_waiting" else {}
    run_ids = [ground.run_id(3)]
    plan = await explain(ground, "live_runs.sql", name, settled, run_ids=run_ids, namespace_id=NAMESPACE, **more)
    assert_by_index(plan, ground, 200)


@both_ways
async def test_firing_jobs_that_run_once_reads_what_is_due_and_nothing_else(ground: Ground, settled: bool) -> None:
    span = {"since": EPOCH, "until": at(2000)}
    plan = await explain(ground, "timetable.sql", "fire_once", settled, node_id=1, epoch=1, limit=500, **span)
    assert_by_index(plan, ground, 20_000)


@both_ways
async def test_due_cursors_are_read_in_order_of_time(ground: Ground, settled: bool) -> None:
    span = {"since": EPOCH, "shard": 0, "until": at(2000)}
    plan = await explain(ground, "timetable.sql", "due_cursors", settled, node_id=1, epoch=1, limit=500, **span)
    assert_by_index(plan, ground, 5000, rows=500)


@both_ways
async def test_who_reads_on_in_a_crowd_does_not_walk_over_what_he_has_read(ground: Ground, settled: bool) -> None:
    schema, due = ground.database.schema, at(10 * JOBS)  # behind all others, whose looks it must not lie in the way of
    crowd = f"UPDATE {schema}.timetable SET next_fire = '{due.isoformat()}' WHERE recurring AND shard % 4 = 1"
    span = {"since": due, "shard": 1010, "until": due}
    plan = await explain(
        ground, "timetable.sql", "due_cursors", settled, after=crowd, node_id=1, epoch=1, limit=500, **span
    )
    assert_by_index(plan, ground, 5000)
    assert 0 < plan.rows < 500


@both_ways
async def test_a_look_at_the_timetable_when_nothing_is_due_costs_nothing(ground: Ground, settled: bool) -> None:
    for name, shard in (("fire_once", {}), ("due_cursors", {"shard": 0})):
        span = {"since": EPOCH, "until": at(-1), **shard}
        plan = await explain(ground, "timetable.sql", name, settled, node_id=1, epoch=1, limit=500, **span)
        assert_by_index(plan, ground, 50, rows=0)


@both_ways
@pytest.mark.parametrize("others", [False, True], ids=["on time", "late"])
async def test_cursors_are_moved_by_the_ids_of_their_jobs(ground: Ground, others: bool, settled: bool) -> None:
    numbers = [1 + 2 * place for place in range(200)]
    jobs = [ground.jobs[number] for number in numbers]
    later = [ground.due(number) + timedelta(days=5) for number in numbers]
    plan = await explain(
        ground, "timetable.sql", "advance_cursors", settled,
        now=at(0),
        node_id=1, epoch=1, job_ids=jobs, expected=[ground.due(number).timestamp() for number in numbers],
        versions=[1] * 200, next_fires=later,
        run_ids=[None if others else scheduled_run_id(due, job) for due, job in zip(later, jobs, strict=True)],
        other_run_ids=[scheduled_run_id(due, job) for due, job in zip(later, jobs, strict=True)] * others,
        other_job_ids=jobs * others, other_dues=[due.timestamp() for due in later] * others,
        other_ready=[due.timestamp() for due in later] * others,
        missed_job_ids=[], **columns_of([], "missed_"),
    )  # fmt: skip
    assert_by_index(plan, ground, 12_000, rows=200)


@both_ways
async def test_cursors_with_budgets_and_calendars_are_moved_by_the_ids_of_their_jobs(
    ground: Ground, settled: bool
) -> None:
    numbers = [1 + 2 * place for place in range(200)]
    jobs = [ground.jobs[number] for number in numbers]
    dues = [ground.due(number) for number in numbers]
    later = [due + timedelta(days=5) for due in dues]
    left_out = [LedgerRow(MissedRange(due, due, 1, Reason.EXCLUDED, due + timedelta(days=1))) for due in dues]
    plan = await explain(
        ground, "timing_facts.sql", "advance_cursors", settled,
        now=at(0), node_id=1, epoch=1, job_ids=jobs, expected=dues, versions=[1] * 200, next_fires=later,
        made=[1] * 200,
        run_ids=[scheduled_run_id(due, job) for due, job in zip(later, jobs, strict=True)],
        run_job_ids=jobs, run_dues=later, run_ready=later, missed_job_ids=jobs, **columns_of(left_out, "missed_"),
    )  # fmt: skip
    assert_by_index(plan, ground, 16_000, rows=200)


@both_ways
async def test_the_last_page_of_cursors_in_changed_zones_costs_as_much_as_the_first(
    ground: Ground, settled: bool
) -> None:
    for number in (1, JOBS - 600):  # a millisecond lies between the ids of two jobs
        last_id = lowest_id_at(START + timedelta(milliseconds=number))
        page = {"zones": ["UTC"], "last_id": last_id, "since_id": lowest_id_at(at(0)), "limit": 200}
        plan = await explain(ground, "zones.sql", "cursors_in_zones", settled, **page)
        assert_by_index(plan, ground, 10_000, rows=200)


@both_ways
async def test_when_the_next_job_falls_due_is_the_first_entry_of_an_index(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "timetable.sql", "next_cursor", settled, since=EPOCH), ground, 20)


@both_ways
@pytest.mark.parametrize("number", [4, 5], ids=["once", "recurring"])
async def test_a_job_is_locked_by_its_id(ground: Ground, number: int, settled: bool) -> None:
    plan = await explain(ground, "jobs.sql", "lock_job", settled, namespace_id=NAMESPACE, job_id=ground.jobs[number])
    assert_by_index(plan, ground, 100, rows=1)


@both_ways
@pytest.mark.parametrize("count", [1, 200])
async def test_jobs_are_read_by_their_ids(ground: Ground, count: int, settled: bool) -> None:
    wanted = {"namespace_ids": [NAMESPACE] * count, "job_ids": [ground.jobs[number] for number in range(1, 1 + count)]}
    plan = await explain(ground, "jobs.sql", "get_jobs", settled, **wanted)
    assert_by_index(plan, ground, 100 * count, rows=count)


@both_ways
async def test_the_timings_of_jobs_are_read_by_their_ids(ground: Ground, settled: bool) -> None:
    jobs = [ground.jobs[1 + 2 * place] for place in range(200)]
    wanted = {"namespace_ids": [NAMESPACE] * 200, "job_ids": jobs, "versions": [1] * 200}
    plan = await explain(ground, "timetable.sql", "read_timings", settled, **wanted)
    assert_by_index(plan, ground, 5000, rows=200)


@both_ways
@pytest.mark.parametrize(("name", "later"), [("get_live_run", 0.0), ("get_finished_run", 0.5)])
async def test_a_run_is_read_by_its_id(ground: Ground, name: str, later: float, settled: bool) -> None:
    run_id = scheduled_run_id(at(5 + later), ground.jobs[5])
    plan = await explain(ground, "runs.sql", name, settled, namespace_id=NAMESPACE, run_id=run_id)
    assert_by_index(plan, ground, 100, rows=1)


@both_ways
async def test_the_newest_finished_runs_are_read_off_the_end_of_their_index(ground: Ground, settled: bool) -> None:
    for before in (UUID(int=(1 << 128) - 1), scheduled_run_id(at(200_000), ground.jobs[1])):
        plan = await explain(
            ground, "runs.sql", "list_finished_runs", settled,
            namespace_id=NAMESPACE, states=FINAL_STATES, before=before, since=UUID(int=0), reasons=None, limit=50,
            look=10_000,
        )  # fmt: skip
        assert_by_index(plan, ground, 1000, rows=50)


@both_ways
async def test_runs_that_failed_are_read_off_an_index_that_has_no_others(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "runs.sql", "list_finished_runs", settled,
        namespace_id=NAMESPACE, states=[11, 12], before=UUID(int=(1 << 128) - 1), since=UUID(int=0), reasons=None,
        limit=50, look=10_000,
    )  # fmt: skip
    assert_by_index(plan, ground, 1000, rows=50)
    assert re.search(r"runs_\d+_namespace_id_run_id_idx: [1-9]", plan.text), plan.text  # of `runs_unwell`


@both_ways
async def test_the_finished_runs_of_a_job_are_found_by_the_job(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "runs.sql", "list_finished_runs_of_job", settled,
        namespace_id=NAMESPACE, job_id=ground.jobs[5], states=FINAL_STATES, before=UUID(int=(1 << 128) - 1),
        since=UUID(int=0), reasons=None, limit=50,
            look=10_000,
    )  # fmt: skip
    assert_by_index(plan, ground, 500, rows=10)


@both_ways
@pytest.mark.parametrize("number", [4, 5], ids=["once", "recurring"])
async def test_the_live_runs_of_a_job_are_found_by_the_job_or_by_their_id(
    ground: Ground, number: int, settled: bool
) -> None:
    plan = await explain(
        ground, "runs.sql", "list_live_runs_of_job", settled,
        namespace_id=NAMESPACE, job_id=ground.jobs[number], states=LIVE_STATES, before=UUID(int=(1 << 128) - 1),
        since=UUID(int=0), limit=50,
        once_run_id=ground.run_id(number) if number % 2 == 0 else None,
    )  # fmt: skip
    assert_by_index(plan, ground, 200, rows=1)


@both_ways
@pytest.mark.parametrize("number", [4, 5], ids=["once", "recurring"])
async def test_the_verbs_of_a_job_find_its_live_runs_by_the_job_or_by_their_id(
    ground: Ground, number: int, settled: bool
) -> None:
    which = {"job_id": ground.jobs[number], "once_run_id": ground.run_id(number) if number % 2 == 0 else None}
    for name, more in (
        ("job_live_runs", {}),
        ("withdraw_runs", {"now": at(-1)}),
        ("refresh_lane_of_runs", {"lane_id": 1, "priority": 1, "version": 2, "now": at(-1), "gate_ids": None}),
    ):
        assert_by_index(await explain(ground, "jobs.sql", name, settled, **which, **more), ground, 200)


@both_ways
async def test_log_lines_are_read_by_their_run(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "logs.sql", "read_logs", settled,
        run_id=ground.jobs[7], after_attempt=0, after_line=0, limit=100,
    )  # fmt: skip
    assert_by_index(plan, ground, 300, rows=100)


@both_ways
async def test_the_tips_of_two_hundred_logs_are_read_off_the_ends_of_theirs(ground: Ground, settled: bool) -> None:
    run_ids = [ground.jobs[number] for number in range(1, 201)]
    assert_by_index(await explain(ground, "logs.sql", "log_tips", settled, run_ids=run_ids), ground, 3000, rows=200)


@both_ways
async def test_attempts_are_read_by_their_run(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "runs.sql", "list_attempts", settled, run_id=ground.run_id(5)), ground, 100)


@both_ways
async def test_the_sweep_of_every_second_does_not_walk_over_all_live_runs(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "nodes.sql", "sweep_nodes", settled), ground, 20)


@both_ways
@pytest.mark.parametrize("of_job", [False, True])
async def test_runs_to_repeat_are_picked_by_time_or_by_job(ground: Ground, of_job: bool, settled: bool) -> None:
    name, more = ("pick_retries_of_job", {"job_id": ground.jobs[5]}) if of_job else ("pick_retries", {})
    plan = await explain(
        ground, "runs.sql", name, settled,
        namespace_id=NAMESPACE, states=[10, 11, 12], reasons=None, since=UUID(int=0), before=UUID(int=(1 << 128) - 1),
        again=False, limit=10, look=10_000, **more,
    )  # fmt: skip
    assert_by_index(plan, ground, 1500, rows=10)


@both_ways
async def test_a_hundred_runs_are_repeated_by_their_ids(ground: Ground, settled: bool) -> None:
    found = await ground.db.fetch(f"SELECT run_id FROM {ground.database.schema}.runs ORDER BY run_id LIMIT 100")
    run_ids = [row["run_id"] for row in found]
    facts = await explain(ground, "runs.sql", "retry_facts", settled, namespace_id=NAMESPACE, run_ids=run_ids)
    assert_by_index(facts, ground, 3000, rows=100)
    plan = await explain(
        ground, "runs.sql", "insert_retries", settled,
        namespace_id=NAMESPACE, run_ids=run_ids, new_ids=[UUID(int=9 << 80 | place) for place in range(100)],
        gate_ids=[None] * 100, expires=[None] * 100, behind=[False] * 100, versions=[1] * 100, seen=run_ids,
        again=False, requested_by="ada", note=None, now=START,
    )  # fmt: skip
    assert_by_index(plan, ground, 8000, rows=100)


@both_ways
async def test_losses_are_counted_by_the_ids_of_the_runs(ground: Ground, settled: bool) -> None:
    run_ids = [ground.run_id(number) for number in (10, 20, 30)]
    plan = await explain(ground, "live_runs.sql", "count_losses", settled, run_ids=run_ids, since=START)
    assert_by_index(plan, ground, 200)


@both_ways
async def test_keys_of_submissions_are_found_by_themselves(ground: Ground, settled: bool) -> None:
    keys = [f"key {number}" for number in range(950, 1050)]
    which = {"namespace_ids": [NAMESPACE] * 100, "keys": keys}
    plan = await explain(
        ground, "submissions.sql", "claim_keys", settled,
        **which, digests=["x"] * 100, job_ids=[f"{{{UUID(int=1)}}}"] * 100, created_at=[START] * 100, kept="1 day",
        patience="1s",
    )  # fmt: skip
    assert_by_index(plan, ground, 5000, rows=100)
    found = await explain(
        ground, "submissions.sql", "find_key", settled, namespace_id=NAMESPACE, key="key 7", since=at(-1)
    )
    assert_by_index(found, ground, 20, rows=1)
    for name, more in (("claim_unique_keys", {"patience": "1s"}), ("take_over_unique_keys", {"nows": [START] * 100})):
        plan = await explain(
            ground, "submissions.sql", name, settled,
            **which, job_ids=[UUID(int=number) for number in range(100)], untils=[None] * 100, **more,
        )  # fmt: skip
        assert_by_index(plan, ground, 10_000)


@both_ways
async def test_a_slice_of_unique_keys_is_judged_by_the_ids_of_their_jobs(ground: Ground, settled: bool) -> None:
    ground = replace(ground, plan_once=False)  # as sessions of the pruner are
    plan = await explain(
        ground, "partitions.sql", "prune_unique_keys", settled, namespace_id=0, key="", now=START, limit=100
    )
    assert_by_index(plan, ground, 10_000, rows=1)
    old = await explain(ground, "partitions.sql", "prune_idempotency_keys", settled, before=at(100), limit=50)
    assert_by_index(old, ground, 1000, rows=50)


# --- gates and turns --------------------------------------------------------------------------------------


@both_ways
async def test_a_look_at_what_waits_sees_the_heads_of_indexes(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "turns.sql", "look", settled, node_id=1, now=at(0)), ground, 300, rows=1)


@both_ways
async def test_the_healing_sweep_looks_at_gates_and_not_at_those_who_wait(ground: Ground, settled: bool) -> None:
    plan = await explain(ground, "turns.sql", "let_go_on", settled, limit=1000)
    assert_by_index(plan, ground, 20 * GATES, rows=0)


@both_ways
async def test_the_healing_sweep_writes_those_that_it_lets_go_and_no_others(ground: Ground, settled: bool) -> None:
    free = f"DELETE FROM {ground.database.schema}.gate_slots WHERE gate_id <= 20"
    plan = await explain(ground, "turns.sql", "let_go_on", settled, after=free, limit=1000)
    assert_by_index(plan, ground, 20 * GATES + 50 * 20 * SLOTS, rows=20 * SLOTS)


@both_ways
async def test_candidates_with_gates_are_read_in_order_and_up_to_a_bound(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "live_runs.sql", "careful_candidates", settled,
        executor_id=1,
        lanes=[LANES + 2] * 3, priorities=[2, 1, 0], since=[EPOCH] * 3, shares=[1] * 3, now=at(JOBS), limit=500,
    )  # fmt: skip
    assert_by_index(plan, ground, 10_000, rows=500)


@both_ways
async def test_a_look_for_candidates_when_none_is_due_reads_next_to_nothing(ground: Ground, settled: bool) -> None:
    plan = await explain(
        ground, "live_runs.sql", "careful_candidates", settled,
        executor_id=1,
        lanes=[LANES + 2] * 3, priorities=[2, 1, 0], since=[EPOCH] * 3, shares=[1] * 3, now=at(-1), limit=500,
    )  # fmt: skip
    assert_by_index(plan, ground, 50, rows=0)


@both_ways
async def test_places_are_counted_by_their_gates(ground: Ground, settled: bool) -> None:
    plan = await explain(ground, "live_runs.sql", "count_slots", settled, gate_ids=list(range(1, 21)))
    assert_by_index(plan, ground, 200, rows=20)


@both_ways
async def test_promises_are_settled_by_their_runs(ground: Ground, settled: bool) -> None:
    run_ids = [ground.jobs[number] for number in range(1, 101)]
    assert_by_index(await explain(ground, "live_runs.sql", "settle_promises", settled, run_ids=run_ids), ground, 1000)


@both_ways
async def test_runs_that_end_find_those_who_wait_for_their_places_by_the_gate(ground: Ground, settled: bool) -> None:
    numbers = [20 * place for place in range(1, 101) if place % 50]
    plan = await explain(
        ground, "live_runs.sql", "finish_runs", settled,
        priority_wait=PRIORITY_WAIT,
        run_ids=[ground.run_id(number) for number in numbers], fences=await held_fences(ground, numbers),
        states=[10] * 98, started=[START] * 98, ended=[START] * 98, reasons=[None] * 98, errors=[None] * 98,
        results=[None] * 98, usages=[None] * 98, from_states=[2, 3, 4],
    )  # fmt: skip
    assert_by_index(plan, ground, 12_000)


@both_ways
async def test_turns_are_read_without_those_who_wait_for_gates(ground: Ground, settled: bool) -> None:
    first_page = {"after_ready": None, "after_id": None}
    plan = await explain(ground, "turns.sql", "waiting_turns", settled, node_id=1, limit=1000, **first_page)
    assert_by_index(plan, ground, 40_000, rows=1000)


@both_ways
async def test_the_unfinished_runs_of_jobs_are_found_by_the_jobs(ground: Ground, settled: bool) -> None:
    jobs = [ground.jobs[1 + 2 * place] for place in range(1000)]
    last = [UUID(int=(1 << 128) - 1)] * 1000
    plan = await explain(
        ground, "turns.sql", "unfinished_of_jobs", settled, job_ids=jobs, last_ids=last, once_run_ids=[]
    )
    assert_by_index(plan, ground, 6000, rows=1000)


@both_ways
async def test_waits_that_took_too_long_are_found_by_their_end(ground: Ground, settled: bool) -> None:
    assert_by_index(await explain(ground, "turns.sql", "expire_runs", settled, now=at(0), limit=1000), ground, 50)


# --- the ledger and pauses --------------------------------------------------------------------------------


@both_ways
async def test_the_ledger_of_a_job_is_read_by_the_job(ground: Ground, settled: bool) -> None:
    job = {"job_id": ground.jobs[5], "since": at(-3600), "until": at(7 * 86_400), "limit": 100}
    plan = await explain(
        ground, "ledger.sql", "ledger_runs", settled,
        namespace_id=NAMESPACE, lowest=lowest_id_at(at(-3600)), highest=lowest_id_at(at(7 * 86_400)), once_run_id=None,
        **job,
    )  # fmt: skip
    assert_by_index(plan, ground, 500, rows=10 + 1)
    assert_by_index(await explain(ground, "ledger.sql", "ledger_stretches", settled, **job), ground, 20, rows=1)
    assert_by_index(await explain(ground, "ledger.sql", "ledger_backfills", settled, **job), ground, 20)
    plan = await explain(ground, "ledger.sql", "ledger_job", settled, namespace_id=NAMESPACE, job_id=ground.jobs[5])
    assert_by_index(plan, ground, 60, rows=1)


@both_ways
async def test_what_was_missed_goes_on_in_the_row_of_its_own_job(ground: Ground, settled: bool) -> None:
    numbers = [1 + 2 * place for place in range(200)]
    jobs = [ground.jobs[number] for number in numbers]
    missed = [
        LedgerRow(MissedRange(ground.due(number), ground.due(number), 1, Reason.CATCHUP_WINDOW, at(86_400)))
        for number in numbers
    ]
    plan = await explain(
        ground, "timetable.sql", "advance_cursors", settled,
        now=at(0),
        node_id=1, epoch=1, job_ids=jobs, expected=[ground.due(number).timestamp() for number in numbers],
        versions=[1] * 200,
        next_fires=[at(86_400)] * 200, run_ids=[None] * 200, other_run_ids=[], other_job_ids=[],
        other_dues=[], other_ready=[], missed_job_ids=jobs,
        **columns_of(missed, "missed_"),
    )  # fmt: skip
    assert_by_index(plan, ground, 12_000)


@both_ways
async def test_without_a_pause_nobody_looks_at_more_than_an_empty_table(ground: Ground, settled: bool) -> None:
    for name, values in (
        ("look_at_pauses", {"now": at(0)}),
        ("wake_resting", {"now": at(0), "limit": 5000}),
        ("settle_pauses", {"now": at(0)}),
        ("end_pauses_over", {"now": at(0)}),
    ):
        assert_by_index(await explain(ground, "pauses.sql", name, settled, **values), ground, 20)


@both_ways
async def test_while_a_pause_holds_many_nobody_walks_over_them_to_find_what_may_go_on(
    ground: Ground, settled: bool
) -> None:
    schema = ground.database.schema
    held = f"""
        WITH pause AS (INSERT INTO {schema}.pauses (namespace_id, labels, paused_at, paused_by, catch_up, settled)
                       VALUES ({NAMESPACE}, '{{}}', '{at(-1).isoformat()}', 'ada', 'none', false) RETURNING pause_id)
        INSERT INTO {schema}.resting (job_id, next_fire, pause_id)
        SELECT t.job_id, t.next_fire, pause_id FROM {schema}.timetable t, pause WHERE t.recurring"""
    plan = await explain(ground, "pauses.sql", "wake_resting", settled, after=held, now=at(0), limit=5000)
    assert_by_index(plan, ground, 200, rows=0)


@both_ways
async def test_pauses_of_weeks_are_looked_through_once_for_all_jobs_of_a_batch(ground: Ground, settled: bool) -> None:
    schema, jobs = ground.database.schema, [ground.jobs[number] for number in range(1, 401, 2)]
    weeks = f"""
        INSERT INTO {schema}.pauses (namespace_id, labels, paused_at, paused_by, ended_at, catch_up, settled)
        SELECT {NAMESPACE}, '{{"team": "ops"}}', due, 'ada', due + interval '1 minute', 'none', true
          FROM generate_series(timestamptz '2029-01-01', timestamptz '2029-02-10', interval '10 minutes') due"""
    plan = await explain(ground, "pauses.sql", "pause_spans", settled, after=weeks, job_ids=jobs)
    assert_by_index(plan, ground, 2000, rows=0)
    job = {"namespace_id": NAMESPACE, "job_id": jobs[0]}
    plan = await explain(ground, "pauses.sql", "pause_spans_since", settled, after=weeks, **job, since=at(0))
    assert_by_index(plan, ground, 400, rows=0)


@both_ways
async def test_jobs_that_fail_are_found_by_their_runs(ground: Ground, settled: bool) -> None:
    run_ids = [ground.run_id(number) for number in range(1, 101)]
    plan = await explain(ground, "pauses.sql", "pause_failing", settled, run_ids=run_ids, now=at(0))
    assert_by_index(plan, ground, 12_000, rows=0)


# --- last, because what is taken back leaves traces that others would walk over -------------------------------


@both_ways
async def test_a_claim_from_a_crowd_of_one_job_asks_about_each_of_its_runs_once(ground: Ground, settled: bool) -> None:
    job, schema = ground.jobs[5], ground.database.schema
    crowd = f"""
        INSERT INTO {schema}.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state,
                                        priority, cause, attempt)
        SELECT {schema}.scheduled_run_id(due, '{job}'), '{job}', due, due, {NAMESPACE}, 6, 1, 0, 2, 1, 0
          FROM generate_series(timestamptz '2029-12-01', timestamptz '2029-12-01 00:04:59', interval '1 second') due"""
    plan = await explain(
        ground, "live_runs.sql", "claim_runs", settled, after=crowd,
        lanes=[6], priorities=[2], since=[EPOCH], shares=[1], limits=[300], now=at(0),
        until=at(-86_400), others_until=at(0), executor_id=1,
    )  # fmt: skip
    # The first is claimed, the others wait for it. Each with all that follow it, that would be 45,000 questions.
    assert plan.rows == 300
    assert plan.pages < 300 * 400, plan.text
