"""What a schedule is said to do, before anybody makes a job of it."""

# ruff: noqa: E501 - rows of tables stay on one line

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from time import process_time
from typing import Any

import pytest

from hourhand.model.calendar_form import read_calendar
from hourhand.model.errors import InvalidFields
from hourhand.model.exclusion import around
from hourhand.model.preview import Preview, preview
from hourhand.model.schedule import CronSchedule
from hourhand.model.schedule_form import parse_timing
from hourhand.model.words import cron_words, timing_words

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def shown(schedule: Any, zone: str = "UTC", count: int = 10, end: datetime | None = None, **more: Any) -> Preview:
    return preview(parse_timing(schedule, zone, now=NOW, seed=1, **more), NOW, end, count)


def test_times_from_start_to_end_are_both_included() -> None:
    found = shown({"cron": "0 0 * * *"}, end=NOW + timedelta(days=2))
    assert [time.day for time in found.times] == [1, 2, 3]
    assert not found.more


def test_more_says_whether_times_follow() -> None:
    assert shown({"cron": "* * * * *"}, count=3).more
    cut = shown({"cron": "* * * * *"}, count=3, end=NOW + timedelta(hours=1))
    assert cut.notes[-1] == "only the first 3 times are shown; more follow"


@pytest.mark.parametrize(
    ("schedule", "more", "notes"),
    [
        (
            {"cron": "30 2 * * *"},
            {},
            [
                "2026-03-29: the clock goes from 02:00 forward to 03:00; "
                "02:30 does not exist and is due at 03:00 instead (gap: fire_after)",
                "2026-10-25: the clock goes from 03:00 back to 02:00; "
                "02:30 comes twice and is due at the first pass (overlap: auto)",
            ],
        ),
        (
            {"cron": "30 2 * * *"},
            {"gap": "skip", "overlap": "both"},
            [
                "2026-03-29: the clock goes from 02:00 forward to 03:00; "
                "02:30 does not exist and is left out (gap: skip)",
                "2026-10-25: the clock goes from 03:00 back to 02:00; "
                "02:30 comes twice and is due at both passes (overlap: both)",
            ],
        ),
        (
            {"cron": "*/30 2 * * *"},
            {"overlap": "last"},
            [
                "2026-03-29: the clock goes from 02:00 forward to 03:00; "
                "02:00, 02:30 do not exist and are left out (it keeps its cadence)",
                "2026-10-25: the clock goes from 03:00 back to 02:00; "
                "02:00, 02:30 come twice and are due at the last pass (overlap: last)",
            ],
        ),
        ({"cron": "0 9 * * *"}, {}, []),
        (
            {"daily": "02:30"},
            {},
            [
                "2026-03-29: the clock goes from 02:00 forward to 03:00; "
                "02:30 does not exist and is due at 03:00 instead (gap: fire_after)",
                "2026-10-25: the clock goes from 03:00 back to 02:00; "
                "02:30 comes twice and is due at the first pass (overlap: auto)",
            ],
        ),
    ],
)
def test_days_on_which_the_clock_changes_are_named_with_what_that_does(
    schedule: Any, more: dict[str, str], notes: list[str]
) -> None:
    found = shown(schedule, "Europe/Berlin", 10_000, datetime(2027, 1, 1, tzinfo=UTC), **more)
    assert found.notes == notes
    assert found.dst_days == ([date(2026, 3, 29), date(2026, 10, 25)] if notes else [])


def test_what_the_note_says_is_what_the_times_do() -> None:
    found = shown({"cron": "30 2 * * *"}, "Europe/Berlin", 100, datetime(2026, 4, 1, tzinfo=UTC))
    assert datetime(2026, 3, 29, 1, 0, tzinfo=UTC) in found.times


AUTUMN_DAY = date(2026, 10, 25)
FIRST_PASS = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def berlin(cron: str, start: datetime, end: datetime | None = None, count: int = 10) -> Preview:
    return preview(parse_timing({"cron": cron}, "Europe/Berlin", now=NOW, seed=1), start, end, count)


