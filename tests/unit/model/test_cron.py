# ruff: noqa: DTZ001 - local times have no zone here

import calendar
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import islice

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hourhand.model.cron import Cron, CronFault

START = datetime(2026, 1, 1)


def fires(text: str, count: int, after: datetime = START, seed: int = 0) -> list[datetime]:
    cron = Cron.parse(text, seed)
    found: list[datetime] = []
    while len(found) < count and (after := cron.next_local(after)) is not None:  # type: ignore[assignment]
        found.append(after)
    return found


# --- what an expression means -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", ["2026-01-01T00:01", "2026-01-01T00:02"]),
        ("*/20 * * * * *", ["2026-01-01T00:00:20", "2026-01-01T00:00:40"]),
        ("30 2 * * *", ["2026-01-01T02:30", "2026-01-02T02:30"]),
        ("5/20 7 * * *", ["2026-01-01T07:05", "2026-01-01T07:25", "2026-01-01T07:45", "2026-01-02T07:05"]),
        ("0 9 * * mon-fri", ["2026-01-01T09:00", "2026-01-02T09:00", "2026-01-05T09:00"]),
        ("0 0 * * FRI-SUN", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"]),
        ("0 0 1 jan,JUL *", ["2026-07-01", "2027-01-01"]),
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
        ("0 0 L-3 * ?", ["2026-01-28", "2026-02-25", "2026-03-28"]),
        ("0 0 15W * *", ["2026-01-15", "2026-02-16", "2026-03-16", "2026-04-15", "2026-05-15"]),
        ("0 0 1W * *", ["2026-02-02", "2026-03-02"]),
        ("0 0 1W 8 *", ["2026-08-03", "2027-08-02"]),
        ("0 0 31W * *", ["2026-01-30", "2026-03-31", "2026-05-29"]),
        ("0 0 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29"]),
        ("0 0 L-1W * *", ["2026-01-30", "2026-02-27", "2026-03-30"]),
        ("0 0 * * MON#2", ["2026-01-12", "2026-02-09"]),
        ("0 0 * * 5#3", ["2026-01-16", "2026-02-20"]),
        ("0 0 * * 5L", ["2026-01-30", "2026-02-27"]),
        ("0 0 * * FRIL", ["2026-01-30", "2026-02-27"]),
        ("0 0 1,L * *", ["2026-01-31", "2026-02-01"]),
        ("0 0 * * TUE#1,TUE#3", ["2026-01-06", "2026-01-20", "2026-02-03"]),
        ("0 0 ? * ?", ["2026-01-02", "2026-01-03"]),
        ("0 0 * * 7", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * 0", ["2026-01-04", "2026-01-11"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("@yearly", ["2027-01-01", "2028-01-01"]),
        ("@Annually", ["2027-01-01", "2028-01-01"]),
        ("@monthly", ["2026-02-01", "2026-03-01"]),
        ("@weekly", ["2026-01-04", "2026-01-11"]),
        ("@daily", ["2026-01-02", "2026-01-03"]),
        ("@midnight", ["2026-01-02", "2026-01-03"]),
        ("@hourly", ["2026-01-01T01:00", "2026-01-01T02:00"]),
    ],
)
def test_an_expression_fires_at_the_times_it_names(text: str, expected: list[str]) -> None:
    assert fires(text, len(expected)) == [datetime.fromisoformat(when) for when in expected]


def test_day_of_month_and_weekday_both_restricted_fire_on_either() -> None:
    assert [when.day for when in fires("0 0 13 * FRI", 6)] == [2, 9, 13, 16, 23, 30]


@pytest.mark.parametrize(
    ("text", "days"),
    [("0 0 */2 * MON", [5, 19]), ("0 0 1-31/2 * */1,MON", [3, 5, 7]), ("0 0 ? * MON", [5, 12]), ("0 0 9 * ?", [9])],
)
def test_a_day_field_that_starts_with_a_star_is_no_restriction_so_both_must_match(text: str, days: list[int]) -> None:
    assert [when.day for when in fires(text, len(days))] == days


def test_the_fifth_monday_of_february_is_found_across_the_century_without_a_leap_day() -> None:
    cron = Cron.parse("0 0 ? 2 MON#5")
    assert cron.next_local(datetime(2072, 3, 1)) == datetime(2112, 2, 29)


