"""Every way a request, the world or our own code can be wrong: one class per meaning.

Three branches, told apart because different people act on them: `RequestError` is the caller's to fix,
`WorldError` is the machine's or the operator's, and a broken promise of our own code is an `AssertionError`.
HTTP status and exit code are not decided here; the edges map classes to them in one table each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID


class HourhandError(Exception):
    """Base of everything raised on purpose. `code` is the stable word that programs may rely on."""

    code = "error"


# --- the caller's fault -----------------------------------------------------------------------------------


class RequestError(HourhandError):
    code = "bad-request"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one field. `pointer` is a JSON pointer into the body ("/schedule/cron")."""

    pointer: str
    code: str
    message: str
    hint: str | None = None
    allowed: Sequence[str] | None = None
    beside: str | None = None
    """Another field by which this one was judged: where that is refused too, this fault means nothing."""

    def under(self, prefix: str) -> "Fault":
        beside = None if self.beside is None else prefix + self.beside
        return replace(self, pointer=prefix + self.pointer, beside=beside)


class InvalidFields(RequestError):
    """The body was read but some of it is wrong. Carries every fault found, never only the first."""

    code = "invalid-fields"

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer or '/'}: {fault.message}" for fault in faults))
        self.faults = list(faults)


class MalformedBody(RequestError):
    """The body could not be read at all. `code` says why: malformed-json, body-required, duplicate-key, ..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BodyTooLarge(RequestError):
    code = "body-too-large"

    def __init__(self, limit_bytes: int, setting: str | None = None) -> None:
        """`setting`: by which an operator may choose another limit."""
        raised = "" if setting is None else f"; an operator can raise it by {setting}"
        super().__init__(f"the body is larger than the limit of {limit_bytes} bytes{raised}")
        self.limit_bytes = limit_bytes


class ArchiveTooLarge(RequestError):
    """An uploaded archive would become more than is allowed."""

    code = "archive-too-large"


class ArtifactNotTrusted(RequestError):
    """Nobody whose word counts vouches for uploaded code. `code` is signature-required or signature-untrusted."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnsupportedMedia(RequestError):
    code = "unsupported-media-type"

    def __init__(self, given: str, allowed: Sequence[str]) -> None:
        super().__init__(f"content type {given!r} is not accepted here; send {' or '.join(allowed)}")


class InvalidParameter(RequestError):
    """A query or path parameter is unknown or has a bad value."""

    code = "invalid-parameter"

    def __init__(self, name: str, message: str, code: str = "invalid-parameter") -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.code = code


class NotFound(RequestError):
    code = "not-found"

    def __init__(self, noun: str, identity: UUID | str | int) -> None:
        super().__init__(f"{noun} {identity} does not exist")
        self.noun = noun
        self.identity = identity


class Conflict(RequestError):
    """The request is well formed but clashes with the state things are in."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class DuplicateJob(Conflict):
    """A job with the same unique key is there already."""

    def __init__(self, holders: Mapping[str, UUID]) -> None:
        """`holders`: for the pointer to each key that is taken, the job that has it."""
        self.job_id = next(iter(holders.values()))
        faults = [
            Fault(pointer, "duplicate-job", f"job {job_id} has this unique key") for pointer, job_id in holders.items()
        ]
        super().__init__("duplicate-job", "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults))
        self.faults = faults


class LogOutOfOrder(Conflict):
    """Lines of an attempt do not follow those that are stored: some are missing, or are there already."""

    def __init__(self, run_id: UUID, attempt: int, first_line: int, expected: int | None, at: datetime) -> None:
        """`expected`: the number that the next line must have; None when the run is over, and nobody can tell. `at`:
        the database's time."""
        what = "nothing more" if expected is None else f"line {expected}"
        message = f"line {first_line} of attempt {attempt} of run {run_id} came where {what} was expected"
        super().__init__("log-out-of-order", message, expected=expected)
        self.run_id = run_id
        self.attempt = attempt
        self.first_line = first_line
        self.expected = expected
        self.at = at


class IdempotencyKeyReused(RequestError):
    code = "idempotency-key-reused"

    def __init__(self, key: str) -> None:
        super().__init__(f"the Idempotency-Key {key!r} came with another request before: each request needs its own")
        self.key = key


