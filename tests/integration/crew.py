"""Schedulers and executors that take a step when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from sample_jobs import NAMESPACE, START, rows

from hourhand.executor.attempts import Attempts, offers_of
from hourhand.executor.capacity import Capacity
from hourhand.executor.fan_out import FAN_OUT, FanOut
from hourhand.executor.outputs import Outputs
from hourhand.executor.receiver import Receiver
from hourhand.executor.recorder import Recorder
from hourhand.executor.settings import ExecutorSettings
from hourhand.model.errors import Fault
from hourhand.model.outcome import Cancelled, Outcome
from hourhand.model.run import Run
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.job_kind import JobKind, SlotClass, Task
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.longest import Longest
from hourhand.runtime.looks import ThoroughLooks
from hourhand.runtime.membership import Membership
from hourhand.scheduler.leadership import Leadership
from hourhand.scheduler.lookout import Lookout
from hourhand.scheduler.pause_keeper import PauseKeeper
from hourhand.scheduler.planner import Planner
from hourhand.scheduler.reaper import Reaper
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.wiring import Store


class SetClock(DatabaseClock):
    """Shows the time that it was set to."""

    def __init__(self, time: datetime = START) -> None:
        super().__init__()
        self.time = time

    def now(self) -> datetime:
        return self.time

    def seconds_until(self, instant: datetime) -> float:
        return (instant - self.time).total_seconds()

    @property
    def error_seconds(self) -> float:
        return 0.0


class NotedBus:
    def __init__(self) -> None:
        self.said: list[Topic] = []

    def publish(self, topic: Topic) -> None:
        self.said.append(topic)

    def subscribe(self, topic: Topic, hear: Callable[[], None]) -> None: ...


class Scheduler:
    """Planner, leadership and reaper of one node, on a clock that is set by hand."""

    def __init__(self, store: Store, clock: SetClock, settings: SchedulerSettings | None = None) -> None:
        self.node_id = 0
        self.store = store
        self.clock = clock
        self.bus = NotedBus()
        settings = settings or SchedulerSettings(batch_max=50, horizon_seconds=2.0)  # tests count in whole seconds
        bus = cast("EventBus", self.bus)
        self.keeper = PauseKeeper(store.pauses, store.jobs, lambda: self.node_id, clock, heard_seconds_max=-1)
        self.planner = Planner(store.timetable, lambda: self.node_id, clock, bus, settings, self.keeper)
        self.planner.thorough = ThoroughLooks(lambda: 1000.0)  # every look is, however busy the machine
        self.lookout = Lookout(store.turns, self.planner, lambda: self.node_id, clock, settings)
        self.reaper = Reaper(store.live_runs, store.nodes, clock, bus)
        self.leadership = Leadership(store.nodes, self.reaper, lambda: self.node_id, bus, settings, 0.0, clock)

    async def join(self, name: str, lease_seconds: float = 60) -> "Scheduler":
        self.node_id = await self.store.nodes.register_node("scheduler", name, lease_seconds, {})
        return self


class FunctionKind:
    """A kind that runs what the test gave it."""

    name = "number"

    def __init__(self, function: Callable[[Task], Awaitable[Outcome]]) -> None:
        self.function = function
        self.active = 0
        self.most_active = 0

    def slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.INLINE

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return []

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return "number"

    def offers(self) -> Sequence[str]:
        return ["number"]

    async def open(self) -> None: ...

    async def run(self, task: Task) -> Outcome:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self.function(task)
        finally:
            self.active -= 1

    async def close(self) -> None: ...


class Executor:
    """Receiver, attempts and recorder of one node, on the database's own clock unless another is given."""

    def __init__(
        self,
        store: Store,
        function: Callable[[Task], Awaitable[Outcome]],
        slots: int = 100,
        clock: DatabaseClock | None = None,
        labels: Sequence[str] = (),
        things: Mapping[str, float] | None = None,
        outputs: Outputs | None = None,
    ) -> None:
        self.store = store
        self.kind = FunctionKind(function)
        self.clock = clock or DatabaseClock()
        kinds = cast("Mapping[str, JobKind]", {"number": self.kind})
        offers = offers_of(kinds)
        self.capacity = Capacity({SlotClass.INLINE: slots, SlotClass.PROCESS: 0}, things)
        self.recorder = Recorder(store.live_runs, store.logs, self.clock, lambda: 0.5)
        self.fan_out = FanOut(store.parts, self.clock)
        kinds = {**kinds, FAN_OUT: cast("JobKind", self.fan_out)}
        offers[FAN_OUT] = SlotClass.INLINE
        self.attempts = Attempts(kinds, offers, self.capacity, self.recorder, self.clock, 1000, outputs=outputs)
        facts = {
            "queues": ["default"],
            "offers": {"inline": ["number"]},
            "labels": list(labels),
            "slots": self.capacity.facts(),
            "resources": self.capacity.things(),
        }
        self.membership = Membership(store.nodes, "executor", "executor", 60, self.clock, lambda: facts)
        self.receiver = Receiver(
            store.live_runs,
            store.names,
            offers,
            self.capacity,
            lambda: self.membership.node_id,
            self.clock,
            self.attempts.start,
            ExecutorSettings(claim_max=70, labels=tuple(labels)),
        )
        self.receiver.looking.thorough = ThoroughLooks(lambda: 1000.0)
        self.receiver.longest = Longest(lambda: 1000.0)  # no claim takes any time, however busy the machine

    async def join(self) -> "Executor":
        await self.membership.join()
        await self.receiver.learn_lanes()
        return self

    async def turn(self) -> None:
        """Looks for work, lets the attempts go on, writes what they came to."""
        await self.receiver.learn_lanes()
        await self.receiver.run_once()
        await asyncio.sleep(0)
        await self.recorder.run_once()

    async def drain(self) -> None:
        """Turns until nothing is live."""
        async with asyncio.timeout(60):
            while await rows(self.store, "live_runs"):
                await self.turn()

    async def stop_cancelled(self) -> None:
        for run_id, fence in await self.store.live_runs.cancelling_runs(self.membership.node_id):
            self.attempts.stop(run_id, fence, Cancelled())


async def the_run(store: Store, run_id: UUID) -> Run:
    run = await store.runs.get_run(NAMESPACE, run_id)
    assert run is not None
    return run