def test_the_search_ends_with_the_last_planned_year() -> None:
    assert Cron.parse("0 0 1 1 *").next_local(datetime(2200, 1, 1)) is None


def test_the_next_time_is_strictly_later_even_within_the_second() -> None:
    cron = Cron.parse("* * * * * *")
    assert cron.next_local(datetime(2026, 1, 1, 0, 0, 0)) == datetime(2026, 1, 1, 0, 0, 1)
    assert cron.next_local(datetime(2026, 1, 1, 0, 0, 0, 999_999)) == datetime(2026, 1, 1, 0, 0, 1)


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("30 2 * * *", True),
        ("0,30 1-3 * * *", True),
        ("0 30 2 * * MON", True),
        ("@daily", True),
        ("H H * * *", True),
        ("H(0-5) 3 * * *", True),
        ("@hourly", False),
        ("30 * * * *", False),
        ("*/5 2 * * *", False),
        ("0 */2 * * *", False),
        ("* 30 2 * * *", False),
        ("0 0,*/12 * * *", False),
        ("H/15 3 * * *", False),
        ("H(0-29)/10 3 * * *", False),
    ],
)
def test_a_fixed_time_has_no_star_and_no_open_step_in_its_time_of_day(text: str, fixed: bool) -> None:
    assert Cron.parse(text).is_fixed_time is fixed


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  0   9\t* * mon-fri ", "0 9 * * MON-FRI"),
        ("0 0 * * 0-7", "0 0 * * 0-6"),
        ("0 0 * * 1,7", "0 0 * * 1,0"),
        ("@Daily", "@daily"),
        ("h/15 * * * *", "H/15 * * * *"),
    ],
)
def test_the_text_is_normalised_and_reads_back_as_the_same(text: str, normal: str) -> None:
    cron = Cron.parse(text, 5)
    assert cron.text == normal
    assert Cron.parse(normal, 5) == cron


def test_weekday_zero_to_seven_is_every_day() -> None:
    assert [when.day for when in fires("0 0 * * 0-7", 8)] == [2, 3, 4, 5, 6, 7, 8, 9]


# --- H ----------------------------------------------------------------------------------------------------


def test_h_is_one_value_fixed_by_the_seed() -> None:
    assert fires("H H * * *", 3, seed=7) == fires("H H * * *", 3, seed=7)
    spread = {fires("H * * * *", 1, seed=seed)[0].minute for seed in range(2000)}
    assert spread == set(range(60))


def test_h_differs_between_the_fields_of_one_job() -> None:
    together = [(cron.minutes, cron.seconds) for cron in (Cron.parse("H H * * * *", seed) for seed in range(100))]
    assert sum(minutes == seconds for minutes, seconds in together) < 10


@given(st.integers(min_value=0, max_value=2**63))
def test_h_stays_within_its_range_and_keeps_its_step(seed: int) -> None:
    assert 10 <= fires("H(10-12) * * * *", 1, seed=seed)[0].minute <= 12
    assert 1 <= fires("0 0 H * *", 1, seed=seed)[0].day <= 28
    minutes = [when.minute for when in fires("H/15 3 * * *", 4, seed=seed)]
    assert minutes == list(range(minutes[0], 60, 15))
    assert minutes[0] < 15
    inside = [when.minute for when in fires("H(20-39)/10 3 * * *", 2, seed=seed)]
    assert 20 <= inside[0] < inside[1] <= 39


