"""Submissions with keys: one key, one job, whoever else asks at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from sample_jobs import (
    NAMESPACE,
    START,
    OpenTransaction,
    at,
    claim,
    due_job,
    every,
    new_job,
    once,
    planning,
    returned,
    rows,
    succeeded,
)

from hourhand.model.errors import Overloaded
from hourhand.model.keys import IdempotencyKey, UniqueKey, period_end
from hourhand.model.states import JobState
from hourhand.ports.stores import NewJob
from hourhand.ports.submission_stores import Duplicates, Earlier, Submission
from hourhand.store import submissions
from hourhand.store.job_rows import rows_of
from hourhand.wiring import Store

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
A, B = b"a" * 32, b"b" * 32
"""Digests of two requests."""


def keyed(key: str = "k", digest: bytes = A, job: NewJob | None = None, now: datetime = START) -> Submission:
    return Submission([job or due_job(START, created_at=now)], IdempotencyKey(key, digest))


def unique(key: str = "u", period: timedelta | None = None, now: datetime = START, **fields: Any) -> Submission:
    until = None if period is None else period_end(now, period)
    return Submission([replace(due_job(now, created_at=now, **fields), unique=UniqueKey(key, until))])


async def submit(store: Store, *given: Submission) -> list[Earlier | Duplicates | None]:
    return await store.submissions.insert_submissions(given)


async def stored_jobs(store: Store) -> list[UUID]:
    return [row["job_id"] for row in await rows(store, "jobs", "job_id")]


def id_of(submission: Submission) -> UUID:
    return submission.jobs[0].job_id


# --- idempotency keys -------------------------------------------------------------------------------------


async def test_the_job_and_its_key_are_stored_together(store: Store) -> None:
    first = keyed()
    assert await submit(store, first) == [None]
    assert await stored_jobs(store) == [id_of(first)]
    assert len(await rows(store, "live_runs")) == 1
    [row] = await rows(store, "idempotency_keys")
    assert (row["namespace_id"], row["key"], row["digest"]) == (NAMESPACE, "k", A)
    assert row["job_ids"] == [id_of(first)]


async def test_a_key_that_was_used_answers_with_what_it_stands_for_and_stores_nothing(store: Store) -> None:
    first = keyed()
    await submit(store, first)
    assert await submit(store, keyed(now=at(60))) == [Earlier(A, [id_of(first)])]
    assert await submit(store, keyed(digest=B)) == [Earlier(A, [id_of(first)])]
    assert await stored_jobs(store) == [id_of(first)]
    assert len(await rows(store, "live_runs")) == 1


async def test_a_key_counts_for_a_day_from_its_first_use_whether_pruned_or_not(store: Store) -> None:
    first, again = keyed(), keyed(digest=B, now=START + DAY)
    await submit(store, first)
    assert await submit(store, keyed(now=START + DAY - timedelta(seconds=1))) == [Earlier(A, [id_of(first)])]
    assert await submit(store, again) == [None]
    assert await submit(store, keyed(digest=B, now=START + 2 * DAY - HOUR)) == [Earlier(B, [id_of(again)])]
    assert await stored_jobs(store) == [id_of(first), id_of(again)]


async def test_a_key_belongs_to_its_namespace(store: Store) -> None:
    await store.names.create_namespace("other")
    other_id = await store.names.find_namespace("other")
    assert other_id is not None
    await submit(store, keyed())
    assert await submit(store, keyed(digest=B, job=replace(due_job(START), namespace_id=other_id))) == [None]


async def test_the_key_of_a_batch_stands_for_all_its_jobs_in_their_order(store: Store) -> None:
    jobs = [due_job(START) for _ in range(100)]
    batch = Submission(jobs, IdempotencyKey("k", A))
    assert await submit(store, batch) == [None]
    again = Submission([due_job(START) for _ in range(100)], IdempotencyKey("k", A))
    assert await submit(store, again) == [Earlier(A, [job.job_id for job in jobs])]
    assert len(await stored_jobs(store)) == 100


async def test_of_many_who_come_together_each_gets_its_own_verdict(store: Store) -> None:
    old = keyed("old")
    await submit(store, old)
    fresh = [keyed(f"key {n}") for n in range(20)]
    verdicts = await submit(store, *fresh[:10], keyed("old"), *fresh[10:])
    assert verdicts == [None] * 10 + [Earlier(A, [id_of(old)])] + [None] * 10
    assert sorted(await stored_jobs(store)) == sorted(id_of(each) for each in [old, *fresh])


async def test_of_fifty_who_use_one_key_at_once_one_is_stored_and_the_others_hear_of_it(store: Store) -> None:
    given = [keyed() for _ in range(50)]
    verdicts = [verdict for [verdict] in await asyncio.gather(*(submit(store, each) for each in given))]
    [winner] = [each for each, verdict in zip(given, verdicts, strict=True) if verdict is None]
    assert [verdict for verdict in verdicts if verdict] == [Earlier(A, [id_of(winner)])] * 49
    assert await stored_jobs(store) == [id_of(winner)]
    assert len(await rows(store, "live_runs")) == 1


async def test_groups_that_use_the_same_keys_in_other_orders_do_not_block_each_other(store: Store) -> None:
    for number in range(10):
        names = [f"{number} {letter}" for letter in "abcdefghijklmnop"]
        groups = [[keyed(name) for name in (names if turn % 2 else reversed(names))] for turn in range(8)]
        verdicts = await asyncio.gather(*(submit(store, *group) for group in groups))
        assert sum(verdict is None for group in verdicts for verdict in group) == len(names)
    assert len(await stored_jobs(store)) == 160


async def test_who_waits_for_a_key_gets_it_when_the_other_fails(store: Store) -> None:
    second = keyed()
    with suppress(KeyError):
        async with taking_key(store, "k") as other:
            waiting = asyncio.create_task(submit(store, second))
            await other.then(waiting_for(waiting))
            raise KeyError
    assert await waiting == [None]
    assert await stored_jobs(store) == [id_of(second)]


async def test_who_waits_too_long_for_a_key_is_told_to_come_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "_PATIENCE", "50ms")
    async with taking_key(store, "k"):
        with pytest.raises(Overloaded, match="still under way"):
            await submit(store, keyed(), keyed("other"))
    assert await stored_jobs(store) == []
    assert [row["key"] for row in await rows(store, "idempotency_keys")] == ["k"]


async def test_nobody_is_left_impatient_after_a_wait(store: Store) -> None:
    """Connections go back to the pool: what was set for one transaction must not outlive it."""
    await submit(store, keyed())
    async with store.database.connection() as db:
        assert await db.fetchval("SHOW lock_timeout") == "0"


async def test_a_key_is_found_while_it_counts(store: Store) -> None:
    first = keyed()
    await submit(store, first)
    assert await store.submissions.find_earlier(NAMESPACE, "k", START - HOUR) == Earlier(A, [id_of(first)])
    assert await store.submissions.find_earlier(NAMESPACE, "k", START) is None
    assert await store.submissions.find_earlier(NAMESPACE, "x", START - HOUR) is None
    assert await store.submissions.find_earlier(NAMESPACE + 1, "k", START - HOUR) is None


# --- unique keys ------------------------------------------------------------------------------------------


async def test_a_unique_key_is_taken_while_its_job_has_an_unfinished_run(store: Store) -> None:
    first = unique()
    assert await submit(store, first) == [None]
    refused = [Duplicates({0: id_of(first)})]
    assert await submit(store, unique()) == refused  # queued
    [held] = await claim(store, 1)
    assert await submit(store, unique()) == refused  # in somebody's hands
    await store.live_runs.requeue_runs([returned(held, at(60), failed=True)])
    assert await submit(store, unique()) == refused  # waiting for a retry
    [held] = await claim(store, 1, at(60))
    await store.live_runs.finish_runs([succeeded(held)])
    second = unique()
    assert await submit(store, second) == [None]
    assert await submit(store, unique()) == [Duplicates({0: id_of(second)})]
    assert await stored_jobs(store) == sorted([id_of(first), id_of(second)])


async def test_a_unique_key_is_taken_while_its_job_is_still_to_fall_due(store: Store) -> None:
    for name, timing in (("once", once(at(3600))), ("recurring", every(60))):
        job = replace(new_job(timing, next_due=at(3600)), unique=UniqueKey(name))
        assert await submit(store, Submission([job])) == [None]
        assert await submit(store, unique(name)) == [Duplicates({0: job.job_id})]


async def test_a_paused_job_keeps_its_unique_key_and_a_cancelled_one_gives_it_back(store: Store) -> None:
    job = replace(new_job(every(60), next_due=at(60)), unique=UniqueKey("u"))
    await submit(store, Submission([job]))
    await store.jobs.set_status(NAMESPACE, job.job_id, JobState.PAUSED, None, "because", START)
    assert await submit(store, unique()) == [Duplicates({0: job.job_id})]
    await store.jobs.set_status(NAMESPACE, job.job_id, JobState.CANCELLED, None, None, START)
    assert await submit(store, unique()) == [None]


async def test_a_job_cancelled_while_it_runs_gives_its_unique_key_back_at_once(store: Store) -> None:
    first = unique()
    await submit(store, first)
    await claim(store, 1)
    await store.jobs.set_status(NAMESPACE, id_of(first), JobState.CANCELLED, None, None, START)
    assert await submit(store, unique()) == [None]


async def test_a_unique_key_for_a_period_is_taken_until_its_end_however_the_job_fares(store: Store) -> None:
    first = unique(period=HOUR, now=at(60))
    await submit(store, first)
    [held] = await claim(store, 1, at(60))
    await store.live_runs.finish_runs([succeeded(held)])
    assert await submit(store, unique(period=HOUR, now=at(3599))) == [Duplicates({0: id_of(first)})]
    second = unique(period=HOUR, now=at(3600))
    assert await submit(store, second) == [None]
    assert await submit(store, unique(period=HOUR, now=at(3601))) == [Duplicates({0: id_of(second)})]
    assert await submit(store, unique(period=HOUR, now=at(7200))) == [None]  # although the second is not finished


async def test_a_cancelled_job_gives_the_rest_of_its_period_back(store: Store) -> None:
    first = unique(period=HOUR)
    await submit(store, first)
    await store.jobs.set_status(NAMESPACE, id_of(first), JobState.CANCELLED, None, None, START)
    assert await submit(store, unique(period=HOUR, now=at(5))) == [None]


async def test_where_one_of_two_asks_for_a_live_job_only_the_stricter_word_counts(store: Store) -> None:
    lives, periodic = unique("lives"), unique("periodic", period=HOUR)
    await submit(store, lives, periodic)
    assert await submit(store, unique("lives", period=HOUR, now=at(7200))) == [Duplicates({0: id_of(lives)})]
    assert await submit(store, unique("periodic", now=at(7200))) == [Duplicates({0: id_of(periodic)})]


async def test_a_unique_key_belongs_to_its_namespace(store: Store) -> None:
    await store.names.create_namespace("other")
    other_id = await store.names.find_namespace("other")
    await submit(store, unique())
    [job] = unique().jobs
    assert await submit(store, Submission([replace(job, namespace_id=other_id)])) == [None]


async def test_of_fifty_who_want_one_unique_key_at_once_one_is_stored(store: Store) -> None:
    given = [replace(unique(), key=IdempotencyKey(f"{n}", A)) for n in range(50)]
    verdicts = [verdict for [verdict] in await asyncio.gather(*(submit(store, each) for each in given))]
    [winner] = [each for each, verdict in zip(given, verdicts, strict=True) if verdict is None]
    assert [verdict for verdict in verdicts if verdict] == [Duplicates({0: id_of(winner)})] * 49
    assert await stored_jobs(store) == [id_of(winner)]
    assert len(await rows(store, "idempotency_keys")) == 1


async def test_of_fifty_who_take_a_unique_key_over_at_once_one_is_stored(store: Store) -> None:
    first = unique()
    await submit(store, first)
    await store.jobs.set_status(NAMESPACE, id_of(first), JobState.CANCELLED, None, None, START)
    verdicts = await asyncio.gather(*(submit(store, unique()) for _ in range(50)))
    assert sum(verdict is None for [verdict] in verdicts) == 1
    assert len(await stored_jobs(store)) == 2


async def test_who_waited_for_a_unique_key_sees_that_the_job_it_waited_for_is_alive(store: Store) -> None:
    """Not in the picture that a statement makes itself at its start: the job was not there yet."""
    old, first = unique(), unique()
    await submit(store, old)
    await store.jobs.set_status(NAMESPACE, id_of(old), JobState.CANCELLED, None, None, START)
    tables = rows_of(first.jobs, await store.jobs.numbers(first.jobs))
    async with planning(store) as transaction:
        await transaction._db.execute(
            f"UPDATE {store.database.schema}.unique_keys SET job_id = $1 WHERE key = 'u'", id_of(first)
        )
        await store.jobs.copy(transaction._db, tables)
        waiting = asyncio.create_task(submit(store, unique()))
        await transaction.then(waiting_for(waiting))
    assert await waiting == [Duplicates({0: id_of(first)})]


async def test_a_batch_with_a_key_that_is_taken_leaves_nothing_behind(store: Store) -> None:
    first = unique("u3")
    await submit(store, first)
    jobs = [replace(due_job(START), unique=UniqueKey(f"u{n}")) for n in range(5)] + [due_job(START)]
    batch = Submission(jobs, IdempotencyKey("k", A))
    assert await submit(store, batch) == [Duplicates({3: id_of(first)})]
    assert await stored_jobs(store) == [id_of(first)]
    assert await rows(store, "idempotency_keys") == []
    assert [row["key"] for row in await rows(store, "unique_keys")] == ["u3"]

    await store.jobs.set_status(NAMESPACE, id_of(first), JobState.CANCELLED, None, None, START)
    assert await submit(store, batch) == [None]
    assert len(await stored_jobs(store)) == 7


async def test_a_refusal_does_not_use_up_the_idempotency_key_and_does_not_touch_its_neighbours(store: Store) -> None:
    first = unique()
    await submit(store, first)
    refused, neighbour = replace(unique(), key=IdempotencyKey("k", A)), keyed("n")
    assert await submit(store, refused, neighbour) == [Duplicates({0: id_of(first)}), None]
    assert [row["key"] for row in await rows(store, "idempotency_keys")] == ["n"]
    await store.jobs.set_status(NAMESPACE, id_of(first), JobState.CANCELLED, None, None, START)
    assert await submit(store, refused) == [None]


async def test_a_repeated_request_is_not_refused_because_of_its_own_job(store: Store) -> None:
    first, again = (replace(unique(), key=IdempotencyKey("k", A)) for _ in range(2))
    await submit(store, first)
    assert await submit(store, again) == [Earlier(A, [id_of(first)])]


async def test_a_job_shows_the_unique_key_it_was_submitted_with(store: Store) -> None:
    first, second, plain = unique(period=HOUR), unique(now=at(7200), period=HOUR), keyed()
    await submit(store, first, plain)
    await submit(store, second)
    shown = [await store.jobs.get_job(NAMESPACE, id_of(each)) for each in (first, second, plain)]
    assert [job and job.unique_key for job in shown] == ["u", "u", None]


# --- pruning ----------------------------------------------------------------------------------------------


async def prune(store: Store, now: datetime) -> tuple[list[str], list[str]]:
    await store.partitions.maintain([], now)
    tables = ("idempotency_keys", "unique_keys")
    idempotency, uniques = [[row["key"] for row in await rows(store, table, "key")] for table in tables]
    return idempotency, uniques


async def test_idempotency_keys_are_dropped_after_a_day(store: Store) -> None:
    await submit(store, keyed("old"), keyed("new", now=at(10)))
    assert (await prune(store, START + DAY - timedelta(seconds=1)))[0] == ["new", "old"]
    assert (await prune(store, START + DAY))[0] == ["new"]


async def test_unique_keys_are_dropped_when_their_job_holds_them_no_longer(store: Store) -> None:
    done, cancelled, periodic = unique("done"), unique("cancelled"), unique("periodic", period=HOUR)
    await submit(store, done, cancelled, periodic)
    await store.jobs.set_status(NAMESPACE, id_of(cancelled), JobState.CANCELLED, None, None, START)
    for held in await claim(store, 1):
        await store.live_runs.finish_runs([succeeded(held)])
    alive, paused = unique("alive"), unique("paused")
    await submit(store, alive, paused)
    await store.jobs.set_status(NAMESPACE, id_of(paused), JobState.PAUSED, None, None, START)

    assert (await prune(store, at(60)))[1] == ["alive", "paused", "periodic"]
    assert (await prune(store, at(3600)))[1] == ["alive", "paused"]


async def test_all_slices_are_pruned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourhand.store.partitions.SLICE", 3)
    await submit(store, *(keyed(f"k{n}") for n in range(10)))
    jobs = [unique(f"u{n}") for n in range(10)]
    await submit(store, *jobs)
    for gone in jobs[:8]:
        await store.jobs.set_status(NAMESPACE, id_of(gone), JobState.CANCELLED, None, None, START)
    assert await prune(store, START + DAY) == ([], ["u8", "u9"])


async def test_a_unique_key_that_somebody_is_just_taking_over_is_not_pruned(store: Store) -> None:
    old, new = unique(), unique()
    await submit(store, old)
    await store.jobs.set_status(NAMESPACE, id_of(old), JobState.CANCELLED, None, None, START)
    tables = rows_of(new.jobs, await store.jobs.numbers(new.jobs))
    async with planning(store) as transaction:
        await transaction._db.execute(
            f"UPDATE {store.database.schema}.unique_keys SET job_id = $1 WHERE key = 'u'", id_of(new)
        )
        await store.jobs.copy(transaction._db, tables)
        assert (await prune(store, at(10)))[1] == ["u"]  # without waiting
    assert (await prune(store, at(10)))[1] == ["u"]
    assert await submit(store, unique()) == [Duplicates({0: id_of(new)})]


# --- somebody else ----------------------------------------------------------------------------------------


@asynccontextmanager
async def taking_key(store: Store, key: str) -> AsyncIterator[OpenTransaction]:
    """A node that has taken a key and not committed yet."""
    async with planning(store) as transaction:
        await transaction._db.execute(
            f"INSERT INTO {store.database.schema}.idempotency_keys (namespace_id, key, digest, job_ids, created_at) "
            "VALUES ($1, $2, $3, $4, $5)",
            NAMESPACE, key, B, [UUID(int=1)], START,
        )  # fmt: skip
        yield transaction


async def waiting_for(task: "asyncio.Task[Any]") -> Any:
    return await asyncio.shield(task)