def test_a_repeated_hour_is_named_when_the_last_time_shown_lies_in_its_first_pass() -> None:
    for found in (
        berlin("30 2 * * *", FIRST_PASS, count=1),
        berlin("30 2 * * *", FIRST_PASS - timedelta(days=2), end=FIRST_PASS),
        berlin("*/10 * * * *", FIRST_PASS - timedelta(hours=1), count=7),
    ):
        assert found.times[-1] == FIRST_PASS
        assert found.dst_days == [AUTUMN_DAY]
        assert re.search("comes? twice", found.notes[0])


def test_a_clock_change_is_named_when_the_times_are_asked_for_from_the_very_jump_on() -> None:
    autumn, spring = datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2027, 3, 28, 1, tzinfo=UTC)
    assert berlin("30 2 * * *", autumn).dst_days[0] == AUTUMN_DAY
    assert berlin("30 2 * * *", spring).dst_days[0] == date(2027, 3, 28)
    assert berlin("30 2 * * *", spring).times[0] == spring
    assert berlin("30 2 * * *", autumn + timedelta(hours=1, seconds=1), count=3).dst_days == []
    assert berlin("30 2 * * *", spring + timedelta(seconds=1), count=3).dst_days == []


def test_clock_changes_are_named_however_far_ahead() -> None:
    for start, count in ((NOW, 2000), (datetime(2060, 1, 1, tzinfo=UTC), 400), (datetime(2199, 1, 1, tzinfo=UTC), 600)):
        found = berlin("30 2 * * *", start, count=count)
        last = found.times[-1].date()
        years = range(start.year, last.year + 1)
        expected = [last_sunday(year, month) for year in years for month in (3, 10)]
        assert found.dst_days == [day for day in expected if start.date() <= day <= last]


def last_sunday(year: int, month: int) -> date:
    last = date(year, month, 31)
    return last - timedelta(days=last.isoweekday() % 7)


def test_of_very_many_clock_changes_the_first_are_noted_and_the_others_counted() -> None:
    found = berlin("30 2 * * *", NOW, count=8000)
    assert len(found.dst_days) > 40
    assert found.notes[-1] == f"and {len(found.dst_days) - 20} more days on which the clock changes"


def test_a_skipped_calendar_day_is_named_too() -> None:
    timing = parse_timing({"cron": "0 9 * * *"}, "Pacific/Apia", now=datetime(2011, 12, 1, tzinfo=UTC), seed=0)
    start = datetime(2011, 12, 28, tzinfo=UTC)
    found = preview(timing, start, start + timedelta(days=5), 50)
    [note] = found.notes
    assert found.dst_days == [date(2011, 12, 30)]
    assert note == (
        "2011-12-30: the clock goes from 00:00 forward to 2011-12-31 00:00; "
        "09:00 does not exist and is due at 2011-12-31 00:00 instead (gap: fire_after)"
    )


def test_a_clock_set_back_over_midnight_is_named_by_the_day_whose_times_come_twice() -> None:
    timing = parse_timing({"cron": "30 23 * * *"}, "America/Asuncion", now=datetime(2020, 1, 1, tzinfo=UTC), seed=0)
    start = datetime(2020, 3, 20, tzinfo=UTC)
    found = preview(timing, start, start + timedelta(days=5), 50)
    assert found.dst_days == [date(2020, 3, 21)]
    assert found.notes[0].startswith(
        "2020-03-21: the clock goes from 00:00 back to 2020-03-21 23:00; 23:30 comes twice"
    )


def test_calendars_that_leave_nothing_get_a_note() -> None:
    timing = parse_timing({"cron": "0 9 * * *"}, now=NOW, seed=0, calendars=["x"])
    never = around(timing, {"x": read_calendar(weekly=[{"day": "MON-SUN"}])})
    assert preview(never, NOW, None, 5).notes == ["the calendars leave out every due time, so it never falls due (x)"]
    weekend = around(timing, {"x": read_calendar(weekly=[{"day": "SAT-SUN"}])})
    sunday = NOW + timedelta(hours=20)
    assert preview(weekend, NOW, sunday, 5).notes == [
        "the calendars leave out every due time of the stretch that is asked for (x)"
    ]
    assert preview(weekend, NOW + timedelta(hours=10), sunday, 5).notes == []


