"""What live executors offer, as this node last heard it.

It is heard every two seconds, and when an executor comes or goes; it is asked for with nearly every job, so asking
neither waits nor costs. What it says is for warnings: no decision hangs on it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hourhand.model.node_state import read_facts


class Offers:
    def __init__(self) -> None:
        self._queues: dict[str, set[str]] = {}
        """By what is offered: the queues of those who do."""
        self._is_anybody_there = False

    def learn(self, facts: Sequence[Mapping[str, Any]]) -> None:
        """Of all live executors."""
        queues: dict[str, set[str]] = {}
        before: tuple[Any, Any] | None = None
        for each in facts:
            told = each.get("queues"), each.get("offers")
            if told == before:  # most of a fleet are alike, and to read a thousand of them takes long
                continue
            before, read = told, read_facts(each)
            for need in read.offers:
                queues.setdefault(need, set()).update(read.queues)
        self._queues, self._is_anybody_there = queues, bool(facts)

    def lack(self, queue: str, need: str) -> bool:
        """Whether somebody is there, but nobody who takes runs of this sort."""
        served = self._queues.get(need, ())
        return queue not in served and "*" not in served and self._is_anybody_there
