"""Whatever the shape of a schedule: how many late runs it gets, which they are, and what finding them costs."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model import calendar, schedule
from hourhand.model.calendar import Blackout, CalendarRule
from hourhand.model.calendar_form import read_calendar
from hourhand.model.catchup import GRACE, CatchUp, CatchUpPolicy, PauseSpan, Plan
from hourhand.model.counting import newest_before
from hourhand.model.exclusion import TimingAround, around, nothing_is_left
from hourhand.model.planning import plan_job
from hourhand.model.schedule import At, CronSchedule, Every, OnExcluded, RRuleSchedule, Timing
from hourhand.model.states import Reason

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
HORIZON = timedelta(seconds=2)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)
FIRST = datetime(2029, 12, 1)  # noqa: DTZ001 - a local time


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def left_out(rule: CalendarRule, *schedules: Any, on_excluded: OnExcluded = OnExcluded.SKIP, **more: Any) -> Timing:
    return around(Timing(schedules, calendars=("x",), on_excluded=on_excluded, **more), {"x": rule})


SECOND = CronSchedule("* * * * * *")
LUNCH = CalendarRule(blackouts=(Blackout(NOW - seconds(1200), NOW - seconds(1000)),))
ELSEWHERE = read_calendar(dates=["2031-01-01"])
SHAPES = {
    "one cron": Timing((SECOND,)),
    "an interval": Timing((Every(seconds(1), NOW - timedelta(days=9)),)),
    "two crons": Timing((SECOND, CronSchedule("*/7 * * * *"))),
    "a rule": Timing((RRuleSchedule("FREQ=SECONDLY", FIRST),)),
    "a calendar that is never met": left_out(ELSEWHERE, SECOND),
    "a calendar": left_out(LUNCH, SECOND),
    "a calendar and the next allowed time": left_out(LUNCH, SECOND, on_excluded=OnExcluded.NEXT_ALLOWED),
    "two crons and a calendar": left_out(LUNCH, SECOND, CronSchedule("*/7 * * * *")),
    "by a clock": Timing((CronSchedule("*/3 * * * * *"),), "Europe/Berlin"),
    "seldom and often": Timing((CronSchedule("* 11 * * * *"), CronSchedule("0 0 1 * *"))),
}


def all_due(timing: Timing) -> Timing:
    return timing.without_calendars if isinstance(timing, TimingAround) else timing


def plans(
    timing: Timing, away: timedelta, policy: CatchUpPolicy, pauses: Sequence[PauseSpan] = ()
) -> tuple[list[datetime], list[Plan]]:
    """What runs, plan after plan, until the horizon is reached."""
    cursor = all_due(timing).next_after(NOW - away)
    made: list[Plan] = []
    while cursor is not None and cursor <= NOW + HORIZON:
        assert len(made) < 100
        planned = plan_job(timing, cursor, NOW, HORIZON, policy, pauses)
        assert planned.next_due is None or planned.next_due > cursor
        made.append(planned)
        cursor = planned.next_due
    return [due for planned in made for due in planned.fires], made


@pytest.mark.parametrize("shape", SHAPES)
def test_all_with_a_cap_runs_exactly_the_newest_whether_they_can_be_counted_or_not(shape: str) -> None:
    timing = SHAPES[shape]
    fires, made = plans(timing, seconds(2500), CatchUpPolicy(CatchUp.ALL, HOUR, 1000))
    late = [due for due in fires if due < NOW - GRACE]
    assert late == timing.due_between(NOW - seconds(2500), NOW - GRACE - TICK, 10_000)[-1000:]
    told = sum(gap.count for planned in made for gap in planned.missed)
    raw = all_due(timing).due_between(NOW - seconds(2500), NOW + HORIZON, 10_000)
    assert told + len(set(fires) & set(raw)) == len(raw)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(20, 6000).map(seconds),
    st.integers(0, 5000).map(seconds),
    st.integers(1, 1000),
    st.sampled_from(CatchUp),
)
def test_late_runs_are_the_newest_of_the_window_for_every_shape(
    shape: str, away: timedelta, window: timedelta, cap: int, mode: CatchUp
) -> None:
    timing = SHAPES[shape]
    fires, _ = plans(timing, away, CatchUpPolicy(mode, window, cap))
    is_one_fresh = bool(timing.due_between(NOW - GRACE - TICK, NOW, 1))
    keep = {CatchUp.ALL: cap, CatchUp.LAST: 0 if is_one_fresh else 1, CatchUp.NONE: 0}[mode]
    inside = timing.due_between(max(NOW - away, NOW - window - TICK), NOW - GRACE - TICK, 10_000)
    assert [due for due in fires if due < NOW - GRACE] == (inside[-keep:] if keep else [])


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 4000), st.integers(0, 4000), st.integers(1, 300))
def test_the_newest_found_from_the_end_are_those_found_by_walking(shape: str, ago: int, length: int, most: int) -> None:
    timing, since = SHAPES[shape], NOW - seconds(ago)
    before = since + seconds(length)
    walked = timing.due_between(since - TICK, before - TICK, 10_000)
    assert newest_before(timing, since, before, most) == walked[-most:]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cap_is_for_all_parts_between_pauses_together(shape: str) -> None:
    timing = SHAPES[shape]
    pauses = [PauseSpan(NOW - seconds(600 * back), NOW - seconds(600 * back - 60)) for back in range(1, 6)]
    fires, _ = plans(timing, HOUR, CatchUpPolicy(CatchUp.ALL, HOUR, 5), pauses)
    inside = timing.due_between(NOW - HOUR, NOW - GRACE - TICK, 10_000)
    held = [due for due in inside if any(span.covers(due) for span in pauses)]
    assert [due for due in fires if due < NOW - GRACE] == [due for due in inside if due not in held][-5:]


def test_the_cap_is_also_for_pauses_that_are_caught_up_and_what_lies_between_together() -> None:
    pauses = [
        PauseSpan(NOW - seconds(600 * back), NOW - seconds(600 * back - 300), CatchUp.ALL) for back in range(1, 6)
    ]
    fires, _ = plans(SHAPES["one cron"], HOUR, CatchUpPolicy(CatchUp.ALL, HOUR, 700), pauses)
    assert len([due for due in fires if due < NOW - GRACE]) == 700


# --- asked for by its instant -----------------------------------------------------------------------------


def test_an_at_beside_a_cron_runs_however_late_and_is_in_no_range_of_what_was_missed() -> None:
    asked = NOW - timedelta(hours=2, minutes=7)
    timing = Timing((CronSchedule("0 * * * *"), At(asked)))
    fires, made = plans(timing, timedelta(hours=5, minutes=30), CatchUpPolicy(CatchUp.NONE, HOUR))
    assert fires == [asked, NOW]
    gaps = [(gap.first, gap.last, gap.count, gap.next_due) for planned in made for gap in planned.missed]
    assert gaps == [
        (NOW - 5 * HOUR, NOW - 3 * HOUR, 3, asked),
        (NOW - 2 * HOUR, NOW - 2 * HOUR, 1, NOW - HOUR),
        (NOW - HOUR, NOW - HOUR, 1, NOW),
    ]


def test_an_at_that_fell_into_a_pause_runs_when_it_is_over_and_takes_no_place_of_others() -> None:
    asked = NOW - seconds(400)
    span = PauseSpan(NOW - seconds(500), NOW - seconds(100), CatchUp.NONE, "by ada")
    fires, made = plans(Timing((CronSchedule("0 0 1 1 *"), At(asked))), HOUR, CatchUpPolicy(), [span])
    assert (fires, [gap for planned in made for gap in planned.missed]) == ([asked], [])
    minutes = Timing((CronSchedule("* * * * *"), At(asked)))
    caught_up = PauseSpan(span.start, span.end, CatchUp.LAST, "by ada")
    fires, _ = plans(minutes, seconds(490), CatchUpPolicy(), [caught_up])
    assert fires == [asked, NOW - seconds(120), NOW]


def test_an_at_in_a_pause_that_goes_on_waits() -> None:
    asked = NOW - seconds(400)
    span = PauseSpan(NOW - seconds(500), None)
    timing = Timing((CronSchedule("0 0 1 1 *"), At(asked)))
    assert plan_job(timing, asked, NOW, HORIZON, CatchUpPolicy(), [span]) == Plan([], [], asked)


# --- what it costs ----------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts due times and spans of calendars that are looked for."""
    count = [0]
    covering, cron_next = CalendarRule.covering, CronSchedule.next_after

    def counting_covering(self: CalendarRule, *args: Any) -> Any:
        count[0] += 1
        return covering(self, *args)

    def counting_next(self: CronSchedule, *args: Any) -> Any:
        count[0] += 1
        return cron_next(self, *args)

    monkeypatch.setattr(calendar.CalendarRule, "covering", counting_covering)
    monkeypatch.setattr(schedule.CronSchedule, "next_after", counting_next)
    return count


