"""Waits until everything that was submitted has run and is recorded."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from hourhand.bench.cluster import SCHEMA
from hourhand.bench.target import Target
from hourhand.bench.wire import Wire
from hourhand.bench.witness import LineCount
from hourhand.model.errors import WorldError

STILL_SECONDS_MAX: Final = 120.0
"""How long nothing may happen before the rest is given up."""
POLL_SECONDS: Final = 0.02
_LEFT: Final = f"SELECT EXISTS (SELECT FROM {SCHEMA}.live_runs) OR EXISTS (SELECT FROM {SCHEMA}.timetable)"


async def drain(target: Target, lines: LineCount, expected: int, job_ids: Sequence[str]) -> None:
    """Returns when all is recorded. `lines`: of the witness file, from before the first job on. `expected`: how many
    there must be. `job_ids`: some of the last jobs, asked for where others use the cluster too."""
    if target.own and target.cluster is not None:
        await _drain_own(target, lines, expected)
    else:
        await _drain_shared(target, lines, expected, job_ids)


class _Patience:
    """Ends when nothing has happened for too long."""

    def __init__(self, lines: LineCount) -> None:
        self._lines = lines
        self._seen = -1
        self._changed_at = time.monotonic()

    def lines(self, expected: int) -> int:
        seen, now = self._lines.lines(), time.monotonic()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        elif now - self._changed_at > STILL_SECONDS_MAX:
            raise WorldError(f"{seen:,} of {expected:,} runs, and nothing new for {STILL_SECONDS_MAX:g} s")
        return seen


async def _drain_own(target: Target, lines: LineCount, expected: int) -> None:
    """Asks the database itself: nothing may be live, and nothing still to fall due. Seldom while runs are missing."""
    assert target.cluster is not None
    patience, asked_at = _Patience(lines), time.monotonic()
    database = await target.cluster.connect()
    try:
        while True:
            if patience.lines(expected) >= expected or time.monotonic() - asked_at > 1:
                asked_at = time.monotonic()
                if not await database.fetchval(_LEFT):
                    return
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await database.close()


async def _drain_shared(target: Target, lines: LineCount, expected: int, job_ids: Sequence[str]) -> None:
    patience = _Patience(lines)
    async with target.wire() as wire:
        while True:
            ran = patience.lines(expected) >= expected
            if ran and all([await _is_final(wire, job_id) for job_id in job_ids]):
                return
            await asyncio.sleep(POLL_SECONDS)


async def _is_final(wire: Wire, job_id: str) -> bool:
    answered = await wire.get(f"/api/v1/jobs/{job_id}/status")
    latest = msgspec.json.decode(answered.body).get("latest_run")
    return latest is not None and latest["ended_at"] is not None
