"""What falls due minute by minute, what that needs, and where it crowds."""

from datetime import UTC, datetime, timedelta

import pytest

from hourhand.model.calendar import CalendarRule
from hourhand.model.calendar_form import read_calendar
from hourhand.model.cron import Cron
from hourhand.model.exclusion import around
from hourhand.model.forecast import (
    Pace,
    Tally,
    crowded_minutes,
    falls_due_at,
    pace_of,
    spread_schedule,
    waits,
)
from hourhand.model.schedule import At, CronSchedule, Every, Timing

START = datetime(2030, 1, 7, 12, tzinfo=UTC)
DAY = START + timedelta(days=1)


def cron(text: str, zone: str = "UTC") -> Timing:
    return Timing((CronSchedule(text),), zone=zone)


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def test_every_due_time_is_counted_in_its_minute() -> None:
    tally = Tally(START, 24 * 60)
    hourly = pace_of(cron("30 * * * *"), minute(30), DAY, 1000)
    tally.add_pace(hourly, 3, 2.0)
    assert [place for place, due in enumerate(tally.due) if due] == list(range(30, 1440, 60))
    assert tally.due[30] == 3
    assert tally.work_seconds[30] == 6


def test_what_falls_due_very_often_goes_on_evenly() -> None:
    seconds = pace_of(Timing((Every(timedelta(seconds=2), START),)), START, DAY, 100)
    assert seconds.per_minute == pytest.approx(30)
    tally = Tally(START, 24 * 60)
    tally.add_pace(seconds, 1, 0.5)
    assert sum(tally.due) == pytest.approx(24 * 60 * 30, rel=0.01)
    assert tally.due[700] == pytest.approx(30)
    assert tally.work_seconds[700] == pytest.approx(15)


def test_a_schedule_that_ends_in_between_is_counted_up_to_its_end() -> None:
    short = Timing((Every(timedelta(minutes=1), START),), end_at=minute(4))
    assert pace_of(short, START, DAY, 100) == Pace([minute(number) for number in range(5)])
    assert pace_of(Timing((At(minute(5)),)), minute(5), DAY, 100) == Pace([minute(5)])
    assert pace_of(cron("0 0 * * *"), DAY + timedelta(hours=1), DAY, 100) == Pace([])


def test_what_is_overdue_counts_for_the_first_minute_and_what_is_far_off_not_at_all() -> None:
    tally = Tally(START + timedelta(seconds=40), 10)
    assert tally.start == START
    for number in (-5, 0.2, 9.9, 10, 100):
        tally.add(minute(number), 1, 1.0)
    assert tally.due == [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_of_a_sample_the_next_due_time_can_be_left_to_those_who_counted_it() -> None:
    tally = Tally(START, 180)
    tally.add_pace(pace_of(cron("0 * * * *"), minute(60), minute(180), 10), 100, 0.0, without_first=True)
    assert [(place, due) for place, due in enumerate(tally.due) if due] == [(120, 100)]


def test_what_does_not_fit_into_a_minute_waits_into_the_next_ones() -> None:
    assert list(waits([0, 60, 0], 1)) == [0, 0, 0]
    assert list(waits([180, 0, 0, 0], 1)) == [120, 60, 0, 0]
    assert list(waits([180, 0], 3)) == [0, 0]
    assert list(waits([180, 180], 2)) == [30, 60]
    assert list(waits([1, 1], 0)) == [0, 0]


def test_a_crowd_is_far_more_than_usual_and_not_just_busy() -> None:
    quiet = [1.0] * 1440
    assert crowded_minutes(quiet) == []
    assert crowded_minutes([1000.0] * 1440) == []
    midnight = quiet.copy()
    midnight[720], midnight[60] = 420, 30
    assert crowded_minutes(midnight) == [720, 60]
    assert crowded_minutes([0.0] * 59 + [9.0]) == []


def test_a_crowd_is_seen_above_a_steady_load_and_a_little_more_than_always_is_none() -> None:
    assert crowded_minutes([120.0] * 720 + [540.0] + [120.0] * 719) == [720]
    assert crowded_minutes([1000.0] * 720 + [1030.0] + [1000.0] * 719) == []
    assert crowded_minutes([100.0, 0.0] * 720) == []


def test_crowds_are_few_and_of_nothing_there_is_none() -> None:
    assert crowded_minutes([]) == []
    assert len(crowded_minutes([500.0 if place % 60 == 0 else 0.0 for place in range(1440)])) == 10


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("0 0 * * *", "H 0 * * *"),
        ("30 9 * * MON-FRI", "H 9 * * MON-FRI"),
        ("@daily", "H 0 * * *"),
        ("@hourly", "H * * * *"),
        ("*/15 * * * *", "H/15 * * * *"),
        ("0 0 3 * * *", "H H 3 * * *"),
        ("* * * * *", None),
        ("H 0 * * *", None),
        ("0,30 * * * *", None),
        ("*/1 * * * *", None),
    ],
)
def test_a_schedule_that_many_share_can_be_spread_over_the_hour(text: str, spread: str | None) -> None:
    assert spread_schedule(cron(text)) == spread
    if spread is not None:
        minutes = {
            due.minute
            for seed in range(200)
            if (due := Cron.parse(spread, seed).next_local(START.replace(tzinfo=None)))
        }
        assert len(minutes) > 10


def test_only_a_single_cron_schedule_is_spread() -> None:
    assert spread_schedule(Timing((Every(timedelta(hours=1), START),))) is None
    assert spread_schedule(Timing((CronSchedule("0 0 * * *"), CronSchedule("0 1 * * *")))) is None


def test_whether_a_schedule_is_part_of_a_minute() -> None:
    assert falls_due_at(cron("30 13 * * *", "Europe/Berlin"), minute(30))
    assert not falls_due_at(cron("30 13 * * *", "Europe/Berlin"), minute(31))
    assert falls_due_at(cron("59 30 12 * * *"), minute(30))


def test_of_a_schedule_with_calendars_nothing_is_looked_at_beyond_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[datetime] = []
    really = CalendarRule.covering

    def covering(rule: CalendarRule, instant: datetime, zone: str) -> tuple[datetime, datetime] | None:
        looked.append(instant)
        return really(rule, instant, zone)

    monkeypatch.setattr(CalendarRule, "covering", covering)
    timing = Timing((CronSchedule("0 * * * *"),), calendars=("x",))
    rule = read_calendar(
        weekly=[{"day": "MON-SUN", "from": f"{hour:02d}:00", "to": f"{hour:02d}:01"} for hour in range(24)]
    )
    bounded = around(timing, {"x": rule})

    assert not falls_due_at(bounded, START)
    assert pace_of(bounded, START, DAY, 1000).times == [START]
    assert max(looked) <= DAY + timedelta(minutes=1)
