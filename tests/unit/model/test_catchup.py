"""What becomes of due times that passed: each is accounted for exactly once."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model import counting
from hourhand.model.catchup import GRACE, CatchUp, CatchUpPolicy, PauseSpan, Plan, plan
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


@pytest.mark.parametrize("ahead", [GRACE + seconds(1), -seconds(1)])
def test_last_runs_only_the_newest_of_the_stale_ones(ahead: timedelta) -> None:
    """The next one is still to come, be it within the horizon."""
    timing = every(600, NOW - ahead - timedelta(days=30))
    found = planned(timing, timedelta(minutes=50), CatchUpPolicy(CatchUp.LAST, timedelta(hours=1)))
    *stale, newest = timing.due_between(NOW - timedelta(minutes=50), NOW, 10)
    assert [due for due in found.fires if due <= NOW] == [newest]
    [gap] = found.missed
    assert (gap.first, gap.last, gap.count, gap.reason) == (stale[0], stale[-1], len(stale), Reason.CATCHUP_LAST)


def test_last_runs_no_stale_one_beside_one_within_the_grace() -> None:
    found = planned(every(600), timedelta(minutes=50), CatchUpPolicy(CatchUp.LAST, timedelta(hours=1)))
    *stale, fresh = [NOW - seconds(600 * back) for back in range(4, -1, -1)]
    assert found.fires == [fresh]
    assert [(gap.first, gap.last, gap.count, gap.reason) for gap in found.missed] == [
        (stale[0], stale[-1], 4, Reason.CATCHUP_LAST)
    ]


def test_last_runs_a_stale_one_where_those_within_the_grace_are_paused() -> None:
    span = PauseSpan(NOW - GRACE - seconds(1), NOW + seconds(1e-6))
    found = plan(every(5), NOW - seconds(60), NOW + seconds(1e-6), HORIZON, CatchUpPolicy(), pauses=[span])
    assert found.fires == [NOW - seconds(20)]


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


def walked(interval: float) -> Timing:
    """A union, whose due times cannot be counted but by walking over them."""
    return Timing(
        (Every(seconds(interval), NOW - timedelta(days=30)), Every(seconds(interval), NOW - timedelta(days=9)))
    )


def test_a_long_silence_that_must_be_walked_over_is_cut_and_the_next_plan_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "WALK_MAX", 100)
    timing, policy = walked(1), CatchUpPolicy(CatchUp.LAST, timedelta(hours=1))
    cursor = NOW - seconds(250)
    first = plan(timing, cursor, NOW, HORIZON, policy)
    assert (first.fires, [gap.count for gap in first.missed]) == ([], [100])
    assert first.next_due == cursor + seconds(100) == first.missed[0].next_due
    second = plan(timing, first.next_due, NOW, HORIZON, policy)
    assert (second.fires, second.next_due) == ([], cursor + seconds(200))
    third = plan(timing, cursor + seconds(200), NOW, HORIZON, policy)
    assert third.fires == [NOW - seconds(back) for back in range(15, -3, -1)]


def test_a_cut_within_the_window_says_that_newer_ones_ran_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "WALK_MAX", 100)
    found = plan(walked(1), NOW - seconds(250), NOW, HORIZON, CatchUpPolicy(CatchUp.LAST, timedelta(hours=1)))
    assert {gap.reason for gap in found.missed} == {Reason.CATCHUP_LAST}


@pytest.mark.parametrize("cron", ["* * * * *", "* * * * * *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_however_long_the_silence_it_is_counted_in_one_plan(cron: str, zone: str) -> None:
    timing = Timing((CronSchedule(cron),), zone)
    found = plan(timing, NOW - timedelta(days=300), NOW, HORIZON, CatchUpPolicy())
    step = 60 if cron == "* * * * *" else 1
    assert sum(gap.count for gap in found.missed) + len(found.fires) == (300 * 86_400 + (0, 2)[step == 1]) // step + 1
    assert found.next_due is not None
    assert found.next_due > NOW + HORIZON


# --- pauses -----------------------------------------------------------------------------------------------

MILLISECOND = timedelta(milliseconds=1)
spans = st.tuples(st.integers(-5000, -1), st.integers(1, 4000), st.sampled_from(CatchUp)).map(
    lambda drawn: PauseSpan(NOW + seconds(drawn[0]), NOW + seconds(drawn[0] + drawn[1]), drawn[2], "by ada")
)


@settings(deadline=None)
@given(timings, absences, policies, st.lists(spans, min_size=1, max_size=3))
def test_around_pauses_every_due_time_is_accounted_for_exactly_once_and_none_of_a_pause_that_goes_on(
    timing: Timing, away: timedelta, policy: CatchUpPolicy, pauses: list[PauseSpan]
) -> None:
    cursor = timing.next_after(NOW - away)
    for _ in range(100):
        if cursor is None or cursor > NOW + HORIZON:
            break
        planned = plan(timing, cursor, NOW, HORIZON, policy, pauses=pauses)
        upto = planned.next_due or NOW + timedelta(days=1)
        expected = [due for due in timing.due_between(cursor - seconds(1e-6), NOW + HORIZON, 100_000) if due < upto]
        accounted = list(planned.fires)
        for gap in planned.missed:
            inside = [due for due in expected if gap.first <= due <= gap.last]
            assert (inside[0], inside[-1], len(inside)) == (gap.first, gap.last, gap.count)
            paused = {any(span.covers(due) for span in pauses) for due in inside}
            assert paused == {gap.reason is Reason.PAUSED}
            accounted += inside
        assert sorted(accounted) == expected
        for due in accounted:
            assert not any(span.covers(due) and span.end and span.end > NOW for span in pauses)
        if planned.next_due == cursor:
            assert any(span.covers(cursor) and span.end and span.end > NOW for span in pauses)
            break
        cursor = planned.next_due


@pytest.mark.parametrize("off", [-MILLISECOND, timedelta(0), MILLISECOND])
def test_a_due_time_at_the_very_instant_a_pause_begins_still_runs_and_one_later_does_not(off: timedelta) -> None:
    due = NOW - seconds(5)
    found = plan(every(600, due), due, NOW, HORIZON, CatchUpPolicy(), pauses=[PauseSpan(due - off, NOW - seconds(1))])
    paused = [gap.first for gap in found.missed if gap.reason is Reason.PAUSED]
    assert (found.fires, paused) == (([due], []) if off <= timedelta(0) else ([], [due]))


@pytest.mark.parametrize("off", [-MILLISECOND, timedelta(0), MILLISECOND])
def test_a_due_time_at_the_very_instant_a_pause_ends_runs_again_and_one_earlier_does_not(off: timedelta) -> None:
    due = NOW - seconds(5)
    found = plan(every(600, due), due, NOW, HORIZON, CatchUpPolicy(), pauses=[PauseSpan(due - seconds(9), due + off)])
    paused = [gap.first for gap in found.missed if gap.reason is Reason.PAUSED]
    assert (found.fires, paused) == (([due], []) if off <= timedelta(0) else ([], [due]))


@pytest.mark.parametrize(("mode", "fires"), [(CatchUp.NONE, []), (CatchUp.LAST, [2]), (CatchUp.ALL, [5, 4, 3, 2])])
def test_of_what_fell_into_a_pause_only_what_was_asked_for_runs_whatever_the_window(
    mode: CatchUp, fires: list[int]
) -> None:
    hour = timedelta(hours=1)
    span = PauseSpan(NOW - 5.5 * hour, NOW - 1.5 * hour, mode, "by ada")
    policy = CatchUpPolicy(CatchUp.NONE, timedelta(0))
    found = plan(every(3600), NOW - 5 * hour, NOW, HORIZON, policy, pauses=[span])
    assert found.fires == [NOW - back * hour for back in [*fires, 0]]
    paused = [gap for gap in found.missed if gap.reason is Reason.PAUSED]
    assert sum(gap.count for gap in paused) == 4 - len(fires)
    assert {gap.detail for gap in paused} <= {"by ada"}


def test_the_last_of_all_that_is_late_runs_and_not_the_last_before_each_pause() -> None:
    hour = timedelta(hours=1)
    spans = [PauseSpan(NOW - 7.5 * hour, NOW - 5.5 * hour), PauseSpan(NOW - 3.5 * hour, NOW - 2.5 * hour)]
    policy = CatchUpPolicy(CatchUp.LAST, 24 * hour)
    due = every(3600, NOW - timedelta(days=30) - seconds(60))
    found = plan(due, NOW - 9 * hour - seconds(60), NOW, HORIZON, policy, pauses=spans)
    assert found.fires == [NOW - seconds(60)]
    late = [(gap.reason, gap.count) for gap in found.missed]
    paused = Reason.PAUSED
    assert late == [
        (Reason.CATCHUP_LAST, 2),
        (paused, 2),
        (Reason.CATCHUP_LAST, 2),
        (paused, 1),
        (Reason.CATCHUP_LAST, 2),
    ]


def test_what_was_asked_for_by_its_instant_runs_after_the_pause() -> None:
    timing = Timing((At(NOW - seconds(400)), At(NOW - seconds(300)), At(NOW + seconds(900))))
    span = PauseSpan(NOW - seconds(500), NOW - seconds(100))
    found = plan(timing, NOW - seconds(400), NOW, HORIZON, CatchUpPolicy(), pauses=[span])
    assert (found.fires, found.missed) == ([NOW - seconds(400), NOW - seconds(300)], [])


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
