"""Due times around calendars: which are left out, which take the next allowed time instead.

A due time that a calendar leaves out makes no run. With `skip` that is all. With `next_allowed` the job falls due once
when the calendar allows it again, however many of its due times were left out before; if that instant is a due time of
the job anyway, nothing is added. What was left out is told by `plan_around`, for the ledger.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hourhand.model.calendar import CalendarRule
from hourhand.model.catchup import GRACE, CatchUpPolicy, MissedRange, PauseSpan, Plan, least, plan
from hourhand.model.counting import Stretch, stretch
from hourhand.model.schedule import OnExcluded, Timing
from hourhand.model.states import Reason

STRETCHES_MAX: Final = 2000
"""How many stretches in a row may be left out before a schedule counts as never allowed."""
EVENTS_MAX: Final = 2000
"""How many due times one plan looks at; the rest is for the next one."""
_TICK: Final = timedelta(microseconds=1)


class TimingAround(Timing, frozen=True):
    """A timing together with what its calendars say now."""

    rules: tuple[CalendarRule, ...] = ()
    names: tuple[str, ...] = ()
    """Of the calendars, in the same order."""

    @property
    def without_calendars(self) -> Timing:
        """All due times, also those that are left out."""
        return Timing(**{name: getattr(self, name) for name in Timing.__struct_fields__})

    def next_after(self, instant: datetime) -> datetime | None:
        """The first due time strictly later that is allowed."""
        event = self.next_event(instant)
        for _ in range(STRETCHES_MAX):
            if event is None:
                return None
            allowed = self.allowed_from(event)
            if allowed == event:
                return event
            if allowed is None:
                return None
            if self.on_excluded is OnExcluded.NEXT_ALLOWED:
                return allowed if self.end_at is None or allowed <= self.end_at else None
            event = super().next_after(allowed - _TICK)
        return None

    def next_event(self, instant: datetime, since: datetime | None = None) -> datetime | None:
        """The first instant strictly later at which the job falls due or would have, but for its calendars.

        With `next_allowed`, the end of a stretch is one if there was a due time in it, not earlier than `since`.
        """
        due = super().next_after(instant)
        if self.on_excluded is OnExcluded.SKIP or not self.is_excluded(instant):
            return due
        if super().next_after(instant - _TICK) != instant:  # else it is one itself, as for a planner
            begin = self.stretch_begin(instant)
            left_out = super().next_after((begin if since is None else max(begin, since)) - _TICK)
            if left_out is None or left_out > instant:
                return due
        allowed = self.allowed_from(instant)
        if allowed is None or (self.end_at is not None and allowed > self.end_at):
            return due
        return allowed if due is None else min(due, allowed)

    def next_run(self, cursor: datetime) -> datetime | None:
        """When the job runs next, whose cursor stands there: perhaps at a due time that is left out."""
        if not self.is_excluded(cursor):
            return cursor
        return self.allowed_from(cursor) if self.on_excluded is OnExcluded.NEXT_ALLOWED else self.next_after(cursor)

    def from_cursor(self, cursor: datetime) -> datetime | None:
        """The first instant to look at. A cursor that waits for the next allowed time stands there; if the calendar was
        changed meanwhile and leaves that out too, it waits on."""
        due = super().next_after(cursor - _TICK)
        if self.on_excluded is OnExcluded.SKIP or due == cursor:
            return due
        allowed = self.allowed_from(cursor)
        return due if allowed is None or (due is not None and due < allowed) else allowed

    def waits_at(self, cursor: datetime, now: datetime) -> datetime | None:
        """An earlier instant for a cursor that waits for the next allowed time; None where it stands well."""
        if super().next_after(cursor - _TICK) == cursor:
            return None  # a due time of its own
        allowed = self.allowed_from(now)
        return allowed if allowed is not None and allowed < cursor else None

    def is_excluded(self, instant: datetime) -> bool:
        return self.excluded_by(instant) is not None

    def excluded_by(self, instant: datetime) -> str | None:
        """The name of a calendar that leaves it out; None if none does."""
        for name, rule in zip(self.names, self.rules, strict=True):
            if rule.covering(instant, self.zone) is not None:
                return name
        return None

    def allowed_from(self, instant: datetime) -> datetime | None:
        """The instant itself if it is allowed, else the end of the stretch it lies in; None if that has none."""
        for _ in range(STRETCHES_MAX):
            spans = [span for rule in self.rules if (span := rule.covering(instant, self.zone)) is not None]
            if not spans:
                return instant
            instant = max(end for _, end in spans)
        return None

    def stretch_begin(self, instant: datetime) -> datetime:
        """Where the stretch begins in which an excluded instant lies."""
        for _ in range(STRETCHES_MAX):
            spans = [span for rule in self.rules if (span := rule.covering(instant, self.zone)) is not None]
            if not spans:
                return instant + _TICK
            instant = min(begin for begin, _ in spans) - _TICK
        return instant


def around(timing: Timing, calendars: Mapping[str, CalendarRule]) -> Timing:
    """The timing with its calendars applied; those that are not given are passed over."""
    names = tuple(name for name in timing.calendars if name in calendars)
    if not names:
        return timing
    fields = {name: getattr(timing, name) for name in Timing.__struct_fields__}
    return TimingAround(**fields, rules=tuple(calendars[name] for name in names), names=names)


Event = tuple[datetime, str | None]
"""A due time, and the calendar that leaves it out, if one does."""


def events_from(timing: TimingAround, cursor: datetime, until: datetime) -> tuple[list[Event], datetime | None]:
    """The due times from the cursor up to `until`, with those that are left out, and the one that follows; bounded."""
    events: list[Event] = []
    due = timing.from_cursor(cursor)
    while due is not None and due <= until and len(events) < EVENTS_MAX:
        events.append((due, timing.excluded_by(due)))
        due = timing.next_event(due)
    return events, due


def stretches(timing: Timing, first: datetime, before: datetime) -> Iterator[tuple[Stretch, str | None]]:
    """The due times from `first`, where a cursor may stand, up to those earlier than `before`: one stretch for those
    that follow each other and are all left out by the same calendar, or by none. Bounded: the last one says what
    follows."""
    if not isinstance(timing, TimingAround):
        yield stretch(timing, first, before), None
        return
    events, following = events_from(timing, first, before - _TICK)
    nexts = [*(due for due, _ in events[1:]), following]
    found: Stretch | None = None
    by: str | None = None
    for (due, calendar), next_due in zip(events, nexts, strict=False):
        if found is not None and calendar == by:
            found = Stretch(found.first, due, found.count + 1, next_due)
            continue
        if found is not None:
            yield found, by
        found, by = Stretch(due, due, 1, next_due), calendar
    if found is not None:
        yield found, by


def plan_around(
    timing: TimingAround,
    cursor: datetime,
    now: datetime,
    horizon: timedelta,
    policy: CatchUpPolicy,
    pauses: Sequence[PauseSpan] = (),
) -> Plan:
    """As `plan`, for a job with calendars. The cursor visits also what is left out: it is told once it has passed.
    What a calendar leaves out is excluded, paused or not."""
    events, following = events_from(timing, cursor, now + horizon)
    if following is not None and following <= now + horizon:
        return _cut(events, following, now, policy, pauses)
    allowed = [due for due, calendar in events if calendar is None]
    if not allowed:
        return Plan([], _told(events, following, {}), following)
    planned = plan(timing, allowed[0], now, horizon, policy, pauses=pauses)
    next_due = planned.next_due
    if next_due is None or next_due > now + horizon:
        next_due = following
    events = [(due, calendar) for due, calendar in events if next_due is None or due < next_due]
    fires = set(planned.fires)
    why = {
        due: (gap.reason, gap.detail)
        for gap in planned.missed
        for due in allowed
        if gap.first <= due <= gap.last and due not in fires
    }
    return Plan(planned.fires, _told(events, next_due, why), next_due)


Why = tuple[Reason, str | None]


def _cut(
    events: Sequence[Event], following: datetime, now: datetime, policy: CatchUpPolicy, pauses: Sequence[PauseSpan]
) -> Plan:
    """After a long silence: newer due times follow, so none of these is run. Those that are not late are left to the
    next plan, and so is what follows the first one of a pause that goes on."""
    told: list[Event] = []
    why: dict[datetime, Why] = {}
    for due, calendar in events:
        spans = [span for span in pauses if span.covers(due)]
        goes_on = any(span.end is None or span.end > now for span in spans)
        if due >= now - GRACE or (calendar is None and goes_on):
            following = due
            break
        told.append((due, calendar))
        over = least(spans)
        if over is not None:
            why[due] = Reason.PAUSED, over.detail
        else:
            why[due] = (Reason.CATCHUP_WINDOW if now - due > policy.window else Reason.CATCHUP_LAST), None
    return Plan([], _told(told, following, why), following)


def _told(events: Sequence[Event], following: datetime | None, why: Mapping[datetime, Why]) -> list[MissedRange]:
    """What made no run: one range for due times that follow each other and have the same reason."""
    ranges: list[MissedRange] = []
    open_range = False
    nexts = [*(due for due, _ in events[1:]), following]
    for (due, calendar), next_due in zip(events, nexts, strict=False):
        reason, detail = why.get(due, (None, None)) if calendar is None else (Reason.EXCLUDED, excluded_words(calendar))
        if reason is None:
            open_range = False
        elif open_range and (ranges[-1].reason, ranges[-1].detail) == (reason, detail):
            ranges[-1] = replace(ranges[-1], last=due, count=ranges[-1].count + 1, next_due=next_due)
        else:
            ranges.append(MissedRange(due, due, 1, reason, next_due, detail))
            open_range = True
    return ranges


def excluded_words(calendar: str) -> str:
    return f"the calendar {calendar} leaves it out"
