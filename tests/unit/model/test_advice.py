"""What is said of a declaration, given what the last attempts have taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.advice import Advice, AdviceCode, Sample, advise, percentile
from hourhand.model.resources import Resources, parse_size

MB = 10**6


def of_memory(declared: int | None, *peaks: int) -> Advice:
    return advise(Resources(memory=declared), [Sample(peak, 1, 10) for peak in peaks])


def of_cpu(declared: float, *cores: float) -> Advice:
    return advise(Resources(cpu=declared), [Sample(MB, part * 10, 10) for part in cores])


def test_who_declares_far_more_than_it_takes_is_told_what_would_do() -> None:
    advice = of_memory(2000 * MB, *[180 * MB] * 49, 20 * MB)
    [remark] = advice.remarks
    assert remark.text == "declared 2 GB, p95 of the last 50 runs is 180 MB: declare 256MB"
    assert (remark.code, remark.declared, remark.suggested) == (AdviceCode.TOO_MUCH, "2GB", "256MB")
    assert (advice.samples, advice.memory_bytes_p95) == (50, 180 * MB)


def test_what_is_advised_covers_the_largest_that_was_seen() -> None:
    [remark] = of_memory(2000 * MB, *[100 * MB] * 40, 900 * MB).remarks
    assert parse_size(str(remark.suggested)) >= 900 * MB


def test_who_came_near_its_limit_is_told_to_declare_more() -> None:
    [remark] = of_memory(512 * MB, *[100 * MB] * 40, 490 * MB).remarks
    assert remark.text == "declared 512 MB, and came within 5 % of it (490 MB): declare 768MB"
    assert remark.code is AdviceCode.TOO_LITTLE


def test_a_declaration_that_fits_is_left_alone() -> None:
    assert of_memory(256 * MB, *[180 * MB] * 50).remarks == []
    assert of_memory(20 * MB, *[1 * MB] * 50).remarks[0].suggested == "16MB"
    assert of_memory(16 * MB, *[1 * MB] * 50).remarks == [], "there is nothing smaller to advise"


def test_who_declares_nothing_is_told_when_it_takes_much() -> None:
    [remark] = of_memory(None, *[1200 * MB] * 10).remarks
    assert remark.text == "declares none, p95 of the last 10 runs is 1.2 GB: declare 1500MB"
    assert advise(None, [Sample(10 * MB, 1, 10)] * 10).remarks == []


def test_no_memory_is_advised_for_the_cache_of_files() -> None:
    writes = [Sample(433 * MB, 1, 10, 400 * MB)] * 10
    advice = advise(None, writes)
    assert (advice.remarks, advice.memory_bytes_p95, advice.memory_cached_p95) == ([], 433 * MB, 400 * MB)
    assert advise(Resources(memory=440 * MB), writes).remarks == [], "it fills whatever it is given"
    assert advise(None, [Sample(433 * MB, 1, 10, 100 * MB)] * 10).remarks[0].code is AdviceCode.NOTHING


def test_less_is_advised_only_where_no_cache_can_have_hidden_what_is_needed() -> None:
    assert advise(Resources(memory=800 * MB), [Sample(433 * MB, 1, 10, 400 * MB)] * 10).remarks == []
    [remark] = advise(Resources(memory=2000 * MB), [Sample(433 * MB, 1, 10, 400 * MB)] * 10).remarks
    assert (remark.code, remark.suggested) == (AdviceCode.TOO_MUCH, "768MB")


@pytest.mark.parametrize("count", [0, 1, 4])
def test_of_few_runs_nothing_is_said(count: int) -> None:
    assert of_memory(2000 * MB, *[MB] * count).remarks == []


def test_cores_are_counted_over_the_time_an_attempt_took() -> None:
    [remark] = of_cpu(4, *[0.3] * 20).remarks
    assert remark.text == "declared 4, p95 of the last 20 runs is 0.3: declare 0.5"
    [remark] = of_cpu(1, *[0.99] * 20).remarks
    assert (remark.code, remark.suggested) == (AdviceCode.TOO_LITTLE, 1.5)
    assert of_cpu(1, *[0.7] * 20).remarks == []
    short = [Sample(MB, 0.001, 0.01)] * 20
    assert advise(Resources(cpu=4), short).remarks == [], "too short to tell"


def test_only_the_newest_runs_count() -> None:
    assert of_memory(256 * MB, *[180 * MB] * 50, *[255 * MB] * 50).remarks == []


@given(
    st.one_of(st.none(), st.integers(MB, 10**13)),
    st.lists(st.integers(0, 10**13), min_size=5, max_size=60),
)
def test_advice_is_never_below_what_was_seen_and_always_another_amount(declared: int | None, peaks: list[int]) -> None:
    for remark in of_memory(declared, *peaks).remarks:
        suggested = parse_size(str(remark.suggested))
        assert suggested >= percentile(sorted(peaks[:50]))
        assert suggested != declared
        if remark.code is AdviceCode.TOO_MUCH:
            assert declared is not None
            assert max(peaks[:50]) <= suggested < declared
        if remark.code is AdviceCode.TOO_LITTLE:
            assert declared is not None
            assert suggested > declared
