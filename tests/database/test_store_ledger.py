"""The ledger in the database: one row for a stretch, whatever its length, and read page by page."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sample_jobs import NAMESPACE, START, at, every, insert, new_job, own_all_shards, rows

from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange, plan
from hourhand.model.ledger import ledger_page
from hourhand.model.schedule import CronSchedule, Timing
from hourhand.model.states import JobState, Reason
from hourhand.ports.stores import NEVER, Move
from hourhand.wiring import Store

DAY = 86_400
HORIZON = timedelta(seconds=2)


async def planned(store: Store, job_id: UUID, timing: Timing, policy: CatchUpPolicy, now: float) -> None:
    """What a planner that comes back writes, plan after plan."""
    node_id, epoch = await own_all_shards(store)
    cursor = at(0)
    for _ in range(1000):
        found = plan(timing, cursor, at(now), HORIZON, policy)
        move = Move(job_id, cursor, 1, found.fires, found.missed, found.next_due)
        await store.timetable.advance_cursors(node_id, epoch, [move], at(now))
        if found.next_due is None or found.next_due > at(now) + HORIZON:
            return
        cursor = found.next_due


MINUTELY = Timing((CronSchedule("* * * * *"),), "Europe/Berlin")
UNION = Timing((CronSchedule("*/2 * * * *"), CronSchedule("1-59/2 * * * *")), "Europe/Berlin")


@pytest.mark.parametrize("timing", [MINUTELY, UNION, every(60)], ids=["cron", "several", "every"])
@pytest.mark.parametrize("mode", CatchUp)
async def test_three_days_of_silence_of_a_job_of_every_minute_are_one_row(
    store: Store, timing: Timing, mode: CatchUp
) -> None:
    policy = CatchUpPolicy(mode)
    [job_id] = await insert(store, new_job(timing, next_due=at(0), catchup=policy))
    await planned(store, job_id, timing, policy, 3 * DAY)
    [row] = await rows(store, "ledger_ranges")
    runs = await rows(store, "live_runs")
    assert row["count"] + len(runs) == 3 * DAY // 60 + 1
    assert (row["first_due"], row["version"], row["reason"]) == (at(0), 1, "catchup_window")
    facts = await store.ledger.read_ledger(NAMESPACE, job_id, at(0), at(3 * DAY), at(3 * DAY), 10_000)
    assert facts is not None
    entries, more = ledger_page(facts, None, 10_000, compact=False)
    assert more is None
    assert [entry.due_at for entry in entries] == [at(60 * step) for step in range(3 * DAY // 60 + 1)]
    reasons = [entry.reason for entry in entries if entry.reason]
    assert reasons == sorted(reasons, reverse=True), "those before the window come first"
    assert {*reasons} == ({"catchup_window"} if mode is CatchUp.ALL else {"catchup_window", "catchup_last"})


async def test_a_thousand_jobs_that_missed_three_days_write_a_row_each_in_a_moment(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    jobs = [new_job(MINUTELY, next_due=at(0)) for _ in range(1000)]
    await insert(store, *jobs)
    moves = []
    for job in jobs:
        found = plan(MINUTELY, at(0), at(3 * DAY), HORIZON, CatchUpPolicy())
        moves.append(Move(job.job_id, at(0), 1, found.fires, found.missed, found.next_due))
    await store.timetable.advance_cursors(node_id, epoch, moves, at(3 * DAY))
    assert len(await rows(store, "ledger_ranges")) == 1000


async def test_a_stretch_goes_on_only_where_it_ended_and_for_the_same_reason(store: Store) -> None:
    node_id, epoch = await own_all_shards(store)
    [job_id] = await insert(store, new_job(every(10), next_due=at(0)))

    async def missed(first: float, last: float, reason: Reason, following: float) -> None:
        count = int(last - first) // 10 + 1
        gap = MissedRange(at(first), at(last), count, reason, at(following))
        move = Move(job_id, at(first), 1, [], [gap], at(following))
        await store.timetable.advance_cursors(node_id, epoch, [move], START)

    await missed(0, 20, Reason.CATCHUP_WINDOW, 30)
    await missed(30, 50, Reason.CATCHUP_WINDOW, 60)
    await missed(60, 60, Reason.PAUSED, 70)
    await missed(70, 80, Reason.CATCHUP_WINDOW, 90)
    found = [
        (row["first_due"], row["last_due"], row["count"]) for row in await rows(store, "ledger_ranges", "first_due")
    ]
    assert found == [(at(0), at(50), 6), (at(60), at(60), 1), (at(70), at(80), 2)]


async def test_the_ledger_of_another_namespace_is_nobodys_business(store: Store) -> None:
    [job_id] = await insert(store, new_job(every(10), next_due=at(0)))
    assert await store.ledger.read_ledger(NAMESPACE + 1, job_id, at(0), at(9), at(9), 10) is None


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
@pytest.mark.parametrize("compact", [True, False])
async def test_pages_of_any_size_come_to_the_same(store: Store, limit: int, compact: bool) -> None:
    [job_id] = await insert(store, new_job(every(60), next_due=at(0)))
    await planned(store, job_id, every(60), CatchUpPolicy(CatchUp.ALL, timedelta(minutes=5)), 1800)

    async def pages(size: int) -> list[Any]:
        found: list[Any] = []
        after = None
        while True:
            since = at(300) if after is None else after[0]
            facts = await store.ledger.read_ledger(NAMESPACE, job_id, since, at(1800), at(1800), size)
            assert facts is not None
            entries, more = ledger_page(replace(facts, begin=at(300)), after, size, compact)
            found += entries
            if more is None and facts.until < at(1800):
                more = (facts.until, 1)
            if more is None:
                return found
            after = more

    whole, parts = await asyncio.gather(pages(1000), pages(limit))
    assert parts == whole
    assert sum(entry.count for entry in whole) == 26


@pytest.mark.parametrize("over", ["cancelled", "no runs left"])
async def test_clocks_that_are_set_after_a_job_has_ended_left_nothing_of_it_out(store: Store, over: str) -> None:
    spring = datetime(2030, 3, 31, 1, tzinfo=UTC)
    timing = Timing((CronSchedule("*/10 * * * *"),), "Europe/Berlin", max_runs=1 if over == "no runs left" else None)
    [job_id] = await insert(store, new_job(timing, next_due=at(0)))

    async def told() -> list[str]:
        facts = await store.ledger.read_ledger(NAMESPACE, job_id, at(1), spring + timedelta(minutes=1), NEVER, 10)
        assert facts is not None
        return [entry.status for entry in ledger_page(replace(facts, cursor=None), None, 10, compact=False)[0]]

    assert await told() == ["dst_gap"]
    if over == "cancelled":
        await store.jobs.set_status(NAMESPACE, job_id, JobState.CANCELLED, None, None, at(-1))
    else:
        node_id, epoch = await own_all_shards(store)
        move = Move(job_id, at(0), 1, [at(0)], [], None, is_apart=True)
        assert await store.timetable.advance_cursors(node_id, epoch, [move], at(0)) == [at(0)]
    assert await told() == []
