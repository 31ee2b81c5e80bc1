"""Invariants 3, 4, 17, 18, 28: each due time once, nothing else, and changes hold from their acknowledgement on."""

from typing import Any

import msgspec
import pytest
from tests.chaos.due_times import due_between, micros
from tests.chaos.history import JobSpec
from tests.chaos.invariants import check_all
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import BEGINNING, Story

EVERY_TEN: dict[str, Any] = {"schedule": "every", "every_seconds": 10.0, "anchor": 10.0}


def ticking(lasts: float = 100.0, until: float = 100.0, **more: Any) -> tuple[Story, str, list[str]]:
    """A job that is due at 10 s, 20 s, … and runs each time."""
    story = Story(lasts)
    job = story.job(**{**EVERY_TEN, **more})
    runs = [story.life(job, float(due)) for due in range(10, int(until), 10)]
    return story, job, runs


def forget(story: Story, run_id: str) -> None:
    """As if the run had never been made."""
    del story.runs[run_id]
    story.run_events = [event for event in story.run_events if event.run_id != run_id]
    story.witness = [line for line in story.witness if line.run_id != run_id]


# --- 3 ---------------------------------------------------------------------------------------------------------


def test_a_job_that_ran_at_each_due_time_is_accepted() -> None:
    story, _job, _runs = ticking()
    assert_accepted(story, 3, 4, 5)


def test_a_cron_job_that_ran_at_each_due_time_is_accepted() -> None:
    story = Story(300.0)
    job = story.job(schedule="cron", cron="* * * * *")
    dues = due_between(story.specs[0], BEGINNING, BEGINNING + 299)
    for due in dues:
        story.life(job, due / 1e6 - BEGINNING)
    assert len(dues) == 4
    assert_accepted(story, 3, 4)


def test_a_due_time_without_a_run_is_caught() -> None:
    story, _job, runs = ticking()
    forget(story, runs[4])
    assert_caught(story, 3)


def test_a_due_time_of_a_cron_job_without_a_run_is_caught() -> None:
    story = Story(300.0)
    story.job(schedule="cron", cron="*/2 * * * *")
    assert_caught(story, 3)


def test_a_due_time_with_two_runs_is_caught() -> None:
    story, job, _runs = ticking()
    story.life(job, 40.0, start=41.0)
    assert_caught(story, 3)


def test_a_due_time_with_a_run_and_a_ledger_entry_is_caught() -> None:
    story, job, _runs = ticking()
    story.missed(job, 40.0, 40.0, 1, at=40.0, reason="paused")
    assert_caught(story, 3)


def test_a_ledger_that_counts_more_due_times_than_there_are_is_caught() -> None:
    story, job, runs = ticking()
    forget(story, runs[4])
    story.missed(job, 50.0, 50.0, 2, at=50.0, reason="excluded")
    assert_caught(story, 3)


def test_a_job_that_runs_once_and_has_no_run_is_caught() -> None:
    story = Story()
    story.job(submitted=10.0)
    assert_caught(story, 3)


def test_due_times_of_an_uncertain_pause_are_not_demanded() -> None:
    story, job, runs = ticking()
    story.call("pause", 35.0, outcome="info", job_id=job)
    for run in runs[3:]:
        forget(story, run)
    assert_accepted(story, 3)


def deleted_at_45(first_answer: str) -> Story:
    """A delete that is asked for a second time, after the next due time: what came of the first is said here."""
    story, job, _runs = ticking(until=50.0)
    story.call("delete", 45.0, outcome=first_answer, job_id=job, status=None)
    story.call("delete", 55.0, job_id=job)
    story.jobs[job] = msgspec.structs.replace(story.jobs[job], status="cancelled")
    return story


def test_due_times_after_a_delete_that_may_have_been_done_are_not_demanded() -> None:
    assert_accepted(deleted_at_45("info"), 3)


def test_a_due_time_after_a_delete_that_was_certainly_not_done_is_demanded() -> None:
    assert_caught(deleted_at_45("fail"), 3)


