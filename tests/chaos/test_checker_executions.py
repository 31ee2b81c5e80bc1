"""The checker as a whole: it accepts whatever a correct cluster does, however that was recorded."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from tests.chaos.history import read_history, write_history
from tests.chaos.invariants import INVARIANTS, check_all
from tests.chaos.judging import assert_accepted
from tests.chaos.report import judge
from tests.chaos.sample_episodes import EPISODES, Episode, stories
from tests.chaos.sample_history import Story


@settings(max_examples=150, deadline=None)
@given(stories())
def test_no_correct_execution_breaks_a_promise(story: Story) -> None:
    assert_accepted(story)


@settings(max_examples=25, deadline=None)
@given(stories())
def test_a_history_is_judged_the_same_after_it_was_kept(story: Story) -> None:
    history = story.history()
    with TemporaryDirectory() as folder:
        write_history(history, Path(folder))
        kept = read_history(Path(folder))
    assert judge(kept).text() == judge(history).text()


@pytest.mark.parametrize("episode", EPISODES, ids=lambda episode: episode.__name__)
def test_an_episode_puts_promises_to_the_test(episode: Episode) -> None:
    story = Story()
    episode(story, 0.0, lambda low, high: (low + high) / 2)
    assert_accepted(story)
    assert any(findings.facts for findings in check_all(story.history()).values())


def test_every_promise_of_the_list_has_a_check() -> None:
    assert [invariant.number for invariant in INVARIANTS] == [*range(1, 29), *range(34, 39)]
