"""What an outcome does to its run, for every outcome and every standing."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.outcome import (
    ERROR_CHARS_MAX,
    Cancelled,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
    Succeeded,
    TimedOut,
)
from hourhand.model.retry import ASKED_FOR_NO_RETRY, RetryPolicy
from hourhand.model.settle import ATTEMPTS_MAX, LOSSES_MAX, SNOOZE_MAX, Standing, settle
from hourhand.model.states import Reason, RunEvent, RunState, advance

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)

policies = st.one_of(
    st.builds(RetryPolicy, max_retries=st.integers(0, 20)),
    st.builds(
        RetryPolicy,
        max_retries=st.integers(0, 20),
        delays_seconds=st.lists(st.floats(0.001, 86_400), min_size=1, max_size=5).map(tuple),
    ),
)
deadlines = st.none() | st.floats(-100, 100_000).map(lambda seconds: NOW + timedelta(seconds=seconds))
standings = st.builds(Standing, failures=st.integers(0, 30), losses=st.integers(0, 6), retry=policies)
all_standings = st.builds(
    Standing,
    failures=st.integers(0, 30),
    losses=st.integers(0, 6),
    retry=policies,
    attempt=st.integers(1, 2 * ATTEMPTS_MAX),
    deadline=deadlines,
    at_most_once=st.booleans(),
    begun=st.booleans(),
)
chances = st.floats(0, 1, exclude_max=True)
waits = st.none() | st.floats(-10, 1e9, allow_nan=False) | st.just(math.inf)
failures = st.builds(
    Failed,
    reason=st.sampled_from(Reason),
    error=st.text(max_size=50),
    retryable=st.booleans(),
    retry_after_seconds=waits,
    result=st.none() | st.just({"code": 500}),
)
outcomes = st.one_of(
    st.builds(Succeeded, st.none() | st.just({"a": 1})),
    failures,
    st.builds(TimedOut, st.floats(0.1, 1000), st.booleans(), st.booleans()),
    st.builds(Snoozed, st.floats() | st.floats(0, 1e6), st.text(max_size=20)),
    st.just(Cancelled()),
    st.just(Lost()),
    st.just(Interrupted()),
)


@given(all_standings, outcomes, chances)
def test_a_run_goes_back_to_the_queue_exactly_when_it_has_a_time_to_be_ready(
    run: Standing, outcome: Outcome, chance: float
) -> None:
    step = settle(run, outcome, NOW, chance)
    assert (step.state is RunState.QUEUED) == (step.ready_at is not None)
    assert step.state is RunState.QUEUED or step.state.is_final
    assert step.ready_at is None or step.ready_at >= NOW


@given(all_standings, outcomes, chances)
def test_what_is_settled_is_allowed_for_claimed_and_for_running_runs(
    run: Standing, outcome: Outcome, chance: float
) -> None:
    step = settle(run, outcome, NOW, chance)
    assert advance(RunState.CLAIMED, step.event) is advance(RunState.RUNNING, step.event) is step.state


@given(all_standings, outcomes, chances)
def test_there_is_never_a_retry_beyond_max_retries(run: Standing, outcome: Outcome, chance: float) -> None:
    step = settle(run, outcome, NOW, chance)
    if step.event is RunEvent.RETRY:
        assert run.failures < run.retry.max_retries


@given(st.integers(0, 20), st.data())
def test_a_run_that_always_fails_is_tried_once_and_max_retries_times_more(
    max_retries: int, data: st.DataObject
) -> None:
    tries, counted = 0, 0
    while True:
        outcome = data.draw(st.sampled_from([Failed(Reason.EXIT_CODE, "1"), TimedOut(5.0)]))
        tries += 1
        step = settle(Standing(counted, 0, RetryPolicy(max_retries)), outcome, NOW, 0.5)
        if step.event is not RunEvent.RETRY:
            break
        counted += 1
    assert tries == max_retries + 1
    assert step.state in (RunState.FAILED, RunState.TIMED_OUT)


@given(standings, st.sampled_from([Lost(), Interrupted(), Interrupted(lease_unsure=True)]), chances)
def test_a_lost_or_interrupted_attempt_uses_up_no_retry_and_is_ready_at_once(
    run: Standing, outcome: Outcome, chance: float
) -> None:
    step = settle(run, outcome, NOW, chance)
    assert step.event is not RunEvent.RETRY
    if step.event is RunEvent.RELEASE:
        assert step.ready_at == NOW


@given(policies, st.integers(0, 30))
def test_a_run_lost_three_times_is_held_to_be_the_cause(retry: RetryPolicy, failed: int) -> None:
    steps = [settle(Standing(failed, losses, retry), Lost(), NOW, 0.0) for losses in range(LOSSES_MAX)]
    assert [step.event for step in steps] == [RunEvent.RELEASE, RunEvent.RELEASE, RunEvent.FAIL]
    assert steps[-1].reason is Reason.POISON


@given(standings, chances)
def test_being_interrupted_by_a_stop_is_never_poison(run: Standing, chance: float) -> None:
    assert settle(run, Interrupted(), NOW, chance).reason is Reason.SHUTDOWN
    assert settle(run, Interrupted(lease_unsure=True), NOW, chance).reason is Reason.LEASE_UNSURE


@given(standings, failures, chances)
def test_a_failure_that_trying_again_cannot_help_ends_the_run_at_once(
    run: Standing, outcome: Failed, chance: float
) -> None:
    step = settle(run, Failed(outcome.reason, outcome.error, retryable=False, result=outcome.result), NOW, chance)
    assert step.event is RunEvent.FAIL
    assert step.reason is outcome.reason
    assert step.result == outcome.result


@given(st.floats(-10, 1e12, allow_nan=False) | st.just(math.inf), chances)
def test_a_delay_that_was_asked_for_is_honoured_up_to_a_day(asked: float, chance: float) -> None:
    failed = Failed(Reason.HTTP_STATUS, "429", retry_after_seconds=asked)
    step = settle(Standing(0, 0, RetryPolicy()), failed, NOW, chance)
    assert step.ready_at == NOW + timedelta(seconds=min(max(asked, 0.0), 86_400.0))


def test_a_delay_that_is_no_number_does_not_break_the_settling() -> None:
    failed = Failed(Reason.EXCEPTION, "raise RetryAfter(nan)", retry_after_seconds=math.nan)
    step = settle(Standing(0, 0, RetryPolicy()), failed, NOW, 0.5)
    assert step.ready_at is not None
    assert NOW <= step.ready_at <= NOW + timedelta(days=1)


@given(all_standings, chances)
def test_success_and_cancel_are_final_whatever_the_standing(run: Standing, chance: float) -> None:
    assert settle(run, Succeeded({"a": 1}), NOW, chance).result == {"a": 1}
    assert settle(run, Succeeded(), NOW, chance).state is RunState.SUCCEEDED
    assert settle(run, Cancelled(), NOW, chance).state is RunState.CANCELLED


@given(all_standings, outcomes, chances)
def test_everything_that_is_not_plain_success_has_a_reason(run: Standing, outcome: Outcome, chance: float) -> None:
    step = settle(run, outcome, NOW, chance)
    assert (step.reason is None) == isinstance(outcome, Succeeded)


@pytest.mark.parametrize("retries", [0, 3])
def test_a_long_error_is_stored_clipped(retries: int) -> None:
    step = settle(Standing(0, 0, RetryPolicy(retries)), Failed(Reason.EXCEPTION, "x" * 100_000), NOW, 0.5)
    assert step.error is not None
    assert len(step.error) <= ERROR_CHARS_MAX


# --- which failures, how long, how often ------------------------------------------------------------------


def test_failures_that_the_policy_does_not_name_end_the_run_at_once() -> None:
    standing = Standing(0, 0, RetryPolicy(on=("http:503",), never_on=("timeout",)))
    failed = Failed(Reason.HTTP_STATUS, "got 500", tags=("http:500", "http:5xx"))
    assert settle(standing, failed, NOW, 0.5).event is RunEvent.FAIL
    assert settle(standing, TimedOut(3), NOW, 0.5).event is RunEvent.TIME_OUT
    named = Failed(Reason.HTTP_STATUS, "got 503", retryable=False, tags=("http:503", "http:5xx"))
    assert settle(standing, named, NOW, 0.5).event is RunEvent.RETRY


@given(all_standings, chances)
def test_a_job_that_asks_for_no_retry_gets_none(run: Standing, chance: float) -> None:
    said = Failed(Reason.EXCEPTION, "no", retryable=False, tags=(ASKED_FOR_NO_RETRY, "Exception"))
    assert settle(run, said, NOW, chance).event is RunEvent.FAIL


@given(all_standings, outcomes, chances)
def test_no_next_try_lies_behind_the_deadline(run: Standing, outcome: Outcome, chance: float) -> None:
    step = settle(run, outcome, NOW, chance)
    if step.event in (RunEvent.RETRY, RunEvent.SNOOZE) and run.deadline is not None:
        assert step.ready_at is not None
        assert step.ready_at < run.deadline


@pytest.mark.parametrize(
    "outcome", [Failed(Reason.EXIT_CODE, "exited with code 3"), TimedOut(9.0), Snoozed(60, "later")]
)
def test_a_try_that_would_come_too_late_ends_the_run_with_what_went_before(outcome: Outcome) -> None:
    standing = Standing(0, 0, RetryPolicy(delays_seconds=(60.0,)), deadline=NOW + timedelta(seconds=60))
    step = settle(standing, outcome, NOW, 0.5)
    assert (step.state, step.reason, step.ready_at) == (RunState.TIMED_OUT, Reason.DEADLINE, None)
    assert step.error is not None
    assert step.error.splitlines()[1] in (
        "exited with code 3",
        "later",
        "the attempt did not end within its timeout of 9 s",
    )


@given(all_standings, chances)
def test_a_deadline_that_passes_is_the_end_whatever_retries_are_left(run: Standing, chance: float) -> None:
    step = settle(run, TimedOut(1.0, deadline=True), NOW, chance)
    assert (step.state, step.reason) == (RunState.TIMED_OUT, Reason.DEADLINE)


@given(st.integers(0, 30), st.integers(1, ATTEMPTS_MAX - 1), st.floats(), chances)
def test_a_snooze_is_no_failure_and_lasts_at_most_a_week(
    failed: int, attempt: int, asked: float, chance: float
) -> None:
    step = settle(Standing(failed, 0, RetryPolicy(0), attempt), Snoozed(asked, "not yet"), NOW, chance)
    assert (step.event, step.reason, step.error) == (RunEvent.SNOOZE, Reason.SNOOZED, "not yet")
    assert step.ready_at is not None
    wanted = 0.0 if math.isnan(asked) else min(max(asked, 0.0), SNOOZE_MAX.total_seconds())
    assert step.ready_at == NOW + timedelta(seconds=wanted)


def test_a_run_that_only_snoozes_ends_at_last() -> None:
    step = settle(Standing(0, 0, RetryPolicy(), ATTEMPTS_MAX), Snoozed(1), NOW, 0.5)
    assert (step.state, step.reason) == (RunState.FAILED, Reason.SNOOZED)


@given(st.integers(0, 6), policies, outcomes, chances)
def test_what_runs_at_most_once_is_never_begun_again_but_by_its_own_wish(
    losses: int, retry: RetryPolicy, outcome: Outcome, chance: float
) -> None:
    step = settle(Standing(0, losses, retry, at_most_once=True), outcome, NOW, chance)
    assert step.state.is_final == (not isinstance(outcome, Snoozed))


def test_what_runs_at_most_once_is_lost_with_its_executor() -> None:
    standing = Standing(0, 0, RetryPolicy(), at_most_once=True)
    lost, stopped = settle(standing, Lost(), NOW, 0.5), settle(standing, Interrupted(), NOW, 0.5)
    assert (lost.state, lost.reason) == (RunState.LOST, Reason.EXECUTOR_LOST)
    assert (stopped.state, stopped.reason) == (RunState.LOST, Reason.SHUTDOWN)
    unsure = settle(standing, Interrupted(lease_unsure=True), NOW, 0.5)
    assert (unsure.state, unsure.reason) == (RunState.LOST, Reason.LEASE_UNSURE)


def test_what_runs_at_most_once_and_was_not_begun_is_given_back() -> None:
    step = settle(Standing(0, 0, RetryPolicy(), at_most_once=True, begun=False), Interrupted(), NOW, 0.5)
    assert (step.event, step.ready_at) == (RunEvent.RELEASE, NOW)