def test_only_expressions_with_h_depend_on_the_seed() -> None:
    assert Cron.parse("H 3 * * *").uses_hash
    assert Cron.parse("0 3 * * H(1-5)").uses_hash
    assert not Cron.parse("0 3 * MAR THU").uses_hash


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "cron-empty"),
        ("   ", "cron-empty"),
        ("\n", "cron-empty"),
        ("* * * *", "cron-field-count"),
        ("*", "cron-field-count"),
        ("0 0 0 1 1 * 2026", "cron-field-count"),
        ("60 * * * *", "cron-out-of-range"),
        ("60 * * * * *", "cron-out-of-range"),
        ("* 24 * * *", "cron-out-of-range"),
        ("* * 0 * *", "cron-out-of-range"),
        ("* * 32 * *", "cron-out-of-range"),
        ("* * * 13 *", "cron-out-of-range"),
        ("* * * 0 *", "cron-out-of-range"),
        ("* * * * 8", "cron-out-of-range"),
        ("0-60 * * * *", "cron-out-of-range"),
        ("* * * * MON#6", "cron-out-of-range"),
        ("* * * * MON#0", "cron-out-of-range"),
        ("* * * * 8#1", "cron-out-of-range"),
        ("* * 32W * *", "cron-out-of-range"),
        ("* * L-31 * *", "cron-out-of-range"),
        ("H(0-60) * * * *", "cron-out-of-range"),
        ("9" * 500 + " * * * *", "cron-out-of-range"),
        ("0 0 31 2 *", "cron-never-fires"),
        ("0 0 30 2 *", "cron-never-fires"),
        ("0 0 31 4,6 *", "cron-never-fires"),
        ("0 0 31 2 */2", "cron-never-fires"),
        ("0 0 31W 4 *", "cron-never-fires"),
        ("0 0 L-29 2 *", "cron-never-fires"),
        ("*/0 * * * *", "step-zero"),
        ("1-5/0 * * * *", "step-zero"),
        ("*/61 * * * *", "step-larger-than-range"),
        ("* */25 * * *", "step-larger-than-range"),
        ("* * * * */8", "step-larger-than-range"),
        ("10-20/15 * * * *", "step-larger-than-range"),
        ("50/15 * * * *", "step-larger-than-range"),
        ("H/61 * * * *", "step-larger-than-range"),
        ("5-1 * * * *", "reversed-range"),
        ("* * * * FRI-MON", "reversed-range"),
        ("H(9-3) * * * *", "reversed-range"),
        ("abc * * * *", "unknown-name"),
        ("* * * FOO *", "unknown-name"),
        ("* * * MON *", "unknown-name"),
        ("* * * * MONDAY", "unknown-name"),
        ("* * * * L", "unknown-name"),
        ("L * * * *", "unknown-name"),
        ("@fortnightly", "unknown-macro"),
        ("@daily 5", "unknown-macro"),
        ("@", "unknown-macro"),
        ("@reboot", "unsupported-macro"),
        ("@every 5m", "unsupported-macro"),
        ("\uff15 * * * *", "non-ascii"),
        ("\u0665 * * * *", "non-ascii"),
        ("5\u200b * * * *", "non-ascii"),
        ("5\u00a0* * * *", "non-ascii"),
        ("0 9 *\n* *", "cron-syntax"),
        ("0 9 * * *\n", "cron-syntax"),
        ("0 9 * \x00 *", "cron-syntax"),
        ("${jndi:ldap://x}", "cron-syntax"),
        ("{{7*7}} * * * *", "cron-syntax"),
        ("%{7*7} * * * *", "cron-syntax"),
        ("1,,2 * * * *", "cron-syntax"),
        ("1, * * * *", "cron-syntax"),
        ("1-2-3 * * * *", "cron-syntax"),
        ("-5 * * * *", "cron-syntax"),
        ("*/ * * * *", "cron-syntax"),
        ("** * * * *", "cron-syntax"),
        ("? * * * *", "cron-syntax"),
        ("* * ?/2 * *", "cron-syntax"),
        ("15W * * * *", "cron-syntax"),
        ("* * MON#2 * *", "cron-syntax"),
        ("H(5) * * * *", "cron-syntax"),
        ("0" * 1001, "cron-syntax"),
        ("CRON_TZ=Europe/Berlin 0 9 * * *", "unsupported-prefix"),
        ("TZ=UTC 0 9 * * *", "unsupported-prefix"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_word_for_its_fault(text: str, code: str) -> None:
    with pytest.raises(CronFault) as caught:
        Cron.parse(text)
    assert caught.value.code == code
    assert str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("60 * * * *", "minute 0-59"),
        ("* 24 * * *", "hour 0-23"),
        ("* * * 13 *", "month 1-12"),
        ("* * * * 8", "weekday 0-7"),
        ("@fortnightly", "@weekly"),
        ("* * * * MONDAY", "did you mean MON"),
        ("* * * MON *", "weekday"),
        ("CRON_TZ=UTC 0 9 * * *", "zone"),
        ("0 0 0 1 1 * 2026", "years"),
    ],
)
def test_a_refusal_says_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(CronFault) as caught:
        Cron.parse(text)
    assert says in f"{caught.value} {caught.value.hint}"


