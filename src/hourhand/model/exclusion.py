"""Due times around calendars: which are left out, which take the next allowed time instead.

A due time that a calendar leaves out makes no run. With `skip` that is all. With `next_allowed` the job falls due once
when the calendar allows it again, however many of its due times were left out before; if that instant is a due time of
the job anyway, nothing is added. What was left out is told by `plan_around`, for the ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from hourhand.model.calendar import CalendarRule
from hourhand.model.catchup import CatchUpPolicy, MissedRange, Plan, plan
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

    def next_event(self, instant: datetime) -> datetime | None:
        """The first instant strictly later at which the job falls due or would have, but for its calendars.

        With `next_allowed`, the end of a stretch is one if `instant` is a due time in it.
        """
        due = super().next_after(instant)
        if self.on_excluded is OnExcluded.SKIP or not self.is_excluded(instant):
            return due
        if super().next_after(instant - _TICK) != instant:
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
        return any(rule.covering(instant, self.zone) is not None for rule in self.rules)

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
    rules = tuple(calendars[name] for name in timing.calendars if name in calendars)
    if not rules:
        return timing
    return TimingAround(**{name: getattr(timing, name) for name in Timing.__struct_fields__}, rules=rules)


@dataclass(frozen=True, slots=True)
class ExcludedRange(MissedRange):
    """Due times that a calendar has left out."""

    since: datetime
    """Where the stretch begins: earlier due times in it belong to the same range."""


def plan_around(
    timing: TimingAround, cursor: datetime, now: datetime, horizon: timedelta, policy: CatchUpPolicy
) -> Plan:
    """As `plan`, for a job with calendars. The cursor visits also what is left out: it is told once it has passed."""
    until = now + horizon
    allowed: list[datetime] = []
    excluded: list[datetime] = []
    event = timing.from_cursor(cursor)
    for _ in range(EVENTS_MAX):
        if event is None or event > until:
            break
        (excluded if timing.is_excluded(event) else allowed).append(event)
        event = timing.next_event(event)
    if event is not None and event <= until:  # a long silence: newer due times follow, so none of these is run
        return Plan([], [*_stale(allowed, now, policy), *_ranges(timing, excluded)], event)
    if not allowed:
        return Plan([], _ranges(timing, excluded), event)
    planned = plan(timing, allowed[0], now, horizon, policy)
    if planned.next_due is None or planned.next_due > until:
        planned = replace(planned, next_due=event)
    left_out = [due for due in excluded if planned.next_due is None or due < planned.next_due]
    return replace(planned, missed=[*planned.missed, *_ranges(timing, left_out)])


def _stale(allowed: Sequence[datetime], now: datetime, policy: CatchUpPolicy) -> list[MissedRange]:
    outside = [due for due in allowed if now - due > policy.window]
    inside = allowed[len(outside) :]
    told = ((outside, Reason.CATCHUP_WINDOW), (inside, Reason.CATCHUP_LAST))
    return [MissedRange(dues[0], dues[-1], len(dues), reason) for dues, reason in told if dues]


def _ranges(timing: TimingAround, left_out: Sequence[datetime]) -> list[MissedRange]:
    """One for each stretch."""
    ranges: list[ExcludedRange] = []
    for due in left_out:
        begin = timing.stretch_begin(due)
        if ranges and ranges[-1].since == begin:
            ranges[-1] = replace(ranges[-1], last=due, count=ranges[-1].count + 1)
        else:
            ranges.append(ExcludedRange(due, due, 1, Reason.EXCLUDED, begin))
    return list(ranges)