HALF_HOURS = {"weekly": [{"day": "MON-SUN", "from": f"{hour:02d}:00", "to": f"{hour:02d}:30"} for hour in range(24)]}
FIFTY = [{"cron": f"{place % 30} {'*' if place < 30 else place % 24} * * *"} for place in range(50)]


def test_a_search_among_what_calendars_leave_out_ends_and_says_so() -> None:
    dates = [(date(2026, 3, 3) + timedelta(days=2 * place)).isoformat() for place in range(4300)]
    timing = parse_timing(FIFTY, now=NOW, seed=0, calendars=["x"])
    begun = process_time()
    found = preview(around(timing, {"x": read_calendar(dates=dates, **HALF_HOURS)}), NOW, None, 500)
    assert process_time() - begun < 1.0
    assert (found.times, found.more) == ([], True)
    assert found.notes[-1].startswith("no time was found")


def test_a_search_that_ends_early_shows_what_it_has_found() -> None:
    timing = parse_timing([{"cron": "0 * * * *"}, {"cron": "45 8 1 6 *"}], now=NOW, seed=0, calendars=["x"])
    found = preview(around(timing, {"x": read_calendar(**HALF_HOURS)}), NOW, None, 500)
    assert found.times[0] == datetime(2026, 6, 1, 8, 45, tzinfo=UTC)
    assert (len(found.times), found.more) == (1, True)
    assert found.notes[-1].startswith("the search ended here")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_preview_of_a_union_asks_each_schedule_when_its_time_has_come(zone: str, monkeypatch: Any) -> None:
    timing = parse_timing([{"cron": f"{minute} {minute % 24} * * *"} for minute in range(50)], zone, now=NOW, seed=0)
    one_by_one = [due := timing.next_after(NOW - timedelta(microseconds=1))]
    while len(one_by_one) < 500:
        assert due is not None
        one_by_one.append(due := timing.next_after(due))
    asked = []
    really = CronSchedule.next_after
    monkeypatch.setattr(CronSchedule, "next_after", lambda *given: asked.append(given) or really(*given))
    assert preview(timing, NOW, None, 500).times == one_by_one
    assert len(asked) < 600


def test_both_day_fields_get_a_note_that_either_is_enough() -> None:
    [note] = shown({"cron": "0 0 13 * FRI"}).notes
    assert "either is enough" in note


@pytest.mark.parametrize(("text", "field"), [("0 0 */2 * FRI", "*/2"), ("0 0 0 13 * */3", "*/3")])
def test_a_day_field_that_begins_with_a_star_beside_another_gets_a_note_that_both_must_match(
    text: str, field: str
) -> None:
    [note] = shown({"cron": text}).notes
    assert note.startswith(f"{text}: {field} begins with * and so counts as no restriction")
    assert note.endswith("day of month and weekday must both match")


@pytest.mark.parametrize("text", ["0 0 */2 * *", "0 0 * * */2", "0 0 ? * FRI", "0 0 */1 * FRI", "@weekly"])
def test_one_day_field_alone_needs_no_note(text: str) -> None:
    assert shown({"cron": text}).notes == []


def test_a_schedule_with_both_day_fields_and_h_gets_a_note_for_each() -> None:
    either, fixed = shown({"cron": "H H 13 * FRI"}).notes
    assert "either is enough" in either
    assert "fixed by the job's id" in fixed


