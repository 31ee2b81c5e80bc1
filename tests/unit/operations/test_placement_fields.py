"""Where a job's runs may go, in the caller's words: every fault at once, and nothing lost in a change."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from fake_kinds import KINDS

from hourhand.model.errors import InvalidFields
from hourhand.model.ids import time_ordered_id
from hourhand.model.job import JobDefinition
from hourhand.model.placement import LABELS_MAX, Placement
from hourhand.model.policy import ORDINARY
from hourhand.operations.definition import define_change, define_job
from hourhand.operations.placement import may_lack_executors, placement_warnings
from hourhand.operations.requests import JobPatch, JobRequest, PlacementRequest
from hourhand.ports.stores import NodeRow

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
JOB_ID = time_ordered_id(NOW, 12345)


def defined(**fields: Any) -> JobDefinition:
    return define_job(JobRequest(name="train", kind="number", payload={"n": 1}, **fields), JOB_ID, NOW, "ada", KINDS)


def on(*labels: str) -> PlacementRequest:
    return PlacementRequest(labels=list(labels))


def changed(old: JobDefinition, **fields: Any) -> JobDefinition:
    return define_change(old, JobPatch(**fields), JOB_ID, NOW, KINDS)


def test_labels_are_kept_sorted_and_once() -> None:
    definition = defined(placement=on("zone=eu", "gpu", "gpu"))
    assert definition.policy.placement == Placement(("gpu", "zone=eu"))
    assert definition.needs == "number", "what the kind needs is another matter"


@pytest.mark.parametrize("empty", [None, PlacementRequest(), PlacementRequest(labels=[])])
def test_a_placement_that_says_nothing_is_none(empty: PlacementRequest | None) -> None:
    assert defined(placement=empty).policy == ORDINARY


def test_every_label_that_is_none_is_named() -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(placement=on("gpu", "zone=", "x y", "ok"), queue="bad queue")
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [
        ("/queue", "invalid-queue"),
        ("/placement/labels/1", "invalid-labels"),
        ("/placement/labels/2", "invalid-labels"),
    ]
    with pytest.raises(InvalidFields) as refused:
        defined(placement=on(*(f"l{place}" for place in range(LABELS_MAX + 1))))
    assert [fault.pointer for fault in refused.value.faults] == ["/placement/labels"]


def test_a_change_of_something_else_keeps_the_placement_and_null_takes_it_away() -> None:
    old = defined(placement=on("gpu"))
    assert changed(old, priority=7).policy.placement == Placement(("gpu",))
    assert changed(old, placement=on("ssd")).policy.placement == Placement(("ssd",))
    assert changed(old, placement=None).policy == ORDINARY


def node(*labels: str, role: str = "executor") -> NodeRow:
    facts = {"queues": ["default"], "offers": {"inline": ["number"]}, "labels": list(labels)}
    return NodeRow(1, role, "n", NOW, NOW + timedelta(seconds=9), facts, NOW)


def test_who_asks_for_a_label_that_nobody_has_is_warned() -> None:
    asks = defined(placement=on("gpu"))
    [warning] = placement_warnings(asks, [node(), node("gpu", role="scheduler")])
    assert warning == (
        "no-matching-executor: no live executor of queue default with number has label gpu; its runs wait for one"
    )
    assert placement_warnings(asks, [node(), node("gpu")]) == []
    assert placement_warnings(defined(), []) == [], "who asks for nothing is not warned"


def test_who_asks_for_what_no_executor_offers_is_warned() -> None:
    """A language that is misspelled, a container where nobody has an engine."""
    asks = msgspec.structs.replace(defined(), kind="script", needs="script:cobol")
    [warning] = placement_warnings(asks, [node()])
    assert (
        warning == "no-matching-executor: no live executor of queue default offers script:cobol; its runs wait for one"
    )
    assert placement_warnings(asks, []) == [], "nobody is there yet"
    assert may_lack_executors(asks)
    assert not may_lack_executors(msgspec.structs.replace(asks, kind="command")), (
        "which most jobs are: they are not asked for"
    )


def test_on_how_many_executors_is_kept_and_told_back() -> None:
    for said, kept in (("all", "all"), (3, 3), ("any", None), (None, None)):
        definition = defined(placement=PlacementRequest(labels=["gpu"], on=said))
        assert definition.policy.placement == Placement(("gpu",), kept)  # type: ignore[arg-type]
        assert changed(definition, priority=7).policy.placement == definition.policy.placement
    assert defined(placement=PlacementRequest(on="any")).policy == ORDINARY


@pytest.mark.parametrize("wrong", [0, -1, 1001, "some", "3", ""])
def test_anything_else_is_no_placement(wrong: int | str) -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(placement=PlacementRequest(on=wrong))
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [("/placement/on", "invalid-placement")]


def test_what_runs_at_most_once_goes_to_one_executor() -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(placement=PlacementRequest(on="all"), at_most_once=True)
    assert [(fault.pointer, fault.code) for fault in refused.value.faults] == [("/placement/on", "conflicting-fields")]


def test_who_asks_for_more_executors_than_there_are_is_warned() -> None:
    asks = defined(placement=PlacementRequest(on=3))
    [warning] = placement_warnings(asks, [node(), node()])
    assert warning == (
        "no-matching-executor: 2 live executors can take its parts, of 3; the others wait for further ones"
    )
    assert placement_warnings(defined(placement=PlacementRequest(on="all")), [node()]) == []
