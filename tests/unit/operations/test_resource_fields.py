"""What a job's attempts take, in the caller's words: every fault at once, and nothing lost in a change."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_kinds import KINDS
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.ids import time_ordered_id
from hourhand.model.job import JobDefinition
from hourhand.model.policy import ORDINARY, policy_from_json, policy_to_json
from hourhand.model.resources import Resources
from hourhand.operations.definition import define_change, define_job, words_of
from hourhand.operations.placement import placement_warnings
from hourhand.operations.requests import JobPatch, JobRequest, PlacementRequest
from hourhand.operations.resources import define_resources, resources_words
from hourhand.ports.stores import NodeRow

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
JOB_ID = time_ordered_id(NOW, 12345)


def defined(**fields: Any) -> JobDefinition:
    return define_job(JobRequest(name="train", kind="number", payload={"n": 1}, **fields), JOB_ID, NOW, "ada", KINDS)


def changed(old: JobDefinition, **fields: Any) -> JobDefinition:
    return define_change(old, JobPatch(**fields), JOB_ID, NOW, KINDS)


def faults_of(resources: Any) -> list[tuple[str, str]]:
    faults: list[Fault] = []
    define_resources(resources, faults.append)
    return [(fault.pointer, fault.code) for fault in faults]


def test_what_is_declared_is_kept_with_the_policy_and_told_in_the_same_words() -> None:
    said = {"cpu": 0.5, "memory": "512MB", "pids": 100, "disk": "2GB", "slots": 2, "gpu": 1}
    definition = defined(resources=said)
    assert definition.policy.resources == Resources(0.5, 512_000_000, 100, 2, {"gpu": 1}, 2_000_000_000)
    assert words_of(definition)["resources"] == said
    assert policy_from_json(policy_to_json(definition.policy)) == definition.policy


@pytest.mark.parametrize("empty", [None, {}, {"cpu": None, "gpu": None}, {"slots": 1}])
def test_resources_that_say_nothing_are_none(empty: dict[str, Any] | None) -> None:
    assert defined(resources=empty).policy == ORDINARY


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "lots"}, {"memory": 1}, {"memory": "1B"}, {"memory": 1e9}, {"memory": True}, {"memory": "2PB"},
        {"memory": -5}, {"memory": ["1GB"]}, {"cpu": -1}, {"cpu": 0}, {"cpu": "2"}, {"cpu": True}, {"cpu": 1e9},
        {"cpu": float("nan")}, {"cpu": float("inf")}, {"pids": 0}, {"pids": 2.0}, {"slots": 0}, {"slots": "2"},
        {"slots": 10**9}, {"gpu": 0}, {"gpu": -1}, {"gpu": 1.5}, {"gpu": "1"}, {"GPU": 1}, {"a b": 1}, {"": 1},
        {"disk": "much"}, {"disk": 1}, {"disk": "1B"}, {"disk": True}, {"disk": "2PB"}, {"storage": "1GB"}, {"dsk": 1},
        {"x" * 41: 1}, {"é": 1}, {"mem": 1}, {"ram": "1GB"}, {"cpus": 1}, {"memry": "1GB"}, {"a\x00b": 1}, {"a/b": 1},
    ],
)  # fmt: skip
def test_what_cannot_be_is_an_invalid_limit(wrong: dict[str, Any]) -> None:
    [(pointer, code)] = faults_of(wrong)
    assert code == "invalid-limit"
    assert pointer.startswith("/resources/")


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(resources={"memory": "lots", "cpu": -1, "gpu": 0, "mem": 1}, queue="bad queue")
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [
        ("/queue", "invalid-queue"),
        ("/resources/cpu", "invalid-limit"),
        ("/resources/memory", "invalid-limit"),
        ("/resources/gpu", "invalid-limit"),
        ("/resources/mem", "invalid-limit"),
    ]
    assert refused.value.faults[-1].hint == "did you mean 'memory'?"
    assert ("/resources", "invalid-limit") in faults_of({f"thing{place}": 1 for place in range(17)})


@given(
    st.dictionaries(st.text(max_size=50), st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))
)
def test_whatever_is_sent_is_either_refused_or_told_back_as_it_was_meant(given: dict[str, Any]) -> None:
    faults: list[Fault] = []
    found = define_resources(given, faults.append)
    if not faults:
        again: list[Fault] = []
        assert define_resources(resources_words(found), again.append) == found
        assert again == []


def test_a_change_of_something_else_keeps_them_and_null_takes_them_away() -> None:
    old = defined(resources={"memory": "1GiB", "gpu": 1})
    assert changed(old, priority=7).policy.resources == Resources(memory=2**30, custom={"gpu": 1})
    assert changed(old, resources={"cpu": 1}).policy.resources == Resources(cpu=1.0)
    assert changed(old, resources=None).policy == ORDINARY


def node(total: float, gpu: int = 0, labels: tuple[str, ...] = (), slots: int = 10) -> NodeRow:
    facts = {
        "queues": ["default"],
        "offers": {"inline": ["number"]},
        "labels": list(labels),
        "slots": {"inline": {"slots": slots, "used": 0}},
        "resources": {"memory": {"total": total, "used": 0}, "cpu": {"total": 2, "used": 2}, "gpu": {"total": gpu}},
    }
    return NodeRow(1, "executor", "n", NOW, NOW + timedelta(seconds=9), facts, NOW)


def test_who_declares_more_than_any_executor_has_is_warned() -> None:
    asks = defined(resources={"memory": "64GB"})
    [warning] = placement_warnings(asks, [node(4e9), node(23e9)])
    assert warning == (
        "no-matching-executor: needs 64 GB of memory: the largest executor has 23 GB; its runs wait for a larger one"
    )
    assert placement_warnings(asks, [node(4e9), node(64e9)]) == []
    assert placement_warnings(defined(resources={"cpu": 2}), [node(1)]) == [], "what is in use will be free again"
    [warning] = placement_warnings(defined(resources={"memory": "8GB", "gpu": 1}), [node(9e9), node(1e9, gpu=2)])
    assert "needs 1 gpu and 8 GB: no executor has all of it" in warning
    [warning] = placement_warnings(defined(resources={"fpga": 1}), [node(9e9)])
    assert "needs 1 fpga: no executor has any" in warning
    [warning] = placement_warnings(defined(resources={"slots": 11}), [node(9e9)])
    assert "needs 11 slots: the largest executor has 10 slots" in warning


def test_only_executors_that_may_take_the_job_count() -> None:
    asks = defined(resources={"memory": "8GB"}, placement=PlacementRequest(labels=["ssd"]))
    [warning] = placement_warnings(asks, [node(64e9), node(4e9, labels=("ssd",))])
    assert "the largest executor has 4 GB" in warning