def test_h_and_what_counts_real_time_get_notes() -> None:
    assert "fixed by the job's id" in shown({"cron": "H 3 * * *"}).notes[0]
    assert "counts real time" in shown({"every": "1d"}, "Europe/Berlin").notes[0]
    assert "set when the run before it has ended" in shown({"every": "1h", "after": "completion"}).notes[0]
    assert "months without a day 31" in shown({"monthly": "2026-01-31T09:00"}).notes[0]


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"cron": "0 2 * * *"}, "At 02:00 every day (Europe/Berlin)"),
        ({"rrule": "FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9"}, "Every month on the second Tuesday, at 09:00, from 2026-03-01 00:00 on (Europe/Berlin)"),
        ({"weekly": "2026-03-03T02:30"}, "Every week on Tuesday, at 02:30, from 2026-03-03 02:30 on (Europe/Berlin)"),
        ({"every": "15m"}, "Every 15 minutes, counted from 2026-03-01T00:15:00Z"),
        ({"every": "15m", "after": "completion"}, "15 minutes after each run has ended, the first at 2026-03-01T00:15:00Z"),
        ({"at": "2026-03-02T00:00:00Z"}, "Once, at 2026-03-02T00:00:00Z"),
        (
            [{"cron": "0 2 * * *"}, {"cron": "0 14 * * SAT"}],
            "At 02:00 every day; and at 14:00 on Saturday (Europe/Berlin)",
        ),
    ],
)  # fmt: skip
def test_schedules_are_said_in_words(schedule: Any, words: str) -> None:
    assert timing_words(parse_timing(schedule, "Europe/Berlin", now=NOW, seed=1)) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute every day"),
        ("*/15 * * * *", "every 15 minutes every day"),
        ("* * * * * *", "every second every day"),
        ("5 * * * *", "minute 5 of every hour every day"),
        ("0,30 9-17 * * MON-FRI", "minutes 0 and 30 of hour 9 to 17 on Monday to Friday"),
        ("0 0,12 * * *", "at 00:00 and 12:00 every day"),
        ("30 15 6 * * *", "at 06:15:30 every day"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "at 00:00 on the day 3 days before the last day of the month"),
        ("0 0 L-1,L-0 * *", "at 00:00 on the day 1 day before the last day and the last day of the month"),
        ("0 0 L-3W * *", "at 00:00 on the working day nearest to the day 3 days before the last day of the month"),
        ("0 0 * * 0-7", "at 00:00 every day"),
        ("0 0 * * MON-SUN", "at 00:00 every day"),
        ("0 0 * * 0,7", "at 00:00 on Sunday"),
        ("0 0 * * */7", "at 00:00 on Sunday"),
        ("0 0 1 */12 *", "at 00:00 on day 1 of the month in January"),
        ("*/60 * * * *", "minute 0 of every hour every day"),
        ("0 0 1,1 * *", "at 00:00 on day 1 of the month"),
        ("0 0 * * 5/2", "at 00:00 on Friday and Sunday"),
        ("0 0 * * 5/1", "at 00:00 on Friday to Sunday"),
        ("5/1 * * * *", "minute 5 to 59 of every hour every day"),
        ("0 0 H/10 * *", "at 00:00 on a day fixed by the job's id and each 10 after it up to 28 of the month"),
        (
            "H(0-29)/10 * * * *",
            "every 10 minutes between 0 and 29 from one fixed by the job's id of every hour every day",
        ),
        ("0 0 LW * *", "at 00:00 on the last working day (Monday to Friday) of the month"),
        ("0 0 15W * *", "at 00:00 on the working day nearest to day 15 of the month"),
        ("0 0 * * MON#2", "at 00:00 on the second Monday of the month"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month and also on Friday"),
        ("0 0 */2 * FRI", "at 00:00 on every 2 days from 1 to 31 of the month, if that is Friday"),
        ("*/40 * * * *", "minutes 0 and 40 of every hour every day"),
        ("*/7 9 * * *", "minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of hour 9 every day"),
        ("*/59 * * * *", "minutes 0 and 59 of every hour every day"),
        ("*/20 * * * * *", "every 20 seconds every day"),
        ("*/25 * * * * *", "seconds 0, 25 and 50 of every minute every day"),
        ("30 * * * * *", "second 30 of every minute every day"),
        ("5/15 * * * *", "every 15 minutes from 5 of every hour every day"),
        ("5/40 * * * *", "minutes 5 and 45 of every hour every day"),
        ("30/15 * * * *", "minutes 30 and 45 of every hour every day"),
        ("0 */5 * * *", "minute 0 of hours 0, 5, 10, 15 and 20 every day"),
        ("0 */6 * * *", "minute 0 of every 6 hours every day"),
        ("0 0 */10 * *", "at 00:00 on days 1, 11, 21 and 31 of the month"),
        ("0 0 1 */5 *", "at 00:00 on day 1 of the month in January, June and November"),
        ("0 0 1 */3 *", "at 00:00 on day 1 of the month in every 3 months"),
        ("0 0 * * */2", "at 00:00 on Sunday, Tuesday, Thursday and Saturday"),
        ("H/40 * * * *", "a minute fixed by the job's id and each 40 after it up to 59 of every hour every day"),
        ("H/15 * * * *", "every 15 minutes from a minute fixed by the job's id of every hour every day"),
        ("0 0 1 1,7 *", "at 00:00 on day 1 of the month in January and July"),
        ("H H(0-5) * * *", "a minute fixed by the job's id of an hour between 0 and 5 fixed by the job's id every day"),
        ("@weekly", "at 00:00 on Sunday"),
    ],
)
def test_cron_is_said_in_words(text: str, words: str) -> None:
    assert cron_words(text) == words


