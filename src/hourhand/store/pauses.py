"""Pauses of many jobs at once: of a label, a queue, a namespace, the cluster.

A pause is one row, whatever it holds. Cursors whose due time falls into it are put aside: those that are near by the
pause itself, later ones by the planner that meets them. So nothing is written for a due time that has not passed, a
pause of a million jobs takes effect at once, and each of them costs one step aside and one back.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.catchup import CatchUp, PauseSpan
from hourhand.model.pauses import Pause, PauseScope
from hourhand.ports.pause_stores import Paused, PauseLook, PauseTarget
from hourhand.ports.stores import NEVER
from hourhand.store.jsons import from_json, to_json
from hourhand.store.names import Names
from hourhand.store.queues import Queues

NEAR: Final = timedelta(seconds=10)
"""Cursors up to here are put aside by the pause itself: longer than a planner takes to hear of it, and its horizon."""
REST_MAX: Final = 100_000
JOBS_COUNT_MAX: Final = 100_000
TOO_LATE_MAX: Final = 100


class Pauses:
    def __init__(self, database: Database, names: Names, queues: Queues) -> None:
        self._database = database
        self._names = names
        self._queues = queues
        self._queries = load_queries("hourhand.store.sql", "pauses.sql", database.schema)

    @tried_twice
    async def pause(
        self, target: PauseTarget, paused_by: str, reason: str | None, until: datetime | None, now: datetime
    ) -> Paused:
        await self.end_over(now)
        if target.queue is not None:
            assert target.namespace_id is not None
            await self._queues.pause_queue(target.namespace_id, target.queue, paused_by, reason)
        async with self._database.transaction() as db:
            facts = {"now": now, "paused_by": paused_by, "reason": reason, "until": until}
            [put] = await self._fetch(db, "put_pause", **_columns(target), **facts)
            pause_id = put["pause_id"]
            # The cursors first: whoever was just moving one is waited for, and then its runs are seen. Twice: what has
            # just been moved is met by the second look only.
            for _ in range(2):
                await self._rest(db, None, pause_id, now, now + NEAR, REST_MAX)
            await self._fetch(db, "withdraw_paused", pause_id=pause_id, now=now, never=NEVER)
            late = await self._fetch(db, "held_beyond", pause_id=pause_id, now=now, limit=TOO_LATE_MAX)
            [counted] = await self._fetch(db, "count_covered", pause_id=pause_id, limit=JOBS_COUNT_MAX)
        return Paused(counted["jobs"], [row["run_id"] for row in late])

    @tried_twice
    async def resume(self, target: PauseTarget, ended_by: str, catch_up: CatchUp, now: datetime) -> bool:
        if target.queue is not None:
            assert target.namespace_id is not None
            await self._queues.resume_queue(target.namespace_id, target.queue)
        facts = {"now": now, "ended_by": ended_by, "catch_up": catch_up.value}
        await self.end_over(now)
        return bool(await self._database.fetch(self._queries["end_pause"], **_columns(target), **facts))

    async def list_pauses(
        self, namespace_id: int, now: datetime, also_over: bool, before: int | None, limit: int
    ) -> list[tuple[int, Pause]]:
        rows = await self._database.fetch(
            self._queries["list_pauses"],
            namespace_id=namespace_id,
            also_over=also_over,
            now=now,
            before=before,
            limit=limit,
        )
        names = await self._names.learn_namespaces()
        return [(row["pause_id"], pause_of(row, names.get(row["namespace_id"], ""))) for row in rows]

    async def look(self, now: datetime) -> PauseLook:
        row = await self._database.fetch_one(self._queries["look_at_pauses"], now=now)
        assert row is not None
        return PauseLook(**row)

    async def hold(self, node_id: int, now: datetime, horizon: datetime, limit: int) -> int:
        async with self._database.transaction() as db:
            return await self._rest(db, node_id, None, now, horizon, limit)

    async def end_over(self, now: datetime) -> int:
        rows = await self._database.fetch(self._queries["end_pauses_over"], now=now)
        for row in rows:
            if row["queue"] is not None:
                await self._queues.resume_queue(row["namespace_id"], row["queue"])
        return len(rows)

    async def wake(self, now: datetime, limit: int) -> int:
        return len(await self._database.fetch(self._queries["wake_resting"], now=now, limit=limit))

    async def settle(self, now: datetime) -> int:
        return len(await self._database.fetch(self._queries["settle_pauses"], now=now))

    async def spans_of(self, job_ids: Sequence[UUID]) -> dict[UUID, list[PauseSpan]]:
        rows = await self._database.fetch(self._queries["pause_spans"], job_ids=job_ids)
        return await self._spans(rows)

    async def spans_on(self, db: Connection, job_id: UUID) -> list[PauseSpan]:
        """The same for one job, inside a transaction."""
        rows = await self._fetch(db, "pause_spans", job_ids=[job_id])
        return (await self._spans(rows)).get(job_id, [])

    async def spans_since(self, db: Connection, namespace_id: int, job_id: UUID, since: datetime) -> list[PauseSpan]:
        """Those that bear on what a job was due after an instant, wherever its cursor stands, or if it has none."""
        rows = await self._fetch(db, "pause_spans_since", namespace_id=namespace_id, job_id=job_id, since=since)
        return (await self._spans(rows)).get(job_id, [])

    async def own_pauses_over(self, now: datetime, limit: int) -> list[tuple[int, UUID]]:
        """Jobs, each with its namespace, whose own pause is over and held more than one due time."""
        rows = await self._database.fetch(self._queries["own_pauses_over"], now=now, limit=limit)
        return [(row["namespace_id"], row["job_id"]) for row in rows]

    async def wake_cursor(self, db: Connection, job_id: UUID) -> None:
        await self._fetch(db, "wake_cursor", job_id=job_id)

    async def rest_own(self, db: Connection, job_id: UUID, next_fire: datetime, until: datetime) -> None:
        await self._fetch(db, "rest_own", job_id=job_id, next_fire=next_fire, until=until)

    async def _spans(self, rows: Sequence[Record]) -> dict[UUID, list[PauseSpan]]:
        if not rows:
            return {}
        names = await self._names.learn_namespaces()
        spans: dict[UUID, list[PauseSpan]] = {}
        for row in rows:
            pause = pause_of(row, names.get(row["namespace_id"], ""))
            ends = [end for end in (pause.until, pause.ended_at) if end is not None]
            span = PauseSpan(pause.paused_at, min(ends, default=None), pause.catch_up or CatchUp.NONE, pause.words)
            spans.setdefault(row["job_id"], []).append(span)
        return spans

    async def _rest(
        self, db: Connection, node_id: int | None, pause_id: int | None, now: datetime, horizon: datetime, limit: int
    ) -> int:
        rows = await self._fetch(
            db,
            "rest_cursors",
            node_id=node_id,
            pause_id=pause_id,
            now=now,
            horizon=horizon,
            never=NEVER,
            limit=limit,
        )
        return len(rows)

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


def pause_of(row: Any, namespace: str) -> Pause:
    """A row of `pauses`, also one that came as JSON."""
    catch_up = row["catch_up"]
    scope, name = _scope(row, namespace)
    return Pause(
        scope=scope,
        name=name,
        paused_at=_instant(row["paused_at"]),
        paused_by=row["paused_by"],
        reason=row["reason"],
        until=_instant(row["until"]),
        ended_at=_instant(row["ended_at"]),
        ended_by=row["ended_by"],
        catch_up=None if catch_up is None else CatchUp(catch_up),
    )


def _scope(row: Any, namespace: str) -> tuple[PauseScope, str]:
    if row["labels"] is not None:
        labels = from_json(row["labels"]) if isinstance(row["labels"], str) else row["labels"]
        return PauseScope.LABEL, ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if row["queue"] is not None:
        return PauseScope.QUEUE, row["queue"]
    return (PauseScope.CLUSTER, "") if row["namespace_id"] is None else (PauseScope.NAMESPACE, namespace)


def _instant(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _columns(target: PauseTarget) -> dict[str, Any]:
    labels = None if target.labels is None else to_json(dict(target.labels))
    return {"namespace_id": target.namespace_id, "queue": target.queue, "labels": labels}
