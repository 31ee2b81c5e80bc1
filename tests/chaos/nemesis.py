"""Breaks things, one at a time, by a plan that follows from a seed, and waits until the cluster is whole again.

Each round of the plan has every kind of fault once, in an order of its own; lengths of pauses straddle the leases and
restarts come at once or late. Only processes that the test started are signalled. What is whole is asked of the
database, never assumed: the next fault comes when the last one is healed, or after `HEAL_SECONDS_MAX`.
"""

import asyncio
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.cluster import Cluster, Leases
from tests.chaos.history import Fault
from tests.chaos.truth import LogFile

HEAL_SECONDS_MIN = 1.0
HEAL_SECONDS_MAX = 40.0
OVERDUE_RUNS_MAX = 3
"""Runs that may be a second late on a machine that is called whole: one look meets some on their way."""

PROCESS_ROLES = ("scheduler", "leader", "executor", "api")
KINDS = (
    *(f"kill_{role}" for role in PROCESS_ROLES),
    *(f"stop_{role}" for role in PROCESS_ROLES),
    "backend_kill",
    "postgres_restart",
    "postgres_kill",
)
FIRST_KINDS = ("kill_executor", "kill_leader")

_WHOLE = """
SELECT (SELECT count(*) FROM hourhand.live_runs
         WHERE state = 0 AND ready_at < clock_timestamp() - interval '1 second') AS overdue,
       (SELECT count(*) FROM hourhand.live_runs r LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
         WHERE r.state IN (2, 3, 4) AND (n.node_id IS NULL OR n.ended_at IS NOT NULL)) AS orphans,
       (SELECT count(*) FROM hourhand.shards s LEFT JOIN hourhand.nodes n ON n.node_id = s.owner_id
         WHERE n.node_id IS NULL OR n.ended_at IS NOT NULL) AS ownerless,
       (SELECT count(*) FROM hourhand.nodes WHERE ended_at IS NULL AND role <> 'api') AS present,
       (SELECT count(*) FROM hourhand.nodes
         WHERE ended_at IS NULL AND role <> 'api' AND lease_until < clock_timestamp()) AS expired
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault to come. The target of `leader` is found when it is due."""

    kind: str
    number: int
    seconds: float
    """How long a process stays stopped or down, how long PostgreSQL stays away, how long backends are killed."""
    target: str = ""
    """A certain node; by chance when empty."""


def plan(seed: int, leases: Leases) -> Iterator[Planned]:
    """Rounds without end: each has every kind once. The same seed gives the same plan.

    The first faults are those whose figures count only when nothing else was broken just before: in a short run every
    later one may come too soon after another.
    """
    chance = random.Random(seed)
    number = 0
    while True:
        order = chance.sample(KINDS, len(KINDS))
        if number == 0:
            order.sort(key=lambda kind: FIRST_KINDS.index(kind) if kind in FIRST_KINDS else len(FIRST_KINDS))
        for kind in order:
            number += 1
            yield Planned(kind, number, round(_seconds(kind, leases, chance), 3))


def _seconds(kind: str, leases: Leases, chance: random.Random) -> float:
    action, _, role = kind.partition("_")
    lease = leases.executor_seconds if role in {"executor", "api"} else leases.scheduler_seconds
    if kind == "stop_api":
        return chance.uniform(1.0, 4.0)
    if action == "stop":
        return lease * chance.choice((0.35, 0.8, 1.1, 1.35))  # below, just below, just above, well above
    if role == "api":
        return chance.uniform(0.0, 2.0)
    if action == "kill":
        return lease * chance.choice((0.0, 0.1, chance.uniform(0.2, 1.33)))
    if kind == "backend_kill":
        return chance.uniform(0.5, 2.0)
    return chance.uniform(0.0, 2.0)  # PostgreSQL away, beside what its own start takes