@pytest.mark.parametrize(("field", "count"), [(0, 60), (1, 60), (2, 24)])
def test_every_n_is_said_only_where_the_times_are_n_apart(field: int, count: int) -> None:
    unit = ("second", "minute", "hour")[field]
    for step in range(2, count):
        fields = ["0"] * field + [f"*/{step}"] + ["*"] * (5 - field)
        times = shown({"cron": " ".join(fields)}, count=2 * count).times
        apart = {after - before for before, after in pairwise(times)}
        if re.search(rf"every {step} {unit}s(?! from)", cron_words(" ".join(fields))):
            assert apart == {timedelta(**{f"{unit}s": step})}
        else:
            assert len(apart) > 1


@pytest.mark.parametrize(
    ("schedule", "zone"),
    [
        ({"cron": "* * * * *"}, "Europe/Berlin"),
        ({"cron": "0 2 * * *"}, "America/New_York"),
        ({"cron": "0 2 L * *"}, "Australia/Lord_Howe"),
        ({"monthly": "2026-01-31T09:00"}, "Africa/Casablanca"),
        ({"rrule": "FREQ=HOURLY;INTERVAL=7;BYMINUTE=0,13"}, "Asia/Tehran"),
    ],
)
def test_500_times_are_shown_in_a_blink(schedule: Any, zone: str) -> None:
    """Whether within the 20 ms that are promised, `benchmarks/stored_crons.py` says; here nothing takes many times as
    long, whatever the machine is busy with."""
    timing = parse_timing(schedule, zone, now=NOW, seed=1)
    taken = []
    for _ in range(3):  # the fastest of three: the machine may be busy with others
        began = process_time()
        assert len(preview(timing, NOW, None, 500).times) == 500
        taken.append(process_time() - began)
    assert min(taken) <= 0.1


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("step", range(1, 8))
def test_the_weekdays_that_are_said_are_those_on_which_it_falls_due(first: int, step: int) -> None:
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    for text in (f"{first}/{step}", f"*/{step}"):
        try:
            found = shown({"cron": f"0 0 * * {text}"}, count=14)
        except InvalidFields:  # a step that leads nowhere
            continue
        due = {names[time.weekday()] for time in found.times}
        said = re.findall(r"(\w+day)(?: to (\w+day))?", found.words)
        told: set[str] = set()
        for begin, end in said:
            low = names.index(begin)
            high = names.index(end) if end else low
            told |= {names[at % 7] for at in range(low, (high if high >= low else high + 7) + 1)}
        assert told == due or (due == set(names) and "every day" in found.words), found.words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("FREQ=YEARLY;BYDAY=20MO", "on Monday number 20 of the year"),
        ("FREQ=YEARLY;BYDAY=-1SU", "on the last Sunday of the year"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "on the last Sunday of the month, in March"),
        (
            "FREQ=MONTHLY;BYDAY=2TU,-3FR",
            "on the second Tuesday and Friday number 3 from the end, at",
        ),
        ("FREQ=DAILY;BYDAY=MO", "Every day if it is Monday, at"),
    ],
)
def test_the_weekdays_of_rules_are_said_with_the_period_in_which_they_are_counted(rule: str, words: str) -> None:
    assert words in shown({"rrule": rule, "first": "2026-03-02T09:00"}).words


