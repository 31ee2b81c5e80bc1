"""Events of iCalendar files as times that are left out."""

# ruff: noqa: E501 - rows of tables stay on one line

from datetime import UTC, date, datetime

import pytest

from hourhand.model.icalendar import ICalendarFault, import_icalendar, read_icalendar

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
