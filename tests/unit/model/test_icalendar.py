"""Events of iCalendar files as times that are left out."""

# ruff: noqa: E501 - rows of tables stay on one line

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from hourhand.model import icalendar
from hourhand.model.icalendar import ICalendarFault, import_icalendar, read_icalendar
from hourhand.model.icalendar_text import split_line, unfolded
from hourhand.model.steps import Steps

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def events(*texts: str) -> str:
    body = "".join(f"BEGIN:VEVENT\r\n{text.strip()}\r\nEND:VEVENT\r\n" for text in texts)
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{body}END:VCALENDAR\r\n"


def test_whole_days_become_dates() -> None:
    rule = read_icalendar(
        events(
            "DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261227\nSUMMARY:Christmas\nTRANSP:TRANSPARENT",
            "DTSTART;VALUE=DATE:20270101",
        ),
        "Europe/Berlin",
        NOW,
    )
    assert rule.dates == (date(2026, 12, 25), date(2026, 12, 26), date(2027, 1, 1))
    assert rule.blackouts == ()
    assert rule.zone == "Europe/Berlin"


def test_timed_events_become_blackouts_by_the_zone_they_name() -> None:
    rule = read_icalendar(
        events(
            "DTSTART;TZID=America/New_York:20261224T180000\nDTEND;TZID=America/New_York:20261224T200000\nSUMMARY:Move\\, all",
            "DTSTART:20261224T090000\nDURATION:PT90M",
            "DTSTART:20261224T090000Z\nDTEND:20261224T093000Z",
        ),
        "Europe/Berlin",
        NOW,
    )
    assert [(each.begin, each.end - each.begin) for each in rule.blackouts] == [
        (datetime(2026, 12, 24, 8, tzinfo=UTC), datetime(1, 1, 1, 1, 30) - datetime(1, 1, 1)),  # noqa: DTZ001
        (datetime(2026, 12, 24, 9, tzinfo=UTC), datetime(1, 1, 1, 0, 30) - datetime(1, 1, 1)),  # noqa: DTZ001
        (datetime(2026, 12, 24, 23, tzinfo=UTC), datetime(1, 1, 1, 2) - datetime(1, 1, 1)),  # noqa: DTZ001
    ]
    assert rule.blackouts[2].reason == "Move, all"


def test_repeated_events_are_followed_without_those_taken_out() -> None:
    rule = read_icalendar(
        events("DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20280101"), None, NOW
    )
    assert [day.year for day in rule.dates] == [2026, 2027, *range(2029, 2037)]


