"""Invariants 11, 12, 13, 26: tokens, attempts side by side, their number and their spacing."""

from typing import Any

import msgspec
import pytest
from tests.chaos.history import RetrySpec
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import BEGINNING, Story


def long_job(**asked: Any) -> tuple[Story, str]:
    """A run that is due at 30 s and takes a minute, and executors with leases of 15 s."""
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=30.0, **asked)
    story.lease("executor-1", 28.0, 43.0)
    story.lease("executor-2", 28.0, 400.0)
    return story, story.born(job, 30.0)


def rescued(action: str = "stop", zombie_until: float = 70.0, **asked: Any) -> tuple[Story, str]:
    """Executor 1 is broken at 32 s, its lease ends at 43 s, executor 2 takes over; the old attempt goes on."""
    story, run = long_job(**asked)
    story.fault(action, 32.0, 60.0, "executor-1")
    first = story.begin(run, 30.02)
    story.requeue(run, 43.5, 43.5, "lost", "executor_lost")
    story.beat(run, 31.0, zombie_until, fence=first, attempt=1)
    story.begin(run, 44.0, "executor-2")
    story.beat(run, 45.0, 103.0, 5.0)
    story.end(run, 104.0)
    return story, run


# --- 11 --------------------------------------------------------------------------------------------------------


def test_a_rescued_run_whose_second_attempt_speaks_is_accepted() -> None:
    story, _run = rescued()
    assert_accepted(story, 11, 12, 13)


def test_a_token_that_does_not_grow_is_caught() -> None:
    story, run = rescued()
    place = next(p for p, e in enumerate(story.run_events) if e.new == "claimed" and e.attempt == 2)
    second = story.run_events[place].fence
    for number, event in enumerate(story.run_events):
        if event.fence == second:
            story.run_events[number] = msgspec.structs.replace(event, fence=50)
    story.witness = [msgspec.structs.replace(w, fence=50) if w.fence == second else w for w in story.witness]
    story.runs[run].fence = 50
    assert_caught(story, 11)


def test_a_token_that_two_runs_share_is_caught() -> None:
    story = Story()
    for due in (20.0, 30.0):
        story.life(story.job(schedule="at", at=due), due)
    story.run_events = [msgspec.structs.replace(event, fence=event.fence and 100) for event in story.run_events]
    story.witness = [msgspec.structs.replace(line, fence=100) for line in story.witness]
    assert_caught(story, 11)


def test_a_result_with_an_old_token_is_caught() -> None:
    story, _run = rescued()
    first = story.witness[0].fence
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], fence=first)
    assert_caught(story, 11)


def test_a_result_while_the_newest_attempt_is_still_going_on_is_caught() -> None:
    """The old attempt ended at 70 s and its outcome was taken, although another held the token."""
    story, run = rescued()
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], at=BEGINNING + 70.1)
    assert story.runs[run].state == "succeeded"
    assert_caught(story, 11)


def test_a_result_that_another_node_wrote_is_caught() -> None:
    story, _run = rescued()
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], actor="executor-1")
    assert_caught(story, 11)


def test_an_attempt_that_another_executor_gives_back_is_caught() -> None:
    story, _run = rescued()
    place = next(place for place, event in enumerate(story.run_events) if event.new == "queued" and event.old)
    story.run_events[place] = msgspec.structs.replace(story.run_events[place], actor="scheduler-1")
    assert_accepted(story, 11)
    story.run_events[place] = msgspec.structs.replace(story.run_events[place], actor="executor-2")
    assert_caught(story, 11)


def test_an_effect_with_a_token_that_no_claim_gave_out_is_caught() -> None:
    story, run = long_job()
    story.begin(run, 30.02)
    story.end(run, 40.0)
    story.say(run, "start", 50.0, fence=999, attempt=2)
    assert_caught(story, 11)


# --- 12 --------------------------------------------------------------------------------------------------------


def test_attempts_side_by_side_although_nothing_was_broken_are_caught() -> None:
    story, _run = rescued()
    story.faults.clear()
    assert_caught(story, 12)


@pytest.mark.parametrize(("broken", "numbers"), [("executor-1", ()), ("executor-2", (12,))])
def test_an_attempt_that_begins_when_its_stopped_executor_goes_on_is_excused_by_that_alone(
    broken: str, numbers: tuple[int, ...]
) -> None:
    story, run = long_job()
    story.fault("stop", 30.05, 60.0, broken)
    first = story.begin(run, 30.02)
    story.witness.clear()
    story.requeue(run, 45.5, 45.5, "lost", "executor_lost")
    story.begin(run, 46.0, "executor-2")
    story.beat(run, 47.0, 103.0, 5.0)
    story.beat(run, 60.02, 60.03, fence=first, attempt=1)
    story.end(run, 104.0)
    assert_caught(story, *numbers)


def test_a_drain_is_no_excuse_for_attempts_side_by_side() -> None:
    story, _run = rescued("drain")
    assert_caught(story, 12)


