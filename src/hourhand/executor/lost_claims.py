"""Compares what the database says this executor holds with what it knows of.

Gives back runs that were claimed for it without its knowing, and learns which runs got a place in a gate after their
claim, because somebody set a limit meanwhile: those end like all gated ones when the lease is in doubt.

When a connection breaks after a claim was committed and before its answer arrived, the rows carry the number of a
living executor, and nobody else will touch them. What the database says this executor holds, and it neither runs nor
has still to record, in two looks running, goes back to the queue under its fence; but not before every claim that was
under way at the first look has been answered or given up: its answer may still come.
"""

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from hourhand.executor.attempts import Attempts
from hourhand.executor.recorder import Recorder
from hourhand.model.outcome import Interrupted
from hourhand.model.retry import DEFAULT_RETRY
from hourhand.model.settle import Standing, settle
from hourhand.model.states import Reason, RunState
from hourhand.ports.stores import Finish, Held, LiveRunStore, Requeue
from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

LOOK_MAX = 20_000
INTERVAL_SECONDS = 20.0
SECOND_LOOK_SECONDS = 1.0


class Claims(Protocol):
    claims_begun: int
    claims_ended: int


class LostClaims:
    def __init__(
        self,
        live_runs: LiveRunStore,
        attempts: Attempts,
        recorder: Recorder,
        executor_id: Callable[[], int],
        clock: DatabaseClock,
        claims: Claims,
    ) -> None:
        self._live_runs = live_runs
        self._attempts = attempts
        self._recorder = recorder
        self._executor_id = executor_id
        self._clock = clock
        self._claims = claims
        self._suspects: dict[tuple[UUID, int], int] = {}
        """Each with the number of the last claim that may have brought it."""

    async def run_once(self) -> float | None:
        held = await self._live_runs.held_by([self._executor_id()], LOOK_MAX)
        for run in held:
            if run.gated:
                self._attempts.make_careful(run.run_id, run.fence)
        unwritten = self._recorder.unwritten()
        unknown = {
            (run.run_id, run.fence): run
            for run in held
            if not self._attempts.holds(run.run_id, run.fence) and (run.run_id, run.fence) not in unwritten
        }
        begun, ended = self._claims.claims_begun, self._claims.claims_ended
        suspects = {key: self._suspects.get(key, begun) for key in unknown}
        lost = [run for key, run in unknown.items() if key in self._suspects and suspects[key] <= ended]
        self._suspects = suspects
        if lost:
            await self._give_back(lost)
        return SECOND_LOOK_SECONDS if unknown else None

    async def _give_back(self, lost: Sequence[Held]) -> None:
        now = self._clock.now()
        cancelled = [
            Finish(run.run_id, run.fence, RunState.CANCELLED, None, now, Reason.CANCELLED.value)
            for run in lost
            if run.state is RunState.CANCELLING
        ]
        if cancelled:
            await self._live_runs.finish_runs(cancelled)
        await self._live_runs.requeue_runs([self._requeue(run) for run in lost])
        emit(Event.CLAIMS_LOST, runs=len(lost))

    def _requeue(self, run: Held) -> Requeue:
        now = self._clock.now()
        step = settle(Standing(run.failures, run.losses, DEFAULT_RETRY), Interrupted(), now, 0.0)
        assert step.ready_at is not None
        return Requeue(
            run.run_id,
            run.fence,
            RunState.LOST,
            None,
            now,
            step.ready_at,
            Reason.CLAIM_LOST.value,
            None,
            failed=False,
            lost=False,
        )
