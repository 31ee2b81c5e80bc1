"""Which runs a caller means: from the caller's words to a filter, every fault found."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.local_time import InstantFault, parse_instant
from hourhand.model.states import FINAL_STATES, LIVE_STATES, Reason, RunState
from hourhand.operations.requests import CancelRunsRequest, RetryRunRequest, RetryRunsRequest, RunFilter, RunSelection

LIMIT_MAX: Final = 10_000
LIMIT_DEFAULT: Final = 1000
NOTE_CHARS_MAX: Final = 4096
RETRIED_UNASKED: Final = [RunState.FAILED, RunState.TIMED_OUT, RunState.LOST]
"""What a filter means that does not say in which states."""
_REASONS: Final = {reason.value: reason.value for reason in Reason}
_SELECTING: Final = ("run_ids", "status", "job_id", "reason", "since", "until")
Refuse = Callable[[Fault], None]
_Word = TypeVar("_Word")


class Selection(RunFilter, frozen=True, kw_only=True):
    """A filter and how many at most, or exactly these runs."""

    run_ids: list[UUID] | None = None
    limit: int = LIMIT_DEFAULT


def runs_to_retry(request: RetryRunsRequest) -> Selection:
    """Raises InvalidFields."""
    faults: list[Fault] = []
    _check_note(request.note, faults.append)
    reasons = _words(request.reason, "/reason", _REASONS, faults.append)
    unasked = RETRIED_UNASKED if request.run_ids is None else FINAL_STATES
    return _selection(request, FINAL_STATES, unasked, reasons, faults)


def runs_to_cancel(request: CancelRunsRequest) -> Selection:
    """Raises InvalidFields."""
    return _selection(request, LIVE_STATES, LIVE_STATES, None, [])


def faults_of_selection(request: RetryRunsRequest | CancelRunsRequest) -> list[Fault]:
    """What is wrong with it, for bodies of which a part could not be read: that part may have said which runs."""
    try:
        _ = runs_to_retry(request) if isinstance(request, RetryRunsRequest) else runs_to_cancel(request)
    except InvalidFields as invalid:
        return [fault for fault in invalid.faults if fault.code != "selection-required"]
    return []


def check_retry(request: RetryRunRequest) -> None:
    """Raises InvalidFields."""
    faults = retry_faults(request)
    if faults:
        raise InvalidFields(faults)


def retry_faults(request: RetryRunRequest) -> list[Fault]:
    faults: list[Fault] = []
    _check_note(request.note, faults.append)
    return faults


def _selection(
    request: RunSelection,
    allowed: Sequence[RunState],
    unasked: Sequence[RunState],
    reasons: list[str] | None,
    faults: list[Fault],
) -> Selection:
    refuse = faults.append
    filtered = any(
        value is not None for value in (request.status, request.job_id, request.since, request.until, reasons)
    )
    if request.run_ids is not None and filtered:
        refuse(Fault("/run_ids", "conflicting-fields", "give either run_ids or a filter"))
    if request.run_ids is None and not filtered and not faults:
        words = [word for word in _SELECTING if word in request.__struct_fields__]
        message = f"say which runs are meant: by {', '.join(words[:-1])} or {words[-1]}"
        refuse(Fault("", "selection-required", message))
    limit = LIMIT_DEFAULT if request.limit is None else request.limit
    if not 1 <= limit <= LIMIT_MAX:
        refuse(Fault("/limit", "out-of-range", f"limit is 1 to {LIMIT_MAX}"))
    if request.run_ids is not None and not 1 <= len(request.run_ids) <= LIMIT_MAX:
        refuse(Fault("/run_ids", "out-of-range", f"run_ids is a list of 1 to {LIMIT_MAX} ids"))
    run_ids = [_id(text, f"/run_ids/{place}", refuse) for place, text in enumerate(request.run_ids or ())]
    selection = Selection(
        states=_words(request.status, "/status", {state.word: state for state in allowed}, refuse) or list(unasked),
        job_id=None if request.job_id is None else _id(request.job_id, "/job_id", refuse),
        reasons=reasons,
        since=_instant(request.since, "/since", refuse),
        until=_instant(request.until, "/until", refuse),
        run_ids=None if request.run_ids is None else run_ids,
        limit=limit,
    )
    if faults:
        raise InvalidFields(faults)
    return selection


def _words(given: Sequence[str] | None, pointer: str, known: Mapping[str, _Word], refuse: Refuse) -> list[_Word] | None:
    for place, word in enumerate(given or ()):
        if word not in known:
            message = f"{word[:40]!r} is no {pointer[1:]} of such runs"
            refuse(Fault(f"{pointer}/{place}", "unknown-value", message, None, list(known)))
    return [known[word] for word in given if word in known] if given else None


def _id(text: str, pointer: str, refuse: Refuse) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        refuse(Fault(pointer, "invalid-value", f"{text[:40]!r} is not an id"))
        return UUID(int=0)


def _instant(text: str | None, pointer: str, refuse: Refuse) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_instant(text)
    except InstantFault as fault:
        refuse(Fault(pointer, fault.code, str(fault)))
        return None


def _check_note(note: str | None, refuse: Refuse) -> None:
    if note is not None and len(note) > NOTE_CHARS_MAX:
        refuse(Fault("/note", "invalid-text", f"a note has at most {NOTE_CHARS_MAX} characters"))
