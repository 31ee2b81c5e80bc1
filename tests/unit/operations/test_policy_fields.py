"""A job's limits, overlap and waits in the caller's words: every fault at once, and nothing lost in a change."""

from datetime import UTC, datetime
from typing import Any

import pytest
from fake_kinds import KINDS
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.errors import InvalidFields
from hourhand.model.ids import time_ordered_id
from hourhand.model.job import JobDefinition
from hourhand.model.policy import ORDINARY, OnNextDue, Overlap, Policy, Rate
from hourhand.operations.definition import define_change, define_job
from hourhand.operations.policy import LIMIT_MAX, policy_fields
from hourhand.operations.requests import JobPatch, JobRequest, RetryRequest

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
JOB_ID = time_ordered_id(NOW, 12345)


def defined(**fields: Any) -> JobDefinition:
    fields = {"name": "nightly", "kind": "number", "payload": {"n": 1, "id": "x"}} | fields
    return define_job(JobRequest(**fields), JOB_ID, NOW, "ada", KINDS)


def changed(old: JobDefinition, **fields: Any) -> JobDefinition:
    return define_change(old, JobPatch(**fields), JOB_ID, NOW, KINDS)


def codes_of(wrong: InvalidFields) -> dict[str, str]:
    return {fault.pointer: fault.code for fault in wrong.faults}


def faults_of(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidFields) as refused:
        defined(**fields)
    return codes_of(refused.value)


durations = st.none() | st.sampled_from(["1s", "90s", "1h30m", "500ms", "366d"])


def is_agreed(words: dict[str, Any]) -> bool:
    waiting = words["overlap_max"] is None or words["overlap"] == "queue_all"
    return waiting and (words["overlap"], words["on_next_due"]) != ("allow", "supersede")


requests = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from([None, *(word.value for word in Overlap)]),
        "overlap_max": st.none() | st.integers(1, 1000),
        "on_next_due": st.none() | st.sampled_from([word.value for word in OnNextDue]),
        "max_concurrency": st.none() | st.integers(1, LIMIT_MAX),
        "rate_limit": st.none() | st.sampled_from(["100/m", "5/s", "1/d", "10/30s", "7/1h30m"]),
        "queue_timeout": durations,
        "deadline": durations,
        "at_most_once": st.none() | st.booleans(),
        "on_disconnect": st.none() | st.sampled_from(["continue", "kill"]),
    }
).map(lambda words: words if is_agreed(words) else {**words, "overlap": "queue_all"})
keys = st.just({}) | st.fixed_dictionaries(
    {"concurrency_key": st.sampled_from(["all", "customer-{id}"])},
    optional={"concurrency_limit": st.integers(1, LIMIT_MAX)},
)


def test_every_fault_of_a_policy_is_found_at_once() -> None:
    found = faults_of(
        name=" ",
        overlap="sometimes",
        overlap_max=0,
        on_next_due="maybe",
        max_concurrency=0,
        concurrency_key="customer-{customer}",
        concurrency_limit=LIMIT_MAX + 1,
        rate_limit="often",
        queue_timeout="long",
        deadline="367d",
        at_most_once=True,
        max_retries=3,
        on_disconnect="shout",
    )
    assert found == {
        "/name": "invalid-name",
        "/overlap": "unknown-value",
        "/overlap_max": "out-of-range",
        "/on_next_due": "unknown-value",
        "/max_concurrency": "out-of-range",
        "/concurrency_key": "invalid-key",
        "/concurrency_limit": "out-of-range",
        "/rate_limit": "invalid-rate",
        "/queue_timeout": "invalid-duration",
        "/deadline": "out-of-range",
        "/max_retries": "conflicting-fields",
        "/on_disconnect": "unknown-value",
    }


def test_an_empty_word_is_no_word() -> None:
    assert faults_of(overlap="", on_next_due="", on_disconnect="") == {
        "/overlap": "unknown-value",
        "/on_next_due": "unknown-value",
        "/on_disconnect": "unknown-value",
    }


def test_words_that_exist_are_named_with_one_that_does_not() -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(overlap="skipp")
    [fault] = refused.value.faults
    assert fault.allowed == ["skip", "queue_one", "queue_all", "cancel_running", "allow"]


def test_the_words_of_a_request_become_the_policy() -> None:
    policy = defined(
        overlap="queue_all",
        overlap_max=5,
        on_next_due="supersede",
        max_concurrency=2,
        concurrency_key="customer-{id}",
        concurrency_limit=3,
        rate_limit="100/m",
        queue_timeout="10m",
        deadline="1h",
        at_most_once=True,
        on_disconnect="kill",
    ).policy
    assert policy == Policy(
        Overlap.QUEUE_ALL, 5, OnNextDue.SUPERSEDE, 2, "customer-{id}", 3, Rate(100, 60), 600, 3600, True, True
    )


