"""Short words for what nearly every test of the store begins with: instants, jobs, runs in somebody's hands."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hourhand.database.connections import Record
from hourhand.model.job import JobDefinition
from hourhand.model.run import Claim
from hourhand.model.schedule import At, Every, Timing
from hourhand.model.states import RunState
from hourhand.ports.stores import Finish, NewJob, Requeue
from hourhand.runtime.ids import IdSource
from hourhand.wiring import Store

START = datetime(2030, 1, 7, 12, tzinfo=UTC)
"""Far from the real time: whoever looks at another clock than the one handed in is found out."""
NAMESPACE = 1
ids = IdSource(7)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def once(due: datetime) -> Timing:
    return Timing((At(due),))


def every(seconds: float, anchor: datetime = START) -> Timing:
    return Timing((Every(timedelta(seconds=seconds), anchor),))


def definition(timing: Timing | None = None, **fields: Any) -> JobDefinition:
    fields = {"name": "job", "kind": "number", "payload": {"n": 1}, "needs": "number"} | fields
    return JobDefinition(timing=timing or once(START), **fields)


def new_job(
    timing: Timing | None = None,
    fires: Sequence[datetime] = (),
    next_due: datetime | None = None,
    created_at: datetime = START - timedelta(minutes=5),
    **fields: Any,
) -> NewJob:
    job_id = ids.new_id(created_at)
    return NewJob(job_id, NAMESPACE, definition(timing, **fields), created_at, "ada", fires, next_due)


def due_job(ready_at: datetime = START, **fields: Any) -> NewJob:
    """A job that runs once, its run waiting already."""
    return new_job(once(ready_at), fires=[ready_at], **fields)


async def insert(store: Store, *jobs: NewJob) -> list[UUID]:
    await store.jobs.insert_jobs(jobs)
    return [job.job_id for job in jobs]


async def claim(store: Store, executor_id: int, until: datetime = START, limit: int = 100) -> list[Claim]:
    """Looks and claims, as the receiver does."""
    lanes = await store.names.lanes()
    heads = await store.live_runs.peek_ready([*lanes])
    due = sorted((head for head in heads if head.ready_at <= until), key=lambda head: (-head.priority, head.ready_at))
    return await store.live_runs.claim_runs(executor_id, due, until, limit) if due else []


def succeeded(claim: Claim, ended_at: datetime = at(1)) -> Finish:
    return Finish(claim.run_id, claim.fence, RunState.SUCCEEDED, at(0), ended_at)


def returned(claim: Claim, ready_at: datetime = at(1), *, failed: bool = False, lost: bool = False) -> Requeue:
    state = RunState.LOST if lost else RunState.FAILED
    reason = "executor_lost" if lost else "exit_code"
    return Requeue(claim.run_id, claim.fence, state, at(0), at(1), ready_at, reason, "why", failed=failed, lost=lost)


async def rows(store: Store, table: str, order: str = "1") -> list[Record]:
    async with store.database.connection() as db:
        return await db.fetch(f"SELECT * FROM {store.database.schema}.{table} ORDER BY {order}")


async def execute(store: Store, sql: str, *arguments: Any) -> None:
    """SQL with `hourhand.` before its tables."""
    async with store.database.connection() as db:
        await db.execute(sql.replace("hourhand.", f"{store.database.schema}."), *arguments)


async def own_all_shards(store: Store, name: str = "scheduler") -> tuple[int, int]:
    """A scheduler that owns everything; its number and the epoch it knows."""
    node_id = await store.nodes.register_node("scheduler", name, 60, {})
    epoch = await store.nodes.take_lease("leader", node_id, 60)
    assert epoch is not None
    await store.nodes.assign_shards(node_id, epoch, dict.fromkeys(range(1024), node_id))
    return node_id, (await store.nodes.owned_shards(node_id))[1]
