"""How long a failed run waits, and how its policy is stored."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.retry import DEFAULT_RETRY, RetryPolicy, retry_from_json, retry_to_json

chances = st.floats(0, 1, exclude_max=True)
counts = st.integers(1, 1001)
curves = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 1000),
    base_seconds=st.floats(0.001, 86_400),
    factor=st.floats(1, 100),
    max_seconds=st.floats(86_400, 864_000),
    jitter=st.floats(0, 1),
)
lists = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 1000),
    delays_seconds=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20).map(tuple),
)


def test_the_default_is_fifteen_seconds_doubled_each_time_and_at_most_an_hour() -> None:
    delays = [DEFAULT_RETRY.delay_after(failures, 0.5).total_seconds() for failures in range(1, 12)]
    assert delays == [15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@given(counts)
def test_chance_moves_a_delay_by_at_most_a_fifth(failures: int) -> None:
    middle = DEFAULT_RETRY.delay_after(failures, 0.5)
    assert DEFAULT_RETRY.delay_after(failures, 0.0) == middle * 0.8
    assert DEFAULT_RETRY.delay_after(failures, 0.9999) <= middle * 1.2


@given(curves, counts, chances)
def test_a_delay_stays_within_its_share_of_the_curve(policy: RetryPolicy, failures: int, chance: float) -> None:
    delay = policy.delay_after(failures, chance).total_seconds()
    plain = min(policy.base_seconds * policy.factor ** min(failures - 1, 64), policy.max_seconds)
    assert plain * (1 - policy.jitter) - 1e-5 <= delay <= plain * (1 + policy.jitter) + 1e-5


@given(curves, counts, chances)
def test_no_delay_is_longer_than_the_longest_one_allowed(policy: RetryPolicy, failures: int, chance: float) -> None:
    assert policy.delay_after(failures, chance) <= timedelta(seconds=policy.max_seconds, microseconds=1)


@given(curves, st.integers(1, 1000))
def test_a_later_failure_never_waits_for_less(policy: RetryPolicy, failures: int) -> None:
    assert policy.delay_after(failures, 0.5) <= policy.delay_after(failures + 1, 0.5)


@given(lists, counts, chances)
def test_listed_delays_are_used_in_order_to_the_letter_and_the_last_one_repeats(
    policy: RetryPolicy, failures: int, chance: float
) -> None:
    assert policy.delays_seconds is not None
    expected = policy.delays_seconds[min(failures, len(policy.delays_seconds)) - 1]
    assert policy.delay_after(failures, chance) == timedelta(seconds=expected)


@given(curves | lists | st.builds(RetryPolicy, max_retries=st.integers(0, 1000)))
def test_a_policy_is_read_back_as_it_was_stored(policy: RetryPolicy) -> None:
    assert retry_from_json(policy.max_retries, retry_to_json(policy)) == policy


def test_the_default_curve_costs_nothing_to_store() -> None:
    assert retry_to_json(RetryPolicy(max_retries=7)) is None
