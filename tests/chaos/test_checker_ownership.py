"""Invariants 21, 22, 23: one owner per shard and one leader, by epoch, and no shard alone for long."""

from typing import Any

import pytest
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import NODES, Story


def taken_over(at: float = 40.0, **birth: Any) -> Story:
    """Scheduler 1 is killed at 30 s; its shard goes to scheduler 2. A run is planned at 50 s."""
    story = Story(lasts=100.0)
    job = story.job(schedule="every", every_seconds=60.0, anchor=51.0)
    story.shard(7, "scheduler-1", 1.0, 1)
    story.fault("kill", 30.0, 35.0, "scheduler-1")
    story.shard(7, "scheduler-2", at, 2)
    facts: dict[str, Any] = {"actor": "scheduler-2", "shard_owner_id": NODES["scheduler-2"], "epoch": 2}
    story.life(job, 51.0, shard=7, **(facts | birth))
    return story


def test_a_shard_that_changes_hands_in_time_is_accepted() -> None:
    assert_accepted(taken_over(), 21, 23)


def test_a_run_that_an_old_owner_plans_is_caught() -> None:
    assert_caught(taken_over(actor="scheduler-1", epoch=None), 21)


def test_a_run_that_is_planned_under_an_old_epoch_is_caught() -> None:
    assert_caught(taken_over(epoch=1), 21)


def test_a_statement_that_began_before_the_hand_over_may_end_after_it() -> None:
    story = taken_over(at=49.8, actor="scheduler-1", epoch=1)
    story.faults.clear()
    assert_accepted(story, 21)


@pytest.mark.parametrize(("at", "caught"), [(49.7, False), (45.0, True)])
def test_who_owned_a_shard_before_its_first_recorded_change_may_end_a_statement_and_no_more(
    at: float, caught: bool
) -> None:
    story = Story(lasts=100.0)
    job = story.job(schedule="every", every_seconds=60.0, anchor=51.0)
    story.shard(7, "scheduler-2", at, 2)
    owner = NODES["scheduler-2"]
    story.life(job, 51.0, shard=7, actor="scheduler-1", shard_owner_id=owner, epoch=None)
    (assert_caught if caught else assert_accepted)(story, 21)


def test_an_epoch_that_goes_back_is_caught() -> None:
    story = taken_over()
    story.shard(7, "scheduler-2", 60.0, 1)
    assert_caught(story, 21)


def test_a_new_owner_under_the_same_epoch_is_caught() -> None:
    story = taken_over()
    story.shard(7, "scheduler-1", 60.0, 2)
    assert_caught(story, 21)


def test_a_run_that_an_api_node_made_needs_no_shard() -> None:
    assert_accepted(taken_over(actor="api-1", epoch=None), 21)


# --- 22 --------------------------------------------------------------------------------------------------------


def test_leaders_that_follow_each_other_are_accepted() -> None:
    story = Story()
    story.lead("scheduler-1", 1.0, 10.0, 1)
    story.lead("scheduler-1", 4.0, 13.0, 1)
    story.lead("scheduler-2", 13.1, 22.0, 2)
    story.lead("scheduler-2", 20.0, 20.0, 2)
    story.lead("scheduler-1", 20.1, 29.0, 3)
    assert_accepted(story, 22)


@pytest.mark.parametrize(
    ("at", "epoch"),
    [(12.0, 2), (14.0, 1)],
    ids=["before the lease of the first has ended", "under the same epoch"],
)
def test_a_second_leader_is_caught(at: float, epoch: int) -> None:
    story = Story()
    story.lead("scheduler-1", 4.0, 13.0, 1)
    story.lead("scheduler-2", at, at + 9.0, epoch)
    assert_caught(story, 22)


# --- 23 --------------------------------------------------------------------------------------------------------


def test_a_shard_that_stays_with_a_dead_node_for_too_long_is_caught() -> None:
    assert_caught(taken_over(at=42.0), 23)


def test_a_shard_that_stays_with_nobody_for_too_long_is_caught() -> None:
    story = taken_over()
    story.shard(7, None, 60.0, 3)
    story.shard(7, "scheduler-2", 72.0, 4)
    assert_caught(story, 23)


def test_a_shard_whose_owner_was_stopped_for_a_moment_is_accepted() -> None:
    story = taken_over()
    story.fault("stop", 60.0, 65.0, "scheduler-2")
    assert_accepted(story, 23)


def test_a_shard_may_wait_as_long_as_the_database_is_away() -> None:
    story = taken_over(at=48.0)
    story.fault("postgres_restart", 31.0, 36.0)
    assert_accepted(story, 23)
