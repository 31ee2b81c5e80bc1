"""Invariants 19, 20: limits in the database and in what is seen, and how the runs of a job overlap."""

import msgspec
import pytest
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import Story

GATE = "key:customer-7"


def limited(capacity: int, spans: list[tuple[float, float]]) -> tuple[Story, list[str]]:
    """Runs of one key that hold a slot and are seen from the first to the second moment."""
    story = Story()
    runs = []
    for start, _end in sorted(spans):
        job = story.job(schedule="at", at=10.0, gates={GATE: capacity})
        run = story.born(job, 10.0)
        if start > 11.0:
            story.step(run, "waiting", 10.0)
            story.step(run, "queued", start - 0.1)
        runs.append(run)
    moments = [(end + 0.05, 0, run) for run, (_, end) in zip(runs, sorted(spans), strict=True)]
    moments += [(start - 0.01, 1, run) for run, (start, _) in zip(runs, sorted(spans), strict=True)]
    for moment, taken, run in sorted(moments):
        story.slot(GATE, run, moment, bool(taken), capacity)
        if taken:
            story.begin(run, moment + 0.01)
        else:
            story.end(run, moment - 0.05)
    return story, runs


def test_a_limit_that_is_kept_is_accepted() -> None:
    story, _runs = limited(2, [(10.02, 20.0), (10.03, 25.0), (20.2, 30.0)])
    assert_accepted(story, 19)


def test_more_slots_than_the_limit_has_are_caught() -> None:
    story, _runs = limited(2, [(10.02, 20.0), (10.03, 25.0), (15.0, 30.0)])
    assert_caught(story, 19)


def test_more_effects_than_the_limit_has_are_caught_even_if_the_slots_look_right() -> None:
    story, runs = limited(1, [(10.02, 20.0), (20.2, 30.0)])
    early = next(line for line in story.witness if line.run_id == runs[1])
    story.witness.append(msgspec.structs.replace(early, at=early.at - 5.0))
    assert_caught(story, 19)


def test_a_zombie_whose_slot_was_given_on_is_not_counted() -> None:
    story, runs = limited(1, [(10.02, 20.0), (20.2, 30.0)])
    zombie = next(line for line in story.witness if line.run_id == runs[0])
    story.witness.append(msgspec.structs.replace(zombie, phase="beat", at=zombie.at + 13.0))
    assert_accepted(story, 19)


# --- 20 --------------------------------------------------------------------------------------------------------


def recurring(overlap: str | None, catchup: str = "last") -> tuple[Story, str]:
    story = Story(lasts=100.0)
    return story, story.job(schedule="every", every_seconds=30.0, anchor=10.0, overlap=overlap, catchup=catchup)


@pytest.mark.parametrize("overlap", [None, "skip", "queue_one", "queue_all"])
def test_runs_of_a_job_that_go_on_at_once_are_caught(overlap: str | None) -> None:
    story, job = recurring(overlap)
    story.life(job, 10.0, seconds=40.0)
    story.life(job, 40.0, seconds=10.0)
    story.life(job, 70.0)
    assert_caught(story, 20)


def test_runs_of_a_job_that_allows_it_may_go_on_at_once() -> None:
    story, job = recurring("allow")
    story.life(job, 10.0, seconds=40.0)
    story.life(job, 40.0, seconds=10.0)
    story.life(job, 70.0)
    assert_accepted(story, 3)


def test_a_run_that_is_skipped_because_another_goes_on_is_accepted() -> None:
    story, job = recurring("skip")
    story.life(job, 10.0, seconds=40.0)
    story.finish(story.born(job, 40.0, state="waiting"), "skipped", 40.01, "overlap")
    story.life(job, 70.0)
    assert_accepted(story, 3, 20)


def test_a_run_that_is_skipped_although_nothing_goes_on_is_caught() -> None:
    story, job = recurring("skip")
    story.life(job, 10.0, seconds=5.0)
    story.finish(story.born(job, 40.0, state="waiting"), "skipped", 40.01, "overlap")
    story.life(job, 70.0)
    assert_caught(story, 20)


def test_a_run_that_starts_while_an_earlier_one_waits_for_its_retry_is_caught() -> None:
    story, job = recurring("skip")
    first = story.born(job, 10.0)
    story.begin(first, 10.02)
    story.say(first, "end", 11.0, failed=True)
    story.requeue(first, 11.1, 50.0)
    story.life(job, 40.0, seconds=5.0)
    story.begin(first, 50.02)
    story.end(first, 51.0)
    story.life(job, 70.0)
    assert_caught(story, 20)


def test_two_runs_that_wait_where_one_may_are_caught() -> None:
    story, job = recurring("queue_one")
    first = story.born(job, 10.0)
    story.begin(first, 10.02)
    waiting = [story.born(job, due, at=due + 2.0, state="waiting") for due in (40.0, 70.0)]
    story.end(first, 80.0)
    for place, run in enumerate(waiting):
        story.step(run, "queued", 80.1 + place)
        story.begin(run, 80.2 + place)
        story.end(run, 80.4 + place)
    assert_caught(story, 20)


def test_a_run_that_is_replaced_ends_before_the_new_one_has_its_result() -> None:
    story, job = recurring("cancel_running")
    first = story.born(job, 10.0)
    story.begin(first, 10.02)
    story.step(first, "cancelling", 40.0)
    story.finish(first, "cancelled", 41.0)
    story.life(job, 40.0, start=41.1)
    story.life(job, 70.0)
    assert_accepted(story, 20)


def test_a_run_that_should_have_been_replaced_and_goes_on_is_caught() -> None:
    story, job = recurring("cancel_running")
    first = story.born(job, 10.0)
    story.begin(first, 10.02)
    story.life(job, 40.0)
    story.end(first, 60.0)
    story.life(job, 70.0)
    assert_caught(story, 20)


def test_a_run_whose_place_a_later_one_took_is_accepted() -> None:
    """After an outage two due times are planned at once; the newer one replaces the other before it has begun."""
    story, job = recurring("cancel_running", catchup="all")
    story.life(job, 10.0)
    story.finish(story.born(job, 40.0, at=71.0, state="waiting"), "skipped", 71.1, "superseded")
    story.life(job, 70.0, at=71.0, start=71.2)
    assert_accepted(story, 20)


def test_a_run_that_gave_way_to_one_that_was_not_due_yet_is_caught() -> None:
    story, job = recurring("cancel_running")
    story.life(job, 10.0)
    story.finish(story.born(job, 40.0, state="waiting"), "skipped", 40.1, "superseded")
    story.life(job, 70.0)
    assert_caught(story, 20)


def test_a_run_that_is_skipped_because_a_manual_one_goes_on_is_accepted() -> None:
    story, job = recurring("skip")
    story.life(job, 10.0)
    manual = story.life(job, 35.01, at=35.01, seconds=10.0, cause="manual")
    story.call("run_now", 35.0, job_id=job, run_id=manual)
    story.finish(story.born(job, 40.0, state="waiting"), "skipped", 40.1, "overlap")
    story.life(job, 70.0)
    assert_accepted(story, 20)
