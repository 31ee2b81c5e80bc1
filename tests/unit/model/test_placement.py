"""Which executors may take a run, by labels; and how a lane carries what its runs demand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.demands import NO_DEMANDS, Demands, demands_of, lane_text, need_of, read_lane_text
from hourhand.model.node_state import read_facts
from hourhand.model.placement import Placement, is_label, missing_labels, nearest_labels, sorted_labels, tell_labels
from hourhand.model.policy import ORDINARY, Policy, policy_from_json, policy_to_json


@pytest.mark.parametrize("label", ["gpu", "zone=eu", "zone=eu-west.1", "a" * 63, "v100=_x", "kernel=6.8"])
def test_a_word_and_a_word_with_a_value_are_labels(label: str) -> None:
    assert is_label(label)


@pytest.mark.parametrize(
    "label", ["", "=eu", "zone=", "-gpu", "zone=a=b", "g pu", "gpu,", "é", "a" * 64, "a=" + "b" * 64, "gpu\n", "{x}"]
)
def test_anything_else_is_no_label(label: str) -> None:
    assert not is_label(label)


@pytest.mark.parametrize(
    ("wanted", "has", "missing"),
    [
        ([], [], []),
        (["gpu"], ["gpu", "zone=eu"], []),
        (["gpu", "zone=eu"], ["zone=eu", "gpu"], []),
        (["zone"], ["zone=eu"], []),
        (["zone=eu"], ["zone"], ["zone=eu"]),
        (["zone=eu"], ["zone=us"], ["zone=eu"]),
        (["gpu", "zone=eu"], ["gpus", "zone=eu"], ["gpu"]),
        (["zone"], ["zoneless"], ["zone"]),
        (["gpu"], [], ["gpu"]),
    ],
)
def test_all_wanted_labels_must_be_there(wanted: list[str], has: list[str], missing: list[str]) -> None:
    assert missing_labels(wanted, has) == missing


def test_labels_are_told_and_near_ones_found() -> None:
    assert tell_labels(["gpu"]) == "label gpu"
    assert tell_labels(["a", "gpu", "zone=eu"]) == "labels a, gpu and zone=eu"
    assert nearest_labels("gpu", ["gpus", "zone=eu"]) == ["gpus"]
    assert nearest_labels("gpu", ["ssd"]) == []


def test_a_job_that_demands_nothing_has_the_lane_of_its_need() -> None:
    assert lane_text("command", ORDINARY) == "command"
    assert lane_text("command", Policy(max_concurrency=3)) == "command"
    assert read_lane_text("command") == ("command", NO_DEMANDS)
    assert read_lane_text("command").demands is NO_DEMANDS, "which is quick to ask for"


@given(st.lists(st.sampled_from(["gpu", "zone=eu", "ssd", "a.b", "x_y=1"]), min_size=1), st.randoms())
def test_the_same_labels_are_the_same_lane_in_whatever_order_they_are_said(labels: list[str], chance: object) -> None:
    policy = Policy(placement=Placement(sorted_labels(labels)))
    again = Policy(placement=Placement(sorted_labels(reversed(labels))))
    text = lane_text("python:reports.build", policy)
    assert lane_text("python:reports.build", again) == text != "python:reports.build"
    assert read_lane_text(text) == ("python:reports.build", Demands(sorted_labels(labels)))
    assert need_of(text) == "python:reports.build"


def test_a_lane_with_demands_is_no_need_that_anybody_offers() -> None:
    """So that executors of an older version, which know nothing of labels, leave it alone."""
    text = lane_text("command", Policy(placement=Placement(("gpu",))))
    assert text == 'command {"labels":["gpu"]}'
    facts = read_facts({"queues": ["*"], "offers": {"process": ["command"]}})
    assert text not in facts.offers


def test_an_executor_may_take_what_its_queues_offers_and_labels_allow() -> None:
    facts = read_facts({"queues": ["default"], "offers": {"process": ["command"]}, "labels": ["gpu", 7, "zone=eu"]})
    assert facts.labels == ("gpu", "zone=eu")
    assert facts.may_take("default", "command", ["gpu"])
    assert facts.may_take("default", "command", [])
    assert not facts.may_take("default", "command", ["ssd"])
    assert not facts.may_take("other", "command", ["gpu"])
    assert not facts.may_take("default", "http", ["gpu"])


def test_a_placement_is_stored_with_the_policy() -> None:
    policy = Policy(placement=Placement(("gpu",)))
    stored = policy_to_json(policy)
    assert stored == '{"placement":{"labels":["gpu"]}}'
    assert policy_from_json(stored) == policy
    assert demands_of(policy) == Demands(("gpu",))
    assert not policy.gated, "runs with labels are claimed as all others"
