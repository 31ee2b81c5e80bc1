"""Calendars: which times they leave out, and what that does to the due times of a job."""

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hourhand.model.calendar import Blackout, CalendarRule, calendar_from_json, calendar_to_json
from hourhand.model.calendar_form import read_calendar
from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.errors import InvalidFields
from hourhand.model.exclusion import TimingAround, TooRare, around, nothing_is_left, plan_around
from hourhand.model.schedule import Timing
from hourhand.model.schedule_form import parse_timing
from hourhand.model.states import Reason
from hourhand.model.steps import Steps

BERLIN = ZoneInfo("Europe/Berlin")
THURSDAY = datetime(2026, 12, 24, tzinfo=BERLIN).astimezone(UTC)
HORIZON = timedelta(seconds=2)
WEEKEND = [{"day": "SAT-SUN"}]


def timing_of(schedule: Any, rule: CalendarRule, on_excluded: str = "skip", **more: Any) -> TimingAround:
    more = {"zone": "Europe/Berlin", **more}
    timing = parse_timing(
        schedule, now=THURSDAY - timedelta(seconds=1), seed=0, calendars=["x"], on_excluded=on_excluded, **more
    )
    found = around(timing, {"x": rule})
    assert isinstance(found, TimingAround)
    return found


def local(times: list[datetime]) -> list[str]:
    return [time.astimezone(BERLIN).strftime("%a %d %H:%M") for time in times]


def due(timing: Timing, count: int) -> list[str]:
    return local(timing.due_between(THURSDAY, THURSDAY + timedelta(days=60), count))


# --- which times ------------------------------------------------------------------------------------------


def test_dates_weekly_windows_and_blackouts_leave_due_times_out() -> None:
    rule = read_calendar(
        dates=["12-25", "2026-12-29"],
        weekly=WEEKEND,
        blackouts=[{"from": "2026-12-30T00:00:00Z", "to": "2026-12-31T00:00:00Z"}],
    )
    assert due(timing_of({"cron": "0 9 * * *"}, rule), 4) == [
        "Thu 24 09:00",
        "Mon 28 09:00",
        "Thu 31 09:00",
        "Fri 01 09:00",
    ]


def test_a_window_past_midnight_reaches_into_the_next_day() -> None:
    rule = read_calendar(weekly=[{"day": "SUN", "from": "22:00", "to": "06:00"}])
    timing = timing_of({"cron": "0 */4 * * *"}, rule, zone="UTC")
    sunday = datetime(2026, 12, 27, 16, tzinfo=UTC)
    found = timing.due_between(sunday, sunday + timedelta(hours=20), 10)
    assert [each.hour for each in found] == [20, 8, 12]


def test_the_end_of_a_window_and_of_a_blackout_are_allowed_again() -> None:
    rule = read_calendar(
        weekly=[{"day": "THU", "from": "09:00", "to": "10:00"}],
        blackouts=[{"from": "2026-12-25T08:00:00Z", "to": "2026-12-25T09:00:00Z"}],
    )
    assert due(timing_of({"cron": "0 9,10 * * *"}, rule), 3) == ["Thu 24 10:00", "Fri 25 10:00", "Sat 26 09:00"]


def test_a_calendar_with_a_zone_goes_by_its_own_clock() -> None:
    rule = read_calendar(dates=["2026-12-25"], zone="Asia/Tokyo")
    timing = timing_of({"cron": "0 */6 * * *"}, rule, zone="UTC")
    found = timing.due_between(THURSDAY, THURSDAY + timedelta(days=2), 20)
    assert datetime(2026, 12, 24, 18, tzinfo=UTC) not in found
    assert datetime(2026, 12, 25, 18, tzinfo=UTC) in found


def test_an_excluded_day_is_as_long_as_the_clock_makes_it() -> None:
    for day, hours in (((2026, 10, 25), 25), ((2026, 3, 29), 23)):
        timing = timing_of({"cron": "0 * * * *"}, read_calendar(dates=[date(*day).isoformat()]))
        midnight = datetime(*day, tzinfo=BERLIN).astimezone(UTC)
        assert timing.allowed_from(midnight) == midnight + timedelta(hours=hours)
        assert timing.stretch_begin(midnight + timedelta(hours=12)) == midnight


