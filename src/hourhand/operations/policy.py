"""A job's limits, overlap and times to wait: from the caller's words to the policy that is stored, and back."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault
from hourhand.model.policy import (
    ORDINARY,
    OVERLAP_MAX_DEFAULT,
    KeyFault,
    OnNextDue,
    Overlap,
    Policy,
    Rate,
    RateFault,
    check_template,
    concurrency_key,
    format_rate,
    parse_rate,
)
from hourhand.operations.placement import define_placement, placement_request
from hourhand.operations.requests import JobRequest
from hourhand.operations.resources import define_resources, resources_words

LIMIT_MAX: Final = 100_000
FAILURES_MAX: Final = 1000
_WAIT_MAX: Final = timedelta(days=366)
_WORDS: Final = (
    "overlap", "overlap_max", "on_next_due", "max_concurrency", "concurrency_key", "concurrency_limit", "rate_limit",
    "queue_timeout", "deadline", "at_most_once", "on_disconnect", "pause_after_failures", "placement",
    "resources",
)  # fmt: skip
_DISCONNECT: Final = {"continue": False, "kill": True}
Refuse = Callable[[Fault], None]
_Word = TypeVar("_Word", bound=StrEnum)


def define_policy(request: JobRequest, payload: Mapping[str, Any], refuse: Refuse) -> Policy:
    """What the request says beyond the ordinary; ORDINARY itself when it says nothing."""
    if all(getattr(request, word) is None for word in _WORDS):
        return ORDINARY
    at_most_once = bool(request.at_most_once)
    if at_most_once and request.max_retries:
        message = "a job that runs at most once cannot be retried: leave max_retries out, or set it to 0"
        refuse(Fault("/max_retries", "conflicting-fields", message))
    if at_most_once and request.retry is not None and request.retry.on is not None:
        message = "a job that runs at most once cannot be retried: leave retry.on out"
        refuse(Fault("/retry/on", "conflicting-fields", message))
    if at_most_once and request.placement is not None and request.placement.on not in (None, "any"):
        message = "a job that runs at most once goes to one executor: leave placement.on out"
        refuse(Fault("/placement/on", "conflicting-fields", message, beside="/at_most_once"))
    _check_overlap(request, refuse)
    return Policy(
        overlap=None if request.overlap is None else _word(Overlap, request.overlap, "/overlap", refuse),
        overlap_max=_number(request.overlap_max, "/overlap_max", 1000, OVERLAP_MAX_DEFAULT, refuse),
        on_next_due=_on_next_due(request.on_next_due, refuse),
        max_concurrency=_limit(request.max_concurrency, "/max_concurrency", refuse),
        concurrency_key=_key(request, payload, refuse),
        concurrency_limit=_number(request.concurrency_limit, "/concurrency_limit", LIMIT_MAX, 1, refuse),
        rate=read_rate(request.rate_limit, "/rate_limit", refuse),
        queue_timeout_seconds=_wait(request.queue_timeout, "/queue_timeout", refuse),
        deadline_seconds=_wait(request.deadline, "/deadline", refuse),
        at_most_once=at_most_once,
        kill_on_disconnect=_kill_on_disconnect(request.on_disconnect, refuse),
        pause_after_failures=_failures(request.pause_after_failures, refuse),
        placement=define_placement(request.placement, refuse),
        resources=define_resources(request.resources, refuse),
    )


def policy_fields(policy: Policy) -> dict[str, Any]:
    """A policy in the caller's words; None for what was not said."""
    if policy is ORDINARY:
        return dict.fromkeys(_WORDS)
    plain = ORDINARY
    return {
        "overlap": policy.overlap and policy.overlap.value,
        "overlap_max": None if policy.overlap_max == plain.overlap_max else policy.overlap_max,
        "on_next_due": None if policy.on_next_due is plain.on_next_due else policy.on_next_due.value,
        "max_concurrency": policy.max_concurrency,
        "concurrency_key": policy.concurrency_key,
        "concurrency_limit": policy.concurrency_limit if policy.concurrency_key else None,
        "rate_limit": policy.rate and format_rate(policy.rate),
        "queue_timeout": _written(policy.queue_timeout_seconds),
        "deadline": _written(policy.deadline_seconds),
        "at_most_once": policy.at_most_once or None,
        "on_disconnect": "kill" if policy.kill_on_disconnect else None,
        "pause_after_failures": policy.pause_after_failures,
        "placement": placement_request(policy.placement),
        "resources": resources_words(policy.resources),
    }