class Unauthenticated(RequestError):
    code = "unauthenticated"

    def __init__(self, message: str = "a valid token is needed: send 'Authorization: Bearer <token>'") -> None:
        super().__init__(message)


class BadSignature(Unauthenticated):
    """A call came with a signature that is not by the right key over this id, time and body; or with half of one."""

    code = "bad-signature"


class StaleSignature(Unauthenticated):
    """A call was signed too long ago, or by a clock that is ahead: it may be a copy of one that was made before."""

    code = "stale-signature"

    def __init__(self, seconds_away: float, tolerance_seconds: int) -> None:
        """`seconds_away`: below zero when it was signed in the past."""
        when = "ago" if seconds_away < 0 else "from now"
        super().__init__(
            f"signed {abs(seconds_away):.0f} seconds {when}, and at most {tolerance_seconds} are believed: sign each "
            "call when it is made, by a clock that is right"
        )


class Forbidden(RequestError):
    code = "forbidden"


class Overloaded(RequestError):
    """Too much is waiting already; the caller may come back after `retry_after_seconds`."""

    code = "overloaded"

    def __init__(self, message: str, retry_after_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


# --- the world's fault ------------------------------------------------------------------------------------


class WorldError(HourhandError):
    """Something outside the program is not as it must be. The message says what, where and what to do."""

    code = "unavailable"


class DatabaseUnavailable(WorldError):
    code = "database-unavailable"


class CommitUnknown(DatabaseUnavailable):
    """The connection broke during a commit: it may have happened."""


class TransactionLost(DatabaseUnavailable):
    """Raised at the end of `ctx.transaction()`: its connection broke before anything could be committed."""

    def __init__(self) -> None:
        super().__init__("the database connection was lost inside ctx.transaction(); nothing was committed")


class DatabaseUnsuitable(WorldError):
    """The database answers but cannot be used: too old, no rights, a schema newer than this program."""

    code = "database-unsuitable"


class HomeUnusable(WorldError):
    """The data folder cannot be used: not writable, in use by another process, not ours."""

    code = "home-unusable"


class BlobsUnavailable(WorldError):
    """The storage of blobs does not answer, or answers with a fault of its own. It may come back."""

    code = "blobs-unavailable"


class BlobsUnsuitable(BlobsUnavailable):
    """The storage of blobs refuses us for good: no such bucket, wrong credentials, a folder that is not ours."""

    code = "blobs-unsuitable"


class PortTaken(WorldError):
    code = "port-taken"


class BadConfiguration(WorldError):
    """All faults of file, environment and flags at once."""

    code = "bad-configuration"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = list(faults)


class ResultTooLarge(HourhandError):
    """A job returned more than is kept of a result."""

    code = "result-too-large"

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(
            f"the result has {size} bytes of JSON; at most {bytes_max} are kept: leave it as a file instead"
        )


class RunTaken(WorldError):
    """Raised at the end of `ctx.transaction()`: the run is not this attempt's any more. Nothing was committed."""

    code = "run-taken"

    def __init__(self, run_id: UUID) -> None:
        super().__init__(f"run {run_id} was given to another attempt or is being cancelled; nothing was committed")
        self.run_id = run_id


class PartEnded(HourhandError):
    """A part without which a node is not whole ended by itself. The node ends too, so that it is started again."""

    code = "part-ended"

    def __init__(self, name: str) -> None:
        super().__init__(f"the part {name!r} ended by itself; this process ends so that a whole one can take its place")
        self.name = name


class HandlersLeftBehind(PartEnded):
    """So many handlers kept their cancellation to themselves that the executor ends, and they with it."""

    def __init__(self, count: int) -> None:
        HourhandError.__init__(
            self,
            f"{count} asynchronous handlers did not end when they were cancelled, and hold what they held; this "
            "process ends so that one without them can take its place (a handler must let CancelledError through)",
        )
        self.name = "handlers"


class SecretsUnavailable(WorldError):
    """A secret cannot be sealed or opened: its key is not on this machine. The message never tells a value."""

    code = "secrets-unavailable"


class ServerUnreachable(WorldError):
    """The client could not reach the API."""

    code = "server-unreachable"
