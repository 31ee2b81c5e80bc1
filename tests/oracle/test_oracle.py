"""A short form of `make oracle`: every zone once, around one of its clock changes."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from tests.oracle.cases import all_zones, judge
from tests.oracle.others import compare
from tests.oracle.rules import compare_rules, instants
from tests.oracle.run import Extent, judge_zone
from tests.oracle.walker import changes_of, due_times, read, watch


def test_in_every_zone_cron_falls_due_when_a_walk_over_all_minutes_says() -> None:
    zones = all_zones()
    chance = Random(date.today().toordinal())  # noqa: DTZ011 - another seed each day
    tally = judge(zones, 1, 3, chance, reach=timedelta(hours=20), years=(2004, 2040))

    assert tally.wrong == []
    assert len(tally.zones) == len(zones)
    assert tally.cases >= 3 * len(zones)
    assert tally.changes > 250


def test_cronsim_and_croniter_agree_where_they_are_right() -> None:
    told = compare(Random(7).sample(all_zones(), 60), 6, Random(7))

    assert told.wrong == []
    assert told.cronsim > 100
    assert told.croniter == 360


def test_recurrence_rules_fall_due_as_in_dateutil_around_clock_changes() -> None:
    ruled = compare_rules(Random(11).sample(all_zones(), 60), 1, Random(11))

    assert ruled.wrong == []
    assert ruled.rules > 50
    assert ruled.due_times > 500


@pytest.mark.parametrize(
    ("clock", "fixed", "expected"),
    [
        ("2026-03-29T02:30", True, ["01:00"]),
        ("2026-03-29T02:30", False, []),
        ("2026-10-25T02:30", True, ["00:30"]),
        ("2026-10-25T02:30", False, ["00:30", "01:30"]),
        ("2026-10-26T02:30", False, ["01:30"]),
    ],
)
def test_what_becomes_of_local_times_in_rules_is_right_on_the_nights_that_everybody_knows(
    clock: str, fixed: bool, expected: list[str]
) -> None:
    found = instants(datetime.fromisoformat(clock), "Europe/Berlin", fixed, [SPRING, AUTUMN])
    assert [f"{each:%H:%M}" for each in found] == expected


# --- the walker itself, against what a person can see in a calendar ---------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)


def test_the_walker_finds_the_clock_changes_of_a_year() -> None:
    assert changes_of(BERLIN, 2026, 2027) == [SPRING, AUTUMN]


@pytest.mark.parametrize(
    ("text", "gap", "overlap", "middle", "expected"),
    [
        ("30 2 * * *", "fire_after", "auto", SPRING, ["01:00"]),
        ("30 2 * * *", "skip", "auto", SPRING, []),
        ("30 2 * * *", "skip", "auto", AUTUMN, ["00:30"]),
        ("30 2 * * *", "skip", "last", AUTUMN, ["01:30"]),
        ("30 2 * * *", "skip", "both", AUTUMN, ["00:30", "01:30"]),
        ("*/30 2 * * *", "fire_after", "auto", SPRING, []),
        ("*/30 2 * * *", "fire_after", "auto", AUTUMN, ["00:00", "00:30", "01:00", "01:30"]),
        ("30 2 L-6 * *", "fire_after", "auto", AUTUMN, ["00:30"]),
        ("30 2 * * SUN#4", "fire_after", "auto", AUTUMN, ["00:30"]),
        ("30 2 * * SUN#3", "fire_after", "auto", AUTUMN, []),
        ("30 2 23W * *", "fire_after", "auto", AUTUMN, []),
    ],
)
def test_the_walker_itself_is_right_on_the_nights_that_everybody_knows(
    text: str, gap: str, overlap: str, middle: datetime, expected: list[str]
) -> None:
    due = due_times(watch(BERLIN, middle), read(text), gap, overlap)
    night = [each for each in due if abs(each - middle) < timedelta(hours=3)]
    assert [f"{each:%H:%M}" for each in night] == expected


def test_the_cases_of_a_zone_depend_on_the_seed_and_on_nothing_else() -> None:
    extent = Extent(seed=3, walls=1, cases=2, others=1, rules=1)
    found = judge_zone("Asia/Gaza", extent)
    assert found == judge_zone("Asia/Gaza", extent)
    assert found != judge_zone("Asia/Gaza", replace(extent, seed=4))
    assert (found[0].cases, found[0].zones, found[0].wrong, found[1].croniter) == (2, {"Asia/Gaza"}, [], 1)
