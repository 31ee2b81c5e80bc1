"""What an attempt said at its end."""

from dataclasses import dataclass
from typing import Any, Final

from hourhand.model.states import Reason

ERROR_CHARS_MAX: Final = 4000


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: Any = None
    """JSON that the job returned, or None."""


NOTHING_SAID: Final = Succeeded()
"""A success without a result; one object for all."""


@dataclass(frozen=True, slots=True)
class Failed:
    reason: Reason
    error: str
    retryable: bool = True
    """False when trying again cannot help: the program does not exist, the arguments do not fit. A job whose
    `retry.on` names the failure knows better."""
    retry_after_seconds: float | None = None
    """A delay the job or the called server asked for; replaces the policy's."""
    result: Any = None
    """What is worth keeping of a failed attempt, such as the answer of an HTTP call."""
    tags: tuple[str, ...] = ()
    """What can be said of the failure beside its reason ("exit:3", "http:5xx"), for `retry.on` and `retry.never_on`."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The job asks to be run later. That is no failure."""

    seconds: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    seconds: float
    deadline: bool = False
    """Not the attempt but the whole run has taken too long."""
    callback: bool = False
    """What was to say how it ended did not come."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    pass


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The executor is stopping and gives the run back."""

    lease_unsure: bool = False
    """It does not stop, but cannot go on with the run: it was not sure of its lease any more."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The executor that held the run stopped renewing its lease."""


Outcome = Succeeded | Failed | Snoozed | TimedOut | Cancelled | Interrupted | Lost


def clipped(text: str) -> str:
    """An error text short enough to store, its beginning and end kept."""
    # What PostgreSQL cannot store: NUL, and half surrogate pairs, which names of files can bring.
    text = text.replace("\x00", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()
    if len(text) <= ERROR_CHARS_MAX:
        return text
    half = ERROR_CHARS_MAX // 2 - 20
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
