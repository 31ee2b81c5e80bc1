"""One chaos run from the first process to the last log: cluster, load, faults, settling, reading.

What is done to the cluster meanwhile comes from outside (`act`): the gate follows a plan of all faults, a deliberate
defect has a scenario of its own. Everything that happened is in the folder afterwards, ready to be judged.
"""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
from tests.chaos import database_recording
from tests.chaos.cluster import Cluster, Leases
from tests.chaos.history import SETTINGS_FILE, Probe, Settings
from tests.chaos.nemesis import Nemesis
from tests.chaos.truth import LogFile
from tests.chaos.workload import SHARES, Workload

PROBE_SECONDS = 10.0
PICKUP_SECONDS = 2.0
RSS_BYTES_MAX = 200 << 20
"""Of one node: three times what one has that nothing was done to."""
FDS_MAX = 600
"""Of one node, sockets among them: an API has one for each caller that waits while the database is away."""
SESSIONS_MAX = {"scheduler": 4 + 3, "executor": 4 + 2 + 4 + 2, "api": 4 + 2}
"""Of one node at the database: its pools, the listener and the heartbeat."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, for how long, on which code."""

    title: str
    seed: int
    folder: Path
    source: Path
    """The folder whose package `hourhand` the nodes run."""
    leases: Leases
    rate: float
    warm_seconds: float = 15.0
    schedulers: int = 3
    executors: int = 3
    apis: int = 2
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    recurring: int | None = None
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    injections_min: Mapping[str, int] = field(default_factory=dict)
    invariants_demanded: Sequence[int] = ()
    """Those that must have been put to the test."""
    figures_demanded: bool = False
    settle_seconds_max: float = 120.0
    """How long what is unfinished is waited for at the end."""

    @property
    def settle_seconds(self) -> float:
        """What the slowest thing may still need: a lease, a retry, the grace of a stubborn command."""
        return self.leases.executor_seconds + self.leases.grace_seconds + 8


Act = Callable[[Cluster, Nemesis], Awaitable[None]]


@dataclass(slots=True)
class Recorded:
    """What the logs do not say."""

    missing: list[str]
    """What this version of the API does not offer, so that it could not be put to the test."""
    broken: list[str]
    """What the workload could not make sense of."""
    unhealed: list[str]
    tracebacks: list[str]
    ended_by_themselves: list[str]
    seconds: float


async def record(order: Order, act: Act) -> Recorded:
    """Everything up to the logs. Ends what it started also when it is asked to stop."""
    begun = time.monotonic()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    order.folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(
        order.folder,
        order.leases,
        source=order.source,
        schedulers=order.schedulers,
        executors=order.executors,
        apis=order.apis,
        node_environment=order.node_environment,
    )
    async with cluster:
        db = await cluster.connect()
        await database_recording.install(db)
        await db.close()
        started_at = cluster.clock.now()
        workload = Workload(
            cluster,
            order.folder,
            order.seed,
            order.rate,
            order.leases.executor_seconds * 1.5,
            order.shares,
            order.recurring,
        )
        probes = asyncio.create_task(_probe(cluster, order.folder))
        await workload.start()
        await asyncio.sleep(order.warm_seconds)
        with LogFile(order.folder / "faults.jsonl") as log:
            nemesis = Nemesis(cluster, log, order.seed)
            await act(cluster, nemesis)
        await workload.stop()
        await _settle(cluster, order.settle_seconds, order.settle_seconds_max)
        probes.cancel()
        await asyncio.gather(probes, return_exceptions=True)
        with LogFile(order.folder / "probes.jsonl") as log:
            await _look(cluster, log, final=True)
        db = await cluster.connect()
        try:
            read_at = await database_recording.dump(db, order.folder)
        finally:
            await db.close()
        settings = _settings(order, started_at, read_at)
        (order.folder / SETTINGS_FILE).write_bytes(msgspec.json.encode(settings))
    _forget_after(order.folder / "witness.jsonl", read_at)
    return Recorded(
        workload.missing,
        workload.broken,
        nemesis.unhealed,
        read_tracebacks(order.folder),
        _ended_by_themselves(order.folder),
        time.monotonic() - begun,
    )


