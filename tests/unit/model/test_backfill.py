"""Which due times a backfill runs, how many at a time, and how long that takes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.backfill import (
    BackfillState,
    Choice,
    Existing,
    choose,
    dues_from,
    estimate_seconds,
    first_due_from,
    is_left_out,
    room,
)
from hourhand.model.policy import Rate
from hourhand.model.schedule import CronSchedule, Every, Timing
from hourhand.model.states import RunState

START = datetime(2030, 1, 1, tzinfo=UTC)
HOURLY = Timing((Every(timedelta(hours=1), START),))


def hours(*numbers: int) -> list[datetime]:
    return [START + timedelta(hours=number) for number in numbers]


def test_the_beginning_of_a_range_is_part_of_it_and_its_end_is_not() -> None:
    first = first_due_from(HOURLY, START + timedelta(hours=2))
    assert dues_from(HOURLY, first, START + timedelta(hours=5), 100) == (hours(2, 3, 4), None)


def test_due_times_come_in_slices_that_go_on_where_the_last_one_ended() -> None:
    end = START + timedelta(hours=7)
    first, following = dues_from(HOURLY, START, end, 3)
    second, none_left = dues_from(HOURLY, following, end, 100)
    assert first + second == hours(0, 1, 2, 3, 4, 5, 6)
    assert none_left is None


def test_a_range_across_a_change_of_the_clock_has_the_due_times_of_the_zone() -> None:
    daily = Timing((CronSchedule("30 2 * * *"),), zone="Europe/Berlin")
    dues, _ = dues_from(
        daily, first_due_from(daily, datetime(2030, 3, 30, tzinfo=UTC)), datetime(2030, 4, 2, tzinfo=UTC), 9
    )
    assert [due.strftime("%d %H:%M") for due in dues] == ["30 01:30", "31 01:00", "01 00:30"]


@pytest.mark.parametrize(
    ("states", "skip", "retry_failed"),
    [
        ([], False, False),
        ([RunState.SUCCEEDED], True, True),
        ([RunState.FAILED], True, False),
        ([RunState.TIMED_OUT, RunState.SUCCEEDED], True, True),
        ([RunState.LOST], True, False),
        ([RunState.CANCELLED], True, False),
        ([RunState.SKIPPED], False, False),
        ([RunState.MISSED], False, False),
        ([RunState.SKIPPED, RunState.RUNNING], True, True),
        ([RunState.FAILED, RunState.QUEUED], True, True),
    ],
)
def test_what_becomes_of_a_due_time_that_has_runs(states: list[RunState], skip: bool, retry_failed: bool) -> None:
    assert is_left_out(states, Existing.SKIP) is skip
    assert is_left_out(states, Existing.RETRY_FAILED) is retry_failed
    assert is_left_out(states, Existing.REPEAT) is False


def test_due_times_are_chosen_in_order_until_the_places_are_taken() -> None:
    found = {hours(1)[0]: [RunState.SUCCEEDED], hours(3)[0]: [RunState.FAILED]}
    candidates = hours(0, 1, 2, 3, 4, 5)

    assert choose(candidates, None, found, Existing.SKIP, 3) == Choice(hours(0, 2, 4), 2, hours(5)[0])
    assert choose(candidates, hours(6)[0], found, Existing.SKIP, 9) == Choice(hours(0, 2, 4, 5), 2, hours(6)[0])
    assert choose(candidates, None, found, Existing.REPEAT, 2) == Choice(hours(0, 1), 0, hours(2)[0])


def test_due_times_that_are_left_out_need_no_place() -> None:
    found = {due: [RunState.SUCCEEDED] for due in hours(0, 1, 2)}
    assert choose(hours(0, 1, 2), hours(3)[0], found, Existing.SKIP, 0) == Choice([], 3, hours(3)[0])


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 10))
def test_every_due_time_is_dealt_with_exactly_once_whatever_the_places(has_run: list[bool], places: int) -> None:
    dues = hours(*range(len(has_run)))
    found = {due: [RunState.SUCCEEDED] for due, ran in zip(dues, has_run, strict=True) if ran}
    released: list[datetime] = []
    left_out = turns = 0
    place: datetime | None = dues[0] if dues else None
    while place is not None and turns < 100:
        rest = dues[dues.index(place) :]
        choice = choose(rest, None, found, Existing.SKIP, max(places, 1))
        released += choice.dues
        left_out, place, turns = left_out + choice.left_out, choice.next_due, turns + 1
    assert released == [due for due, ran in zip(dues, has_run, strict=True) if not ran]
    assert left_out == sum(has_run)


@pytest.mark.parametrize(
    ("parallelism", "live", "rate", "lately", "free"),
    [
        (3, 0, None, 0, 3),
        (3, 2, None, 0, 1),
        (3, 5, None, 0, 0),
        (10, 0, Rate(4, 60), 0, 4),
        (10, 0, Rate(4, 60), 3, 1),
        (10, 0, Rate(4, 60), 4, 0),
        (1, 0, Rate(4, 60), 0, 1),
    ],
)
def test_there_is_never_more_room_than_parallelism_and_rate_leave(
    parallelism: int, live: int, rate: Rate | None, lately: int, free: int
) -> None:
    assert room(parallelism, live, rate, lately) == free


def test_how_long_it_takes_follows_from_what_runs_took() -> None:
    assert estimate_seconds(100, 1, None, 9.9) == pytest.approx(1000)
    assert estimate_seconds(100, 10, None, 9.9) == pytest.approx(100)
    assert estimate_seconds(100, 100, Rate(10, 60), 9.9) == pytest.approx(549.9)
    assert estimate_seconds(0, 1, None, None) == 0
    assert estimate_seconds(5, 1, None, None) is None


def test_only_what_is_completed_or_cancelled_is_over() -> None:
    assert [state.value for state in BackfillState if state.is_final] == ["completed", "cancelled"]