def test_a_second_attempt_before_the_lease_of_the_first_has_ended_is_caught() -> None:
    story, _run = rescued()
    place = next(place for place, event in enumerate(story.node_events) if event.name == "executor-1")
    story.node_events[place] = msgspec.structs.replace(story.node_events[place], lease_until=BEGINNING + 50.0)
    assert_caught(story, 12)


def test_attempts_that_follow_each_other_need_no_excuse() -> None:
    story, run = long_job(max_retries=1)
    story.begin(run, 30.02)
    story.say(run, "end", 31.0, failed=True)
    story.requeue(run, 31.1, 46.0)
    story.begin(run, 46.02)
    story.end(run, 47.0)
    assert_accepted(story, 12, 13)


@pytest.mark.parametrize(("gone", "numbers"), [(61.5, ()), (70.0, (12,))])
def test_a_limited_run_is_ended_by_its_own_executor_as_soon_as_that_goes_on(
    gone: float, numbers: tuple[int, ...]
) -> None:
    story, _run = rescued(zombie_until=gone, gates={"key:a": 5})
    assert_caught(story, *numbers)


# --- 13 --------------------------------------------------------------------------------------------------------


def failing(tries: int, max_retries: int, reason: str = "exception", **asked: Any) -> tuple[Story, str]:
    """A run that is tried so often, 20 s apart, and fails each time."""
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=30.0, max_retries=max_retries, **asked)
    run = story.born(job, 30.0)
    for number in range(tries):
        start = 30.02 + 20 * number
        story.begin(run, start)
        if number + 1 < tries:
            story.say(run, "end", start + 1.0, failed=True)
            story.requeue(run, start + 1.1, start + 19.98)
        else:
            story.end(run, start + 1.0, "failed", reason)
    return story, run


def test_a_run_that_failed_as_often_as_it_may_is_accepted() -> None:
    assert_accepted(failing(tries=3, max_retries=2)[0], 13)


def test_a_run_that_was_tried_too_often_is_caught() -> None:
    assert_caught(failing(tries=4, max_retries=2)[0], 13)


def test_a_run_that_was_given_up_too_early_is_caught() -> None:
    assert_caught(failing(tries=2, max_retries=2)[0], 13)


def test_a_run_that_may_not_be_retried_is_given_up_at_once() -> None:
    assert_accepted(failing(tries=1, max_retries=2, retryable=False)[0], 13)
    assert_accepted(failing(tries=1, max_retries=2, reason="bad_arguments")[0], 13)


def lost(times: int, **asked: Any) -> tuple[Story, str]:
    """A run whose executor is killed again and again; the last loss is its end."""
    story = Story(lasts=600.0)
    job = story.job(submitted=10.0, schedule="at", at=30.0, **asked)
    run = story.born(job, 30.0)
    for number in range(times):
        start = 30.02 + 40 * number
        story.begin(run, start)
        story.fault("kill", start + 1, start + 2, "executor-1")
        if number + 1 < times:
            story.requeue(run, start + 17, start + 17, "lost", "executor_lost")
    story.finish(run, "failed", 30.02 + 40 * times, "poison")
    return story, run


def test_a_run_that_was_lost_three_times_is_poison() -> None:
    assert_accepted(lost(3)[0], 13)


def test_poison_after_fewer_losses_is_caught() -> None:
    assert_caught(lost(2)[0], 13)


def test_a_run_that_was_tried_again_after_too_many_losses_is_caught() -> None:
    assert_caught(lost(5)[0], 13)


def test_attempts_that_are_counted_but_were_never_claimed_are_caught() -> None:
    story, run = failing(tries=3, max_retries=2)
    story.runs[run].attempt = 5
    assert_caught(story, 13)


def test_a_second_start_of_a_run_that_may_start_once_is_caught() -> None:
    story, _run = rescued(action="kill", zombie_until=31.5, at_most_once=True)
    assert_caught(story, 13)


# --- 26 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "numbers"),
    [
        (RetrySpec(delays_seconds=(18.9,)), ()),
        (RetrySpec(delays_seconds=(20.0,)), (26,)),
        (RetrySpec(delays_seconds=(15.0,)), (26,)),
        (RetrySpec(base_seconds=17.0, factor=1.0), ()),
        (RetrySpec(base_seconds=30.0, factor=1.0), (26,)),
    ],
)
def test_retries_come_when_the_policy_says(retry: RetrySpec, numbers: tuple[int, ...]) -> None:
    story, _run = failing(tries=3, max_retries=2, retry=retry)
    if numbers:
        assert_caught(story, *numbers)
    else:
        assert_accepted(story, 26)


def test_retries_during_faults_are_not_measured() -> None:
    story, _run = failing(tries=3, max_retries=2, retry=RetrySpec(delays_seconds=(1.0,)))
    story.fault("backend_kill", 25.0, 95.0)
    assert_accepted(story, 13)
