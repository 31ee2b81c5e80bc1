"""Where rules begin and end on nights on which clocks are set: among instants, not local times."""

# ruff: noqa: DTZ001, E501 - local times have no zone here; rows of tables stay on one line

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from hourhand.model.errors import InvalidFields
from hourhand.model.preview import preview
from hourhand.model.schedule import Gap, RRuleSchedule, Timing, describe, timing_from_json, timing_to_json
from hourhand.model.schedule_form import parse_timing
from hourhand.model.words import timing_words

AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
SPRING = datetime(2027, 3, 27, 12, tzinfo=UTC)
EVER = datetime(2100, 1, 1, tzinfo=UTC)
QUARTERS = {"rrule": "FREQ=MINUTELY;INTERVAL=15", "first": "2026-10-25T02:00"}


def read(schedule: Any, now: datetime = AUTUMN, zone: str = "Europe/Berlin", **more: Any) -> Timing:
    return parse_timing(schedule, zone, now=now, seed=1, **more)


def due(timing: Timing, now: datetime = AUTUMN, count: int = 20) -> list[str]:
    return [f"{each:%dT%H:%M}" for each in timing.due_between(now, now + timedelta(days=4), count)]


def quarters(more: str, **choices: Any) -> list[str]:
    return due(read(QUARTERS | {"rrule": QUARTERS["rrule"] + more}, **choices))


def test_until_with_a_z_is_an_instant_also_where_the_clock_shows_it_twice() -> None:
    assert quarters(";UNTIL=20261025T003000Z") == ["25T00:00", "25T00:15", "25T00:30"]
    assert quarters(";UNTIL=20261025T011500Z")[-3:] == ["25T00:45", "25T01:00", "25T01:15"]


def test_until_without_a_z_is_a_local_time_in_each_of_its_passes() -> None:
    assert quarters(";UNTIL=20261025T021500") == ["25T00:00", "25T00:15", "25T01:00", "25T01:15"]


def test_a_count_counts_what_falls_due_in_an_hour_that_comes_twice() -> None:
    assert quarters(";COUNT=4") == ["25T00:00", "25T00:15", "25T00:30", "25T00:45"]
    assert quarters(";COUNT=6")[-3:] == ["25T00:45", "25T01:00", "25T01:15"]
    assert quarters(";COUNT=6", overlap="first")[-3:] == ["25T00:45", "25T02:00", "25T02:15"]
    assert quarters(";COUNT=5", overlap="last") == ["25T01:00", "25T01:15", "25T01:30", "25T01:45", "25T02:00"]


def test_a_count_counts_what_falls_due_over_an_hour_that_is_missing() -> None:
    hourly = read({"rrule": "FREQ=HOURLY;COUNT=4", "first": "2027-03-28T00:30"}, SPRING)
    assert due(hourly, SPRING) == ["27T23:30", "28T00:30", "28T01:30", "28T02:30"]
    daily = {"rrule": "FREQ=DAILY;COUNT=3", "first": "2027-03-28T02:30"}
    assert due(read(daily, SPRING), SPRING) == ["28T01:00", "29T00:30", "30T00:30"]
    assert due(read(daily, SPRING, gap="skip"), SPRING) == ["29T00:30", "30T00:30", "31T00:30"]


@pytest.mark.parametrize(
    ("schedule", "choices", "expected"),
    [
        ({"daily": "2026-10-25T02:15:00+01:00"}, {}, ["25T01:15", "26T01:15"]),
        ({"daily": "2026-10-25T02:15:00+01:00"}, {"overlap": "first"}, ["25T01:15", "26T01:15"]),
        ({"daily": "2026-10-25T02:15:00+01:00"}, {"overlap": "both"}, ["25T01:15", "26T01:15"]),
        ({"daily": "2026-10-25T02:15:00+02:00"}, {}, ["25T00:15", "26T01:15"]),
        ({"daily": "2026-10-25T02:15:00+02:00"}, {"overlap": "both"}, ["25T00:15", "25T01:15"]),
        ({"rrule": "FREQ=MINUTELY;INTERVAL=30", "first": "2026-10-25T02:15:00+01:00"}, {}, ["25T01:15", "25T01:45"]),
        ({"rrule": "FREQ=DAILY;BYHOUR=9", "first": "2026-10-25T02:15:00+01:00"}, {}, ["25T08:15", "26T08:15"]),
        ({"rrule": "FREQ=DAILY"}, {"start_at": "2026-10-25T01:15:00Z"}, ["25T01:15", "26T01:15"]),
    ],
)
def test_a_first_time_with_an_offset_is_an_instant(schedule: Any, choices: Any, expected: list[str]) -> None:
    timing = read(schedule, **choices)
    assert due(timing, count=2) == expected
    assert read(describe(timing), **choices) == timing, "and is given back as one"


def test_a_count_begins_with_the_instant_of_the_first_time() -> None:
    timing = read({"rrule": "FREQ=DAILY;COUNT=2", "first": "2026-10-25T02:15:00+01:00"})
    assert due(timing) == ["25T01:15", "26T01:15"]


