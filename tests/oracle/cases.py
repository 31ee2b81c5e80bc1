"""Cases: a zone, a time at which its clock is set (or any), some expressions, the four choices; and their judgement."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo, available_timezones

from tests.oracle import expressions
from tests.oracle.walker import MINUTE, REACH, Wall, changes_of, due_times, read, watch

from hourhand.model.cron import Cron, CronFault
from hourhand.model.local_time import DstOverlap, Gap
from hourhand.model.schedule import CronSchedule, Timing, timing_from_json, timing_to_json

YEARS = (1975, 2042)
REFUSED = ("posix/", "right/", "localtime", "posixrules", "Factory")
"""Not zones but other writings of them, or the machine's own."""


def all_zones() -> list[str]:
    return sorted(name for name in available_timezones() if not name.startswith(REFUSED))


@dataclass
class Tally:
    cases: int = 0
    due_times: int = 0
    zones: set[str] = field(default_factory=set)
    changes: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(
    zone_names: Iterable[str],
    walls_each: int,
    cases_each: int,
    chance: Random,
    reach: timedelta = REACH,
    years: tuple[int, int] = YEARS,
) -> Tally:
    """For every zone some times around which expressions are tried. What is wrong is named in the tally."""
    tally = Tally()
    for name in zone_names:
        for middle, is_change in middles(ZoneInfo(name), walls_each, chance, years):
            wall = watch(ZoneInfo(name), middle, reach)
            if not wall.whole:
                continue
            tally.zones.add(name)
            tally.changes += is_change
            for _ in range(cases_each):
                judge_one(name, wall, chance, tally)
    return tally


def middles(zone: ZoneInfo, count: int, chance: Random, years: tuple[int, int]) -> Iterator[tuple[datetime, bool]]:
    changes = changes_of(zone, *years)
    chosen = chance.sample(changes, min(count, len(changes)))
    yield from ((change, True) for change in chosen)
    if not chosen:
        for _ in range(count):
            day = datetime(years[0], 1, 10, tzinfo=UTC) + timedelta(days=chance.randrange((years[1] - years[0]) * 365))
            yield day + timedelta(minutes=chance.randrange(1440)), False


def judge_one(zone: str, wall: Wall, chance: Random, tally: Tally) -> None:
    text = expressions.expression(chance)
    gap, overlap = chance.choice(list(Gap)), chance.choice(list(DstOverlap))
    expected = due_times(wall, read(text), gap.value, overlap.value)
    found = product_times(zone, wall, text, gap, overlap)
    tally.cases += 1
    tally.due_times += len(expected)
    if found != expected:
        tally.wrong.append(
            f"{zone} {text!r} {gap.value} {overlap.value} from {wall.start}: {difference(found, expected)}"
        )
    elif any(later <= earlier for earlier, later in pairwise(found)):
        tally.wrong.append(f"{zone} {text!r} {gap.value} {overlap.value} from {wall.start}: times do not increase")


def product_times(zone: str, wall: Wall, text: str, gap: Gap, overlap: DstOverlap) -> list[datetime]:
    stored = timing_to_json(Timing((CronSchedule(text),), zone, gap=gap, overlap=overlap))
    timing = timing_from_json(stored)
    try:
        Cron.parse(text)
    except CronFault as fault:
        if fault.code != "cron-never-fires":
            raise
        return []  # refused; then the walker finds nothing either
    return timing.due_between(wall.start + MINUTE - timedelta(microseconds=1), wall.end, 1_000_000)


def difference(found: Sequence[datetime], expected: Sequence[datetime]) -> str:
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    return f"missing {[str(each) for each in missing[:3]]}, too many {[str(each) for each in extra[:3]]}"
