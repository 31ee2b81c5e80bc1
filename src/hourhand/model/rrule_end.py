"""Where recurrence rules begin and end among instants. COUNT, UNTIL and a first time with an offset are about those: a
night on which clocks are set has more or fewer of them than local times.

- COUNT counts due times: what falls due twice counts twice, what does not exist and does not fall due is not counted.
- UNTIL with a Z is an instant, one without it a local time, as a date with that whole day.
- A first time with an offset is an instant: nothing is due before it. If its local time comes twice and the job's
  choice means the earlier pass, which has then gone by, the rule begins with that very instant all the same.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from hourhand.model.local_time import YEAR_MAX, YEAR_MIN, DstRule, clock_changes, instants_of, next_instant
from hourhand.model.rrule import SEARCH_DAYS_MAX, RRule
from hourhand.model.rrule_text import RRuleFault, parse_parts
from hourhand.model.steps import Steps, TooManySteps

COUNT_STEPS_MAX: Final = 60_000
"""A rule is refused if its COUNT is not reached within so many days that are looked at."""

_UNTIL: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_TICK: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_HOUR: Final = timedelta(hours=1)


class RuleEnd(NamedTuple):
    """The last time that a rule leaves, by the clock of its zone: so it moves with the clock if the zone gets other
    rules."""

    local: datetime
    fold: int | None
    """Which of two passes, where it stands for an instant; None where all passes of that local time count."""


def next_due(
    rule: RRule, after: datetime, zone: ZoneInfo, choice: DstRule, since: datetime | None, end: datetime | None
) -> datetime | None:
    """The first due instant of a rule strictly later than `after`, among those from `since` to `end`, both included."""
    if since is not None and after < since:
        due = since if _begins_with(rule, since, zone, choice) else _ahead(rule, since - _TICK, zone, choice)
    else:
        due = _ahead(rule, after, zone, choice)
    return due if due is None or end is None or due <= end else None


def _ahead(rule: RRule, after: datetime, zone: ZoneInfo, choice: DstRule) -> datetime | None:
    return next_instant(after, rule.next_local, zone, choice)


def _begins_with(rule: RRule, since: datetime, zone: ZoneInfo, choice: DstRule) -> bool:
    """Whether the rule names the local time of that instant, and no reading of it that is due lies ahead."""
    local = since.astimezone(zone).replace(tzinfo=None, fold=0)
    if rule.next_local(local - _SECOND) != local:
        return False
    return not any(instant >= since for instant in instants_of(local, zone, choice))


# --- the end ----------------------------------------------------------------------------------------------


def end_instant(text: str, end: RuleEnd | None, zone: ZoneInfo) -> datetime | None:
    """The instant after which nothing of a rule is due; None where it goes on, or ends by local time."""
    until = until_instant(text)
    if until is not None or end is None or end.fold is None:
        return until
    return end.local.replace(tzinfo=zone, fold=end.fold).astimezone(UTC)


def end_of(
    text: str,
    first: datetime,
    zone: ZoneInfo,
    choice: DstRule,
    since: datetime | None = None,
    steps: Steps | None = None,
) -> RuleEnd | None:
    """What COUNT or UNTIL come to; None where the rule goes on for ever. Raises `RRuleFault`, also where the steps,
    which several rules may share, do not reach."""
    until = until_instant(text)
    if until is not None:
        return _shown(until, zone)
    local = last_local(text)
    if local is not None:
        return RuleEnd(local, None)
    count = parse_parts(text).count
    if count is None:
        return None
    rule = RRule.compile(text, first)
    if rule.next_local(first - _SECOND, SEARCH_DAYS_MAX) is None:
        return RuleEnd(first, None)
    try:
        last = _nth_due(rule, count, zone, choice, since, steps or Steps(COUNT_STEPS_MAX))
    except TooManySteps:
        raise RRuleFault("rrule-syntax", f"COUNT={count} reaches too far", "use UNTIL or max_runs") from None
    return None if last is None else _shown(last, zone)


def _shown(instant: datetime, zone: ZoneInfo) -> RuleEnd:
    shown = instant.astimezone(zone)
    return RuleEnd(shown.replace(tzinfo=None, fold=0), shown.fold)


def _nth_due(
    rule: RRule, count: int, zone: ZoneInfo, choice: DstRule, since: datetime | None, steps: Steps
) -> datetime | None:
    """The due time of that number; None if there are fewer. Between two settings of the clocks local times are counted,
    which run along with real time; around them due times are walked over."""
    at = since or min(rule.first.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    left = count
    for near, far in _unsteady(zone, at):
        if near > at:
            offset = at.astimezone(zone).utcoffset()
            assert offset is not None
            begin, before = ((instant + offset).replace(tzinfo=None) for instant in (at, near))
            number = rule.count_local(begin, before, left, steps)
            if number >= left:
                found = rule.nth_local(left, begin, steps)
                return found and found.replace(tzinfo=UTC) - offset
            left, at = left - number, near
        due = next_due(rule, at - _TICK, zone, choice, since, None)
        while due is not None and due < far:
            left -= 1
            if not left:
                return due
            due = next_due(rule, due, zone, choice, since, None)
        if due is None:
            return None
        at = max(at, far)
    return None


def _unsteady(zone: ZoneInfo, begin: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Stretches around the settings of the zone's clocks that do not lie before `begin`; at last the end of all."""
    for year in range(max(begin.year - 1, YEAR_MIN), YEAR_MAX + 1):
        for jump, by in clock_changes(zone, year):
            margin = abs(by) + _HOUR
            if jump + margin > begin:
                yield jump - margin, jump + margin
    over = datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC)
    yield over, over


@lru_cache(maxsize=4096)
def until_instant(text: str) -> datetime | None:
    """The instant that UNTIL names, if it names one. Raises `RRuleFault`."""
    found = _until(text)
    return None if found is None or not found[1] else found[0].replace(tzinfo=UTC)


def last_local(text: str) -> datetime | None:
    """The last local time that UNTIL allows, if it names one. Raises `RRuleFault`."""
    found = _until(text)
    return None if found is None or found[1] else found[0]


def _until(text: str) -> tuple[datetime, bool] | None:
    """The time that UNTIL names, and whether it is an instant."""
    said = parse_parts(text).until
    if said is None:
        return None
    match = _UNTIL.fullmatch(said)
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(digits or 0) for digits in match.groups()[:6])
        found = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - whose clock it is follows
    except ValueError:
        message = f"UNTIL is a date (20301231) or a time (20301231T090000Z), not {said[:40]!r}"
        raise RRuleFault("rrule-syntax", message) from None
    if not YEAR_MIN < found.year <= YEAR_MAX:
        raise RRuleFault("time-out-of-range", f"the year of UNTIL must lie between {YEAR_MIN} and {YEAR_MAX}")
    if match[4] is None:
        return found + timedelta(days=1) - _SECOND, False
    return found, bool(match[7])