EVERYTHING = {"x": read_calendar(weekly=[{"day": "MON-SUN"}])}
TWO_ZONES = {
    "x": read_calendar(zone="Asia/Tokyo", weekly=[{"day": "MON-SAT"}]),
    "y": read_calendar(weekly=[{"day": "FRI-MON"}]),
}
HALVES = {"x": read_calendar(weekly=[{"day": "SAT-SUN"}]), "y": read_calendar(weekly=[{"day": "MON-FRI"}])}
NIGHTS = {"x": read_calendar(weekly=[{"day": "MON-SUN", "from": "22:00", "to": "06:00"}])}
DAYS = {"x": CalendarRule(dates=tuple(date(2029, 1, 1) + timedelta(days=place) for place in range(3000)))}


WORKDAYS = tuple(day for place in range(3500) if (day := date(2030, 1, 8) + timedelta(days=place)).weekday() < 5)
BY_TURNS = {"x": CalendarRule(dates=WORKDAYS), "y": HALVES["x"]}


@pytest.mark.parametrize("rules", [EVERYTHING, TWO_ZONES, HALVES, NIGHTS, DAYS, BY_TURNS])
@pytest.mark.parametrize("on_excluded", OnExcluded)
@pytest.mark.parametrize("crons", [["* * * * *"], ["* * * * * *", "*/7 * * * *"], ["0 3 1 1 *"]])
def test_one_plan_takes_a_bounded_number_of_steps_whatever_calendars_leave_out(
    steps: list[int], rules: dict[str, CalendarRule], on_excluded: OnExcluded, crons: list[str]
) -> None:
    schedules = tuple(CronSchedule(cron) for cron in crons)
    timing = around(Timing(schedules, "Europe/Berlin", calendars=tuple(rules), on_excluded=on_excluded), rules)
    for away in (timedelta(0), timedelta(days=1), timedelta(days=60)):
        cursor = all_due(timing).next_after(NOW - away)
        for _ in range(5):
            if cursor is None or cursor > NOW + HORIZON:
                break
            steps[0] = 0
            planned = plan_job(timing, cursor, NOW, HORIZON, CatchUpPolicy(CatchUp.LAST, HOUR))
            assert steps[0] < 4000
            assert {gap.reason for gap in planned.missed} <= {
                Reason.EXCLUDED, Reason.CATCHUP_LAST, Reason.CATCHUP_WINDOW,
            }  # fmt: skip
            cursor = planned.next_due


