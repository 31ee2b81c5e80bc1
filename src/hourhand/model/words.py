"""Schedules in plain English, for the person who must see at a glance whether it is what was meant."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from hourhand.model.cron import HASH_DAY_MAX, MACROS
from hourhand.model.local_time import format_instant
from hourhand.model.rrule_end import until_instant
from hourhand.model.rrule_text import Frequency, Parts, parse_parts
from hourhand.model.schedule import AfterCompletion, At, CronSchedule, Every, Now, RRuleSchedule, Schedule, Timing

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT_WEEKDAYS: Final = {name[:3].upper(): number for number, name in enumerate(_WEEKDAYS[:7])}
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_SHORT_MONTHS: Final = {name[:3].upper(): number for number, name in enumerate(_MONTHS, start=1)}
_CLOCKS_MAX: Final = 6
_WHOLE_WEEK: Final = r"0-6|0-7|1-7|SUN-SAT|MON-SUN|(\*|0|1|SUN|MON)/1"
_ORDINALS: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last", -2: "last but one"}
_ITEMS_MAX: Final = 12


def timing_words(timing: Timing) -> str:
    """All of a job's schedules in one line, with the zone by whose clock they go."""
    said = "; and ".join(schedule_words(schedule) for schedule in timing.schedules)
    local = any(isinstance(schedule, CronSchedule | RRuleSchedule) for schedule in timing.schedules)
    said = said[:1].upper() + said[1:]
    return f"{said} ({timing.zone})" if local else said


def schedule_words(schedule: Schedule) -> str:
    match schedule:
        case Now():
            return "once, at once"
        case At():
            return f"once, at {format_instant(schedule.asked or schedule.instant)}"
        case CronSchedule():
            return cron_words(schedule.text)
        case Every():
            return f"every {length_words(schedule.interval)}, counted from {format_instant(schedule.anchor)}"
        case AfterCompletion():
            first = format_instant(schedule.anchor)
            return f"{length_words(schedule.interval)} after each run has ended, the first at {first}"
        case RRuleSchedule():
            return rule_words(schedule.text, schedule.first, schedule.last)


# --- cron -------------------------------------------------------------------------------------------------


def cron_words(text: str) -> str:
    """An expression as the model keeps it, in words."""
    fields = MACROS.get(text, text).split()
    second, minute, hour, day, month, weekday = ["0", *fields] if len(fields) == 5 else fields
    said = _time_words(second, minute, hour) + " " + _day_words(day, weekday)
    return said + (f" in {_list(month, _month_term)}" if month != "*" else "")


def _time_words(second: str, minute: str, hour: str) -> str:
    clocks = _clocks(second, minute, hour)
    if clocks:
        return f"at {_and(clocks)}"
    parts = []
    if second != "0":
        parts.append(_unit_words(second, "second"))
    if not (minute == "*" and hour == "*" and _goes_on(second, "second")):
        parts.append(_unit_words(minute, "minute"))
    if hour != "*":
        parts.append(_hour_words(hour))
    elif not _goes_on(minute, "minute"):
        parts.append("every hour")
    return " of ".join(parts)


def _clocks(second: str, minute: str, hour: str) -> list[str]:
    """Times of day where there are few and they are named one by one."""
    lists = [part.split(",") for part in (hour, minute, second)]
    if not all(term.isdigit() for terms in lists for term in terms):
        return []
    hours, minutes, seconds = (sorted({int(term) for term in terms}) for terms in lists)
    if len(hours) * len(minutes) * len(seconds) > _CLOCKS_MAX:
        return []
    tail = [f":{each:02d}" for each in seconds] if seconds != [0] else [""]
    return [f"{at:02d}:{past:02d}{end}" for at in hours for past in minutes for end in tail]


def _unit_words(text: str, unit: str) -> str:
    if text == "*":
        return f"every {unit}"
    if re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        return f"{unit}{'s' if ',' in text else ''} {_and(text.split(','))}"
    return _list(text, lambda term: _term(term, unit, str))


def _hour_words(text: str) -> str:
    if re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        return f"hour{'s' if ',' in text else ''} {_and(text.split(','))}"
    return _list(text, lambda term: _term(term, "hour", str))


def _day_words(day: str, weekday: str) -> str:
    day, weekday = (("*" if text == "?" else text) for text in (day, weekday))
    if day == "*" and (weekday == "*" or re.fullmatch(_WHOLE_WEEK, weekday)):
        return "every day"
    of_month = f"on {_list(day, _day_term)} of the month"
    of_week = f"on {_list(weekday, _weekday_term)}"
    if weekday == "*":
        return of_month
    if day == "*":
        return of_week
    if day[0] == "*" or weekday[0] == "*":
        return f"{of_month}, if that is {_list(weekday, _weekday_term)}"
    return f"{of_month} and also {of_week}"


def both_days_set(text: str) -> bool:
    """Whether an expression restricts day of month and weekday: then either is enough."""
    fields = MACROS.get(text, text).split()
    day, weekday = fields[-3], fields[-1]
    return day[0] not in "*?" and weekday[0] not in "*?"