def test_what_is_left_out_is_what_a_look_at_every_minute_says() -> None:
    """Against a plain look at the local clock of each minute, over a clock change, for random calendars."""
    chance = Random(3)
    start = datetime(2026, 10, 23, 22, tzinfo=UTC)
    minutes = [start + timedelta(minutes=15 * step) for step in range(4 * 24 * 4)]
    names = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
    for _ in range(20):
        day = f"2026-10-{chance.randint(23, 28)}"
        window = (chance.randrange(7), chance.randrange(24), chance.randrange(24))
        weekly = [{"day": names[window[0]], "from": f"{window[1]:02d}:30", "to": f"{window[2]:02d}:15"}]
        timing = timing_of({"cron": "*/15 * * * *"}, read_calendar(dates=[day], weekly=weekly))

        def left_out(instant: datetime, day: str = day, window: tuple[int, int, int] = window) -> bool:
            here = instant.astimezone(BERLIN)
            begin, end = window[1] * 60 + 30, window[2] * 60 + 15
            minute = here.hour * 60 + here.minute
            if end > begin:
                inside = here.weekday() == window[0] and begin <= minute < end
            else:
                inside = (here.weekday() == window[0] and minute >= begin) or (
                    here.weekday() == (window[0] + 1) % 7 and minute < end
                )
            return inside or here.date() == date.fromisoformat(day)

        expected = [instant for instant in minutes if not left_out(instant)]
        assert timing.due_between(start - timedelta(seconds=1), minutes[-1], 1000) == expected
        for instant in minutes:
            if left_out(instant):
                begin = timing.stretch_begin(instant)
                allowed = timing.allowed_from(instant)
                assert begin <= instant < allowed
                assert not timing.is_excluded(begin - timedelta(microseconds=1))
                assert not timing.is_excluded(allowed)


# --- next allowed -----------------------------------------------------------------------------------------


def test_with_next_allowed_the_job_falls_due_once_when_it_may_again() -> None:
    rule = read_calendar(dates=["12-25"], weekly=WEEKEND)
    timing = timing_of({"cron": "0 9 * * *"}, rule, "next_allowed")
    assert due(timing, 4) == ["Thu 24 09:00", "Mon 28 00:00", "Mon 28 09:00", "Tue 29 09:00"]


def test_a_stretch_without_a_due_time_adds_nothing() -> None:
    timing = timing_of({"cron": "0 9 * * MON-FRI"}, read_calendar(weekly=WEEKEND), "next_allowed")
    assert due(timing, 3) == ["Thu 24 09:00", "Fri 25 09:00", "Mon 28 09:00"]


def test_the_next_allowed_time_that_is_due_anyway_is_due_once() -> None:
    timing = timing_of({"cron": "0 0,9 * * *"}, read_calendar(weekly=WEEKEND), "next_allowed")
    assert due(timing, 5) == ["Thu 24 09:00", "Fri 25 00:00", "Fri 25 09:00", "Mon 28 00:00", "Mon 28 09:00"]


def test_the_next_allowed_time_after_the_end_is_not_run() -> None:
    timing = timing_of(
        {"cron": "0 9 * * *"}, read_calendar(weekly=WEEKEND), "next_allowed", end_at="2026-12-27T12:00:00Z"
    )
    assert due(timing, 5) == ["Thu 24 09:00", "Fri 25 09:00"]


@pytest.mark.parametrize("on_excluded", ["skip", "next_allowed"])
def test_a_calendar_that_leaves_nothing_ends_the_search(on_excluded: str) -> None:
    always = read_calendar(weekly=[{"day": "MON-SUN"}])
    assert timing_of({"cron": "0 9 * * *"}, always, on_excluded).next_after(THURSDAY) is None
    holiday = read_calendar(dates=["12-25"])
    christmas = timing_of({"cron": "0 9 25 12 *"}, holiday, on_excluded)
    assert (christmas.next_after(THURSDAY) is None) is (on_excluded == "skip")


# --- planning ---------------------------------------------------------------------------------------------


