"""Hears what executors say of themselves, for whoever checks requests by it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from hourhand.ports.stores import NodeRow

HEAR_SECONDS: Final = 2.0


class PresentNodes(Protocol):
    async def present_nodes(self) -> list[NodeRow]: ...


class ExecutorFacts:
    def __init__(self, nodes: PresentNodes, *learn: Callable[[Sequence[Mapping[str, Any]]], None]) -> None:
        """Each `learn` is told the facts of all live executors, again and again."""
        self._nodes = nodes
        self._learn = learn

    async def run_once(self) -> float | None:
        rows = await self._nodes.present_nodes()
        facts = [row.facts for row in rows if row.role == "executor" and row.lease_until > row.now]
        for learn in self._learn:
            learn(facts)
        return None
