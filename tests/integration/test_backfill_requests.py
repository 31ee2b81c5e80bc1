"""What may be asked for as a backfill, and what is refused."""

import asyncio

import pytest
from asyncpg import UniqueViolationError
from backfill_site import ADA, ALLOW, HOUR, LONG_AGO, Site, ended, hours, wanted
from crew import SetClock
from sample_jobs import START, at, every, execute, insert, new_job, rows

from hourhand.model.errors import Conflict, InvalidFields, NotFound
from hourhand.model.policy import Policy
from hourhand.model.schedule import AfterCompletion, Timing
from hourhand.model.states import RunState
from hourhand.operations.backfill_requests import BackfillProgress, StartBackfillRequest
from hourhand.operations.requests import Caller
from hourhand.wiring import Store


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def site(store: Store, clock: SetClock) -> Site:
    return await Site(store, clock).lead()


@pytest.mark.parametrize(
    ("existing", "run", "left_out"),
    [
        ("skip", [-7, -5, -4], 3),
        ("retry_failed", [-8, -7, -5, -4], 2),
        ("repeat", [-9, -8, -7, -6, -5, -4], 0),
    ],
)
async def test_due_times_that_have_a_run_are_left_out_or_repeated_as_was_asked(
    site: Site, store: Store, existing: str, run: list[int], left_out: int
) -> None:
    job_id = await site.job()
    for hour, state in (
        (-9, RunState.SUCCEEDED),
        (-8, RunState.FAILED),
        (-7, RunState.SKIPPED),
        (-6, RunState.SUCCEEDED),
    ):
        await ended(site, job_id, START + hour * HOUR, state)

    plan = await site.asking.plan(ADA, job_id, wanted(-9, -3, existing=existing))
    started = await site.start(job_id, -9, -3, existing=existing, parallelism=100)
    await site.backfiller.run_once()

    assert await site.released() == hours(run)
    assert (plan.total, plan.left_out) == (6, left_out)
    assert (await site.get(started.backfill.backfill_id)).left_out == left_out


async def test_a_backfill_that_shares_due_times_with_one_that_is_not_over_is_refused(site: Site, store: Store) -> None:
    job_id = await site.job()
    started = await site.start(job_id, -6, -2)
    with pytest.raises(Conflict, match="not over") as refused:
        await site.start(job_id, -3, 0, existing="repeat")
    assert refused.value.code == "backfill-overlaps"
    assert refused.value.details == {"backfill_id": str(started.backfill.backfill_id)}
    await site.start(job_id, -2, 0)  # begins where the other ends


async def test_many_who_ask_for_the_same_at_once_get_one(site: Site, store: Store) -> None:
    job_id = await site.job()
    answers = await asyncio.gather(*(site.start(job_id) for _ in range(8)), return_exceptions=True)
    assert len([answer for answer in answers if isinstance(answer, BackfillProgress)]) == 1
    assert len(await rows(store, "backfills")) == 1


async def test_a_dry_run_says_how_many_when_and_how_long_and_stores_nothing(site: Site, store: Store) -> None:
    job_id = await site.job()
    await ended(site, job_id, START - 20 * HOUR, RunState.SUCCEEDED)  # took eight seconds

    plan = await site.asking.plan(ADA, job_id, wanted(-10, 0, parallelism=2))

    assert (plan.total, plan.first_due, plan.last_due) == (10, START - 10 * HOUR, START - HOUR)
    assert plan.run_seconds == 8
    assert plan.estimate_seconds == pytest.approx(5 * 8.1)
    assert await rows(store, "backfills") == []


async def test_the_overlap_policy_is_set_aside_only_by_name_and_with_a_reason(site: Site, store: Store) -> None:
    job_id = await site.job(policy=Policy())

    for fields, faults in (
        ({"parallelism": 5}, {"/parallelism": "conflicting-fields"}),
        ({"parallelism": 5, "overlap": "allow"}, {"/reason": "required"}),
        ({"overlap": "skip", "reason": "because"}, {"/overlap": "unknown-value"}),
    ):
        with pytest.raises(InvalidFields) as refused:
            await site.start(job_id, **fields)
        assert {fault.pointer: fault.code for fault in refused.value.faults} == faults

    await site.start(job_id, parallelism=5, overlap="allow", reason="they do not touch each other")
    await site.backfiller.run_once()
    [opened] = await rows(store, "backfills")
    assert (opened["overlap"], opened["reason"]) == ("allow", "they do not touch each other")
    asked = await rows(store, "run_requests")
    assert {(row["overlap"], row["note"], row["requested_by"]) for row in asked} == {
        ("allow", "they do not touch each other", "ada")
    }
    assert len(await site.released()) == 5


