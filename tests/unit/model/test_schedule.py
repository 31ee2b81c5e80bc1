# ruff: noqa: DTZ001 - local times have no zone here

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.schedule import (
    At,
    CronSchedule,
    DstOverlap,
    Every,
    Gap,
    Now,
    RRuleSchedule,
    Schedule,
    Timing,
    describe,
    timing_from_json,
    timing_to_json,
)
from hourhand.model.schedule_form import parse_timing

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)


def read(schedule: object, **more: Any) -> Timing:
    return parse_timing(schedule, now=NOW, seed=1, **more)


def faults_of(schedule: object, **more: Any) -> list[Fault]:
    with pytest.raises(InvalidFields) as caught:
        read(schedule, **more)
    return caught.value.faults


def codes(faults: list[Fault]) -> list[tuple[str, str]]:
    return [(fault.pointer, fault.code) for fault in faults]


# --- when a job falls due ---------------------------------------------------------------------------------


def test_a_cron_job_falls_due_by_the_clock_of_its_zone() -> None:
    timing = read({"cron": "0 9 * * *"}, zone="Europe/Berlin")
    assert timing.next_after(NOW) == datetime(2026, 5, 5, 7, tzinfo=UTC)
    assert timing.next_after(datetime(2026, 12, 1, tzinfo=UTC)) == datetime(2026, 12, 1, 8, tzinfo=UTC)


def test_due_times_are_in_utc_whatever_zone_the_question_was_asked_in() -> None:
    asked = NOW.astimezone(ZoneInfo("Asia/Tokyo"))
    due = read({"cron": "0 13 * * *"}).next_after(asked)
    assert due == NOW + HOUR
    assert due.tzinfo is UTC


def test_several_schedules_fall_due_on_their_union_without_doubles() -> None:
    timing = read([{"cron": "0 * * * *"}, {"cron": "*/30 * * * *"}, {"at": "2026-05-04T12:45:00Z"}])
    due = timing.due_between(NOW, NOW + HOUR, 10)
    assert [when.minute for when in due] == [30, 45, 0]


def test_start_and_end_are_included_in_the_window() -> None:
    timing = read({"every": "1h"}, start_at="2026-05-05T00:00:00Z", end_at="2026-05-05T02:00:00Z")
    assert [due.hour for due in timing.due_between(NOW, NOW + 100 * HOUR, 10)] == [0, 1, 2]
    assert timing.next_after(datetime(2026, 5, 5, 2, tzinfo=UTC)) is None


def test_a_cron_due_exactly_at_start_counts() -> None:
    timing = read({"cron": "0 0 * * *"}, start_at="2026-05-06T02:00:00+02:00")
    assert timing.next_after(NOW) == datetime(2026, 5, 6, tzinfo=UTC)


def test_due_between_leaves_out_the_first_end_takes_in_the_last_and_keeps_the_limit() -> None:
    timing = read({"cron": "* * * * *"})
    due = timing.due_between(NOW, NOW + timedelta(minutes=3), 10)
    assert [when.minute for when in due] == [1, 2, 3]
    assert timing.due_between(NOW, NOW + HOUR, 2) == due[:2]
    assert timing.due_between(NOW, NOW + HOUR, 0) == []


def test_the_choice_for_clock_changes_reaches_the_cron() -> None:
    day = datetime(2026, 10, 25, tzinfo=UTC)
    both = read({"cron": "30 2 * * *"}, zone="Europe/Berlin", overlap="both")
    assert [due.hour for due in both.due_between(day, day + 12 * HOUR, 10)] == [0, 1]
    spring = datetime(2027, 3, 28, tzinfo=UTC)
    skip = read({"cron": "30 2 * * *"}, zone="Europe/Berlin", gap="skip")
    assert skip.due_between(spring, spring + 12 * HOUR, 10) == []


