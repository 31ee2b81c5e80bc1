"""Attempts in hand: each is started on its instant, watched, stopped when asked to, and its outcome recorded.

Many attempts have nothing to wait for: they end with their first step. To make a task for each of them takes longer
than such a step, so they take it in turn, in one task. The first that does wait for something keeps that task as its
own, and the others get new ones: nothing that a handler does to its task or its context reaches another.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import coroutine
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.executor.callbacks import Callbacks
from hourhand.executor.capacity import Capacity
from hourhand.executor.fan_out import FAN_OUT
from hourhand.executor.logs import LogBuffer
from hourhand.executor.outputs import Outputs, wants_blob
from hourhand.executor.progress import ProgressKeeper
from hourhand.executor.recorder import Recorder
from hourhand.executor.secrets import AttemptSecrets, Given, without_secrets
from hourhand.executor.transactions import Transactions
from hourhand.model.masking import LineMask, Masker
from hourhand.model.outcome import NOTHING_SAID, Failed, Interrupted, Outcome, Succeeded, TimedOut
from hourhand.model.run import Claim
from hourhand.model.run_blobs import RunFile
from hourhand.model.states import Reason
from hourhand.model.usage import Usage
from hourhand.ports.job_kind import NO_MORE_GRACE, JobKind, SlotClass, Task
from hourhand.runtime.clock import DatabaseClock

EARLY_SECONDS_MAX: Final = 1.0
"""After so long at the latest, what waits for its time looks at the clock again. Nothing is claimed as early as that,
but the database's clock may be set back after a claim, and forth again."""
TURN_MAX: Final = 250
"""First steps in a row. Then whatever else is ready has its turn: answers of the database, timers, cancels."""


# A struct, because one is made per attempt: see JobDefinition.
class _Running(msgspec.Struct, eq=False):
    claim: Claim
    careful: bool
    open_log: Callable[[Claim], LogBuffer]
    keeper: ProgressKeeper | None
    task: asyncio.Task[None] | None = None
    """Its own; None while it takes its first step and before."""
    is_early: bool = False
    """It waits for its time."""
    started_at: datetime | None = None
    """When it took its first step; None before."""
    log: LogBuffer | None = None
    """None until it says something: most attempts say nothing."""
    outcome_when_stopped: Outcome | None = None
    outputs: Outputs | None = None
    files: tuple[RunFile, ...] = ()
    """What it has left, kept and not recorded yet."""
    output_fault: str | None = None
    """Why something of that could not be kept."""
    masker: Masker | None = None
    """Takes the values of its secrets out of what it says. None: it has none."""
    line_mask: LineMask | None = None
    recorded: bool = False
    """The attempt has written its own end; whatever comes of it afterwards changes nothing."""
    told: bool = False
    """It has said how far it has come."""

    def is_stopping(self) -> bool:
        return self.outcome_when_stopped is not None

    def __call__(self, stream: str, text: str) -> None:
        """Takes one line of its log: an attempt is its own sink, which costs nothing while it says nothing."""
        self.many(stream, [text])

    def many(self, stream: str, texts: list[str]) -> "asyncio.Future[None] | None":
        """Takes lines of its log. What it answers is to be waited for before more is read."""
        if self.log is None:
            self.log = self.open_log(self.claim)
            self.log.mask = self.line_mask
        return self.log.many(stream, texts)

    def progress(self, percent: float | None, message: str) -> None:
        """Takes what it says of how far it has come."""
        if self.keeper is not None and self.outcome_when_stopped is None:
            self.told = True
            if self.masker is not None:
                message = self.masker.cut_text(message)
            self.keeper.told(self.claim, percent, message)

    async def keep_outputs(self, folder: Path) -> None:
        assert self.outputs is not None
        await self.outputs.keep(self, folder)