def test_folded_lines_alarms_and_cancelled_events_are_understood() -> None:
    folded = "DTSTART;VALUE=DATE:2026\r\n 1231\nBEGIN:VALARM\nDTSTART:nonsense\nEND:VALARM"
    rule = read_icalendar(events(folded, "DTSTART;VALUE=DATE:20260601\nSTATUS:CANCELLED"), None, NOW)
    assert rule.dates == (date(2026, 12, 31),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "line 1: an iCalendar file begins with BEGIN:VCALENDAR"),
        ("BEGIN:VCALENDAR\nEND:VCALENDAR", "no event"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101", "line 2: the event has no END:VEVENT"),
        ("BEGIN:VCALENDAR\nEND:VEVENT", "line 2: END:VEVENT without"),
        (events("SUMMARY:x"), "no DTSTART"),
        (events("DTSTART:soon"), "'soon' is neither a date nor a time"),
        (events("DTSTART:00010101"), "the year must lie between"),
        (events("DTSTART:20260101\nRRULE:FREQ=NEVER"), "RRULE: there is no FREQ=NEVER"),
        (events("DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY\nDURATION:PT1S"), "more than a calendar holds"),
        (events("DTSTART:20260101T000000\nDURATION:P1M"), "DURATION"),
        (events("no colon here"), "is not NAME:VALUE"),
        ("x" * (1 << 20 | 1), "at most"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_the_line(text: str, said: str) -> None:
    with pytest.raises(ICalendarFault) as caught:
        read_icalendar(text, None, NOW)
    assert said in str(caught.value)


def test_an_import_says_until_when_repeated_events_are_followed_if_they_go_on() -> None:
    for rule, goes_on in (("FREQ=YEARLY", True), ("FREQ=YEARLY;COUNT=3", False), (None, False)):
        lines = "DTSTART;VALUE=DATE:20261225" + (f"\nRRULE:{rule}" if rule else "")
        imported = import_icalendar(events(lines), None, NOW)
        assert len(imported.rule.dates) == {"FREQ=YEARLY": 10, "FREQ=YEARLY;COUNT=3": 3, None: 1}[rule]
        assert imported.notes == goes_on * [
            "repeated events are followed for 10 years, until 2036-05-11; import the file again before then"
        ]


# --- single times of repeated events ----------------------------------------------------------------------

WEEKLY = "UID:a\nDTSTART;TZID=Europe/Berlin:20260601T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3"


def begins(*texts: str, zone: str | None = None) -> list[str]:
    return [f"{each.begin:%m-%dT%H:%M}" for each in read_icalendar(events(*texts), zone, NOW).blackouts]


def test_a_moved_time_of_a_repeated_event_is_left_out_where_it_was_moved_to_only() -> None:
    for stands_for in (
        "RECURRENCE-ID;TZID=Europe/Berlin:20260608T090000",
        "RECURRENCE-ID:20260608T070000Z",
        "RECURRENCE-ID;VALUE=DATE:20260608",
    ):
        moved = f"UID:a\n{stands_for}\nDTSTART;TZID=Europe/Berlin:20260609T150000\nDURATION:PT2H"
        assert begins(WEEKLY, moved) == ["06-01T07:00", "06-09T13:00", "06-15T07:00"], stands_for
        assert begins(moved, WEEKLY) == begins(WEEKLY, moved), "in whatever order the file has them"


def test_a_cancelled_time_of_a_repeated_event_is_not_left_out() -> None:
    for more in ("STATUS:CANCELLED\nDTSTART;TZID=Europe/Berlin:20260608T090000", "STATUS:CANCELLED"):
        gone = f"UID:a\nRECURRENCE-ID;TZID=Europe/Berlin:20260608T090000\n{more}"
        assert begins(WEEKLY, gone) == ["06-01T07:00", "06-15T07:00"]


def test_a_change_belongs_to_the_event_with_its_uid_only() -> None:
    other = WEEKLY.replace("UID:a", "UID:b").replace("T09", "T10")
    moved = "UID:b\nRECURRENCE-ID;VALUE=DATE:20260608\nSTATUS:CANCELLED"
    assert begins(WEEKLY, other, moved) == ["06-01T07:00", "06-01T08:00", "06-08T07:00", "06-15T07:00", "06-15T08:00"]


def test_a_change_of_whole_days_moves_the_date() -> None:
    days = "UID:a\nDTSTART;VALUE=DATE:20260601\nRRULE:FREQ=WEEKLY;COUNT=3"
    moved = "UID:a\nRECURRENCE-ID;VALUE=DATE:20260608\nDTSTART;VALUE=DATE:20260610"
    assert [day.day for day in read_icalendar(events(days, moved), None, NOW).dates] == [1, 10, 15]


def test_a_change_from_a_time_on_holds_for_all_that_follow() -> None:
    later = (
        "UID:a\nRECURRENCE-ID;RANGE=THISANDFUTURE;TZID=Europe/Berlin:20260608T090000\n"
        "DTSTART;TZID=Europe/Berlin:20260608T110000\nDURATION:PT3H"
    )
    rule = read_icalendar(events(WEEKLY, later), None, NOW)
    assert [(each.begin.day, each.begin.hour, (each.end - each.begin).seconds // 3600) for each in rule.blackouts] == [
        (1, 7, 1), (8, 9, 3), (15, 9, 3),
    ]  # fmt: skip
    assert begins(WEEKLY, later + "\nSTATUS:CANCELLED") == ["06-01T07:00"]


def test_times_that_the_file_adds_are_left_out_too() -> None:
    added = "RDATE;TZID=Europe/Berlin:20260603T090000,20260604T090000\nRDATE:20260605T070000Z"
    once = "DTSTART;TZID=Europe/Berlin:20260601T090000\nDURATION:PT1H"
    assert begins(f"{once}\n{added}") == ["06-01T07:00", "06-03T07:00", "06-04T07:00", "06-05T07:00"]
    assert begins(f"{once}\nRRULE:FREQ=WEEKLY;COUNT=2\n{added}\nEXDATE:20260604T070000Z") == [
        "06-01T07:00", "06-03T07:00", "06-05T07:00", "06-08T07:00",
    ]  # fmt: skip
    days = read_icalendar(events("DTSTART;VALUE=DATE:20260601\nRDATE;VALUE=DATE:20260603,20260701"), None, NOW)
    assert [(day.month, day.day) for day in days.dates] == [(6, 1), (6, 3), (7, 1)]


def test_periods_that_the_file_adds_have_their_own_length() -> None:
    rule = read_icalendar(
        events(
            "DTSTART:20260601T090000Z\nDURATION:PT1H\nRDATE;VALUE=PERIOD:20260602T090000Z/PT3H,20260603T090000Z/20260603T093000Z"
        ),
        None,
        NOW,
    )
    assert [each.end - each.begin for each in rule.blackouts] == [timedelta(minutes=each) for each in (60, 180, 30)]


def test_times_are_taken_out_by_whichever_clock_they_are_written() -> None:
    for left_out in (
        "EXDATE;TZID=Europe/Berlin:20260608T090000",
        "EXDATE:20260608T070000Z",
        "EXDATE;VALUE=DATE:20260608",
    ):
        assert begins(f"{WEEKLY}\n{left_out}") == ["06-01T07:00", "06-15T07:00"], left_out


def test_a_rule_that_ends_with_an_instant_ends_there_on_the_night_of_a_clock_change_too() -> None:
    lines = "DTSTART;TZID=Europe/Berlin:20261025T000000\nDURATION:PT5M\nRRULE:FREQ=HOURLY;UNTIL=20261025T003000Z"
    assert begins(lines) == ["10-24T22:00", "10-24T23:00", "10-25T00:00"]


def test_a_repeated_event_from_long_ago_is_followed_from_a_year_ago() -> None:
    rule = read_icalendar(events("DTSTART;VALUE=DATE:19710101\nRRULE:FREQ=WEEKLY;INTERVAL=2"), None, NOW)
    assert rule.dates[0] == date(2025, 5, 9)
    assert len(rule.dates) < 300


def test_an_event_that_ends_beyond_what_is_planned_is_refused() -> None:
    with pytest.raises(ICalendarFault, match="ends after the year"):
        read_icalendar(events("DTSTART:20260101T000000\nDURATION:P366000D"), None, NOW)


# --- files that would take long ---------------------------------------------------------------------------


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions are called, those of the interpreter included. Each of them looks once at what it is given."""
    count = 0

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "line",
    [
        "A" + ";aaaa" * 20_000,
        "A" + ';a="' * 25_000,
        "A" + ';a="";' * 20_000,
        '"' * 100_000,
        "A;" + '":"' * 33_000,
        "A;a=" + ":" * 100_000,
    ],
)
def test_a_hostile_line_of_100_kb_is_taken_apart_at_once(line: str) -> None:
    """In a few steps for each of its parts, however they are put together, and none for each pair of them."""
    pieces = line.count('"') + line.count(";") + 2
    assert calls_of(lambda: split_line(line)) <= 12 * pieces


@pytest.mark.parametrize(
    ("line", "name", "parameters", "value"),
    [
        ("SUMMARY:a:b", "SUMMARY", {}, "a:b"),
        ('attendee;CN="Doe: J;x";ROLE=CHAIR:mailto:a@b', "ATTENDEE", {"CN": "Doe: J;x", "ROLE": "CHAIR"}, "mailto:a@b"),
        ('ATTENDEE;CN=5" disk:mailto:a@b', "ATTENDEE", {"CN": "5 disk"}, "mailto:a@b"),
        ("DTSTART;TZID=Europe/Berlin:20260601T090000 ", "DTSTART", {"TZID": "Europe/Berlin"}, "20260601T090000"),
        ("SUMMARY:", "SUMMARY", {}, ""),
    ],
)
def test_a_line_is_a_name_with_parameters_and_a_value(
    line: str, name: str, parameters: dict[str, str], value: str
) -> None:
    assert split_line(line) == (name, (value, parameters))


def test_a_file_with_a_hostile_line_is_refused() -> None:
    with pytest.raises(ICalendarFault, match="is not NAME:VALUE"):
        read_icalendar(events("DTSTART:20260101", "A" + ";aaaa" * 20_000), None, NOW)


def test_a_line_folded_a_hundred_thousand_times_is_put_together_once() -> None:
    text = "A:\n" + " x\n" * 100_000
    assert calls_of(lambda: unfolded(text)) <= 4 * 100_001
    assert unfolded(text) == [(1, "A:" + "x" * 100_000)]


def steps_of(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps the import takes of those it has."""
    made: list[Steps] = []

    def counted(most: int) -> Steps:
        made.append(Steps(most))
        return made[-1]

    monkeypatch.setattr(icalendar, "Steps", counted)
    import_icalendar(text, None, NOW)
    return icalendar.STEPS_MAX - made[0].left


def test_ten_thousand_events_from_long_ago_without_a_length_take_a_step_each(monkeypatch: pytest.MonkeyPatch) -> None:
    event = "DTSTART:19710101T000000\nRRULE:FREQ=DAILY"
    assert steps_of(events(*[event] * 10_000), monkeypatch) <= 10_000


def test_a_rule_from_long_ago_takes_no_more_than_one_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    old, young = (
        steps_of(events(f"DTSTART;VALUE=DATE:{year}0101\nRRULE:FREQ=MONTHLY"), monkeypatch) for year in (1971, 2025)
    )
    assert old <= young + 20


ALL = "BYHOUR=" + ",".join(map(str, range(24))) + ";BYMINUTE=" + ",".join(map(str, range(60)))


@pytest.mark.parametrize(
    "event",
    [
        "DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=DAILY",
        "DTSTART:19710101T000000\nDURATION:PT1M\nRRULE:FREQ=DAILY;COUNT=10000",
        "DTSTART:20260101T000000\nDURATION:PT1M\nRRULE:FREQ=SECONDLY;INTERVAL=86399;BYHOUR=3;BYMINUTE=3;BYSECOND=3",
        f"DTSTART:20260101T000000\nDURATION:PT1M\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;{ALL};BYSETPOS=1",
        f"DTSTART:20260101T000000\nDURATION:PT1M\nRRULE:FREQ=DAILY;UNTIL=20260102;{ALL};BYSETPOS=" + ",".join(map(str, range(1, 60))),
        "DTSTART;VALUE=DATE:20260101\nEXDATE;VALUE=DATE:" + ",".join(["20260102"] * 100),
        "DTSTART;VALUE=DATE:20260101\nRDATE;VALUE=DATE:" + ",".join(["20260101"] * 100),
    ],
)  # fmt: skip
def test_events_that_take_too_much_work_are_refused_with_the_line_and_what_to_do(event: str) -> None:
    count = min(icalendar.BYTES_MAX // (len(event) + 40), icalendar.EVENTS_MAX)
    with pytest.raises(ICalendarFault) as caught:
        read_icalendar(events(*[event] * count), None, NOW)
    said = str(caught.value)
    assert "too much work" in said or "more than a calendar holds" in said
    assert said.startswith("line ")


@pytest.mark.parametrize(
    "event",
    [
        "DTSTART:20260301T090000",
        "DTSTART:20260301T090000\nDTEND:20260301T100000\nTRANSP:TRANSPARENT",
        "DTSTART:20260301T090000\nDTEND:20260301T100000\nSTATUS:CANCELLED",
    ],
)
def test_a_file_that_leaves_out_nothing_is_told_of(event: str) -> None:
    imported = icalendar.import_icalendar(events(event), None, NOW)
    assert not imported.rule.blackouts
    assert [note.partition(":")[0] for note in imported.notes] == ["nothing is left out"]
    assert not icalendar.import_icalendar(events("DTSTART;VALUE=DATE:20260301"), None, NOW).notes
