"""Periods and digests of keys."""

from datetime import UTC, datetime, timedelta

import pytest

from hourhand.model.keys import period_end, request_digest

INSTANT = datetime(2030, 1, 9, 12, 34, 56, 789, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("period", "end"),
    [
        (timedelta(seconds=1), datetime(2030, 1, 9, 12, 34, 57, tzinfo=UTC)),
        (timedelta(minutes=15), datetime(2030, 1, 9, 12, 45, tzinfo=UTC)),
        (timedelta(hours=1), datetime(2030, 1, 9, 13, tzinfo=UTC)),
        (timedelta(days=1), datetime(2030, 1, 10, tzinfo=UTC)),
        (timedelta(weeks=1), datetime(2030, 1, 14, tzinfo=UTC)),
    ],
)
def test_a_period_ends_where_the_clock_and_the_calendar_say(period: timedelta, end: datetime) -> None:
    assert period_end(INSTANT, period) == end


def test_the_first_instant_of_a_period_belongs_to_it() -> None:
    hour = timedelta(hours=1)
    start = datetime(2030, 1, 9, 12, tzinfo=UTC)
    assert period_end(start, hour) == start + hour
    assert period_end(start - timedelta(microseconds=1), hour) == start


def test_a_digest_is_of_the_whole_request() -> None:
    digests = {request_digest("/jobs", b"{}"), request_digest("/jobs", b"{ }"), request_digest("/api/v1/jobs", b"{}")}
    assert len(digests) == 3
    assert request_digest("/jobs", b"{}") in digests