def test_a_run_that_was_taken_back_and_made_anew_is_accepted() -> None:
    story, job, runs = ticking()
    forget(story, runs[4])
    run = story.born(job, 50.0, at=48.0)
    story.step(run, "withdrawn", 49.0)
    story.step(run, "queued", 49.5)
    story.begin(run, 50.02)
    story.end(run, 50.5)
    assert_accepted(story, 3, 9)


# --- 4 ---------------------------------------------------------------------------------------------------------


def test_a_run_at_a_time_that_no_schedule_names_is_caught() -> None:
    story, job, _runs = ticking()
    story.life(job, 45.0)
    assert_caught(story, 4)


def test_a_run_of_a_job_due_at_once_that_was_made_while_it_was_submitted_is_accepted() -> None:
    story = Story()
    job = story.job(submitted=10.0)
    story.life(job, 10.01)
    assert_accepted(story, 3, 4)


def test_a_manual_run_that_nobody_asked_for_is_caught() -> None:
    story, job, _runs = ticking()
    story.life(job, 45.0, cause="manual")
    assert_caught(story, 4)


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_manual_run_that_somebody_asked_for_is_accepted(outcome: str) -> None:
    story, job, _runs = ticking()
    run = story.life(job, 45.01, at=45.01, cause="manual")
    story.call("run_now", 45.0, outcome=outcome, job_id=job, run_id=run if outcome == "ok" else None)
    assert_accepted(story, 4)


def test_a_job_that_nobody_submitted_is_caught() -> None:
    story, job, _runs = ticking()
    story.jobs["stray"] = msgspec.structs.replace(story.jobs[job], job_id="stray")
    assert_caught(story, 4)


def changed_at(at: float, outcome: str, op: str = "pause") -> Story:
    """The database has a pause of the job at 50.01 s; somebody asked for something at `at`."""
    story, job, _runs = ticking(until=50.0)
    story.call(op, at, outcome=outcome, job_id=job, status=200 if outcome == "ok" else None)
    story.job_changed(job, 50.01, status="paused")
    return story


@pytest.mark.parametrize(("at", "outcome"), [(50.0, "ok"), (50.0, "info"), (30.0, "info")])
def test_a_change_that_somebody_asked_for_is_accepted(at: float, outcome: str) -> None:
    assert_accepted(changed_at(at, outcome), 4)


@pytest.mark.parametrize(
    ("at", "outcome", "op"),
    [(50.0, "fail", "pause"), (51.0, "info", "pause"), (49.0, "ok", "pause"), (50.0, "info", "resume")],
)
def test_a_change_that_nobody_asked_for_or_that_was_called_undone_is_caught(at: float, outcome: str, op: str) -> None:
    found = check_all(changed_at(at, outcome, op).history())
    assert [violation.message for violation in found[4].violations] == ["a change that nobody asked for: paused"]


# --- 17 --------------------------------------------------------------------------------------------------------


def paused_from_35_to_65() -> tuple[Story, str]:
    story, job, runs = ticking()
    for run in runs[3:6]:
        forget(story, run)
    story.call("pause", 35.0, job_id=job, version=1)
    story.call("resume", 65.0, job_id=job, version=1)
    return story, job


def test_a_job_that_rests_while_it_is_paused_is_accepted() -> None:
    story, _job = paused_from_35_to_65()
    assert_accepted(story, 3, 17)


def test_a_run_with_a_due_time_inside_a_pause_is_caught() -> None:
    story, job = paused_from_35_to_65()
    story.life(job, 50.0)
    assert_caught(story, 17)


def test_a_run_that_the_answer_to_the_pause_names_as_too_late_is_accepted() -> None:
    story, job = paused_from_35_to_65()
    run = story.life(job, 40.0)
    story.calls[-2] = msgspec.structs.replace(story.calls[-2], too_late=(run,))
    assert_accepted(story, 17)


