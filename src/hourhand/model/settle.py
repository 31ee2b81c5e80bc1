"""The pure decision what an attempt's outcome does to its run."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isnan
from typing import Any, Final

from hourhand.model.outcome import (
    Cancelled,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
    Succeeded,
    TimedOut,
    clipped,
)
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import Reason, RunEvent, RunState, advance

LOSSES_MAX: Final = 3
"""How often a run may be lost with its executor before it is held to be the cause."""
LOSSES_WINDOW: Final = timedelta(hours=72)
"""Losses longer ago than that are forgotten."""
RETRY_AFTER_MAX: Final = timedelta(days=1)
SNOOZE_MAX: Final = timedelta(days=7)
ATTEMPTS_MAX: Final = 10_000
"""A run that snoozes more often than that never ends; the number of its attempt has limits too."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What settling needs to know of a run: how often it was tried and what it may still do."""

    failures: int
    losses: int
    """Within LOSSES_WINDOW, the one at hand not counted."""
    retry: RetryPolicy
    attempt: int = 1
    deadline: datetime | None = None
    at_most_once: bool = False
    """Once begun it is never begun again."""
    begun: bool = True
    """Whether the attempt may have had an effect."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to write. `ready_at` is set exactly when the run goes back to the queue."""

    event: RunEvent
    reason: Reason | None = None
    error: str | None = None
    result: Any = None
    ready_at: datetime | None = None

    @property
    def state(self) -> RunState:
        return advance(RunState.RUNNING, self.event)


_SUCCEED: Final = Step(RunEvent.SUCCEED)


def settle(run: Standing, outcome: Outcome, now: datetime, chance: float) -> Step:
    """What an attempt's outcome does to its run. `chance` in [0, 1) spreads retries."""
    match outcome:
        case Succeeded(result=None):
            return _SUCCEED
        case Succeeded(result):
            return Step(RunEvent.SUCCEED, result=result)
        case Failed():
            return _settle_failure(run, outcome, now, chance)
        case TimedOut(deadline=True):
            return Step(RunEvent.TIME_OUT, Reason.DEADLINE, "the run did not end within its deadline")
        case TimedOut():
            return _settle_timeout(run, outcome, now, chance)
        case Snoozed():
            return _settle_snooze(run, outcome, now)
        case Cancelled():
            return Step(RunEvent.CANCEL, Reason.CANCELLED)
        case Lost() if run.at_most_once:
            error = "its executor stopped answering; it runs at most once and is not tried again"
            return Step(RunEvent.LOSE, Reason.EXECUTOR_LOST, error)
        case Lost() if run.losses >= LOSSES_MAX - 1:
            hours = LOSSES_WINDOW // timedelta(hours=1)
            error = f"lost with its executor {run.losses + 1} times within {hours} hours; not tried again"
            return Step(RunEvent.FAIL, Reason.POISON, error)
        case Lost():  # not the job's fault: again at once, no retry used up
            return Step(RunEvent.RELEASE, Reason.EXECUTOR_LOST, "its executor stopped answering", ready_at=now)
        case Interrupted():
            return _settle_interruption(run, outcome, now)


def _settle_interruption(run: Standing, interrupted: Interrupted, now: datetime) -> Step:
    reason, why = Reason.SHUTDOWN, "its executor was stopping"
    if interrupted.lease_unsure:
        reason, why = Reason.LEASE_UNSURE, "its executor ended it, not being sure of its lease any more"
    if run.at_most_once and run.begun:
        return Step(RunEvent.LOSE, reason, f"{why}; it runs at most once and is not tried again")
    return Step(RunEvent.RELEASE, reason, why, ready_at=now)


def _settle_failure(run: Standing, failed: Failed, now: datetime, chance: float) -> Step:
    error = clipped(failed.error)
    if not _may_retry(run) or not run.retry.tries_again(failed.reason, failed.tags, failed.retryable):
        return Step(RunEvent.FAIL, failed.reason, error, failed.result)
    if failed.retry_after_seconds is not None and not isnan(failed.retry_after_seconds):
        delay = _bounded(failed.retry_after_seconds, RETRY_AFTER_MAX)
    else:
        delay = run.retry.delay_after(run.failures + 1, chance)
    if _past_deadline(run, now + delay):
        return _no_time_left("the next try would come after the deadline", error, failed.result)
    return Step(RunEvent.RETRY, failed.reason, error, ready_at=now + delay)


def _settle_timeout(run: Standing, timed_out: TimedOut, now: datetime, chance: float) -> Step:
    length = f"{timed_out.seconds:g} s"
    error = f"the attempt did not end within its timeout of {length}"
    if timed_out.callback:
        error = f"no callback came within its callback_timeout of {length}"
    if not _may_retry(run) or not run.retry.tries_again(Reason.TIMEOUT, (), retryable=True):
        return Step(RunEvent.TIME_OUT, Reason.TIMEOUT, error)
    ready_at = now + run.retry.delay_after(run.failures + 1, chance)
    if _past_deadline(run, ready_at):
        return _no_time_left("the next try would come after the deadline", error)
    return Step(RunEvent.RETRY, Reason.TIMEOUT, error, ready_at=ready_at)


def _settle_snooze(run: Standing, snoozed: Snoozed, now: datetime) -> Step:
    said = clipped(snoozed.message) or None
    if run.attempt >= ATTEMPTS_MAX:
        return Step(RunEvent.FAIL, Reason.SNOOZED, f"not run again after {run.attempt} attempts: it only snoozes")
    ready_at = now + (timedelta(0) if isnan(snoozed.seconds) else _bounded(snoozed.seconds, SNOOZE_MAX))
    if _past_deadline(run, ready_at):
        return _no_time_left("it snoozed past the deadline", said)
    return Step(RunEvent.SNOOZE, Reason.SNOOZED, said, ready_at=ready_at)


def _may_retry(run: Standing) -> bool:
    return run.failures < run.retry.max_retries and not run.at_most_once


def _past_deadline(run: Standing, ready_at: datetime) -> bool:
    return run.deadline is not None and ready_at >= run.deadline


def _no_time_left(why: str, error: str | None, result: Any = None) -> Step:
    return Step(RunEvent.TIME_OUT, Reason.DEADLINE, clipped(f"{why}\n{error}" if error else why), result)


def _bounded(seconds: float, longest: timedelta) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), longest.total_seconds()))