def open_day_field(text: str) -> str | None:
    """Where both day fields choose days and one of them begins with `*`, that one: then both must match."""
    fields = MACROS.get(text, text).split()
    days = [fields[-3], fields[-1]]
    if any(day in ("*", "?", "*/1") for day in days):
        return None
    return next((day for day in days if day[0] == "*"), None)


def _day_term(term: str) -> str:
    if term == "L":
        return "the last day"
    if term == "LW":
        return "the last working day (Monday to Friday)"
    if match := re.fullmatch(r"L-([0-9]+)(W?)", term):
        near = "the working day nearest to " if match[2] else ""
        before = f"the day {match[1]} day{'s' if match[1] != '1' else ''} before the last day"
        return near + (before if int(match[1]) else "the last day")
    if match := re.fullmatch(r"([0-9]+)W", term):
        return f"the working day nearest to day {match[1]}"
    return _term(term, "day", str)


def _weekday_term(term: str) -> str:
    if match := re.fullmatch(r"(\w+)#([0-9])", term):
        return f"the {_ORDINALS[int(match[2])]} {_weekday(match[1])} of the month"
    if match := re.fullmatch(r"(\w+)L", term):
        return f"the last {_weekday(match[1])} of the month"
    return _term(term, "weekday", _weekday).removeprefix("weekday ").removeprefix("weekdays ")


def _month_term(term: str) -> str:
    return _term(term, "month", _month).removeprefix("month ").removeprefix("months ")


_RANGES: Final = {
    "second": (0, 60), "minute": (0, 60), "hour": (0, 24), "day": (1, 31), "month": (1, 12), "weekday": (0, 7),
}  # fmt: skip
"""The first value of each field, and how many there are."""
_HASH_LAST: Final = {"day": HASH_DAY_MAX, "weekday": 6}
"""How far `H` goes where that is less far than others: every month has such a day."""


def _goes_on(text: str, unit: str) -> bool:
    """Whether a field says all about when, as every 15 minutes does: nothing is to add about the hour."""
    return text == "*" or (text.startswith("*/") and text[2:].isdigit() and _is_even(text[2:], unit))


def _is_even(step: str, unit: str) -> bool:
    """Whether a step goes on evenly from one hour, day or year to the next. Months differ, so none does there; one as
    long as the whole is better said by its one value."""
    count = _RANGES[unit][1]
    return int(step) == 1 or (unit != "day" and int(step) < count and count % int(step) == 0)


def _term(term: str, unit: str, named: Callable[[str], str]) -> str:
    """One entry of a field: `5`, `1-5`, `*/15`, `0-30/10`, `5/15`, `H`. "Every 15 minutes" is said only where nothing
    else follows it at the end of the hour."""
    body, slash, step = term.partition("/")
    if body.startswith("H"):
        return _hash_term(body, step, unit)
    low, dash, high = body.partition("-")
    if body == "*" and step in ("", "1"):
        return f"every {unit}"
    if body == "*":
        return f"every {step} {unit}s" if _is_even(step, unit) else _stepped(_RANGES[unit][0], int(step), unit, named)
    if dash:
        span = f"{named(low)} to {named(high)}"
        return f"every {step} {unit}s from {span}" if slash else f"{unit} {span}"
    if not slash:
        return f"{unit} {named(low)}"
    first = _value(low, unit)
    if int(step) == 1:
        return f"{unit} {named(low)} to {named(str(_last(unit)))}" if first < _last(unit) else f"{unit} {named(low)}"
    if unit != "weekday" and _is_even(step, unit) and first - _RANGES[unit][0] < int(step):
        return f"every {step} {unit}s from {named(low)}"
    return _stepped(first, int(step), unit, named)


def _hash_term(body: str, step: str, unit: str) -> str:
    within = re.fullmatch(r"H\(([0-9]+)-([0-9]+)\)", body)
    reach = f" between {within[1]} and {within[2]}" if within else ""
    fixed = f"{'an' if unit == 'hour' else 'a'} {unit}{reach} fixed by the job's id"
    if not step:
        return fixed
    if within:
        return f"every {step} {unit}s{reach} from one fixed by the job's id"
    if _is_even(step, unit):
        return f"every {step} {unit}s from {fixed}"
    return f"{fixed} and each {step} after it up to {_HASH_LAST.get(unit, _last(unit))}"


def _stepped(first: int, step: int, unit: str, named: Callable[[str], str]) -> str:
    """The values of a step one by one; where there are many, with the end after which it begins anew."""
    low, count = _RANGES[unit]
    values = range(first, (low + count - 1 if first == low else _last(unit)) + 1, step)
    if len(values) > _ITEMS_MAX:
        return f"every {step} {unit}s from {named(str(first))} to {named(str(values[-1]))}"
    return f"{unit}{'s' if len(values) > 1 else ''} {_and([named(str(value)) for value in values])}"


def _last(unit: str) -> int:
    """The last value of a field that is counted up from one that is named: of weekdays, Sunday once more."""
    return 7 if unit == "weekday" else _RANGES[unit][0] + _RANGES[unit][1] - 1