def test_a_job_that_asks_for_nothing_has_the_one_ordinary_policy() -> None:
    assert defined().policy is ORDINARY


# --- at most once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [None, 0])
def test_a_job_that_runs_at_most_once_is_not_retried(retries: int | None) -> None:
    assert defined(at_most_once=True, max_retries=retries).retry.max_retries == 0


def test_a_job_that_runs_at_most_once_and_is_retried_is_refused() -> None:
    assert faults_of(at_most_once=True, max_retries=1) == {"/max_retries": "conflicting-fields"}


def test_a_job_with_retries_can_be_told_to_run_at_most_once() -> None:
    told = changed(defined(max_retries=5), at_most_once=True)
    assert (told.policy.at_most_once, told.retry.max_retries) == (True, 0)


def test_a_change_cannot_ask_for_at_most_once_and_for_retries() -> None:
    with pytest.raises(InvalidFields) as refused:
        changed(defined(), at_most_once=True, max_retries=1)
    assert codes_of(refused.value) == {"/max_retries": "conflicting-fields"}
    with pytest.raises(InvalidFields) as refused:
        changed(defined(at_most_once=True), max_retries=1)
    assert codes_of(refused.value) == {"/max_retries": "conflicting-fields"}


def test_a_job_that_runs_at_most_once_and_names_failures_to_try_again_is_refused() -> None:
    tried = RetryRequest(on=["timeout"])
    assert faults_of(at_most_once=True, retry=tried) == {"/retry/on": "conflicting-fields"}
    told = changed(defined(retry=tried), at_most_once=True)
    assert (told.policy.at_most_once, told.retry.on) == (True, ())


# --- words that do nothing together -----------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [None, "skip", "allow"])
def test_how_many_may_wait_is_refused_where_none_do(overlap: str | None) -> None:
    assert faults_of(overlap=overlap, overlap_max=5) == {"/overlap_max": "conflicting-fields"}


def test_how_many_may_wait_goes_with_the_word_it_belongs_to() -> None:
    assert changed(defined(overlap="queue_all", overlap_max=5), overlap="skip").policy == Policy(Overlap.SKIP)


def test_a_run_that_stands_in_nobodys_way_cannot_be_superseded() -> None:
    assert faults_of(overlap="allow", on_next_due="supersede") == {"/on_next_due": "conflicting-fields"}


# --- keys -------------------------------------------------------------------------------------------------


def test_a_limit_without_a_key_is_refused() -> None:
    assert faults_of(concurrency_limit=2) == {"/concurrency_limit": "conflicting-fields"}


@pytest.mark.parametrize("key", ["a-{nope", "a-}", "{a{id}}", "{id}}", "", "x" * 201])
def test_a_key_that_is_none_whatever_the_payload_is_refused_without_looking_there(key: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(concurrency_key=key)
    assert [(fault.pointer, fault.beside) for fault in refused.value.faults] == [("/concurrency_key", None)]


def test_a_key_can_be_taken_away_without_naming_its_limit() -> None:
    old = defined(concurrency_key="all", concurrency_limit=5)
    assert changed(old, concurrency_key=None).policy == Policy()


def test_a_key_that_the_new_payload_cannot_fill_is_refused() -> None:
    with pytest.raises(InvalidFields) as refused:
        changed(defined(concurrency_key="customer-{id}"), payload={"n": 1})
    assert codes_of(refused.value) == {"/concurrency_key": "invalid-key"}


# --- changes ----------------------------------------------------------------------------------------------


@given(requests, keys)
def test_a_policy_written_in_the_callers_words_is_read_back_the_same(
    words: dict[str, Any], key: dict[str, Any]
) -> None:
    policy = defined(**words, **key).policy
    fields = policy_fields(policy)
    assert defined(**fields).policy == policy
    assert all(field in JobRequest.__struct_fields__ for field in fields)


@given(requests, keys)
def test_a_change_of_something_else_keeps_the_policy(words: dict[str, Any], key: dict[str, Any]) -> None:
    old = defined(**words, **key)
    new = changed(old, description="other")
    assert (new.policy, new.retry) == (old.policy, old.retry)


@given(requests, keys, st.sampled_from(["overlap", "on_next_due", "max_concurrency", "rate_limit", "deadline"]))
def test_one_field_of_a_policy_can_be_taken_back_and_the_others_stay(
    words: dict[str, Any], key: dict[str, Any], field: str
) -> None:
    old = defined(**words, **key)
    new = changed(old, **{field: None})
    gone = {field, "overlap_max"} if field == "overlap" else {field}
    assert policy_fields(new.policy) == {**policy_fields(old.policy), **dict.fromkeys(gone)}
