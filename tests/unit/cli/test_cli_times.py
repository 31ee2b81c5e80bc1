"""Times as people write them."""

from datetime import UTC, datetime

import pytest

from hourhand.cli.times import TimeFault, length_text, local_time, parse_day, parse_past_time, parse_time, short_time

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)  # 13:00 in Berlin


pytestmark = pytest.mark.usefixtures("berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2030-01-31T09:00:00Z", "2030-01-31T09:00:00"),
        ("2030-01-31T09:00:00+09:00", "2030-01-31T00:00:00"),
        ("2030-01-31T09:00:00", "2030-01-31T08:00:00"),
        ("2030-07-31 09:00", "2030-07-31T07:00:00"),
        ("now", "2026-03-10T12:00:00"),
        ("+10m", "2026-03-10T12:10:00"),
        ("+1h30m", "2026-03-10T13:30:00"),
        ("14:00", "2026-03-10T13:00:00"),
        ("13:00", "2026-03-11T12:00:00"),
        ("6:00", "2026-03-11T05:00:00"),
        ("06:00:30", "2026-03-11T05:00:30"),
        ("today 06:00", "2026-03-10T05:00:00"),
        ("Tomorrow 14:00", "2026-03-11T13:00:00"),
    ],
)
def test_a_time_is_read_in_the_zone_of_this_machine(text: str, expected: str) -> None:
    assert parse_time(text, NOW).isoformat() == f"{expected}+00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", "2026-03-10T11:00:00"),
        ("1h30m", "2026-03-10T10:30:00"),
        ("2d", "2026-03-08T12:00:00"),
        ("06:00", "2026-03-10T05:00:00"),
        ("14:00", "2026-03-09T13:00:00"),
        ("today 14:00", "2026-03-10T13:00:00"),
        ("2026-03-01 09:00", "2026-03-01T08:00:00"),
        ("2026-03-01", "2026-02-28T23:00:00"),
        ("2026-03-01T09:00:00Z", "2026-03-01T09:00:00"),
    ],
)
def test_a_time_gone_by_is_a_length_ago_or_the_last_time_of_that_day(text: str, expected: str) -> None:
    assert parse_past_time(text, NOW).isoformat() == f"{expected}+00:00"


def test_a_day_begins_where_its_clock_does_also_without_a_midnight_or_with_two() -> None:
    assert parse_day("2026-04-24", "Africa/Cairo") == datetime(2026, 4, 23, 22, tzinfo=UTC), "00:00 is jumped over"
    assert parse_day("2026-11-01", "America/Havana") == datetime(2026, 11, 1, 4, tzinfo=UTC), "00:00 comes twice"
    assert parse_day("2026-11-01 00:00") is None
    with pytest.raises(TimeFault, match="no day"):
        parse_day("2026-02-30")


def test_a_zone_that_is_given_wins_over_that_of_the_machine() -> None:
    assert parse_time("06:00", NOW, "Asia/Tokyo").isoformat() == "2026-03-10T21:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "'soon' is not a time; write for example"),
        ("", "is not a time"),
        ("+10", "did you mean 10s or 10m"),
        ("25:00", "does not exist"),
        ("2030-02-30 06:00", "no day of the calendar"),
        ("2030-02-30T06:00:00Z", "does not exist"),
        ("2026-03-29 02:30", "does not exist in this machine's zone: the clock jumps over it"),
        ("2026-10-25 02:30", "comes twice in this machine's zone; write 2026-10-25T02:30:00+02:00 or"),
    ],
)
def test_what_is_no_time_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(TimeFault) as fault:
        parse_time(text, NOW)
    assert said in str(fault.value)


def test_times_are_shown_with_their_zone() -> None:
    assert local_time(NOW) == "2026-03-10 13:00:00 CET"
    assert short_time(NOW) == "03-10 13:00:00"
    assert local_time(None) == "-"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(None, "-"), (0, "0 ms"), (12.4, "12 ms"), (3400, "3.4 s"), (125_000, "2 min 5 s"), (12_000_000, "3 h 20 min")],
)
def test_lengths_are_short(milliseconds: float | None, text: str) -> None:
    assert length_text(milliseconds) == text
