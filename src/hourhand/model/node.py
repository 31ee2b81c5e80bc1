"""What a node is told when it renews its lease."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Orders(StrEnum):
    """What operators want of a node. The words are stored."""

    WORK = "work"
    CORDON = "cordon"
    """Takes nothing new; what it has goes on."""
    DRAIN = "drain"
    """Takes nothing new and gives back what does not end in time; it stays, idle."""


@dataclass(frozen=True, slots=True)
class Renewal:
    now: datetime
    """By the database's clock."""
    orders: Orders