def test_ends_and_beginnings_are_stored_and_read_back() -> None:
    for schedule in (
        QUARTERS | {"rrule": "FREQ=MINUTELY;COUNT=70"},
        QUARTERS | {"rrule": "FREQ=MINUTELY;UNTIL=20261025T011500Z"},
        {"daily": "2026-10-25T02:15:00+01:00"},
    ):
        timing = read(schedule)
        assert timing_from_json(timing_to_json(timing)) == timing


def test_rules_as_they_were_stored_before_are_read_as_ending_by_local_time() -> None:
    stored = {
        "schedules": [{"rrule": "FREQ=DAILY;COUNT=2", "first": "2026-10-25T02:15:00", "last": "2026-10-26T02:15:00", "short": None}],
        "zone": "Europe/Berlin", "start_at": None, "end_at": None, "gap": "fire_after", "overlap": "both",
    }  # fmt: skip
    timing = timing_from_json(stored)
    assert due(timing) == ["25T00:15", "25T01:15", "26T01:15"]
    assert timing_to_json(timing) == stored


def test_an_end_moves_with_the_clock_of_its_zone() -> None:
    """As when a government sets its clocks otherwise than was known when the rule was read."""
    [schedule] = read({"rrule": "FREQ=DAILY;COUNT=3", "first": "2026-10-25T09:00"}).schedules
    assert isinstance(schedule, RRuleSchedule)
    assert due(Timing((schedule,), "Europe/Lisbon")) == ["25T09:00", "26T09:00", "27T09:00"]


def test_a_rule_says_the_instant_at_which_it_ends() -> None:
    assert "until 2026-10-25T00:30:00Z" in timing_words(read(QUARTERS | {"rrule": "FREQ=DAILY;UNTIL=20261025T003000Z"}))


def test_what_a_rule_that_has_ended_leaves_out_is_not_noted() -> None:
    more = {"rrule": "FREQ=DAILY;BYHOUR=2;BYMINUTE=30;UNTIL=20261020T000000Z", "first": "2026-10-01T00:00"}
    timing = read([more, {"cron": "0 12 * * *"}], datetime(2026, 10, 1, tzinfo=UTC), gap="skip")
    assert preview(timing, datetime(2026, 10, 1, tzinfo=UTC), None, 60).notes == []


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Africa/Cairo", "Asia/Gaza")


def test_a_count_leaves_the_first_due_times_of_the_rule_without_it_whatever_the_clock_does() -> None:
    chance = Random(20_261_025)
    for _ in range(400):
        first = datetime(2026, 1, 1) + timedelta(minutes=chance.randrange(0, 525_600, 15))
        rule = chance.choice(
            ["FREQ=DAILY", "FREQ=HOURLY", "FREQ=DAILY;BYHOUR=0,1,2,3;BYMINUTE=0,30", "FREQ=MINUTELY;INTERVAL=15",
             "FREQ=HOURLY;INTERVAL=5", "FREQ=WEEKLY;BYDAY=SU;BYHOUR=2;BYMINUTE=0,30", "FREQ=MINUTELY;INTERVAL=7"]
        )  # fmt: skip
        zone, count = chance.choice(ZONES), chance.choice([1, 2, 5, 40, 300])
        choices = {"gap": chance.choice([*Gap]).value, "overlap": chance.choice(["auto", "first", "last", "both"])}
        if chance.random() < 0.5:  # near a change of the clocks
            days = {"Europe/Berlin": (88, 298), "America/New_York": (67, 305), "Africa/Cairo": (114, 302)}
            day = chance.choice(days.get(zone, (87, 297)))
            first = datetime(2026, 1, 1) + timedelta(days=day - 2, minutes=chance.randrange(0, 5760, 15))
        now = datetime(2025, 12, 31, tzinfo=UTC)
        without = read({"rrule": rule, "first": first.isoformat()}, now, zone, **choices)
        counted = read({"rrule": f"{rule};COUNT={count}", "first": first.isoformat()}, now, zone, **choices)
        expected = without.due_between(now, EVER, count)
        assert counted.due_between(now, EVER, count + 5) == expected, (rule, zone, first, count, choices)


def test_the_rules_of_one_job_share_what_is_looked_at_for_their_ends() -> None:
    """Fifty that each take as long as one may would hold up everybody else for seconds."""
    dear = [
        {"rrule": f"FREQ=SECONDLY;INTERVAL=99991;COUNT={10_000 - place}", "first": "2026-03-02T09:00:00"}
        for place in range(50)
    ]
    assert read(dear[0])
    with pytest.raises(InvalidFields) as refused:
        read(dear)
    assert len(refused.value.faults) > 40
    assert refused.value.faults[-1].message == "COUNT=9951 reaches too far"
    daily = [{"rrule": f"FREQ=DAILY;COUNT={10_000 - place}", "first": "2026-03-02T09:00:00"} for place in range(50)]
    assert read(daily)
