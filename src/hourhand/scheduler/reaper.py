"""Returns runs to the queue when the executor that held them is gone.

The database decides that a lease is over; this module decides what follows. It never stops the executor that held it:
that executor's late write is refused by its fence number.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from hourhand.model.outcome import Cancelled, Lost
from hourhand.model.retry import DEFAULT_RETRY
from hourhand.model.settle import LOSSES_MAX, LOSSES_WINDOW, Standing, settle
from hourhand.model.states import RunState
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import Finish, Held, LiveRunStore, NodeStore, Requeue
from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BATCH_MAX = 500
HEAL_SECONDS = 15.0
"""How often all live runs are searched for strays."""


class Reaper:
    def __init__(self, live_runs: LiveRunStore, nodes: NodeStore, clock: DatabaseClock, bus: EventBus) -> None:
        self._live_runs = live_runs
        self._nodes = nodes
        self._clock = clock
        self._bus = bus
        self._heal_at = 0.0

    async def run_once(self, executors: Sequence[int]) -> int:
        """Returns the runs of executors that have ended; says how many."""
        if _monotonic() >= self._heal_at:
            self._heal_at = _monotonic() + HEAL_SECONDS
            executors = [*executors, *await self._nodes.stray_executors()]
        if not executors:
            return 0
        returned = 0
        while held := await self._live_runs.held_by(executors, BATCH_MAX):
            settled = await self._settle(held)
            returned += settled
            if not settled:
                break
        await self._nodes.mark_returned(executors)
        if returned:
            emit(Event.RUNS_RETURNED, runs=returned, executors=executors)
            self._bus.publish(Topic.READY)
        return returned

    async def _settle(self, held: list[Held]) -> int:
        now = self._clock.now()
        finishes: list[Finish] = []
        requeues: list[Requeue] = []
        losses = await self._recent_losses(held, now)
        for run in held:
            outcome = Cancelled() if run.state is RunState.CANCELLING else Lost()
            lost_before = losses.get(run.run_id, 0)
            standing = Standing(run.failures, lost_before, DEFAULT_RETRY, at_most_once=run.at_most_once)
            step = settle(standing, outcome, now, 0.0)
            reason = step.reason and step.reason.value
            if step.ready_at is None:
                finishes.append(Finish(run.run_id, run.fence, step.state, run.started_at, now, reason, step.error))
            else:
                requeues.append(
                    Requeue(
                        run.run_id,
                        run.fence,
                        RunState.LOST,
                        run.started_at,
                        now,
                        step.ready_at,
                        reason,
                        step.error,
                        failed=False,
                        lost=True,
                    )
                )
        done = len(await self._live_runs.finish_runs(finishes)) if finishes else 0
        return done + (len(await self._live_runs.requeue_runs(requeues)) if requeues else 0)

    async def _recent_losses(self, held: Sequence[Held], now: datetime) -> Mapping[UUID, int]:
        """Counted only for runs that were lost often enough in all their life to be near the end of it."""
        suspects = [run.run_id for run in held if run.losses >= LOSSES_MAX - 1]
        return await self._live_runs.count_losses(suspects, now - LOSSES_WINDOW) if suspects else {}


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
