"""Due times around calendars: which are left out, which take the next allowed time instead.

A due time that a calendar leaves out makes no run. With `skip` that is all. With `next_allowed` the job falls due once
when the calendar allows it again, however many of its due times were left out before; if that instant is a due time of
the job anyway, nothing is added. What was left out is told by `plan_around`, for the ledger.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from hourhand.model.calendar import CalendarRule, joined
from hourhand.model.catchup import (
    COUNTING_STEPS,
    FIRES_MAX,
    CatchUpPolicy,
    MissedRange,
    PauseSpan,
    Plan,
    asked_instants,
    plan_walk,
)
from hourhand.model.counting import Stretch, count_quickly, stretch
from hourhand.model.local_time import YEAR_MAX, ZoneFault
from hourhand.model.schedule import CronSchedule, OnExcluded, RRuleSchedule, Timing, Union
from hourhand.model.states import Reason
from hourhand.model.steps import Steps, TooManySteps

SPANS_MAX: Final = 5000
"""What is looked at, spans and due times, for the next allowed due time where it is merely shown."""
SEARCH_STEPS_MAX: Final = 60_000
"""And where a schedule is refused without one: up to a second. A daily one is followed for more than `ROUND`."""
ROUND: Final = timedelta(days=41 * 366)
"""Within so long every date has fallen on every weekday, also around 2100, which is no leap year. What goes by dates,
weekdays and times of day and has found no place by then finds none."""
PLAN_SPANS_MAX: Final = 400
"""How many of them one plan looks at; a cursor that waits for their end waits on there."""
EVENTS_MAX: Final = 2000
"""How many due times are looked at for one page of a ledger."""
PLAN_STEPS_MAX: Final = 500
"""How many due times one plan walks over; the rest is for the next one."""
_SPANS_BEFORE_DOUBT: Final = 8
_WEEK: Final = (0, 7 * 24 * 60)
_TICK: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HORIZON: Final = datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC) - _TICK


class TooRare(ValueError):
    """No due time was found that calendars allow, and nobody knows whether there is one later than `until`."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"the calendars leave out every due time up to {until:%Y-%m-%d}, and no further was looked")
        self.until = until


class LeftOut:
    """What calendars leave out by the clock of a zone. Remembers the spans it has come by: due times that follow each
    other mostly lie in the same one."""

    def __init__(self, rules: Sequence[CalendarRule], zone: str, steps: Steps | None = None) -> None:
        self._rules = rules
        self.steps = steps
        self.reached = _EPOCH
        """How far a search has come that counts its steps."""
        self._zone = zone
        self._known: list[tuple[datetime, datetime] | None] = [None] * len(rules)
        self._stretch: tuple[datetime, datetime] | None = None
        """The last one that was gone through: all of it is left out, and perhaps what follows."""

    def span(self, place: int, instant: datetime) -> tuple[datetime, datetime] | None:
        """The one of the calendar at that place around the instant."""
        known = self._known[place]
        if known is not None and known[0] <= instant < known[1]:
            return known
        found = self._rules[place].covering(instant, self._zone)
        if found is not None:
            self._known[place] = found
        return found

    def spans(self, instant: datetime) -> list[tuple[datetime, datetime]]:
        return [span for place in range(len(self._rules)) if (span := self.span(place, instant)) is not None]

    def reach(self, instant: datetime, until: datetime, spans_max: int) -> tuple[datetime, bool]:
        """From where on there is anything allowed, and True; or how far was looked, and False."""
        reached, allowed = self._reach(instant, until, spans_max)
        if reached > instant:
            self._stretch = instant, reached
        return reached, allowed

    def _reach(self, instant: datetime, until: datetime, spans_max: int) -> tuple[datetime, bool]:
        for step in range(spans_max):
            if self.steps is not None:
                self.reached = instant
                self.steps.take()
            if self._stretch is not None and self._stretch[0] <= instant < self._stretch[1]:
                instant = self._stretch[1]
            if instant > until:
                return instant, False
            spans = self.spans(instant)
            if not spans:
                return instant, True
            if step == _SPANS_BEFORE_DOUBT and self.is_everything:
                return _HORIZON, False
            instant = max(end for _, end in spans)
        return instant, False

    @cached_property
    def is_everything(self) -> bool:
        """Whether every week is left out from end to end, or every day of the year."""
        by_zone: dict[str | None, list[tuple[int, int]]] = {}
        for rule in self._rules:
            by_zone.setdefault(rule.zone or self._zone, []).extend(rule.minutes)
        return any(rule.covers_all() for rule in self._rules) or any(
            joined(windows) == [_WEEK] for windows in by_zone.values()
        )


