"""All states, events and steps of jobs and runs. They are written here and nowhere else.

SQL guards receive `sources(event)`; the API's words, the check constraints of the tables, the reference
page and the dashboard are derived from these tables or compared with them by a test.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum, auto
from typing import Final


class JobState(StrEnum):
    SCHEDULED = "scheduled"
    """Has a further due time, or a run that is not finished."""
    PAUSED = "paused"
    """Makes no new runs until resumed; a manual run is still allowed."""
    COMPLETED = "completed"
    """No further due time and nothing running. Derived from the tables, never written."""
    CANCELLED = "cancelled"
    """Ended by a person or a program."""


class RunState(IntEnum):
    """The numbers are stored; never change the meaning of one."""

    QUEUED = 0
    WAITING = 1
    CLAIMED = 2
    RUNNING = 3
    CANCELLING = 4
    SUCCEEDED = 10
    FAILED = 11
    TIMED_OUT = 12
    LOST = 13
    CANCELLED = 14
    SKIPPED = 15
    MISSED = 16

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def is_final(self) -> bool:
        return self >= RunState.SUCCEEDED

    @classmethod
    def from_word(cls, word: str) -> "RunState":
        return cls[word.upper()]


class RunEvent(StrEnum):
    CLAIM = auto()
    START = auto()
    SUCCEED = auto()
    RETRY = auto()
    RELEASE = auto()
    SNOOZE = auto()
    FAIL = auto()
    TIME_OUT = auto()
    LOSE = auto()
    REQUEST_CANCEL = auto()
    CANCEL = auto()
    HOLD = auto()
    ADMIT = auto()
    SKIP = auto()
    MISS = auto()


class Cause(IntEnum):
    """Why a run exists. The numbers are stored."""

    ONCE = 0
    """The single due time of a job that runs once."""
    SCHEDULE = 1
    """One of many due times of a recurring job."""
    MANUAL = 2
    """Somebody asked for it."""
    PART = 3
    """One of the parts of a run that goes to several executors. Never stored: parts are known by their ids."""

    @property
    def word(self) -> str:
        return self.name.lower()


class Reason(StrEnum):
    """Why a run or an attempt is not a plain success. Part of the documented API."""

    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    MEMORY_LIMIT = "memory_limit"
    """The kernel ended a process of it, because all together needed more memory than was declared."""
    DISK_LIMIT = "disk_limit"
    """It took more disk than it may, and was ended."""
    EXCEPTION = "exception"
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105 - a reason, no password
    """A secret that the job refers to is not there, is not for it, or cannot be opened here."""
    HTTP_STATUS = "http_status"
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    """An attempt took longer than it may."""
    DEADLINE = "deadline"
    """All attempts together, and the waiting between them, took longer than the run may."""
    QUEUE_TIMEOUT = "queue_timeout"
    """It waited too long for its first start."""
    EXEC_NOT_FOUND = "exec_not_found"
    """The program is not on the executor."""
    NOT_EXECUTABLE = "not_executable"
    """There is such a file, but it is no program, or the user of jobs may not execute it."""
    NOT_STARTED = "not_started"
    """The program could not be started for another reason: most of them are the machine's, and may pass."""
    BAD_ARGUMENTS = "bad_arguments"
    UNKNOWN_HANDLER = "unknown_handler"
    TARGET_BLOCKED = "target_blocked"
    REDIRECT_BLOCKED = "redirect_blocked"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    CALLBACK_FAILED = "callback_failed"
    """Whoever did the work said that it failed."""
    RESULT_TOO_LARGE = "result_too_large"
    OUTPUT_NOT_KEPT = "output_not_kept"
    EXECUTOR_LOST = "executor_lost"
    CLAIM_LOST = "claim_lost"
    """The answer to the claim was lost on its way; the attempt never began."""
    SHUTDOWN = "shutdown"
    """The executor was stopping and gave the run back; no retry is used up."""
    LEASE_UNSURE = "lease_unsure"
    """The executor could not renew its lease and ended the run before others might start it; no retry is used up."""
    POISON = "poison"
    """The run was lost with its executor too often and is not tried again."""
    SNOOZED = "snoozed"
    """The job asked to be run later; no retry is used up."""
    CANCELLED = "cancelled"
    JOB_CANCELLED = "job_cancelled"
    OVERLAP = "overlap"
    """An earlier run of the job was not finished."""
    SUPERSEDED = "superseded"
    """It waited for a retry when the next run of the job fell due and took its place."""
    CATCHUP_WINDOW = "catchup_window"
    """Nobody was planning when it fell due, and it was too long ago when somebody was."""
    CATCHUP_LAST = "catchup_last"
    """Nobody was planning when it fell due, and a newer one was run instead, or none."""
    PAUSED = "paused"
    """The job was paused when it fell due."""
    EXCLUDED = "excluded"
    """A calendar of the job leaves the due time out."""
    PARTS = "parts"
    """Some parts of a run that went to several executors did not succeed."""
    UNPLANNABLE = "unplannable"
    """The job could not be planned: its definition brought the scheduler to fail."""


