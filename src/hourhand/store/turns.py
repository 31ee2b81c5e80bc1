"""Runs that wait: for their turn, for a place in a gate, or too long. What the scheduler's sweeps read and write."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from hourhand.database.connections import Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.catchup import was_made_late
from hourhand.model.durations import parse_duration
from hourhand.model.overlap import Sibling
from hourhand.model.policy import Overlap, policy_from_json
from hourhand.model.states import Reason, RunState
from hourhand.ports.turn_stores import Look, Turn, Unfinished
from hourhand.store.live_runs import LiveRuns


class Turns:
    def __init__(self, database: Database, live_runs: LiveRuns) -> None:
        self._database = database
        self._live_runs = live_runs
        self._queries = load_queries("hourhand.store.sql", "turns.sql", database.schema)

    async def look(self, node_id: int, now: datetime) -> Look:
        row = await self._database.fetch_one(self._queries["look"], node_id=node_id, now=now)
        assert row is not None
        return Look(**row)

    async def waiting_turns(self, node_id: int, limit: int, after: Turn | None = None) -> list[Turn]:
        rows = await self._database.fetch(
            self._queries["waiting_turns"],
            node_id=node_id,
            limit=limit,
            after_ready=after and after.ready_at,
            after_id=after and after.run_id,
        )
        return [
            Turn(
                row["run_id"],
                row["job_id"],
                row["scheduled_for"],
                row["ready_at"],
                Overlap(row["overlap"]),
                policy_from_json(row["policy"]),
                row["asked_for"],
                row["once_run_id"],
                _was_caught_up(row, _jitter(row["jitter"])),
                _jitter(row["jitter"]),
            )
            for row in rows
        ]

    async def unfinished_of(self, turns: Sequence[Turn]) -> list[Unfinished]:
        last: dict[UUID, UUID] = {}
        jitters = {turn.job_id: turn.jitter for turn in turns}
        for turn in turns:
            last[turn.job_id] = max(turn.run_id, last.get(turn.job_id, turn.run_id))
        rows = await self._database.fetch(
            self._queries["unfinished_of_jobs"],
            job_ids=list(last),
            last_ids=list(last.values()),
            once_run_ids=list({turn.once_run_id for turn in turns if turn.once_run_id is not None}),
        )
        return [
            Unfinished(
                row["job_id"],
                row["scheduled_for"],
                Sibling(
                    row["run_id"],
                    RunState(row["state"]),
                    row["retrying"],
                    row["held_back"],
                    row["ready_at"],
                    _was_caught_up(row, jitters[row["job_id"]]),
                    row["first_try"],
                ),
            )
            for row in rows
        ]

    async def let_turns_go(self, run_ids: Sequence[UUID]) -> int:
        return len(await self._database.fetch(self._queries["let_turns_go"], run_ids=sorted(run_ids)))

    async def skip_runs(self, skips: Sequence[tuple[UUID, Reason]], now: datetime) -> int:
        skips = sorted(skips)
        rows = await self._database.fetch(
            self._queries["skip_runs"],
            run_ids=[run_id for run_id, _ in skips],
            reasons=[reason.value for _, reason in skips],
            now=now,
        )
        return len(rows)

    async def ask_to_end(self, run_ids: Sequence[UUID]) -> int:
        return len(await self._database.fetch(self._queries["ask_to_end"], run_ids=sorted(run_ids)))

    async def expire_runs(self, now: datetime, limit: int) -> int:
        return len(await self._database.fetch(self._queries["expire_runs"], now=now, limit=limit))

    async def let_go_on(self, limit: int) -> int:
        return len(await self._database.fetch(self._queries["let_go_on"], limit=limit))

    async def free_stray_slots(self) -> int:
        return await self._live_runs.free_strays()


def _was_caught_up(row: Record, jitter: timedelta) -> bool:
    return bool(row["untried"]) and was_made_late(row["scheduled_for"], row["ready_at"], jitter)


def _jitter(stored: str | None) -> timedelta:
    return timedelta() if stored is None else parse_duration(stored)
