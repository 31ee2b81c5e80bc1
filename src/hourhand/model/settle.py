"""The pure decision what an attempt's outcome does to its run."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isnan
from typing import Any, Final

from hourhand.model.outcome import Cancelled, Failed, Interrupted, Lost, Outcome, Succeeded, TimedOut, clipped
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import Reason, RunEvent, RunState, advance

LOSSES_MAX: Final = 3
"""How often a run may be lost with its executor before it is held to be the cause."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What settling needs to know of a run: how often it was tried and what it may still do."""

    failures: int
    losses: int
    retry: RetryPolicy


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
        case TimedOut(seconds):
            error = f"the attempt did not end within its timeout of {seconds:g} s"
            if run.failures >= run.retry.max_retries:
                return Step(RunEvent.TIME_OUT, Reason.TIMEOUT, error)
            ready_at = now + run.retry.delay_after(run.failures + 1, chance)
            return Step(RunEvent.RETRY, Reason.TIMEOUT, error, ready_at=ready_at)
        case Cancelled():
            return Step(RunEvent.CANCEL, Reason.CANCELLED)
        case Lost() if run.losses >= LOSSES_MAX - 1:
            error = f"lost with its executor {run.losses + 1} times; not tried again"
            return Step(RunEvent.FAIL, Reason.POISON, error)
        case Lost():  # not the job's fault: again at once, no retry used up
            return Step(RunEvent.RELEASE, Reason.EXECUTOR_LOST, "its executor stopped answering", ready_at=now)
        case Interrupted():
            return Step(RunEvent.RELEASE, Reason.SHUTDOWN, "its executor was stopping", ready_at=now)


def _settle_failure(run: Standing, failed: Failed, now: datetime, chance: float) -> Step:
    error = clipped(failed.error)
    if not failed.retryable or run.failures >= run.retry.max_retries:
        return Step(RunEvent.FAIL, failed.reason, error, failed.result)
    if failed.retry_after_seconds is not None and not isnan(failed.retry_after_seconds):
        delay = timedelta(seconds=min(max(failed.retry_after_seconds, 0.0), 86_400.0))
    else:
        delay = run.retry.delay_after(run.failures + 1, chance)
    return Step(RunEvent.RETRY, failed.reason, error, ready_at=now + delay)
