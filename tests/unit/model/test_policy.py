"""What a job asks for beyond the ordinary: its words read, kept and written back, and what follows from them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.policy import (
    KEY_CHARS_MAX,
    ORDINARY,
    RATE_COUNT_MAX,
    KeyFault,
    OnNextDue,
    Overlap,
    Policy,
    Rate,
    RateFault,
    concurrency_key,
    format_rate,
    parse_rate,
    policy_from_json,
    policy_to_json,
)

DUE = datetime(2030, 1, 7, 12, tzinfo=UTC)

seconds = st.none() | st.integers(1, 10**12).map(lambda micros: micros / 1_000_000)
rates = st.builds(Rate, st.integers(1, RATE_COUNT_MAX), st.integers(1, 86_400 * 10**6).map(lambda micros: micros / 1e6))
policies = st.builds(
    Policy,
    overlap=st.none() | st.sampled_from(Overlap),
    overlap_max=st.integers(1, 1000),
    on_next_due=st.sampled_from(OnNextDue),
    max_concurrency=st.none() | st.integers(1, 100_000),
    concurrency_key=st.none() | st.text(min_size=1, max_size=20),
    concurrency_limit=st.integers(1, 100_000),
    rate=st.none() | rates,
    queue_timeout_seconds=seconds,
    deadline_seconds=seconds,
    at_most_once=st.booleans(),
    kill_on_disconnect=st.booleans(),
)


# --- as it is stored --------------------------------------------------------------------------------------


@given(policies)
def test_a_policy_is_read_back_as_it_was_written(policy: Policy) -> None:
    assert policy_from_json(policy_to_json(policy)) == policy


def test_what_is_ordinary_is_not_stored_at_all() -> None:
    assert policy_to_json(Policy()) is None
    assert policy_from_json(None) is ORDINARY


# --- what follows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "gated"),
    [
        (ORDINARY, False),
        (Policy(overlap=Overlap.QUEUE_ALL), False),
        (Policy(queue_timeout_seconds=5, deadline_seconds=10), False),
        (Policy(max_concurrency=1), True),
        (Policy(concurrency_key="k"), True),
        (Policy(rate=Rate(1, 1)), True),
        (Policy(at_most_once=True), True),
        (Policy(kill_on_disconnect=True), True),
    ],
)
def test_runs_are_claimed_one_by_one_only_where_something_must_be_kept(policy: Policy, gated: bool) -> None:
    assert policy.gated is gated


def test_recurring_jobs_skip_and_others_allow_unless_they_say_otherwise() -> None:
    assert (ORDINARY.overlap_of(True), ORDINARY.overlap_of(False)) == (Overlap.SKIP, Overlap.ALLOW)
    assert Policy(overlap=Overlap.QUEUE_ONE).overlap_of(True) is Overlap.QUEUE_ONE


def test_a_run_may_wait_for_its_start_from_when_it_is_ready_and_for_its_end_from_its_due_time() -> None:
    ready = DUE + timedelta(seconds=100)
    assert ORDINARY.expires_at(DUE, ready) is None
    assert Policy(queue_timeout_seconds=5).expires_at(DUE, ready) == ready + timedelta(seconds=5)
    assert Policy(deadline_seconds=5).expires_at(DUE, ready) == DUE + timedelta(seconds=5)
    both = Policy(queue_timeout_seconds=5, deadline_seconds=200)
    assert both.expires_at(DUE, ready) == ready + timedelta(seconds=5)
    assert both.deadline_of(DUE) == DUE + timedelta(seconds=200)
    assert Policy(queue_timeout_seconds=5).deadline_of(DUE) is None


# --- rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/m", Rate(100, 60)),
        ("5/s", Rate(5, 1)),
        ("1/h", Rate(1, 3600)),
        (" 7 / d ", Rate(7, 86_400)),
        ("10/30s", Rate(10, 30)),
        ("10/1h30m", Rate(10, 5400)),
        ("3/500ms", Rate(3, 0.5)),
    ],
)
def test_a_rate_is_so_many_in_so_long(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "100", "/m", "100/", "100/month", "0/m", "1000001/s", "5/25h", "5/0s", "-5/m", "1.5/m", "5/m/m", "٥/m"]
)
def test_what_is_no_rate_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(RateFault, match="a rate"):
        parse_rate(text)


@given(rates)
def test_a_rate_is_read_back_as_it_was_written(rate: Rate) -> None:
    assert parse_rate(format_rate(rate)) == rate


# --- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "payload", "key"),
    [
        ("fixed", {}, "fixed"),
        ("customer-{id}", {"id": 7}, "customer-7"),
        ("{region}/{customer.id}", {"region": "eu", "customer": {"id": "x"}}, "eu/x"),
        ("open { brace", {}, "open { brace"),
        ("{a}", {"a": "{b}", "b": "never read"}, "{b}"),
    ],
)
def test_fields_of_the_payload_are_put_into_a_key(template: str, payload: dict[str, Any], key: str) -> None:
    assert concurrency_key(template, payload) == key


@pytest.mark.parametrize(
    ("template", "payload"),
    [
        ("{id}", {}),
        ("{}", {"": {}}),
        ("{a.b}", {"a": 1}),
        ("{a.b}", {"a": {}}),
        ("{id}", {"id": None}),
        ("{id}", {"id": True}),
        ("{id}", {"id": 1.5}),
        ("{id}", {"id": [1]}),
        ("{id}", {"id": ""}),
        ("", {}),
        ("{id}", {"id": "x" * (KEY_CHARS_MAX + 1)}),
        ("a\x00b", {}),
        ("{id}", {"id": "\x00"}),
    ],
)
def test_a_key_that_cannot_be_made_is_refused(template: str, payload: dict[str, Any]) -> None:
    with pytest.raises(KeyFault):
        concurrency_key(template, payload)