@pytest.mark.parametrize(
    ("schedule", "notes"),
    [
        ({"monthly": "2026-01-31T09:00"}, ["months without a day 31 are passed over"]),
        ({"rrule": "FREQ=MONTHLY;BYMONTHDAY=30,31"}, ["months without any of the days 30, 31 are passed over"]),
        ({"rrule": "FREQ=YEARLY;BYMONTHDAY=31"}, ["months without a day 31 are passed over"]),
        ({"rrule": "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31"}, []),
        ({"rrule": "FREQ=MONTHLY;BYMONTHDAY=15,31"}, []),
        ({"yearly": "2028-02-29T09:00"}, ["only leap years have a February 29"]),
        ({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"}, ["only leap years have a February 29"]),
        ({"yearly": "2026-03-31T09:00"}, []),
        (
            {"rrule": "FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR"},
            ["day of month and weekday are both set and must both match"],
        ),
    ],
)
def test_rules_have_notes_on_days_that_are_rarer_than_they_look(schedule: dict[str, str], notes: list[str]) -> None:
    given = {"first": "2026-03-02T09:00", **schedule} if "rrule" in schedule else schedule
    found = shown(given, zone="UTC").notes
    assert len(found) == len(notes)
    assert all(told.startswith(note) for told, note in zip(found, notes, strict=True))


def test_a_preview_tells_of_the_bounds_of_the_schedule() -> None:
    timing = parse_timing(
        {"daily": "2026-03-02T09:00"}, now=NOW, seed=0, start_at="2026-03-05T00:00:00Z", end_at="2026-03-07T00:00:00Z"
    )
    assert preview(timing, NOW, None, 10).notes == [
        "nothing is due before 2026-03-05T00:00:00Z (start_at)",
        "nothing is due after 2026-03-07T00:00:00Z (end_at)",
    ]


def test_a_preview_says_never_and_too_far_as_the_creation_of_a_job_does() -> None:
    never = parse_timing({"cron": "0 9 * * SAT"}, now=NOW, seed=0, calendars=["x"])
    found = preview(around(never, {"x": read_calendar(weekly=[{"day": "SAT"}])}), NOW, None, 10)
    assert (found.times, found.more) == ([], False)
    assert found.notes == ["the calendars leave out every due time, so it never falls due (x)"]

    slow = {"every": "86399s", "anchor": "2026-03-01T08:00:00Z"}
    rule = read_calendar(weekly=[{"day": "MON-SUN", "from": "00:01", "to": "00:00"}])
    found = preview(around(parse_timing(slow, now=NOW, seed=0, calendars=["x"]), {"x": rule}), NOW, None, 10)
    assert (found.times, found.more) == ([], True)
    assert found.notes[-1].startswith("no time was found")

    later = slow | {"anchor": "2026-03-01T03:00:00Z"}  # beyond what a preview walks over
    found = preview(around(parse_timing(later, now=NOW, seed=0, calendars=["x"]), {"x": rule}), NOW, None, 10)
    assert [time.isoformat() for time in found.times] == ["2055-07-28T00:00:59+00:00"]
    assert found.more
