"""What one node tells, the others hear: the wiring of two executors that only a wait would show to be missing.

Without any of these lines everything still happens, a poll later. So nothing polls here: the nodes have their real
rooms, database and event bus, but their loops are not started, and a wake-up is one that was heard.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from clean_schema import SCHEMA
from hourhand.config import load_config
from hourhand.database.connections import Database
from hourhand.ports.event_bus import Topic
from hourhand.runtime.loops import Loop
from hourhand.wiring import ExecutorNode

HEARD_SECONDS_MAX = 30.0


class Ears:
    """What an executor was woken to do."""

    def __init__(self, node: ExecutorNode) -> None:
        executor = node.executor
        self._loops: dict[str, Loop] = {
            "receiver": executor.receiving,
            "lanes": executor.learning,
            "cancelling": executor.cancelling,
            "callbacks": executor.hearing,
        }
        self._fan_out = executor.fan_out
        self.clear()

    def clear(self) -> None:
        for loop in self._loops.values():
            loop._wake.clear()
        self._parts = self._fan_out._news

    def woken(self) -> set[str]:
        woken = {name for name, loop in self._loops.items() if loop._wake.is_set()}
        return woken | ({"leaders"} if self._parts.is_set() else set())

    async def hear(self, name: str) -> set[str]:
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            while name not in self.woken():
                await asyncio.sleep(0.005)
        return self.woken()


@pytest.fixture
async def nodes(database: Database, tmp_path: Path) -> AsyncIterator[list[ExecutorNode]]:
    made = []
    for name in ("one", "two"):
        flags = {"database.url": database.settings.url, "database.schema": SCHEMA, "name": name}
        node = ExecutorNode(load_config(environ={"HOURHAND_HOME": str(tmp_path / name)}, flags=flags))
        await node.database.open()
        await node.bus.open()
        made.append(node)
    async with asyncio.timeout(HEARD_SECONDS_MAX):
        while any(loop.health.last_success is None for node in made for loop in node.bus.loops[1:]):
            await asyncio.sleep(0.005)
    yield made
    for node in made:
        await node.bus.close()
        await node.blobs.close()
        await node.database.close()


@pytest.mark.parametrize(
    ("say", "heard"),
    [
        pytest.param(lambda node: node.executor.fan_out.wake_all(), "receiver", id="parts are there to be claimed"),
        pytest.param(lambda node: node.executor.recorder.on_parts(), "leaders", id="a part has ended"),
        pytest.param(lambda node: node.store.live_runs.on_let_go(), "receiver", id="a gate has let runs go"),
        pytest.param(lambda node: node.store.names.on_new_lane(), "lanes", id="a lane was made"),
        pytest.param(lambda node: node.bus.publish(Topic.CANCEL), "cancelling", id="runs are to be cancelled"),
        pytest.param(lambda node: node.bus.publish(Topic.CALLBACKS), "callbacks", id="a callback has come"),
    ],
)
async def test_what_one_executor_tells_wakes_those_whom_it_concerns_and_nobody_else(
    nodes: list[ExecutorNode], say: Callable[[ExecutorNode], None], heard: str
) -> None:
    one, two = nodes
    ears = [Ears(one), Ears(two)]
    say(one)
    assert [await each.hear(heard) for each in ears] == [{heard}, {heard}], "the one that told it is concerned, too"
