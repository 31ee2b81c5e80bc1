"""Turns what a handler returned or raised into the outcome of its attempt.

Used in the executor for asynchronous handlers and in worker processes for synchronous ones, so that both
kinds of handler are judged by the same rules.
"""

import inspect
import math
import traceback
from types import TracebackType
from typing import Any, Final

import msgspec

from hourhand.job_kinds.handlers import BadArguments, NoRetry, RetryAfter, Snooze
from hourhand.model.errors import BlobsUnavailable, DatabaseUnavailable, HourhandError, ResultTooLarge
from hourhand.model.outcome import NOTHING_SAID, Failed, Snoozed, Succeeded, clipped
from hourhand.model.retry import ASKED_FOR_NO_RETRY, ASKED_FOR_RETRY, exception_tags
from hourhand.model.run_blobs import RESULT_BYTES_HARD_MAX, RESULT_INLINE_BYTES_MAX, LargeResult
from hourhand.model.settle import SNOOZE_MAX
from hourhand.model.states import Reason

_FRAMES_MAX: Final = 6
_US: Final = __name__.partition(".")[0] + "."
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def outcome_of(value: Any) -> Succeeded | Failed:
    """What a handler returned, as plain JSON that can be stored."""
    if value is None:
        return NOTHING_SAID
    encoded = encoded_result(value)
    return encoded if isinstance(encoded, Failed) else succeeded_with(encoded)


def encoded_result(value: Any) -> bytes | Failed:
    if inspect.iscoroutine(value):
        value.close()
        return Failed(
            Reason.EXCEPTION,
            "the handler returned a coroutine that nobody awaits: a decorator hides that it is async; "
            "make the decorator's wrapper `async def`",
            retryable=False,
        )
    try:
        encoded = _encode(value)
    except Exception as error:
        return Failed(Reason.EXCEPTION, clipped(f"the handler returned something that is not JSON: {error}"))
    if b"null" in encoded and (number := _no_number_in(value)) is not None:
        return Failed(Reason.EXCEPTION, f"the handler returned something that is not JSON: the number {number}")
    if len(encoded) > RESULT_BYTES_HARD_MAX:
        message = str(ResultTooLarge(len(encoded), RESULT_BYTES_HARD_MAX))
        return Failed(Reason.RESULT_TOO_LARGE, message, retryable=False)
    return encoded


def _no_number_in(value: Any) -> float | None:
    """NaN or an infinity, if there is one: they become null in JSON, and a null is not what the handler meant."""
    left = [msgspec.to_builtins(value)]
    while left:
        match left.pop():
            case float() as number if not math.isfinite(number):
                return number
            case dict() as inner:
                left += inner.values()  # keys become texts
            case list() | tuple() | set() | frozenset() as inner:
                left += inner
    return None


def succeeded_with(encoded: bytes) -> Succeeded:
    if len(encoded) > RESULT_INLINE_BYTES_MAX:
        return Succeeded(LargeResult(encoded))
    value = _decode(encoded)
    # PostgreSQL stores no NUL in JSON; refused there it would fail the write of a whole batch of outcomes.
    return Succeeded(_without_nul(value) if b"\\u0000" in encoded else value)


def outcome_raised(error: BaseException) -> Failed | Snoozed:
    """What an exception says about the attempt. Never for CancelledError, which is not the handler's to raise."""
    match error:
        case Snooze():
            return Snoozed(min(error.seconds, SNOOZE_MAX.total_seconds()), clipped(str(error)))
        case BadArguments():
            return Failed(Reason.BAD_ARGUMENTS, clipped(str(error)), retryable=False)
        case NoRetry():
            tags = (ASKED_FOR_NO_RETRY, *exception_tags(type(error).__mro__))
            return Failed(Reason.EXCEPTION, clipped(_described(error)), retryable=False, tags=tags)
        case RetryAfter():
            tags = (ASKED_FOR_RETRY, *exception_tags(type(error).__mro__))
            return Failed(Reason.EXCEPTION, clipped(_described(error)), True, error.seconds, tags=tags)
        case ResultTooLarge():
            return Failed(Reason.RESULT_TOO_LARGE, clipped(str(error)), retryable=False)
        case BlobsUnavailable():
            return Failed(Reason.OUTPUT_NOT_KEPT, clipped(str(error)))
        case DatabaseUnavailable():
            tags = exception_tags(type(error).__mro__)
            return Failed(Reason.CONNECTION, clipped(_described(error)), tags=tags)
        case _:
            tags = exception_tags(type(error).__mro__)
            return Failed(Reason.EXCEPTION, clipped(_described(error)), tags=tags)


def _described(error: BaseException) -> str:
    """The exception's own line first, because lists show only that; then where it came from."""
    said = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, NoRetry | RetryAfter | DatabaseUnavailable):  # our own classes: the message is what matters
        said = str(error) or type(error).__name__
    if error.__cause__ is not None:
        said += f"\ncaused by {''.join(traceback.format_exception_only(error.__cause__)).strip()}"
    trace = _of_the_handler(error.__traceback__)
    frames = _above_us(trace) if isinstance(error, HourhandError) else traceback.extract_tb(trace, -_FRAMES_MAX)
    return f"{said}\n{''.join(traceback.format_list(frames))}".rstrip()


def _above_us(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """The frames before those that raised it: what we raise on purpose says itself what happened."""
    handlers = 0
    for frame, _ in traceback.walk_tb(trace):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_US) and not module.endswith(".samples"):
            break
        handlers += 1
    return traceback.extract_tb(trace)[:handlers][-_FRAMES_MAX:]


def _of_the_handler(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the handler on: our own frames say nothing about the job."""
    own = (__name__.rpartition(".")[0] + ".", "__main__")
    first = trace
    while first is not None:
        module = first.tb_frame.f_globals.get("__name__", "")
        if not module.startswith(own) or module.endswith(".samples"):
            return first
        first = first.tb_next
    return trace


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\x00", "\N{SYMBOL FOR NULL}")
        case list():
            return [_without_nul(item) for item in value]
        case dict():
            return {_without_nul(key): _without_nul(item) for key, item in value.items()}
        case _:
            return value
