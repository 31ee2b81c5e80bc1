"""The one place that chooses adapters and assembles nodes."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from hourhand.config import Config
from hourhand.database.connections import Database
from hourhand.database.migrate import applied, migrate, migrations, refuse_mismatch
from hourhand.executor.attempts import Attempts, offers_of
from hourhand.executor.capacity import Capacity
from hourhand.executor.lost_claims import INTERVAL_SECONDS, LostClaims
from hourhand.executor.receiver import Receiver
from hourhand.executor.recorder import Recorder
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable, PortTaken
from hourhand.model.outcome import Cancelled
from hourhand.ports.event_bus import Topic
from hourhand.ports.job_kind import SlotClass
from hourhand.run_queues.postgres_events import PostgresEventBus
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.ids import IdSource
from hourhand.runtime.loops import Loop
from hourhand.runtime.membership import Membership
from hourhand.scheduler.leadership import Leadership
from hourhand.scheduler.planner import Planner
from hourhand.scheduler.pruner import Pruner
from hourhand.scheduler.reaper import Reaper
from hourhand.store.jobs import Jobs
from hourhand.store.live_runs import LiveRuns
from hourhand.store.logs import Logs
from hourhand.store.names import Names
from hourhand.store.nodes import Nodes
from hourhand.store.partitions import Cut, Partitions
from hourhand.store.runs import Runs
from hourhand.store.timetable import Timetable
from hourhand.store.tokens import Tokens
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

AWAY = (DatabaseUnavailable,)


@dataclass
class Store:
    """Everything that is kept, through one pool of connections."""

    database: Database
    names: Names
    jobs: Jobs
    runs: Runs
    live_runs: LiveRuns
    timetable: Timetable
    logs: Logs
    nodes: Nodes
    tokens: Tokens
    partitions: Partitions


def store_on(database: Database) -> Store:
    names = Names(database)
    return Store(
        database,
        names,
        Jobs(database, names),
        Runs(database, names),
        LiveRuns(database, names),
        Timetable(database),
        Logs(database),
        Nodes(database),
        Tokens(database),
        Partitions(database),
    )


@contextlib.asynccontextmanager
async def open_store(config: Config, application: str) -> AsyncIterator[Store]:
    database = Database(config.database, application)
    await database.open()
    try:
        yield store_on(database)
    finally:
        await database.close()


async def prepare_database(config: Config) -> None:
    """Checks the database, brings its tables up to date and makes today's partitions."""
    async with open_store(config, "migrate") as store:
        await store.database.check()
        done = await migrate(store.database)
        if done:
            emit(Event.MIGRATED, versions=[migration.version for migration in done])
        await make_partitions(config, store)


async def make_partitions(config: Config, store: Store) -> None:
    """Makes the partitions of the coming days; afterwards the leader keeps them."""
    async with store.database.connection() as db:
        now = await db.fetchval("SELECT now()")
    await store.partitions.maintain(partition_cuts(config), now)


async def require_migrated(config: Config) -> None:
    """A role that does not migrate by itself refuses a database that is not ready for it."""
    async with open_store(config, "check") as store:
        await store.database.check()
        known, done = migrations(config.database.schema), await applied(store.database)
        refuse_mismatch(known, done)
        if len(done) < len(known):
            raise DatabaseUnsuitable(
                f"the database has {len(done)} of {len(known)} migrations: run `hourhand db migrate` first"
            )


def partition_cuts(config: Config) -> list[Cut]:
    keep = config.scheduler.keep_runs_days
    return [Cut("jobs", 7, 2, None), *(Cut(table, 1, 7, keep) for table in ("runs", "attempts", "log_chunks"))]


def node_name(config: Config, role: str) -> str:
    return f"{config.name or socket.gethostname()}-{role}-{os.getpid()}"


