"""Rules, short forms, delays after completion, budgets and jitter as users write them."""

# ruff: noqa: DTZ001, E501 - local times have no zone here; rows of tables stay on one line

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.errors import InvalidFields
from hourhand.model.jitter import start_of, starts_of
from hourhand.model.schedule import (
    AfterCompletion,
    Every,
    OnExcluded,
    RRuleSchedule,
    Timing,
    describe,
    timing_from_json,
    timing_to_json,
)
from hourhand.model.schedule_form import parse_timing

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def read(schedule: object, **more: Any) -> Timing:
    return parse_timing(schedule, now=NOW, seed=1, **more)


def codes(schedule: object, **more: Any) -> dict[str, str]:
    with pytest.raises(InvalidFields) as caught:
        read(schedule, **more)
    return {fault.pointer: fault.code for fault in caught.value.faults}


def due(timing: Timing, count: int = 3) -> list[str]:
    found = timing.due_between(NOW, datetime(2100, 1, 1, tzinfo=UTC), count)
    return [f"{each:%Y-%m-%dT%H:%M}" for each in found]


# --- rules and short forms --------------------------------------------------------------------------------


def test_a_rule_goes_by_the_clock_of_the_zone() -> None:
    timing = read({"rrule": "FREQ=DAILY;BYHOUR=9;BYMINUTE=0"}, zone="Europe/Berlin")
    assert due(timing) == ["2026-05-05T07:00", "2026-05-06T07:00", "2026-05-07T07:00"]
    assert timing.next_after(datetime(2026, 12, 1, tzinfo=UTC)) == datetime(2026, 12, 1, 8, tzinfo=UTC)


def test_a_rule_without_a_first_time_begins_at_midnight_or_at_start_at() -> None:
    assert due(read({"rrule": "FREQ=DAILY"}), 1) == ["2026-05-05T00:00"]
    assert due(read({"rrule": "FREQ=DAILY"}, start_at="2026-06-01T10:30:00Z"), 1) == ["2026-06-01T10:30"]


def test_a_first_time_with_an_offset_is_turned_into_the_zones_clock() -> None:
    timing = read({"rrule": "FREQ=WEEKLY", "first": "2026-05-05T23:30:00Z"}, zone="Europe/Berlin")
    assert describe(timing) == [{"rrule": "FREQ=WEEKLY", "first": "2026-05-06T01:30:00"}]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"daily": "13:00"}, ["2026-05-04T13:00", "2026-05-05T13:00", "2026-05-06T13:00"]),
        ({"daily": "2026-05-10T11:30:15"}, ["2026-05-10T11:30", "2026-05-11T11:30", "2026-05-12T11:30"]),
        ({"weekly": "2026-04-01T09:00"}, ["2026-05-06T09:00", "2026-05-13T09:00", "2026-05-20T09:00"]),
        ({"monthly": "2026-01-31 09:00"}, ["2026-05-31T09:00", "2026-07-31T09:00", "2026-08-31T09:00"]),
        ({"yearly": "2024-02-29T09:00"}, ["2028-02-29T09:00", "2032-02-29T09:00", "2036-02-29T09:00"]),
    ],
)
def test_short_forms_repeat_their_first_time(schedule: dict[str, str], expected: list[str]) -> None:
    timing = read(schedule)
    assert due(timing) == expected
    [word] = schedule
    assert [*describe(timing)[0]] == [word]
    assert read(describe(timing)) == timing


def test_one_function_maps_rules_and_cron_at_clock_changes() -> None:
    spring = datetime(2027, 3, 27, tzinfo=UTC)
    for choice in ({"gap": "fire_after"}, {"gap": "skip"}, {"overlap": "both"}, {"overlap": "last"}):
        by_rule = read({"rrule": "FREQ=DAILY;BYHOUR=2;BYMINUTE=30"}, zone="Europe/Berlin", **choice)
        by_cron = read({"cron": "30 2 * * *"}, zone="Europe/Berlin", **choice)
        for start in (spring, spring + timedelta(days=215)):
            end = start + timedelta(days=4)
            assert by_rule.due_between(start, end, 20) == by_cron.due_between(start, end, 20)


