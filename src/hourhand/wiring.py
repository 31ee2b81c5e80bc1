"""The one place that chooses adapters and assembles nodes."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hourhand.blobs.choice import blobs_for
from hourhand.config import Config
from hourhand.database.connections import Database
from hourhand.database.deadlines import for_heartbeats, for_loops, long_running
from hourhand.database_setup import make_partitions, open_store, partition_cuts, prepare_database, require_migrated
from hourhand.executor.executor import Executor, Stores
from hourhand.executor.journal import Journal
from hourhand.executor.secrets import AttemptSecrets
from hourhand.model.errors import BlobsUnavailable, BlobsUnsuitable, DatabaseUnavailable, HandlersLeftBehind, PartEnded
from hourhand.ports.event_bus import Topic
from hourhand.run_queues.postgres_events import PostgresEventBus
from hourhand.runtime.bell import Bell, Seldom
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.garbage import search_seldom
from hourhand.runtime.heartbeat import Heartbeat
from hourhand.runtime.ids import IdSource
from hourhand.runtime.keyring import keyring_of
from hourhand.runtime.loops import Loop
from hourhand.runtime.membership import Membership
from hourhand.runtime.signing import TrustedKeys
from hourhand.runtime.sockets import allow_connections, free_port
from hourhand.runtime.stages import sample_stages
from hourhand.runtime.tz_data import LOOK_SECONDS, ZoneWatch
from hourhand.scheduler.backfiller import Backfiller
from hourhand.scheduler.blob_pruner import BlobPruner
from hourhand.scheduler.judge import Judge
from hourhand.scheduler.leadership import Leadership
from hourhand.scheduler.log_mover import LogMover
from hourhand.scheduler.lookout import UNASKED_SECONDS, Lookout
from hourhand.scheduler.orphans import ORPHANS_SECONDS, Orphans
from hourhand.scheduler.pause_keeper import PauseKeeper
from hourhand.scheduler.planner import Planner
from hourhand.scheduler.pruner import Pruner
from hourhand.scheduler.reaper import Reaper
from hourhand.scheduler.storage_watch import StorageWatch
from hourhand.scheduler.zone_keeper import ZoneKeeper
from hourhand.store.callbacks import Callbacks
from hourhand.store.completions import Completions
from hourhand.store.live_runs import LiveRuns
from hourhand.store.log_packs import LogPacks
from hourhand.store.logs import Logs
from hourhand.store.names import Names
from hourhand.store.nodes import Nodes
from hourhand.store.partitions import Partitions
from hourhand.store.progress import ProgressBoard
from hourhand.store.run_files import RunFiles
from hourhand.store.whole import Store, store_on
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

__all__ = [
    "ROLES", "Store", "make_partitions", "open_store", "prepare_database", "require_migrated", "run_role", "store_on",
]  # fmt: skip

AWAY = (DatabaseUnavailable,)
LOGS_TOLD_SECONDS = 0.2
"""How often an executor tells at most that it has written log lines: somebody may be looking on."""
STREAMS_END_SECONDS_MAX = 3.0
"""How long callers may take to read the last word of their streams when an API node stops."""


@lru_cache(maxsize=1)
def program_version() -> str:
    try:
        return version("hourhand")
    except PackageNotFoundError:
        return "from source"


def node_name(config: Config, role: str) -> str:
    return f"{config.name or socket.gethostname()}-{role}-{os.getpid()}"


class Node:
    """What all roles have: a place in the cluster, loops, and an orderly end."""

    role = "node"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = DatabaseClock()
        self.priority_wait = timedelta(seconds=config.executor.priority_wait_seconds)
        self.ids = IdSource()
        self.name = node_name(config, self.role)
        settings = config.database if self.role == "api" else for_loops(config.database)
        self.database = Database(settings, self.role, plan_once=True)
        self.store = store_on(self.database, self.priority_wait)
        self.bus = PostgresEventBus(self.database, config.database, self.role)
        self.blobs = blobs_for(config.blobs, config.home)
        self.store.names.on_new_lane = lambda: self.bus.publish(Topic.LANES)
        self.store.live_runs.on_let_go = lambda: self.bus.publish(Topic.READY)
        self.loops: list[Loop] = []
        self.ended = asyncio.Event()
        """Set when a part of the node has ended by itself."""
        self.ended_part: PartEnded | None = None
        self._essential: list[Loop] = []
        self.zone_watch = ZoneWatch()
        self.loop("zone watch", self.zone_watch.run_once, LOOK_SECONDS, essential=False)

    def join_as(
        self, lease_seconds: float, heartbeat_seconds: float, facts: Callable[[], dict[str, Any]]
    ) -> Membership:
        """`facts` are asked for by the thread that renews the lease, so they must wait for nobody."""

        def all_facts() -> dict[str, Any]:
            about = {"version": program_version(), "host": socket.gethostname(), "lease_seconds": lease_seconds}
            about["tz_data"] = self.zone_watch.edition
            return {**about, **facts(), "orders": self.membership.orders.value, "late_loops": self.late_loops()}

        door = Database(for_heartbeats(self.config.database, lease_seconds), f"{self.role} heartbeat")
        self.membership = Membership(Nodes(door), self.role, self.name, lease_seconds, self.clock, all_facts)
        hang_seconds_max = None if self.role == "executor" else lease_seconds
        self.heartbeat = Heartbeat(self.membership, door, heartbeat_seconds, AWAY, hang_seconds_max)
        self._essential.append(self.heartbeat.loop)
        return self.membership

    def loop(
        self, name: str, run_once: Callable[[], Awaitable[float | None]], seconds: float, *, essential: bool = True
    ) -> Loop:
        """A loop of this node. An essential one is shown when it is late."""
        loop = Loop(name, run_once, seconds, AWAY)
        self.loops.append(loop)
        if essential:
            self._essential.append(loop)
        return loop

    def late_loops(self) -> list[str]:
        """Essential loops that have not come through for too long. From any thread."""
        return [loop.name for loop in self._essential if loop.is_late()]

    def watch(self, loop: Loop | Heartbeat) -> None:
        loop.on_back = self._revalidate
        loop.on_death = self.part_ended

    def part_ended(self, name: str, cause: BaseException | None) -> None:
        emit(Event.TASK_ENDED, task=name, error=repr(cause), exc_info=cause)
        self.end_for(PartEnded(name))

    def end_for(self, reason: PartEnded) -> None:
        """Ends the node in order, so that whoever started it starts another."""
        self.ended_part = self.ended_part or reason
        self.ended.set()

    def _revalidate(self) -> None:
        """The database is back: what was learnt before it went may no longer hold, and nobody need wait any longer."""
        self.store.names.forget()
        for loop in self._all_loops():
            loop.urge()

    def _all_loops(self) -> list[Loop | Heartbeat]:
        return [*self.loops, *self.bus.loops, self.heartbeat]

    async def start(self) -> None:
        await self._check_blobs()
        await self.database.open()
        for loop in self._all_loops():
            self.watch(loop)
        await self.heartbeat.start()
        self.clock.tell_if_apart(time.time())
        await self.bus.open()
        for loop in self.loops:
            loop.start()
        emit(Event.NODE_STARTED, node_id=self.membership.node_id, name=self.name)

    async def stop(self) -> None:
        emit(Event.NODE_STOPPING, node_id=self.membership.node_id)
        await self.finish_work()
        await asyncio.gather(*(loop.stop() for loop in self.loops))
        await self.close_rooms()
        await self.heartbeat.stop()  # as the last: whatever the node still had was under its lease until here
        self.bus.publish(Topic.NODES)  # so that others take over at once
        await self.bus.close()
        await self.blobs.close()
        await self.database.close()
        emit(Event.NODE_STOPPED, node_id=self.membership.node_id)

    async def _check_blobs(self) -> None:
        """What will never work is told now and not by the first run that leaves a file. Storage that is only away is no
        reason to stay away as well: most runs need none."""
        try:
            await self.blobs.check()
        except BlobsUnsuitable:
            raise
        except BlobsUnavailable as fault:
            emit(Event.BLOBS_AWAY, error=str(fault))

    async def finish_work(self) -> None:
        """Brings to an end what the role has in hand, while everything still runs."""

    async def close_rooms(self) -> None:
        """Ends what a role has opened for itself."""


class SchedulerNode(Node):
    role = "scheduler"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        settings = config.scheduler
        membership = self.join_as(settings.lease_seconds, settings.heartbeat_seconds, lambda: {"pid": os.getpid()})

        def node_id() -> int:
            return membership.node_id

        keeper = PauseKeeper(self.store.pauses, self.store.jobs, node_id, self.clock)
        self.planner = Planner(self.store.timetable, node_id, self.clock, self.bus, settings, keeper)
        lookout = Lookout(self.store.turns, self.planner, node_id, self.clock, settings)
        reaper = Reaper(self.store.live_runs, self.store.nodes, self.clock, self.bus)
        grace = max(settings.lease_seconds, config.executor.lease_seconds)
        self.leadership = Leadership(self.store.nodes, reaper, node_id, self.bus, settings, grace, self.clock)
        # Dropping a day of history may take longer than anything that others wait for.
        self.pruning = Database(long_running(config.database), "scheduler pruner", any_plan=True)
        sweeps = (ProgressBoard(self.pruning).sweep, Callbacks(self.pruning).sweep)
        tables = Partitions(self.pruning, settings.keep_audit_days)
        pruner = Pruner(tables, partition_cuts(config), self.leadership, self.clock, sweeps)
        looking = self.loop("lookout", lookout.run_once, settings.tick_seconds)
        planning = self.loop("planner", self.planner.run_once, UNASKED_SECONDS)
        leading = self.loop("leadership", self.leadership.run_once, settings.heartbeat_seconds)
        self._pruning_loop = self.loop("pruner", pruner.run_once, settings.prune_seconds, essential=False)
        blob_pruner = BlobPruner(
            self.blobs, RunFiles(self.pruning), self.leadership, self.clock, settings.keep_runs_days
        )
        pruning_blobs = StorageWatch("blob pruner", blob_pruner.run_once)
        self._blobs_loop = self.loop("blob pruner", pruning_blobs.run_once, settings.prune_seconds, essential=False)
        mover = LogMover(
            LogPacks(self.pruning),
            self.blobs,
            self.leadership,
            node_id,
            self.clock,
            lambda: self.ids.new_id(self.clock.now()),
            config.logs,
            self._all_reach_blobs,
        )
        moving = StorageWatch("log mover", mover.run_once)
        self._moving_loop = self.loop("log mover", moving.run_once, config.logs.move_seconds, essential=False)
        judge = Judge(self.store.turns, node_id, self.clock, self.bus)
        judging = self.loop("judge", judge.run_once, UNASKED_SECONDS)
        keeping = self.loop("pauses", keeper.run_once, UNASKED_SECONDS)
        lookout.wake_planner, lookout.wake_judge, lookout.wake_keeper = planning.wake, judging.wake, keeping.wake
        keeper.wake_planner = planning.wake
        self.bus.subscribe(Topic.PAUSES, keeping.wake)
        backfiller = Backfiller(
            self.store.backfills, self.leadership, node_id, self.clock, self.ids, self.bus, settings.keep_runs_days
        )
        orphans = Orphans(self.store.parts, self.leadership, self.clock).run_once
        self.loop("orphans", orphans, ORPHANS_SECONDS, essential=False)
        backfilling = self.loop("backfiller", backfiller.run_once, UNASKED_SECONDS, essential=False)
        self.bus.subscribe(Topic.BACKFILLS, backfilling.wake)
        zones = ZoneKeeper(self.store.zones, self.leadership, node_id, self.clock, self.zone_watch)
        self._zones_loop = self.loop("zone keeper", zones.run_once, LOOK_SECONDS, essential=False)
        self.bus.subscribe(Topic.SHARDS, looking.wake)
        self.bus.subscribe(Topic.NODES, leading.wake)
        self.bus.subscribe(Topic.NODES, self.heartbeat.urge)
        self.planning = planning

    async def _all_reach_blobs(self) -> bool:
        """Whether every node can read what this one keeps: in a place that was named for all, or on this machine."""
        nodes = [] if self.config.blobs.url is not None else await self.store.nodes.present_nodes()
        return all(node.facts.get("host") == socket.gethostname() for node in nodes)

    async def start(self) -> None:
        await self.pruning.open()
        await super().start()

    async def stop(self) -> None:
        with contextlib.suppress(*AWAY):
            await self.leadership.resign()
        self.bus.publish(Topic.NODES)
        for loop in (self._pruning_loop, self._blobs_loop, self._moving_loop, self._zones_loop):
            await loop.cancel()  # they may take minutes, and the shards wait for this node's end
        await super().stop()
        await self.pruning.close()


class ExecutorNode(Node):
    role = "executor"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        from hourhand.job_kinds.abandonable import LEFT_MAX
        from hourhand.job_kinds.artifact_cache import ArtifactCache
        from hourhand.job_kinds.registry import kinds_for_running, python_kind
        from hourhand.wiring_hidden import hidden_from_programs

        settings = config.executor
        # A claimed sync run must not wait inside the executor: as many workers as there are places for it.
        workers = max(config.kinds.worker_processes_max, settings.slots_process)
        artifacts = ArtifactCache(
            config.home / "artifact-cache",
            config.kinds.artifact_cache_bytes_max,
            self.store.artifacts,
            self.blobs,
            TrustedKeys(config.kinds.artifact_keys, config.kinds.require_signed_artifacts),
            config.kinds.archive_limits,
        )
        kinds = replace(config.kinds, worker_processes_max=workers)
        self.kinds = kinds_for_running(kinds, hidden_from_programs(config), artifacts)
        self._handler_facts = python_kind(self.kinds).facts()
        python_kind(self.kinds).left_behind.on_full = lambda: self.end_for(HandlersLeftBehind(LEFT_MAX))
        self.writing = Database(replace(for_loops(config.database), pool_max=2), "executor recorder", plan_once=True)
        connections = settings.transaction_connections
        self.transacting = Database(
            replace(config.database, pool_max=connections), "executor transaction", any_plan=True
        )
        stores = Stores(
            self.store.live_runs,
            self.store.names,
            self._live_runs_on(self.writing),
            Logs(self.writing, config.logs.large_bytes),
            Completions(self.transacting, self._live_runs_on(self.transacting)),
            ProgressBoard(self.writing),
            Callbacks(self.writing),
            self.store.parts,
        )
        folder = settings.journal_folder or config.home / "journal"
        self.executor = Executor(
            stores,
            self.kinds,
            self.join_as(settings.lease_seconds, settings.heartbeat_seconds, self._facts),
            self.clock,
            self.ids.fraction,
            Journal(folder, self.name, settings.journal_bytes_max),
            settings,
            config.kinds.grace_seconds,
            self.blobs,
            config.api.public_url or f"http://{config.api.host}:{config.api.port}",
        )
        keyring = keyring_of(config)
        asked = (self.store.secrets, keyring, lambda: self.membership.node_id)
        self.executor.attempts.secrets = AttemptSecrets(*asked)
        self.executor.callbacks.keys = keyring
        self.executor.make_loops(self.loop)
        self.executor.fan_out.wake_all = lambda: self.bus.publish(Topic.READY)
        self.executor.recorder.on_parts = lambda: self.bus.publish(Topic.PARTS)
        self.bus.subscribe(Topic.PARTS, self.executor.fan_out.hear)
        self.bus.subscribe(Topic.READY, self.executor.receiving.wake)
        self.bus.subscribe(Topic.LANES, self.executor.learning.wake)
        self.bus.subscribe(Topic.CANCEL, self.executor.cancelling.wake)
        self.bus.subscribe(Topic.CALLBACKS, self.executor.hearing.wake)
        self.bus.subscribe(Topic.NODES, self.heartbeat.urge)
        self.executor.recorder.on_logs = Seldom(LOGS_TOLD_SECONDS, lambda: self.bus.publish(Topic.LOGS))
        self.heartbeat.on_buried = self.executor.duty.let_go
        self.heartbeat.on_orders = self.executor.duty.obey
        self.stop_at_once = asyncio.Event()

    def _facts(self) -> dict[str, Any]:
        return {**self.executor.facts(), **self._handler_facts}

    def _live_runs_on(self, database: Database) -> LiveRuns:
        live_runs = LiveRuns(database, Names(database), self.priority_wait)
        live_runs.on_let_go = lambda: self.bus.publish(Topic.READY)
        return live_runs

    async def start(self) -> None:
        await self.writing.open()
        await self.transacting.open()
        await self.executor.open()
        await super().start()

    async def finish_work(self) -> None:
        await self.executor.finish(self.stop_at_once)

    async def close_rooms(self) -> None:
        await self.executor.close()
        await self.transacting.close()
        await self.writing.close()


class ApiNode(Node):
    role = "api"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        from hourhand.api.app import build_app
        from hourhand.api.streaming import Streams
        from hourhand.job_kinds.registry import kinds_for_checking, python_kind
        from hourhand.operations.access import Access
        from hourhand.operations.executor_facts import HEAR_SECONDS, ExecutorFacts
        from hourhand.operations.offers import Offers
        from hourhand.wiring_api import ApiGround, api_operations

        self.join_as(config.executor.lease_seconds, config.executor.heartbeat_seconds, lambda: {"pid": os.getpid()})
        kinds = kinds_for_checking(config.kinds)
        offers = Offers()
        hearing = ExecutorFacts(self.store.nodes, python_kind(kinds).known.learn, offers.learn)
        hearing_loop = self.loop("executor facts", hearing.run_once, HEAR_SECONDS, essential=False)
        self.bus.subscribe(Topic.NODES, hearing_loop.wake)
        self.access = Access(self.store.tokens, self.store.names)
        bell = Bell()
        self.bus.subscribe(Topic.LOGS, bell.ring)
        ground = ApiGround(
            config,
            self.store,
            self.database,
            self.clock,
            self.ids,
            self.bus,
            self.blobs,
            kinds,
            self.access,
            bell,
            offers,
        )
        operations = api_operations(ground, self._database_facts, self.late_loops)
        self.streams = Streams(config.api.streams_max)
        self.app = build_app(operations, config.api, self.streams)
        self._serving: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        port = free_port(self.config.api.host, self.config.api.port)
        await super().start()
        from granian.constants import HTTPModes, Interfaces
        from granian.server.embed import Server

        from hourhand.operations.previews import warm_up

        warm_up(self.clock.now())

        self._server = Server(
            self.app,
            address=self.config.api.host,
            port=port,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,  # with `auto` it waits for ever for the first byte of those who send none
            websockets=False,
            log_enabled=False,
            backlog=1024,
            backpressure=allow_connections(self.config.api.connections_max),
        )
        emit(Event.API_LISTENS, host=self.config.api.host, port=port)
        self._serving = asyncio.create_task(self._server.serve(), name="granian")
        self._serving.add_done_callback(self._serving_ended)

    async def stop(self) -> None:
        self._stopping = True
        await self.streams.close(STREAMS_END_SECONDS_MAX)
        if self._serving is not None:
            self._server.stop()  # type: ignore[no-untyped-call]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(self._serving, return_exceptions=True), 10)
        await super().stop()

    def _serving_ended(self, serving: "asyncio.Task[None]") -> None:
        if not self._stopping:
            self.part_ended("HTTP server", None if serving.cancelled() else serving.exception())

    async def _database_facts(self) -> dict[str, str]:
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
        async with self.database.transaction() as db:
            return {name: await db.fetchval("SELECT current_setting($1)", name) for name in names}


ROLES: dict[str, type[Node]] = {"api": ApiNode, "scheduler": SchedulerNode, "executor": ExecutorNode}


async def run_role(config: Config, role: str, ready: Callable[[], None] = lambda: None) -> None:
    """Runs one role until SIGTERM or SIGINT; a second one ends it at once. Raises PartEnded when a part is gone."""
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
    search_seldom()
    sample_stages(role)
    ready()
    waits = {asyncio.create_task(event.wait()) for event in (stopping, node.ended)}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await node.stop()
    if isinstance(node, ExecutorNode) and node.executor.is_stuck:
        # The loop cannot be closed before a handler that ignores its cancellation has ended, which it never does.
        os._exit(0 if node.ended_part is None else 1)
    if node.ended_part is not None:
        raise node.ended_part