class Nemesis:
    def __init__(self, cluster: Cluster, log: LogFile, seed: int) -> None:
        self._cluster = cluster
        self._log = log
        self._chance = random.Random(seed + 1)
        self.injected: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.unhealed: list[str] = []
        """Faults after which the cluster was not whole again in time."""

    async def inject(self, planned: Planned) -> None:
        """One fault, from its start to a cluster that is whole again."""
        begun = self._cluster.clock.now()
        action, role, target, detail = await self._break_and_mend(planned)
        ended = self._cluster.clock.now()
        self._note(Fault(action=action, role=role, target=target, started=begun, ended=ended, detail=detail))
        await self._healed(f"{planned.number} {planned.kind} {target}")

    def _note(self, fault: Fault) -> None:
        self._log.write(fault)
        self.injected[fault.kind] = self.injected.get(fault.kind, 0) + 1

    async def _healed(self, what: str) -> None:
        if not await self.wait_until_whole():
            self.unhealed.append(f"{what}: {await self._what_is_not_whole()}")

    async def stop_all_schedulers(self, seconds: float) -> None:
        """Nobody plans for so long: what falls due meanwhile is caught up with, or not, as its job says."""
        begun = self._cluster.clock.now()
        names = [name for name, node in self._cluster.nodes.items() if node.role == "scheduler"]
        await asyncio.gather(*(self._stop(name, seconds) for name in names))
        self._note(Fault(action="stop", role="schedulers", started=begun, ended=self._cluster.clock.now()))
        await self._healed("stop of all schedulers")

    async def restart_everything(self) -> None:
        """A deployment: every node in turn is asked to stop, and started again."""
        for name, node in self._cluster.nodes.items():
            begun = self._cluster.clock.now()
            await self._cluster.drain_node(name)
            await self._cluster.start_node(name)
            ended = self._cluster.clock.now()
            self._note(Fault(action="drain", role=node.role, target=name, started=begun, ended=ended))
        await self._healed("restart of everything")

    async def _break_and_mend(self, planned: Planned) -> tuple[str, str, str, str]:
        kind, seconds = planned.kind, planned.seconds
        action, _, role = kind.partition("_")
        if action == "kill":
            target = planned.target or await self._target(role)
            return action, role, await self._kill(target, seconds), f"{seconds:g} s down"
        if action == "stop":
            target = planned.target or await self._target(role)
            return action, role, await self._stop(target, seconds), f"{seconds:g} s"
        if kind == "backend_kill":
            return kind, "", "", f"{await self._kill_backends(seconds)} sessions"
        if kind == "drop_notify":
            return kind, "", "", f"{await self._silence_listeners(seconds)} listeners for {seconds:g} s"
        number = signal.SIGKILL
        if kind == "postgres_restart":  # fast and immediate in turn
            number = signal.SIGINT if self.injected[kind] % 2 else signal.SIGQUIT
        await self._cluster.stop_postgres(number)
        await asyncio.sleep(seconds)
        await self._cluster.start_postgres()
        return kind, "", "", f"{number.name}, {seconds:g} s away"

    async def _target(self, role: str) -> str:
        """A node of the role; a `scheduler` is one that does not lead."""
        leader = await self._leader()
        if role == "leader":
            return leader
        nodes = self._cluster.nodes
        names = [name for name, node in nodes.items() if node.role == role and name != leader and node.pid is not None]
        return self._chance.choice(sorted(names))

    async def _leader(self) -> str:
        async with asyncio.timeout(HEAL_SECONDS_MAX):
            while (leader := await self._cluster.leader()) is None:
                await asyncio.sleep(0.1)
        return leader

    async def _kill(self, name: str, seconds: float) -> str:
        self._cluster.kill_node(name)
        await asyncio.sleep(seconds)
        await self._cluster.start_node(name)
        return name

    async def _stop(self, name: str, seconds: float) -> str:
        pid = self._cluster.kill_node(name, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            if self._cluster.nodes[name].pid == pid:
                self._cluster.kill_node(name, signal.SIGCONT)
        return name

    async def _kill_backends(self, seconds: float) -> int:
        """Ends random sessions of the nodes, a few at a time."""
        killed = 0
        ends = self._cluster.clock.now() + seconds
        while self._cluster.clock.now() < ends:
            rows = await self._cluster.ask(
                "SELECT pg_terminate_backend(pid) AS gone FROM pg_stat_activity"
                " WHERE application_name LIKE 'hourhand%' ORDER BY random() LIMIT $1",
                self._chance.randint(1, 8),
            )
            killed += sum(row["gone"] for row in rows)
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))
        return killed

    async def _silence_listeners(self, seconds: float) -> int:
        """Stops the database's side of every listening session: what is said to it meanwhile is not heard."""
        rows = await self._cluster.ask(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hourhand%listener' AND state = 'idle'"
        )
        pids = [int(row["pid"]) for row in rows]
        try:
            for pid in pids:
                self._cluster.signal_backend(pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                self._cluster.signal_backend(pid, signal.SIGCONT)
        return len(pids)

    # --- healing ------------------------------------------------------------------------------------------

    async def wait_until_whole(self, seconds_max: float = HEAL_SECONDS_MAX) -> bool:
        await asyncio.sleep(HEAL_SECONDS_MIN)
        ends = self._cluster.clock.now() + seconds_max
        calm = 0
        while self._cluster.clock.now() < ends:
            calm = calm + 1 if not await self._what_is_not_whole() else 0
            if calm == 2:  # twice running: one look may fall between two waves
                return True
            await asyncio.sleep(0.25)
        return False

    async def _what_is_not_whole(self) -> str:
        if missing := [name for name, node in self._cluster.nodes.items() if node.pid is None]:
            return f"not running: {', '.join(missing)}"
        rows = await self._cluster.ask(_WHOLE)
        if not rows:
            return "the database does not answer"
        [row] = rows
        faults = [f"{row[what]} {what}" for what in ("orphans", "ownerless", "expired") if row[what]]
        if row["overdue"] > OVERDUE_RUNS_MAX:
            faults.append(f"{row['overdue']} overdue")
        # Who died is still held for alive, or who lives is not known yet. Nothing hangs on the lease of an API.
        if row["present"] != sum(node.role != "api" for node in self._cluster.nodes.values()):
            faults.append(f"{row['present']} present")
        return ", ".join(faults)