class Node:
    """What all roles have: a place in the cluster, loops, and an orderly end."""

    role = "node"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = DatabaseClock()
        self.ids = IdSource()
        self.name = node_name(config, self.role)
        self.database = Database(config.database, self.role)
        self.store = store_on(self.database)
        self.bus = PostgresEventBus(self.database, config.database, self.role)
        self.store.names.on_new_lane = lambda: self.bus.publish(Topic.LANES)
        self.loops: list[Loop] = []

    def join_as(
        self, lease_seconds: float, heartbeat_seconds: float, facts: Callable[[], dict[str, Any]]
    ) -> Membership:
        self.membership = Membership(self.store.nodes, self.role, self.name, lease_seconds, self.clock, facts)
        self.loop("membership", self.membership.run_once, heartbeat_seconds)
        return self.membership

    def loop(self, name: str, run_once: Callable[[], Awaitable[float | None]], seconds: float) -> Loop:
        loop = Loop(name, run_once, seconds, AWAY)
        self.loops.append(loop)
        return loop

    async def start(self) -> None:
        await self.database.open()
        await self.membership.join()
        await self.bus.open()
        for loop in self.loops:
            loop.start()
        emit(Event.NODE_STARTED, node_id=self.membership.node_id, name=self.name)

    async def stop(self) -> None:
        emit(Event.NODE_STOPPING, node_id=self.membership.node_id)
        await self.bus.close()
        await asyncio.gather(*(loop.stop() for loop in self.loops))
        with contextlib.suppress(*AWAY):
            await self.membership.leave()
        await self.database.close()
        emit(Event.NODE_STOPPED, node_id=self.membership.node_id)


class SchedulerNode(Node):
    role = "scheduler"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        settings = config.scheduler
        membership = self.join_as(settings.lease_seconds, settings.heartbeat_seconds, lambda: {"pid": os.getpid()})

        def node_id() -> int:
            return membership.node_id

        self.planner = Planner(self.store.timetable, self.store.nodes, node_id, self.clock, self.bus, settings)
        reaper = Reaper(self.store.live_runs, self.store.nodes, self.clock, self.bus)
        grace = max(settings.lease_seconds, config.executor.lease_seconds)
        self.leadership = Leadership(self.store.nodes, reaper, node_id, self.bus, settings, grace)
        pruner = Pruner(self.store.partitions, partition_cuts(config), self.leadership, self.clock)
        planning = self.loop("planner", self.planner.run_once, settings.tick_seconds)
        learning = self.loop("shards", self.planner.learn_shards, 1.0)
        self.loop("leadership", self.leadership.run_once, settings.sweep_seconds)
        self.loop("pruner", pruner.run_once, settings.prune_seconds)
        self.bus.subscribe(Topic.SHARDS, learning.wake)
        self.planning = planning

    async def stop(self) -> None:
        with contextlib.suppress(*AWAY):
            await self.leadership.resign()
        await super().stop()


class ExecutorNode(Node):
    role = "executor"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        from hourhand.job_kinds.registry import kinds_for_running

        settings = config.executor
        # A claimed sync run must not wait inside the executor: as many workers as there are places for it.
        workers = max(config.kinds.worker_processes_max, settings.slots_process)
        self.kinds = kinds_for_running(replace(config.kinds, worker_processes_max=workers))
        offers = offers_of(self.kinds)
        self.capacity = Capacity({SlotClass.INLINE: settings.slots_inline, SlotClass.PROCESS: settings.slots_process})
        membership = self.join_as(settings.lease_seconds, settings.heartbeat_seconds, self._facts)
        # Claims and outcomes have connections of their own: neither waits for the other.
        self.writing = Database(replace(config.database, pool_max=2), "executor recorder")
        self.recorder = Recorder(
            LiveRuns(self.writing, Names(self.writing)), Logs(self.writing), self.clock, self.ids.fraction
        )
        self.attempts = Attempts(self.kinds, offers, self.capacity, self.recorder, self.clock, settings.log_lines_max)
        self.receiver = Receiver(
            self.store.live_runs,
            self.store.names,
            offers,
            self.capacity,
            lambda: membership.node_id,
            self.clock,
            self.attempts.start,
            settings,
        )
        lost_claims = LostClaims(
            self.store.live_runs, self.attempts, self.recorder, lambda: membership.node_id, self.clock
        )
        membership.on_buried = self._let_go
        self.loop("lost claims", lost_claims.run_once, INTERVAL_SECONDS)
        recording = self.loop("recorder", self.recorder.run_once, 1.0)
        receiving = self.loop("receiver", self.receiver.run_once, settings.poll_seconds)
        lanes = self.loop("lanes", self._learn_lanes, 2.0)
        cancelling = self.loop("cancelling", self._cancel_asked, 1.0)
        self.receiving = receiving
        self.recorder.wake = recording.wake
        self.capacity.wake = receiving.wake
        self.bus.subscribe(Topic.READY, receiving.wake)
        self.bus.subscribe(Topic.LANES, lanes.wake)
        self.bus.subscribe(Topic.CANCEL, cancelling.wake)
        self.stop_at_once = asyncio.Event()

    async def start(self) -> None:
        for kind in self.kinds.values():
            await kind.open()
        await self.writing.open()
        await super().start()

    async def stop(self) -> None:
        """Takes nothing new, lets attempts end within their time, gives back the rest."""
        self.receiver.claiming = False
        await self.receiving.stop()
        self.attempts.give_back_unstarted()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.executor.stop_seconds):
                ended = asyncio.create_task(self.attempts.all_ended())
                urged = asyncio.create_task(self.stop_at_once.wait())
                await asyncio.wait({ended, urged}, return_when=asyncio.FIRST_COMPLETED)
                urged.cancel()
        self.attempts.stop_all()
        # A handler that will not end is left behind: it dies with this process, and others get its run.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.attempts.all_ended(), self.config.kinds.grace_seconds + 5)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.recorder.all_written(), 5)
        await super().stop()
        for kind in self.kinds.values():
            await kind.close()
        await self.writing.close()

    async def _let_go(self) -> None:
        """Others have got the runs of the old number; going on with them here would only double their effects."""
        self.receiver.claiming = False
        self.attempts.stop_all()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.attempts.all_ended(), self.config.kinds.grace_seconds + 5)
        self.receiver.claiming = True

    async def _learn_lanes(self) -> float | None:
        before = len(self.receiver.lanes)
        await self.receiver.learn_lanes()
        if len(self.receiver.lanes) != before:
            self.receiving.wake()
        return None

    async def _cancel_asked(self) -> float | None:
        for run_id, fence in await self.store.live_runs.cancelling_runs(self.membership.node_id):
            self.attempts.stop(run_id, fence, Cancelled())
        return None

    def _facts(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "queues": list(self.config.executor.queues),
            "slots": self.capacity.facts(),
            "offers": sorted(offers_of(self.kinds))[:200],
            "bench_witness": os.environ.get("HOURHAND_BENCH_WITNESS"),
        }


