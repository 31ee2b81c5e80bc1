"""Recurrence rules against dateutil, around clock changes.

dateutil names local times and knows the rules; what becomes of those on a night on which clocks are set is said here
once more, by the readings of the zone alone. It is not asked where it reads otherwise than the standard: numbered and
plain weekdays together, the weeks at the edges of a year, places in a first week that is cut off. Nor about what is
rare, since its walk knows no bound.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from random import Random
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr
from tests.oracle.walker import changes_of

from hourhand.model.errors import InvalidFields
from hourhand.model.schedule_form import parse_timing

WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
WITHIN_A_DAY = ("HOURLY", "MINUTELY", "SECONDLY")
DAY = timedelta(days=1)
TRIES_MAX = 20


@dataclass
class Ruled:
    rules: int = 0
    due_times: int = 0
    wrong: list[str] = field(default_factory=list)


def compare_rules(zones: list[str], cases_each: int, chance: Random) -> Ruled:
    told = Ruled()
    for name in zones:
        changes = changes_of(ZoneInfo(name), 1980, 2037) or [datetime(2020, 3, 1, tzinfo=UTC)]
        for _ in range(cases_each):
            change = chance.choice(changes)
            for _ in range(TRIES_MAX):
                if with_dateutil(*rule(chance), name, change, changes, chance, told):
                    break
    return told


def rule(chance: Random) -> tuple[str, str]:
    """A frequency, and a rule with it, most often about the small hours."""

    def some(values: list[object], most: int = 3) -> str:
        return ",".join(map(str, chance.sample(values, chance.randint(1, most))))

    frequency = chance.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "DAILY", *WITHIN_A_DAY])
    within, parts = frequency in WITHIN_A_DAY, [f"FREQ={frequency}"]
    if frequency == "SECONDLY":
        parts.append(f"INTERVAL={chance.choice([600, 900, 1801, 3600, 5000])}")
    elif chance.random() < 0.5:
        parts.append(f"INTERVAL={chance.choice([2, 3, 7, 25, 90] if within else [1, 2, 3])}")
    if not within and chance.random() < 0.2:
        parts.append("BYMONTH=" + some([*range(1, 13)], 8))
    if frequency not in ("WEEKLY", *WITHIN_A_DAY) and chance.random() < 0.25:
        parts.append("BYMONTHDAY=" + some([*range(1, 32), -1, -2, -7, -31], 12))
    weeks = frequency == "YEARLY" and chance.random() < 0.3
    if weeks:
        parts.append("BYWEEKNO=" + some([2, 12, 13, 14, 20, 39, 43, 44, 51, -2], 6))
    if weeks or chance.random() < 0.4:
        numbered = [f"{nth}{day}" for nth in (1, 2, 4, -1, -2) for day in WEEKDAYS]
        by_number = frequency in ("YEARLY", "MONTHLY") and not weeks and chance.random() < 0.5
        parts.append("BYDAY=" + some([*numbered] if by_number else [*WEEKDAYS], 5))
    if chance.random() < 0.5:
        parts.append("BYHOUR=" + some([0, 0, 1, 1, 2, 2, 3, 23, chance.randrange(24)], 4))
    if frequency != "SECONDLY" and chance.random() < 0.4:
        parts.append("BYMINUTE=" + some([0, 15, 30, 45, 59, chance.randrange(60)]))
    if frequency not in ("SECONDLY", "WEEKLY") and any(part[:2] == "BY" for part in parts) and chance.random() < 0.2:
        parts.append("BYSETPOS=" + some([1, 2, 3, -1, -2], 2))
    if chance.random() < 0.2:
        parts.append("WKST=" + chance.choice(WEEKDAYS))
    return frequency, ";".join(parts)


def with_dateutil(
    frequency: str, text: str, zone: str, change: datetime, changes: list[datetime], chance: Random, told: Ruled
) -> bool:
    """Compares the due times around a clock change. False for a rule that is refused, or rare, or has none there."""
    within = frequency in WITHIN_A_DAY
    began = change - chance.randint(3, 5 if within else 400) * DAY
    first = began.astimezone(ZoneInfo(zone)).replace(
        tzinfo=None, fold=0, hour=chance.randrange(24), minute=chance.choice([0, 30, 59]), second=0
    )
    begin, end = change - DAY, change + (DAY if within else 40 * DAY)
    try:
        timing = parse_timing({"rrule": text, "first": first.isoformat()}, zone, now=began - 2 * DAY, seed=0)
    except InvalidFields:
        return False
    following = timing.next_after(end + 2 * DAY)
    if following is None or following > end + (30 * DAY if within else 3000 * DAY):
        return False
    last = (end + 2 * DAY).replace(tzinfo=None)
    named = takewhile(lambda local: local <= last, rrulestr(text, dtstart=first))
    due = {at for local in named for at in instants(local, zone, not within, changes)}
    expected = sorted(at for at in due if begin < at <= end)
    if not expected:
        return False
    found = timing.due_between(begin, end, len(expected) + 1)
    told.rules += 1
    told.due_times += len(expected)
    if found != expected:
        odd = min(set(found) ^ set(expected))
        told.wrong.append(f"dateutil: {zone} {text} first {first} around {change}: {odd} differs")
    return True


def instants(local: datetime, zone: str, fixed: bool, changes: list[datetime]) -> list[datetime]:
    """By the default choices: a fixed time once, also where it does not exist; others as often as clocks show it."""
    readings = {local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)}
    shown = sorted(at for at in readings if at.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) == local)
    if shown:
        return shown[:1] if fixed else shown
    return [change for change in changes if fixed and min(readings) <= change <= max(readings)][:1]
