"""How a node stands, read off its row and off what it last said of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from hourhand.model.demands import Demands, short_of
from hourhand.model.node import Orders
from hourhand.model.placement import missing_labels
from hourhand.model.resources import SLOTS


class NodeState(StrEnum):
    WORKING = "working"
    CORDONED = "cordoned"
    """Takes nothing new; what it has goes on."""
    DRAINING = "draining"
    """Takes nothing new and is getting rid of what it has."""
    DRAINED = "drained"
    """Was told to drain and has nothing left: it can be stopped."""
    LATE = "late"
    """Its lease has run out, and nobody has held it for dead yet."""
    DEAD = "dead"
    """Was held for dead, or declared lost by somebody; its work is given to others."""
    LEFT = "left"
    """Stopped by itself, in order."""

    @property
    def is_present(self) -> bool:
        return self not in (NodeState.DEAD, NodeState.LEFT)


@dataclass(frozen=True, slots=True)
class Slots:
    used: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Amount:
    """What an executor has of something that is counted."""

    used: float = 0.0
    total: float = 0.0
    by: Sequence[tuple[str, float]] = ()
    """Runs that hold the most of it."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node says of itself with each heartbeat. Nodes of other versions may say less, or more."""

    queues: Sequence[str] = ()
    offers: Mapping[str, str] = field(default_factory=dict)
    """Every need it fills, and the room that it takes."""
    slots: Mapping[str, Slots] = field(default_factory=dict)
    """By room."""
    labels: Sequence[str] = ()
    resources: Mapping[str, Amount] = field(default_factory=dict)
    lease_seconds: float | None = None
    obeys: Orders = Orders.WORK
    """The orders it had heard of by then."""
    late_loops: Sequence[str] = ()
    """What of it had not come through for too long by then."""

    @property
    def slots_of_all(self) -> Slots:
        rooms = self.slots.values()
        return Slots(sum(room.used for room in rooms), sum(room.total for room in rooms))

    def slots_for(self, need: str) -> Slots:
        """Of the room that a run with this need takes a place in."""
        return self.slots.get(self.offers.get(need, ""), self.slots_of_all)

    def serves(self, queue: str) -> bool:
        return queue in self.queues or "*" in self.queues

    def may_take(self, queue: str, need: str, labels: Sequence[str]) -> bool:
        """Whether runs of this sort are for it, whether or not there is room now."""
        return self.serves(queue) and need in self.offers and not missing_labels(labels, self.labels)

    def too_small_for(self, need: str, demands: Demands) -> list[str]:
        """What it never has enough of, whatever else runs; "slots" among it."""
        short = list(short_of(demands, {name: amount.total for name, amount in self.resources.items()}))
        return [*short, SLOTS] if demands.slots > max(self.slots_for(need).total, 1) else short

    def lacking_now(self, need: str, demands: Demands) -> list[str]:
        """What there was not enough of when it last spoke."""
        free = {name: amount.total - amount.used for name, amount in self.resources.items()}
        slots = self.slots_for(need)
        short = list(short_of(demands, free))
        return [*short, SLOTS] if demands.slots > 1 and demands.slots > slots.total - slots.used else short


def read_facts(facts: Mapping[str, Any]) -> NodeFacts:
    """Whatever is missing or of another shape is as if not said."""
    return NodeFacts(
        queues=tuple(_words(facts.get("queues"))),
        offers=_offers(facts.get("offers")),
        slots={
            room: Slots(_number(said, "used"), _number(said, "slots")) for room, said in _members(facts.get("slots"))
        },
        labels=tuple(_words(facts.get("labels"))),
        resources={name: _amount(said) for name, said in _members(facts.get("resources"))},
        lease_seconds=facts["lease_seconds"] if isinstance(facts.get("lease_seconds"), int | float) else None,
        obeys=Orders(facts["orders"]) if facts.get("orders") in list(Orders) else Orders.WORK,
        late_loops=tuple(_words(facts.get("late_loops"))),
    )


def node_state(
    orders: Orders, facts: NodeFacts, lease_until: datetime, ended_at: datetime | None, now: datetime, shards: int = 0
) -> NodeState:
    if ended_at is not None:  # whoever leaves ends its lease at the same moment
        return NodeState.LEFT if lease_until == ended_at else NodeState.DEAD
    if lease_until < now:
        return NodeState.LATE
    match orders:
        case Orders.CORDON:
            return NodeState.CORDONED
        case Orders.DRAIN:
            done = facts.obeys is Orders.DRAIN and facts.slots_of_all.used == 0 and not shards
            return NodeState.DRAINED if done else NodeState.DRAINING
        case Orders.WORK:
            return NodeState.WORKING


def _amount(said: Any) -> Amount:
    by = said.get("by") if isinstance(said, Mapping) else None
    pairs = [pair for pair in by if isinstance(pair, list | tuple) and len(pair) == 2] if isinstance(by, list) else []
    return Amount(
        _float(said, "used"),
        _float(said, "total"),
        tuple((run, float(held)) for run, held in pairs if isinstance(run, str) and isinstance(held, int | float)),
    )


def _offers(said: Any) -> dict[str, str]:
    if isinstance(said, list | tuple):  # without the rooms
        return dict.fromkeys(_words(said), "")
    return {need: room for room, needs in _members(said) for need in _words(needs)}


def _members(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _words(value: Any) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list | tuple) else []


def _number(said: Any, name: str) -> int:
    value = said.get(name) if isinstance(said, Mapping) else None
    return value if isinstance(value, int) else 0


def _float(said: Any, name: str) -> float:
    value = said.get(name) if isinstance(said, Mapping) else None
    return float(value) if isinstance(value, int | float) else 0.0