class TimingAround(Timing, frozen=True, dict=True):
    """A timing together with what its calendars say now."""

    rules: tuple[CalendarRule, ...] = ()
    names: tuple[str, ...] = ()
    """Of the calendars, in the same order."""

    @property
    def without_calendars(self) -> Timing:
        """All due times, also those that are left out."""
        return Timing(**{name: getattr(self, name) for name in Timing.__struct_fields__})

    @cached_property
    def _all(self) -> Union:
        return Union(self)

    @cached_property
    def left_out(self) -> LeftOut:
        return LeftOut(self.rules, self.zone)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first due time strictly later that is allowed; None if there is none, or none is found within
        `SPANS_MAX`. `find_after` tells these apart."""
        if self.left_out.steps is not None:  # who counts steps wants to know that this is not the end
            return self._search(instant)
        try:
            return self.find_after(instant, Steps(SPANS_MAX))
        except TooRare:
            return None

    def find_after(self, instant: datetime, steps: Steps | None = None) -> datetime | None:
        """As `next_after`, but None says that there is none. Raises `TooRare` where that cannot be said."""
        return self._sure(instant, steps, self._search)

    def next_run(self, cursor: datetime, steps: Steps | None = None) -> datetime | None:
        """When the job runs next, whose cursor stands there: perhaps at a due time that is left out. Raises `TooRare`
        where that cannot be said."""
        if not self.is_excluded(cursor):
            return cursor
        waits = self.on_excluded is OnExcluded.NEXT_ALLOWED
        found = self._sure(cursor, steps, self.allowed_from if waits else self._search)
        return found if found is None or self.end_at is None or found <= self.end_at else None

    def _sure(
        self, instant: datetime, steps: Steps | None, search: Callable[[datetime], datetime | None]
    ) -> datetime | None:
        left_out = self.left_out
        left_out.steps = self._all.steps = steps or Steps(SEARCH_STEPS_MAX)
        left_out.reached = instant
        try:
            return search(instant)
        except TooManySteps:
            if left_out.reached - max(instant, self._singles_end) > ROUND and self._comes_round:
                return None
            raise TooRare(left_out.reached) from None
        finally:
            left_out.steps = self._all.steps = None

    def _search(self, instant: datetime) -> datetime | None:
        event = self.next_event(instant)
        while event is not None:
            allowed = self.allowed_from(event)
            if allowed is None or allowed == event:
                return allowed
            if self.on_excluded is OnExcluded.NEXT_ALLOWED:
                return allowed if self.end_at is None or allowed <= self.end_at else None
            event = self._all.next_after(allowed - _TICK)
        return None

    @cached_property
    def _singles_end(self) -> datetime:
        """From here on calendars leave out nothing but what they leave out every week or year."""
        return max((rule.singles_end for rule in self.rules), default=_EPOCH)

    @property
    def _comes_round(self) -> bool:
        """Whether all schedules go by dates, weekdays and times of day alone, without counting from a first time."""
        return all(
            isinstance(schedule, CronSchedule)
            or (isinstance(schedule, RRuleSchedule) and schedule.rule.parts.interval == 1)
            or not schedule.recurring
            for schedule in self.schedules
        )

    def walker(self, steps: Steps | None = None) -> Callable[[datetime], datetime | None]:
        bounded = TimingAround(**{name: getattr(self, name) for name in self.__struct_fields__})
        bounded.__dict__.update(_all=Union(self, steps), left_out=LeftOut(self.rules, self.zone, steps))
        return bounded.next_after

    def next_event(self, instant: datetime, since: datetime | None = None) -> datetime | None:
        """The first instant strictly later at which the job falls due or would have, but for its calendars.

        With `next_allowed`, the end of a stretch is one if there was a due time in it, not earlier than `since`.
        """
        due = self._all.next_after(instant)
        if self.on_excluded is OnExcluded.SKIP or not self.is_excluded(instant):
            return due
        if self._all.next_after(instant - _TICK) != instant:  # else it is one itself, as for a planner
            begin = self.stretch_begin(instant)
            left_out = self._all.next_after((begin if since is None else max(begin, since)) - _TICK)
            if left_out is None or left_out > instant:
                return due
        allowed = self.allowed_from(instant)
        if allowed is None or (self.end_at is not None and allowed > self.end_at):
            return due
        return allowed if due is None else min(due, allowed)

    def after_event(self, event: datetime) -> datetime | None:
        """As `next_event`, of an instant that is one itself. What follows it is near, or is looked for again from how
        far this came."""
        due = self._all.next_after(event)
        if self.on_excluded is OnExcluded.SKIP or not self.is_excluded(event):
            return due
        last = self.end_at or _HORIZON
        reached, allowed = self.left_out.reach(event, last if due is None else due, PLAN_SPANS_MAX)
        if reached > last or (not allowed and reached == _HORIZON):
            return due
        return reached if due is None else min(due, reached)

    def from_cursor(self, cursor: datetime) -> datetime | None:
        """The first instant to look at. A cursor that waits for the next allowed time stands there; if the calendar was
        changed meanwhile and leaves that out too, it waits on."""
        due = self._all.next_after(cursor - _TICK)
        if self.on_excluded is OnExcluded.SKIP or due == cursor:
            return due
        last = self.end_at or _HORIZON
        reached, allowed = self.left_out.reach(cursor, last if due is None else due, PLAN_SPANS_MAX)
        if reached > last or (not allowed and reached == _HORIZON):
            return due
        return reached if due is None else min(due, reached)

    def waits_at(self, cursor: datetime, now: datetime) -> datetime | None:
        """An earlier instant for a cursor that waits for the next allowed time; None where it stands well."""
        if self._all.next_after(cursor - _TICK) == cursor:
            return None  # a due time of its own
        allowed = self.allowed_from(now)
        return allowed if allowed is not None and allowed < cursor else None

    def is_excluded(self, instant: datetime) -> bool:
        return self.excluded_by(instant) is not None

    def excluded_by(self, instant: datetime) -> str | None:
        """The name of a calendar that leaves it out; None if none does."""
        for place, name in enumerate(self.names):
            if self.left_out.span(place, instant) is not None:
                return name
        return None

    def allowed_from(self, instant: datetime) -> datetime | None:
        """The instant itself if it is allowed, else the end of the stretch it lies in; None if that has none."""
        spans_max = SPANS_MAX if self.left_out.steps is None else self.left_out.steps.left + 1
        reached, allowed = self.left_out.reach(instant, _HORIZON, spans_max)
        return reached if allowed else None

    def stretch_begin(self, instant: datetime) -> datetime:
        """Where the stretch begins in which an excluded instant lies; of a very long one, a part of it."""
        for step in range(SPANS_MAX):
            spans = self.left_out.spans(instant)
            if not spans:
                return instant + _TICK
            if step == _SPANS_BEFORE_DOUBT and self.left_out.is_everything:
                return instant
            instant = min(begin for begin, _ in spans) - _TICK
        return instant


def around(timing: Timing, calendars: Mapping[str, CalendarRule]) -> Timing:
    """The timing with its calendars applied; those that are not given are passed over."""
    names = tuple(name for name in timing.calendars if name in calendars)
    if not names:
        return timing
    fields = {name: getattr(timing, name) for name in Timing.__struct_fields__}
    return TimingAround(**fields, rules=tuple(calendars[name] for name in names), names=names)


def nothing_is_left(
    timing: Timing, calendars: Mapping[str, CalendarRule], now: datetime, steps: Steps | None = None
) -> bool:
    """Whether calendars take every due time from a schedule that would go on without end. Raises `TooRare`."""
    if not timing.recurring or timing.end_at is not None:
        return False
    bounded = around(timing, calendars)
    try:
        if not isinstance(bounded, TimingAround) or timing.next_after(now) is None:
            return False
        return bounded.find_after(now, steps) is None
    except ZoneFault:
        return False  # the scheduler tells of it


Event = tuple[datetime, str | None]
"""A due time, and the calendar that leaves it out, if one does."""


def events_from(timing: TimingAround, cursor: datetime, until: datetime) -> tuple[list[Event], datetime | None]:
    """The due times from the cursor up to `until`, with those that are left out, and the one that follows; bounded."""
    events: list[Event] = []
    due = timing.from_cursor(cursor)
    all_due = timing.without_calendars
    for _ in range(EVENTS_MAX):
        if due is None or due > until:
            break
        calendar = timing.excluded_by(due)
        if calendar is not None and all_due.next_after(due - _TICK) != due:
            due = timing.from_cursor(due)  # how far was looked for the next allowed time
            continue
        events.append((due, calendar))
        due = timing.after_event(due)
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


class WalkAround:
    """Due times of a job with calendars, as a plan meets them: see `catchup.Walk`."""

    def __init__(self, timing: TimingAround) -> None:
        self.timing = timing
        self.left = PLAN_STEPS_MAX
        self.next_after = timing.after_event
        self._all = timing.without_calendars

    def once(self) -> Sequence[datetime]:
        """Those that are left out count where they are run instead."""
        asked = asked_instants(self.timing)
        if self.timing.on_excluded is OnExcluded.NEXT_ALLOWED:
            asked += [end for instant in asked if (end := self.timing.allowed_from(instant)) is not None]
        return sorted(asked)

    def left_out(self, due: datetime, before: datetime) -> tuple[MissedRange | None, datetime | None] | None:
        calendar = self.timing.excluded_by(due)
        if calendar is None:
            return None
        if self._all.next_after(due - _TICK) != due:  # it waits for the next allowed time, which is later now
            self.left -= 1
            return None, self.timing.from_cursor(due)
        place = self.timing.names.index(calendar)
        span = self.timing.left_out.span(place, due)
        assert span is not None, "that calendar leaves it out"
        found = stretch(self._all, due, min(span[1], before), max(self.left, 1))
        counted = count_quickly(self._all, due, due) is not None
        self.left -= min(found.count, COUNTING_STEPS) if counted else found.count
        following = self.timing.after_event(found.last)
        gap = MissedRange(due, found.last, found.count, Reason.EXCLUDED, following, excluded_words(calendar))
        return gap, following

    def run_on(self, first: datetime, before: datetime) -> Stretch:
        last, count, due = first, 1, self.next_after(first)
        while due is not None and due < before and count < self.left and not self.timing.is_excluded(due):
            last, count, due = due, count + 1, self.next_after(due)
        self.left -= count
        return Stretch(first, last, count, due)


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
    return plan_walk(WalkAround(timing), timing.from_cursor(cursor), now, horizon, policy, FIRES_MAX, pauses)


def excluded_words(calendar: str) -> str:
    return f"the calendar {calendar} leaves it out"
