"""Writes what attempts came to, in batches: as one write returns, all that has gathered meanwhile goes next.

A run that starts and ends between two writes costs one, not two. Log lines are stored before the end of their run, so
whoever sees the end can read the whole log. While the database is away everything waits here and is delivered,
under its fence, when it is back.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.outcome import NOTHING_SAID, Failed, Lost, Outcome
from hourhand.model.retry import retry_from_json
from hourhand.model.run import Claim
from hourhand.model.settle import Standing, settle
from hourhand.model.states import Reason, RunEvent, RunState
from hourhand.ports.stores import Finish, LiveRunStore, LogChunk, LogStore, Requeue
from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BATCH_MAX = 1000
START_AFTER_SECONDS = 0.1
"""A run that has not ended by then is shown as running."""
LOG_FLUSH_SECONDS = 0.2
_ATTEMPT_STATES: Final[Mapping[Reason | None, RunState]] = {
    Reason.TIMEOUT: RunState.TIMED_OUT,
    Reason.SHUTDOWN: RunState.LOST,
}


class _Ended(NamedTuple):
    claim: Claim
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome


class Recorder:
    def __init__(
        self, live_runs: LiveRunStore, logs: LogStore, clock: DatabaseClock, chance: Callable[[], float]
    ) -> None:
        self._live_runs = live_runs
        self._logs = logs
        self._clock = clock
        self._chance = chance
        self._ended: list[_Ended] = []
        self._started: dict[UUID, tuple[int, datetime]] = {}
        self._chunks: list[LogChunk] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self.wake: Callable[[], None] = lambda: None
        """Asks for a call of `run_once`; set by whoever runs the loop."""
        self._log_timer: asyncio.TimerHandle | None = None
        self._start_timer: asyncio.TimerHandle | None = None

    def started(self, run_id: UUID, fence: int, at: datetime | None) -> None:
        assert at is not None
        self._started[run_id] = (fence, at)
        if self._start_timer is None:
            self._start_timer = asyncio.get_running_loop().call_later(START_AFTER_SECONDS, self._starts_due)

    def ended(self, claim: Claim, started_at: datetime | None, ended_at: datetime, outcome: Outcome) -> None:
        self._started.pop(claim.run_id, None)
        self._ended.append(_Ended(claim, started_at, ended_at, outcome))
        self._idle.clear()
        self.wake()

    def log(self, chunk: LogChunk) -> None:
        """Takes lines; neighbours of one attempt are joined into one row."""
        last = self._chunks[-1] if self._chunks else None
        if (
            last is not None
            and last.run_id == chunk.run_id
            and last.attempt == chunk.attempt
            and last.first_line + len(last.lines) == chunk.first_line
            and len(last.lines) < 500
        ):
            last.at += chunk.at
            last.stream += chunk.stream
            last.lines += chunk.lines
        else:
            self._chunks.append(chunk)
        if self._log_timer is None:
            self._log_timer = asyncio.get_running_loop().call_later(LOG_FLUSH_SECONDS, self._log_due)

    def unwritten(self) -> set[tuple[UUID, int]]:
        """Attempts that have ended and are not recorded yet."""
        return {(ended.claim.run_id, ended.claim.fence) for ended in self._ended}

    async def all_written(self) -> None:
        await self._idle.wait()

    async def run_once(self) -> float | None:
        """Writes logs, then ends, then starts of what is still running."""
        batch = self._ended[:BATCH_MAX]
        await self._write_logs()
        if batch:
            await self._write_ends_apart(batch)
            del self._ended[: len(batch)]
        await self._write_starts()
        if self._ended:
            return 0
        if not self._chunks:
            self._idle.set()
        return None

    async def _write_logs(self) -> None:
        left = len(self._chunks)
        while left > 0:
            chunks = self._chunks[: min(left, BATCH_MAX)]
            left -= len(chunks)
            self._chunks = self._chunks[len(chunks) :]
            try:
                await self._logs.append_logs(chunks)
            except BaseException:
                self._chunks = chunks + self._chunks
                raise

    async def _write_ends_apart(self, batch: Sequence[_Ended]) -> None:
        try:
            await self._write_ends(batch)
        except DatabaseUnavailable:
            raise
        except Exception as fault:  # something in it cannot be stored; the others must not wait for it
            if len(batch) > 1:
                for ended in batch:
                    await self._write_ends_apart([ended])
                return
            error = f"the outcome could not be stored: {type(fault).__name__}"
            await self._write_ends([batch[0]._replace(outcome=Failed(Reason.EXCEPTION, error, retryable=False))])

    async def _write_ends(self, batch: Sequence[_Ended]) -> None:
        finishes: list[Finish] = []
        requeues: list[Requeue] = []
        for ended in batch:
            self._settle(ended, finishes, requeues)
        written = await self._live_runs.finish_runs(finishes) if finishes else set()
        if requeues:
            returned = await self._live_runs.requeue_runs(requeues)
            # Not returned: late, or being cancelled. Those of the second sort end as cancelled now.
            rest = [_as_cancelled(requeue) for requeue in requeues if requeue.run_id not in returned]
            written |= returned | (await self._live_runs.finish_runs(rest) if rest else set())
        late = [ended.claim.run_id for ended in batch if ended.claim.run_id not in written]
        if late:
            emit(Event.LATE_OUTCOMES, count=len(late), run_ids=[str(run_id) for run_id in late[:5]])

    def _settle(self, ended: _Ended, finishes: list[Finish], requeues: list[Requeue]) -> None:
        claim, outcome = ended.claim, ended.outcome
        if outcome is NOTHING_SAID:  # the shortest road for what happens most
            finishes.append(Finish(claim.run_id, claim.fence, RunState.SUCCEEDED, ended.started_at, ended.ended_at))
            return
        standing = Standing(claim.failures, claim.losses, retry_from_json(claim.max_retries, claim.retry))
        step = settle(standing, outcome, ended.ended_at, self._chance())
        reason = step.reason and step.reason.value
        if step.ready_at is None:
            finishes.append(
                Finish(
                    claim.run_id,
                    claim.fence,
                    step.state,
                    ended.started_at,
                    ended.ended_at,
                    reason,
                    step.error,
                    step.result,
                )
            )
            return
        state = _ATTEMPT_STATES.get(step.reason, RunState.FAILED)
        requeues.append(
            Requeue(
                claim.run_id,
                claim.fence,
                state,
                ended.started_at,
                ended.ended_at,
                step.ready_at,
                reason,
                step.error,
                failed=step.event is RunEvent.RETRY,
                lost=isinstance(outcome, Lost),
            )
        )
        emit(Event.ATTEMPT_FAILED, run_id=str(claim.run_id), attempt=claim.attempt, reason=reason)

    async def _write_starts(self) -> None:
        now = self._clock.now()
        due = [
            (run_id, fence, at)
            for run_id, (fence, at) in self._started.items()
            if (now - at).total_seconds() >= START_AFTER_SECONDS
        ][:BATCH_MAX]
        if due:
            await self._live_runs.start_runs(due)
            for run_id, fence, _ in due:
                if self._started.get(run_id, (None, None))[0] == fence:
                    del self._started[run_id]

    def _starts_due(self) -> None:
        self._start_timer = None
        if self._started:
            self._start_timer = asyncio.get_running_loop().call_later(START_AFTER_SECONDS, self._starts_due)
            now = self._clock.now()
            oldest = next(iter(self._started.values()))[1]
            if (now - oldest).total_seconds() >= START_AFTER_SECONDS:
                self.wake()

    def _log_due(self) -> None:
        self._log_timer = None
        self.wake()


def _as_cancelled(requeue: Requeue) -> Finish:
    return Finish(
        requeue.run_id,
        requeue.fence,
        RunState.CANCELLED,
        requeue.started_at,
        requeue.ended_at,
        Reason.CANCELLED.value,
        requeue.error,
    )