_Q, _W, _C, _R, _X = RunState.QUEUED, RunState.WAITING, RunState.CLAIMED, RunState.RUNNING, RunState.CANCELLING

STEPS: Final[Mapping[tuple[RunState, RunEvent], RunState]] = {
    (_Q, RunEvent.CLAIM): RunState.CLAIMED,
    (_Q, RunEvent.HOLD): RunState.WAITING,
    (_W, RunEvent.ADMIT): RunState.QUEUED,
    (_C, RunEvent.START): RunState.RUNNING,
    (_Q, RunEvent.START): RunState.RUNNING,  # with its claim: what may run at most once, before anything of it happens
    # A run that ends before its start was written goes from claimed straight to its end: one write, not two.
    **{
        (state, event): final
        for state in (_C, _R)
        for event, final in (
            (RunEvent.SUCCEED, RunState.SUCCEEDED),
            (RunEvent.FAIL, RunState.FAILED),
            (RunEvent.TIME_OUT, RunState.TIMED_OUT),
            (RunEvent.LOSE, RunState.LOST),
            (RunEvent.RETRY, RunState.QUEUED),  # with a later ready_at
            (RunEvent.RELEASE, RunState.QUEUED),  # executor lost or stopping: ready at once, no failure counted
            (RunEvent.SNOOZE, RunState.QUEUED),  # the job's own wish: ready later, no failure counted
            (RunEvent.REQUEST_CANCEL, RunState.CANCELLING),
            (RunEvent.CANCEL, RunState.CANCELLED),
        )
    },
    # Whatever the attempt says after cancel was acknowledged, the run ends as cancelled.
    (_X, RunEvent.CANCEL): RunState.CANCELLED,
    (_Q, RunEvent.CANCEL): RunState.CANCELLED,
    (_W, RunEvent.CANCEL): RunState.CANCELLED,
    (_Q, RunEvent.SKIP): RunState.SKIPPED,
    (_W, RunEvent.SKIP): RunState.SKIPPED,
    (_Q, RunEvent.MISS): RunState.MISSED,
    (_W, RunEvent.MISS): RunState.MISSED,
    # A deadline that passes while nothing runs.
    (_Q, RunEvent.TIME_OUT): RunState.TIMED_OUT,
    (_W, RunEvent.TIME_OUT): RunState.TIMED_OUT,
}


class IllegalStep(AssertionError):
    def __init__(self, state: RunState, event: RunEvent) -> None:
        super().__init__(f"a run that is {state.word} cannot {event.value}")


def advance(state: RunState, event: RunEvent) -> RunState:
    try:
        return STEPS[state, event]
    except KeyError:
        raise IllegalStep(state, event) from None


def sources(event: RunEvent) -> list[RunState]:
    """The states in which the event is allowed; SQL guards receive this list."""
    return [state for state, on in STEPS if on is event]


LIVE_STATES: Final = [state for state in RunState if not state.is_final]
FINAL_STATES: Final = [state for state in RunState if state.is_final]
EXECUTING_STATES: Final = [_C, _R, _X]
"""States in which an executor holds the run."""