def test_a_rule_within_the_day_keeps_its_cadence_as_a_cron_does() -> None:
    by_rule = read({"rrule": "FREQ=MINUTELY;INTERVAL=30", "first": "2026-01-01T00:00"}, zone="Europe/Berlin")
    by_cron = read({"cron": "*/30 * * * *"}, zone="Europe/Berlin")
    for start in (datetime(2027, 3, 27, 22, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)):
        assert by_rule.due_between(start, start + 6 * HOUR, 50) == by_cron.due_between(start, start + 6 * HOUR, 50)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"rrule": 5}, {"/schedule/rrule": "wrong-type"}),
        ({"rrule": "FREQ=NEVER"}, {"/schedule/rrule": "rrule-syntax"}),
        ({"rrule": "FREQ=DAILY;INTERVAL=7;BYDAY=TU", "first": "2026-05-04T09:00"}, {"/schedule": "schedule-never-fires"}),
        ({"rrule": "FREQ=SECONDLY;INTERVAL=60;BYSECOND=30"}, {"/schedule/rrule": "rrule-never-fires"}),
        ({"rrule": "FREQ=DAILY;COUNT=2", "first": "2020-01-01T00:00"}, {"/schedule": "schedule-never-fires"}),
        ({"rrule": "FREQ=DAILY;UNTIL=20200101"}, {"/schedule": "schedule-never-fires"}),
        ({"rrule": "FREQ=DAILY", "first": "2026-02-30T09:00"}, {"/schedule/first": "invalid-date-time"}),
        ({"rrule": "FREQ=DAILY", "first": "0001-01-01T09:00"}, {"/schedule/first": "time-out-of-range"}),
        ({"rrule": "FREQ=DAILY", "first": 1767225600000}, {"/schedule/first": "wrong-type"}),
        ({"rrule": "FREQ=DAILY", "after": "completion"}, {"/schedule/after": "unknown-field"}),
        ({"rrule": "FREQ=DAILY", "dtstart": "2026-01-01"}, {"/schedule/dtstart": "unknown-field"}),
        ({"daily": "25:00"}, {"/schedule/daily": "invalid-date-time"}),
        ({"weekly": "09:00"}, {"/schedule/weekly": "invalid-date-time"}),
        ({"daily": "09:00", "weekly": "2026-05-05T09:00"}, {"/schedule": "conflicting-schedule"}),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_used_are_refused_where_they_are_wrong(schedule: Any, expected: dict[str, str]) -> None:
    assert codes(schedule) == expected


# --- every ------------------------------------------------------------------------------------------------


def test_every_counts_from_an_anchor_of_its_own() -> None:
    timing = read({"every": "1h", "anchor": "2026-01-01T00:17:00Z"})
    assert timing.schedules == (Every(HOUR, datetime(2026, 1, 1, 0, 17, tzinfo=UTC), named=True),)
    assert describe(timing) == [{"every": "1h", "anchor": "2026-01-01T00:17:00Z"}]
    assert read(describe(timing)) == timing == timing_from_json(timing_to_json(timing))
    assert due(timing, 1) == ["2026-05-04T12:17"]


def test_after_completion_knows_its_first_due_time_only() -> None:
    timing = read({"every": "10m", "after": "completion"})
    assert timing.schedules == (AfterCompletion(timedelta(minutes=10), NOW + timedelta(minutes=10)),)
    assert timing.after_completion == timedelta(minutes=10)
    assert timing.recurring
    assert due(timing) == ["2026-05-04T12:10"]
    assert due(read({"every": "10m", "after": "completion"}, start_at="2026-06-01T00:00:00Z")) == ["2026-06-01T00:00"]
    assert describe(timing) == [{"every": "10m", "after": "completion"}]


@pytest.mark.parametrize(
    ("schedule", "more", "expected"),
    [
        ({"every": "10m", "after": "start"}, {}, {"/schedule/after": "invalid-value"}),
        (
            {"every": "10m", "after": "completion", "anchor": "2026-01-01T00:00:00Z"},
            {},
            {"/schedule/anchor": "conflicting-schedule"},
        ),
        ([{"every": "10m", "after": "completion"}, {"cron": "@daily"}], {}, {"/schedule": "conflicting-schedule"}),
        ({"every": "10m", "after": "completion"}, {"calendars": ["x"]}, {"/calendars": "conflicting-schedule"}),
        ({"every": "10m", "anchor": "yesterday"}, {}, {"/schedule/anchor": "invalid-date-time"}),
        ({"cron": "@daily", "anchor": "2026-01-01T00:00:00Z"}, {}, {"/schedule/anchor": "unknown-field"}),
    ],
)
def test_what_does_not_go_with_every_is_refused(schedule: Any, more: dict[str, Any], expected: dict[str, str]) -> None:
    assert codes(schedule, **more) == expected


