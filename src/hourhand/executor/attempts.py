"""Attempts in hand: each is started on its instant, watched, stopped when asked to, and its outcome recorded."""

import asyncio
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from uuid import UUID

from hourhand.executor.capacity import Capacity
from hourhand.executor.logs import LogBuffer
from hourhand.executor.recorder import Recorder
from hourhand.executor.transactions import Transactions
from hourhand.model.outcome import Failed, Interrupted, Outcome, TimedOut
from hourhand.model.run import Claim
from hourhand.model.states import Reason
from hourhand.ports.job_kind import JobKind, SlotClass, Task
from hourhand.runtime.clock import DatabaseClock


class _Running:
    __slots__ = (
        "_open_log", "careful", "claim", "is_early", "log", "outcome_when_stopped", "recorded", "started_at", "task",
    )  # fmt: skip

    def __init__(self, claim: Claim, open_log: Callable[[Claim], LogBuffer]) -> None:
        self.claim = claim
        self.careful = claim.careful
        self.task: asyncio.Task[None] | None = None
        self.is_early = False
        """It waits for its time."""
        self.started_at: datetime | None = None
        """When it took its first step; None before."""
        self._open_log = open_log
        self.log: LogBuffer | None = None
        """None until it says something: most attempts say nothing."""
        self.outcome_when_stopped: Outcome | None = None
        self.recorded = False
        """The attempt has written its own end; whatever comes of it afterwards changes nothing."""

    def is_stopping(self) -> bool:
        return self.outcome_when_stopped is not None

    def say(self, stream: str, text: str) -> None:
        """Takes one line of its log."""
        if self.log is None:
            self.log = self._open_log(self.claim)
        self.log(stream, text)


