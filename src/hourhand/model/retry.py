"""Whether and when a failed run is tried again.

By default three retries, 15 seconds doubled each time, plus or minus a fifth, at most an hour; or a list of
delays that is used in order, its last one repeated. `on` narrows what is tried again, `never_on` takes out of it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from signal import Signals
from typing import Any, Final

from hourhand.model.states import Reason

RETRIES_MAX: Final = 1000
ENTRIES_MAX: Final = 100

RETRY_REASONS: Final = (
    Reason.EXIT_CODE, Reason.SIGNAL, Reason.EXCEPTION, Reason.SECRET_UNAVAILABLE, Reason.HTTP_STATUS,
    Reason.CONNECTION, Reason.TIMEOUT, Reason.EXEC_NOT_FOUND, Reason.NOT_EXECUTABLE, Reason.NOT_STARTED,
    Reason.BAD_ARGUMENTS, Reason.UNKNOWN_HANDLER,
    Reason.TARGET_BLOCKED, Reason.REDIRECT_BLOCKED, Reason.TOO_MANY_REDIRECTS, Reason.CALLBACK_FAILED,
    Reason.RESULT_TOO_LARGE,
)  # fmt: skip
"""The reasons of failures that `on` and `never_on` may name."""

ASKED_FOR_NO_RETRY: Final = "asked:no_retry"
ASKED_FOR_RETRY: Final = "asked:retry"
"""Tags by which the job itself decides; nobody can write them in `on` or `never_on`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_retries: int = 3
    base_seconds: float = 15.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.2
    """Share of the delay by which chance moves it either way, so that what failed together does not return together."""
    delays_seconds: tuple[float, ...] | None = None
    """Explicit delays; replaces base and factor. Not moved by chance: who wrote 30 s means 30 s."""
    on: tuple[str, ...] = ()
    """Failures that are tried again; none named: those that trying again can help."""
    never_on: tuple[str, ...] = ()
    """Failures that are not, whatever `on` says."""

    def delay_after(self, failures: int, chance: float) -> timedelta:
        """The wait after the given number of failures (1 = the first). `chance` is in [0, 1)."""
        assert failures >= 1
        if self.delays_seconds:
            return timedelta(seconds=self.delays_seconds[min(failures, len(self.delays_seconds)) - 1])
        # Capped before the power is taken: 2.0 ** 1000 overflows.
        doublings = min(failures - 1, 64)
        seconds = min(self.base_seconds * self.factor**doublings, self.max_seconds)
        return timedelta(seconds=min(seconds * (1 + self.jitter * (2 * chance - 1)), self.max_seconds))

    def tries_again(self, reason: Reason, tags: Iterable[str], retryable: bool) -> bool:
        """Whether such a failure is worth another try. How many tries are left is not asked here."""
        said = {reason.value, *tags}
        if ASKED_FOR_NO_RETRY in said or not said.isdisjoint(self.never_on):
            return False
        if ASKED_FOR_RETRY in said:
            return True
        return not said.isdisjoint(self.on) if self.on else retryable


DEFAULT_RETRY: Final = RetryPolicy()


# --- what a failure is called -----------------------------------------------------------------------------


def exit_tags(code: int) -> tuple[str, ...]:
    return (f"exit:{code}",)


def signal_tags(name: str) -> tuple[str, ...]:
    return (f"signal:{name}",)


def http_tags(status: int) -> tuple[str, ...]:
    return f"http:{status}", f"http:{status // 100}xx"


def exception_tags(kinds: Iterable[type]) -> tuple[str, ...]:
    """The names of an exception's classes, each with and without its module: its own and those it descends from."""
    named = [kind for kind in kinds if kind is not object]
    return tuple(
        dict.fromkeys(tag for kind in named for tag in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"))
    )


class EntryFault(ValueError):
    """The text names no failure; the message says what would."""


_CODE: Final = re.compile(r"(exit|http|signal):(.+)", re.S)
_STATUS: Final = re.compile(r"[1-5](?:[0-9]{2}|xx)")
_CLASS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_CLASS_CHARS_MAX: Final = 200
_EXAMPLES: Final = "write for example exit:3, http:503, http:5xx, timeout, connection or ValueError"


def read_entry(given: int | str) -> str:
    """An entry of `on` or `never_on` as failures are tagged. Raises EntryFault."""
    if isinstance(given, int):
        return _coded("exit", str(given))
    text = given.strip()
    if match := _CODE.fullmatch(text):
        return _coded(match[1], match[2])
    if text in RETRY_REASONS:
        return text
    # One small word is a reason that was misspelt, not an exception: those are written with a capital or a module.
    if _CLASS.fullmatch(text) and len(text) <= _CLASS_CHARS_MAX and ("." in text or text[0].isupper()):
        return text
    raise EntryFault(f"{given[:60]!r} names no failure; {_EXAMPLES}")


def _coded(word: str, code: str) -> str:
    if word == "exit" and code.isascii() and code.isdigit() and len(code) <= 3 and int(code) <= 255:
        return f"exit:{int(code)}"
    if word == "http" and _STATUS.fullmatch(code.lower()):
        return f"http:{code.lower()}"
    if word == "signal" and code.upper() in Signals.__members__:
        return f"signal:{code.upper()}"
    limits = {"exit": "an exit code is 0 to 255", "http": "an HTTP status is 100 to 599, or 1xx to 5xx"}
    raise EntryFault(f"{word}:{code[:40]}: {limits.get(word, 'there is no such signal; they are named like SIGKILL')}")


def means_success(entry: str, payload: Mapping[str, Any]) -> bool:
    """Whether such an end is none of a failure: by default exit code 0 and 2xx, else what the payload says."""
    word, _, code = entry.partition(":")
    if word == "exit":
        return int(code) in _listed(payload, "ok_exit_codes", [0])
    if word == "http":
        good = _listed(payload, "expect_status", ["2xx"])
        return code in good or (code.isdigit() and (int(code) in good or f"{code[0]}xx" in good))
    return False


def _listed(payload: Mapping[str, Any], field: str, default: list[Any]) -> list[Any]:
    given = payload.get(field, default)
    return given if isinstance(given, list) else default


# --- as it is stored --------------------------------------------------------------------------------------


def retry_to_json(policy: RetryPolicy) -> dict[str, Any] | None:
    """What is stored beside `max_retries`; None for the default curve and no choice, which most jobs have."""
    if policy is DEFAULT_RETRY:
        return None
    choice = {name: list(entries) for name, entries in (("on", policy.on), ("never_on", policy.never_on)) if entries}
    if policy.delays_seconds is not None:
        return {"delays": list(policy.delays_seconds), **choice}
    curve = {"base": policy.base_seconds, "factor": policy.factor, "max": policy.max_seconds, "jitter": policy.jitter}
    default = {"base": 15.0, "factor": 2.0, "max": 3600.0, "jitter": 0.2}
    return (choice if curve == default else curve | choice) or None


def retry_from_json(max_retries: int, stored: Mapping[str, Any] | None) -> RetryPolicy:
    if not stored:
        return DEFAULT_RETRY if max_retries == DEFAULT_RETRY.max_retries else RetryPolicy(max_retries)
    choice: dict[str, Any] = {name: tuple(stored.get(name, ())) for name in ("on", "never_on")}
    if "delays" in stored:
        return RetryPolicy(max_retries, delays_seconds=tuple(stored["delays"]), **choice)
    if "base" not in stored:
        return RetryPolicy(max_retries, **choice)
    return RetryPolicy(max_retries, stored["base"], stored["factor"], stored["max"], stored["jitter"], **choice)