def test_a_due_time_after_the_resumption_that_has_no_run_is_caught() -> None:
    story, _job = paused_from_35_to_65()
    forget(story, next(run.run_id for run in story.runs.values() if run.due == 70.0))
    assert_caught(story, 3)


# --- 18 --------------------------------------------------------------------------------------------------------


def updated_at_45() -> tuple[Story, str]:
    """From every ten seconds to every twenty, at 45 s."""
    story = Story(100.0)
    job = story.job(**EVERY_TEN)
    for due in (10.0, 20.0, 30.0, 40.0):
        story.life(job, due)
    story.update(job, 45.0, 2, schedule="every", every_seconds=20.0, anchor=60.0)
    for due in (60.0, 80.0):
        story.life(job, due)
    return story, job


def test_a_job_that_follows_its_new_schedule_is_accepted() -> None:
    story, _job = updated_at_45()
    assert_accepted(story, 3, 18)


def test_a_run_of_the_old_version_after_the_update_is_caught() -> None:
    story, job = updated_at_45()
    story.life(job, 50.0, version=1)
    assert_caught(story, 18)


def test_a_run_after_its_job_was_deleted_is_caught() -> None:
    story, job, _runs = ticking(until=50.0)
    story.call("delete", 45.0, job_id=job)
    story.jobs[job] = msgspec.structs.replace(story.jobs[job], status="cancelled")
    assert_accepted(story, 18)
    story.life(job, 60.0)
    assert_caught(story, 18)


# --- 28 --------------------------------------------------------------------------------------------------------


def silent_from_35_to_97(catchup: str, runs: list[float], missed: list[tuple[float, float]], **more: Any) -> Story:
    """Nobody plans for a minute. Due at 40 … 90; at 97 s those up to 80 are older than the grace of 15 s."""
    story = Story(120.0)
    job = story.job(**EVERY_TEN, catchup=catchup, overlap="allow", **more)
    story.fault("postgres_restart", 31.0, 96.0)
    for due in (10.0, 20.0, 30.0):
        story.life(job, due)
    for due in [*runs, 90.0]:
        story.life(job, due, at=97.0, start=97.1)
    for first, last in missed:
        story.missed(job, first, last, round((last - first) / 10) + 1, at=97.0, reason="catchup_last")
    for due in (100.0, 110.0):
        story.life(job, due)
    return story


def test_no_late_due_time_runs_under_catch_up_last_beside_one_within_the_grace() -> None:
    assert_accepted(silent_from_35_to_97("last", [], [(40.0, 80.0)]), 3, 28)


def silent_from_45_to_98(runs: list[float], missed: tuple[float, float]) -> Story:
    """The same, due every twenty seconds: at 98 s none is within the grace."""
    story = Story(125.0)
    job = story.job(schedule="every", every_seconds=20.0, anchor=20.0, catchup="last", overlap="allow")
    story.fault("postgres_restart", 45.0, 97.0)
    for due in (20.0, 40.0):
        story.life(job, due)
    for due in runs:
        story.life(job, due, at=98.0, start=98.1)
    story.missed(job, *missed, round((missed[1] - missed[0]) / 20) + 1, at=98.0, reason="catchup_last")
    for due in (100.0, 120.0):
        story.life(job, due)
    return story


def test_the_newest_late_due_time_runs_under_catch_up_last() -> None:
    assert_accepted(silent_from_45_to_98([80.0], (60.0, 60.0)), 3, 28)


def test_a_newest_late_due_time_that_does_not_run_under_catch_up_last_is_caught() -> None:
    assert_caught(silent_from_45_to_98([], (60.0, 80.0)), 28)


def test_all_late_due_times_run_under_catch_up_all() -> None:
    assert_accepted(silent_from_35_to_97("all", [40.0, 50.0, 60.0, 70.0, 80.0], []), 3, 28)


def test_at_most_so_many_late_due_times_run_under_catch_up_all() -> None:
    story = silent_from_35_to_97("all", [70.0, 80.0], [(40.0, 60.0)], catchup_max_runs=2)
    assert_accepted(story, 3, 28)