async def _settle(cluster: Cluster, least_seconds: float, most_seconds: float) -> None:
    """Until nothing one-off is unfinished, and for as long as the slowest thing may need; recurring jobs go on."""
    begun = cluster.clock.now()
    while (passed := cluster.clock.now() - begun) < most_seconds:
        rows = await cluster.ask(
            "SELECT count(*) AS open FROM hourhand.live_runs WHERE cause <> 1 AND ready_at < now()"
        )
        if passed >= least_seconds and rows and not rows[0]["open"]:
            return
        await asyncio.sleep(0.25)


def _settings(order: Order, started_at: float, read_at: float) -> Settings:
    leases = order.leases
    return Settings(
        started_at=started_at,
        read_at=read_at,
        seed=order.seed,
        title=order.title,
        lease_seconds=leases.executor_seconds,
        self_fence_seconds=leases.self_fence_seconds,
        self_fence_kill_seconds=leases.self_fence_kill_seconds,
        shard_lease_seconds=leases.scheduler_seconds,
        grace_seconds=leases.grace_seconds,
        settle_seconds=order.settle_seconds,
        slack_seconds=leases.slack_seconds,
        pickup_seconds=PICKUP_SECONDS + leases.slack_seconds,
        rss_bytes_max=RSS_BYTES_MAX,
        fds_max=FDS_MAX,
        injections_min=dict(order.injections_min),
        invariants_demanded=tuple(order.invariants_demanded),
        figures_demanded=order.figures_demanded,
    )


def _forget_after(path: Path, read_at: float) -> None:
    """Leaves out what was witnessed after the tables were read: nothing else of that time is known."""
    lines = path.read_bytes().splitlines(keepends=True)
    stamp = len(b'{"at":')
    path.write_bytes(b"".join(line for line in lines if float(line[stamp : line.index(b",")]) < read_at))


# --- looking ----------------------------------------------------------------------------------------------


async def _probe(cluster: Cluster, folder: Path) -> None:
    with LogFile(folder / "probes.jsonl") as log:
        while True:
            await _look(cluster, log)
            await asyncio.sleep(PROBE_SECONDS)


async def _look(cluster: Cluster, log: LogFile, *, final: bool = False) -> None:
    for node in cluster.nodes.values():
        if node.pid is None:
            continue
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(node.pid)
            log.write(
                Probe(
                    at=cluster.clock.now(),
                    node=node.name,
                    rss_bytes=process.memory_info().rss,
                    fds=process.num_fds(),
                    final=final,
                )
            )
    if final:
        for role, sessions in (await _sessions(cluster)).items():
            nodes = sum(node.role == role for node in cluster.nodes.values())
            log.write(
                Probe(
                    at=cluster.clock.now(),
                    node=f"all of role {role}",
                    connections=sessions,
                    connections_max=nodes * SESSIONS_MAX[role],
                    final=True,
                )
            )
    run_ids = tuple(sorted(set((await asyncio.to_thread(cluster.processes_with_a_run)).values())))
    log.write(Probe(at=cluster.clock.now(), node="", run_ids=run_ids, final=final))


async def _sessions(cluster: Cluster) -> dict[str, int]:
    """How many sessions the nodes of each role have at the database. They say who they are: `hourhand <role> …`."""
    rows = await cluster.ask("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'hourhand %'")
    found = Counter(row["application_name"].split()[1] for row in rows)
    return {role: found[role] for role in SESSIONS_MAX}


def read_tracebacks(folder: Path) -> list[str]:
    """The last line of every traceback that a node wrote: nothing a fault does may surprise the code."""
    found = []
    for path in sorted(folder.glob("*.stderr")):
        inside = False
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("Traceback (most recent call last)"):
                inside = True
            elif inside and line and not line.startswith((" ", "\t")):
                found.append(f"{path.stem}: {line[:200]}")
                inside = False
    return found


def _ended_by_themselves(folder: Path) -> list[str]:
    lines = [msgspec.json.decode(line) for line in (folder / "processes.jsonl").read_bytes().splitlines()]
    return [
        f"{line['node']} ended with {line['exit_code']}"
        for line in lines
        if line["event"] == "ended by itself" or (line["event"] == "stopped" and line["exit_code"] != 0)
    ]