class Attempts:
    def __init__(
        self,
        kinds: Mapping[str, JobKind],
        offers: Mapping[str, SlotClass],
        capacity: Capacity,
        recorder: Recorder,
        clock: DatabaseClock,
        log_lines_max: int,
        log_bytes_max: int = 8 * 1024 * 1024,
        outputs: Outputs | None = None,
    ) -> None:
        self._outputs = outputs
        self._kinds = kinds
        self._offers = offers
        self._capacity = capacity
        self._recorder = recorder
        self._clock = clock
        self._log_max = (log_lines_max, log_bytes_max)
        self._in_hand: dict[int, _Running] = {}
        """By their fence numbers, which no two attempts share, of whichever run."""
        self._early: dict[int, list[_Running]] = {}
        """Those that wait for their time, by the millisecond of the loop's clock in which they start."""
        self._at_once: set[str] = set()
        """What attempts needed that have ended with their first step, and not waited for anything, the last time."""
        self._empty = asyncio.Event()
        self._empty.set()
        self.lease_is_sure: Callable[[], bool] = lambda: True
        """Whether runs may be started that must not go on without a lease."""
        self.transactions: Transactions | None = None
        """For attempts that record their end together with their work."""
        self.progress: ProgressKeeper | None = None
        """For attempts that say how far they have come."""
        self.callbacks: Callbacks | None = None
        """For attempts that others end."""
        self.secrets: AttemptSecrets | None = None
        """For attempts whose jobs refer to secrets."""

    def start(self, *claims: Claim) -> None:
        """Starts attempts at their time: at once, or by a timer when they are a little ahead."""
        started = [
            _Running(claim, claim.careful, self._open_log, self.progress, outputs=self._outputs) for claim in claims
        ]
        for running in started:
            self._in_hand[running.claim.fence] = running
        if started:
            self._empty.clear()
        self._start_when_due(started)

    def _start_when_due(self, attempts: Sequence[_Running]) -> None:
        # Never early by anybody's clock: the estimate may be off by its error, and timers may fire a little too soon.
        error = self._clock.error_seconds
        passed = self._clock.now() - timedelta(seconds=error)
        instant, waiting, due = None, list[_Running](), list[_Running]()
        for running in attempts:
            ready_at = running.claim.ready_at
            running.is_early = ready_at > passed
            if running.is_early:
                if ready_at != instant:  # in a crowd all of them wait for the same one
                    instant = ready_at
                    waiting = self._waiting_for(self._clock.seconds_until(ready_at) + error)
                waiting.append(running)
            elif running.careful and not self.lease_is_sure():
                self._end(running, Interrupted(lease_unsure=True), self._clock.now())
            else:
                due.append(running)
        if due:
            self._start_now(due)

    def _start_now(self, attempts: Iterable[_Running]) -> None:
        """Those of a sort that ended with its first step the last time take it one after the other, in one task. All
        others have a task each, so that none waits for another."""
        create_task = asyncio.get_running_loop().create_task
        together: deque[_Running] = deque()
        for running in attempts:
            if running.claim.needs in self._at_once:
                together.append(running)
            else:
                create_task(self._in_turn(deque([running])))
        if together:
            create_task(self._in_turn(together))

    async def _in_turn(self, due: deque[_Running]) -> None:
        await self._take_turns(due)

    @coroutine
    def _take_turns(self, due: deque[_Running]) -> Generator[Any, Any, None]:
        """The first steps of attempts, one after the other; and the rest of the first one that waits for something."""
        task, steps, now = asyncio.current_task(), 0, self._clock.now()
        assert task is not None
        try:
            while due:
                steps += 1
                if steps % TURN_MAX == 0:
                    yield
                    now = self._clock.now()
                running = due.popleft()
                if running.is_stopping():  # and so has ended
                    continue
                work, context = self._attempt(running, now), copy_context()
                try:
                    waited = context.run(work.send, None)
                except StopIteration as end:
                    now = end.value  # the next one starts as this one ends: clocks are read once for both
                    self._at_once.add(running.claim.needs)
                    if task.cancelling():  # by the attempt itself: the next one must not hear of it
                        return
                    continue
                running.task = task
                self._recorder.started(running.claim.run_id, running.claim.fence, now)
                self._at_once.discard(running.claim.needs)
                others, due = due, deque()
                self._start_now(others)
                if running.is_stopping():  # since the middle of its first step
                    task.cancel()
                yield from _rest_of(work, waited, context.run)
        finally:
            if due:
                self._start_now(due)

    def _waiting_for(self, wait: float) -> list[_Running]:
        """Those that start after so many seconds: by one timer for all that are due in the same millisecond."""
        loop = asyncio.get_running_loop()
        wait = min(wait, EARLY_SECONDS_MAX)
        millisecond = math.ceil((loop.time() + wait + 0.0005) * 1000)
        others = self._early.get(millisecond)
        if others is None:
            others = self._early[millisecond] = []
            loop.call_at(millisecond / 1000, self._start_early, millisecond)
        return others

    def _start_early(self, millisecond: int) -> None:
        # Those that were stopped meanwhile no longer wait.
        self._start_when_due([running for running in self._early.pop(millisecond) if running.is_early])

    def stop(self, run_id: UUID, fence: int, outcome: Outcome) -> bool:
        """Asks an attempt to end; what it says then counts for nothing, `outcome` is recorded once it is gone."""
        running = self._held(run_id, fence)
        if running is None:
            return False
        self._stop(running, outcome)
        return True

    def _stop(self, running: _Running, outcome: Outcome) -> None:
        if running.outcome_when_stopped is not None:
            return
        running.outcome_when_stopped = outcome
        if running.task is not None:
            running.task.cancel()
        elif running.started_at is None:  # it waits for its time, or its turn: now it never takes a step
            running.is_early = False
            self._end(running, outcome, self._clock.now())

    def _held(self, run_id: UUID, fence: int) -> _Running | None:
        running = self._in_hand.get(fence)
        return running if running is not None and running.claim.run_id == run_id else None

    def stop_all(self, lease_unsure: bool = False) -> None:
        for running in list(self._in_hand.values()):
            self._stop(running, Interrupted(lease_unsure))

    def make_careful(self, run_id: UUID, fence: int) -> None:
        """The run has got a place in a gate after its claim: from now on it needs the lease."""
        running = self._held(run_id, fence)
        if running is not None:
            running.careful = True

    def has_careful(self) -> bool:
        """Whether anything in hand must not go on without a lease. From any thread."""
        return any(running.careful for running in list(self._in_hand.values()))

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
            self._stop(running, outcome)
        elif running.task is not None:
            running.task.cancel(NO_MORE_GRACE)  # asked for the second time

    def give_back_unstarted(self) -> None:
        """And what is only led: others lead it at once, and nobody waits here for parts that run elsewhere."""
        for running in list(self._in_hand.values()):
            if running.is_early or running.claim.kind == FAN_OUT:
                self._stop(running, Interrupted())

    def holds(self, run_id: UUID, fence: int) -> bool:
        return self._held(run_id, fence) is not None

    async def all_ended(self) -> None:
        await self._empty.wait()

    def __len__(self) -> int:
        return len(self._in_hand)

    async def _attempt(self, running: _Running, started_at: datetime) -> datetime:
        """When it ended."""
        claim = running.claim
        running.started_at = started_at
        outcome: Outcome
        task = self._task_of(running)
        try:
            work = self._kinds[claim.kind].run
            if claim.secrets:
                work = partial(self._with_secrets, running, work)
            if claim.timeout_seconds is None and claim.deadline is None:
                outcome = await work(task)
            else:
                outcome = await self._run_in_time(work, claim, task)
            if outcome is not NOTHING_SAID:
                outcome = await self._with_result_kept(running, outcome)
        except asyncio.CancelledError:
            outcome = running.outcome_when_stopped or Interrupted()
        except Exception as fault:  # a job kind must not raise; if one does, the run says so and the executor lives on
            outcome = _broken(claim, fault)
        if running.outcome_when_stopped is not None:
            outcome = running.outcome_when_stopped
        elif running.output_fault is not None and isinstance(outcome, Succeeded):
            outcome = Failed(Reason.OUTPUT_NOT_KEPT, running.output_fault)
        if running.log is not None:
            running.log.close()
        ended_at = self._clock.now()
        self._end(running, outcome, ended_at, task.usage)
        return ended_at

    async def _with_result_kept(self, running: _Running, outcome: Outcome) -> Outcome:
        """A result that cannot stand in a row goes to a blob first."""
        if isinstance(outcome, Succeeded | Failed) and wants_blob(outcome.result) and not running.recorded:
            if self._outputs is None:
                return Failed(Reason.RESULT_TOO_LARGE, "this executor has no blobs to keep the result in")
            return await self._outputs.keep_result(running, outcome)
        return outcome

    async def _with_secrets(self, running: _Running, work: Callable[[Task], Awaitable[Outcome]], task: Task) -> Outcome:
        """The work, once the values that it refers to are here; and what it says, without them."""
        assert self.secrets is not None, "an executor has a way to secrets"
        given = await self.secrets.of(running.claim)
        if not isinstance(given, Given):
            return given
        running.masker, running.line_mask, task.secrets = given.masker, given.line_mask(), given.values
        try:
            outcome = await work(task)
        except Exception as fault:
            outcome = _broken(running.claim, fault)
        return await without_secrets(outcome, given.masker)

    def _open_log(self, claim: Claim) -> LogBuffer:
        recorder, (lines, size) = self._recorder, self._log_max
        return LogBuffer(
            claim.run_id, claim.attempt, self._clock.now, recorder.log, lines, recorder.is_crowded, size, recorder.room
        )

    def _task_of(self, running: _Running) -> Task:
        claim, callbacks = running.claim, self.callbacks
        task = Task(
            claim.run_id, claim.job_id, claim.namespace, claim.job_name, claim.kind, claim.payload, claim.attempt,
            claim.fence, claim.scheduled_for, running, claim.timeout_seconds,
            running.is_stopping, None if self.transactions is None else self.transactions.of(running), claim.resources,
            progress=running.progress,
            callback=callbacks.of(claim, running.progress) if callbacks is not None and claim.kind == "http" else None,
            keep_outputs=None if self._outputs is None else running.keep_outputs,
        )  # fmt: skip
        if claim.total is not None:
            task.index, task.total = claim.index, claim.total
        return task

    async def _run_in_time(self, work: Callable[[Task], Awaitable[Outcome]], claim: Claim, task: Task) -> Outcome:
        allowed = self._allowed(claim)
        if allowed.seconds <= 0:
            return allowed
        task.timeout_seconds = allowed.seconds
        limit, loop = asyncio.timeout(allowed.seconds), asyncio.get_running_loop()
        over = loop.time() + allowed.seconds
        try:
            async with limit:
                outcome = await work(task)
            # A handler that blocks the loop hears of its time only when it has passed.
            return outcome if loop.time() <= over else allowed
        except TimeoutError:
            if limit.expired():
                return allowed
            raise

    def _allowed(self, claim: Claim) -> TimedOut:
        """What becomes of an attempt with a limit that is not over after so many seconds."""
        timeout = math.inf if claim.timeout_seconds is None else claim.timeout_seconds
        left = math.inf if claim.deadline is None else self._clock.seconds_until(claim.deadline)
        return TimedOut(left, deadline=True) if left <= timeout else TimedOut(timeout)

    def _end(self, running: _Running, outcome: Outcome, ended_at: datetime, usage: Usage | None = None) -> None:
        claim = running.claim
        self._in_hand.pop(claim.fence, None)
        if not self._in_hand:
            self._empty.set()
        if running.told and self.progress is not None:
            self.progress.ended(claim)
        if running.recorded:
            self._recorder.forget(claim)
        else:
            self._recorder.ended(claim, running.started_at, ended_at, outcome, usage, running.files)
        self._capacity.give_back(self._offers[claim.needs], claim.fence)


def _rest_of(work: Coroutine[Any, Any, object], waited: Any, run: Callable[..., Any]) -> Generator[Any, Any, None]:
    """All further steps of an attempt that has taken its first and waits for something, each in its own context."""
    try:
        while True:
            try:
                value = yield waited
            except BaseException as fault:
                waited = run(work.throw, fault)
            else:
                waited = run(work.send, value)
    except StopIteration:
        return


def _broken(claim: Claim, fault: Exception) -> Failed:
    return Failed(Reason.EXCEPTION, f"the kind {claim.kind!r} broke: {type(fault).__name__}: {fault}")


def offers_of(kinds: Mapping[str, JobKind]) -> dict[str, SlotClass]:
    """Every need that the kinds can fill, and the room that it takes."""
    return {need: kind.slot_class_of(need) for kind in kinds.values() for need in kind.offers()}
