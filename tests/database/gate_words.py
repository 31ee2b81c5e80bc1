"""Short words of the tests of gates: jobs that share a limit, and what their runs are doing."""

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

from sample_jobs import (
    NAMESPACE,
    START,
    due_job,
    ids,
    rows,
)

from hourhand.database.connections import Record
from hourhand.model.policy import Policy
from hourhand.ports.stores import NewJob
from hourhand.wiring import Store


def keyed(customer: int = 1, ready_at: datetime = START, limit: int = 1, **fields: Any) -> NewJob:
    """A job that runs once; all of one customer share a limit."""
    policy = Policy(concurrency_key="customer-{id}", concurrency_limit=limit)
    return due_job(ready_at, payload={"n": 1, "id": customer}, policy=policy, **fields)


async def live(store: Store) -> dict[UUID, Record]:
    return {row["run_id"]: row for row in await rows(store, "live_runs")}


async def states(store: Store) -> Counter[int]:
    return Counter(row["state"] for row in (await live(store)).values())


async def ask_for(store: Store, job_id: UUID, count: int = 1, payload: Any = None) -> list[UUID]:
    """Runs that somebody asks for."""
    job = await store.jobs.get_job(NAMESPACE, job_id)
    assert job is not None
    run_ids = [ids.new_id(START) for _ in range(count)]
    for run_id in run_ids:
        assert await store.runs.insert_manual_run(run_id, job, NAMESPACE, "ada", None, payload, START, "allow")
    return run_ids


async def other_namespace(store: Store) -> int:
    await store.names.create_namespace("other")
    namespace_id = await store.names.find_namespace("other")
    assert namespace_id is not None
    return namespace_id
