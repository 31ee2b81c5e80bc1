"""Invariants 5, 24, 25, 27, 34: never early, soon when all is well, soon again, not too long, not only when told."""

from typing import Any

import msgspec
import pytest
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import BEGINNING, Story


def each_second(lateness: float = 0.05, slow: tuple[float, float] = (0.0, 0.0), slowness: float = 0.0) -> Story:
    """A job that is due each second for two minutes; within `slow` its starts are late."""
    story = Story(lasts=125.0)
    job = story.job(schedule="every", every_seconds=1.0, anchor=1.0, overlap="allow")
    for due in range(1, 124):
        late = slowness if slow[0] <= due < slow[1] else lateness
        story.life(job, float(due), seconds=0.1, start=due + late)
    return story


# --- 5 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("early", "numbers"), [(0.004, ()), (0.006, (5,))])
def test_a_start_before_the_due_time_is_caught(early: float, numbers: tuple[int, ...]) -> None:
    story = Story()
    story.life(story.job(schedule="at", at=30.0), 30.0, start=30.0 - early)
    assert_caught(story, *numbers)


# --- 24 --------------------------------------------------------------------------------------------------------


def test_starts_in_time_are_accepted() -> None:
    assert_accepted(each_second(), 5, 24)


def test_late_starts_without_any_fault_are_caught() -> None:
    assert_caught(each_second(slow=(50.0, 53.0), slowness=3.0), 24)


def test_one_late_start_of_many_is_within_the_99th_percentile() -> None:
    assert_accepted(each_second(slow=(50.0, 51.0), slowness=3.0), 24)


def test_late_starts_during_a_fault_and_its_aftermath_are_accepted() -> None:
    story = each_second(slow=(40.0, 60.0), slowness=5.0)
    story.fault("stop", 40.0, 50.0, "executor-2")
    assert_accepted(story, 24, 25)


def test_too_few_starts_say_nothing() -> None:
    story = Story()
    job = story.job(schedule="every", every_seconds=100.0, anchor=50.0)
    for due in (50.0, 150.0, 250.0):
        story.life(job, due, start=due + 5.0)
    assert_accepted(story, 3)


def test_a_repeated_run_is_measured_from_its_making_and_not_from_its_old_due_time() -> None:
    story = each_second()
    job = story.specs[0].job_id
    for number in range(5):
        run = story.life(job, 10.0, at=60.01 + number, start=60.05 + number, cause="manual")
        story.call("retry", 60.0 + number, job_id=job, run_id=run)
    assert_accepted(story, 24)


# --- 25 --------------------------------------------------------------------------------------------------------


def test_starts_that_stay_late_after_the_fault_was_healed_are_caught() -> None:
    story = each_second(slow=(40.0, 78.0), slowness=5.0)
    story.fault("stop", 40.0, 50.0, "executor-2")
    assert_caught(story, 24, 25)


def test_a_recovery_that_the_next_fault_interrupted_is_not_judged() -> None:
    story = each_second(slow=(40.0, 75.0), slowness=5.0)
    story.fault("stop", 40.0, 50.0, "executor-2")
    story.fault("stop", 60.0, 70.0, "executor-2")
    assert_accepted(story, 24, 25)


# --- 27 --------------------------------------------------------------------------------------------------------


def timed(last: float, state: str = "timed_out", **asked: Any) -> Story:
    """A run that starts at 30 s and is heard until `last`."""
    story = Story()
    job = story.job(schedule="at", at=30.0, max_retries=0, **({"timeout_seconds": 10.0} | asked))
    run = story.born(job, 30.0)
    story.begin(run, 30.02)
    story.beat(run, 31.0, last)
    if state == "succeeded":
        story.end(run, last)
    else:
        story.say(run, "term", min(last, 40.1))
        story.finish(run, state, last + 0.2, "timeout" if state == "timed_out" else "signal")
    return story


def test_an_attempt_that_is_gone_after_its_time_is_accepted() -> None:
    assert_accepted(timed(45.0), 27)


def test_an_attempt_that_lives_on_after_its_time_is_caught() -> None:
    assert_caught(timed(53.0), 27)


def test_an_attempt_whose_executor_was_stopped_is_given_more_time() -> None:
    story = timed(60.0)
    story.fault("stop", 35.0, 55.0, "executor-1")
    assert_accepted(story, 27)


def test_a_success_after_the_timeout_is_caught() -> None:
    assert_caught(timed(43.0, "succeeded"), 27)


def test_a_timeout_that_is_recorded_as_a_failure_is_caught() -> None:
    assert_caught(timed(41.0, "failed"), 27)


def test_a_success_after_the_deadline_is_caught() -> None:
    story = timed(43.0, "succeeded", timeout_seconds=None, deadline_seconds=10.0)
    assert_caught(story, 27)


@pytest.mark.parametrize(("start", "numbers"), [(35.0, ()), (39.0, (27,))])
def test_a_start_after_the_queue_timeout_is_caught(start: float, numbers: tuple[int, ...]) -> None:
    story = Story()
    job = story.job(schedule="at", at=30.0, queue_timeout_seconds=5.0)
    story.life(job, 30.0, start=start)
    assert_caught(story, *numbers)


# --- 34 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [30.5, 32.0])
def test_what_is_ready_is_claimed_although_nobody_was_told(claimed: float) -> None:
    story = Story()
    story.life(story.job(schedule="at", at=30.0), 30.0, start=claimed)
    story.fault("drop_notify", 20.0, 60.0)
    if claimed < 31.5:
        assert_accepted(story, 34)
    else:
        assert_caught(story, 34)


def test_a_run_that_is_never_claimed_while_nobody_is_told_is_caught() -> None:
    story = Story()
    story.born(story.job(schedule="at", at=30.0), 30.0)
    story.fault("drop_notify", 20.0, 60.0)
    assert_caught(story, 7, 34)


def test_wake_ups_that_were_not_dropped_prove_nothing() -> None:
    story = Story()
    story.life(story.job(schedule="at", at=30.0), 30.0, start=32.0)
    assert_accepted(story, 5)


def test_a_late_claim_beside_another_fault_is_not_held_against_the_polling() -> None:
    story = Story()
    story.life(story.job(schedule="at", at=30.0), 30.0, start=32.0)
    story.fault("drop_notify", 20.0, 60.0)
    story.fault("backend_kill", 30.1, 30.1)
    assert_accepted(story, 5)


def test_the_true_clock_decides_and_not_the_stamp_of_a_node() -> None:
    story = Story()
    run = story.life(story.job(schedule="at", at=30.0), 30.0)
    story.more_runs.append(msgspec.structs.replace(story.row(run), started_at=BEGINNING + 29.0))
    del story.runs[run]
    assert_accepted(story, 5)
