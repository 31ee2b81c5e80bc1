"""What goes on beside a measurement, once a second: processor time by role, memory, table sizes, starts.

Of a temporary cluster everything can be seen; of a running one what its nodes say: their process ids, if they are on
this machine. Looking costs a few milliseconds a second, and that is in the figures too, as `client` and
`postgres bench`.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from hourhand.bench.cluster import SCHEMA
from hourhand.bench.figures import per_second, shares
from hourhand.bench.meter import POSTGRES, Meter, machine_seconds
from hourhand.bench.report import Line, Progress
from hourhand.bench.stages import SETTING, Samples, read_samples, role_pids, shares_between, stages_of
from hourhand.bench.target import Target
from hourhand.bench.witness import LineCount
from hourhand.database.servers import Connection

INTERVAL_SECONDS: Final = 1.0
TABLES_EVERY: Final = 5
"""Sizes of tables are asked for with every fifth look: that takes PostgreSQL milliseconds."""
SHOWN_CORES_MIN: Final = 0.02
STOLEN: Final = "taken by the host"
"""Of the machine's cores: what is late in such a second says little about us."""
_BACKENDS: Final = "SELECT pid, backend_type, application_name FROM pg_stat_activity"
_TABLES: Final = """
SELECT coalesce(p.relname, c.relname) AS name, sum(pg_total_relation_size(c.oid))::bigint AS bytes,
       coalesce(sum(s.n_live_tup), 0)::bigint AS live, coalesce(sum(s.n_dead_tup), 0)::bigint AS dead,
       coalesce(sum(s.autovacuum_count), 0)::bigint AS vacuums
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $1
  LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
  LEFT JOIN pg_class p ON p.oid = i.inhparent
  LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
 WHERE c.relkind = 'r'
 GROUP BY 1
"""
_WRITTEN: Final = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 / 1e6 AS wal_mb,
       (SELECT num_done FROM pg_stat_checkpointer)::float8 AS checkpoints
"""
_SETTINGS: Final = """
SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY($1::text[]) ORDER BY name
"""
_TOLD_SETTINGS: Final = (
    "shared_buffers", "wal_buffers", "wal_compression", "wal_sync_method", "max_wal_size", "checkpoint_timeout",
    "autovacuum", "autovacuum_naptime", "commit_delay", "io_method", "jit", "max_connections",
)  # fmt: skip
_TOLD_TABLES: Final = ("jobs", "timetable", "live_runs", "runs", "attempts", "log_chunks")


@dataclass(frozen=True, slots=True)
class Table:
    bytes: int
    live: int
    dead: int
    vacuums: int = 0
    """How often it was vacuumed so far because it was time."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    """Seconds since 1970."""
    cpu: Mapping[str, float]
    """Processor seconds so far, by role."""
    memory: Mapping[str, float]
    """Resident megabytes, by role."""
    tables: Mapping[str, Table]
    started: int
    """Calls of handlers since the course began."""
    machine: Mapping[str, float]
    """What all cores have done so far, whoever used them."""
    written: Mapping[str, float] = field(default_factory=dict)
    """The server's log and its checkpoints so far."""