def test_looking_for_the_newest_goes_no_further_than_the_plan(steps: list[int]) -> None:
    """After its last allowed due time, all of the job's later ones are left out, each by a date of its own."""
    mondays = CalendarRule(dates=tuple(date(2030, 1, 14) + timedelta(weeks=place) for place in range(2000)))
    timing = around(Timing((CronSchedule("0 9 * * MON"),), calendars=("x",)), {"x": mondays})
    planned = plan_job(timing, NOW - 3 * HOUR, NOW, HORIZON, CatchUpPolicy(CatchUp.LAST, 24 * HOUR))
    assert planned.fires == [NOW - 3 * HOUR]
    assert steps[0] < 200


def test_that_calendars_leave_out_everything_is_seen_at_once(steps: list[int]) -> None:
    for rules in (EVERYTHING, HALVES):
        timing = around(Timing((CronSchedule("* * * * *"),), calendars=tuple(rules)), rules)
        steps[0] = 0
        assert timing.next_after(NOW) is None
        assert steps[0] < 50


def test_however_many_dates_follow_each_other_what_is_allowed_after_them_is_found() -> None:
    for on_excluded in OnExcluded:
        timing = around(Timing((CronSchedule("0 9 * * *"),), calendars=("x",), on_excluded=on_excluded), DAYS)
        end = datetime(2029, 1, 1, tzinfo=UTC) + timedelta(days=3000)
        assert timing.next_after(NOW) == end + (9 * HOUR if on_excluded is OnExcluded.SKIP else timedelta(0))
    weekdays = tuple(day for place in range(3500) if (day := date(2030, 1, 1) + timedelta(days=place)).weekday() < 5)
    rules = {"x": CalendarRule(dates=weekdays), "y": HALVES["x"]}
    timing = around(Timing((CronSchedule("0 9 * * *"),), calendars=("x", "y")), rules)
    found = timing.next_after(NOW)
    assert found is not None
    assert found.date() > weekdays[-1]


@pytest.mark.parametrize("zone", ["Pacific/Apia", "Europe/Berlin", "America/Sao_Paulo", "UTC"])
def test_many_dates_in_a_row_leave_out_what_each_of_them_alone_would(zone: str) -> None:
    days = [date(2011, 12, 20) + timedelta(days=place) for place in range(120)]
    together, apart = CalendarRule(dates=tuple(days)), [CalendarRule(dates=(day,)) for day in days]
    for step in range(130 * 8):
        instant = datetime(2011, 12, 17, tzinfo=UTC) + timedelta(hours=3 * step)
        span = together.covering(instant, zone)
        assert (span is not None) == any(rule.covering(instant, zone) for rule in apart)
        if span is not None:
            assert span[0] <= instant < span[1]
            for inner in (span[0], span[1] - TICK):
                assert any(rule.covering(inner, zone) for rule in apart)


def test_a_recurring_schedule_without_an_end_of_which_calendars_leave_nothing_is_known() -> None:
    minutes = Timing((CronSchedule("* * * * *"),), calendars=("x", "y"))
    assert nothing_is_left(minutes, HALVES, NOW)
    assert not nothing_is_left(minutes, {"x": HALVES["x"]}, NOW)
    assert not nothing_is_left(Timing(minutes.schedules, calendars=("x",), end_at=NOW + HOUR), EVERYTHING, NOW)
    assert not nothing_is_left(Timing((At(NOW + HOUR),), calendars=("x",)), EVERYTHING, NOW)