class ApiNode(Node):
    role = "api"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        from hourhand.api.app import ApiOperations, build_app
        from hourhand.job_kinds.registry import kinds_for_checking
        from hourhand.operations.access import Access
        from hourhand.operations.cluster import ClusterOperations
        from hourhand.operations.jobs import JobOperations
        from hourhand.operations.runs import RunOperations

        self.join_as(config.executor.lease_seconds, config.executor.heartbeat_seconds, lambda: {"pid": os.getpid()})
        store = self.store
        kinds = kinds_for_checking(config.kinds.allow_private_targets)
        self.access = Access(store.tokens, store.names)
        operations = ApiOperations(
            jobs=JobOperations(store.jobs, store.runs, kinds, self.clock, self.ids, self.bus, config.submit),
            runs=RunOperations(store.runs, store.jobs, store.logs, self.clock, self.bus),
            cluster=ClusterOperations(store.nodes, store.runs, store.timetable, self.clock, self._database_facts),
            access=self.access,
        )
        self.app = build_app(operations, config.api)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        refuse_taken_port(self.config.api.host, self.config.api.port)
        await super().start()
        from granian.constants import Interfaces
        from granian.server.embed import Server

        self._server = Server(
            self.app,
            address=self.config.api.host,
            port=self.config.api.port,
            interface=Interfaces.ASGI,
            websockets=False,
            log_enabled=False,
            backlog=1024,
        )
        self._serving = asyncio.create_task(self._server.serve(), name="granian")

    async def stop(self) -> None:
        if self._serving is not None:
            self._server.stop()  # type: ignore[no-untyped-call]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(self._serving, return_exceptions=True), 10)
        await super().stop()

    async def serving_ended(self) -> None:
        assert self._serving is not None
        await asyncio.wait({self._serving})

    async def _database_facts(self) -> dict[str, str]:
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
        async with self.database.connection() as db:
            return {name: await db.fetchval("SELECT current_setting($1)", name) for name in names}


def refuse_taken_port(host: str, port: int) -> None:
    """Says in one line that the port is taken, before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as fault:
            remedy = "stop what listens there, or choose another by HOURHAND_PORT"
            raise PortTaken(f"cannot listen on {host}:{port} ({fault.strerror}): {remedy}") from None


ROLES: dict[str, type[Node]] = {"api": ApiNode, "scheduler": SchedulerNode, "executor": ExecutorNode}


async def run_role(config: Config, role: str, ready: Callable[[], None] = lambda: None) -> None:
    """Runs one role until SIGTERM or SIGINT; a second one ends it at once."""
    node = ROLES[role](config)
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set() and isinstance(node, ExecutorNode):
            node.stop_at_once.set()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await node.start()
    ready()
    waits: set[asyncio.Task[Any]] = {asyncio.create_task(stopping.wait())}
    if isinstance(node, ApiNode):
        waits.add(asyncio.create_task(node.serving_ended()))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await node.stop()
