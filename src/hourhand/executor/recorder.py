"""Writes what attempts came to, in batches: as one write returns, all that has gathered meanwhile goes next.

A run that starts and ends between two writes costs one, not two. Log lines are stored before the end of their run, so
whoever sees the end can read the whole log. While the database is away everything waits here and is delivered,
under its fence, when it is back; outcomes are kept in the journal meanwhile, so that they survive the executor too.

An outcome that cannot be stored because of what is in it ends its run as failed. No other fault may change what an
attempt said: it is said again, less and less often, until the database takes it, and holds up no other outcome.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from hourhand.executor.faults import lies_in_the_data, state_class
from hourhand.executor.journal import Entry
from hourhand.executor.keeper import Keeper
from hourhand.executor.log_writer import LogWriter
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.outcome import NOTHING_SAID, Lost, Outcome
from hourhand.model.retry import retry_from_json
from hourhand.model.run import Claim
from hourhand.model.run_blobs import RunFile
from hourhand.model.settle import Standing, settle
from hourhand.model.states import Reason, RunEvent, RunState
from hourhand.model.usage import Usage
from hourhand.ports.log_stores import LogStore
from hourhand.ports.stores import Finish, LiveRunStore, Requeue
from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BATCH_MAX = 1000
GATHER_SECONDS = 0.01
"""Between two writes that nobody waits for: a batch costs hardly more than one outcome."""
GATHER_MAX = 500
"""So many are written at once."""
START_AFTER_SECONDS = 0.1
"""A run that has not ended by then is shown as running."""
ASIDE_SECONDS_MIN = 0.1
ASIDE_SECONDS_MAX = 5.0
"""How long an outcome is put aside that the database does not take, although it takes others."""
KEEP_AFTER_SECONDS = 2.0
"""A write that takes longer may not come through: what waits for it goes into the journal."""
_ATTEMPT_STATES: Final[Mapping[Reason | None, RunState]] = {
    Reason.TIMEOUT: RunState.TIMED_OUT,
    Reason.SHUTDOWN: RunState.LOST,
    Reason.LEASE_UNSURE: RunState.LOST,
    Reason.SNOOZED: RunState.SKIPPED,
}
_Key = tuple[UUID, int]
_PASSING: Final = ("40", "53", "55", "57", "58")
"""Those that no outcome is the cause of, such as deadlocks: taking a batch apart would only make more of them."""


class _Ended(msgspec.Struct, gc=False):
    claim: Claim
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    usage: Usage | None = None
    files: tuple[RunFile, ...] = ()


class Recorder:
    def __init__(
        self,
        live_runs: LiveRunStore,
        logs: LogStore,
        clock: DatabaseClock,
        chance: Callable[[], float],
        keeper: Keeper | None = None,
    ) -> None:
        self._live_runs = live_runs
        self._clock = clock
        self._chance = chance
        self._keeper = keeper
        self._ended: list[_Ended] = []
        self._delivered = 0
        """How many outcomes were taken by the database: the number of the first one that waits."""
        self._aside = 0
        """How many of those that wait, the first ones, were not taken although others were."""
        self._aside_until = self._aside_seconds = 0.0
        self._is_away = False
        self.late_outcomes = 0
        """How many came after the right to say them had passed to others."""
        self._started: dict[int, tuple[UUID, datetime]] = {}
        """By fence number: what has started, and is not known to have ended or shown as running."""
        self._log_writer = LogWriter(logs, self._wake_for_logs)
        self.log = self._log_writer.put
        self.is_crowded = self._log_writer.is_crowded
        self.room = self._log_writer.room
        self.logs_written = self._log_writer.written
        self.on_logs: Callable[[], None] = lambda: None
        """Called when lines were stored, and the ends of their runs with them."""
        self.on_parts: Callable[[], None] = lambda: None
        """Called when ends of parts were written, for which whoever leads their run waits."""
        self._has_parts = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.wake: Callable[[], None] = lambda: None
        """Asks for a call of `run_once`; set by whoever runs the loop."""
        self._is_asked = False
        """Whether that was asked for since the last call. When thousands end at once, asking once is enough."""
        self._written_at = 0.0
        self._gathering: asyncio.TimerHandle | None = None
        self._start_timer: asyncio.TimerHandle | None = None

    def started(self, run_id: UUID, fence: int, at: datetime) -> None:
        self._started[fence] = (run_id, at)
        if self._start_timer is None:
            self._start_timer = asyncio.get_running_loop().call_later(START_AFTER_SECONDS, self._starts_due)

    def ended(
        self,
        claim: Claim,
        started_at: datetime | None,
        ended_at: datetime,
        outcome: Outcome,
        usage: Usage | None = None,
        files: tuple[RunFile, ...] = (),
    ) -> None:
        self._started.pop(claim.fence, None)
        self._ended.append(_Ended(claim, started_at, ended_at, outcome, usage, files))
        self._idle.clear()
        if claim.total is not None:
            self._has_parts = True
        if self._is_away:
            self._keep()
        elif self._is_asked:
            return
        elif claim.careful or len(self._ended) >= GATHER_MAX:  # others may wait for its place in a gate
            self._ask()
        elif self._gathering is None:
            rest = self._written_at + GATHER_SECONDS - _monotonic()
            if rest <= 0:
                self._ask()
            else:
                self._gathering = asyncio.get_running_loop().call_later(rest, self._gathered)

    def _ask(self) -> None:
        self._is_asked = True
        self.wake()

    def _gathered(self) -> None:
        self._gathering = None
        if not self._is_away:
            self.wake()

    def _wake_for_logs(self) -> None:
        if not self._is_away:  # else the loop tries again by itself, and less and less often
            self.wake()

    def forget(self, claim: Claim) -> None:
        """The attempt has recorded its end itself."""
        self._started.pop(claim.fence, None)

    def unwritten(self) -> set[tuple[UUID, int]]:
        """Attempts that have ended and are not recorded yet."""
        return {(ended.claim.run_id, ended.claim.fence) for ended in self._ended}

    async def all_written(self) -> None:
        await self._idle.wait()

    async def keep_rest(self) -> None:
        """Returns when what is still unwritten is in the journal, or cannot be. The executor ends."""
        if self._keeper is not None and self._ended:
            await self._keeper.kept()  # whatever it is busy with
            self._keeper.keep(self._waiting_from)
            await self._keeper.kept()

    async def deliver(self, entries: Sequence[Entry]) -> bool:
        """Writes outcomes that others could not deliver; whether the database took them all."""
        untaken: dict[_Key, Exception] = {}
        for begin in range(0, len(entries), BATCH_MAX):
            untaken |= await self._write_ends_apart(entries[begin : begin + BATCH_MAX])
        _tell_untaken(untaken)
        return not untaken

    async def run_once(self) -> float | None:
        """Writes logs, then ends, then starts of what is still running."""
        self._is_asked = False
        slow = asyncio.get_running_loop().call_later(KEEP_AFTER_SECONDS, self._keep)
        try:
            again = await self._write()
        except DatabaseUnavailable:
            self._keep()
            raise
        finally:
            slow.cancel()
        self._is_away = False
        if self._keeper is not None and not self._aside:  # else the journal is still needed
            self._keeper.delivered(self._delivered)
        return again

    async def _write(self) -> float | None:
        now = self._written_at = _monotonic()
        begin = 0 if now >= self._aside_until else self._aside
        batch = self._ended[begin : begin + BATCH_MAX]
        has_stored = await self._log_writer.write()
        if batch:
            await self._write_batch(begin, batch)
        await self._write_starts()
        if has_stored:
            self.on_logs()
        waiting = self._ended[self._aside :]
        if self._has_parts and batch:
            self._has_parts = bool(waiting)  # they may be among these
            self.on_parts()
        if waiting:
            urgent = len(waiting) >= GATHER_MAX or any(ended.claim.careful for ended in waiting)
            return 0 if urgent else max(self._written_at + GATHER_SECONDS - _monotonic(), 0.0)
        if self._aside:
            return max(self._aside_until - _monotonic(), 0.0)
        if not self._log_writer.has_waiting:
            self._idle.set()
        return None

    async def _write_batch(self, begin: int, batch: Sequence[_Ended]) -> None:
        entries = [self._settled(ended) for ended in batch]
        untaken = await self._write_ends_apart(entries)
        fault = next(iter(untaken.values()), None)
        if fault is not None and len(untaken) == len(batch) and _is_passing(fault):
            self._keep_waiting()
            raise fault
        left = [ended for ended in batch if _key(ended.claim) in untaken] if untaken else []
        self._ended[begin : begin + len(batch)] = left
        # Those that are left count as later ones now: at worst the journal has them twice.
        self._delivered += len(batch) - len(left)
        _tell_failures(batch, entries, untaken)
        self._put_aside(begin + len(left), len(left))
        _tell_untaken(untaken)
        if fault is not None and len(left) == len(batch):
            raise fault

    def _put_aside(self, aside: int, failed: int) -> None:
        """The first `aside` outcomes that wait do so for a time of their own, which grows while they fail."""
        if failed:
            self._aside_seconds = min(max(2 * self._aside_seconds, ASIDE_SECONDS_MIN), ASIDE_SECONDS_MAX)
            self._aside_until = _monotonic() + self._aside_seconds
        elif not aside:
            self._aside_seconds = self._aside_until = 0.0
        is_more, self._aside = aside > self._aside, aside
        if is_more:
            self._keep_waiting()

    def _keep(self) -> None:
        """The database does not take outcomes now."""
        self._is_away = True
        self._keep_waiting()

    def _keep_waiting(self) -> None:
        if self._keeper is not None and self._ended:
            self._keeper.keep(self._waiting_from)

    def _waiting_from(self, number: int, limit: int) -> tuple[int, list[Entry]]:
        begin = max(number - self._delivered, 0)
        return self._delivered + begin, [self._settled(ended) for ended in self._ended[begin : begin + limit]]

    async def _write_ends_apart(self, batch: Sequence[Entry], as_they_are: bool = True) -> "dict[_Key, Exception]":
        """Writes what the database takes. Answers what it did not take, and why."""
        try:
            await self._write_ends(batch)
        except DatabaseUnavailable:
            raise
        except Exception as fault:  # one of them may be the cause; the others must not wait for it
            if len(batch) > 1 and not _is_passing(fault):
                middle = len(batch) // 2
                untaken = await self._write_ends_apart(batch[:middle])
                return untaken | await self._write_ends_apart(batch[middle:])
            if as_they_are and lies_in_the_data(fault):
                return await self._write_ends_apart([_as_unstorable(batch[0], fault)], as_they_are=False)
            return {_key(entry): fault for entry in batch}
        return {}

    async def _write_ends(self, batch: Sequence[Entry]) -> None:
        requeues = [entry for entry in batch if isinstance(entry, Requeue)]
        finishes = [entry for entry in batch if isinstance(entry, Finish)]
        written = await self._live_runs.finish_runs(finishes) if finishes else set()
        if requeues:
            returned = await self._live_runs.requeue_runs(requeues)
            # Not returned: late, or being cancelled. Those of the second sort end as cancelled now.
            rest = [_as_cancelled(requeue) for requeue in requeues if requeue.run_id not in returned]
            written |= returned | (await self._live_runs.finish_runs(rest) if rest else set())
        refused = [entry for entry in batch if entry.run_id not in written] if len(written) < len(batch) else []
        if refused:
            await self._note_late(refused)

    async def _note_late(self, refused: Sequence[Entry]) -> None:
        said = [(entry.run_id, entry.fence, entry.state, entry.ended_at) for entry in refused]
        late = await self._live_runs.note_late(said)
        if late:
            self.late_outcomes += len(late)
            emit(Event.LATE_OUTCOMES, count=len(late), run_ids=[str(run_id) for run_id in sorted(late)[:5]])

    def _settled(self, ended: _Ended) -> Entry:
        claim, outcome = ended.claim, ended.outcome
        if outcome is NOTHING_SAID and not ended.files:  # the shortest road for what happens most
            return Finish(claim.run_id, claim.fence, RunState.SUCCEEDED, ended.started_at, ended.ended_at)
        standing = Standing(
            claim.failures,
            claim.losses,
            retry_from_json(claim.max_retries, claim.retry),
            claim.attempt,
            claim.deadline,
            claim.at_most_once,
            ended.started_at is not None,
        )
        step = settle(standing, outcome, ended.ended_at, self._chance())
        reason = step.reason and step.reason.value
        if step.ready_at is None:
            return Finish(
                claim.run_id,
                claim.fence,
                step.state,
                ended.started_at,
                ended.ended_at,
                reason,
                step.error,
                step.result,
                ended.usage,
                ended.files,
            )
        return Requeue(
            claim.run_id,
            claim.fence,
            _ATTEMPT_STATES.get(step.reason, RunState.FAILED),
            ended.started_at,
            ended.ended_at,
            step.ready_at,
            reason,
            step.error,
            failed=step.event is RunEvent.RETRY,
            lost=isinstance(outcome, Lost),
            usage=ended.usage,
            files=ended.files,
        )

    async def _write_starts(self) -> None:
        now = self._clock.now()
        due = [
            (run_id, fence, at)
            for fence, (run_id, at) in self._started.items()
            if (now - at).total_seconds() >= START_AFTER_SECONDS
        ][:BATCH_MAX]
        if due:
            await self._live_runs.start_runs(due)
            for _, fence, _ in due:
                self._started.pop(fence, None)

    def _starts_due(self) -> None:
        self._start_timer = None
        if self._started:
            self._start_timer = asyncio.get_running_loop().call_later(START_AFTER_SECONDS, self._starts_due)
            now = self._clock.now()
            oldest = next(iter(self._started.values()))[1]
            if (now - oldest).total_seconds() >= START_AFTER_SECONDS and not self._is_away:
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
        usage=requeue.usage,
    )


def _key(one: Claim | Entry) -> _Key:
    return one.run_id, one.fence


def _is_passing(fault: Exception) -> bool:
    return state_class(fault) in _PASSING


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _tell_untaken(untaken: Mapping[_Key, Exception]) -> None:
    if untaken:
        fault = next(iter(untaken.values()))
        run_ids = [str(run_id) for run_id, _ in [*untaken][:5]]
        error = f"{type(fault).__name__}: {fault}"
        emit(Event.OUTCOMES_UNTAKEN, count=len(untaken), run_ids=run_ids, error=error)


def _tell_failures(batch: Sequence[_Ended], entries: Sequence[Entry], untaken: Mapping[_Key, Exception]) -> None:
    for ended, entry in zip(batch, entries, strict=True):
        if isinstance(entry, Requeue) and entry.reason != Reason.SNOOZED.value and _key(entry) not in untaken:
            run_id, attempt = str(entry.run_id), ended.claim.attempt
            emit(Event.ATTEMPT_FAILED, run_id=run_id, attempt=attempt, reason=entry.reason)


def _as_unstorable(entry: Entry, fault: Exception) -> Finish:
    error = f"the outcome could not be stored: {type(fault).__name__}"
    return Finish(
        entry.run_id,
        entry.fence,
        RunState.FAILED,
        entry.started_at,
        entry.ended_at,
        Reason.EXCEPTION.value,
        error,
    )