# --- budgets and jitter -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"max_runs": 0}, {"/max_runs": "out-of-range"}),
        ({"max_runs": 10**10}, {"/max_runs": "out-of-range"}),
        ({"max_runs": True}, {"/max_runs": "wrong-type"}),
        ({"jitter": "5 minutes"}, {"/jitter": "invalid-duration"}),
        ({"jitter": 30}, {"/jitter": "wrong-type"}),
        ({"jitter": "1h"}, {"/jitter": "jitter-too-large"}),
        ({"jitter": "2h", "max_runs": -1}, {"/max_runs": "out-of-range"}),
        ({"on_excluded": "sometimes"}, {"/on_excluded": "invalid-value"}),
    ],
)
def test_budgets_and_jitter_out_of_bounds_are_refused(more: dict[str, Any], expected: dict[str, str]) -> None:
    assert codes({"cron": "0 * * * *"}, **more) == expected


@pytest.mark.parametrize(
    "schedule", [{"every": "30m"}, {"cron": "0,30 * * * *"}, {"every": "30m", "after": "completion"}]
)
def test_a_jitter_that_reaches_the_next_due_time_is_refused(schedule: Any) -> None:
    assert codes(schedule, jitter="30m") == {"/jitter": "jitter-too-large"}
    assert read(schedule, jitter="29m59s").jitter == timedelta(minutes=29, seconds=59)


def test_a_job_that_runs_once_has_no_use_for_any_of_it() -> None:
    given = {"max_runs": 3, "jitter": "1m", "calendars": ["x"]}
    assert codes({"at": "2026-06-01T00:00:00Z"}, **given) == dict.fromkeys(
        ("/max_runs", "/jitter", "/calendars"), "not-recurring"
    )


def test_all_of_it_is_stored_and_read_back_and_plain_timings_as_before() -> None:
    timing = read(
        [{"rrule": "FREQ=DAILY;COUNT=900"}, {"daily": "13:00"}, {"every": "1h"}],
        max_runs=7, jitter="90s", calendars=["a", "b"], on_excluded="next_allowed",
    )  # fmt: skip
    assert timing_from_json(timing_to_json(timing)) == timing
    assert timing.on_excluded is OnExcluded.NEXT_ALLOWED
    assert isinstance(timing.schedules[0], RRuleSchedule)
    plain = timing_to_json(read({"cron": "@daily"}))
    assert [*plain] == ["schedules", "zone", "start_at", "end_at", "gap", "overlap"]
    assert not timing_from_json(plain).is_apart


INSTANTS = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC))


@given(st.lists(INSTANTS, min_size=2, max_size=20, unique=True), st.timedeltas(timedelta(0), 400 * HOUR), st.uuids())
def test_starts_keep_the_order_of_due_times_and_stay_within_the_jitter(
    dues: list[datetime], jitter: timedelta, job_id: UUID
) -> None:
    *dues, following = sorted(dues)
    starts = starts_of(dues, following, jitter, job_id)
    for at, start, after in zip(dues, starts, [*dues[1:], following], strict=True):
        assert at <= start <= at + jitter
        assert start < after
    assert all(earlier < later for earlier, later in pairwise(starts))
    assert list(starts) == list(starts_of(dues, following, jitter, job_id))


def test_jobs_of_one_instant_are_spread_evenly() -> None:
    starts = [start_of(NOW, None, HOUR, UUID(int=number)) - NOW for number in range(6000)]
    quarters = [sum(1 for start in starts if start // (HOUR / 4) == quarter) for quarter in range(4)]
    assert all(1350 < count < 1650 for count in quarters)


def test_without_jitter_starts_are_the_due_times_themselves() -> None:
    dues = [NOW, NOW + HOUR]
    assert starts_of(dues, None, None, UUID(int=1)) is dues
