"""What a schedule would do, before anybody makes a job of it: words, times, notes."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from hourhand.model.calendar import CalendarRule
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.exclusion import around
from hourhand.model.local_time import InstantFault, parse_instant
from hourhand.model.preview import COUNT_MAX, Preview, preview
from hourhand.model.schedule import Timing
from hourhand.model.schedule_form import SHORT_FORMS, parse_timing
from hourhand.operations.requests import Caller
from hourhand.runtime.aside import Aside

KINDS: Final = ("cron", "every", "rrule", *SHORT_FORMS)
COUNT_DEFAULT: Final = 10
SCHEDULES_QUICK: Final = 4
"""So many may be looked at without waiting in line."""


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as parameters say it, and which of its times are wanted. None: not said."""

    schedules: Sequence[dict[str, Any]]
    zone: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    dst_gap: str | None = None
    dst_overlap: str | None = None
    calendars: Sequence[str] = ()
    on_excluded: str | None = None
    since: str | None = None
    until: str | None = None
    count: str | None = None


class Clock(Protocol):
    def now(self) -> datetime: ...


class Calendars(Protocol):
    async def find(self, namespace_id: int, names: Sequence[str]) -> dict[str, CalendarRule]: ...


class PreviewOperations:
    def __init__(self, calendars: Calendars, clock: Clock) -> None:
        self._calendars = calendars
        self._clock = clock
        self._aside = Aside()

    async def preview(self, caller: Caller, request: PreviewRequest) -> tuple[Timing, Preview]:
        """The timing that was read, and what it does. Raises `InvalidFields` with the parameters as pointers."""
        now = self._clock.now()
        found = await self._calendars.find(caller.namespace_id, request.calendars) if request.calendars else {}
        work = partial(_previewed, request, found, now)
        return await (self._aside.run(work) if _may_take_long(request) else asyncio.to_thread(work))


def _may_take_long(request: PreviewRequest) -> bool:
    """Whether it is more than a few schedules that are quickly gone through."""
    plain = all("cron" in schedule or "every" in schedule for schedule in request.schedules)
    return bool(request.calendars) or len(request.schedules) > SCHEDULES_QUICK or not plain


def _previewed(request: PreviewRequest, found: Mapping[str, CalendarRule], now: datetime) -> tuple[Timing, Preview]:
    faults: list[Fault] = []
    since = _instant(request.since, "/from", faults) or now
    until = _instant(request.until, "/to", faults)
    count = _count(request.count, faults)
    if until is not None and until < since:
        faults.append(Fault("/to", "empty-window", "to is earlier than from"))
    timing = None
    try:
        # As of the time that is looked at: what has passed by now may be looked at too.
        timing = _timing(request, min(now, since))
    except InvalidFields as wrong:
        faults = [_as_parameter(fault) for fault in wrong.faults] + faults
    unknown = [name for name in request.calendars if name not in found]
    faults += [Fault("/calendar", "unknown-calendar", f"there is no calendar {name[:100]!r}") for name in unknown]
    if faults or timing is None:
        raise InvalidFields(faults)
    return timing, preview(around(timing, found), since, until, count)


def warm_up(now: datetime) -> int:
    """Goes once through all that a preview needs, so that the first one asked for is as quick as the others. How many
    times it found."""
    timing = parse_timing([{"cron": "30 2 * * *"}], "Europe/Berlin", now=now, seed=0)
    return len(preview(timing, now, None, COUNT_MAX).times)


def _timing(request: PreviewRequest, now: datetime) -> Timing:
    if not request.schedules:
        raise InvalidFields([Fault("/schedule", "schedule-required", f"name one of {', '.join(KINDS)}")])
    return parse_timing(
        list(request.schedules),
        request.zone,
        request.start_at,
        request.end_at,
        request.dst_gap,
        request.dst_overlap,
        calendars=request.calendars,
        on_excluded=request.on_excluded,
        now=now,
        seed=0,
    )


def _as_parameter(fault: Fault) -> Fault:
    """Faults of a schedule point into a body that is not there; the parameter is what the caller knows."""
    if not fault.pointer.startswith("/schedule/"):
        return fault
    return Fault(f"/{fault.pointer.rpartition('/')[2]}", fault.code, fault.message, fault.hint, fault.allowed)


def _instant(text: str | None, pointer: str, faults: list[Fault]) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_instant(text)
    except InstantFault as fault:
        faults.append(Fault(pointer, fault.code, str(fault)))
        return None


def _count(text: str | None, faults: list[Fault]) -> int:
    if text is None:
        return COUNT_DEFAULT
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= count <= COUNT_MAX:
        faults.append(Fault("/count", "out-of-range", f"count is 1 to {COUNT_MAX}, not {text[:40]!r}"))
        return COUNT_DEFAULT
    return count
