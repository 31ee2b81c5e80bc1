"""Wake-ups between nodes. A hint, never the news: whoever hears one looks for itself, and looks from time to time."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol


class Topic(StrEnum):
    READY = "ready"
    """Runs are ready now."""
    CANCEL = "cancel"
    """Somebody asked for runs to be ended."""
    LANES = "lanes"
    """A lane was made."""
    SHARDS = "shards"
    """Shards have new owners."""
    PAUSES = "pauses"
    """Something was paused or resumed."""
    BACKFILLS = "backfills"
    """A backfill was asked for, or is to go on."""
    LOGS = "logs"
    """Attempts have written lines, or have ended that had."""
    CALLBACKS = "callbacks"
    """Somebody outside has said how an attempt ended."""
    PARTS = "parts"
    """Parts of runs on several executors have ended."""
    NODES = "nodes"
    """Something else is wanted of a node, or it was declared lost."""


class EventBus(Protocol):
    def publish(self, topic: Topic) -> None:
        """Tells everyone soon: at once when it was quiet, else once for many. Never blocks or raises; may be lost."""

    def subscribe(self, topic: Topic, hear: Callable[[], None]) -> None:
        """`hear` is called for every event, and once after each time the line was down. Before `open`."""
