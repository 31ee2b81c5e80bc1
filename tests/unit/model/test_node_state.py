"""How a node stands, read off its row and its last words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hourhand.model.node import Orders
from hourhand.model.node_state import NodeFacts, NodeState, Slots, node_state, read_facts

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
IDLE = NodeFacts(slots={"inline": Slots(0, 90)}, obeys=Orders.DRAIN)
BUSY = NodeFacts(slots={"inline": Slots(1, 90)}, obeys=Orders.DRAIN)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("orders", "facts", "lease_until", "ended_at", "state"),
    [
        (Orders.WORK, BUSY, later(9), None, NodeState.WORKING),
        (Orders.CORDON, BUSY, later(9), None, NodeState.CORDONED),
        (Orders.DRAIN, BUSY, later(9), None, NodeState.DRAINING),
        (Orders.DRAIN, IDLE, later(9), None, NodeState.DRAINED),
        (Orders.DRAIN, NodeFacts(), later(9), None, NodeState.DRAINING),
        (Orders.DRAIN, IDLE, later(-1), None, NodeState.LATE),
        (Orders.WORK, IDLE, later(-20), later(-5), NodeState.DEAD),
        (Orders.WORK, IDLE, later(9), later(-5), NodeState.DEAD),
        (Orders.CORDON, IDLE, later(-5), later(-5), NodeState.LEFT),
    ],
    ids=[
        "works", "cordoned", "still has work", "has nothing left", "has not heard of it yet", "its lease ran out",
        "was found dead", "was declared lost before its lease ran out", "left by itself",
    ],
)  # fmt: skip
def test_a_node_stands_as_its_row_and_its_words_say(
    orders: Orders, facts: NodeFacts, lease_until: datetime, ended_at: datetime | None, state: NodeState
) -> None:
    assert node_state(orders, facts, lease_until, ended_at, NOW) is state
    assert state.is_present is (ended_at is None)


def test_a_scheduler_that_owns_shards_has_something_left() -> None:
    assert node_state(Orders.DRAIN, IDLE, later(9), None, NOW, shards=1024) is NodeState.DRAINING


def test_facts_say_what_a_node_offers_and_how_full_its_rooms_are() -> None:
    facts = read_facts(
        {
            "queues": ["default", "reports"],
            "offers": {"inline": ["python:a"], "process": ["command"]},
            "slots": {"inline": {"slots": 90, "used": 4}, "process": {"slots": 6, "used": 6}},
            "lease_seconds": 15,
            "orders": "cordon",
        }
    )

    assert facts.serves("reports")
    assert not facts.serves("other")
    assert facts.slots_for("command") == Slots(6, 6)
    assert facts.slots_for("python:a") == Slots(4, 90)
    assert facts.slots_of_all == Slots(10, 96)
    assert (facts.lease_seconds, facts.obeys) == (15, Orders.CORDON)


def test_a_star_serves_every_queue() -> None:
    assert read_facts({"queues": ["*"]}).serves("anything")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"queues": "default", "offers": 3, "slots": [1], "lease_seconds": "long", "orders": "dance"},
        {"slots": {"inline": 3, "process": {"slots": "many"}}, "offers": {"inline": None}},
    ],
)
def test_what_cannot_be_understood_is_as_if_not_said(said: dict[str, Any]) -> None:
    facts = read_facts(said)

    assert (facts.queues, dict(facts.offers), facts.slots_of_all) == ((), {}, Slots(0, 0))
    assert (facts.lease_seconds, facts.obeys) == (None, Orders.WORK)


def test_offers_without_rooms_count_all_slots() -> None:
    facts = read_facts({"offers": ["command"], "slots": {"inline": {"slots": 4, "used": 1}}})

    assert facts.slots_for("command") == Slots(1, 4)