def test_nothing_is_due_after_the_last_planned_year() -> None:
    late = datetime(2200, 12, 31, 23, 59, tzinfo=UTC)
    for schedule in ({"cron": "* * * * *"}, {"every": "1m"}):
        assert read(schedule).next_after(late + timedelta(minutes=1)) is None
        assert read(schedule).next_after(datetime(9999, 12, 31, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("schedule", "recurring"),
    [(None, False), ({"at": "2026-06-01T00:00:00Z"}, False), ({"cron": "@daily"}, True), ({"every": "1h"}, True)],
)
def test_cron_and_every_go_on_by_themselves(schedule: object, recurring: bool) -> None:
    assert read(schedule).recurring is recurring


# --- the first due time of a new job ----------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [None, "now", {"now": True}, ["now"], [{"now": True}]])
def test_a_job_without_schedule_or_with_now_is_due_the_instant_it_was_accepted(schedule: object) -> None:
    timing = read(schedule)
    assert timing.schedules == (Now(NOW),)
    assert timing.first_due(NOW) == NOW
    assert timing.next_after(NOW) is None


def test_now_waits_for_the_start() -> None:
    timing = read(None, start_at="2026-05-05T00:00:00Z")
    assert timing.first_due(NOW) == datetime(2026, 5, 5, tzinfo=UTC)


def test_an_at_that_has_just_passed_is_due_at_once_and_shown_as_written() -> None:
    timing = read({"at": "2026-05-04T11:30:00Z"})
    assert timing.first_due(NOW) == NOW
    assert describe(timing) == [{"at": "2026-05-04T11:30:00Z"}]
    assert timing_from_json(timing_to_json(timing)) == timing


def test_a_recurring_job_starts_after_its_acceptance() -> None:
    assert read({"cron": "0 12 * * *"}).first_due(NOW) == NOW + 24 * HOUR
    assert read({"every": "1h"}).first_due(NOW) == NOW + HOUR


# --- every ------------------------------------------------------------------------------------------------


def test_every_is_anchored_to_the_start_even_if_that_lies_in_the_past() -> None:
    timing = read({"every": "7m"}, start_at="2026-01-01T00:00:00.000001Z")
    due = timing.next_after(NOW)
    assert due is not None
    assert (due - datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)) % timedelta(minutes=7) == timedelta(0)
    assert NOW < due <= NOW + timedelta(minutes=7)


def test_every_without_a_start_is_first_due_one_interval_from_now_wherever_one_looks_from() -> None:
    timing = read({"every": "15m"})
    assert timing.next_after(NOW - HOUR) == NOW + timedelta(minutes=15)


def test_every_counts_real_time_through_a_clock_change() -> None:
    timing = read({"every": "24h"}, zone="Europe/Berlin", start_at="2026-10-24T12:00:00+02:00")
    assert [due.hour for due in timing.due_between(datetime(2026, 10, 24, tzinfo=UTC), NOW + 5000 * HOUR, 3)] == [
        10
    ] * 3


@given(
    st.timedeltas(min_value=TICK, max_value=timedelta(days=3660)),
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2150, 1, 1), timezones=st.just(UTC)),
)
def test_every_is_exact_to_the_microsecond_however_far_from_its_anchor(
    interval: timedelta, anchor: datetime, instant: datetime
) -> None:
    due = Timing((Every(interval, anchor),)).next_after(instant)
    assert due is not None
    assert due > instant
    assert due >= anchor
    assert (due - anchor) % interval == timedelta(0)
    assert due == anchor or due - interval <= instant


# --- properties -------------------------------------------------------------------------------------------