def _value(text: str, unit: str) -> int:
    if text.isdigit():
        return int(text)
    return (_SHORT_WEEKDAYS if unit == "weekday" else _SHORT_MONTHS)[text]


def _weekday(text: str) -> str:
    return _WEEKDAYS[int(text)] if text.isdigit() else _WEEKDAYS[_SHORT_WEEKDAYS[text]]


def _month(text: str) -> str:
    return _MONTHS[(int(text) if text.isdigit() else _SHORT_MONTHS[text]) - 1]


def _list(text: str, words: Callable[[str], str]) -> str:
    return _and(list(dict.fromkeys(words(term) for term in text.split(","))))


def _and(items: Sequence[str]) -> str:
    if len(items) > _ITEMS_MAX:
        items = [*items[:_ITEMS_MAX], f"{len(items) - _ITEMS_MAX} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


# --- rules ------------------------------------------------------------------------------------------------

_UNIT: Final = {
    Frequency.YEARLY: "year",
    Frequency.MONTHLY: "month",
    Frequency.WEEKLY: "week",
    Frequency.DAILY: "day",
    Frequency.HOURLY: "hour",
    Frequency.MINUTELY: "minute",
    Frequency.SECONDLY: "second",
}


def rule_words(text: str, first: datetime, last: datetime | None) -> str:
    """A recurrence rule in words, with what it takes from its first time."""
    parts = parse_parts(text)
    unit = _UNIT[parts.frequency]
    said = [f"every {unit}" if parts.interval == 1 else f"every {parts.interval} {unit}s"]
    said += _rule_days(parts, first)
    said += _rule_times(parts, first)
    if parts.places:
        chosen = _and([_ORDINALS.get(place, f"number {place}") for place in parts.places])
        said.append(f"of these only the {chosen} of each {unit}")
    if parts.count is not None:
        said.append(f"{parts.count} times")
    elif (until := until_instant(text)) is not None:
        said.append(f"until {format_instant(until)}")
    elif last is not None:
        said.append(f"until {last.isoformat(' ')}")
    return ", ".join([" ".join(said[:2]), *said[2:], f"from {first.isoformat(' ', 'minutes')} on"])


def _rule_days(parts: Parts, first: datetime) -> list[str]:
    said = []
    if parts.weekdays:
        within = "" if parts.frequency is Frequency.MONTHLY else " of the month" if parts.months else " of the year"
        names = [_numbered(_WEEKDAYS[(weekday + 1) % 7], nth, within) for weekday, nth in parts.weekdays]
        said.append(f"{'if it is' if parts.frequency is Frequency.DAILY else 'on'} {_and(names)}")
    if parts.month_days:
        said.append(f"on {_and([_counted('day', day) for day in parts.month_days])} of the month")
    if parts.year_days:
        said.append(f"on {_and([_counted('day', day) for day in parts.year_days])} of the year")
    if parts.weeks:
        said.append(f"in {_and([_counted('week', week) for week in parts.weeks])}")
    if not said and parts.frequency is Frequency.WEEKLY:
        said.append(f"on {_WEEKDAYS[first.isoweekday()]}")
    elif not said and parts.frequency is Frequency.MONTHLY:
        said.append(f"on day {first.day}")
    elif not said and parts.frequency is Frequency.YEARLY and not parts.months:
        said.append(f"on {_MONTHS[first.month - 1]} {first.day}")
    elif not said and parts.frequency is Frequency.YEARLY:
        said.append(f"on day {first.day}")
    if parts.months:
        said.append(f"in {_and([_MONTHS[month - 1] for month in parts.months])}")
    return said


def _rule_times(parts: Parts, first: datetime) -> list[str]:
    if parts.frequency > Frequency.DAILY:
        given = (("hour", parts.hours), ("minute", parts.minutes), ("second", parts.seconds))
        return [f"at {unit} {_and([str(each) for each in values])}" for unit, values in given if values]
    hours, minutes = parts.hours or (first.hour,), parts.minutes or (first.minute,)
    seconds = parts.seconds or (first.second,)
    tail = [f":{each:02d}" for each in seconds] if tuple(seconds) != (0,) else [""]
    return [f"at {_and([f'{hour:02d}:{minute:02d}{end}' for hour in hours for minute in minutes for end in tail])}"]


def _numbered(weekday: str, nth: int, within: str) -> str:
    if nth == 0:
        return weekday
    if nth in _ORDINALS:
        return f"the {_ORDINALS[nth]} {weekday}{within}"
    return f"{weekday} number {abs(nth)}{'' if nth > 0 else ' from the end'}{within}"


def _counted(unit: str, number: int) -> str:
    if number > 0:
        return f"{unit} {number}"
    return f"the last {unit}" if number == -1 else f"{unit} {-number} from the end"


def length_words(length: timedelta) -> str:
    """ "1 hour 30 minutes" for the length of an interval."""
    said, rest = [], length
    for unit, size in _LENGTHS:
        count, rest = divmod(rest, size)
        if count:
            said.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(said).removeprefix("1 ") if len(said) == 1 else " ".join(said)


_LENGTHS: Final = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
    ("microsecond", timedelta(microseconds=1)),
)