class Attempts:
    def __init__(
        self,
        kinds: Mapping[str, JobKind],
        offers: Mapping[str, SlotClass],
        capacity: Capacity,
        recorder: Recorder,
        clock: DatabaseClock,
        log_lines_max: int,
    ) -> None:
        self._kinds = kinds
        self._offers = offers
        self._capacity = capacity
        self._recorder = recorder
        self._clock = clock
        self._log_lines_max = log_lines_max
        self._in_hand: dict[tuple[UUID, int], _Running] = {}
        self._early: dict[int, list[_Running]] = {}
        """Those that wait for their time, by the millisecond of the loop's clock in which they start."""
        self._empty = asyncio.Event()
        self._empty.set()
        self.lease_is_sure: Callable[[], bool] = lambda: True
        """Whether runs may be started that must not go on without a lease."""
        self.transactions: Transactions | None = None
        """For attempts that record their end together with their work."""

    def start(self, claim: Claim) -> None:
        """Starts an attempt at its time: at once, or by a timer when it is a little ahead."""
        running = _Running(claim, self._open_log)
        self._in_hand[claim.run_id, claim.fence] = running
        self._empty.clear()
        self._start_when_due(running)

    def _start_when_due(self, running: _Running) -> None:
        # Never early by anybody's clock: the estimate may be off by its error, and timers may fire a little too soon.
        wait = self._clock.seconds_until(running.claim.ready_at) + min(self._clock.error_seconds, 0.05)
        running.is_early = wait > 0
        if running.is_early:
            self._start_later(running, wait)
            return
        if running.careful and not self.lease_is_sure():
            self._end(running, Interrupted(lease_unsure=True), self._clock.now())
            return
        running.task = asyncio.create_task(self._attempt(running))

    def _start_later(self, running: _Running, wait: float) -> None:
        """By one timer for all that are due in the same millisecond: a crowd at one instant is one."""
        loop = asyncio.get_running_loop()
        millisecond = math.ceil((loop.time() + wait + 0.0005) * 1000)
        others = self._early.get(millisecond)
        if others is None:
            others = self._early[millisecond] = []
            loop.call_at(millisecond / 1000, self._start_early, millisecond)
        others.append(running)

    def _start_early(self, millisecond: int) -> None:
        for running in self._early.pop(millisecond):
            if running.is_early:  # else it was stopped meanwhile
                self._start_when_due(running)

    def stop(self, run_id: UUID, fence: int, outcome: Outcome) -> bool:
        """Asks an attempt to end; what it says then counts for nothing, `outcome` is recorded once it is gone."""
        running = self._in_hand.get((run_id, fence))
        if running is None:
            return False
        if running.outcome_when_stopped is None:
            running.outcome_when_stopped = outcome
            if running.is_early:
                running.is_early = False
                self._end(running, outcome, self._clock.now())
            elif running.task is not None:
                running.task.cancel()
                if running.started_at is None:  # cancelled before its first step, it never takes one
                    self._end(running, outcome, self._clock.now())
        return True

    def stop_all(self, lease_unsure: bool = False) -> None:
        for run_id, fence in list(self._in_hand):
            self.stop(run_id, fence, Interrupted(lease_unsure))

    def make_careful(self, run_id: UUID, fence: int) -> None:
        """The run has got a place in a gate after its claim: from now on it needs the lease."""
        running = self._in_hand.get((run_id, fence))
        if running is not None:
            running.careful = True

    def end_careful(self) -> int:
        """Ends by force what must not go on without a lease; how many attempts that were. Call it until none is."""
        careful = [running for running in self._in_hand.values() if running.careful]
        for running in careful:
            self._end_by_force(running, Interrupted(lease_unsure=True))
        return len(careful)

    def end_all(self) -> int:
        """The same for everything."""
        every = list(self._in_hand.values())
        for running in every:
            self._end_by_force(running, Interrupted())
        return len(every)

    def _end_by_force(self, running: _Running, outcome: Outcome) -> None:
        if running.outcome_when_stopped is None:
            self.stop(running.claim.run_id, running.claim.fence, outcome)
        elif running.task is not None:
            running.task.cancel()  # asked for the second time, a kind gives no more grace

    def give_back_unstarted(self) -> None:
        for (run_id, fence), running in list(self._in_hand.items()):
            if running.is_early:
                self.stop(run_id, fence, Interrupted())

    def holds(self, run_id: UUID, fence: int) -> bool:
        return (run_id, fence) in self._in_hand

    async def all_ended(self) -> None:
        await self._empty.wait()

    def __len__(self) -> int:
        return len(self._in_hand)

    async def _attempt(self, running: _Running) -> None:
        claim = running.claim
        running.started_at = started_at = self._clock.now()
        self._recorder.started(claim.run_id, claim.fence, started_at)
        outcome: Outcome
        try:
            outcome = await self._run(running)
        except asyncio.CancelledError:
            outcome = running.outcome_when_stopped or Interrupted()
        except Exception as fault:  # a job kind must not raise; if one does, the run says so and the executor lives on
            outcome = Failed(Reason.EXCEPTION, f"the kind {claim.kind!r} broke: {type(fault).__name__}: {fault}")
        if running.outcome_when_stopped is not None:
            outcome = running.outcome_when_stopped
        if running.log is not None:
            running.log.close()
        self._end(running, outcome, self._clock.now())

    def _open_log(self, claim: Claim) -> LogBuffer:
        recorder = self._recorder
        return LogBuffer(
            claim.run_id, claim.attempt, self._clock.now, recorder.log, self._log_lines_max, recorder.is_crowded
        )

    async def _run(self, running: _Running) -> Outcome:
        claim = running.claim
        kind = self._kinds[claim.kind]
        task = Task(
            claim.run_id, claim.job_id, claim.namespace, claim.job_name, claim.kind, claim.payload, claim.attempt,
            claim.fence, claim.scheduled_for, running.say, claim.timeout_seconds,
            running.is_stopping, None if self.transactions is None else self.transactions.of(running),
        )  # fmt: skip
        allowed = None if claim.timeout_seconds is None and claim.deadline is None else self._allowed(claim)
        if allowed is None:
            return await kind.run(task)
        if allowed.seconds <= 0:
            return allowed
        task.timeout_seconds = allowed.seconds
        limit = asyncio.timeout(allowed.seconds)
        try:
            async with limit:
                return await kind.run(task)
        except TimeoutError:
            if limit.expired():
                return allowed
            raise

    def _allowed(self, claim: Claim) -> TimedOut | None:
        """What becomes of an attempt that is not over after so many seconds; None when it may take for ever."""
        left = None if claim.deadline is None else self._clock.seconds_until(claim.deadline)
        if left is not None and (claim.timeout_seconds is None or left <= claim.timeout_seconds):
            return TimedOut(left, deadline=True)
        return None if claim.timeout_seconds is None else TimedOut(claim.timeout_seconds)

    def _end(self, running: _Running, outcome: Outcome, ended_at: datetime) -> None:
        claim = running.claim
        self._in_hand.pop((claim.run_id, claim.fence), None)
        if not self._in_hand:
            self._empty.set()
        if running.recorded:
            self._recorder.forget(claim)
        else:
            self._recorder.ended(claim, running.started_at, ended_at, outcome)
        self._capacity.give_back(self._offers[claim.needs])


def offers_of(kinds: Mapping[str, JobKind]) -> dict[str, SlotClass]:
    """Every need that the kinds can fill, and the room that it takes."""
    return {need: kind.slot_class_of(need) for kind in kinds.values() for need in kind.offers()}