def test_the_cursor_visits_what_is_left_out_and_tells_it_as_one_stretch() -> None:
    timing = timing_of({"cron": "0 9 * * *"}, read_calendar(dates=["12-25"], weekly=WEEKEND))
    cursor = datetime(2026, 12, 24, 8, tzinfo=UTC)
    fires, told = [], []
    for _ in range(5):
        planned = plan_around(timing, cursor, cursor, HORIZON, CatchUpPolicy())
        fires += planned.fires
        told += planned.missed
        assert planned.next_due is not None
        cursor = planned.next_due
    assert local(fires) == ["Thu 24 09:00", "Mon 28 09:00"]
    assert [(range_.first.day, range_.count, range_.reason) for range_ in told] == [
        (25, 1, Reason.EXCLUDED), (26, 1, Reason.EXCLUDED), (27, 1, Reason.EXCLUDED),
    ]  # fmt: skip
    assert [range_.next_due for range_ in told[:2]] == [range_.first for range_ in told[1:]]
    assert {range_.detail for range_ in told} == {"the calendar x leaves it out"}


def test_nothing_is_told_of_due_times_that_have_not_passed() -> None:
    timing = timing_of({"cron": "*/5 * * * *"}, read_calendar(dates=["12-24"]))
    planned = plan_around(timing, THURSDAY, THURSDAY, HORIZON, CatchUpPolicy())
    assert [range_.last for range_ in planned.missed] == [THURSDAY]
    assert planned.next_due == THURSDAY + timedelta(minutes=5)


def test_after_a_silence_catch_up_sees_only_what_was_allowed() -> None:
    rule = CalendarRule(blackouts=(Blackout(THURSDAY + timedelta(hours=3), THURSDAY + timedelta(hours=9)),))
    timing = timing_of({"cron": "0 * * * *"}, rule)
    now = THURSDAY + timedelta(hours=8, minutes=30)
    policy = CatchUpPolicy(CatchUp.LAST, timedelta(hours=24))
    planned = plan_around(timing, THURSDAY + timedelta(hours=1), now, HORIZON, policy)
    assert planned.fires == [THURSDAY + timedelta(hours=2)]
    assert [(range_.count, range_.reason) for range_ in planned.missed] == [
        (1, Reason.CATCHUP_LAST), (6, Reason.EXCLUDED),
    ]  # fmt: skip
    assert planned.next_due == THURSDAY + timedelta(hours=9)


def test_every_due_time_of_a_long_silence_is_told_exactly_once() -> None:
    timing = timing_of({"cron": "* * * * *"}, read_calendar(weekly=WEEKEND))
    now = THURSDAY + timedelta(days=6)
    cursor: datetime | None = THURSDAY
    fires, told = 0, 0
    while cursor is not None and cursor <= now:
        planned = plan_around(timing, cursor, now, HORIZON, CatchUpPolicy())
        fires += len(planned.fires)
        told += sum(range_.count for range_ in planned.missed)
        cursor = planned.next_due
    assert fires + told == 6 * 24 * 60 + 1


@pytest.mark.parametrize("on_excluded", ["skip", "next_allowed"])
def test_whenever_planners_come_each_due_time_is_run_or_told_exactly_once(on_excluded: str) -> None:
    chance = Random(11)
    rule = read_calendar(
        dates=["12-25"],
        weekly=[{"day": "THU", "from": "10:00", "to": "11:30"}, {"day": "SAT", "from": "22:00", "to": "02:00"}],
    )
    timing = timing_of([{"cron": "*/7 * * * *"}, {"every": "13m"}], rule, on_excluded)
    end = THURSDAY + timedelta(days=4)
    raw = set(Timing(timing.schedules, timing.zone).due_between(THURSDAY, end, 10_000))
    cursor = timing.next_event(THURSDAY)
    fires: list[datetime] = []
    told = 0
    now = THURSDAY
    while now <= end + timedelta(minutes=20):
        if cursor is not None and cursor <= now + HORIZON:
            planned = plan_around(timing, cursor, now, HORIZON, CatchUpPolicy(CatchUp.ALL, timedelta(hours=1), 1000))
            fires += planned.fires
            told += sum(range_.count for range_ in planned.missed)
            cursor = planned.next_due
        now += timedelta(seconds=chance.choice([1, 5, 40, 900]))
    fires = [due for due in fires if due <= end]
    allowed = {due for due in raw if not timing.is_excluded(due)}
    shifted = {timing.allowed_from(due) for due in raw - allowed}
    expected = allowed | (shifted if on_excluded == "next_allowed" else set())
    assert sorted(fires) == fires == sorted({due for due in expected if due is not None and due <= end})
    assert told == len(raw - allowed)


