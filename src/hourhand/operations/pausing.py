"""What callers say of a pause, read and checked: why, until when, and what is caught up afterwards."""

from datetime import datetime
from typing import Final, NamedTuple

from hourhand.model.catchup import CatchUp
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.local_time import InstantFault, format_instant, parse_instant
from hourhand.operations.requests import PauseRequest, ResumeRequest

REASON_CHARS_MAX: Final = 1000


class PauseWish(NamedTuple):
    reason: str | None
    until: datetime | None


def read_pause(request: PauseRequest, now: datetime) -> PauseWish:
    """Raises InvalidFields."""
    faults: list[Fault] = []
    wish = _pause(request, now, faults)
    if faults:
        raise InvalidFields(faults)
    return wish


def pause_faults(request: PauseRequest, now: datetime) -> list[Fault]:
    faults: list[Fault] = []
    _pause(request, now, faults)
    return faults


def read_resume(request: ResumeRequest) -> CatchUp:
    """Raises InvalidFields."""
    faults = resume_faults(request)
    if faults:
        raise InvalidFields(faults)
    return CatchUp.NONE if request.catch_up is None else CatchUp(request.catch_up)


def resume_faults(request: ResumeRequest) -> list[Fault]:
    if request.catch_up is None or request.catch_up in list(CatchUp):
        return []
    message = f"there is no catch_up {request.catch_up[:40]!r}"
    return [Fault("/catch_up", "unknown-value", message, None, [word.value for word in CatchUp])]


def _pause(request: PauseRequest, now: datetime, faults: list[Fault]) -> PauseWish:
    reason = request.reason
    if reason is not None and (len(reason) > REASON_CHARS_MAX or "\x00" in reason):
        message = f"a reason has at most {REASON_CHARS_MAX} characters, none of them NUL"
        faults.append(Fault("/reason", "invalid-text", message))
    return PauseWish(reason, _until(request.until, now, faults))


def _until(given: str | None, now: datetime, faults: list[Fault]) -> datetime | None:
    if given is None:
        return None
    try:
        until = parse_instant(given)
    except InstantFault as fault:
        faults.append(Fault("/until", fault.code, str(fault)))
        return None
    if until <= now:
        message = f"until must be later than now, which is {format_instant(now)}"
        faults.append(Fault("/until", "out-of-range", message, "leave it out to pause until somebody resumes"))
    return until
