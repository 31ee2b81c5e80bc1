"""When a node says that it is ready: its own loops and the database, a scheduler that plans in time, an executor."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from hourhand.model.errors import DatabaseUnavailable
from hourhand.operations import cluster
from hourhand.operations.cluster import ClusterOperations
from hourhand.ports.stores import NodeRow

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WELL = {"database": "ok", "loops": "ok", "scheduler": "ok", "executor": "ok"}


def node(role: str, *late_loops: str, left: float = 5.0, facts: dict[str, Any] | None = None) -> NodeRow:
    told = {"late_loops": list(late_loops)} if facts is None else facts
    return NodeRow(1, role, role, NOW, NOW + timedelta(seconds=left), told, NOW)


class Nodes:
    def __init__(self, *rows: NodeRow) -> None:
        self.rows = rows

    async def present_nodes(self) -> Sequence[NodeRow]:
        return self.rows


async def checks(*rows: NodeRow, late: Sequence[str] = ()) -> dict[str, str]:
    return await operations(Nodes(*rows), late).readiness()


def operations(nodes: Any, late: Sequence[str] = ()) -> ClusterOperations:
    nobody = cast("Any", None)
    return ClusterOperations(nodes, nobody, nobody, nobody, nobody, lambda: late)


async def test_it_is_ready_when_everybody_is_there() -> None:
    assert await checks(node("scheduler"), node("executor")) == WELL
    assert await checks(node("scheduler", facts={}), node("executor", facts={})) == WELL, "older nodes say less"


async def test_it_is_not_ready_without_a_live_scheduler_or_executor() -> None:
    assert await checks(node("executor")) == WELL | {"scheduler": "no live scheduler"}
    assert await checks(node("scheduler"), node("executor", left=-1)) == WELL | {"executor": "no live executor"}


async def test_it_is_not_ready_when_the_planning_is_late_and_says_what_is() -> None:
    late = await checks(node("scheduler", "planner", "leadership"), node("executor"))
    assert late == WELL | {"scheduler": "late: leadership, planner"}


async def test_one_scheduler_that_plans_in_time_is_enough() -> None:
    assert await checks(node("scheduler", "planner"), node("scheduler"), node("executor")) == WELL
    both = await checks(node("scheduler", "planner"), node("scheduler", "shards"), node("executor"))
    assert both == WELL | {"scheduler": "late: planner, shards"}
    dead = await checks(node("scheduler", "planner"), node("scheduler", left=-1), node("executor"))
    assert dead == WELL | {"scheduler": "late: planner"}


async def test_a_busy_executor_does_not_keep_callers_away() -> None:
    assert await checks(node("scheduler"), node("executor", "receiver")) == WELL


async def test_it_is_not_ready_when_its_own_loops_are_late() -> None:
    late = await checks(node("scheduler"), node("executor"), late=["membership"])
    assert late == WELL | {"loops": "late: membership"}


async def test_a_database_that_fails_or_hangs_is_told_within_the_time_a_prober_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away(Nodes):
        async def present_nodes(self) -> Sequence[NodeRow]:
            raise DatabaseUnavailable("secret host does not answer")

    class Hanging(Nodes):
        async def present_nodes(self) -> Sequence[NodeRow]:
            await asyncio.Event().wait()
            return ()

    monkeypatch.setattr(cluster, "READY_SECONDS_MAX", 0.01)
    assert await operations(Away()).readiness() == {
        "database": "cannot be reached: DatabaseUnavailable",
        "loops": "ok",
    }
    assert (await operations(Hanging()).readiness())["database"] == "cannot be reached: TimeoutError"