def test_a_cursor_that_waits_for_a_calendar_which_was_changed_waits_on_and_is_not_told_twice() -> None:
    monday = datetime(2026, 12, 28, tzinfo=BERLIN).astimezone(UTC)
    longer = read_calendar(dates=["12-25", "12-28"], weekly=WEEKEND)
    timing = timing_of({"cron": "0 9 25 * *"}, longer, "next_allowed")
    planned = plan_around(timing, monday, monday, HORIZON, CatchUpPolicy())
    assert (planned.fires, planned.missed) == ([], [])
    assert planned.next_due == monday + timedelta(days=1)


def test_a_cursor_that_waits_is_set_back_when_the_calendar_allows_an_earlier_time() -> None:
    monday = datetime(2026, 12, 28, tzinfo=BERLIN).astimezone(UTC)
    now = monday - timedelta(days=2)
    timing = timing_of({"cron": "0 9 25 * *"}, read_calendar(dates=["12-25"]), "next_allowed")
    assert timing.waits_at(monday, now) == now
    assert timing.waits_at(datetime(2027, 1, 25, 8, tzinfo=UTC), now) is None


# --- reading ----------------------------------------------------------------------------------------------


def test_a_calendar_is_stored_in_the_form_in_which_it_is_written() -> None:
    rule = read_calendar(
        "Europe/Berlin",
        ["12-25", "2026-04-03"],
        [{"day": "SAT-SUN"}, {"day": "MON,WED", "from": "22:00", "to": "06:00"}],
        [{"from": "2026-12-20T18:00:00Z", "to": "2027-01-02T08:00:00+01:00", "reason": "freeze"}],
        "all that we leave out",
    )
    stored = calendar_to_json(rule)
    assert calendar_from_json(stored) == rule
    assert read_calendar(**stored) == rule
    assert stored["weekly"][2] == {"day": "MON", "from": "22:00", "to": "06:00"}


