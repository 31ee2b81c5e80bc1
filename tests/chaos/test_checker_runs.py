"""Invariants 6 to 10: a run happens, takes legal steps only, ends, and its end is final."""

from typing import Any

import msgspec
import pytest
from tests.chaos.invariants import check_all
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import Story


def one_off(**asked: Any) -> tuple[Story, str]:
    story = Story()
    return story, story.job(submitted=10.0, schedule="at", at=30.0, **asked)


# --- 6 ---------------------------------------------------------------------------------------------------------


def test_a_run_that_was_seen_and_succeeded_is_accepted() -> None:
    story, job = one_off()
    story.life(job, 30.0)
    assert_accepted(story, 6, 7, 8, 9, 10, 11)


def test_a_success_that_was_never_seen_is_caught() -> None:
    story, job = one_off()
    story.life(job, 30.0)
    story.witness.clear()
    assert_caught(story, 6)


def test_a_success_of_a_job_that_does_not_speak_is_no_fact() -> None:
    story, job = one_off(witnessed=False)
    story.life(job, 30.0)
    story.witness.clear()
    assert_accepted(story)


def test_a_program_that_does_not_exist_need_not_be_seen() -> None:
    story, job = one_off()
    run = story.born(job, 30.0)
    story.claim(run, 30.0)
    story.finish(run, "failed", 30.1, "exec_not_found")
    assert_accepted(story, 7)


# --- 7 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["queued", "waiting", "claimed", "running", "cancelling"])
def test_a_run_that_is_open_at_the_end_and_not_alive_is_caught(state: str) -> None:
    story, job = one_off()
    run = story.born(job, 30.0)
    if state not in {"queued", "waiting"}:
        story.claim(run, 30.0)
    story.runs[run].state = state
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], new=state, old=None)
    found = {7, 9} if state == "cancelling" else {7}
    assert_caught(story, *found)


def test_a_run_that_is_alive_inside_its_time_may_be_open() -> None:
    story, job = one_off(timeout_seconds=600.0)
    run = story.born(job, 30.0)
    story.begin(run, 30.02)
    story.beat(run, 31.0, 299.0, every=10.0)
    assert_accepted(story, 7)


def test_a_run_that_is_not_due_yet_may_be_open() -> None:
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=600.0)
    story.born(job, 600.0, at=290.0)
    assert_accepted(story, 7)


def waits_behind(ended: float, due: float = 250.0) -> Story:
    """A run due at 220 s that ends then; and one that still waits for its turn when all is read, at 300 s."""
    story = Story()
    job = story.job(schedule="every", every_seconds=30.0, anchor=220.0, overlap="queue_all", end_at=260.0)
    story.life(job, 220.0, seconds=ended - 220.0)
    story.born(job, due, state="waiting")
    return story


def test_a_run_may_wait_for_its_turn_a_moment_longer_than_the_one_before_it_runs() -> None:
    assert_accepted(waits_behind(299.0), 7)


def test_a_run_that_waits_although_the_one_before_it_has_ended_is_caught() -> None:
    assert_caught(waits_behind(290.0), 7)


def taken_up_after_a_wait(at: float) -> Story:
    """A run that waited for its turn until it was claimed. All is read before anybody sees it start."""
    story = waits_behind(at - 0.1)
    run = next(run_id for run_id, run in story.runs.items() if run.state == "waiting")
    story.step(run, "queued", at - 0.05)
    story.claim(run, at)
    return story


def test_a_run_that_waited_and_was_claimed_a_moment_ago_may_be_open() -> None:
    assert_accepted(taken_up_after_a_wait(299.99), 7)


def test_a_run_that_was_claimed_and_never_started_is_caught() -> None:
    assert_caught(taken_up_after_a_wait(290.0), 7)


def ended_and_not_written(at: float) -> Story:
    story, job = one_off()
    run = story.born(job, 30.0)
    story.begin(run, 30.02)
    story.beat(run, 31.0, at - 1.0, every=1.0)
    story.say(run, "end", at)
    return story


def test_a_run_that_was_seen_to_end_a_moment_ago_may_be_open() -> None:
    assert_accepted(ended_and_not_written(299.99), 7)


def test_a_run_whose_end_was_never_written_is_caught() -> None:
    assert_caught(ended_and_not_written(290.0), 7)


def test_a_run_that_vanished_is_caught() -> None:
    story, job = one_off()
    run = story.born(job, 30.0)
    del story.runs[run]
    assert_caught(story, 3, 7)


# --- 8 ---------------------------------------------------------------------------------------------------------


def test_a_step_after_the_end_is_caught() -> None:
    story, job = one_off()
    run = story.life(job, 30.0)
    story.step(run, "running", 40.0)
    story.runs[run].state = "succeeded"
    assert_caught(story, 8)


def test_an_end_that_is_stored_as_another_is_caught() -> None:
    story, job = one_off(max_retries=0)
    run = story.life(job, 30.0)
    story.runs[run].state = "failed"
    assert_caught(story, 8)


# --- 9 ---------------------------------------------------------------------------------------------------------


def test_a_run_that_starts_without_having_been_claimed_is_caught() -> None:
    story, job = one_off()
    run = story.born(job, 30.0)
    story.begin(run, 30.02)
    story.end(run, 31.0)
    skipped = story.run_events[-2]
    story.run_events[-2] = msgspec.structs.replace(skipped, new="waiting")
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], old=None)
    assert_caught(story, 9)


def test_a_step_that_was_not_recorded_is_caught() -> None:
    story, job = one_off()
    story.life(job, 30.0)
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], old="cancelling")
    assert_caught(story, 9)


def test_a_run_that_ends_before_its_start_was_written_is_accepted() -> None:
    story, job = one_off()
    run = story.born(job, 30.0)
    story.claim(run, 30.0)
    story.say(run, "start", 30.01)
    story.end(run, 30.02)
    assert_accepted(story, 9)


# --- 10 --------------------------------------------------------------------------------------------------------


def test_a_run_that_is_stored_twice_is_caught() -> None:
    story = Story()
    job = story.job(schedule="every", every_seconds=1000.0, anchor=30.0)
    run = story.life(job, 30.0)
    story.more_runs.append(story.row(run))
    assert_caught(story, 3, 10)


def test_two_results_of_one_run_are_caught() -> None:
    story, job = one_off()
    run = story.life(job, 30.0)
    story.step(run, "failed", 40.0)
    story.runs[run].state = "succeeded"
    assert_caught(story, 8, 10)


def test_nothing_is_exercised_by_a_cluster_that_did_nothing() -> None:
    story = Story()
    story.fault("kill", 10.0, 20.0, "executor-1")
    assert {findings.status for findings in check_all(story.history()).values()} == {"not exercised"}
