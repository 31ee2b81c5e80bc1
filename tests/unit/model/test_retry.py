"""Whether a failed run is tried again, how long it waits, and how its policy is stored."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.retry import (
    ASKED_FOR_NO_RETRY,
    ASKED_FOR_RETRY,
    DEFAULT_RETRY,
    EntryFault,
    RetryPolicy,
    exception_tags,
    exit_tags,
    http_tags,
    means_success,
    read_entry,
    retry_from_json,
    retry_to_json,
    signal_tags,
)
from hourhand.model.states import Reason

chances = st.floats(0, 1, exclude_max=True)
counts = st.integers(1, 1001)
entries = st.lists(st.sampled_from(["exit:3", "http:5xx", "timeout", "ValueError"]), max_size=3).map(tuple)
curves = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 1000),
    base_seconds=st.floats(0.001, 86_400),
    factor=st.floats(1, 100),
    max_seconds=st.floats(86_400, 864_000),
    jitter=st.floats(0, 1),
    on=entries,
    never_on=entries,
)
lists = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 1000),
    delays_seconds=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20).map(tuple),
    on=entries,
    never_on=entries,
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


@given(curves | lists | st.builds(RetryPolicy, max_retries=st.integers(0, 1000), on=entries, never_on=entries))
def test_a_policy_is_read_back_as_it_was_stored(policy: RetryPolicy) -> None:
    assert retry_from_json(policy.max_retries, retry_to_json(policy)) == policy


def test_the_default_curve_costs_nothing_to_store() -> None:
    assert retry_to_json(RetryPolicy(max_retries=7)) is None


# --- which failures ---------------------------------------------------------------------------------------


class Broken(ConnectionError):
    pass


@pytest.mark.parametrize(
    ("entry", "reason", "tags"),
    [
        (3, Reason.EXIT_CODE, exit_tags(3)),
        ("exit:3", Reason.EXIT_CODE, exit_tags(3)),
        ("http:503", Reason.HTTP_STATUS, http_tags(503)),
        ("http:5xx", Reason.HTTP_STATUS, http_tags(599)),
        ("signal:SIGKILL", Reason.SIGNAL, signal_tags("SIGKILL")),
        ("timeout", Reason.TIMEOUT, ()),
        ("connection", Reason.CONNECTION, ()),
        ("signal", Reason.SIGNAL, signal_tags("SIGSEGV")),
        ("Broken", Reason.EXCEPTION, exception_tags(Broken.__mro__)),
        (f"{__name__}.Broken", Reason.EXCEPTION, exception_tags(Broken.__mro__)),
        ("ConnectionError", Reason.EXCEPTION, exception_tags(Broken.__mro__)),
        ("builtins.OSError", Reason.EXCEPTION, exception_tags(Broken.__mro__)),
        ("Exception", Reason.EXCEPTION, exception_tags(Broken.__mro__)),
    ],
)
def test_a_failure_is_known_by_what_it_is_called(entry: Any, reason: Reason, tags: tuple[str, ...]) -> None:
    named = read_entry(entry)
    assert RetryPolicy(on=(named,)).tries_again(reason, tags, retryable=False)
    assert not RetryPolicy(never_on=(named,)).tries_again(reason, tags, retryable=True)
    assert not RetryPolicy(on=(named,), never_on=(named,)).tries_again(reason, tags, retryable=True)


def test_what_is_not_named_is_not_tried_again_once_something_is() -> None:
    policy = RetryPolicy(on=("http:503", "ValueError"))
    assert not policy.tries_again(Reason.HTTP_STATUS, http_tags(500), retryable=True)
    assert not policy.tries_again(Reason.TIMEOUT, (), retryable=True)
    assert not policy.tries_again(Reason.EXCEPTION, exception_tags(Broken.__mro__), retryable=True)


def test_what_is_taken_out_leaves_the_rest_as_it_was() -> None:
    policy = RetryPolicy(never_on=("exit:2",))
    assert policy.tries_again(Reason.EXIT_CODE, exit_tags(1), retryable=True)
    assert not policy.tries_again(Reason.NOT_STARTED, (), retryable=False)


def test_what_the_job_itself_asks_for_counts_more_than_a_list() -> None:
    policy = RetryPolicy(on=("Exception", "exception"))
    assert not policy.tries_again(Reason.EXCEPTION, (ASKED_FOR_NO_RETRY, "Exception"), retryable=False)
    assert RetryPolicy(on=("exit:3",)).tries_again(Reason.EXCEPTION, (ASKED_FOR_RETRY,), retryable=True)


@given(st.sampled_from(Reason), st.booleans())
def test_without_lists_the_kind_knows_what_is_worth_another_try(reason: Reason, retryable: bool) -> None:
    assert DEFAULT_RETRY.tries_again(reason, (), retryable) is retryable


@pytest.mark.parametrize(
    "entry",
    [
        -1, 256, "3", "exit:", "exit:256", "exit:x", "http:600", "http:0xx", "http:50", "signal:9", "conection",
        "signal:SIGFOO", "poison", "asked:retry", "", "a b", "Value-Error", "x" * 300, "Über", "pkg..Error",
    ],
)  # fmt: skip
def test_what_names_no_failure_is_refused_with_an_example(entry: Any) -> None:
    with pytest.raises(EntryFault):
        read_entry(entry)


@pytest.mark.parametrize(
    ("entry", "payload", "success"),
    [
        ("exit:0", {}, True),
        ("exit:3", {}, False),
        ("exit:3", {"ok_exit_codes": [0, 3]}, True),
        ("exit:0", {"ok_exit_codes": [3]}, False),
        ("exit:0", {"ok_exit_codes": "3"}, True),
        ("http:200", {}, True),
        ("http:2xx", {}, True),
        ("http:503", {}, False),
        ("http:200", {"expect_status": [201]}, False),
        ("http:2xx", {"expect_status": [201]}, False),
        ("http:404", {"expect_status": ["4xx"]}, True),
        ("timeout", {}, False),
    ],
)
def test_what_the_payload_calls_a_success_is_no_failure(entry: str, payload: dict[str, Any], success: bool) -> None:
    assert means_success(entry, payload) is success


@given(st.text(max_size=30) | st.integers(-1000, 1000))
def test_an_entry_that_is_taken_is_taken_again_as_it_was_understood(entry: Any) -> None:
    try:
        understood = read_entry(entry)
    except EntryFault:
        return
    assert read_entry(understood) == understood