@given(st.text(alphabet="0123456789*,-/#?()LWHMONFRIJA @\t", max_size=40) | st.text(max_size=40))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    with suppress(CronFault):
        assert Cron.parse(text).next_local(START) is not None


# --- oracles ----------------------------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn, low: int, high: int, star_high: int | None = None) -> str:
    """One term of a field, without H."""
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    span = last - first + 1
    return draw(
        st.sampled_from(
            [
                "*",
                f"*/{draw(st.integers(1, (star_high or high) - low + 1))}",
                f"{first}",
                f"{first}-{last}",
                f"{first}-{last}/{draw(st.integers(1, span))}" if span > 1 else f"{first}",
                f"{first}/{draw(st.integers(1, high - first + 1))}",
            ]
        )
    )


def lists(term: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(term, min_size=1, max_size=3).map(",".join)


MONTHS = lists(ranges(1, 12) | st.sampled_from(["JAN", "FEB", "OCT-DEC"]))
DAYS = lists(ranges(1, 31) | st.sampled_from(["L", "LW"]))
WEEKDAYS = lists(
    ranges(0, 7, star_high=6)
    | st.sampled_from(["MON", "TUE-SAT", "5L", "0L"])
    | st.builds("{}#{}".format, st.integers(0, 7), st.integers(1, 5))
)
FIVE = st.tuples(lists(ranges(0, 59)), lists(ranges(0, 23)), DAYS, MONTHS, WEEKDAYS).map(" ".join)
SIX = st.tuples(lists(ranges(0, 59)), FIVE).map(" ".join)
MOMENTS = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2150, 1, 1))


def never_fires(text: str) -> bool:
    try:
        Cron.parse(text)
    except CronFault as fault:
        if fault.code != "cron-never-fires":
            raise  # what the strategies make is well formed
        return True
    return False


@settings(max_examples=400, deadline=None)
@given(FIVE | SIX, MOMENTS)
def test_ordinary_expressions_fire_exactly_as_in_cronsim(text: str, after: datetime) -> None:
    assume(not never_fires(text))
    assert fires(text, 5, after) == list(islice(CronSim(text, after), 5))


@settings(max_examples=200, deadline=None)
@given(FIVE | SIX, MOMENTS)
def test_the_times_of_an_expression_strictly_increase(text: str, after: datetime) -> None:
    assume(not never_fires(text))
    times = fires(text, 20, after)
    assert all(earlier < later for earlier, later in zip([after, *times], times, strict=False))


def nearest_weekday_by_walking(year: int, month: int, day: int) -> date | None:
    """The 15W rule, by trying the days around it in order of distance, Friday before Monday."""
    length = calendar.monthrange(year, month)[1]
    if not 1 <= day <= length:
        return None
    around = [date(year, month, day) + timedelta(days=shift) for shift in (0, -1, 1, -2, 2)]
    return next(one for one in around if one.month == month and one.weekday() < 5)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 31), st.integers(2000, 2100))
def test_nearest_weekdays_are_those_found_by_walking(day: int, year: int) -> None:
    walked = [nearest_weekday_by_walking(year, month, day) for month in range(1, 13)]
    found = fires(f"0 0 {day}W * *", 12, datetime(year - 1, 12, 31, 1))
    assert [one for one in walked if one] == [when.date() for when in found if when.year == year]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 30), st.integers(2000, 2100))
def test_days_before_the_last_are_counted_from_the_end_of_each_month(offset: int, year: int) -> None:
    lengths = [calendar.monthrange(year, month)[1] for month in range(1, 13)]
    expected = [date(year, month, length - offset) for month, length in enumerate(lengths, 1) if length > offset]
    found = fires(f"0 0 L-{offset} * *", 12, datetime(year - 1, 12, 31, 1))
    assert [when.date() for when in found if when.year == year] == expected