def read_rate(given: str | None, pointer: str, refuse: Refuse) -> Rate | None:
    if given is None:
        return None
    try:
        return parse_rate(given)
    except RateFault as fault:
        refuse(Fault(pointer, "invalid-rate", str(fault)))
        return None


def _check_overlap(request: JobRequest, refuse: Refuse) -> None:
    """Refuses what would do nothing beside the overlap that is asked for."""
    known = request.overlap is None or request.overlap in list(Overlap)
    if request.overlap_max is not None and known and request.overlap != Overlap.QUEUE_ALL:
        message = "overlap_max says how many may wait with overlap queue_all; say that too, or leave it out"
        refuse(Fault("/overlap_max", "conflicting-fields", message, beside="/overlap"))
    if request.on_next_due == OnNextDue.SUPERSEDE and request.overlap == Overlap.ALLOW:
        message = "with overlap allow no run stands in the way of the next: leave on_next_due out, or say wait"
        refuse(Fault("/on_next_due", "conflicting-fields", message))


def _word(kind: type[_Word], given: str, pointer: str, refuse: Refuse) -> _Word | None:
    try:
        return kind(given)
    except ValueError:
        allowed = [word.value for word in kind]
        refuse(Fault(pointer, "unknown-value", f"there is no {pointer[1:]} {given[:40]!r}", None, allowed))
        return None


def _on_next_due(given: str | None, refuse: Refuse) -> OnNextDue:
    said = None if given is None else _word(OnNextDue, given, "/on_next_due", refuse)
    return OnNextDue.WAIT if said is None else said


def _number(given: int | None, pointer: str, most: int, default: int, refuse: Refuse) -> int:
    if given is None:
        return default
    if not 1 <= given <= most:
        refuse(Fault(pointer, "out-of-range", f"{pointer[1:]} is 1 to {most}"))
        return default
    return given


def _failures(given: int | None, refuse: Refuse) -> int | None:
    return None if given is None else _number(given, "/pause_after_failures", FAILURES_MAX, 1, refuse)


def _limit(given: int | None, pointer: str, refuse: Refuse) -> int | None:
    return None if given is None else _number(given, pointer, LIMIT_MAX, 1, refuse)


def _key(request: JobRequest, payload: Mapping[str, Any], refuse: Refuse) -> str | None:
    template = request.concurrency_key
    if template is None:
        if request.concurrency_limit is not None:
            message = "concurrency_limit belongs to a concurrency_key; for the job itself say max_concurrency"
            refuse(Fault("/concurrency_limit", "conflicting-fields", message, beside="/concurrency_key"))
        return None
    try:
        check_template(template)
    except KeyFault as fault:
        refuse(Fault("/concurrency_key", "invalid-key", str(fault)))
        return template
    try:
        concurrency_key(template, payload)
    except KeyFault as fault:
        refuse(Fault("/concurrency_key", "invalid-key", str(fault), beside="/payload"))
    return template


def _wait(given: str | None, pointer: str, refuse: Refuse) -> float | None:
    if given is None:
        return None
    try:
        length = parse_duration(given)
    except DurationFault as fault:
        refuse(Fault(pointer, "invalid-duration", str(fault)))
        return None
    if length > _WAIT_MAX:
        refuse(Fault(pointer, "out-of-range", f"{pointer[1:]} is at most {format_duration(_WAIT_MAX)}"))
    return length.total_seconds()


def _kill_on_disconnect(given: str | None, refuse: Refuse) -> bool:
    if given is None:
        return False
    if given not in _DISCONNECT:
        message = f"there is no on_disconnect {given[:40]!r}"
        refuse(Fault("/on_disconnect", "unknown-value", message, None, list(_DISCONNECT)))
    return _DISCONNECT.get(given, False)


def _written(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(timedelta(seconds=seconds))
