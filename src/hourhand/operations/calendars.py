"""What a caller may ask of calendars: make, read, change, import, delete."""

import asyncio
import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from hourhand.model.calendar import CalendarRule, calendar_to_json
from hourhand.model.calendar_form import read_calendar
from hourhand.model.errors import Conflict, Fault, InvalidFields, InvalidParameter, NotFound
from hourhand.model.exclusion import TimingAround, TooRare, around
from hourhand.model.icalendar import ICalendarFault, Imported, import_icalendar
from hourhand.model.local_time import ZoneFault
from hourhand.model.schedule import Timing
from hourhand.operations.requests import Caller
from hourhand.ports.calendar_stores import CalendarRow, CalendarStore
from hourhand.runtime.aside import Aside

CALENDARS_MAX: Final = 20
"""Of one job."""
_CHECKS: Final = Aside()
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}")


class WeeklyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from", "end": "to"}):
    """A span of every week; whole days unless said. `to` that is not later than `from` means the day after."""

    day: str
    begin: str = "00:00"
    end: str = "24:00"


class BlackoutRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from", "end": "to"}):
    begin: str
    end: str
    reason: str | None = None


class CalendarRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All of a calendar."""

    zone: str | None = None
    """By whose clock dates and windows go; None: the zone of each job that uses it."""
    dates: list[str] | None = None
    """2030-12-24, or 12-24 for every year."""
    weekly: list[WeeklyRequest] | None = None
    blackouts: list[BlackoutRequest] | None = None
    description: str | None = None


Notes = list[str]


class CalendarView(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    zone: str | None
    dates: list[str]
    weekly: list[dict[str, Any]]
    blackouts: list[dict[str, Any]]
    description: str
    version: int
    jobs: int
    """How many jobs use it."""
    created_at: datetime
    updated_at: datetime
    updated_by: str
    notes: Notes = []
    """Of an import: what whoever asked for it should know."""


class Clock(Protocol):
    def now(self) -> datetime: ...


Faults = list[Fault]  # inside a class with a method `list`, that word is the method
Views = list[CalendarView]


class CalendarOperations:
    def __init__(self, store: CalendarStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._importing = asyncio.Lock()

    async def list(self, caller: Caller, after: str | None, limit: int) -> Views:
        return [_view(row) for row in await self._store.list(caller.namespace_id, after, limit)]

    async def get(self, caller: Caller, name: str) -> CalendarView:
        row = await self._store.get(caller.namespace_id, _checked(name))
        if row is None:
            raise NotFound("calendar", name)
        return _view(row)

    async def put(
        self, caller: Caller, name: str, request: CalendarRequest, if_version: int | None = None
    ) -> CalendarView:
        """Makes a calendar, or replaces all of it. Jobs that use it are planned by it from now on."""
        return await self._put(caller, _checked(name), _rule(request), if_version)

    def faults_of_put(self, request: CalendarRequest) -> Faults:
        """What `put` would refuse; nothing is stored. For requests with faults elsewhere, to tell all at once."""
        try:
            _rule(request)
        except InvalidFields as wrong:
            return wrong.faults
        return []

    async def import_events(
        self, caller: Caller, name: str, text: str, zone: str | None, if_version: int | None = None
    ) -> CalendarView:
        """Makes a calendar of the events of an iCalendar file. Of one that exists, dates and blackouts are replaced;
        its weekly windows and its description stay."""
        old = await self._store.get(caller.namespace_id, _checked(name))
        try:
            imported = await self._import(text, zone or (old.rule.zone if old else None))
        except ICalendarFault as fault:
            raise InvalidFields([Fault("", "invalid-icalendar", str(fault))]) from None
        except ZoneFault as fault:
            raise InvalidFields([Fault("/zone", fault.code, str(fault), allowed=fault.suggestions or None)]) from None
        rule = imported.rule
        if old is not None:
            rule = CalendarRule(
                rule.zone, rule.dates, old.rule.yearly, old.rule.weekly, rule.blackouts, old.rule.description
            )
        return msgspec.structs.replace(await self._put(caller, name, rule, if_version), notes=imported.notes)

    async def _import(self, text: str, zone: str | None) -> Imported:
        """In a thread: a large file takes a second, in which others are answered. One at a time, so that many such
        files do not take all of a core from them."""
        async with self._importing:
            return await asyncio.to_thread(import_icalendar, text, zone, self._clock.now())

    async def delete(self, caller: Caller, name: str) -> None:
        """Refused while jobs use it."""
        gone = await self._store.delete(caller.namespace_id, _checked(name))
        if gone is None:
            raise NotFound("calendar", name)
        if not gone:
            raise Conflict("calendar-in-use", f"jobs use the calendar {name}; take it from them first")

    async def _put(self, caller: Caller, name: str, rule: CalendarRule, if_version: int | None) -> CalendarView:
        now = self._clock.now()
        version = await self._store.put(caller.namespace_id, name, rule, now, caller.name, if_version)
        if version is None:
            raise Conflict("version-mismatch", f"the calendar has another version than {if_version}")
        return await self.get(caller, name)


async def calendar_faults(store: CalendarStore, namespace_id: int, names: Sequence[str]) -> Faults:
    """Calendars of a job that do not exist."""
    if len(names) > CALENDARS_MAX:
        return [Fault("/calendars", "too-many-entries", f"a job has at most {CALENDARS_MAX} calendars")]
    found = await store.find(namespace_id, names)
    missing = [(place, name) for place, name in enumerate(names) if name not in found]
    if not missing:
        return []
    known = [row.name for row in await store.list(namespace_id, None, 500)]
    return [_unknown(place, name, known) for place, name in missing]


def _unknown(place: int, name: str, known: Sequence[str]) -> Fault:
    close = difflib.get_close_matches(name[:63], known, n=1)
    hint = f"did you mean {close[0]}?" if close else "make it first: hourhand calendar set"
    return Fault(f"/calendars/{place}", "unknown-calendar", f"there is no calendar {name[:63]!r}", hint, known[:50])


async def faults_around(store: CalendarStore, namespace_id: int, timing: Timing, now: datetime) -> Faults:
    """Of a schedule with calendars: those that do not exist, or that they leave nothing of it."""
    faults = await calendar_faults(store, namespace_id, timing.calendars)
    return faults or await never_allowed(timing, await store.find(namespace_id, timing.calendars), now)


async def never_allowed(timing: Timing, rules: Mapping[str, CalendarRule], now: datetime) -> Faults:
    """A fault where the calendars leave nothing of a schedule, or so little that none is found. To find that out can
    take a second."""
    bounded = around(timing, rules)
    if not isinstance(bounded, TimingAround):
        return []
    try:
        if await _CHECKS.run(lambda: bounded.find_after(now)) is not None:
            return []
    except TooRare as rare:
        hint = "choose due times that the calendars allow more often"
        return [Fault("/calendars", "schedule-too-rare", str(rare), hint)]
    return [Fault("/calendars", "schedule-never-fires", "the calendars leave out every due time of the schedule")]


async def with_calendars(store: CalendarStore, namespace_id: int, timing: Timing) -> Timing:
    """The timing as its calendars leave it now."""
    return around(timing, await store.find(namespace_id, timing.calendars)) if timing.calendars else timing


def _rule(request: CalendarRequest) -> CalendarRule:
    weekly = [{"day": each.day, "from": each.begin, "to": each.end} for each in request.weekly or ()]
    blackouts = [{"from": each.begin, "to": each.end, "reason": each.reason} for each in request.blackouts or ()]
    return read_calendar(request.zone, request.dates, weekly, blackouts, request.description)


def _view(row: CalendarRow) -> CalendarView:
    return CalendarView(
        name=row.name,
        **calendar_to_json(row.rule),
        version=row.version,
        jobs=row.jobs,
        created_at=row.created_at,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        message = f"{name[:70]!r} is no name: 1 to 63 letters, digits, dots, dashes or underscores"
        raise InvalidParameter("name", message, "invalid-id")
    return name
