"""Why a run ended as it did, and what a person can do about it: a sentence each, for every reason there is."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from hourhand.model.states import Reason, RunState


class End(NamedTuple):
    meaning: str
    advice: str | None = None


_LOGS: Final = "see its log: hourhand run logs {run_id}"
_AGAIN: Final = "run it again: hourhand run retry {run_id}"

REASONS: Final[Mapping[Reason, End]] = {
    Reason.EXIT_CODE: End("the program ended with a code that is no success", _LOGS),
    Reason.SIGNAL: End("a signal killed it", _LOGS),
    Reason.MEMORY_LIMIT: End(
        "it needed more memory than it declares", "see what it takes: hourhand job advice {job_id}"
    ),
    Reason.DISK_LIMIT: End(
        "it took more disk than it may", "declare what it needs: hourhand job update {job_id} --disk SIZE"
    ),
    Reason.EXCEPTION: End("the handler raised an exception", _LOGS),
    Reason.SECRET_UNAVAILABLE: End(
        "a secret that its job refers to is not there, or not for it",
        "see which there are (hourhand secret list) and for whom (hourhand secret show)",
    ),
    Reason.HTTP_STATUS: End("the answer had a status that is no success", "ask whoever serves the address"),
    Reason.CONNECTION: End("no answer came from the address", "check that it can be reached from the executors"),
    Reason.TIMEOUT: End("an attempt took longer than the job's timeout", "make it quicker, or raise timeout"),
    Reason.DEADLINE: End(
        "it did not end within the job's deadline, which counts waiting and all attempts from its due time on",
        "see how its time was spent (hourhand run get {run_id}), or raise deadline",
    ),
    Reason.QUEUE_TIMEOUT: End(
        "it could not start within the job's queue_timeout",
        "see whether something holds up others too (hourhand queue list, hourhand node list), or raise queue_timeout",
    ),
    Reason.EXEC_NOT_FOUND: End(
        "its program was not found on the executor", "install it there, or choose executors that have it: labels"
    ),
    Reason.NOT_EXECUTABLE: End(
        "its program is there, but cannot be executed",
        "see its mode, its first line (#!/bin/sh), and whether the user of jobs may reach it: kinds.run_as",
    ),
    Reason.NOT_STARTED: End("the program could not be started", "see its error; most of them are the machine's"),
    Reason.BAD_ARGUMENTS: End("the payload does not fit the handler", "correct it: hourhand job update {job_id}"),
    Reason.UNKNOWN_HANDLER: End("the executor has no such handler", "start executors with the module that has it"),
    Reason.TARGET_BLOCKED: End("the address is one that jobs may not call", "see kinds.allow_private_targets"),
    Reason.REDIRECT_BLOCKED: End(
        "a server redirected it to an address that jobs may not call", "ask whoever serves the address"
    ),
    Reason.PARTS: End("some of its parts did not succeed", "see which: hourhand run parts {run_id}"),
    Reason.TOO_MANY_REDIRECTS: End("it was redirected again and again", "call the address where that ends"),
    Reason.CALLBACK_FAILED: End("whoever did the work said that it failed", "ask whoever serves the address"),
    Reason.RESULT_TOO_LARGE: End("the result is too large to be kept", "return a reference to it instead"),
    Reason.OUTPUT_NOT_KEPT: End(
        "its result or its files could not be kept", "see whether the storage of blobs can be reached: blobs.url"
    ),
    Reason.EXECUTOR_LOST: End("its executor stopped answering", _AGAIN),
    Reason.CLAIM_LOST: End("the answer to its claim was lost on the way", _AGAIN),
    Reason.SHUTDOWN: End("its executor was stopping", _AGAIN),
    Reason.LEASE_UNSURE: End(
        "its executor could not renew its lease and ended it before another might have run it as well",
        "see why the executor did not reach the database in time",
    ),
    Reason.POISON: End(
        "it was lost together with its executor again and again, and may be what kills executors: it is in quarantine",
        "find out what it does to them before you release it: hourhand run retry {run_id}",
    ),
    Reason.SNOOZED: End("the job asked to be run later"),
    Reason.CANCELLED: End("somebody cancelled it"),
    Reason.JOB_CANCELLED: End("its job was cancelled before it started"),
    Reason.OVERLAP: End(
        "an earlier run of the job was not finished when it fell due, and the job's overlap policy says not to run it",
        "choose another policy (overlap), or let the job fall due less often",
    ),
    Reason.SUPERSEDED: End("it waited for a retry when the next run of its job fell due and took its place"),
    Reason.CATCHUP_WINDOW: End("its time was longer ago than the job's catch-up window when it could have run"),
    Reason.EXCLUDED: End("a calendar of the job leaves its time out", "see it: hourhand calendar list"),
    Reason.CATCHUP_LAST: End("it fell due in a time without planning, and the job's catch-up leaves it out"),
    Reason.UNPLANNABLE: End(
        "the job could not be planned when it fell due", "see the log of the scheduler: job cannot be planned"
    ),
    Reason.PAUSED: End("the job was paused when it fell due", "see by whom and why: hourhand job history {job_id}"),
}

_STATES: Final[Mapping[RunState, End]] = {
    RunState.SUCCEEDED: End(""),  # the word says it all
    RunState.FAILED: End("its last attempt failed", _LOGS),
    RunState.TIMED_OUT: End("it took too long"),
    RunState.LOST: End(
        "its executor died, and as it may run at most once nobody knows how far it came", "see what it has done"
    ),
    RunState.CANCELLED: End("it was cancelled"),
    RunState.SKIPPED: End("it was not run"),
    RunState.MISSED: End("its time passed before it could run"),
}


def end_of(state: RunState, reason: str | None) -> End:
    """A run that may run at most once is lost for good; that says more than the loss of the executor."""
    if reason in list(Reason) and state is not RunState.LOST:
        return REASONS[Reason(reason)]
    return _STATES[state]