INSTANTS = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2060, 1, 1), timezones=st.just(UTC))
CRONS = ["* * * * *", "30 2 * * *", "*/15 1-3 * * *", "0 0 13 * FRI", "0 0 29 2 *", "15,45 30 2 L * *", "@hourly"]
RULES = [
    "FREQ=DAILY", "FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU", "FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=1,2", "FREQ=HOURLY;INTERVAL=5",
    "FREQ=MINUTELY;INTERVAL=50", "FREQ=YEARLY;BYWEEKNO=13,43;BYDAY=SU;BYHOUR=2", "FREQ=SECONDLY;INTERVAL=4000",
]  # fmt: skip
SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Now, INSTANTS),
    st.builds(At, INSTANTS, st.none() | INSTANTS),
    st.builds(CronSchedule, st.sampled_from(CRONS)),
    st.builds(CronSchedule, st.just("H H(0-5) * * *"), st.integers(0, 2**63 - 1)),
    st.builds(Every, st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400)), INSTANTS),
    st.builds(
        RRuleSchedule,
        st.sampled_from(RULES),
        st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)).map(lambda first: first.replace(microsecond=0)),
    ),
)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"]
TIMINGS = st.builds(
    Timing,
    st.lists(SCHEDULES, min_size=1, max_size=4).map(tuple),
    st.sampled_from(ZONES),
    st.none() | INSTANTS,
    st.none() | INSTANTS,
    st.sampled_from(list(Gap)),
    st.sampled_from(list(DstOverlap)),
)


@settings(max_examples=200, deadline=None)
@given(TIMINGS, INSTANTS)
def test_due_times_strictly_increase_and_stay_within_start_and_end(timing: Timing, after: datetime) -> None:
    due = timing.due_between(after, datetime(2100, 1, 1, tzinfo=UTC), 30)
    assert all(earlier < later for earlier, later in zip([after, *due], due, strict=False))
    assert all(timing.start_at is None or when >= timing.start_at for when in due)
    assert all(timing.end_at is None or when <= timing.end_at for when in due)


@settings(max_examples=200, deadline=None)
@given(TIMINGS, INSTANTS)
def test_the_union_is_the_earliest_of_its_parts(timing: Timing, after: datetime) -> None:
    parts = [
        Timing((schedule,), timing.zone, timing.start_at, timing.end_at, timing.gap, timing.overlap).next_after(after)
        for schedule in timing.schedules
    ]
    assert timing.next_after(after) == min((due for due in parts if due is not None), default=None)


@settings(max_examples=200, deadline=None)
@given(TIMINGS)
def test_the_stored_form_reads_back_as_the_same_timing(timing: Timing) -> None:
    stored = json.loads(json.dumps(timing_to_json(timing), sort_keys=True))
    assert timing_from_json(stored) == timing


# --- the user's form --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ({"cron": "0  9 * * mon"}, [{"cron": "0 9 * * MON"}]),
        ({"every": "90m"}, [{"every": "1h30m"}]),
        ({"every": "PT15M"}, [{"every": "15m"}]),
        ({"at": "2026-06-01T02:00:00+02:00"}, [{"at": "2026-06-01T00:00:00Z"}]),
        ("now", [{"now": True}]),
        ([{"cron": "@daily"}, {"every": "1h"}], [{"cron": "@daily"}, {"every": "1h"}]),
        ([{"cron": "@daily"}, {"cron": "@daily"}], [{"cron": "@daily"}]),
    ],
)
def test_schedules_are_given_back_in_the_shape_they_were_sent(schedule: object, shown: list[dict[str, Any]]) -> None:
    timing = read(schedule)
    assert describe(timing) == shown
    assert describe(read(describe(timing))) == shown


def test_the_seed_is_kept_only_where_it_matters() -> None:
    assert read({"cron": "H 3 * * *"}).schedules == (CronSchedule("H 3 * * *", 1),)
    assert read({"cron": "5 3 * * *"}).schedules == (CronSchedule("5 3 * * *", 0),)


