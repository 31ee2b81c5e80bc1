from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.durations import DurationFault, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("500ms", timedelta(milliseconds=500)),
        ("1m500ms", timedelta(minutes=1, milliseconds=500)),
        ("1w", timedelta(weeks=1)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("7us", timedelta(microseconds=7)),
        ("PT15M", timedelta(minutes=15)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("P2W", timedelta(weeks=2)),
        ("PT0.25S", timedelta(milliseconds=250)),
        ("P0DT1S", timedelta(seconds=1)),
    ],
)
def test_a_length_names_its_unit_in_short_or_iso_form(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1h30m"),
        ("  ", "1h30m"),
        ("30", "no unit"),
        ("1.5", "no unit"),
        ("5 minutes", "PT15M"),
        ("PT5X", "PT15M"),
        ("P1M", "months or years"),
        ("P1Y", "months or years"),
        ("P1Y2M3DT4H", "months or years"),
        ("P", "PT15M"),
        ("PT", "PT15M"),
        ("P1DT", "PT15M"),
        ("0s", "more than zero"),
        ("PT0S", "more than zero"),
        ("-5m", "negative"),
        ("30m1h", "PT15M"),
        ("5m5m", "PT15M"),
        ("1h 30m", "PT15M"),
        ("15M", "PT15M"),
        ("1.5h", "PT15M"),
        ("٥m", "PT15M"),
        ("5m\n", "PT15M"),
        ("1e3s", "PT15M"),
        ("9" * 60 + "s", "longer"),
        ("99999999d", "longer"),
        ("1" * 5000, "characters"),
    ],
)
def test_what_is_no_length_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(DurationFault, match=says) as caught:
        parse_duration(text)
    assert caught.value.code == "invalid-duration"


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(minutes=90), "1h30m"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=8), "1w1d"),
        (timedelta(microseconds=1_500_001), "1s500ms1us"),
    ],
)
def test_a_length_is_written_with_the_largest_units_first(length: timedelta, text: str) -> None:
    assert format_duration(length) == text


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=366_000)))
def test_what_is_written_reads_back_as_the_same_length(length: timedelta) -> None:
    assert parse_duration(format_duration(length)) == length


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    with suppress(DurationFault):
        assert parse_duration(text) > timedelta(0)
