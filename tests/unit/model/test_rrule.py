"""Recurrence rules, also against dateutil where that follows the standard."""

# ruff: noqa: DTZ001 - local times have no zone here

from datetime import datetime, timedelta
from itertools import islice
from random import Random
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr

from hourhand.model.local_time import DstRule
from hourhand.model.rrule import SEARCH_DAYS_MAX, RRule
from hourhand.model.rrule_end import end_of
from hourhand.model.rrule_text import COUNT_MAX, Frequency, RRuleFault, normal_text, parse_parts
from hourhand.model.rrule_year import NO_DAYS, phase_of, year_of
from hourhand.model.steps import Steps

BERLIN = ZoneInfo("Europe/Berlin")
FIXED = DstRule(fixed=True)
SECOND = timedelta(seconds=1)


def times(
    text: str, first: datetime, count: int, after: datetime | None = None, zone: ZoneInfo = BERLIN
) -> list[datetime]:
    end = end_of(normal_text(text), first, zone, FIXED)
    rule = RRule.compile(normal_text(text), first, end and end.local)
    found: list[datetime] = []
    at = after or first - SECOND
    while len(found) < count and (at := rule.next_local(at)) is not None:  # type: ignore[assignment]
        found.append(at)
    return found


NINE = datetime(2026, 1, 5, 9)
"""A Monday."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FREQ=DAILY", ["2026-01-05T09:00", "2026-01-06T09:00"]),
        ("RRULE:FREQ=DAILY;INTERVAL=3;", ["2026-01-05T09:00", "2026-01-08T09:00"]),
        ("freq=weekly;byday=mo,fr", ["2026-01-05T09:00", "2026-01-09T09:00", "2026-01-12T09:00"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU;WKST=MO", ["2026-01-11T09:00", "2026-01-25T09:00"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU;WKST=SU", ["2026-01-18T09:00", "2026-02-01T09:00"]),
        ("FREQ=MONTHLY", ["2026-01-05T09:00", "2026-02-05T09:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", ["2026-01-31T09:00", "2026-02-28T09:00"]),
        ("FREQ=MONTHLY;BYDAY=2TU,-1FR", ["2026-01-13T09:00", "2026-01-30T09:00", "2026-02-10T09:00"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", ["2026-01-30T09:00", "2026-02-27T09:00"]),
        ("FREQ=MONTHLY;BYDAY=MO;BYHOUR=9,18;BYSETPOS=2", ["2026-01-05T18:00", "2026-02-02T18:00"]),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", ["2028-02-29T09:00", "2032-02-29T09:00"]),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", ["2026-05-11T09:00", "2027-05-17T09:00"]),
        ("FREQ=YEARLY;BYWEEKNO=20", ["2026-05-11T09:00", "2027-05-17T09:00"]),
        ("FREQ=YEARLY;BYYEARDAY=-1", ["2026-12-31T09:00", "2027-12-31T09:00"]),
        ("FREQ=HOURLY;INTERVAL=5", ["2026-01-05T09:00", "2026-01-05T14:00", "2026-01-05T19:00", "2026-01-06T00:00"]),
        ("FREQ=MINUTELY;INTERVAL=90;BYHOUR=12,13", ["2026-01-05T12:00", "2026-01-05T13:30", "2026-01-06T12:00"]),
        ("FREQ=SECONDLY;INTERVAL=7200;BYHOUR=13", ["2026-01-05T13:00", "2026-01-06T13:00"]),
        ("FREQ=DAILY;COUNT=2", ["2026-01-05T09:00", "2026-01-06T09:00"]),
        ("FREQ=DAILY;UNTIL=20260106", ["2026-01-05T09:00", "2026-01-06T09:00"]),
        ("FREQ=DAILY;UNTIL=20260106T080000Z", ["2026-01-05T09:00", "2026-01-06T09:00"]),
        ("FREQ=DAILY;UNTIL=20260106T075959Z", ["2026-01-05T09:00"]),
    ],
)
def test_a_rule_names_these_times(text: str, expected: list[str]) -> None:
    ends = "COUNT" in text or "UNTIL" in text
    found = times(text, NINE, len(expected) + ends)
    assert found == [datetime.fromisoformat(each) for each in expected]


def test_from_the_31st_months_without_one_are_passed_over() -> None:
    assert [each.month for each in times("FREQ=MONTHLY", datetime(2026, 1, 31, 9), 4)] == [1, 3, 5, 7]


def test_the_first_time_is_due_only_if_the_rule_names_it() -> None:
    assert times("FREQ=WEEKLY;BYDAY=TU", NINE, 1) == [datetime(2026, 1, 6, 9)]


def test_a_count_goes_by_what_the_rule_names_wherever_one_looks_from() -> None:
    assert times("FREQ=DAILY;COUNT=3", NINE, 9, after=NINE + timedelta(days=1)) == [datetime(2026, 1, 7, 9)]
    assert times("FREQ=HOURLY;COUNT=30", NINE, 99)[-1] == NINE + timedelta(hours=29)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("DAILY", "NAME=VALUE"),
        ("INTERVAL=2", "FREQ is missing"),
        ("FREQ=FORTNIGHTLY", "there is no FREQ=FORTNIGHTLY"),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=DAILY;BYFOO=1", "there is no part"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL takes"),
        ("FREQ=DAILY;INTERVAL=9999999999", "INTERVAL takes"),
        ("FREQ=DAILY;COUNT=0", "COUNT takes"),
        (f"FREQ=DAILY;COUNT={COUNT_MAX + 1}", "COUNT takes"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20300101", "exclude each other"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL is"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR takes"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND takes"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "no 0"),
        ("FREQ=MONTHLY;BYDAY=XX", "BYDAY takes"),
        ("FREQ=MONTHLY;BYDAY=0MO", "counts from 1"),
        ("FREQ=DAILY;BYDAY=2MO", "number before a weekday"),
        ("FREQ=WEEKLY;BYMONTHDAY=3", "BYMONTHDAY does not go"),
        ("FREQ=MONTHLY;BYWEEKNO=3", "BYWEEKNO goes with"),
        ("FREQ=DAILY;BYYEARDAY=3", "BYYEARDAY does not go"),
        ("FREQ=YEARLY;BYWEEKNO=3;BYDAY=1MO", "does not go with BYWEEKNO"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS needs"),
        ("FREQ=DAILY;WKST=XX", "WKST is one of"),
        ("FREQ=DAILY\nRRULE:FREQ=DAILY", "on one line"),
        ("FREQ=DAILY;BYHOUR=１", "plain ASCII"),
        ("FREQ=DAILY;BYDAY=" + "MO," * 400, "at most 1000"),
    ],
)
def test_what_the_standard_does_not_allow_is_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(RRuleFault) as caught:
        end_of(text, NINE, BERLIN, FIXED)
    assert said in str(caught.value)
    assert caught.value.code in ("rrule-syntax", "time-out-of-range")


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU",
        "FREQ=SECONDLY;INTERVAL=60;BYSECOND=30",
        "FREQ=MINUTELY;INTERVAL=7;BYMINUTE=3;BYHOUR=3;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;INTERVAL=86399;BYHOUR=3;BYMINUTE=3;BYSECOND=3;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=HOURLY;INTERVAL=100000;BYHOUR=3",
    ],
)
def test_a_rule_that_names_nothing_is_found_out_soon(text: str) -> None:
    rule = RRule.compile(text, NINE, None)
    began = process_time()
    try:
        found = rule.next_local(NINE - SECOND, SEARCH_DAYS_MAX)
    except RRuleFault:
        found = None
    assert process_time() - began < 0.5
    assert found is None or found.year > 2027


def test_a_count_that_reaches_far_is_judged_soon() -> None:
    text = "FREQ=SECONDLY;INTERVAL=7;BYHOUR=3;BYMINUTE=3;BYSECOND=3;COUNT=10000"
    began = process_time()
    with pytest.raises(RRuleFault, match="COUNT=10000 reaches too far") as caught:
        end_of(text, NINE, BERLIN, FIXED)
    assert process_time() - began < 1
    assert caught.value.hint == "use UNTIL or max_runs"


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("FREQ=DAILY;COUNT=10000", 2053),
        ("FREQ=MINUTELY;BYHOUR=1;BYMINUTE=1;COUNT=10000", 2053),
        ("FREQ=SECONDLY;COUNT=10000", 2026),
        ("FREQ=WEEKLY;COUNT=5000", 2121),
        ("FREQ=DAILY;BYHOUR=9,17;BYSETPOS=1,2;COUNT=10000", 2039),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=2000", 2192),
    ],
)
def test_a_count_of_what_is_not_rare_is_found_however_large(text: str, year: int) -> None:
    end = end_of(text, NINE, BERLIN, FIXED)
    assert end is not None
    assert end.local.year == year


def test_every_second_for_a_century_costs_no_more_than_once_a_year() -> None:
    rule = RRule.compile("FREQ=SECONDLY", NINE, None)
    assert rule.next_local(datetime(2126, 7, 1, 12, 30, 15, 5)) == datetime(2126, 7, 1, 12, 30, 16)


def test_rules_down_to_daily_are_fixed_times_and_the_others_have_a_cadence() -> None:
    fixed = {text: RRule.compile(f"FREQ={text}", NINE, None).is_fixed_time for text in ("YEARLY", "DAILY", "HOURLY")}
    assert fixed == {"YEARLY": True, "DAILY": True, "HOURLY": False}


def test_the_search_ends_with_the_last_planned_year() -> None:
    assert RRule.compile("FREQ=YEARLY", NINE, None).next_local(datetime(2200, 6, 1)) is None


# --- against dateutil -------------------------------------------------------------------------------------

WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def random_rule(chance: Random) -> str:
    """Without what dateutil reads otherwise than the standard: numbered and plain weekdays together, weeks at the edges
    of a year, a first week that is cut off."""

    def some(values: list[object], most: int = 3) -> str:
        return ",".join(map(str, chance.sample(values, chance.randint(1, most))))

    frequency = chance.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"])
    parts = [f"FREQ={frequency}"]
    if chance.random() < 0.6:
        parts.append(f"INTERVAL={chance.randint(2, 4) if frequency == 'YEARLY' else chance.choice([2, 3, 7, 25, 90])}")
    if chance.random() < 0.3:
        parts.append("BYMONTH=" + some([*range(1, 13)]))
    if frequency != "WEEKLY" and chance.random() < 0.25:
        parts.append("BYMONTHDAY=" + some([*range(1, 32), -1, -2, -31], 4))
    weeks = frequency == "YEARLY" and chance.random() < 0.3
    if weeks:
        parts.append("BYWEEKNO=" + some([2, 20, 30, 51, -2]))
    if weeks or chance.random() < 0.4:
        numbered = [f"{nth}{day}" for nth in (1, 2, 5, -1, -2) for day in WEEKDAYS]
        by_number = frequency in ("YEARLY", "MONTHLY") and not weeks and chance.random() < 0.5
        parts.append("BYDAY=" + some([*numbered] if by_number else [*WEEKDAYS]))
    for name, high in (("BYHOUR", 24), ("BYMINUTE", 60), ("BYSECOND", 60)):
        if chance.random() < 0.25:
            parts.append(f"{name}=" + some([*range(high)]))
    if frequency not in ("SECONDLY", "WEEKLY") and any(part[:2] == "BY" for part in parts) and chance.random() < 0.2:
        parts.append("BYSETPOS=" + some([1, 2, 3, 10, -1, -2], 2))
    if chance.random() < 0.2:
        parts.append("WKST=" + chance.choice(WEEKDAYS))
    if chance.random() < 0.15:
        parts.append(f"COUNT={chance.randint(1, 20)}")
    return ";".join(parts)


def test_random_rules_fall_due_as_in_dateutil() -> None:
    chance = Random(20_260_504)
    compared = 0
    while compared < 500:
        text = random_rule(chance)
        first = datetime(
            chance.randint(2000, 2030), chance.randint(1, 12), chance.randint(1, 28), chance.randint(0, 23)
        )
        try:
            found = times(text, first, 15, zone=ZoneInfo("UTC"))
        except RRuleFault:
            continue
        # dateutil's walk knows no bound: it is not asked about what is rare.
        days = 100 if parse_parts(text).frequency > Frequency.DAILY else 10_000
        if not found or found[-1] > first + timedelta(days=days) or (len(found) < 15 and "COUNT" not in text):
            continue
        assert found == list(islice(rrulestr(text, dtstart=first), len(found))), f"{text} from {first}"
        compared += 1


def test_a_rule_that_fires_beyond_the_search_is_not_said_never_to_fire() -> None:
    rule = RRule.compile("FREQ=SECONDLY;INTERVAL=86399;BYHOUR=8;BYMINUTE=0;BYSECOND=0", datetime(2027, 1, 1, 9))
    assert rule.next_local(datetime(2027, 1, 1)) == datetime(2036, 11, 9, 8)
    with pytest.raises(RRuleFault, match=r"does not fire within 4 years of 2027-01-01") as refused:
        rule.next_local(datetime(2027, 1, 1), SEARCH_DAYS_MAX)
    assert refused.value.code == "rrule-never-fires"


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=1,7;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=3,-3",
        "FREQ=YEARLY;INTERVAL=3;BYDAY=20MO,-1SU",
        "FREQ=YEARLY;BYWEEKNO=1,53,-1,-53;BYDAY=MO,TH,SU;WKST=SU",
        "FREQ=YEARLY;BYWEEKNO=1,52,-53;BYDAY=MO,WE,SU",
        "FREQ=YEARLY;BYYEARDAY=1,60,366,-366,-1",
        "FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=29,-1",
        "FREQ=MONTHLY;INTERVAL=7;BYDAY=MO,FR;BYSETPOS=-1,2",
        "FREQ=WEEKLY;INTERVAL=3;BYDAY=MO,SA;BYSETPOS=-1",
        "FREQ=WEEKLY;BYDAY=SU,MO;BYSETPOS=2;WKST=TH",
        "FREQ=DAILY;INTERVAL=11;BYMONTH=1,2,12",
        "FREQ=DAILY;BYHOUR=8,12;BYSETPOS=2;BYMONTHDAY=-1",
    ],
)
def test_what_is_kept_of_one_year_is_right_for_every_other_that_is_taken_for_its_like(text: str) -> None:
    first = datetime(1999, 1, 6, 9)
    rule = RRule.compile(text, first)
    for year in range(1999, 2201):
        found = rule._year(year)
        in_step = phase_of(rule.parts, first, year) is not None
        assert found == (year_of(rule.parts, first, rule._day_times, year) if in_step else NO_DAYS), year
    assert len(rule._years) <= 32


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;INTERVAL=3;BYHOUR=2,14;BYMINUTE=0,30",
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,SU",
        "FREQ=MONTHLY;BYMONTHDAY=31",
        "FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=TH",
    ],
)
def test_times_counted_year_by_year_are_as_many_as_are_walked_over(text: str) -> None:
    first, chance = datetime(2027, 2, 3, 14, 30), Random(3)
    rule = RRule.compile(text, first)
    walked = times(text, first, 3000)
    for _ in range(200):
        begin, before = sorted(first + timedelta(minutes=30 * chance.randrange(-500, 48 * 366 * 4)) for _ in range(2))
        inside = [due for due in walked if begin <= due < before]
        assert rule.count_local(begin, before, 10**9, Steps(10**6)) == len(inside)
        if inside:
            number = chance.randrange(len(inside))
            assert rule.nth_local(number + 1, begin, Steps(10**6)) == inside[number]
