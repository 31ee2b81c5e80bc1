"""Invariants 37, 38: nothing leaks, and refusals are documented problems."""

from typing import Any

import pytest
from tests.chaos.check import with_documented_problems
from tests.chaos.history import Probe
from tests.chaos.judging import assert_accepted, assert_caught
from tests.chaos.sample_history import Story


def probed(**seen: Any) -> Story:
    story = Story(rss_bytes_max=500 << 20, fds_max=1000)
    story.life(story.job(schedule="at", at=30.0), 30.0)
    facts: dict[str, Any] = {"rss_bytes": 100 << 20, "fds": 50, "connections": 5, "connections_max": 6, "final": True}
    story.probes.append(Probe(at=story.settings.read_at, node="api-1", **(facts | seen)))
    return story


def test_a_node_within_its_bounds_is_accepted() -> None:
    assert_accepted(probed(), 37)


@pytest.mark.parametrize(
    "seen",
    [{"connections": 7}, {"rss_bytes": 600 << 20}, {"fds": 1001}, {"run_ids": ("run-2",)}, {"run_ids": ("nobody",)}],
    ids=["connections", "memory", "files", "a process of a finished run", "a process of an unknown run"],
)
def test_what_leaks_is_caught(seen: dict[str, Any]) -> None:
    assert_caught(probed(**seen), 37)


def test_a_process_of_a_run_that_is_running_is_no_leak() -> None:
    story = Story()
    run = story.born(story.job(schedule="at", at=30.0), 30.0)
    story.begin(run, 30.02)
    story.beat(run, 31.0, 299.0, 5.0)
    story.probes.append(Probe(at=story.settings.read_at, node="", run_ids=(run,), final=True))
    assert_accepted(story, 37)


def refused(**told: Any) -> Story:
    story = Story(problem_codes=("not-found", "unavailable"))
    facts: dict[str, Any] = {
        "status": 404,
        "problem_type": "urn:hourhand:problem:not-found",
        "content_type": "application/problem+json",
        "body_excerpt": '{"title": "Not found"}',
    }
    story.call("get_job", 10.0, outcome="fail", job_id="j", **(facts | told))
    return story


def test_a_documented_problem_is_accepted() -> None:
    assert_accepted(refused(), 38)


@pytest.mark.parametrize(
    "told",
    [
        {"problem_type": None},
        {"problem_type": "about:blank"},
        {"problem_type": "urn:hourhand:problem:oops"},
        {"content_type": "application/json"},
        {"status": 500, "body_excerpt": "Traceback (most recent call last):"},
        {"status": 503, "problem_type": None, "body_excerpt": "<html>Bad gateway</html>"},
    ],
)
def test_an_answer_that_is_no_documented_problem_is_caught(told: dict[str, Any]) -> None:
    assert_caught(refused(**told), 38)


def test_the_documented_problems_are_read_from_the_reference() -> None:
    page = (
        "x\n<!-- problems -->\n| status | codes | |\n| --- | --- | --- |\n| 404 | `not-found` | no `job` |\n\n| `b` |"
    )
    assert with_documented_problems(Story().history(), page).settings.problem_codes == ("not-found",)
