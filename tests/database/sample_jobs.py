"""Short words for what nearly every test of the store begins with: instants, jobs, runs in somebody's hands."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hourhand.database.connections import Connection, Record
from hourhand.database.queries import load_queries
from hourhand.model.ids import scheduled_run_id
from hourhand.model.job import JobDefinition
from hourhand.model.run import Claim
from hourhand.model.schedule import At, Every, Timing
from hourhand.model.states import RunState
from hourhand.ports.stores import EPOCH, Finish, Move, NewJob, Requeue, Wish
from hourhand.runtime.ids import IdSource
from hourhand.store.ledger_rows import columns_of
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
    if not due:
        return []
    plain = [Wish(head, 1, limit) for head in due if not lanes[head.lane_id].careful]
    careful = [Wish(head, 1, limit) for head in due if lanes[head.lane_id].careful]
    claims = (await store.live_runs.claim_runs(executor_id, plain, until, until)).claims if plain else []
    more = await store.live_runs.claim_carefully(executor_id, careful, until) if careful else None
    return claims + (more.claims if more else [])


SECOND = at(1)


def succeeded(claim: Claim, ended_at: datetime = SECOND) -> Finish:
    return Finish(claim.run_id, claim.fence, RunState.SUCCEEDED, at(0), ended_at)


def returned(claim: Claim, ready_at: datetime = SECOND, *, failed: bool = False, lost: bool = False) -> Requeue:
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


class OpenTransaction:
    """A planner's statement that has run and is not committed yet."""

    def __init__(self, store: Store, db: Connection) -> None:
        self._store = store
        self._db = db
        self._queries = load_queries("hourhand.store.sql", "timetable.sql", store.database.schema)
        self.waiting: asyncio.Task[Any] | None = None

    async def fire_once(self, node_id: int, epoch: int, until: datetime) -> None:
        values = {"node_id": node_id, "epoch": epoch, "since": EPOCH, "until": until, "limit": 100}
        await self._store.database.fetch_on(self._db, self._queries["fire_once"], **values)

    async def advance(self, node_id: int, epoch: int, move: Move) -> None:
        await self._store.database.fetch_on(
            self._db, self._queries["advance_cursors"], node_id=node_id, epoch=epoch, now=START,
            job_ids=[move.job_id],
            expected=[move.expected.timestamp()], versions=[move.version],
            next_fires=[move.next_fire], run_ids=[None],
            other_run_ids=[scheduled_run_id(due, move.job_id) for due in move.fires],
            other_job_ids=[move.job_id] * len(move.fires), other_dues=[due.timestamp() for due in move.fires],
            other_ready=[due.timestamp() for due in move.fires],
            missed_job_ids=[], **columns_of([], "missed_"),
        )  # fmt: skip

    async def execute(self, query: str, *values: Any) -> None:
        await self._db.execute(query, *values)

    async def then(self, other: Coroutine[Any, Any, Any]) -> None:
        """Starts somebody else and goes on once he waits for this transaction, or is through."""
        self.waiting = asyncio.create_task(other)
        own = await self._db.fetchval("SELECT pg_backend_pid()")
        async with self._store.database.connection() as db:
            while not self.waiting.done():
                if await db.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", own
                ):
                    return


@asynccontextmanager
async def planning(store: Store) -> AsyncIterator[OpenTransaction]:
    """Commits at its end; then whoever waited for it goes on, and is waited for."""
    async with store.database.transaction() as db:
        transaction = OpenTransaction(store, db)
        yield transaction
    if transaction.waiting is not None:
        await transaction.waiting