@pytest.mark.parametrize(
    ("schedule", "pointer", "code"),
    [
        ({"cron": ""}, "/schedule/cron", "cron-empty"),
        ({"cron": "* * * *"}, "/schedule/cron", "cron-field-count"),
        ({"cron": "60 * * * *"}, "/schedule/cron", "cron-out-of-range"),
        ({"cron": "0 0 31 2 *"}, "/schedule/cron", "cron-never-fires"),
        ({"cron": "*/0 * * * *"}, "/schedule/cron", "step-zero"),
        ({"cron": "@reboot"}, "/schedule/cron", "unsupported-macro"),
        ({"cron": None}, "/schedule/cron", "wrong-type"),
        ({"cron": 5}, "/schedule/cron", "wrong-type"),
        ([{"cron": "@daily"}, {"at": "2026-02-30T00:00:00Z"}], "/schedule/1/at", "invalid-date-time"),
        ({"at": "2026-06-01T00:00:00"}, "/schedule/at", "offset-required"),
        ({"at": "10000-01-01T00:00:00Z"}, "/schedule/at", "time-out-of-range"),
        ({"at": "0001-01-01T00:00:00Z"}, "/schedule/at", "time-out-of-range"),
        ({"at": "2026-05-04T10:59:59Z"}, "/schedule/at", "run-at-in-past"),
        ({"at": 1_780_000_000_000}, "/schedule/at", "wrong-type"),
        ({"at": True}, "/schedule/at", "wrong-type"),
        ({"every": "5 minutes"}, "/schedule/every", "invalid-duration"),
        ({"every": "PT5X"}, "/schedule/every", "invalid-duration"),
        ({"every": "P1M"}, "/schedule/every", "invalid-duration"),
        ({"every": "999ms"}, "/schedule/every", "invalid-duration"),
        ({"every": "4000d"}, "/schedule/every", "invalid-duration"),
        ({"every": 300}, "/schedule/every", "wrong-type"),
        ({"now": False}, "/schedule/now", "wrong-type"),
        ({"now": 1}, "/schedule/now", "wrong-type"),
        ({"crn": "@daily"}, "/schedule/crn", "unknown-field"),
        ({"run_at": "2026-06-01T00:00:00Z"}, "/schedule/run_at", "unknown-field"),
        ({"__proto__": {}}, "/schedule/__proto__", "unknown-field"),
        ({"a/b~c": 1}, "/schedule/a~1b~0c", "unknown-field"),
        ({"cron": "@daily", "x": 1}, "/schedule/x", "unknown-field"),
        ({"cron": "@daily", "at": "2026-06-01T00:00:00Z"}, "/schedule", "conflicting-schedule"),
        ({"now": True, "cron": "@daily"}, "/schedule", "conflicting-schedule"),
        ([{"now": True}, {"cron": "@daily"}], "/schedule", "conflicting-schedule"),
        (["now", "now"], "/schedule", "conflicting-schedule"),
        ([], "/schedule", "schedule-required"),
        ({}, "/schedule", "schedule-required"),
        ([{}], "/schedule/0", "schedule-required"),
        ("@daily", "/schedule", "wrong-type"),
        (5, "/schedule", "wrong-type"),
        (False, "/schedule", "wrong-type"),
        ([["now"]], "/schedule/0", "wrong-type"),
        ([None], "/schedule/0", "wrong-type"),
        ([{"every": "1h"}] * 51, "/schedule", "too-many-schedules"),
    ],
)
def test_a_wrong_schedule_is_refused_where_it_is_wrong(schedule: object, pointer: str, code: str) -> None:
    assert codes(faults_of(schedule)) == [(pointer, code)]


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"zone": "Europe/Berln"}, "/zone", "unknown-timezone"),
        ({"zone": "UTC+99"}, "/zone", "unknown-timezone"),
        ({"zone": "../../x"}, "/zone", "unknown-timezone"),
        ({"zone": ""}, "/zone", "unknown-timezone"),
        ({"zone": 2}, "/zone", "wrong-type"),
        ({"start_at": "2026-06-01"}, "/start_at", "invalid-date-time"),
        ({"start_at": "2026-06-01T00:00:00"}, "/start_at", "offset-required"),
        ({"end_at": 1_780_000_000}, "/end_at", "wrong-type"),
        ({"end_at": "2026-05-04T11:00:00Z"}, "/end_at", "schedule-never-fires"),
        ({"end_at": "2026-05-04T13:00:00Z"}, "/end_at", "schedule-never-fires"),
        ({"start_at": "2026-06-02T00:00:00Z", "end_at": "2026-06-01T00:00:00Z"}, "/end_at", "empty-window"),
        ({"gap": "later"}, "/dst_gap", "invalid-value"),
        ({"overlap": "twice"}, "/dst_overlap", "invalid-value"),
        ({"overlap": 2}, "/dst_overlap", "invalid-value"),
    ],
)
def test_a_wrong_field_around_the_schedule_is_refused_where_it_is_wrong(
    fields: dict[str, Any], pointer: str, code: str
) -> None:
    assert codes(faults_of({"cron": "0 0 * * *"}, **fields)) == [(pointer, code)]


