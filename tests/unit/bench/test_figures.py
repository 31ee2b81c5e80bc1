"""Percentiles, rates and intervals: each says what happened, and would notice what did not."""

from array import array

from hourhand.bench.figures import (
    by_interval,
    counts_by_interval,
    most_at_once,
    per_second,
    percentiles,
    shares,
    worst_p99,
)


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 1001)]
    assert percentiles(reversed(values)) == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0}


def test_one_slow_call_among_a_thousand_is_the_largest_and_not_the_99th() -> None:
    found = percentiles([1.0] * 999 + [5000.0])
    assert (found["p99"], found["max"]) == (1.0, 5000.0)


def test_one_slow_call_in_fifty_is_seen_by_the_99th() -> None:
    assert percentiles([1.0] * 98 + [5000.0] * 2)["p99"] == 5000.0


def test_nothing_has_percentiles_of_nothing() -> None:
    assert percentiles([]) == {"p50": 0.0, "p99": 0.0, "p99.9": 0.0, "max": 0.0}


def test_a_rate_needs_time() -> None:
    assert per_second(100, 4) == 25.0
    assert per_second(100, 0) == 0.0


def test_values_go_to_the_interval_of_their_time() -> None:
    found = by_interval([9, 10, 19, 20, 45], [0.5, 1.0, 2.0, 3.0, 4.0], begin=10, width=10)
    assert found == {0: array("d", [1.0, 2.0]), 1: array("d", [3.0]), 3: array("d", [4.0])}


def test_counts_leave_out_what_was_before() -> None:
    assert counts_by_interval([5, 10, 11, 25], begin=10, width=10) == {0: 2, 1: 1}


def test_the_worst_interval_counts_however_good_the_others_were() -> None:
    times, late = [*range(1000), *range(1000, 1010)], [1.0] * 1000 + [70.0] * 10
    assert percentiles(late)["p99"] == 1.0
    assert worst_p99(times, late, begin=0, width=1000) == 70.0
    assert worst_p99([], [], begin=0, width=1000) == 0.0


def test_shares_are_of_one_core() -> None:
    before, after = {"api": 10.0, "gone": 3.0}, {"api": 11.0, "new": 0.5}
    assert shares(before, after, 2.0) == {"api": 0.5, "new": 0.25}


def test_most_at_once_counts_what_overlaps() -> None:
    assert most_at_once([0, 1, 2, 10], [5, 6, 7, 12]) == 3
    assert most_at_once([0, 5], [5, 9]) == 1  # one ends as the other begins
    assert most_at_once([0, 1, 2], []) == 3  # none has ended
