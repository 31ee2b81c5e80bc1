"""Invariants 1, 2, 35, 36: what was acknowledged is there, once, and can be read."""

import msgspec
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import BEGINNING, Story


def told_job(key: str | None = None) -> tuple[Story, str]:
    """A job that is submitted at 10 s and runs once at 30 s."""
    story = Story()
    job = story.job(submitted=10.0, key=key, schedule="at", at=30.0)
    story.life(job, 30.0)
    return story, job


def test_an_acknowledged_job_that_is_there_is_accepted() -> None:
    story, _job = told_job()
    assert_accepted(story, 1)


def test_an_acknowledged_job_that_is_gone_is_caught() -> None:
    story, job = told_job()
    del story.jobs[job]
    assert_caught(story, 1)


def test_a_job_whose_deletion_may_have_been_applied_need_not_be_there() -> None:
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=30.0)
    story.call("delete", 20.0, outcome="info", job_id=job)
    del story.jobs[job]
    assert_accepted(story, 1)


def test_a_submission_repeated_with_its_key_that_made_one_job_is_accepted() -> None:
    story, job = told_job("k")
    story.call("submit", 9.0, outcome="info", idempotency_key="k", body_digest="a")
    story.call("submit", 11.0, job_id=job, version=1, idempotency_key="k", body_digest="a")
    assert_accepted(story, 2)


def test_a_key_that_made_two_jobs_is_caught() -> None:
    story, job = told_job("k")
    story.call("submit", 11.0, outcome="info", idempotency_key="k", body_digest="a")
    story.jobs["another"] = msgspec.structs.replace(story.jobs[job], job_id="another")
    assert_caught(story, 2)


def test_a_key_that_was_accepted_with_another_body_is_caught() -> None:
    story, job = told_job("k")
    story.call("submit", 11.0, job_id=job, version=1, idempotency_key="k", body_digest="b")
    assert_caught(story, 2)


def test_a_key_that_was_refused_with_another_body_is_accepted() -> None:
    story, _job = told_job("k")
    problem = "urn:hourhand:problem:idempotency-key-reused"
    story.call("submit", 11.0, outcome="fail", idempotency_key="k", body_digest="b", status=422, problem_type=problem)
    assert_accepted(story, 2)


def test_changes_that_survive_a_crash_of_the_database_are_accepted() -> None:
    story, job = told_job()
    story.update(job, 11.0, 2, schedule="at")
    story.specs[-1] = msgspec.structs.replace(story.specs[-1], at=BEGINNING + 30.0)
    story.fault("postgres_kill", 12.0, 14.0)
    assert_accepted(story, 35)


def test_a_job_that_a_crash_took_away_is_caught() -> None:
    story = Story()
    job = story.job(submitted=10.0, schedule="at", at=30.0)
    story.fault("postgres_kill", 11.0, 14.0)
    del story.jobs[job]
    assert_caught(story, 1, 3, 35)


def test_an_update_that_a_crash_undid_is_caught() -> None:
    story, job = told_job()
    story.call("update", 11.0, job_id=job, version=2)
    story.fault("postgres_kill", 12.0, 14.0)
    assert_caught(story, 35)


def test_an_acknowledgement_that_came_before_the_write_is_caught() -> None:
    story, _job = told_job()
    story.job_events[0] = msgspec.structs.replace(story.job_events[0], at=BEGINNING + 10.5)
    assert_caught(story, 35)


def test_a_manual_run_that_was_told_before_it_was_written_is_caught() -> None:
    story, job = told_job()
    run = story.life(job, 50.5, at=50.5, cause="manual")
    story.call("run_now", 50.0, job_id=job, run_id=run)
    assert_caught(story, 35)


def test_reads_that_see_what_was_written_are_accepted() -> None:
    story, job = told_job()
    story.call("get_job", 11.0, job_id=job, version=1, state="scheduled")
    story.call("pause", 12.0, job_id=job, version=1)
    story.call("get_job", 13.0, job_id=job, version=1, state="paused")
    story.call("resume", 14.0, job_id=job, version=1)
    story.call("get_job", 15.0, job_id=job, version=1, state="scheduled")
    assert_accepted(story, 36)


def test_a_job_that_another_node_does_not_find_is_caught() -> None:
    story, job = told_job()
    problem = "urn:hourhand:problem:not-found"
    story.call("get_job", 11.0, outcome="fail", status=404, job_id=job, problem_type=problem)
    assert_caught(story, 36)


def test_an_old_version_that_is_read_after_a_newer_was_acknowledged_is_caught() -> None:
    story, job = told_job()
    story.update(job, 11.0, 2, schedule="now")
    story.call("get_job", 12.0, job_id=job, version=1, state="scheduled")
    assert_caught(story, 36)


def test_a_pause_that_is_not_seen_is_caught() -> None:
    story, job = told_job()
    story.call("pause", 12.0, job_id=job, version=1)
    story.call("get_job", 13.0, job_id=job, version=1, state="scheduled")
    assert_caught(story, 36)


def test_a_pause_that_was_perhaps_undone_meanwhile_is_not_demanded() -> None:
    story, job = told_job()
    story.call("pause", 12.0, job_id=job, version=1)
    story.call("resume", 12.5, outcome="info", job_id=job)
    story.call("get_job", 13.0, job_id=job, version=1, state="scheduled")
    assert_accepted(story, 36)


def test_a_cancelled_run_that_is_read_as_running_is_caught() -> None:
    story, job = told_job()
    run = story.born(job, 40.0, at=40.0, cause="manual")
    story.call("run_now", 39.99, job_id=job, run_id=run, took=0.1)
    story.begin(run, 40.2)
    story.call("cancel", 41.0, run_id=run, state="cancelling")
    story.step(run, "cancelling", 41.01)
    story.call("get_run", 42.0, run_id=run, state="running")
    story.finish(run, "cancelled", 43.0)
    assert_caught(story, 36)
