"""Counting comes to the same as walking, over clock changes too."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model.counting import count_quickly, last_before, newest_before, stretch
from hourhand.model.schedule import CronSchedule, DstOverlap, Every, Gap, Timing

TICK = timedelta(microseconds=1)
CRONS = [
    "* * * * *",
    "*/5 * * * *",
    "30 2 * * *",
    "0 9 * * MON-FRI",
    "*/30 2 * * *",
    "0 0 L * *",
    "15,45 1-3 * * *",
    "0 */2 13 * FRI",
    "*/20 30 1 * * *",
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"]
crons = st.builds(
    lambda cron, zone, gap, overlap: Timing((CronSchedule(cron),), zone, gap=gap, overlap=overlap),
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.sampled_from(Gap),
    st.sampled_from(DstOverlap),
)
intervals = st.integers(1, 100_000).map(
    lambda length: Timing((Every(timedelta(seconds=length), datetime(2025, 1, 1, tzinfo=UTC)),))
)
# The nights on which the clocks of those zones are set, and a day that Samoa has skipped.
near_jumps = st.sampled_from(
    [
        datetime(*day, tzinfo=UTC)
        for day in [
            (2026, 3, 29),
            (2026, 10, 25),
            (2026, 3, 8),
            (2026, 11, 1),
            (2026, 4, 5),
            (2026, 2, 15),
            (2011, 12, 30),
        ]
    ]
)
instants = st.builds(lambda day, off: day + timedelta(seconds=off), near_jumps, st.integers(-200_000, 200_000))


@settings(deadline=None, max_examples=300)
@given(crons | intervals, instants, st.integers(1, 300_000), st.integers(1, 50))
def test_a_stretch_is_what_walking_over_it_finds(timing: Timing, begin: datetime, length: int, most: int) -> None:
    first = timing.next_after(begin)
    assert first is not None
    before = first + timedelta(seconds=length)
    walked = timing.due_between(first - TICK, before - TICK, 1_000_000)
    found = stretch(timing, first, before)
    assert count_quickly(timing, first, before) == len(walked)
    assert (found.first, found.last, found.count) == (walked[0], walked[-1], len(walked))
    assert found.next_due == timing.next_after(walked[-1])
    assert last_before(timing, first, before) == walked[-1]
    assert newest_before(timing, found.first, found.last + TICK, most) == walked[-most:]


JUMPS = {
    "Europe/Berlin": [(2026, 3, 29, 1), (2026, 10, 25, 1)],
    "America/New_York": [(2026, 3, 8, 7), (2026, 11, 1, 6)],
    "America/Havana": [(2026, 3, 8, 5), (2026, 11, 1, 5)],
    "Australia/Lord_Howe": [(2026, 4, 4, 15), (2026, 10, 3, 15)],
    "Africa/Casablanca": [(2026, 2, 15, 2), (2026, 3, 22, 2)],
    "Antarctica/Troll": [(2026, 3, 29, 1), (2026, 10, 25, 1)],
}


@pytest.mark.parametrize(("zone", "jump"), [(zone, jump) for zone, jumps in JUMPS.items() for jump in jumps])
@pytest.mark.parametrize("cron", [*CRONS, "10 0-4 * * *", "*/7 * * * *", "59 1 * * *", "0 3 * * *"])
def test_over_every_sort_of_clock_change_counting_comes_to_the_same_as_walking(
    cron: str, zone: str, jump: tuple[int, ...]
) -> None:
    begin = datetime(*jump, tzinfo=UTC) - timedelta(hours=9)  # type: ignore[misc,arg-type]
    for gap in Gap:
        for overlap in DstOverlap:
            timing = Timing((CronSchedule(cron),), zone, gap=gap, overlap=overlap)
            for hours in (18, 10, 48):
                walked = timing.due_between(begin, begin + timedelta(hours=hours), 1_000_000)
                if walked:
                    assert count_quickly(timing, walked[0], walked[-1] + TICK) == len(walked)


def test_the_end_of_a_schedule_ends_the_count() -> None:
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    timing = Timing((Every(timedelta(minutes=1), begin),), end_at=begin + timedelta(minutes=9))
    found = stretch(timing, begin, begin + timedelta(days=1))
    assert (found.count, found.last, found.next_due) == (10, begin + timedelta(minutes=9), None)


def test_what_cannot_be_counted_is_walked_over_up_to_a_bound() -> None:
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    timing = Timing((Every(timedelta(minutes=2), begin), Every(timedelta(minutes=3), begin)))
    assert count_quickly(timing, begin, begin + timedelta(days=1)) is None
    found = stretch(timing, begin, begin + timedelta(days=1), walk_max=10)
    assert (found.count, found.next_due) == (10, timing.next_after(found.last))
    whole = stretch(timing, begin, begin + timedelta(hours=1))
    assert (
        newest_before(timing, whole.first, whole.last + TICK, 7)
        == timing.due_between(begin - TICK, begin + timedelta(minutes=59), 1000)[-7:]
    )


@pytest.mark.parametrize("cron", ["* * * * *", "*/15 * * * *", "0 3 * * *"])
def test_a_year_is_counted_month_by_month(cron: str) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    timing = Timing((CronSchedule(cron),))
    first = timing.next_after(begin)
    assert first is not None
    a_day = {"* * * * *": 1440, "*/15 * * * *": 96, "0 3 * * *": 1}[cron]
    assert count_quickly(timing, first, begin + timedelta(days=365)) == 365 * a_day - (cron != "0 3 * * *")
