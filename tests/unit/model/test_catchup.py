"""What becomes of due times that passed: each is accounted for exactly once."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model import catchup
from hourhand.model.catchup import GRACE, CatchUp, CatchUpPolicy, Plan, plan
from hourhand.model.schedule import At, CronSchedule, Every, Timing
from hourhand.model.states import Reason

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
HORIZON = timedelta(seconds=2)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def every(interval: float, anchor: datetime = NOW - timedelta(days=30)) -> Timing:
    return Timing((Every(seconds(interval), anchor),))


def planned(timing: Timing, away: timedelta, policy: CatchUpPolicy, horizon: timedelta = HORIZON) -> Plan:
    """The plan of a job whose cursor is the first due time after an absence."""
    cursor = timing.next_after(NOW - away)
    assert cursor is not None
    return plan(timing, cursor, NOW, horizon, policy)


timings = st.builds(every, st.integers(1, 4000)) | st.sampled_from(
    [
        Timing((CronSchedule("*/5 * * * *"),), "Europe/Berlin"),
        Timing((CronSchedule("0 9 * * MON-FRI"),)),
        Timing((Every(seconds(97), NOW - timedelta(days=3)), At(NOW - seconds(40)), At(NOW + seconds(1)))),
        Timing((Every(seconds(60), NOW - timedelta(days=3)),), end_at=NOW - seconds(300)),
    ]
)
policies = st.builds(
    CatchUpPolicy,
    mode=st.sampled_from(CatchUp),
    window=st.integers(0, 20_000).map(seconds),
    runs_max=st.integers(1, 300),
)
absences = st.integers(0, 40_000).map(seconds)


@settings(deadline=None)
@given(timings, absences, policies, st.integers(0, 30).map(seconds))
def test_every_due_time_up_to_the_horizon_is_accounted_for_exactly_once(
    timing: Timing, away: timedelta, policy: CatchUpPolicy, horizon: timedelta
) -> None:
    cursor = timing.next_after(NOW - away)
    if cursor is None:
        return
    found = plan(timing, cursor, NOW, horizon, policy)
    upto = NOW + horizon if found.next_due is None or found.next_due > NOW + horizon else found.next_due - seconds(1e-6)
    expected = timing.due_between(cursor - seconds(1e-6), upto, 100_000)

    accounted = list(found.fires)
    for missed in found.missed:
        inside = [due for due in expected if missed.first <= due <= missed.last]
        assert (inside[0], inside[-1], len(inside)) == (missed.first, missed.last, missed.count)
        accounted += inside
    assert sorted(accounted) == expected
    assert found.fires == sorted(set(found.fires))
    assert found.next_due == timing.next_after(expected[-1] if expected else cursor - seconds(1e-6))


@settings(deadline=None)
@given(timings, absences, policies)
def test_plan_after_plan_reaches_the_horizon_and_never_plans_a_due_time_twice(
    timing: Timing, away: timedelta, policy: CatchUpPolicy
) -> None:
    cursor = timing.next_after(NOW - away)
    fires: list[datetime] = []
    for _ in range(10_000):
        if cursor is None or cursor > NOW + HORIZON:
            break
        found = plan(timing, cursor, NOW, HORIZON, policy, fires_max=50)
        assert found.next_due is None or found.next_due > cursor
        fires += found.fires
        cursor = found.next_due
    assert cursor is None or cursor > NOW + HORIZON
    assert len(fires) == len(set(fires))


@given(policies)
def test_due_times_within_the_grace_all_run_whatever_the_policy(policy: CatchUpPolicy) -> None:
    found = planned(every(1), GRACE, policy)
    assert found.missed == []
    assert found.fires == [NOW - GRACE + seconds(second) for second in range(1, 18)]


def test_last_runs_only_the_newest_of_the_stale_ones() -> None:
    found = planned(every(600), timedelta(minutes=50), CatchUpPolicy(CatchUp.LAST, timedelta(hours=1)))
    *stale, newest, fresh = [NOW - seconds(600 * back) for back in range(4, -1, -1)]
    assert found.fires == [newest, fresh]
    assert [(gap.first, gap.last, gap.count, gap.reason) for gap in found.missed] == [
        (stale[0], stale[-1], 3, Reason.CATCHUP_LAST)
    ]


def test_all_runs_every_stale_one_inside_the_window() -> None:
    found = planned(every(600), timedelta(hours=2), CatchUpPolicy(CatchUp.ALL, timedelta(hours=1)))
    assert found.fires == [NOW - seconds(600 * back) for back in range(6, -1, -1)]
    [gap] = found.missed
    assert (gap.count, gap.last, gap.reason) == (5, NOW - seconds(4200), Reason.CATCHUP_WINDOW)


def test_all_runs_no_more_than_its_cap_and_those_are_the_newest() -> None:
    found = planned(every(60), timedelta(hours=1), CatchUpPolicy(CatchUp.ALL, timedelta(hours=1), runs_max=3))
    assert found.fires == [NOW - seconds(60 * back) for back in range(3, -1, -1)]
    assert sum(gap.count for gap in found.missed) == 56


def test_none_runs_no_stale_one_but_what_is_due_now() -> None:
    found = planned(every(600), timedelta(hours=2), CatchUpPolicy(CatchUp.NONE, timedelta(hours=1)))
    assert found.fires == [NOW]
    assert [(gap.count, gap.reason) for gap in found.missed] == [
        (5, Reason.CATCHUP_WINDOW),
        (6, Reason.CATCHUP_LAST),
    ]


@pytest.mark.parametrize("mode", CatchUp)
def test_nothing_older_than_the_window_ever_runs(mode: CatchUp) -> None:
    found = planned(every(60), timedelta(hours=3), CatchUpPolicy(mode, timedelta(minutes=10)))
    assert min(found.fires) >= NOW - timedelta(minutes=10)


@pytest.mark.parametrize("mode", CatchUp)
def test_a_window_of_nothing_catches_nothing_up(mode: CatchUp) -> None:
    found = planned(every(600), timedelta(hours=2), CatchUpPolicy(mode, timedelta(0)))
    assert found.fires == [NOW]
    assert {gap.reason for gap in found.missed} == {Reason.CATCHUP_WINDOW}


def test_a_long_silence_is_cut_and_the_next_plan_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "COUNT_MAX", 100)
    timing, policy = every(1), CatchUpPolicy(CatchUp.LAST, timedelta(hours=1))
    cursor = NOW - seconds(250)
    first = plan(timing, cursor, NOW, HORIZON, policy)
    assert (first.fires, [gap.count for gap in first.missed]) == ([], [100])
    assert first.next_due == cursor + seconds(100)
    second = plan(timing, first.next_due, NOW, HORIZON, policy)
    assert (second.fires, second.next_due) == ([], cursor + seconds(200))
    third = plan(timing, cursor + seconds(200), NOW, HORIZON, policy)
    assert third.fires == [NOW - seconds(back) for back in range(16, -3, -1)]


def test_a_cut_within_the_window_says_that_newer_ones_ran_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "COUNT_MAX", 100)
    found = plan(every(1), NOW - seconds(250), NOW, HORIZON, CatchUpPolicy(CatchUp.LAST, timedelta(hours=1)))
    assert {gap.reason for gap in found.missed} == {Reason.CATCHUP_LAST}


def test_a_long_horizon_is_cut_at_the_most_runs_a_plan_may_make() -> None:
    found = plan(every(1), NOW, NOW, timedelta(hours=1), CatchUpPolicy(), fires_max=10)
    assert len(found.fires) == 10
    assert found.next_due == NOW + seconds(10)


def test_a_schedule_that_is_over_leaves_no_cursor() -> None:
    timing = Timing((Every(seconds(60), NOW - timedelta(hours=1)),), end_at=NOW - seconds(120))
    found = planned(timing, timedelta(minutes=10), CatchUpPolicy())
    assert found.next_due is None
    assert found.fires == [NOW - seconds(120)]


def test_a_cursor_beyond_the_horizon_stays_where_it_is() -> None:
    found = plan(every(600, NOW), NOW + seconds(600), NOW, HORIZON, CatchUpPolicy())
    assert found == Plan([], [], NOW + seconds(600))