async def test_everything_wrong_with_a_request_is_told_at_once(site: Site) -> None:
    job_id = await site.job()
    request = StartBackfillRequest(
        start="yesterday", end="2031-01-01T00:00:00Z", existing="some", parallelism=0, rate="often", note="x" * 5000
    )
    with pytest.raises(InvalidFields) as refused:
        await site.asking.start(ADA, job_id, request)
    assert {fault.pointer: fault.code for fault in refused.value.faults} == {
        "/from": "invalid-date-time",
        "/to": "out-of-range",
        "/existing": "unknown-value",
        "/parallelism": "out-of-range",
        "/rate": "invalid-rate",
        "/note": "invalid-text",
    }


@pytest.mark.parametrize(
    ("first", "last", "pointer", "code"),
    [
        (-2, -2, "/to", "empty-window"),
        (-24 * 500, -24 * 450, "/from", "no-due-times"),
    ],
)
async def test_a_range_without_due_times_is_refused(site: Site, first: int, last: int, pointer: str, code: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        await site.start(await site.job(), first, last)
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [(pointer, code)]


async def test_a_range_with_too_many_due_times_is_refused_with_a_place_to_cut_it(site: Site, store: Store) -> None:
    [job_id] = await insert(store, new_job(every(1, LONG_AGO), next_due=at(86_400)))
    with pytest.raises(InvalidFields, match="more than 100000") as refused:
        await site.start(job_id, -48, 0)
    assert refused.value.faults[0].hint == "end it by 2030-01-06T15:46:40Z"


async def test_a_backfill_of_another_namespace_is_not_found(site: Site) -> None:
    started = await site.start(await site.job())
    stranger = Caller("eve", 2, "team-a")
    with pytest.raises(NotFound):
        await site.asking.get(stranger, started.backfill.backfill_id)
    with pytest.raises(NotFound):
        await site.asking.cancel(stranger, started.backfill.backfill_id, None)
    assert (await site.asking.list(stranger, None, [], None, 10)).backfills == []


async def test_the_schema_refuses_a_due_time_that_is_under_way_in_a_backfill_already(site: Site, store: Store) -> None:
    await site.start(await site.job(), parallelism=1)
    await site.backfiller.run_once()
    [row] = await rows(store, "backfill_runs")
    with pytest.raises(UniqueViolationError):
        await execute(
            store,
            "INSERT INTO hourhand.backfill_runs (backfill_id, due, job_id, run_id, released_at) "
            "VALUES (gen_random_uuid(), $1, $2, gen_random_uuid(), now())",
            row["due"],
            row["job_id"],
        )


async def test_a_job_that_is_due_after_completion_has_no_due_times_to_backfill(site: Site, store: Store) -> None:
    timing = Timing((AfterCompletion(HOUR, START - 5 * HOUR),))
    [job_id] = await insert(store, new_job(timing, next_due=at(60), policy=ALLOW))
    with pytest.raises(InvalidFields) as refused:
        await site.start(job_id, -8, 0)
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [("/from", "no-due-times")]


async def test_a_dry_run_says_what_the_overlap_policy_means_for_the_backfill_and_for_the_job(site: Site) -> None:
    plan = await site.asking.plan(ADA, await site.job(policy=Policy()), wanted(-3, 0))
    assert [note.partition(",")[0].partition(" that ")[0] for note in plan.notes] == [
        "no run of this job has succeeded yet",
        "its runs wait for their turn",
        "due times of the job",
    ]
    aside = wanted(-3, 0, overlap="allow", reason="independent")
    assert len((await site.asking.plan(ADA, await site.job(policy=Policy()), aside)).notes) == 1


async def test_no_more_backfills_are_open_in_a_namespace_than_can_be_looked_after(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourhand.operations.backfills.OPEN_MAX", 2)
    for _ in range(2):
        await site.start(await site.job())
    with pytest.raises(Conflict) as refused:
        await site.start(await site.job())
    assert refused.value.code == "too-many-backfills"
