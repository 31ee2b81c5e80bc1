"""The same against two libraries, where they are right.

cronsim follows Debian's cron at clock changes, as the default choices do, but only for changes of less than three hours
that are ahead or back by whole hours. Where the clock was set at 00:01 (Goose Bay, St John's) it never returns, so it
is asked about changes at a full hour only. Where midnight does not exist it names it all the same: such a case says
nothing. croniter is asked in UTC only, where no clock is set.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from tests.oracle import expressions
from tests.oracle.walker import changes_of

from hourhand.model.schedule import CronSchedule, Timing

COUNT = 12
HOUR = timedelta(hours=1)


@dataclass
class Compared:
    cronsim: int = 0
    croniter: int = 0
    wrong: list[str] = field(default_factory=list)


def compare(zones: list[str], cases_each: int, chance: Random) -> Compared:
    told = Compared()
    for name in zones:
        zone = ZoneInfo(name)
        changes = [change for change in changes_of(zone, 1990, 2037) if by_one_hour(change, zone)]
        for _ in range(cases_each):
            text = expressions.plain_expression(chance)
            if changes:
                start = chance.choice(changes) - timedelta(days=2) + timedelta(minutes=chance.randrange(1440))
                with_cronsim(text, name, start, told)
            with_croniter(text, datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(5_000_000)), told)
    return told


def by_one_hour(change: datetime, zone: ZoneInfo) -> bool:
    before = (change - timedelta(seconds=1)).astimezone(zone).utcoffset()
    after = change.astimezone(zone).utcoffset()
    at_full_hour = (change - timedelta(seconds=1)).astimezone(zone).strftime("%M:%S") == "59:59"
    return at_full_hour and before is not None and after is not None and abs(after - before) == HOUR


def with_cronsim(text: str, zone: str, start: datetime, told: Compared) -> None:
    walk = CronSim(text, start.astimezone(ZoneInfo(zone)))
    named = [next(walk) for _ in range(COUNT)]
    expected = [each.astimezone(UTC) for each in named]
    if any(shown_at(at, zone) != each.replace(tzinfo=None) for at, each in zip(expected, named, strict=True)):
        return
    found = Timing((CronSchedule(text),), zone).due_between(start, datetime.max.replace(tzinfo=UTC), COUNT)
    told.cronsim += 1
    if found != expected:
        first = next(pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1])
        told.wrong.append(f"cronsim: {zone} {text!r} from {start}: {first[0]}, not {first[1]}")


def shown_at(instant: datetime, zone: str) -> datetime:
    """What the clock on the wall shows."""
    return instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def with_croniter(text: str, start: datetime, told: Compared) -> None:
    walk = croniter(text, start)
    expected = [walk.get_next(datetime) for _ in range(COUNT)]
    found = Timing((CronSchedule(text),)).due_between(start, datetime.max.replace(tzinfo=UTC), COUNT)
    told.croniter += 1
    if found != expected:
        first = next(pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1])
        told.wrong.append(f"croniter: {text!r} from {start}: {first[0]}, not {first[1]}")
