"""Whether an overload was borne soundly; and how answers were spread over time."""

from typing import Any

import pytest

from hourhand.bench.driving import Driven
from hourhand.bench.overload import Overload, Stretch, is_sound

GOOD: dict[str, Any] = {
    "lost": 0,
    "doubled": 0,
    "early": 0,
    "broken": 0,
    "refused": 100,
    "refused_unsaid": 0,
    "not_alive": 0,
    "api_mb": 200.0,
    "api_more_mb": 240.0,
    "scheduler_mb": 60.0,
    "scheduler_more_mb": 60.0,
    "executor_mb": 100.0,
    "executor_more_mb": 110.0,
    "kept_rate": 0.8,
    "kept_starts": 0.7,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": 1},
        {"doubled": 1},
        {"early": 1},
        {"broken": 1},
        {"refused": 0},
        {"refused_unsaid": 1},
        {"not_alive": 1},
        {"api_more_mb": 400.0},
        {"api_more_mb": 0.0},
        {"scheduler_more_mb": 100.0},
        {"executor_more_mb": 200.0},
        {"kept_rate": 0.2},
        {"kept_starts": 0.2},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_overload_is_borne_only_when_nothing_at_all_is_wrong(wrong: dict[str, Any]) -> None:
    assert is_sound(GOOD)
    assert not is_sound({**GOOD, **wrong})


def test_there_are_three_times_as_many_callers_at_the_end() -> None:
    assert Overload(connections=10).most == 30
    assert Stretch(seconds=2.0, jobs=500).per_second == 250


def test_starts_are_counted_in_the_stretch_in_which_they_happened() -> None:
    starts = [9_999_999, 10_000_000, 11_000_000, 11_999_999, 12_000_000]
    assert Stretch(began=10.0, seconds=2.0).starts_per_second(starts) == 1.5


def test_answers_are_told_second_by_second_without_the_one_that_is_not_whole() -> None:
    driven = Driven(2.1, 5, [1.0, 3.0, 2.0, 10.0, 5.0], [0.1, 0.2, 0.9, 1.5, 2.05])
    found = driven.lines_over_time()
    assert found["throughput, per second/answers"].values == [3.0, 1.0]
    assert found["answered, ms/p50"].values == [2.0, 10.0]
    assert found["answered, ms/p50"].seconds == [0.5, 1.5]
    assert Driven().lines_over_time() == {}
