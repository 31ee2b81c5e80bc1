"""The word `frequency` of the note seeds/004, which with `executionTime` says when a recurring job falls due.

A short form (hourly, daily, weekly, monthly, yearly) repeats the execution time in UTC: daily from 09:30 is the cron
expression `30 9 * * *`. Without an execution time it is the macro of that name: daily is midnight. A monthly job on
day 29, 30 or 31 runs only in the months that have the day, and a yearly one on 29 February only in leap years.
Anything else is a cron expression, or an interval such as 15m counted from the execution time.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hourhand.model.durations import DurationFault, parse_duration
from hourhand.model.errors import Fault
from hourhand.model.local_time import InstantFault
from hourhand.model.schedule import parse_instant

SHORT_FORMS: Final = ("hourly", "daily", "weekly", "monthly", "yearly")

_NUMBER: Final = "[0-9]+"
_SECONDS: Final = "(?:[0-9]+ )?"
_WRITTEN: Final[Mapping[str, str]] = {
    "hourly": rf"{_SECONDS}{_NUMBER} \* \* \* \*",
    "daily": rf"{_SECONDS}{_NUMBER} {_NUMBER} \* \* \*",
    "weekly": rf"{_SECONDS}{_NUMBER} {_NUMBER} \* \* {_NUMBER}",
    "monthly": rf"{_SECONDS}{_NUMBER} {_NUMBER} {_NUMBER} \* \*",
    "yearly": rf"{_SECONDS}{_NUMBER} {_NUMBER} {_NUMBER} {_NUMBER} \*",
}


def recurring_schedule(frequency: str, execution_time: datetime | None) -> dict[str, Any]:
    """The schedule in the API's own form."""
    if frequency in SHORT_FORMS:
        return {"cron": _cron_of(frequency, execution_time)}
    return {"cron": frequency} if _is_cron(frequency) else {"every": frequency}


def frequency_faults(frequency: str) -> list[Fault]:
    """Refuses a word that is nothing of all this. Whether a cron expression is a good one is the operation's to say."""
    if frequency in SHORT_FORMS or _is_cron(frequency):
        return []
    try:
        parse_duration(frequency)
    except DurationFault:
        message = f"must be one of {', '.join(SHORT_FORMS)}, a cron expression, or an interval such as 15m"
        return [Fault("/frequency", "invalid-value", message, None, SHORT_FORMS)]
    return []


def short_form_of(cron: str) -> str | None:
    """Which short form an expression could come from; None if it says more than that."""
    return next((word for word, pattern in _WRITTEN.items() if re.fullmatch(pattern, cron)), None)


def read_execution_time(text: str) -> datetime | None:
    """In UTC, to the second, which is what cron knows. None if it is no time; the operation says why."""
    try:
        return parse_instant(text).astimezone(UTC).replace(microsecond=0)
    except InstantFault:
        return None


def _is_cron(frequency: str) -> bool:
    return " " in frequency or frequency.startswith("@")


def _cron_of(frequency: str, execution_time: datetime | None) -> str:
    if execution_time is None:
        return {
            "hourly": "0 * * * *",
            "daily": "0 0 * * *",
            "weekly": "0 0 * * 0",
            "monthly": "0 0 1 * *",
            "yearly": "0 0 1 1 *",
        }[frequency]
    time = execution_time
    minute, hour, day, month = time.minute, time.hour, time.day, time.month
    cron = {
        "hourly": f"{minute} * * * *",
        "daily": f"{minute} {hour} * * *",
        "weekly": f"{minute} {hour} * * {time.isoweekday() % 7}",
        "monthly": f"{minute} {hour} {day} * *",
        "yearly": f"{minute} {hour} {day} {month} *",
    }[frequency]
    return f"{time.second} {cron}" if time.second else cron
