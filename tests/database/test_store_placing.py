"""What runs have taken, as it is read to advise their job."""

import pytest
from sample_jobs import NAMESPACE, at, claim, due_job, execute, insert

from hourhand.database.connections import Database
from hourhand.model.advice import Sample
from hourhand.model.errors import NotFound
from hourhand.model.policy import Policy
from hourhand.model.resources import Resources
from hourhand.model.states import RunState
from hourhand.model.usage import Level, Usage
from hourhand.operations.placing import PlacingOperations
from hourhand.operations.requests import Caller
from hourhand.ports.stores import Finish
from hourhand.runtime.ids import IdSource
from hourhand.store.placing import Placing
from hourhand.wiring import Store, store_on

ADA = Caller("ada", NAMESPACE, "default")


@pytest.fixture
async def store(database: Database) -> Store:
    return store_on(database)


async def test_what_the_last_runs_took_is_read_newest_first(store: Store) -> None:
    executor_id = await store.nodes.register_node("executor", "e", 60, {})
    job = due_job(at(-5))
    await insert(store, job)
    [held] = await claim(store, executor_id)
    usage = Usage(Level.CGROUP2, 1.5, 180_000_000, 0, 0)
    await store.live_runs.finish_runs([Finish(held.run_id, held.fence, RunState.SUCCEEDED, at(0), at(3), usage=usage)])
    # Earlier runs of the same job, one of which says nothing.
    new_id = IdSource(3).new_id
    for before, said in (
        (60, '{"level":"none","cpu_seconds":2,"memory_bytes_peak":7,"read_bytes":0,"written_bytes":0}'),
        (90, None),
    ):
        await execute(
            store,
            "INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id,"
            " version, state, cause, attempt, usage) VALUES ($1, $2, $3, $3, $4, $5, $6, 1, 10, 1, 1, $7::jsonb)",
            new_id(at(-before)), job.job_id, at(-before), at(-before + 4), NAMESPACE, executor_id, said,
        )  # fmt: skip
    placing = Placing(store.database)
    assert await placing.usage_of_job(NAMESPACE, job.job_id, 50) == [Sample(180_000_000, 1.5, 3.0), Sample(7, 2.0, 4.0)]
    assert await placing.usage_of_job(NAMESPACE, job.job_id, 1) == [Sample(180_000_000, 1.5, 3.0)]
    assert await placing.usage_of_job(NAMESPACE + 1, job.job_id, 50) == []


async def test_advice_is_given_to_whoever_may_see_the_job(store: Store) -> None:
    job = due_job(at(-5), policy=Policy(resources=Resources(memory=2 * 10**9)))
    await insert(store, job)
    operations = PlacingOperations(Placing(store.database), store.jobs, store.runs, store.parts)
    assert (await operations.advice(ADA, job.job_id)).samples == 0
    with pytest.raises(NotFound):
        await operations.advice(Caller("eve", NAMESPACE + 1, "other"), job.job_id)