def test_no_late_due_time_runs_under_catch_up_none() -> None:
    story = silent_from_35_to_97("none", [], [(40.0, 80.0)], catchup_window_seconds=3600.0)
    assert_accepted(story, 3, 28)


def test_late_due_times_before_the_window_do_not_run() -> None:
    story = silent_from_35_to_97("all", [70.0, 80.0], [(40.0, 60.0)], catchup_window_seconds=30.0)
    assert_accepted(story, 3, 28)


@pytest.mark.parametrize(
    ("catchup", "runs", "missed"),
    [
        ("last", [70.0, 80.0], [(40.0, 60.0)]),
        ("last", [70.0], [(40.0, 60.0), (80.0, 80.0)]),
        ("last", [80.0], [(40.0, 70.0)]),
        ("all", [80.0], [(40.0, 70.0)]),
        ("none", [80.0], [(40.0, 70.0)]),
    ],
)
def test_late_runs_that_the_policy_does_not_name_are_caught(
    catchup: str, runs: list[float], missed: list[tuple[float, float]]
) -> None:
    assert_caught(silent_from_35_to_97(catchup, runs, missed), 28)


def test_a_late_due_time_that_nobody_accounts_for_is_caught() -> None:
    assert_caught(silent_from_35_to_97("last", [], [(40.0, 70.0)]), 3)


# --- 3 and 28, with two schedules ------------------------------------------------------------------------------


def silent_after_an_update(missed: tuple[float, float], version: int) -> Story:
    """From 10, 20, 30 … to 63, 83, 103 …, and then nobody plans until 120 s. Each has two due times from 63 to 83."""
    story = Story(140.0)
    job = story.job(**EVERY_TEN, overlap="allow")
    for due in (10.0, 20.0, 30.0, 40.0):
        story.life(job, due)
    story.update(job, 45.0, 2, schedule="every", every_seconds=20.0, anchor=63.0, overlap="allow")
    story.fault("postgres_restart", 55.0, 119.0)
    story.missed(job, *missed, 2, at=120.0, reason="catchup_last", version=version)
    story.life(job, 103.0, at=120.0, start=120.1)
    story.life(job, 123.0)
    return story


def test_a_range_of_the_ledger_stands_for_due_times_of_its_own_version() -> None:
    assert_accepted(silent_after_an_update((63.0, 83.0), version=2), 3, 28)


def test_due_times_that_the_ledger_has_by_an_older_schedule_only_are_caught() -> None:
    assert_caught(silent_after_an_update((70.0, 80.0), version=1), 3)


def test_a_ledger_whose_count_fits_another_version_only_is_caught() -> None:
    story, job = updated_at_45()
    story.call("pause", 85.0, job_id=job, version=2)
    story.call("resume", 98.0, job_id=job, version=2)
    story.missed(job, 90.0, 90.0, 1, at=98.0, reason="paused", version=1)
    assert_accepted(story, 3)
    story.missed(job, 90.0, 90.0, 1, at=98.0, reason="paused", version=2)
    assert_caught(story, 3)


# --- the oracle --------------------------------------------------------------------------------------------------


def test_intervals_count_from_their_anchor() -> None:
    spec = JobSpec(job_id="j", schedule="every", every_seconds=7.0, anchor=100.0)
    assert due_between(spec, 0.0, 114.0) == [micros(100.0), micros(107.0), micros(114.0)]
    assert due_between(spec, 107.0, 113.0) == []


def test_cron_times_are_those_after_the_first_moment_and_up_to_the_last() -> None:
    spec = JobSpec(job_id="j", schedule="cron", cron="*/5 * * * *")
    assert due_between(spec, 0.0, 600.0) == [micros(300.0), micros(600.0)]
    assert due_between(spec, 299.5, 300.0) == [micros(300.0)]
    assert due_between(spec, 300.0, 599.9) == []
