"""Invariants 14, 15, 16: cancel wins, stops what runs, and keeps what waits from starting."""

import msgspec
import pytest
from tests.chaos.history import Probe
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import Story


def running() -> tuple[Story, str]:
    """A run that goes on since 30 s."""
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=30.0)
    run = story.born(job, 30.0)
    story.begin(run, 30.02)
    return story, run


def cancelled(last: float = 41.0) -> tuple[Story, str]:
    """It is cancelled at 40 s, and its last line comes at `last`."""
    story, run = running()
    story.call("cancel", 40.0, run_id=run, state="cancelling")
    story.step(run, "cancelling", 40.01)
    story.say(run, "term", 40.5)
    story.say(run, "beat", last)
    story.finish(run, "cancelled", last + 0.1, "cancelled")
    return story, run


def test_a_cancelled_run_that_stops_and_ends_as_cancelled_is_accepted() -> None:
    story, _run = cancelled()
    assert_accepted(story, 14, 15)


def test_success_after_cancel_was_acknowledged_is_caught() -> None:
    story, run = running()
    story.call("cancel", 40.0, run_id=run, state="cancelling")
    story.end(run, 41.0)
    assert_caught(story, 14)


def test_a_run_that_was_being_cancelled_and_ends_otherwise_is_caught() -> None:
    story, run = cancelled()
    story.run_events[-1] = msgspec.structs.replace(story.run_events[-1], new="succeeded")
    story.runs[run].state = "succeeded"
    story.calls.pop()
    assert_caught(story, 9, 11, 14)


def test_a_cancel_that_was_refused_because_the_run_had_ended_is_accepted() -> None:
    story, run = running()
    story.end(run, 40.0)
    problem = "urn:hourhand:problem:run-already-final"
    story.call("cancel", 40.0, outcome="fail", run_id=run, problem_type=problem)
    assert_accepted(story, 11)


def test_a_run_that_succeeds_after_its_job_was_deleted_is_caught() -> None:
    story, run = running()
    job = story.runs[run].job_id
    story.call("delete", 40.0, job_id=job)
    story.jobs[job] = msgspec.structs.replace(story.jobs[job], status="cancelled")
    story.end(run, 41.0)
    assert_caught(story, 14)


@pytest.mark.parametrize(("last", "numbers"), [(55.0, ()), (57.0, (15,))])
def test_an_effect_that_outlives_its_cancel_is_caught(last: float, numbers: tuple[int, ...]) -> None:
    story, _run = cancelled(last)
    assert_caught(story, *numbers)


def test_an_effect_whose_executor_was_stopped_is_given_more_time() -> None:
    story, _run = cancelled(70.0)
    story.fault("stop", 39.0, 65.0, "executor-1")
    assert_accepted(story, 15)


def test_a_process_that_is_left_of_a_cancelled_run_is_caught() -> None:
    story, run = cancelled()
    story.probes.append(Probe(at=story.settings.read_at, node="", run_ids=(run,), final=True))
    assert_caught(story, 15)


def waiting() -> tuple[Story, str]:
    """A run that is cancelled while it waits."""
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=30.0)
    run = story.born(job, 30.0, at=29.0)
    story.call("cancel", 29.5, run_id=run, state="cancelled")
    story.finish(run, "cancelled", 29.51, "cancelled")
    return story, run


def test_a_run_that_was_cancelled_while_it_waited_and_is_never_seen_is_accepted() -> None:
    story, _run = waiting()
    assert_accepted(story, 14, 16)


def test_a_run_that_was_cancelled_while_it_waited_and_starts_is_caught() -> None:
    story, run = waiting()
    story.say(run, "start", 30.01, fence=500, attempt=1)
    assert_caught(story, 11, 16)


def test_a_run_that_is_claimed_after_its_cancel_is_caught() -> None:
    story, run = waiting()
    story.begin(run, 30.02)
    story.end(run, 31.0, "cancelled")
    assert_caught(story, 8, 10, 16)
