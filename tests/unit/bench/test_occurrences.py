"""What must fall due is counted without the product's cron code, and agrees with it."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from hourhand.bench.occurrences import (
    MINUTE,
    ZONES,
    Expression,
    due_times,
    expected_keys,
    expressions,
    jobs_for,
    key_of,
)
from hourhand.bench.recurring import seen_keys, unexpected
from hourhand.bench.witness import Witnessed, compare
from hourhand.model.schedule_form import parse_timing

BEGIN = int(datetime(2026, 11, 16, 9, 59, 20, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("rate", "jobs_min", "jobs", "often"), [(5000, 10_000, 10_020, 30), (1000, 10_000, 10_020, 6), (10, 10_000, 600, 1)]
)
def test_jobs_are_enough_and_make_the_rate(rate: float, jobs_min: int, jobs: int, often: int) -> None:
    assert jobs_for(rate, jobs_min) == (jobs, often)
    assert jobs * often / MINUTE == pytest.approx(rate, rel=0.01)


def test_ten_thousand_expressions_are_distinct_in_more_than_twenty_zones() -> None:
    found = expressions(10_020, 30, BEGIN, 120)
    assert len({(each.text, each.zone) for each in found}) == len({each.text for each in found}) == 10_020
    assert {each.zone for each in found} == set(ZONES)
    assert len(ZONES) >= 20


def test_every_second_has_the_same_number_of_occurrences() -> None:
    found = expressions(600, 6, BEGIN, 70)
    counts = Counter(due for each in found for due in due_times(each, BEGIN, BEGIN + 70))
    assert counts == dict.fromkeys(range(BEGIN, BEGIN + 70), 60)


def test_the_product_finds_the_same_due_times() -> None:
    """Across a full hour, so that the hours of the zones matter."""
    end = BEGIN + 100
    for each in expressions(600, 3, BEGIN, 100)[::7]:
        timing = parse_timing({"cron": each.text}, each.zone, now=datetime.fromtimestamp(BEGIN, UTC), seed=1)
        found, moment = [], datetime.fromtimestamp(BEGIN, UTC) - timedelta(microseconds=1)
        while (due := timing.next_after(moment)) is not None and due.timestamp() < end:
            found.append(int(due.timestamp()))
            moment = due
        assert found == list(due_times(each, BEGIN, end)), each


def test_hours_of_a_zone_are_obeyed() -> None:
    # 10:00 UTC is 15:30 in Kolkata and 11:00 in Berlin.
    kolkata, berlin = Expression((0,), (15,), "Asia/Kolkata"), Expression((0,), (11,), "Europe/Berlin")
    full = BEGIN + 40
    assert list(due_times(kolkata, BEGIN, BEGIN + 60)) == [full]
    assert list(due_times(berlin, BEGIN, BEGIN + 60)) == [full]
    assert list(due_times(Expression((0,), (10,), "Europe/Berlin"), BEGIN, BEGIN + 60)) == []
    assert kolkata.text == "0 * 15 * * *"


def witnessed(*runs: tuple[int, int]) -> Witnessed:
    found = Witnessed()
    for low, due in runs:
        found.lows.append(low)
        found.dues.append(due)
        found.starts.append(due + 1000)
    return found


def test_an_occurrence_that_is_missing_or_comes_twice_is_noticed() -> None:
    jobs = [Expression((20, 21), None, "UTC"), Expression((21,), None, "UTC")]
    end, micros = BEGIN + 5, 1_000_000
    expected = list(expected_keys(jobs, BEGIN, end))
    assert sorted(expected) == [
        key_of(0, BEGIN, BEGIN, end),
        key_of(0, BEGIN + 1, BEGIN, end),
        key_of(1, BEGIN + 1, BEGIN, end),
    ]
    places = {77: 0, 88: 1}
    right = [(77, BEGIN * micros), (77, (BEGIN + 1) * micros), (88, (BEGIN + 1) * micros)]

    def judged(*runs: tuple[int, int]) -> tuple[int, int]:
        found = compare(expected, seen_keys(witnessed(*runs), places, BEGIN, end))
        return found["lost"], found["doubled"]

    assert judged(*right) == (0, 0)
    assert judged(*right[:2]) == (1, 0)
    assert judged(*right, right[0]) == (0, 1)
    assert judged(right[0], right[0], right[2]) == (1, 1)
    assert unexpected(witnessed(*right), BEGIN, end) == 0
    assert unexpected(witnessed(*right, (77, end * micros), (77, BEGIN * micros + 5)), BEGIN, end) == 2
