"""Places between namespaces: by weight over time, whole places, never more than there are."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.fair_share import allot, whole_places

weights = st.dictionaries(st.integers(1, 50), st.integers(1, 1000), min_size=1, max_size=8)
credits = st.dictionaries(st.integers(1, 50), st.floats(-1000, 1000), min_size=1, max_size=8)


def rounds(weights: dict[int, int], places: list[int]) -> Counter[int]:
    """What each got when everybody uses all that is given."""
    credit: dict[int, float] = {}
    got: Counter[int] = Counter()
    for free in places:
        credit = allot(weights, free, credit)
        for name, count in whole_places(credit, free).items():
            got[name] += count
            credit[name] -= count
    return got


@given(credits, st.integers(0, 200))
def test_all_places_are_given_and_nobody_gets_less_than_none(credit: dict[int, float], places: int) -> None:
    given_out = whole_places(credit, places)
    assert sum(given_out.values()) == places
    assert min(given_out.values()) >= 0
    assert set(given_out) == set(credit)


@given(credits, st.integers(1, 200))
def test_who_has_more_credit_never_gets_less(credit: dict[int, float], places: int) -> None:
    given_out = whole_places(credit, places)
    by_credit = sorted(credit, key=lambda name: credit[name])
    counts = [given_out[name] for name in by_credit]
    assert all(more >= less - 1 for less, more in itertools.pairwise(counts))


@given(weights, st.lists(st.integers(1, 100), min_size=1, max_size=200))
def test_over_many_rounds_everybody_comes_to_its_part_within_a_few_places(
    weights: dict[int, int], places: list[int]
) -> None:
    got = rounds(weights, places)
    total = sum(weights.values())
    assert sum(got.values()) == sum(places)
    for name, weight in weights.items():
        assert got[name] == pytest.approx(sum(places) * weight / total, abs=len(weights))


def test_one_place_at_a_time_goes_round_by_weight() -> None:
    assert rounds({1: 3, 2: 1}, [1] * 8) == {1: 6, 2: 2}


def test_who_wanted_nothing_for_a_while_has_saved_nothing() -> None:
    credit = allot({1: 1, 2: 1}, 10, {1: 0.5, 3: 100.0})
    assert credit == {1: 5.5, 2: 5.0}