def test_every_fault_is_told_at_once() -> None:
    faults = faults_of(
        [{"cron": "60 * * * *"}, {"every": "5"}, {"at": 5}, {"when": 1}],
        zone="Mars/Olympus",
        start_at="never",
        end_at="2026-06-01T00:00:00",
        gap="no",
        overlap="no",
    )
    assert codes(faults) == [
        ("/zone", "unknown-timezone"),
        ("/start_at", "invalid-date-time"),
        ("/end_at", "offset-required"),
        ("/schedule/0/cron", "cron-out-of-range"),
        ("/schedule/1/every", "invalid-duration"),
        ("/schedule/2/at", "wrong-type"),
        ("/schedule/3/when", "unknown-field"),
        ("/dst_gap", "invalid-value"),
        ("/dst_overlap", "invalid-value"),
    ]


def test_a_schedule_that_only_names_missing_local_times_never_fires() -> None:
    faults = faults_of({"cron": "30 2 ? 3 SUN#2"}, zone="America/New_York", gap="skip")
    assert codes(faults) == [("/schedule", "schedule-never-fires")]


def test_an_at_without_offset_in_the_repeated_hour_is_answered_with_both_instants() -> None:
    [fault] = faults_of({"at": "2026-10-25T02:30:00"}, zone="Europe/Berlin")
    assert fault.code == "ambiguous-local-time"
    assert fault.allowed == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]


def test_an_at_without_offset_in_the_missing_hour_does_not_exist() -> None:
    [fault] = faults_of({"at": "2027-03-28T02:30:00"}, zone="Europe/Berlin")
    assert fault.code == "invalid-date-time"


def test_an_at_without_offset_is_answered_with_the_offset_of_the_zone() -> None:
    [fault] = faults_of({"at": "2026-07-01T09:00:00"}, zone="Europe/Berlin")
    assert fault.code == "offset-required"
    assert "2026-07-01T09:00:00+02:00" in (fault.hint or "")


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ({"at": 1_780_000_000_000}, "expected an RFC 3339 string"),
        ({"at": "2020-01-01T00:00:00Z"}, "2026-05-04T12:00:00Z"),
        ({"every": "500ms"}, "at least 1s"),
        ({"every": "P1M"}, "days"),
        ({"crn": "@daily"}, "did you mean cron"),
        ({"interval": "5m"}, "did you mean every"),
        ("0 9 * * *", '{"cron": "0 9 * * *"}'),
        ({"cron": "CRON_TZ=UTC 0 9 * * *"}, "zone"),
    ],
)
def test_a_refusal_says_what_would_be_right(schedule: object, says: str) -> None:
    [fault] = faults_of(schedule)
    assert says in f"{fault.message} {fault.hint}"


def test_a_mistyped_zone_comes_with_suggestions() -> None:
    [fault] = faults_of({"cron": "@daily"}, zone="Europe/Berln")
    assert list(fault.allowed or [])[:1] == ["Europe/Berlin"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["at", "cron", "every", "now", "x"]) | st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(JSON, JSON, JSON, JSON, JSON, JSON)
def test_any_json_is_read_or_refused_and_nothing_else(
    schedule: Any, zone: Any, start_at: Any, end_at: Any, gap: Any, overlap: Any
) -> None:
    with suppress(InvalidFields):
        assert parse_timing(schedule, zone, start_at, end_at, gap, overlap, now=NOW, seed=1).first_due(NOW) is not None