def test_all_faults_of_a_calendar_are_told_at_once() -> None:
    with pytest.raises(InvalidFields) as caught:
        read_calendar(
            "Europe/Berln",
            ["2026-02-30", "13-01", "tomorrow", "02-29"],
            [{"day": "FUNDAY"}, {"day": "MON", "from": "25:00", "to": "6"}],
            [{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, {"from": "2026-01-01T00:00:00"}],
        )
    assert {fault.pointer: fault.code for fault in caught.value.faults} == {
        "/zone": "unknown-timezone",
        "/dates/0": "invalid-date",
        "/dates/1": "invalid-date",
        "/dates/2": "invalid-date",
        "/weekly/0/day": "unknown-name",
        "/weekly/1/from": "invalid-time",
        "/weekly/1/to": "invalid-time",
        "/blackouts/0/to": "empty-window",
        "/blackouts/1/from": "offset-required",
        "/blackouts/1/to": "required",
    }


@pytest.mark.parametrize(
    ("more", "pointer", "code"),
    [
        ({}, "", "calendar-empty"),
        ({"dates": ["12-25"] * 5001}, "/dates", "too-many-entries"),
        ({"weekly": [{"day": "MON"}] * 201}, "/weekly", "too-many-entries"),
        ({"dates": ["12-25"], "description": "x" * 1001}, "/description", "invalid-text"),
        ({"weekly": [{"day": "MON", "from": "24:00"}]}, "/weekly/0/from", "invalid-time"),
    ],
)
def test_calendars_have_bounds(more: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        read_calendar(**more)
    assert [(fault.pointer, fault.code) for fault in caught.value.faults] == [(pointer, code)]


# --- what is rare, and what never comes -------------------------------------------------------------------

BUT_LEAP_DAYS = [f"{month:02d}-{day:02d}" for month in range(1, 13) for day in range(1, 32) if (month, day) != (2, 29)]
EXISTING = [text for text in BUT_LEAP_DAYS if text not in ("02-30", "02-31", "04-31", "06-31", "09-31", "11-31")]
ALMOST_ALL_DAY = [{"day": "MON-SUN", "from": "00:01", "to": "00:00"}]


@pytest.mark.parametrize("on_excluded", ["skip", "next_allowed"])
def test_a_leap_day_on_a_sunday_is_found_also_where_the_next_one_is_decades_away(on_excluded: str) -> None:
    timing = timing_of({"cron": "0 9 * * *"}, read_calendar(dates=EXISTING, weekly=[{"day": "MON-SAT"}]), on_excluded)
    found = timing.find_after(datetime(2033, 1, 1, tzinfo=UTC))

    assert found is not None
    assert found.astimezone(BERLIN).date() == date(2060, 2, 29)


def test_a_schedule_of_which_nothing_is_left_for_good_never_falls_due() -> None:
    timing = timing_of(
        {"cron": "0 9 * * *"}, read_calendar(weekly=[{"day": "MON-SUN", "from": "08:00", "to": "10:00"}])
    )

    assert timing.find_after(THURSDAY) is None


def test_what_falls_due_beyond_what_is_looked_at_is_called_too_rare_and_not_never() -> None:
    # It creeps by a second a day, and comes to the one minute that is left in 2115.
    slow = timing_of(
        {"every": "86399s", "anchor": "2026-12-24T09:00:00Z"}, read_calendar(weekly=ALMOST_ALL_DAY), zone="UTC"
    )
    with pytest.raises(TooRare, match=r"leave out every due time up to 20[0-9-]{8}, and no further was looked"):
        slow.find_after(THURSDAY)
    with pytest.raises(TooRare):
        nothing_is_left(slow.without_calendars, {"x": slow.rules[0]}, THURSDAY)


def test_a_calendar_with_dates_far_ahead_proves_nothing_about_the_time_before_them() -> None:
    rule = read_calendar(dates=["2070-01-01"], weekly=[{"day": "MON-SUN", "from": "08:00", "to": "10:00"}])
    with pytest.raises(TooRare):
        timing_of({"cron": "0 9 * * *"}, rule).find_after(THURSDAY)


def test_what_waits_for_a_time_after_the_end_of_its_schedule_has_no_next_run() -> None:
    rule = read_calendar(blackouts=[{"from": "2026-12-24T00:00:00Z", "to": "2026-12-26T00:00:00Z"}])
    timing = timing_of({"cron": "0 9 * * *"}, rule, "next_allowed", end_at="2026-12-25T12:00:00Z")

    assert timing.next_run(datetime(2026, 12, 24, 8, tzinfo=UTC)) is None


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "America/New_York"])
def test_days_of_every_year_in_a_row_are_left_out_as_each_of_them_would_be(zone: str) -> None:
    chance = Random(zone)
    days = [date(2028, 1, 1) + timedelta(days=place) for place in range(366)]
    chosen = {day for begin in chance.sample(days, 6) for day in days if begin <= day < begin + timedelta(days=30)}
    together = read_calendar(dates=sorted(f"{day:%m-%d}" for day in chosen))
    for _ in range(2000):
        instant = datetime(2005, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(60 * 24 * 366 * 30))
        local = instant.astimezone(ZoneInfo(zone))
        alone = read_calendar(dates=[f"{local:%m-%d}"])
        left_out = (local.month, local.day) in {(day.month, day.day) for day in chosen}
        span, one = together.covering(instant, zone), alone.covering(instant, zone)
        assert (span is not None) == left_out
        if span is not None:
            assert one is not None
            assert span[0] <= instant < span[1]
            last = (span[1] - timedelta(microseconds=1)).astimezone(ZoneInfo(zone))
            assert all(
                (edge.month, edge.day) in {(day.month, day.day) for day in chosen}
                for edge in (span[0].astimezone(ZoneInfo(zone)), last)
            )


def test_a_year_of_days_that_are_left_out_is_passed_over_in_a_few_steps() -> None:
    timing = timing_of({"cron": "0 9 * * *"}, read_calendar(dates=EXISTING, weekly=[{"day": "MON-SAT"}]))
    steps = Steps(3000)
    found = timing.find_after(datetime(2033, 1, 1, tzinfo=UTC), steps)
    assert found is not None
    assert found.astimezone(BERLIN).date() == date(2060, 2, 29)
    assert steps.left > 2000