class Course:
    """Use it as a context manager round what is measured."""

    def __init__(self, target: Target, progress: Progress) -> None:
        self._target = target
        self._progress = progress
        self.lines = LineCount(target.witness)
        """From now on: whoever measures what was submitted before makes his course before that, and enters it later."""
        self._samples_before: Samples = {}
        self._inside: Mapping[str, Mapping[str, float]] = {}
        self._database: Connection | None = None
        self._sampling: asyncio.Task[None] | None = None
        self.status: dict[str, Any] = {}
        """What the cluster said of itself at the beginning."""
        self.samples: list[Sample] = []
        self._server_settings: dict[str, str] = {}
        self.doing = ""
        """What the progress line says in front."""

    async def __aenter__(self) -> Self:
        self.status = await self._target.status()
        cluster = self._target.cluster
        self._stages = Path(cluster.settings[SETTING]) if cluster and SETTING in cluster.settings else None
        supervisor = {cluster.supervisor: "supervisor"} if cluster and cluster.supervisor else {}
        pids = role_pids(self.status, socket.gethostname())
        self.meter = Meter(pids, supervisor, cluster.postmaster() if cluster else None)
        if cluster is not None:
            self._database = await cluster.connect()
            rows = await self._database.fetch(_SETTINGS, list(_TOLD_SETTINGS))
            self._server_settings = {row["name"]: row["value"] for row in rows}
        if self._stages is not None:
            self._samples_before = read_samples(self._stages)
        await self._sample()
        self._sampling = asyncio.create_task(self._keep_sampling())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._sampling is not None
        self._sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sampling
        self._progress.end()
        await self._sample(last=True)
        if self._stages is not None:
            self._inside = shares_between(self._samples_before, read_samples(self._stages))
        if self._database is not None:
            await self._database.close()
            self._database = None
        self.lines.close()

    async def _keep_sampling(self) -> None:
        began = time.monotonic()
        for number in range(1, 1 << 31):
            await asyncio.sleep(max(began + number * INTERVAL_SECONDS - time.monotonic(), 0.0))
            await self._sample()
            self._tell()

    async def _sample(self, *, last: bool = False) -> None:
        backends: dict[int, str] = {}
        tables: Mapping[str, Table] = {}
        written: Mapping[str, float] = {}
        if self._database is not None:
            [row] = await self._database.fetch(_WRITTEN)
            written = {"wal_mb": row["wal_mb"], "checkpoints": row["checkpoints"]}
            backends = {pid: does(*what) for pid, *what in await self._database.fetch(_BACKENDS)}
            tables = await self._tables(self._database, last=last)
        memory, started = self.meter.resident_mb(), self.lines.lines()
        cpu, machine = self.meter.seconds(backends), machine_seconds()
        self.samples.append(Sample(time.time(), cpu, memory, tables, started, machine, written))

    async def _tables(self, database: Connection, *, last: bool) -> Mapping[str, Table]:
        if len(self.samples) % TABLES_EVERY and not last:
            return self.samples[-1].tables
        rows = await database.fetch(_TABLES, SCHEMA)
        return {row["name"]: Table(row["bytes"], row["live"], row["dead"], row["vacuums"]) for row in rows}

    def _tell(self) -> None:
        before, now = self.samples[-2], self.samples[-1]
        rate = per_second(now.started - before.started, now.at - before.at)
        seconds = now.at - self.samples[0].at
        self._progress.update(f"{self.doing}{seconds:5.0f} s   {now.started:,} started   {rate:,.0f}/s")

    # --- what it came to ---------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return self.samples[-1].at - self.samples[0].at

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time of each role while it was looked at."""
        return shares(self.samples[0].cpu, self.samples[-1].cpu, 1.0)

    def cpu(self) -> dict[str, float]:
        """Shares of one core, by role; of the sessions of PostgreSQL, by the role that they serve."""
        found = shares(self.samples[0].cpu, self.samples[-1].cpu, self.seconds)
        return {role: round(share, 4) for role, share in sorted(brief(found).items())}

    def machine(self) -> dict[str, float]:
        """Cores of the whole machine: busy for anybody, waiting for the disk, stolen by the host, idle."""
        found = shares(self.samples[0].machine, self.samples[-1].machine, self.seconds)
        return {name: round(cores, 3) for name, cores in found.items()}

    def memory_mb(self) -> dict[str, float]:
        """The most that was resident, by role."""
        roles = {role for sample in self.samples for role in sample.memory}
        return {role: round(max(s.memory.get(role, 0.0) for s in self.samples), 1) for role in sorted(roles)}

    def tables(self) -> dict[str, dict[str, float]]:
        """At the end: size, rows, and rows that wait for vacuum; and the most of these that there were."""
        last = self.samples[-1].tables
        return {
            name: {
                "size_mb": round(last[name].bytes / 1e6, 2),
                "live": last[name].live,
                "dead": last[name].dead,
                "dead_max": max(sample.tables[name].dead for sample in self.samples if name in sample.tables),
            }
            for name in _TOLD_TABLES
            if name in last
        }

    def writes(self, jobs: int) -> dict[str, float]:
        """What PostgreSQL has written meanwhile: its log, per job too; checkpoints; vacuums that came by themselves.
        Empty where the server cannot be looked at."""
        first, last = self.samples[0], self.samples[-1]
        if not last.written:
            return {}
        found = shares(first.written, last.written, 1.0)
        vacuums = sum(table.vacuums for table in last.tables.values())
        vacuums -= sum(table.vacuums for table in first.tables.values())
        return {
            "wal_mb": round(found["wal_mb"], 2),
            "wal_bytes_per_job": round(found["wal_mb"] * 1e6 / jobs, 1) if jobs else 0.0,
            "checkpoints": int(found["checkpoints"]),
            "vacuums": vacuums,
        }

    def settings(self) -> dict[str, str]:
        return {**self._target.settings(self.status), **self._server_settings}

    def stages(self, jobs: int) -> dict[str, dict[str, float]]:
        return stages_of(self.cpu_seconds(), jobs, self._inside)

    def lines_over_time(self) -> dict[str, Line]:
        """Curves of processor time and table sizes; without those that would lie on the ground."""
        return {**self._cpu_over_time(), **self._tables_over_time(), **self._log_over_time()}

    def _spans(self) -> Iterator[tuple[Sample, Sample, float]]:
        """Each look and the one before, with the moment half-way between. The last may come soon after the one before
        it: too short a time to say anything of."""
        for before, now in pairwise(self.samples):
            if now.at - before.at >= INTERVAL_SECONDS / 2:
                yield before, now, (before.at + now.at) / 2 - self.samples[0].at

    def _cpu_over_time(self) -> dict[str, Line]:
        found: dict[str, Line] = {}
        for before, now, moment in self._spans():
            seconds = now.at - before.at
            stolen = shares(before.machine, now.machine, seconds).get("stolen", 0.0)
            for role, share in {**brief(shares(before.cpu, now.cpu, seconds)), STOLEN: stolen}.items():
                line = found.setdefault(f"processor, cores/{role}", Line([], []))
                line.seconds.append(moment)
                line.values.append(share)
        return {name: found[name] for name in sorted(found) if max(found[name].values) >= SHOWN_CORES_MIN}

    def _tables_over_time(self) -> dict[str, Line]:
        """Sizes when they were asked for: in between the last ones are only repeated."""
        found: dict[str, Line] = {}
        looks = [self.samples[0], *(now for before, now in pairwise(self.samples) if now.tables is not before.tables)]
        times = [sample.at - self.samples[0].at for sample in looks]
        for name in _TOLD_TABLES:
            sizes = [sample.tables[name].bytes / 1e6 if name in sample.tables else 0.0 for sample in looks]
            if max(sizes) > min(sizes):
                found[f"tables, MB/{name}"] = Line(times, sizes)
        return found

    def _log_over_time(self) -> dict[str, Line]:
        line = Line([], [])
        for before, now, moment in self._spans():
            if "wal_mb" in now.written:
                line.seconds.append(moment)
                line.values.append((now.written["wal_mb"] - before.written["wal_mb"]) / (now.at - before.at))
        return {"log (WAL), MB per second/written": line} if line.values else {}


def does(kind: str | None, application: str | None) -> str:
    """What a process of PostgreSQL does, in a word or two: whom it serves, or its own work."""
    if kind == "client backend":
        return (application or "").removeprefix("hourhand ") or "unknown"
    return "autovacuum" if kind and kind.startswith("autovacuum") else kind or "unknown"


def brief(by_role: Mapping[str, float]) -> dict[str, float]:
    """Sessions of one role together: "postgres executor recorder" counts as "postgres executor"."""
    found: dict[str, float] = {}
    for name, value in by_role.items():
        words = name.split()
        of_node = words[0] == POSTGRES and len(words) > 2 and words[1] in ("api", "scheduler", "executor")
        short = " ".join(words[:2]) if of_node else name
        found[short] = found.get(short, 0.0) + value
    return found
